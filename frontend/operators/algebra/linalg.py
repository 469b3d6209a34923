"""The `linalg` operators that factorize, solve and pack; products are in `linear_algebra`.

The last two axes are the matrices, and the axes before them the batch. A matrix that cannot be factorized (singular,
not positive definite) is an error, as in LAPACK. NaN is none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.primitives.host_call import ERRORS
from gluonjit.ir.types import I32, I64, dtype_of
from gluonjit.operators.algebra import factorization, linalg_gradients
from gluonjit.operators.algebra.eigen import symmetric_eigen
from gluonjit.operators.algebra.linear_algebra import matrices, scaled
from gluonjit.operators.attributes import boolean, integer, number
from gluonjit.operators.movement.creation import diagonal, filled
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import check_table, require_numeric, scalar, shape_text

_LOWER = boolean(True, doc="whether the lower triangle is read, or else the upper one")


def batched(b: Emitter, x: Any) -> Any:
    """(batch, m, n)"""
    return b.reshape(x, shape=(math.prod(x.shape[:-2]), *x.shape[-2:]))


def like(b: Emitter, y: Any, x: Any, last: int = 2) -> Any:
    """Reshapes `y` to the batch axes of `x` followed by the `last` axes of `y`; to (1,) if there are no axes at all."""
    return b.reshape(y, shape=(*x.shape[:-2], *y.shape[len(y.shape) - last :]) or (1,))


def require(b: Emitter, holds: Any, error: str) -> None:
    """The error of this name in `ERRORS` unless all of these bools are true."""
    wrong = b.cast(~b.reduce(holds, op="all", axes=tuple(range(len(holds.shape)))), dtype=I64)
    b.check_index(b.reshape(wrong, shape=(1, 1)), sizes=(1,), negative=False, error=error)


def require_pivots(b: Emitter, packed: Any, error: str) -> None:
    """The error if a pivot of the `lu` is 0."""
    pivots = diagonal(b, packed, 0)
    require(b, b.ne(pivots, scalar(b, 0, dtype_of(pivots))), error)


def _error(message: str) -> Any:
    return lambda *_: OperatorError(message)


ERRORS["inverse"] = _error("inverse: the input matrix is non-convertible: it is singular")
ERRORS["solve"] = _error("solve: the factor U is exactly singular, so the solution could not be computed")
ERRORS["potrf"] = _error(
    "potrf failed. This may happen when the input matrix is either not symmetric or not positive definite"
)
ERRORS["potri"] = _error(
    "potri failed. This may happen when the input matrix is not a Cholesky factorization obtained by a prior call of "
    "the potrf-operator"
)


@operator(
    "_linalg_potrf", aliases=("linalg_potrf",), inputs=("A",), attrs={"lower": _LOWER}, gradient=linalg_gradients.potrf
)
def potrf(b: Emitter, A: Any, *, lower: bool) -> Any:
    """The Cholesky factor of positive definite matrices: lower triangular L with L Lᵀ = A, or upper U with Uᵀ U = A

    Shapes: A (…, n, n) -> the same

    Only one triangle of A is read. MXNetError unless A is positive definite.

    >>> mx.nd.linalg.potrf(mx.nd.array([[4, 2], [2, 5]])).asnumpy()
    array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    matrices("linalg_potrf", A, square=True)
    a = batched(b, A)
    if not lower:
        a = factorization.transposed(b, a)
    y = factorization.cholesky(b, a)
    # A pivot that is not positive gives NaN; so does NaN in the triangle, which is no error.
    n, own = a.shape[1], dtype_of(a)
    below = b.iota(shape=(1, n, 1), axis=1, dtype=I64) >= b.iota(shape=(1, 1, n), axis=2, dtype=I64)
    none = b.select(below, a, scalar(b, 0, own)) * 0
    finite = b.eq(b.reduce(none, op="sum", axes=(1, 2)), scalar(b, 0, own))
    pivots = diagonal(b, y, 0)
    failed = b.reduce(b.ne(pivots, pivots), op="any", axes=(1,))
    require(b, ~(failed & finite), "potrf")
    return like(b, y if lower else factorization.transposed(b, y), A)


@operator(
    "_linalg_potri", aliases=("linalg_potri",), inputs=("A",), attrs={"lower": _LOWER}, gradient=linalg_gradients.potri
)
def potri(b: Emitter, A: Any, *, lower: bool) -> Any:
    """The inverse of the matrix whose Cholesky factor is given

    Shapes: A (…, n, n) -> the same

    (L Lᵀ)⁻¹ for lower L, (Uᵀ U)⁻¹ for upper U.

    >>> mx.nd.linalg.potri(mx.nd.array([[2, 0], [0, 1]])).asnumpy()
    array([[0.25, 0.  ],
           [0.  , 1.  ]], dtype=float32)
    """
    matrices("linalg_potri", A, square=True)
    a = batched(b, A)
    require_pivots(b, a, "potri")
    inverse = factorization.solve(b, a, factorization.identity(b, a, a.shape[1]), lower)
    return like(b, factorization.product(b, inverse, inverse, lower, not lower), A)


