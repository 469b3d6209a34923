"""Gradients of the factorizations and solvers in `linalg`, from their results: those of the expansions would go back
through every step of the algorithms.

The formulas: M. Seeger et al., "Auto-differentiating linear algebra" (2017); M. Giles, "An extended collection of
matrix derivative results" (2008). Gradients by symmetric matrices are symmetric.
"""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F64, I64, dtype_of
from gluonjit.operators.algebra import factorization
from gluonjit.operators.algebra.factorization import identity, product, rows, solve, solve_lower, transposed
from gluonjit.operators.support import scalar

Gradients = tuple[Any, ...]


def _batched(b: Emitter, x: Any) -> Any:
    return b.reshape(x, shape=(math.prod(x.shape[:-2]), *x.shape[-2:]))


def _order(b: Emitter, n: int) -> tuple[Any, Any]:
    """Row and column numbers of (batch, n, n)."""
    return b.iota(shape=(1, n, 1), axis=1, dtype=I64), b.iota(shape=(1, 1, n), axis=2, dtype=I64)


def _below(b: Emitter, x: Any, diagonal: float) -> Any:
    """The lower triangle of `x` with its diagonal multiplied by a number, zeros above."""
    row, column = _order(b, x.shape[1])
    dtype = dtype_of(x)
    on = x * scalar(b, diagonal, dtype)
    return b.select(row > column, x, b.select(b.eq(row, column), on, scalar(b, 0, dtype)))


def _symmetric(b: Emitter, x: Any) -> Any:
    return (x + transposed(b, x)) * 0.5


def potrf(b: Emitter, g: Any, y: Any, x: Any, *, lower: bool) -> Gradients:
    factor, g = _batched(b, y[0]), _batched(b, g[0])
    if not lower:
        factor, g = transposed(b, factor), transposed(b, g)
    inner = _below(b, product(b, factor, g, transpose_x=True), 0.5)
    half = solve(b, factor, inner, lower=True, transpose=True)
    whole = solve(b, factor, transposed(b, half), lower=True, transpose=True)
    return (b.reshape(_symmetric(b, whole), shape=tuple(x[0].shape)),)


def potri(b: Emitter, g: Any, y: Any, x: Any, *, lower: bool) -> Gradients:
    factor, g, inverse = _batched(b, x[0]), _batched(b, g[0]), _batched(b, y[0])
    if not lower:
        factor = transposed(b, factor)
    both = g + transposed(b, g)
    right = transposed(b, solve(b, factor, identity(b, factor, factor.shape[1]), lower=True))
    d = -_below(b, product(b, product(b, inverse, both), right), 1)
    return (b.reshape(d if lower else transposed(b, d), shape=tuple(x[0].shape)),)


def trsm(
    b: Emitter, g: Any, y: Any, x: Any, *, transpose: bool, rightside: bool, lower: bool, alpha: float
) -> Gradients:
    a, g, y = _batched(b, x[0]), _batched(b, g[0]), _batched(b, y[0])
    if rightside:  # of the transposed system
        g, y, transpose = transposed(b, g), transposed(b, y), not transpose
    back = solve(b, a, g, lower, not transpose)
    d = product(b, y, back, transpose_y=True) if transpose else product(b, back, y, transpose_y=True)
    d = -(_below(b, d, 1) if lower else transposed(b, _below(b, transposed(b, d), 1)))
    by_right = transposed(b, back) if rightside else back
    if alpha != 1:
        by_right = by_right * scalar(b, alpha, dtype_of(a))
    return b.reshape(d, shape=tuple(x[0].shape)), b.reshape(by_right, shape=tuple(x[1].shape))


def inverse(b: Emitter, g: Any, y: Any, x: Any) -> Gradients:
    y, g = _batched(b, y[0]), _batched(b, g[0])
    d = product(b, product(b, y, g, transpose_x=True), y, transpose_y=True)
    return (b.reshape(-d, shape=tuple(x[0].shape)),)


def _by_inverse(b: Emitter, a: Any, factor: Any, regular: Any) -> Any:
    """factor · (A⁻¹)ᵀ, 0 where A is singular, as in MXNet. `factor` and `regular` have one element for each matrix."""
    shape = tuple(a.shape)
    a = _batched(b, a)
    each = (a.shape[0], 1, 1)
    regular = b.reshape(regular, shape=each)
    a = b.select(regular, a, identity(b, a, a.shape[1]))
    d = transposed(b, factorization.inverse(b, a)) * b.reshape(factor, shape=each)
    return b.reshape(b.select(regular, d, scalar(b, 0, dtype_of(a))), shape=shape)


