"""The operators of `mx.np.linalg` that `linalg` lacks: systems of equations, singular values, eigenvalues.

The last two axes are the matrices, and the axes before them the batch. As in MXNet, eigenvalues and pseudo-inverses
count as constants.
"""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F64, DType, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.algebra import factorization, linalg_gradients
from gluonjit.operators.algebra.eigen import singular_values, symmetric_eigen
from gluonjit.operators.algebra.factorization import product, transposed
from gluonjit.operators.algebra.linalg import batched, det, inverse, like, require_pivots, slogdet
from gluonjit.operators.algebra.linear_algebra import matrices
from gluonjit.operators.attributes import boolean, enum, integer, number, shape
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import axis_in, scalar, shape_text


def _common(*inputs: Any) -> DType:
    """Their type, or float64 if there are several or they are whole numbers."""
    first, *more = map(dtype_of, inputs)
    return first if first.is_float and all(t is first for t in more) else F64


@operator("_npi_solve", inputs=("A", "B"), gradient=linalg_gradients.solve_system)
def solve(b: Emitter, A: Any, B: Any) -> Any:
    """The X with A X = B, for square matrices A; B has the rank of A, or one less for vectors

    Shapes: A (…, n, n), B (…, n, m) or (…, n) -> B's shape

    Operands of two types, and integers, become float64. MXNetError if A is singular.

    >>> mx.np.linalg.solve(mx.np.array([[4, 1], [2, 3]]), mx.np.array([1, 2])).asnumpy().round(5)
    array([0.1, 0.6], dtype=float32)
    """
    A, B = (b.cast(x, dtype=_common(A, B)) for x in (A, B))
    matrices("solve", A, square=True)
    vectors = len(B.shape) == len(A.shape) - 1
    right = b.reshape(B, shape=(*B.shape, 1)) if vectors else B
    matrices("solve", A, right)
    if tuple(right.shape[:-1]) != tuple(A.shape[:-1]):
        raise OperatorError(f"solve: the shapes {shape_text(A.shape)} and {shape_text(B.shape)} do not fit")
    a = batched(b, A)
    packed, order, _ = factorization.lu(b, a)
    require_pivots(b, packed, "solve")
    y = factorization.solve_lower(b, packed, factorization.rows(b, batched(b, right), order), unit=True)
    return b.reshape(factorization.solve(b, packed, y, lower=False), shape=tuple(B.shape))


@operator("_npi_tensorinv", inputs=("A",), attrs={"ind": integer(2, low=1, doc="how many axes the inverse ends with")})
def tensorinv(b: Emitter, A: Any, *, ind: int) -> Any:
    """The inverse for `tensordot` over `ind` axes: the first `ind` axes have as many elements as the others

    Shapes: A (s…, t…) -> (t…, s…)

    MXNetError if there is none.

    >>> mx.np.linalg.tensorinv(mx.np.eye(4).reshape(2, 2, 4), ind=2).shape
    (4, 2, 2)
    """
    left, right = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    size = math.prod(right)
    if math.prod(left) != size:
        raise OperatorError(f"tensorinv: {shape_text(A.shape)} is not square if divided at axis {ind}")
    matrix = b.reshape(b.cast(A, dtype=_common(A)), shape=(size, size))
    return b.reshape(inverse.expand(b, matrix), shape=(*right, *left))


@operator(
    "_npi_tensorsolve",
    inputs=("A", "B"),
    attrs={"a_axes": shape((), doc="the axes of A that are moved to its end before")},
)
def tensorsolve(b: Emitter, A: Any, B: Any, *, a_axes: Shape) -> Any:
    """The X with `tensordot(A, X, X.ndim)` = B

    Shapes: A (b…, x…), B (b…) -> (x…)

    MXNetError if there are none or several.

    >>> mx.np.linalg.tensorsolve(mx.np.eye(4).reshape(2, 2, 4), mx.np.ones((2, 2))).shape
    (4,)
    """
    rank = len(A.shape)
    moved = [axis_in(axis, rank) for axis in a_axes]
    if moved:
        A = b.transpose(A, perm=(*(k for k in range(rank) if k not in moved), *moved))
    found = tuple(A.shape[len(B.shape) :])
    size = math.prod(found)
    if math.prod(A.shape) != size * size or math.prod(B.shape) != size:
        raise OperatorError(f"tensorsolve: the shapes {shape_text(A.shape)} and {shape_text(B.shape)} do not fit")
    return b.reshape(solve.expand(b, b.reshape(A, shape=(size, size)), b.reshape(B, shape=(size,))), shape=found)


