"""Factorizations of matrices and triangular systems, for batches (batch, n, n).

Matrices are split recursively in halves; most of the work is then done by matrix products. A small block is processed
by a loop over its columns, whose steps are elementwise on the block.
"""

from __future__ import annotations

from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.control.looping import loop
from gluonjit.operators.support import scalar
from gluonjit.operators.vision.boxes import both, rows

_BLOCK = 32
"""The extent up to which a matrix is not split."""


def product(b: Emitter, x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False) -> Any:
    contract = ((1 if transpose_x else 2,), (2 if transpose_y else 1,))
    return b.dot_general(x, y, contract=contract, batch=((0,), (0,)))


def transposed(b: Emitter, x: Any) -> Any:
    return b.transpose(x, perm=(0, 2, 1))


def identity(b: Emitter, like: Any, n: int) -> Any:
    """Identity matrices (batch, n, n), with the batch size and element type of `like`."""
    row, column = _numbers(b, n, 1), _numbers(b, n, 2)
    return b.broadcast(b.cast(b.eq(row, column), dtype=dtype_of(like)), shape=(like.shape[0], n, n))


def _numbers(b: Emitter, n: int, axis: int) -> Any:
    """0, 1, … along axis 1 or 2 of three."""
    return b.iota(shape=(1, n, 1) if axis == 1 else (1, 1, n), axis=axis, dtype=I64)


def _part(b: Emitter, x: Any, top: tuple[int, int], left: tuple[int, int]) -> Any:
    """x[:, top[0]:top[1], left[0]:left[1]]"""
    size = (x.shape[0], top[1] - top[0], left[1] - left[0])
    return b.slice(x, start=(0, top[0], left[0]), size=size)


def _line(b: Emitter, x: Any, k: Any, axis: int) -> Any:
    """Row (axis 1) or column (axis 2) number `k`, keeping the axis with length 1."""
    return b.gather(x, b.reshape(k, shape=(1,)), axis=axis)


def solve_lower(b: Emitter, a: Any, x: Any, unit: bool = False) -> Any:
    """Solves a y = x for lower triangular `a`. Elements above its diagonal are not read; with `unit`, neither is the
    diagonal, which is taken as 1."""
    n, m = x.shape[1:]
    if n * m == 0:
        return x
    if n > _BLOCK:
        half = n // 2
        above = solve_lower(b, _part(b, a, (0, half), (0, half)), _part(b, x, (0, half), (0, m)), unit)
        rest = _part(b, x, (half, n), (0, m)) - product(b, _part(b, a, (half, n), (0, half)), above)
        below = solve_lower(b, _part(b, a, (half, n), (half, n)), rest, unit)
        return b.concat(above, below, axis=1)

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        (x,), (a,) = state, captured
        row = _numbers(b, n, 1)
        column, solved = _line(b, a, index, 2), _line(b, x, index, 1)
        if not unit:
            solved = solved / _line(b, column, index, 1)
        later = x - column * solved
        return [b.select(row < index, x, b.select(b.eq(row, index), solved, later))], []

    (y,), _ = loop(b, body, [x], (), [a], trip=n)
    return y


def solve(b: Emitter, a: Any, x: Any, lower: bool, transpose: bool = False, unit: bool = False) -> Any:
    """Solves a y = x, or aᵀ y = x, for triangular `a`."""
    if transpose:
        a, lower = transposed(b, a), not lower
    if lower:
        return solve_lower(b, a, x, unit)
    # Reversing both axes turns an upper triangular matrix into a lower one.
    y = solve_lower(b, b.reverse(a, axes=(1, 2)), b.reverse(x, axes=(1,)), unit)
    return b.reverse(y, axes=(1,))


def cholesky(b: Emitter, a: Any) -> Any:
    """Lower triangular l with l lᵀ = a. Elements above the diagonal of `a` are not read; NaN unless a is positive."""
    n = a.shape[1]
    if n == 0:
        return a
    if n > _BLOCK:
        half = n // 2
        first = cholesky(b, _part(b, a, (0, half), (0, half)))
        beside = transposed(b, solve_lower(b, first, transposed(b, _part(b, a, (half, n), (0, half)))))
        second = cholesky(b, _part(b, a, (half, n), (half, n)) - product(b, beside, beside, False, True))
        none = b.broadcast(scalar(b, 0, dtype_of(a)), shape=(a.shape[0], half, n - half))
        return b.concat(b.concat(first, none, axis=2), b.concat(beside, second, axis=2), axis=1)

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        (a,) = state
        row, column = _numbers(b, n, 1), _numbers(b, n, 2)
        below = _line(b, a, index, 2)
        new = below / b.sqrt(_line(b, below, index, 1))
        rest = a - new * transposed(b, new)
        done = b.select(b.eq(column, index), new, a)
        return [b.select(both(b, column > index, row > index), rest, done)], []

    (y,), _ = loop(b, body, [a], (), (), trip=n)
    return b.select(_numbers(b, n, 1) >= _numbers(b, n, 2), y, scalar(b, 0, dtype_of(a)))


