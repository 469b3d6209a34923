"""Gradients of the weights of small windows by fewer multiplications (`codegen/kernels/winograd_gradient.py`), where
these are expected to take fewer cycles of one core than the plain sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from gluonjit.ir.annotations import KERNEL, SCRATCH, WORKSPACE
from gluonjit.ir.dims import hint, is_static
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import WinogradGradient
from gluonjit.ir.kernels.winograd_gradient_memory import WinogradGradientMemory
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32, DType
from gluonjit.passes import tiling
from gluonjit.passes.choices import Alternative, Choice, choice_of, product_of
from gluonjit.passes.select_winograd import algorithms_of, share_inside, why_transformed
from gluonjit.passes.site import Site
from gluonjit.passes.tiling_winograd import best_transform

_TRANSFORM = 3.0
"""Cycles per vector and position of a transform."""
_BLOCK = 64
"""Tiles of a block: so many multiply-adds for each sum that is read and written, while what neighbouring register tiles
read of a block stays in the first-level cache."""
_ROWS = 4
"""The most rows of a register tile whose channels are parts of a line of the cache."""
_POINTS = 6
"""Of a transform along an axis that is exact enough."""


class Problem(NamedTuple):
    """The gradient of the weights of a convolution of stride 1 over two spatial axes, the first of which may have size
    1. Open sizes are usual ones."""

    images: int
    out: tuple[int, int]
    """Pixels of the cotangent."""
    taps: tuple[int, int]
    inside: float
    """The share of taps that do not fall on padding."""
    channels: int
    filters: int
    dtype: DType


def by_winograd(site: Site, dtype: DType) -> dict[str, Any] | None:
    """The annotations of the kernel for a gradient of weights; None where no transform applies, or would be as slow as
    the plain sums. `dtype`: what is multiplied."""
    problem = _problem(site.anchor) if site.winograd and dtype is F32 else None
    plan = winograd_gradient(problem, site.target) if problem is not None else None
    if problem is None or plan is None:
        return None
    if not all(is_static(v.shape) for v in site.anchor.operands):
        plan = replace(plan, wide=0)  # there may be more tiles than a block has
    extents = (plan.height + problem.taps[0] - 1, plan.width + problem.taps[1] - 1)
    memory = WinogradGradientMemory.of(plan, extents, problem.channels, problem.filters, dtype.itemsize, site.target)
    return KERNEL(plan) | SCRATCH(memory.own) | WORKSPACE(memory.shared)


def _problem(anchor: Op) -> Problem | None:
    """The gradient in the terms of the cost model; None if no transform applies."""
    (x, g), attrs, (*taps, channels, filters) = anchor.operands, anchor.attrs, anchor.result.shape
    if {*attrs["stride"], *attrs["dilation"]} != {1} or len(taps) > 2 or {*taps} - {1, 3, 5} or {*taps} == {1}:
        return None
    if not is_static((channels, filters)):
        return None
    size, out = tiling.usual(x.shape[1:-1]), tiling.usual(g.shape[1:-1])
    inside = share_inside(size, out, taps, attrs["low"])
    line = (1,) * (2 - len(taps))
    (rows, columns), (high, wide) = (*line, *out), (*line, *taps)
    return Problem(hint(x.shape[0]), (rows, columns), (high, wide), inside, channels, filters, x.dtype)


@lru_cache(1024)
def winograd_gradient(problem: Problem, target: Machine) -> WinogradGradient | None:
    """The best plan; None if computing directly is expected to be as fast."""
    return best_transform(direct_cycles(problem, target), winograd_plans(problem, target))


def winograd_plans(problem: Problem, target: Machine) -> Iterator[tuple[WinogradGradient, float]]:
    """A plan with each transform that is exact enough, and the cycles that it is expected to take."""
    high, wide = problem.taps
    for outputs in dict.fromkeys((_outputs(high, most), _outputs(wide, most)) for most in (2, 4)):
        plan = _plan(problem, outputs, target)
        yield plan, winograd_cycles(problem, plan, target)


def _outputs(taps: int, most: int) -> int:
    """Pixels of a tile along an axis, at most so many."""
    return 1 if taps == 1 else min(most, _POINTS + 1 - taps)


def _plan(problem: Problem, outputs: tuple[int, int], target: Machine) -> WinogradGradient:
    tiles, item = _tiles(problem, outputs), problem.dtype.itemsize
    channels, filters, dtype = problem.channels, problem.filters, problem.dtype
    rows, columns = tiling.register_tile(channels, filters, tiles, item, dtype, target)
    blocks = -(-tiles // _BLOCK)
    plan = WinogradGradient(*outputs, rows, columns, -(-tiles // blocks))
    each, line = _positions(problem, outputs) * item, target.line // item
    if blocks > 1 or each * channels * filters <= target.l2:
        return plan
    # No cache is near that holds all sums: those of a line of channels are transformed before the next ones.
    rows, columns = tiling.register_tile(channels, filters, tiles, item, dtype, target, _ROWS)
    wide = min(target.l2 * 3 // 5 // (each * tiles * columns), target.l2 // 5 // (each * line * columns))
    return replace(plan, rows=rows, columns=columns, wide=wide) if line % rows == 0 and wide else plan


def direct_cycles(problem: Problem, target: Machine) -> float:
    """Estimated cycles of `weight_gradient`."""
    pixels = problem.images * math.prod(problem.out)
    product = _product(problem.channels, problem.filters, pixels, problem.dtype, target)
    return math.prod(problem.taps) * problem.inside * product


def winograd_cycles(problem: Problem, plan: WinogradGradient, target: Machine) -> float:
    """Estimated cycles of `winograd_gradient`."""
    channels, filters = problem.channels, problem.filters
    tiles, positions = _tiles(problem, plan.outputs), _positions(problem, plan.outputs)
    lanes, item = target.lanes(problem.dtype), problem.dtype.itemsize
    products = positions * _product(channels, filters, tiles, problem.dtype, target)
    wide = -(-filters // lanes)
    transforms = positions * _TRANSFORM * (tiles * (-(-channels // lanes) + wide) + channels * wide)
    sums = 0 if plan.wide else -(-tiles // plan.block) * channels * filters
    moved = 2 * positions * item * (tiles * (channels + filters) + sums)
    return products + transforms + moved / target.l3_rate


def _product(m: int, n: int, k: int, dtype: DType, target: Machine) -> float:
    rows, columns = tiling.register_tile(m, n, k, dtype.itemsize, dtype, target)
    return tiling.product_cycles(m, n, k, rows, columns // target.lanes(dtype), dtype, target)


def _positions(problem: Problem, outputs: tuple[int, int]) -> int:
    return math.prod(m + r - 1 for m, r in zip(outputs, problem.taps, strict=True))


def _tiles(problem: Problem, outputs: tuple[int, int]) -> int:
    return problem.images * math.prod(-(-n // m) for n, m in zip(problem.out, outputs, strict=True))


def algorithms(op: Op, target: Machine) -> Iterator[Alternative]:
    """The ways to compute a gradient: directly, and by each transform."""
    problem, plan = _problem_of(op), KERNEL.of(op)
    if problem is None:
        return
    chosen = plan.outputs if isinstance(plan, WinogradGradient) else None
    yield from algorithms_of(direct_cycles(problem, target), winograd_plans(problem, target), chosen, target)


def why_directly(op: Op) -> str:
    """Why the gradient is computed directly."""
    if _problem_of(op) is None:
        return "directly, as there is no transform for such windows, strides, types and open channels"
    return "directly, as a transform saves too little"


def _problem_of(op: Op) -> Problem | None:
    product = product_of(op)
    if product is None or product.result.dtype is not F32:
        return None
    return _problem(product)


@choice_of(WinogradGradient)
class _Choice(Choice):
    def nanoseconds(self, op: Op, target: Machine) -> float:
        return self._cycles(op, target)[1] / target.clock

    def alternatives(self, op: Op, target: Machine) -> Iterator[Alternative]:
        return algorithms(op, target)

    def why(self, op: Op, target: Machine) -> Iterator[str]:
        yield why_transformed(WinogradGradient.of(op), *self._cycles(op, target))

    def _cycles(self, op: Op, target: Machine) -> tuple[float, float]:
        """Expected cycles if it were computed directly, and as it is computed."""
        problem = _problem_of(op)
        assert problem is not None
        return direct_cycles(problem, target), winograd_cycles(problem, WinogradGradient.of(op), target)
