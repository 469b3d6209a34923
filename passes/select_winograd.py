"""Winograd convolutions: 3×3 and other small windows with stride 1, by fewer multiplications (`ir/cook_toom.py`).

Ordinary primitives in front of the kernel compute the transformed weights G g Gᵀ. The kernel's body restores the
filters with the pseudo-inverse of G and applies an ordinary `conv`, so that the graph keeps its meaning: results of
`evaluate` differ by rounding alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.cook_toom import Matrix, Transform, transform
from gluonjit.ir.dims import Shape, hint, is_static, least_usual
from gluonjit.ir.graph import Builder, Value
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32
from gluonjit.ir.winograd_tile import LINE, WinogradTile
from gluonjit.passes import tiling
from gluonjit.passes.site import moved, view
from gluonjit.passes.tiling_winograd import Problem, tiles_together, winograd_tile, working_memory


def winograd_notes(
    x: Value, w: Value, attrs: Any, out: Shape, target: Machine, trained: bool = False
) -> dict[str, Any] | None:
    """Annotations of the kernel for a `conv` of x by w with these attributes; None where the direct one is better.

    `trained`: w is another one in each call.
    """
    problem = problem_of(x, w, attrs, out)
    if problem is None:
        return None
    is_open = not is_static(out)
    problem = problem._replace(trained=trained, least=least_usual(out[0]) if is_open else 0)
    tile = winograd_tile(problem, target)
    if tile is None:
        return None
    if is_open and not tile.block:
        tile = tile._replace(block=-tiles_together(problem, tile, target))
    notes: dict[str, Any] = {".kernel": "winograd", ".tile": tuple(tile), ".packed": 1}
    memory = working_memory(problem, tile)
    if tile.block > 0:
        return {**notes, ".scratch": memory.own + memory.transformed}
    return {**notes, ".scratch": memory.own, ".workspace": memory.transformed}


def problem_of(x: Value, w: Value, attrs: Any, out: Shape) -> Problem | None:
    """The convolution in the terms of the cost model; None if no transform applies."""
    *taps, depth, filters = w.shape
    if attrs["groups"] != 1 or {*attrs["stride"], *attrs["dilation"]} != {1} or len(taps) > 2 or x.dtype is not F32:
        return None
    size, results = tiling.usual(x.shape[1:-1]), tiling.usual(out[1:-1])
    inside = math.prod(_inside(n, o, r, low) for n, o, r, low in zip(size, results, taps, attrs["low"], strict=False))
    rows, row_taps = (1, 1) if len(taps) == 1 else (results[0], taps[0])
    return Problem(hint(out[0]), (rows, results[-1]), (row_taps, taps[-1]), inside, depth, filters, x.dtype.itemsize)


def _inside(size: int, out: int, taps: int, low: int) -> float:
    """The share of an axis's taps that do not fall on padding. (Computed without a loop over pixels: a hostile program
    may ask for padding of any width.)"""

    def before(position: int) -> int:
        """The number of pairs (output, tap) that read before a position of the padded axis: a triangle of pairs, minus
        the corners where the output or the tap does not exist."""
        triangles = (max(position - n, 0) for n in (0, out, taps, out + taps))
        whole, without_output, without_tap, twice = (n * (n + 1) // 2 for n in triangles)
        return whole - without_output - without_tap + twice

    return (before(low + size) - before(low)) / (out * taps)


def transformed_weights(b: Builder, w: Value, tile: WinogradTile, target: Machine) -> Value:
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
    g = _nested([t.weight for t in _transforms(tile, taps)])
    (positions, _), columns = g.shape, packed.shape[1]
    rows, width = tiling.register_tile(positions, columns, terms, LINE, w.dtype.itemsize, target)
    body = Builder("transform", "fused")
    x, y = body.input("g", w.type.with_shape(g.shape)), body.input("w", packed.type)
    region = body.build([body.dot_general(x, y, contract=((1,), (0,)))])
    # One task computes all positions of its columns, so that the filters are read once.
    notes = {".kernel": "matmul", ".tile": (rows, width, -(-positions // rows))}
    u = b.emit("fused", [b.constant(g, w.dtype), packed], notes, [region])[0]
    return view(b, u, (positions, panels, depth, tile.columns))


def restored_weights(body: Builder, u: Value, tile: WinogradTile, taps: Sequence[int], filters: int) -> Value:
    """The inverse of `transformed_weights`."""
    positions, panels, depth, columns = u.shape
    v = body.transpose(u, perm=(0, 2, 1, 3))
    v = body.reshape(v, shape=(positions, depth, panels * columns))
    if v.shape[-1] != filters:
        v = body.slice(v, start=(0, 0, 0), size=(positions, depth, filters))
    inverse = body.constant(_nested([t.inverse for t in _transforms(tile, taps)]), u.dtype)
    return _reshaped(body, body.dot_general(inverse, v, contract=((1,), (0,))), (*taps, depth, filters))


def _reshaped(body: Builder, v: Value, shape: tuple[int, ...]) -> Value:
    return v if v.shape == shape else body.reshape(v, shape=shape)


def _transforms(tile: WinogradTile, taps: Sequence[int]) -> list[Transform]:
    return [transform(m, r) for m, r in zip((tile.height, tile.width)[-len(taps) :], taps, strict=True)]


def _nested(matrices: Sequence[Matrix]) -> np.ndarray:
    """The Kronecker product of the matrices: the transform along all axes at once, rounded once."""
    product = np.ones((1, 1), object)
    for m in matrices:
        product = np.kron(product, np.array(m, object))
    return product.astype(np.float64)
