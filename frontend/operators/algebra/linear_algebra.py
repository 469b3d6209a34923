"""Matrix products, and the `linalg` operators on triangles and diagonals.

In the `linalg` operators, the last two axes are the matrices, and the axes before them the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, F64, I64, dtype_of
from gluonjit.operators.attributes import boolean, counted, enum, integer, number, optional
from gluonjit.operators.movement.creation import diagonal, from_diagonal
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import axis_in, require_numeric, require_same_dtype, scalar, shape_text

_PRODUCT = {
    "transpose_a": boolean(False, doc="whether the first matrix is transposed"),
    "transpose_b": boolean(False, doc="whether the second matrix is transposed"),
    "forward_stype": optional(
        enum(("csr", "default", "row_sparse"), doc="the storage of the result, where an operand is csr"), None
    ),
}


@operator("dot", inputs=("lhs", "rhs"), attrs=_PRODUCT)
def dot(b: Emitter, lhs: Any, rhs: Any, *, transpose_a: bool, transpose_b: bool, forward_stype: str | None) -> Any:
    """The sum of products over the last axis of lhs and the first axis of rhs

    Shapes: lhs (*a, k), rhs (k, *b) -> (*a, *b), or (1,) for two vectors

    `transpose_a` sums over the first axis of lhs, `transpose_b` over the last of rhs; the other axes keep their order.
    MXNetError if the two axes differ in length.

    >>> mx.nd.dot(mx.nd.array([[1, 2], [3, 4]]), mx.nd.array([1, 10])).asnumpy()
    array([21., 43.], dtype=float32)
    """
    require_same_dtype(lhs, rhs)
    require_numeric("dot", lhs)
    m, n = len(lhs.shape), len(rhs.shape)
    if not m or not n:
        raise OperatorError(f"dot shape error: {shape_text(lhs.shape)} X {shape_text(rhs.shape)}")
    if m == n == 1 and (transpose_a or transpose_b):
        raise OperatorError("Cannot transpose vectors")
    left, right = 0 if transpose_a else m - 1, n - 1 if transpose_b else 0
    if lhs.shape[left] != rhs.shape[right]:
        raise OperatorError(
            f"Check failed: L[!Ta].Size() == R[Tb].Size() ({lhs.shape[left]} vs. {rhs.shape[right]}) : "
            f"dot shape error: {shape_text(lhs.shape)} X {shape_text(rhs.shape)}"
        )
    y = b.dot_general(lhs, rhs, contract=((left,), (right,)))
    return b.reshape(y, shape=(1,)) if m == n == 1 else y


def _matmul(b: Emitter, x: Any, y: Any, transpose_x: bool, transpose_y: bool) -> Any:
    """Product of the matrices in the last two axes; the axes before them are batch axes."""
    rank = len(x.shape)
    batch = tuple(range(rank - 2))
    contract = ((rank - 2 if transpose_x else rank - 1,), (rank - 1 if transpose_y else rank - 2,))
    return b.dot_general(x, y, contract=contract, batch=(batch, batch))


@operator("batch_dot", inputs=("lhs", "rhs"), attrs=_PRODUCT)
def batch_dot(
    b: Emitter, lhs: Any, rhs: Any, *, transpose_a: bool, transpose_b: bool, forward_stype: str | None
) -> Any:
    """Products of the matrices in the last two axes; the batch axes before them must be equal

    Shapes: lhs (*batch, n, k), rhs (*batch, k, m) -> (*batch, n, m)

    `transpose_a` and `transpose_b` exchange the last two axes first.

    >>> mx.nd.batch_dot(mx.nd.array([[[1, 2]]]), mx.nd.array([[[3], [4]]])).asnumpy()
    array([[[11.]]], dtype=float32)
    """
    require_same_dtype(lhs, rhs)
    require_numeric("batch_dot", lhs)
    rank = len(lhs.shape)
    shown = f"{shape_text(lhs.shape)} X {shape_text(rhs.shape)} trans_a={transpose_a:d} trans_b={transpose_b:d}"
    if rank < 3 or len(rhs.shape) != rank:
        raise OperatorError(
            "batch_dot currently only support N-D*N-D array (N >= 3)"
            f"{shape_text(lhs.shape)} v.s. {shape_text(rhs.shape)}"
        )
    if tuple(lhs.shape[:-2]) != tuple(rhs.shape[:-2]):
        raise OperatorError(f"batch_dot shape error (the leading batch dimensions must be equal): {shown}")
    if lhs.shape[-2 if transpose_a else -1] != rhs.shape[-1 if transpose_b else -2]:
        raise OperatorError(f"batch_dot shape error (shape mismatch): {shown}")
    return _matmul(b, lhs, rhs, transpose_a, transpose_b)


@operator("khatri_rao", inputs=("args",), variadic=True, attrs={"num_args": counted(doc="how many matrices there are")})
def khatri_rao(b: Emitter, *args: Any, num_args: int) -> Any:
    """The column-wise Kronecker product of matrices with the same number of columns

    Shapes: matrices (n, k), (m, k), … -> (n * m * …, k)

    >>> mx.nd.khatri_rao(mx.nd.array([[1, 2]]), mx.nd.array([[3, 4], [5, 6]])).asnumpy()
    array([[ 3.,  8.],
           [ 5., 12.]], dtype=float32)
    """
    require_same_dtype(*args)
    require_numeric("khatri_rao", args[0])
    columns = args[0].shape[-1]
    if any(len(x.shape) != 2 or x.shape[1] != columns for x in args):
        shapes = ", ".join(shape_text(x.shape) for x in args)
        raise OperatorError(f"khatri_rao needs matrices with one number of columns (num_columns), got {shapes}")
    y = args[0]
    for x in args[1:]:
        m, n = y.shape[0], x.shape[0]
        both = b.reshape(y, shape=(m, 1, columns)) * b.reshape(x, shape=(1, n, columns))
        y = b.reshape(both, shape=(m * n, columns))
    return y


# linalg


def matrices(operator: str, *inputs: Any, square: bool = False) -> int:
    """Checks that the inputs are float matrices, or batches of them, of one rank; returns the rank."""
    require_same_dtype(*inputs)
    if dtype_of(inputs[0]) not in (F32, F64):
        raise OperatorError(f"{operator}: This operation only supports 32-bit and 64-bit floating point")
    rank = len(inputs[0].shape)
    if rank < 2 or any(len(x.shape) != rank for x in inputs):
        shapes = ", ".join(shape_text(x.shape) for x in inputs)
        raise OperatorError(
            f"Operator {operator} inferring shapes failed: it takes (batches of) matrices, got {shapes}"
        )
    if square and inputs[0].shape[-2] != inputs[0].shape[-1]:
        raise OperatorError(
            f"Input operand must be a tensor of square matrices, got {shape_text(inputs[0].shape)} in {operator}"
        )
    return rank


def scaled(b: Emitter, x: Any, factor: float) -> Any:
    return x if factor == 1 else x * scalar(b, factor, dtype_of(x))


def _moved(rank: int, source: int, target: int) -> tuple[int, ...]:
    """The permutation that moves axis `source` to position `target` and keeps the others in order."""
    rest = [axis for axis in range(rank) if axis != source]
    rest.insert(target, source)
    return tuple(rest)


def _gemm(b: Emitter, name: str, inputs: Sequence[Any], transpose_a: bool, transpose_b: bool, axis: int) -> Any:
    """The product of the first two inputs, whose rows lie along `axis` and columns along the last one."""
    rank = matrices(name, *inputs)
    row = axis_in(axis, rank)
    if row == rank - 1:
        raise OperatorError(f"axis={axis} of {name} is the axis of the columns")
    x, y = inputs[:2]
    for k in range(rank - 1):
        if k != row and len({z.shape[k] for z in inputs}) > 1:
            raise OperatorError(
                "Shapes of inputs 0, 1 must be the same, except on row/col axis: "
                f"{shape_text(x.shape)} and {shape_text(y.shape)}"
            )
    inner, other = x.shape[row if transpose_a else -1], y.shape[-1 if transpose_b else row]
    if inner != other:
        raise OperatorError(
            f"Incompatible matrix dimensions for multiplication ({inner} vs. {other}): "
            f"{shape_text(x.shape)} and {shape_text(y.shape)}"
        )
    batch = tuple(k for k in range(rank - 1) if k != row)
    contract = ((row if transpose_a else rank - 1,), (rank - 1 if transpose_b else row,))
    product = b.dot_general(x, y, contract=contract, batch=(batch, batch))  # rows are the second to last axis
    return product if row == rank - 2 else b.transpose(product, perm=_moved(rank, rank - 2, row))


_GEMM = {
    "transpose_a": boolean(False, doc="whether the first matrix is transposed"),
    "transpose_b": boolean(False, doc="whether the second matrix is transposed"),
    "alpha": number(1.0, doc="what the product is multiplied by"),
}


@operator(
    "_linalg_gemm2",
    aliases=("linalg_gemm2",),
    inputs=("A", "B"),
    attrs={**_GEMM, "axis": integer(-2, doc="the axis of the rows; the columns are the last axis")},
)
def gemm2(b: Emitter, A: Any, B: Any, *, transpose_a: bool, transpose_b: bool, alpha: float, axis: int) -> Any:
    """alpha * A B

    Shapes: A (…, n, k), B (…, k, m) -> (…, n, m)

    `transpose_a` and `transpose_b` exchange rows and columns first. `axis` is that of the rows, when it is not the last
    but one.

    >>> mx.nd.linalg.gemm2(mx.nd.array([[1, 2]]), mx.nd.array([[3], [4]]), alpha=10).asnumpy()
    array([[110.]], dtype=float32)
    """
    return scaled(b, _gemm(b, "linalg_gemm2", (A, B), transpose_a, transpose_b, axis), alpha)


@operator(
    "_linalg_gemm",
    aliases=("linalg_gemm",),
    inputs=("A", "B", "C"),
    attrs={
        **_GEMM,
        "beta": number(1.0, doc="what C is multiplied by"),
        "axis": integer(-2, doc="the axis of the rows; the columns are the last axis"),
    },
)
def gemm(
    b: Emitter, A: Any, B: Any, C: Any, *, transpose_a: bool, transpose_b: bool, alpha: float, beta: float, axis: int
) -> Any:
    """alpha * A B + beta * C

    Shapes: A (…, n, k), B (…, k, m), C (…, n, m) -> (…, n, m)

    >>> A, B, C = mx.nd.array([[1, 2]]), mx.nd.array([[3], [4]]), mx.nd.array([[100]])
    >>> mx.nd.linalg.gemm(A, B, C, alpha=10, beta=2).asnumpy()
    array([[310.]], dtype=float32)
    """
    product = _gemm(b, "linalg_gemm", (A, B, C), transpose_a, transpose_b, axis)
    if tuple(product.shape) != tuple(C.shape):
        raise OperatorError(
            f"Shape inconsistent, Provided = {shape_text(C.shape)}, inferred shape={shape_text(product.shape)}"
        )
    return scaled(b, product, alpha) + scaled(b, C, beta)


@operator(
    "_linalg_syrk",
    aliases=("linalg_syrk",),
    inputs=("A",),
    attrs={
        "transpose": boolean(False, doc="whether A is transposed"),
        "alpha": number(1.0, doc="what the product is multiplied by"),
    },
)
def syrk(b: Emitter, A: Any, *, transpose: bool, alpha: float) -> Any:
    """alpha * A Aᵀ, or alpha * Aᵀ A

    Shapes: A (…, n, k) -> (…, n, n), or with `transpose` (…, k, k)

    >>> mx.nd.linalg.syrk(mx.nd.array([[1, 2], [3, 4]])).asnumpy()
    array([[ 5., 11.],
           [11., 25.]], dtype=float32)
    """
    matrices("linalg_syrk", A)
    return scaled(b, _matmul(b, A, A, transpose, not transpose), alpha)


def triangle(b: Emitter, A: Any, lower: bool) -> Any:
    """`A` with zeros above its diagonal if `lower`, else below it."""
    side = A.shape[-1]
    row = b.iota(shape=(side, 1), axis=0, dtype=I64)
    column = b.iota(shape=(1, side), axis=1, dtype=I64)
    kept = row >= column if lower else row <= column
    return b.select(kept, A, b.constant(0, dtype_of(A)))


@operator(
    "_linalg_trmm",
    aliases=("linalg_trmm",),
    inputs=("A", "B"),
    attrs={
        "transpose": boolean(False, doc="whether A is transposed"),
        "rightside": boolean(False, doc="whether A stands on the right of B"),
        "lower": boolean(True, doc="which triangle of A is read"),
        "alpha": number(1.0, doc="what the product is multiplied by"),
    },
)
def trmm(b: Emitter, A: Any, B: Any, *, transpose: bool, rightside: bool, lower: bool, alpha: float) -> Any:
    """alpha * A B or alpha * B A, where A is triangular; its other triangle is not read

    Shapes: A (…, n, n), B (…, n, m), or with `rightside` (…, m, n) -> B's shape

    >>> mx.nd.linalg.trmm(mx.nd.array([[1, 0], [2, 3]]), mx.nd.array([[1], [1]])).asnumpy()
    array([[1.],
           [5.]], dtype=float32)
    """
    matrices("linalg_trmm", A, B, square=True)
    if tuple(A.shape[:-2]) != tuple(B.shape[:-2]) or A.shape[-1] != B.shape[-1 if rightside else -2]:
        raise OperatorError(f"Shapes of inputs {shape_text(A.shape)} and {shape_text(B.shape)} do not match in trmm")
    factor = triangle(b, A, lower)
    y = _matmul(b, B, factor, False, transpose) if rightside else _matmul(b, factor, B, transpose, False)
    return scaled(b, y, alpha)


@operator("_linalg_sumlogdiag", aliases=("linalg_sumlogdiag",), inputs=("A",))
def sumlogdiag(b: Emitter, A: Any) -> Any:
    """The sum of the logarithms of the diagonal

    Shapes: A (…, n, n) -> (…), or (1,) for one matrix

    For a Cholesky factor, half the logarithm of the matrix's determinant.

    >>> mx.nd.linalg.sumlogdiag(mx.nd.array([[1, 0], [5, 1]])).asnumpy()
    array([0.], dtype=float32)
    """
    rank = matrices("linalg_sumlogdiag", A, square=True)
    y = b.reduce(b.log(diagonal(b, A, 0)), op="sum", axes=(rank - 2,))
    return b.reshape(y, shape=tuple(A.shape[:-2]) or (1,))


@operator(
    "_linalg_extractdiag",
    aliases=("linalg_extractdiag",),
    inputs=("A",),
    attrs={"offset": integer(0, doc="which diagonal; positive ones are above the main one")},
)
def extractdiag(b: Emitter, A: Any, *, offset: int) -> Any:
    """A diagonal of square matrices

    Shapes: A (…, n, n) -> (…, n - |offset|)

    >>> mx.nd.linalg.extractdiag(mx.nd.array([[1, 2], [3, 4]])).asnumpy()
    array([1., 4.], dtype=float32)
    """
    matrices("linalg_extractdiag", A, square=True)
    if abs(offset) >= A.shape[-1]:
        raise OperatorError(f"offset={offset} lies outside of matrices of shape {shape_text(A.shape)}")
    return diagonal(b, A, offset)


@operator(
    "_linalg_makediag",
    aliases=("linalg_makediag",),
    inputs=("A",),
    attrs={"offset": integer(0, doc="which diagonal; positive ones are above the main one")},
)
def makediag(b: Emitter, A: Any, *, offset: int) -> Any:
    """Square matrices with the given diagonal, and zeros elsewhere

    Shapes: A (…, n) -> (…, m, m), where m = n + |offset|

    >>> mx.nd.linalg.makediag(mx.nd.array([1, 2])).asnumpy()
    array([[1., 0.],
           [0., 2.]], dtype=float32)
    """
    require_numeric("linalg_makediag", A)
    if not A.shape:
        raise OperatorError("linalg_makediag needs an array of at least one axis")
    return from_diagonal(b, A, offset)
