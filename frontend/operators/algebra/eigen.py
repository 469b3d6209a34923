"""Eigenvalues of symmetric matrices, and singular values, by Jacobi rotations.

A rotation of two rows and the same two columns zeroes the elements where they cross. Each step rotates n / 2 disjoint
pairs of rows at once; between steps the rows are permuted as in a round-robin tournament, so that in a round of n - 1
steps every pair of rows meets. A step is elementwise on the whole matrix; the steps run in a loop.
"""

from __future__ import annotations

import math
from typing import Any

from ml_dtypes import finfo

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F64, I64, dtype_of
from gluonjit.operators.algebra.factorization import identity, lq, transposed
from gluonjit.operators.control.looping import loop
from gluonjit.operators.movement.creation import diagonal, filled
from gluonjit.operators.support import scalar
from gluonjit.operators.vision.boxes import rows

_MOST_ROUNDS = 30
"""Far more than needed: convergence is quadratic in the end, and takes a dozen rounds."""


def symmetric_eigen(b: Emitter, a: Any) -> tuple[Any, Any]:
    """(values, vectors) of symmetric matrices (batch, n, n); only their lower triangles are read.

    Values (batch, n) ascend; the vectors are rows (batch, n, n), with their largest elements positive.
    """
    own = dtype_of(a)
    if 0 in a.shape:
        return b.reshape(a, shape=a.shape[:2]), a
    # In float64: the rounding errors of thousands of steps would cost float32 two digits.
    values, vectors = _eigen(b, b.cast(a, dtype=F64), float(finfo(own.numpy).eps))
    return b.cast(values, dtype=own), b.cast(vectors, dtype=own)