@operator(
    "_npi_svd", inputs=("A",), outputs=lambda attrs: ("output0", "output1", "output2"), gradient=linalg_gradients.svd
)
def svd(b: Emitter, A: Any) -> Any:
    """Singular values L of matrices with at most as many rows as columns, in descending order: U diag(L) V = A

    Shapes: A (…, m, n) with m <= n -> U (…, m, m), L (…, m), V (…, m, n)

    The columns of U and the rows of V are orthonormal. The largest element of each row of V is positive.

    >>> U, L, V = mx.np.linalg.svd(mx.np.array([[0, 3], [2, 0]]))
    >>> U.asnumpy().tolist(), L.asnumpy().tolist(), V.asnumpy().tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [3.0, 2.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    matrices("svd", A)
    if A.shape[-2] > A.shape[-1]:
        raise OperatorError(
            "Input A shape wrong: The second to last dimension must be less than or equal to the last dimension, got "
            f"{shape_text(A.shape)}: decompose the transposed matrix"
        )
    u, values, v = singular_values(b, batched(b, A))
    return like(b, u, A), b.reshape(values, shape=tuple(A.shape[:-1])), like(b, v, A)


# Determinants


@operator(
    "_npi_det",
    inputs=("A",),
    outputs=lambda attrs: ("output0", "output1", "output2"),
    visible=lambda attrs: 1,
    gradient=linalg_gradients.det,
)
def np_det(b: Emitter, A: Any) -> Any:
    """The determinants of square matrices

    Shapes: A (…, n, n) -> (…)

    >>> mx.np.linalg.det(mx.np.array([[2, 1], [0, 3]])).asnumpy().tolist()
    6.0
    """
    return b.reshape(det.expand(b, A), shape=tuple(A.shape[:-2]))


@operator(
    "_npi_slogdet",
    inputs=("A",),
    outputs=lambda attrs: ("output0", "output1", "output2", "output3"),
    visible=lambda attrs: 2,
    gradient=linalg_gradients.slogdet,
)
def np_slogdet(b: Emitter, A: Any) -> Any:
    """The signs of determinants, and the logarithms of their absolute values

    Shapes: A (…, n, n) -> (…) twice

    >>> [y.asnumpy().tolist() for y in mx.np.linalg.slogdet(mx.np.array([[-1, 0], [0, 1]]))]
    [-1.0, 0.0]
    """
    return tuple(b.reshape(y, shape=tuple(A.shape[:-2])) for y in slogdet.expand(b, A))


# Eigenvalues of symmetric matrices

_UPLO = {"UPLO": enum(("L", "U"), "L", doc="which triangle is read")}


def _eigen(b: Emitter, name: str, A: Any, UPLO: str) -> tuple[Any, Any]:
    A = b.cast(A, dtype=_common(A))
    matrices(name, A, square=True)
    a = batched(b, A)
    return symmetric_eigen(b, a if UPLO == "L" else transposed(b, a))


@operator(
    "_npi_eigh",
    inputs=("A",),
    attrs=_UPLO,
    outputs=lambda attrs: ("output0", "output1"),
    gradient=gradients.zero,
)
def eigh(b: Emitter, A: Any, *, UPLO: str) -> Any:
    """Eigenvalues of symmetric matrices in ascending order, and eigenvectors, which are columns

    Shapes: A (…, n, n) -> (…, n) and (…, n, n)

    Only one triangle of A is read. Integers become float64. The largest element of each eigenvector is positive. No
    gradient flows to A.

    >>> values, vectors = mx.np.linalg.eigh(mx.np.array([[2, 0], [0, 1]]))
    >>> values.asnumpy().tolist(), vectors.asnumpy().tolist()
    ([1.0, 2.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    values, vectors = _eigen(b, "eigh", A, UPLO)
    return b.reshape(values, shape=tuple(A.shape[:-1])), like(b, transposed(b, vectors), A)


@operator("_npi_eigvalsh", inputs=("A",), attrs=_UPLO, gradient=gradients.zero)
def eigvalsh(b: Emitter, A: Any, *, UPLO: str) -> Any:
    """Eigenvalues of symmetric matrices, in ascending order

    Shapes: A (…, n, n) -> (…, n)

    Only one triangle of A is read. Integers become float64. No gradient flows to A.

    >>> mx.np.linalg.eigvalsh(mx.np.array([[2, 0], [0, 1]])).asnumpy()
    array([1., 2.], dtype=float32)
    """
    return b.reshape(_eigen(b, "eigvalsh", A, UPLO)[0], shape=tuple(A.shape[:-1]))


# Pseudo-inverses

_HERMITIAN = {"hermitian": boolean(False, doc="must be False")}


def _pseudo_inverse(b: Emitter, A: Any, rcond: Any) -> Any:
    """`rcond`: float64, one number or one for each matrix."""
    matrices("pinv", A)
    a = b.cast(batched(b, A), dtype=F64)
    batch, m, n = a.shape
    u, values, v = singular_values(b, a if m <= n else transposed(b, a))
    k = min(m, n)
    if k:
        largest = b.reduce(values, op="max", axes=(1,))
        limit = b.reshape(largest * rcond, shape=(batch, 1))
        used, one = values > limit, scalar(b, 1, F64)
        values = b.select(used, one / b.select(used, values, one), scalar(b, 0, F64))
    y = product(b, v * b.reshape(values, shape=(batch, k, 1)), u, transpose_x=True, transpose_y=True)
    y = y if m <= n else transposed(b, y)
    return b.cast(b.reshape(y, shape=(*A.shape[:-2], n, m)), dtype=dtype_of(A))


@operator("_npi_pinv", inputs=("A", "rcond"), attrs=_HERMITIAN, gradient=gradients.zero)
def pinv(b: Emitter, A: Any, rcond: Any, *, hermitian: bool) -> Any:
    """The pseudo-inverses of matrices, without singular values up to `rcond` times the largest one

    Shapes: A (…, m, n), rcond (…) or a shape that broadcasts to it -> (…, n, m)

    No gradient flows to A.

    >>> mx.np.linalg.pinv(mx.np.array([[2, 0], [0, 1]]), mx.np.array(0.5)).asnumpy()
    array([[0.5, 0. ],
           [0. , 0. ]], dtype=float32)
    """
    lead = tuple(A.shape[:-2])
    rank = len(rcond.shape)
    if rank > len(lead) or any(m not in (1, n) for m, n in zip(rcond.shape, lead[len(lead) - rank :])):
        raise OperatorError(f"pinv: rcond of shape {shape_text(rcond.shape)} does not fit {shape_text(A.shape)}")
    limits = b.reshape(b.broadcast(b.cast(rcond, dtype=F64), shape=lead), shape=(math.prod(lead),))
    return _pseudo_inverse(b, A, limits)


@operator(
    "_npi_pinv_scalar_rcond",
    inputs=("A",),
    attrs={"rcond": number(1e-15, doc="relative to the largest singular value: which ones are left out"), **_HERMITIAN},
    gradient=gradients.zero,
)
def pinv_scalar_rcond(b: Emitter, A: Any, *, rcond: float, hermitian: bool) -> Any:
    """The pseudo-inverses of matrices, without singular values up to `rcond` times the largest one

    Shapes: A (…, m, n) -> (…, n, m)

    No gradient flows to A.

    >>> mx.np.linalg.pinv(mx.np.array([[2], [0]])).asnumpy()
    array([[0.5, 0. ]], dtype=float32)
    """
    return _pseudo_inverse(b, A, scalar(b, rcond, F64))