def lu(b: Emitter, a: Any) -> tuple[Any, Any, Any]:
    """LU factorization with partial pivoting, of matrices (batch, m, n) with m >= n.

    Returns (packed, order, sign): u is the upper triangle of `packed`, l is its strict lower triangle with a diagonal
    of 1, and l u is `a` with its rows in `order` (batch, m); sign (batch,) is that of the permutation.
    """
    batch, m, n = a.shape
    if n > _BLOCK:
        half = n // 2
        left, order, sign = lu(b, _part(b, a, (0, m), (0, half)))
        right = rows(b, _part(b, a, (0, m), (half, n)), order)
        corner, below = _part(b, left, (0, half), (0, half)), _part(b, left, (half, m), (0, half))
        above = solve_lower(b, corner, _part(b, right, (0, half), (0, n - half)), unit=True)
        rest = _part(b, right, (half, m), (0, n - half)) - product(b, below, above)
        rest, inner, inner_sign = lu(b, rest)
        packed = b.concat(
            b.concat(corner, above, axis=2),
            b.concat(rows(b, below, inner), rest, axis=2),
            axis=1,
        )
        head, tail = (b.slice(order, start=(0, s), size=(batch, e - s)) for s, e in ((0, half), (half, m)))
        return packed, b.concat(head, rows(b, tail, inner), axis=1), sign * inner_sign

    dtype = dtype_of(a)

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        a, order, sign = state
        row, column = _numbers(b, m, 1), _numbers(b, n, 2)
        size = b.select(row >= index, abs(_line(b, a, index, 2)), scalar(b, -1, dtype))
        pivot = b.arg_reduce(size, op="argmax", axis=1)  # (batch, 1)
        place = b.iota(shape=(1, m), axis=1, dtype=I64)
        source = b.select(b.eq(place, index), pivot, b.select(b.eq(place, pivot), index, place))
        a, order = rows(b, a, source), rows(b, order, source)
        moved = b.ne(b.reshape(pivot, shape=(batch,)), index)
        sign = b.select(moved, -sign, sign)
        below, across = _line(b, a, index, 2), _line(b, a, index, 1)
        divisor = _line(b, below, index, 1)
        # A column without a pivot is all 0 already.
        factor = b.select(b.eq(divisor, scalar(b, 0, dtype)), below, below / divisor)
        rest = b.select(b.eq(column, index), factor, a - factor * across)
        return [b.select(both(b, row > index, column >= index), rest, a), order, sign], []

    order = b.broadcast(b.iota(shape=(1, m), axis=1, dtype=I64), shape=(batch, m))
    sign = b.broadcast(scalar(b, 1, dtype), shape=(batch,))
    if n == 0:
        return a, order, sign
    (packed, order, sign), _ = loop(b, body, [a, order, sign], (), (), trip=n)
    return packed, order, sign


def inverse(b: Emitter, a: Any) -> Any:
    packed, order, _ = lu(b, a)
    return inverse_of_lu(b, packed, order)


def inverse_of_lu(b: Emitter, packed: Any, order: Any) -> Any:
    y = solve_lower(b, packed, rows(b, identity(b, packed, packed.shape[1]), order), unit=True)
    return solve(b, packed, y, lower=False)


def lq(b: Emitter, a: Any) -> tuple[Any, Any]:
    """(l, q) with l q = a, for matrices (batch, m, n) with m <= n: l lower triangular (batch, m, m), and
    q (batch, m, n) with orthonormal rows.

    Uses Householder reflections, each of which zeroes a row right of the diagonal; signs are those of LAPACK.
    """
    batch, m, n = a.shape
    dtype = dtype_of(a)
    if m == 0:
        return b.reshape(a, shape=(batch, 0, 0)), a

    def clear(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        (a,) = state
        zero, one = scalar(b, 0, dtype), scalar(b, 1, dtype)
        column = _numbers(b, n, 2)
        row = _line(b, a, index, 1)
        head = _line(b, row, index, 2)
        tail = b.select(column > index, row, zero)
        squares = b.reshape(b.reduce(tail * tail, op="sum", axes=(2,)), shape=head.shape)
        flat = b.eq(squares, zero)  # nothing to clear
        length = b.sqrt(head * head + squares)
        target = b.select(head > zero, -length, length)
        unit = b.select(flat, one, head - target)
        v = b.select(b.eq(column, index), one, tail / unit)
        factor = b.select(flat, zero, (target - head) / b.select(flat, one, target))
        return [_reflected(b, a, v, factor)], [v, factor]

    (l,), (vs, factors) = loop(b, clear, [a], (), (), trip=m)

    def undo(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        return [_reflected(b, state[0], *items)], []

    q = _part(b, identity(b, a, n), (0, m), (0, n))
    back = [b.reverse(x, axes=(0,)) for x in (vs, factors)]
    (q,), _ = loop(b, undo, [q], back, (), trip=m)
    l = _part(b, l, (0, m), (0, m))
    return b.select(_numbers(b, m, 1) >= _numbers(b, m, 2), l, scalar(b, 0, dtype)), q


def _reflected(b: Emitter, x: Any, v: Any, factor: Any) -> Any:
    """x (1 - factor vᵀ v), for rows v (batch, 1, n)."""
    along = b.reduce(x * v, op="sum", axes=(2,))
    along = b.reshape(along, shape=(*along.shape, 1))
    return x - along * factor * v
