"""Winograd convolutions: 3×3 and other small windows with stride 1, by fewer multiplications (`common/cook_toom.py`).

Ordinary primitives in front of the kernel compute the transformed weights G g Gᵀ. The kernel's body restores the
filters with the pseudo-inverse of G and applies an ordinary `conv`, so that the graph keeps its meaning: results of
`evaluate` differ by rounding alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gluonjit.common.cook_toom import Matrix, transform
from gluonjit.ir.annotations import KERNEL, SCRATCH, WORKSPACE
from gluonjit.ir.dims import Shape, hint, is_static, least_usual
from gluonjit.ir.graph import Builder, Op, Value
from gluonjit.ir.kernels.product_plans import Matmul, Winograd
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32
from gluonjit.ir.work import taps_inside
from gluonjit.passes import tiling
from gluonjit.passes.choices import Alternative, Choice, choice_of, product_of
from gluonjit.passes.site import Convolution, Site, moved, view
from gluonjit.passes.tiling_winograd import (
    Problem,
    direct_cycles,
    tiles_together,
    winograd_cycles,
    winograd_tile,
    winograd_tiles,
    working_memory,
)

_STREAMS = 9
"""The most taps of filters that are read again for a few rows of positions, which are then written from front to end.
One line of each of 36 positions after the other, which are often a large power of two apart, is no stream that a
prefetcher follows: a Zen 3 transformed 64 to 512 channels of 3×3 taps in 0.85 down to 0.21 of the time. Of 5×5 taps,
reading 25 streams again took up to 1.8 times as long as reading them once and writing all positions."""


def select_winograd(site: Site, plain: Convolution) -> Value | None:
    """The kernel for a convolution by transforms; None where no transform applies, or the direct one is better."""
    left, right, attrs, epilogue = plain
    notes = _notes(site, plain) if site.winograd else None
    if notes is None:
        return None
    *taps, _, filters = right.shape
    plan = notes[KERNEL.name]

    def result(body: Builder, x: Value, u: Value) -> Value:
        return body.emit("conv", [x, restored_weights(body, u, plan, taps, filters)], attrs)[0]

    return site.emit(epilogue, [left, transformed_weights(site.b, right, plan, site.target)], result, notes)


def _notes(site: Site, plain: Convolution) -> dict[str, Any] | None:
    """The annotations of the kernel."""
    out, target = plain.epilogue.shape, site.target
    problem = problem_of(plain.x, plain.w, plain.attrs, out)
    if problem is None:
        return None
    is_open = not is_static(out)
    problem = problem._replace(trained=not site.is_fixed(1), least=least_usual(out[0]) if is_open else 0)
    tile = winograd_tile(problem, target)
    if tile is None:
        return None
    if is_open and not tile.block:
        tile = replace(tile, block=-tiles_together(problem, tile, target))
    memory = working_memory(problem, tile, target)
    if tile.block > 0:
        return KERNEL(tile) | SCRATCH(memory.own + memory.transformed)
    return KERNEL(tile) | SCRATCH(memory.own) | WORKSPACE(memory.transformed)


def problem_of(x: Value, w: Value, attrs: Any, out: Shape) -> Problem | None:
    """The convolution in the terms of the cost model; None if no transform applies."""
    *taps, depth, filters = w.shape
    if attrs["groups"] != 1 or {*attrs["stride"], *attrs["dilation"]} != {1} or len(taps) > 2 or x.dtype is not F32:
        return None
    size, results = tiling.usual(x.shape[1:-1]), tiling.usual(out[1:-1])
    inside = share_inside(size, results, taps, attrs["low"])
    rows, row_taps = (1, 1) if len(taps) == 1 else (results[0], taps[0])
    return Problem(hint(out[0]), (rows, results[-1]), (row_taps, taps[-1]), inside, depth, filters, x.dtype)


def share_inside(size: Sequence[int], out: Sequence[int], taps: Sequence[int], low: Sequence[int]) -> float:
    """The share of a window's taps that do not fall on padding; of each spatial axis, what `taps_inside` takes."""
    return math.prod(taps_inside(n, o, r, k) / (o * r) for n, o, r, k in zip(size, out, taps, low, strict=True))


