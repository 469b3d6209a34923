"""What is known of a kernel beyond its plan: the time that it is expected to take, what it was chosen among, and why.

Nothing is noted while graphs are compiled: the choices are made again, from the kernel's shapes, by the functions that
`select` asks. The file that chooses a kernel says so by a `Choice` (`passes/select_*.py`).
"""

from __future__ import annotations

import functools
import math
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from gluonjit.common.aside import imported
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.cost import nanoseconds
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels import Plan
from gluonjit.ir.machine import Machine
from gluonjit.passes import tiling


class Alternative(NamedTuple):
    """A way to compute a kernel, and the microseconds that it is expected to take on one core."""

    kind: str
    """Alternatives of one kind are compared with each other: "algorithm" or "tile"."""
    what: str
    microseconds: float
    chosen: bool


class Choice:
    """What is asked about the choice of a kernel. Ops have no open sizes."""

    def nanoseconds(self, op: Op, target: Machine) -> float:
        """The nanoseconds that a call is expected to take on one core."""
        return nanoseconds(op, target)

    def alternatives(self, op: Op, target: Machine) -> Iterator[Alternative]:
        """What it was chosen among by expected times."""
        return iter(())

    def why(self, op: Op, target: Machine) -> Iterator[str]:
        """Why it was chosen."""
        plan = KERNEL.of(op)
        if plan is not None and plan.why:
            yield plan.why


_CHOICES: dict[type[Plan], Choice] = {}
_ANY = Choice()
_C = TypeVar("_C", bound=type[Choice])


def choice_of(plan: type[Plan]) -> Callable[[_C], _C]:
    """Declares a class to be the choice of the kernels of this plan."""

    def declare(cls: _C) -> _C:
        _CHOICES[plan] = cls()
        return cls

    return declare


def choice(op: Op) -> Choice:
    """The choice of the op's kernel."""
    plan = KERNEL.of(op)
    if plan is None:
        return _ANY
    module = f"select_{plan.kernel}"
    if module in _modules():  # as in `find_pass`
        imported(f"{_PACKAGE}.{module}")
    return _CHOICES.get(type(plan), _ANY)


_PACKAGE = __name__.rpartition(".")[0]
"""The packages whose modules are searched for choices."""


@functools.cache
def _modules() -> frozenset[str]:
    return frozenset(m.name for m in pkgutil.iter_modules(sys.modules[_PACKAGE].__path__))


def product_of(op: Op) -> Op | None:
    """The matrix product or convolution of a kernel: the last one, as those before it only unpack its weights."""
    plan = KERNEL.of(op)
    if plan is None or not plan.is_product:
        return None
    return [o for o in op.regions[0].ops if o.definition.accumulates == "contraction"][-1]


def tiles(op: Op, halved: bool, target: Machine) -> Iterator[Alternative]:
    """The register tile of a product's kernel, and the fastest of each width; the fastest first."""
    product, plan = product_of(op), KERNEL.of(op)
    assert product is not None and plan is not None
    x, w = product.operands
    shape, item = product.result.shape, x.dtype.itemsize
    if product.name == "conv":
        *_, width, filters = shape
        groups = product.attrs["groups"]
        m, n, terms = width, filters // groups, math.prod(w.shape[:-1])
        apart = tiling.pixels_apart(product.attrs["stride"][-1], x.shape[-1] * item, target)
        times = math.prod(shape[:-2]) * groups
    else:
        (contracted, _), (batch, _) = product.attrs["contract"], product.attrs["batch"]
        m, n = math.prod(shape[len(batch) : -1]), shape[-1]
        terms, times = math.prod(x.shape[k] for k in contracted), math.prod(shape[: len(batch)])
        apart = terms * item
    choices = tiling.register_tiles(m, n, terms, apart, x.dtype, target, halved=halved)
    yield from the_fastest(choices, plan.tile[:2], times, target)


def the_fastest(
    choices: Iterable[tiling.FittingTile], chosen: tuple[int, ...], times: float, target: Machine
) -> Iterator[Alternative]:
    """Of the tiles that fit a product, which is computed so many times, the chosen one and the fastest of each width;
    the fastest first."""
    found = [*choices]
    listed = {min(c for c in found if c.columns == width) for width in {c.columns for c in found}}
    listed |= {c for c in found if c[1:] == chosen}
    for cycles, rows, columns in sorted(listed):
        what, time = f"tiles of {rows}×{columns}", times * cycles / (1e3 * target.clock)
        yield Alternative("tile", what, time, (rows, columns) == chosen)


def not_the_fastest(op: Op, others: list[Alternative]) -> Iterator[str]:
    """Why another tile was chosen than the first one of `tiles`."""
    found = [a for a in others if a.kind == "tile"]
    if found and not found[0].chosen:
        yield "a small tile, as its epilogue reads what is not cached" if len(op.operands) > 2 else "a measured tile"