@operator(
    "_linalg_trsm",
    aliases=("linalg_trsm",),
    inputs=("A", "B"),
    attrs={
        "transpose": boolean(False, doc="whether A is transposed"),
        "rightside": boolean(False, doc="whether A stands on the right of X"),
        "lower": _LOWER,
        "alpha": number(1.0, doc="what B is multiplied by"),
    },
    gradient=linalg_gradients.trsm,
)
def trsm(b: Emitter, A: Any, B: Any, *, transpose: bool, rightside: bool, lower: bool, alpha: float) -> Any:
    """Solves A X = alpha * B, or X A = alpha * B, for X, where A is triangular; its other triangle is not read

    Shapes: A (…, n, n), B (…, n, m), or with `rightside` (…, m, n) -> B's shape

    >>> mx.nd.linalg.trsm(mx.nd.array([[2, 0], [1, 1]]), mx.nd.array([[4], [5]])).asnumpy()
    array([[2.],
           [3.]], dtype=float32)
    """
    matrices("linalg_trsm", A, B, square=True)
    if tuple(A.shape[:-2]) != tuple(B.shape[:-2]) or A.shape[-1] != B.shape[-1 if rightside else -2]:
        raise OperatorError(
            f"Incompatible matrix dimensions for multiplication: {shape_text(A.shape)} and {shape_text(B.shape)}"
        )
    a, x = batched(b, A), scaled(b, batched(b, B), alpha)
    if rightside:  # X A = B is Aᵀ Xᵀ = Bᵀ
        y = factorization.solve(b, a, factorization.transposed(b, x), lower, not transpose)
        return like(b, factorization.transposed(b, y), B)
    return like(b, factorization.solve(b, a, x, lower, transpose), B)


# Determinants and inverses


@operator(
    "_linalg_det",
    aliases=("linalg_det",),
    inputs=("A",),
    outputs=lambda attrs: ("output0", "output1", "output2"),
    visible=lambda attrs: 1,
    gradient=linalg_gradients.det,
)
def det(b: Emitter, A: Any) -> Any:
    """The determinants of square matrices

    Shapes: A (…, n, n) -> (…), or (1,) for one matrix

    >>> mx.nd.linalg.det(mx.nd.array([[2, 1], [0, 3]])).asnumpy()
    array([6.], dtype=float32)
    """
    matrices("linalg_det", A, square=True)
    packed, _, sign = factorization.lu(b, batched(b, A))
    return like(b, b.reduce(diagonal(b, packed, 0), op="prod", axes=(1,)) * sign, A, 0)


@operator(
    "_linalg_slogdet",
    aliases=("linalg_slogdet",),
    inputs=("A",),
    outputs=lambda attrs: ("output0", "output1", "output2", "output3"),
    visible=lambda attrs: 2,
    gradient=linalg_gradients.slogdet,
)
def slogdet(b: Emitter, A: Any) -> Any:
    """The signs of determinants, and the logarithms of their absolute values

    Shapes: A (…, n, n) -> (…) twice, or (1,) for one matrix

    >>> sign, logarithm = mx.nd.linalg.slogdet(mx.nd.array([[-1, 0], [0, 1]]))
    >>> sign.asnumpy(), logarithm.asnumpy()
    (array([-1.], dtype=float32), array([0.], dtype=float32))
    """
    matrices("linalg_slogdet", A, square=True)
    packed, _, sign = factorization.lu(b, batched(b, A))
    pivots = diagonal(b, packed, 0)
    sign = sign * b.reduce(b.sign(pivots), op="prod", axes=(1,))
    return like(b, sign, A, 0), like(b, b.reduce(b.log(abs(pivots)), op="sum", axes=(1,)), A, 0)