def transformed_weights(b: Builder, w: Value, tile: Winograd, target: Machine) -> Value:
    """[taps…, I, O] → [positions, P, I, nr], as the kernel `winograd` reads it: packed first, then transformed."""
    *taps, depth, filters = w.shape
    panels, terms = -(-filters // tile.columns), math.prod(taps)

    def pack(body: Builder, v: Value) -> Value:
        v = _reshaped(body, v, (terms, depth, filters))
        if extra := panels * tile.columns - filters:
            v = body.pad(v, body.constant(0, v.dtype), low=(0, 0, 0), high=(0, 0, extra))
        v = body.reshape(v, shape=(terms, depth, panels, tile.columns))
        return body.transpose(v, perm=(0, 2, 1, 3))

    packed = view(b, moved(b, w, pack, "pack"), (terms, panels * depth * tile.columns))
    g = _matrices(tile.outputs, tuple(taps)).weight
    (positions, _), columns = g.shape, packed.shape[1]
    rows, width = tiling.register_tile(positions, columns, terms, tiling.ANYWHERE, w.dtype, target)
    body = Builder("transform", "fused")
    x, y = body.input("g", w.type.with_shape(g.shape)), body.input("w", packed.type)
    region = body.build([body.dot_general(x, y, contract=((1,), (0,)))])
    plan = Matmul(rows, width, 1 if terms <= _STREAMS else -(-positions // rows))
    u = b.emit("fused", [b.constant(g, w.dtype), packed], KERNEL(plan), [region])[0]
    return view(b, u, (positions, panels, depth, tile.columns))


def restored_weights(body: Builder, u: Value, tile: Winograd, taps: Sequence[int], filters: int) -> Value:
    """The inverse of `transformed_weights`."""
    positions, panels, depth, columns = u.shape
    v = body.transpose(u, perm=(0, 2, 1, 3))
    v = body.reshape(v, shape=(positions, depth, panels * columns))
    if v.shape[-1] != filters:
        v = body.slice(v, start=(0, 0, 0), size=(positions, depth, filters))
    inverse = body.constant(_matrices(tile.outputs, tuple(taps)).inverse, u.dtype)
    return _reshaped(body, body.dot_general(inverse, v, contract=((1,), (0,))), (*taps, depth, filters))


def _reshaped(body: Builder, v: Value, shape: tuple[int, ...]) -> Value:
    return v if v.shape == shape else body.reshape(v, shape=shape)


class _Matrices(NamedTuple):
    weight: np.ndarray
    inverse: np.ndarray


@lru_cache(64)
def _matrices(outputs: tuple[int, int], taps: tuple[int, ...]) -> _Matrices:
    """What transforms weights along all axes at once, and what restores them."""
    transforms = [transform(m, r) for m, r in zip(outputs[-len(taps) :], taps, strict=True)]
    return _Matrices(_nested([t.weight for t in transforms]), _nested([t.inverse for t in transforms]))


def _nested(matrices: Sequence[Matrix]) -> np.ndarray:
    """The Kronecker product of the matrices, rounded once."""
    product = np.ones((1, 1), object)
    for m in matrices:
        product = np.kron(product, np.array(m, object))
    rounded = product.astype(np.float64)
    rounded.flags.writeable = False
    return rounded


def algorithms(op: Op, target: Machine) -> Iterator[Alternative]:
    """The ways to compute a convolution: directly, and by each transform."""
    problem = _problem(op)
    if problem is None:
        return
    plan = KERNEL.of(op)
    chosen = plan.outputs if isinstance(plan, Winograd) else None
    yield from algorithms_of(direct_cycles(problem, target), winograd_tiles(problem, target), chosen, target)


def algorithms_of(
    direct: float, transforms: Iterable[tuple[Any, float]], chosen: tuple[int, int] | None, target: Machine
) -> Iterator[Alternative]:
    """A product computed directly, and by plans with a transform, each with its expected cycles. `chosen`: the pixels
    of a tile of the plan that was taken."""
    yield Alternative("algorithm", "directly", direct / (1e3 * target.clock), chosen is None)
    for plan, cycles in transforms:
        what = f"F({plan.height}×{plan.width})"
        yield Alternative("algorithm", what, cycles / (1e3 * target.clock), plan.outputs == chosen)


def why_transformed(plan: Any, direct: float, transformed: float) -> str:
    """Why a product is computed by the plan's transform, given the expected cycles."""
    times = f"{direct / transformed:.1f}"
    return f"F({plan.height}×{plan.width}), expected to be {times} times as fast as directly"


def why_directly(op: Op) -> str:
    """Why the convolution is computed directly."""
    if _problem(op) is None:
        return "directly, as there is no transform for strides, dilation, groups and such types"
    return "directly, as a transform saves too little"


@choice_of(Winograd)
class _Choice(Choice):
    def nanoseconds(self, op: Op, target: Machine) -> float:
        return self._cycles(op, target)[1] / target.clock

    def alternatives(self, op: Op, target: Machine) -> Iterator[Alternative]:
        return algorithms(op, target)

    def why(self, op: Op, target: Machine) -> Iterator[str]:
        yield why_transformed(Winograd.of(op), *self._cycles(op, target))

    def _cycles(self, op: Op, target: Machine) -> tuple[float, float]:
        """Expected cycles if it were computed directly, and as it is computed."""
        problem, plan = _problem(op), Winograd.of(op)
        assert problem is not None
        # Estimates know no steps that are shared for some tiles at a time.
        plan = replace(plan, block=max(plan.block, 0))
        return direct_cycles(problem, target), winograd_cycles(problem, plan, target)


def _problem(op: Op) -> Problem | None:
    conv = product_of(op)
    if conv is None or conv.name != "conv":
        return None
    return problem_of(conv.operands[0], conv.operands[1], conv.attrs, conv.result.shape)