def det(b: Emitter, g: Any, y: Any, x: Any) -> Gradients:
    regular = b.ne(y[0], scalar(b, 0, dtype_of(y[0])))
    return (_by_inverse(b, x[0], g[0] * y[0], regular),)


def slogdet(b: Emitter, g: Any, y: Any, x: Any) -> Gradients:
    return (_by_inverse(b, x[0], g[1], b.ne(y[0], scalar(b, 0, dtype_of(y[0])))),)


def gelqf(b: Emitter, g: Any, y: Any, x: Any) -> Gradients:
    (q, factor), (by_q, by_factor) = ([_batched(b, v) for v in pair] for pair in (y, g))
    inner = product(b, factor, by_factor, transpose_x=True) - product(b, by_q, q, transpose_y=True)
    symmetric = _below(b, inner, 1) + transposed(b, _below(b, inner, 0))
    d = solve(b, factor, by_q + product(b, symmetric, q), lower=True, transpose=True)
    return (b.reshape(d, shape=tuple(x[0].shape)),)


def syevd(b: Emitter, g: Any, y: Any, x: Any) -> Gradients:
    """Eigenvectors of equal eigenvalues, which are not determined, get no cotangent from each other."""
    vectors, by_vectors = _batched(b, y[0]), _batched(b, g[0])
    batch, n, _ = vectors.shape
    values, by_values = (b.reshape(v, shape=(batch, n)) for v in (y[1], g[1]))
    dtype = dtype_of(vectors)
    gap = b.reshape(values, shape=(batch, n, 1)) - b.reshape(values, shape=(batch, 1, n))
    zero = scalar(b, 0, dtype)
    same = b.eq(gap, zero)
    mixed = product(b, by_vectors, vectors, transpose_y=True) / b.select(same, scalar(b, 1, dtype), gap)
    row, column = _order(b, n)
    inner = b.select(b.eq(row, column), b.reshape(by_values, shape=(batch, n, 1)), b.select(same, zero, mixed))
    d = product(b, product(b, vectors, _symmetric(b, inner), transpose_x=True), vectors)
    return (b.reshape(d, shape=tuple(x[0].shape)),)


def solve_system(b: Emitter, g: Any, y: Any, x: Any) -> Gradients:
    own = dtype_of(y[0])
    a = _batched(b, b.cast(x[0], dtype=own))
    columns = (*a.shape[:2], math.prod(x[1].shape) // max(math.prod(a.shape[:2]), 1))
    solution, g = (b.reshape(v[0], shape=columns) for v in (y, g))
    packed, order, _ = factorization.lu(b, transposed(b, a))
    by_right = solve_lower(b, packed, rows(b, g, order), unit=True)
    by_right = solve(b, packed, by_right, lower=False)
    d = -product(b, by_right, solution, transpose_y=True)
    found = zip((d, by_right), x)
    return tuple(b.cast(b.reshape(v, shape=tuple(of.shape)), dtype=dtype_of(of)) for v, of in found)


def svd(b: Emitter, g: Any, y: Any, x: Any) -> Gradients:
    """As in MXNet, differences of singular values and the values themselves count as `least` at least."""
    (u, v), (by_u, by_v) = ([_batched(b, part[k]) for k in (0, 2)] for part in (y, g))
    batch, m, n = v.shape
    values, by_values = (b.reshape(part[1], shape=(batch, m)) for part in (y, g))
    dtype = dtype_of(u)
    least = scalar(b, 1e-100 if dtype is F64 else 1e-30, dtype)
    rows_, columns = b.reshape(values, shape=(batch, m, 1)), b.reshape(values, shape=(batch, 1, m))
    row, column = _order(b, m)
    one, zero = scalar(b, 1, dtype), scalar(b, 0, dtype)
    gap = b.maximum(abs(rows_ - columns), least) * b.maximum(rows_ + columns, least)
    gap = b.select(row < column, -gap, gap)
    weight = b.select(b.eq(row, column), zero, one / b.select(b.eq(row, column), one, gap))

    def turning(x: Any) -> Any:
        return weight * (x - transposed(b, x))

    inverse = one / b.maximum(rows_, least)
    across = product(b, v, by_v, transpose_y=True)
    inner = turning(product(b, u, by_u, transpose_x=True)) * columns + turning(across) * rows_
    inner = inner + b.select(b.eq(row, column), b.reshape(by_values, shape=(batch, m, 1)), zero)
    rest = (by_v - product(b, transposed(b, across), v)) * inverse
    d = product(b, u, product(b, inner, v) + rest)
    return (b.reshape(d, shape=tuple(x[0].shape)),)