@operator(
    "_linalg_inverse", aliases=("linalg_inverse",), inputs=("A",), same_shape=True, gradient=linalg_gradients.inverse
)
def inverse(b: Emitter, A: Any) -> Any:
    """The inverses of square matrices

    Shapes: A (…, n, n) -> the same

    MXNetError if one is singular.

    >>> mx.nd.linalg.inverse(mx.nd.array([[2, 0], [0, 4]])).asnumpy()
    array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    matrices("linalg_inverse", A, square=True)
    packed, order, _ = factorization.lu(b, batched(b, A))
    require_pivots(b, packed, "inverse")
    return like(b, factorization.inverse_of_lu(b, packed, order), A)


# Orthogonal factors


@operator(
    "_linalg_gelqf",
    aliases=("linalg_gelqf",),
    inputs=("A",),
    outputs=lambda attrs: ("output0", "output1"),
    gradient=linalg_gradients.gelqf,
)
def gelqf(b: Emitter, A: Any) -> Any:
    """The LQ factorization A = L Q of matrices with at most as many rows as columns: orthonormal rows Q, lower L

    Shapes: A (…, n, m) with n <= m -> Q (…, n, m) and L (…, n, n)

    >>> Q, L = mx.nd.linalg.gelqf(mx.nd.array([[3, 4]]))
    >>> mx.nd.dot(L, Q).asnumpy().round(3), (Q * Q).sum().asnumpy().round(3)
    (array([[3., 4.]], dtype=float32), array([1.], dtype=float32))
    """
    matrices("linalg_gelqf", A)
    if A.shape[-2] > A.shape[-1]:
        raise OperatorError(
            f"Input A shape wrong: Last dimension must be >= than second to last, got {shape_text(A.shape)}"
        )
    factor, q = factorization.lq(b, batched(b, A))
    return like(b, q, A), like(b, factor, A)


@operator(
    "_linalg_syevd",
    aliases=("linalg_syevd",),
    inputs=("A",),
    outputs=lambda attrs: ("output0", "output1"),
    gradient=linalg_gradients.syevd,
)
def syevd(b: Emitter, A: Any) -> Any:
    """Eigenvectors (the rows of U) and ascending eigenvalues L of symmetric matrices: Uᵀ diag(L) U = A

    Shapes: A (…, n, n) -> U (…, n, n) and L (…, n)

    Only the lower triangle of A is read. The largest element of each eigenvector is positive.

    >>> U, L = mx.nd.linalg.syevd(mx.nd.array([[2, 0], [0, 1]]))
    >>> U.asnumpy(), L.asnumpy()
    (array([[0., 1.],
           [1., 0.]], dtype=float32), array([1., 2.], dtype=float32))
    """
    matrices("linalg_syevd", A, square=True)
    values, vectors = symmetric_eigen(b, batched(b, A))
    return like(b, vectors, A), like(b, values, A, 1)


# Triangles as vectors


def _triangle_indices(n: int, offset: int, lower: bool) -> tuple[np.ndarray, np.ndarray]:
    """Row and column indices of a triangle's elements: row by row for a lower one, column by column for an upper one.

    An offset other than 0 selects the triangle by its sign, whatever `lower` is.
    """
    if offset < 0 or offset == 0 and lower:
        return np.tril_indices(n, offset)
    column, row = np.tril_indices(n, -offset)
    return row, column


_TRIANGLE = {
    "offset": integer(0, doc="first diagonal of the triangle; positive ones lie above the main one"),
    "lower": boolean(True, doc="which triangle, if the offset is 0"),
}


@operator("_linalg_extracttrian", aliases=("linalg_extracttrian",), inputs=("A",), attrs=_TRIANGLE)
def extracttrian(b: Emitter, A: Any, *, offset: int, lower: bool) -> Any:
    """Packs a triangle of square matrices into the last axis: a lower one row by row, an upper one column by column

    Shapes: A (…, n, n) -> (…, k * (k + 1) / 2), where k = n - |offset|

    >>> mx.nd.linalg.extracttrian(mx.nd.array([[1, 2], [3, 4]])).asnumpy()
    array([1., 3., 4.], dtype=float32)
    """
    matrices("linalg_extracttrian", A, square=True)
    n = A.shape[-1]
    if abs(offset) >= n:
        raise OperatorError(f"offset={offset} lies outside of matrices of shape {shape_text(A.shape)}")
    row, column = _triangle_indices(n, offset, lower)
    flat = b.reshape(A, shape=(*A.shape[:-2], n * n))
    return b.gather(flat, b.constant(row * n + column, I32), axis=len(flat.shape) - 1)


@operator("_linalg_maketrian", aliases=("linalg_maketrian",), inputs=("A",), attrs=_TRIANGLE)
def maketrian(b: Emitter, A: Any, *, offset: int, lower: bool) -> Any:
    """Unpacks triangles, in the order of `extracttrian`, to square matrices with zeros elsewhere

    Shapes: A (…, k * (k + 1) / 2) -> (…, n, n), where n = k + |offset|

    >>> mx.nd.linalg.maketrian(mx.nd.array([1, 3, 4])).asnumpy()
    array([[1., 0.],
           [3., 4.]], dtype=float32)
    """
    require_numeric("linalg_maketrian", A)
    count = A.shape[-1] if A.shape else 0
    side = (math.isqrt(8 * count + 1) - 1) // 2
    if not A.shape or side * (side + 1) // 2 != count:
        raise OperatorError(
            f"Input tensor of maketrian has an invalid dimension for the last axis: {shape_text(A.shape)}"
        )
    n = side + abs(offset)
    check_table(n, n)
    row, column = _triangle_indices(n, offset, lower)
    source = np.full((n, n), -1)
    source[row, column] = np.arange(count)
    if count == 0:
        return filled(b, 0, (*A.shape[:-1], n, n), dtype_of(A))
    y = b.gather(A, b.constant(np.maximum(source, 0), I32), axis=len(A.shape) - 1)
    return b.select(b.constant(source >= 0), y, scalar(b, 0, dtype_of(A)))
