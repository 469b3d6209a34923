"""Time stamps in the code of a program: when each kernel begins and ends, on each thread, and how long threads wait.

Such a program is compiled only to be measured (`runtime/timed.py`); its kernels are those of the one without stamps.
Every thread writes to an *area* of its own. It begins with two words, the time stamps at the beginning and the end of
the thread's share; then come two words for every *site*, a kernel's call or a barrier. Outside of loops these are two
time stamps, begin and end, both 0 where the thread did not come by. In the body of a loop or branch they are the sum of
its times, and how often it came by.

The words of a site end when those of the next one begin, so that nothing is left out: the times of a thread's sites
add up to its share.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gluonjit.codegen.text.intrinsics import time_stamp
from gluonjit.codegen.text.llvm import Function
from gluonjit.ir.graph import Op

_ALIGNED = 32
"""Words: what different threads write lies 256 bytes apart."""


@dataclass(frozen=True, eq=False)
class Site:
    """Where a program's time goes."""

    kernel: str
    """The name of the kernel's function; '' for a barrier."""
    op: Op | None
    """What the kernel computes, in the planned graph; None for a barrier."""
    inside: int | None
    """The site of the loop or branch in whose body it is."""
    after: int | None = None
    """For a barrier: the site of the kernel before it, whose end threads wait for."""


@dataclass
class Stamps:
    """The sites of a program: kernels in the order in which it comes by, a loop in front of what it contains. The
    barriers of each function come after its kernels."""

    sites: list[Site] = field(default_factory=list)
    inside: int | None = None
    """The loop whose body is being lowered."""

    def kernel(self, op: Op) -> int:
        """The site of a call of a kernel that has no name yet."""
        self.sites.append(Site("", op, self.inside))
        return len(self.sites) - 1

    def named(self, site: int, kernel: str) -> None:
        self.sites[site] = Site(kernel, self.sites[site].op, self.sites[site].inside)

    def barrier(self, inside: int | None, after: int | None) -> int:
        self.sites.append(Site("", None, inside, after))
        return len(self.sites) - 1

    @property
    def words(self) -> int:
        """Words of a thread's area."""
        return -(-2 * (1 + len(self.sites)) // _ALIGNED) * _ALIGNED


class Watch:
    """Emits the time stamps of one function. `area`: the pointer to the thread's."""

    def __init__(self, f: Function, stamps: Stamps, area: str, inside: int | None) -> None:
        self.f, self.stamps, self.area, self.inside = f, stamps, area, inside
        self.last = time_stamp(f)

    def begins(self) -> None:
        """Marks the beginning of what follows."""
        self.last = time_stamp(self.f)

    def ended(self, site: int) -> None:
        """What the site stands for has just ended; it began when the one before it ended."""
        f, now = self.f, time_stamp(self.f)
        first, second = (f.gep("i64", self.area, 2 + 2 * site + k) for k in range(2))
        if self.inside is None:
            f.store("i64", self.last, first, 8)
            f.store("i64", now, second, 8)
        else:
            f.store("i64", f.add(f.load("i64", first, 8), f.sub(now, self.last)), first, 8)
            f.store("i64", f.add(f.load("i64", second, 8), 1), second, 8)
        self.last = now

    def entered(self) -> None:
        """The thread's share has begun."""
        self.f.store("i64", self.last, self.area, 8)

    def left(self) -> None:
        """The thread's share has ended."""
        self.f.store("i64", time_stamp(self.f), self.f.gep("i64", self.area, 1), 8)