def _eigen(b: Emitter, a: Any, precision: float) -> tuple[Any, Any]:
    """Iterates until the norm outside the diagonal is below `precision` times that of the matrix."""
    batch, size = a.shape[:2]
    dtype = dtype_of(a)
    row, column = (b.iota(shape=s, axis=k, dtype=I64) for k, s in ((1, (1, size, 1)), (2, (1, 1, size))))
    a = b.select(row >= column, a, transposed(b, a))
    # 0, or NaN if any element is NaN or infinite, which comparisons would hide.
    invalid = b.reduce(a * 0, op="sum", axes=(1, 2))
    # For odd n, a row of zeros is added, which pairs with the row that would be left over.
    n = size + size % 2
    if n > size:
        a = b.pad(a, scalar(b, 0, dtype), low=(0, 0, 0), high=(0, 1, 1))
    small = b.reduce(a * a, op="sum", axes=(1, 2)) * scalar(b, precision**2, dtype)

    def step(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        a, vectors = state
        rotation = _rotation(b, a)
        a = _turned(b, _turned(b, a, rotation, 1), rotation, 2)
        return [a, _turned(b, vectors, rotation, 1)], []

    def play(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        (a, vectors), _ = loop(b, step, state[:2], (), (), trip=max(n - 1, 1))
        one, other = (b.iota(shape=(1, n, 1) if k == 1 else (1, 1, n), axis=k, dtype=I64) for k in (1, 2))
        rest = b.select(b.eq(one, other), scalar(b, 0, dtype), a * a)
        return [a, vectors, b.reduce(rest, op="sum", axes=(1, 2))], []

    def more(b: Emitter, index: Any, state: Any, captured: Any) -> Any:
        return b.reduce(state[2] > captured[0], op="any", axes=(0,))

    begin = [a, identity(b, a, n), filled(b, math.inf, (batch,), dtype)]
    (a, vectors, _), _ = loop(b, play, begin, (), [small], trip=_MOST_ROUNDS, condition=more)
    values, vectors = _sorted(b, diagonal(b, a, 0), vectors, size)
    return values + b.reshape(invalid, shape=(batch, 1)), vectors + b.reshape(invalid, shape=(batch, 1, 1))


def _rotation(b: Emitter, a: Any) -> tuple[Any, Any]:
    """Cosine and sine of the rotation of each pair of rows i and n/2 + i: (batch, n/2)."""
    batch, n, _ = a.shape
    half = n // 2

    def block(top: int, left: int) -> Any:
        return diagonal(b, b.slice(a, start=(0, top, left), size=(batch, half, half)), 0)

    return _zeroing(b, block(0, 0), block(half, half), block(0, half))


def _zeroing(b: Emitter, p: Any, q: Any, across: Any) -> tuple[Any, Any]:
    """Cosine and sine of the rotations that make [[p, across], [across, q]] diagonal."""
    dtype = dtype_of(p)
    zero, one, two = (scalar(b, v, dtype) for v in (0, 1, 2))
    clear = b.eq(across, zero)
    slope = (q - p) / (two * b.select(clear, one, across))
    tangent = one / (abs(slope) + b.sqrt(one + slope * slope))
    tangent = b.select(slope < zero, -tangent, tangent)
    tangent = b.select(clear, zero, tangent)
    cosine = one / b.sqrt(one + tangent * tangent)
    return cosine, tangent * cosine


def _turned(b: Emitter, x: Any, rotation: tuple[Any, Any], axis: int) -> Any:
    """Rotates the pairs of rows (axis 1) or columns (axis 2), and permutes them for the next step.

    Position 0 stays; the others move on along the circle 1 … n/2 - 1, n - 1 … n/2.
    """
    half = x.shape[axis] // 2

    def part(x: Any, start: int, stop: int) -> Any:
        begin, size = [0, 0, 0], list(x.shape)
        begin[axis], size[axis] = start, stop - start
        return b.slice(x, start=tuple(begin), size=tuple(size))

    top, bottom = part(x, 0, half), part(x, half, 2 * half)
    shape = (x.shape[0], half, 1) if axis == 1 else (x.shape[0], 1, half)
    c, s = (b.reshape(v, shape=shape) for v in rotation)
    top, bottom = c * top - s * bottom, s * top + c * bottom
    if half == 1:
        return b.concat(top, bottom, axis=axis)
    return b.concat(
        part(top, 0, 1),
        part(bottom, 0, 1),
        part(top, 1, half - 1),
        part(bottom, 1, half),
        part(top, half - 1, half),
        axis=axis,
    )


def _sorted(b: Emitter, values: Any, vectors: Any, size: int) -> tuple[Any, Any]:
    """Sorts by ascending value, drops the added row, and makes the signs of vectors independent of the algorithm."""
    batch, n = values.shape
    dtype = dtype_of(values)
    key = values
    if n > size:
        # The added row is still the only one with a nonzero element in the added column.
        extra = b.reshape(b.slice(vectors, start=(0, 0, size), size=(batch, n, 1)), shape=(batch, n))
        key = b.select(b.eq(extra, scalar(b, 1, dtype)), scalar(b, math.inf, dtype), values)
    values, order = b.sort(key, axis=1)
    values = b.slice(values, start=(0, 0), size=(batch, size))
    vectors = b.slice(rows(b, vectors, order), start=(0, 0, 0), size=(batch, size, size))
    return values, b.select(_leads_negative(b, vectors), -vectors, vectors)


def _leads_negative(b: Emitter, vectors: Any) -> Any:
    """Whether the element of each row that is largest by magnitude is negative: (batch, rows, 1)."""
    batch, count, size = vectors.shape
    zero = scalar(b, 0, dtype_of(vectors))
    largest = b.reshape(b.arg_reduce(abs(vectors), op="argmax", axis=2), shape=(batch, count, 1))
    column = b.iota(shape=(1, 1, size), axis=2, dtype=I64)
    lead = b.reduce(b.select(b.eq(column, largest), vectors, zero), op="sum", axes=(2,))
    return b.reshape(lead < zero, shape=(batch, count, 1))


def singular_values(b: Emitter, a: Any) -> tuple[Any, Any, Any]:
    """(u, values, v) with u diag(values) v = a, for matrices (batch, m, n) with m <= n: u (batch, m, m) is orthogonal,
    values (batch, m) descend, v (batch, m, n) has orthonormal rows, whose largest elements are positive.

    One-sided Jacobi: rotations of pairs of rows until all are orthogonal. Their lengths are the singular values.
    """
    batch, m, n = a.shape
    own = dtype_of(a)
    if 0 in a.shape:
        return identity(b, a, m), filled(b, 0, (batch, m), own), a
    wide = b.cast(a, dtype=F64)
    # As in `_eigen`: NaN if any element is NaN or infinite, and a row of zeros if m is odd.
    invalid = b.reduce(wide * 0, op="sum", axes=(1, 2))
    k = m + m % 2
    x = b.pad(wide, scalar(b, 0, F64), low=(0, 0, 0), high=(0, k - m, 0)) if k > m else wide
    precision = float(finfo(own.numpy).eps)

    def step(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        x, turns, worst = state
        half = k // 2
        top, bottom = (b.slice(x, start=(0, s, 0), size=(batch, half, n)) for s in (0, half))
        p, q, across = (b.reduce(y * z, op="sum", axes=(2,)) for y, z in ((top, top), (bottom, bottom), (top, bottom)))
        rotation = _zeroing(b, p, q, across)
        # The cosine of the angle between the two rows, which is 0 in the end.
        lengths = b.sqrt(p * q)
        none = b.eq(lengths, scalar(b, 0, F64))
        angle = b.select(none, scalar(b, 0, F64), abs(across) / b.select(none, scalar(b, 1, F64), lengths))
        worst = b.maximum(worst, b.reduce(angle, op="max", axes=(1,)))
        return [_turned(b, x, rotation, 1), _turned(b, turns, rotation, 1), worst], []

    def play(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        done, _ = loop(b, step, [*state[:2], filled(b, 0, (batch,), F64)], (), (), trip=max(k - 1, 1))
        return done, []

    def more(b: Emitter, index: Any, state: Any, captured: Any) -> Any:
        return b.reduce(state[2] > scalar(b, precision, F64), op="any", axes=(0,))

    begin = [x, identity(b, wide, k), filled(b, math.inf, (batch,), F64)]
    (x, turns, _), _ = loop(b, play, begin, (), (), trip=_MOST_ROUNDS, condition=more)
    values = b.sqrt(b.reduce(x * x, op="sum", axes=(2,)))
    key = values
    if k > m:  # the added row comes last
        extra = abs(b.reshape(b.slice(turns, start=(0, 0, m), size=(batch, k, 1)), shape=(batch, k)))
        key = b.select(b.eq(extra, scalar(b, 1, F64)), scalar(b, -1, F64), values)
    order = b.slice(b.sort(key, axis=1, descending=True)[1], start=(0, 0), size=(batch, m))
    values = b.reshape(rows(b, b.reshape(values, shape=(batch, k, 1)), order), shape=(batch, m))
    # Rows of length 0 get directions by the factorization, which leaves those of the others as they are.
    factor, v = lq(b, rows(b, x, order))
    u = transposed(b, b.slice(rows(b, turns, order), start=(0, 0, 0), size=(batch, m, m)))
    turned = b.reshape(diagonal(b, factor, 0) < 0, shape=(batch, m, 1))
    negative = _leads_negative(b, v)
    v = b.select(negative, -v, v)
    flip = b.reshape(b.ne(turned, negative), shape=(batch, 1, m))
    u = b.select(flip, -u, u)
    each = b.reshape(invalid, shape=(batch, 1, 1))
    results = u + each, values + b.reshape(invalid, shape=(batch, 1)), v + each
    u, values, v = (b.cast(y, dtype=own) for y in results)
    return u, values, v
