"""`record()`: measures what compiled code does in the meantime, and makes a `Profile` of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gluonjit.common.aside import imported
from gluonjit.common.stages import told_to
from gluonjit.profiling.listing import text
from gluonjit.profiling.measured import Lap, Profile, Stage
from gluonjit.runtime.machine_use import Clocks

if TYPE_CHECKING:
    from gluonjit.runtime.timed import Timer


class Recording(Profile):
    """A profile that is being recorded."""

    _begin = 0.0
    """When it began, in seconds of `time.perf_counter`."""
    _timer: Timer
    _clocks: Clocks

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Marks one round of the program, such as a step of training, whose whole time is to be noted."""
        begin, cpu = time.perf_counter(), time.process_time()
        yield
        end, cpu = time.perf_counter(), time.process_time() - cpu
        self.laps.append(Lap(begin - self._begin, end - self._begin, cpu))

    def __repr__(self) -> str:
        """The tables that `gluonjit profile` prints."""
        return text(self)

    def forget(self) -> None:
        """Drops the calls and laps so far, such as first ones that find nothing in caches; what was compiled stays."""
        self._timer.forget()
        self.laps.clear()
        self._clocks = Clocks.read()


@contextmanager
def record(timeline: int = 20, peaks: bool = True) -> Iterator[Recording]:
    """Measures all calls of compiled code, on all threads of the process, and what is compiled meanwhile.

    Gives a `Profile`, which is complete when the context is left. Calls return the same bits as ever; native code takes
    some nanoseconds more for each kernel, and the first call of each program some milliseconds. `timeline`: of so many
    of each program's last calls all events are kept. `peaks`: notes what the machine can do at most, which takes a
    fifth of a second the first time. IRError if a profile is being recorded already.

        with gluonjit.profiler.record() as p:
            net(x)
        print(p)  # the layers by their time; p.programs has all of it as numbers
    """
    imported("gluonjit.profiling.collecting")  # with the compiler, which a program that compiles nothing does not need
    from gluonjit.profiling import collecting

    found, timer = Recording(), collecting.Timer()
    begin = found._begin = time.perf_counter()
    found._timer, found._clocks = timer, Clocks.read()
    compilers: dict[int, int] = {}

    def heard(name: str, at: float, seconds: float) -> None:
        thread = compilers.setdefault(threading.get_ident(), len(compilers))
        found.compiling.append(Stage(name, at - begin, seconds, thread))

    try:
        with told_to(heard), timer:
            yield found
    finally:
        found.seconds = time.perf_counter() - begin
        found.use = found._clocks.use_since()
        collecting.complete(found, timer, begin, timeline, peaks)
