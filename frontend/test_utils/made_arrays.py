"""Arrays for tests: random ones, and ones with a given structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit import ndarray as nd
from gluonjit.context import current_context
from gluonjit.ndarray import NDArray
from gluonjit.test_utils.closeness import default_dtype


def random_arrays(*shapes: Sequence[int]) -> Any:
    """Standard normal float32 arrays: a list of them, or one for one shape."""
    arrays: list[np.ndarray] = [np.asarray(np.random.randn(*shape)).astype(default_dtype()) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(*shapes: Any, low: float = 0.0, high: float = 1.0, dtype: Any = np.float32) -> list:
    return [np.asarray(np.random.uniform(low, high, shape)).astype(dtype) for shape in shapes]


def random_sample(population: Sequence[Any], k: int) -> Any:
    """`k` different elements, in random order."""
    if not 0 <= k <= len(population):
        raise AssertionError(f"cannot take {k} of {len(population)}")
    shuffled = population[:]
    np.random.shuffle(shuffled)  # type: ignore[arg-type]
    return shuffled[:k]


def rand_ndarray(
    shape: Sequence[int],
    stype: str = "default",
    density: float | None = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
    distribution: str | None = None,
    ctx: Any = None,
) -> NDArray:
    """A standard normal array, or what `rand_sparse_ndarray` makes."""
    if stype == "default":
        return nd.array(random_arrays(shape), dtype=dtype, ctx=ctx or current_context())
    return rand_sparse_ndarray(
        shape,
        stype,
        density=density,
        dtype=dtype,
        modifier_func=modifier_func,
        shuffle_csr_indices=shuffle_csr_indices,
        distribution=distribution,
        ctx=ctx,
    )[0]


def rand_sparse_ndarray(
    shape: Sequence[int],
    stype: str,
    density: float | None = None,
    dtype: Any = None,
    distribution: str | None = None,
    data_init: float | None = None,
    rsp_indices: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
    ctx: Any = None,
) -> tuple[NDArray, tuple[Any, ...]]:
    """A random sparse array, and its parts: (values, rows) of row_sparse, as ndarrays; (indptr, indices, data) of csr.

    * `density`: about how much of the rows, or of the elements, is stored; random unless given.
    * `distribution`: 'uniform', or 'powerlaw', of csr: each row has twice as many elements as the one before.
    * `data_init`: all elements; `rsp_indices`: which rows; `modifier_func`: changes each element of row_sparse.
    * `shuffle_csr_indices`: columns do not ascend within a row.
    """
    ctx = ctx or current_context()
    density = np.random.rand() if density is None else density
    dtype = default_dtype() if dtype is None else dtype
    distribution = distribution or "uniform"
    if stype == "row_sparse":
        if distribution != "uniform":
            raise AssertionError(f"Distribution {distribution} not supported for row_sparse")
        rows = np.flatnonzero(np.random.rand(shape[0]) < density) if rsp_indices is None else np.asarray(rsp_indices)
        if len(rows) > shape[0]:
            raise AssertionError(f"rsp_indices has {len(rows)} rows, the array {shape[0]}")
        values = np.random.rand(len(rows), *shape[1:]).astype(dtype)
        if data_init is not None:
            values.fill(data_init)
        if modifier_func is not None:
            values = assign_each(values, modifier_func).astype(dtype)
        made = nd.sparse.row_sparse_array((values, rows), shape=shape, dtype=dtype, ctx=ctx)
        return made, (values, rows)
    if stype != "csr":
        raise AssertionError(f"Unknown storage type: {stype}")
    if len(shape) != 2 or not 0 <= density <= 1:
        raise AssertionError(
            f"csr takes a shape of two axes and a density from 0 to 1, not {tuple(shape)} and {density}"
        )
    counts = _csr_rows(shape[0], shape[1], density, distribution)
    columns = [np.random.choice(shape[1], n, replace=False) for n in counts]
    if distribution == "powerlaw":
        columns = [np.arange(n) for n in counts]
    if not shuffle_csr_indices:
        columns = [np.sort(c) for c in columns]
    values = np.random.uniform(1e-3, 1, int(sum(counts))) + (distribution == "powerlaw")
    if data_init is not None:
        values.fill(data_init)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    parts = values.astype(dtype), np.concatenate([*columns, np.empty(0, np.int64)]).astype(np.int64), indptr
    csr: Any = nd.sparse.csr_matrix(parts, shape=shape, dtype=dtype, ctx=ctx)
    return csr, (csr.indptr, csr.indices, csr.data)


def _csr_rows(rows: int, columns: int, density: float, distribution: str) -> np.ndarray:
    """How many elements each row has. ValueError where a power law does not hold as many as the density asks for."""
    total = int(rows * columns * density)
    if distribution == "uniform":
        places = np.random.choice(rows * columns, total, replace=False)
        return np.bincount(places // max(columns, 1), minlength=rows)
    if distribution != "powerlaw":
        raise AssertionError(f"Distribution not supported: {distribution}")
    counts = (np.arange(rows) < total).astype(int)
    left = total - counts.sum()
    for row in range(rows):
        more = min(left, min(columns, 2 ** min(row + 1, 62)) - 1)
        counts[row] += more
        left -= more
    if left > 0:
        raise ValueError(f"not supported for this density: {density} for this shape ({rows},{columns})")
    return counts


def create_sparse_array(
    shape: Sequence[int],
    stype: str,
    data_init: float | None = None,
    rsp_indices: Any = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    density: float = 0.5,
    shuffle_csr_indices: bool = False,
) -> NDArray:
    """The array of `rand_sparse_ndarray`, with ascending rows."""
    return rand_sparse_ndarray(
        shape,
        stype,
        density,
        dtype,
        data_init=data_init,
        rsp_indices=None if rsp_indices is None else np.sort(rsp_indices),
        modifier_func=modifier_func,
        shuffle_csr_indices=shuffle_csr_indices,
    )[0]


def create_sparse_array_zd(
    shape: Sequence[int],
    stype: str,
    density: float,
    data_init: float | None = None,
    rsp_indices: Any = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
) -> NDArray:
    """As `create_sparse_array`; a row_sparse array has no rows but `rsp_indices`."""
    density = 0.0 if stype == "row_sparse" else density
    return create_sparse_array(shape, stype, data_init, rsp_indices, dtype, modifier_func, density, shuffle_csr_indices)


def shuffle_csr_column_indices(csr: Any) -> None:
    """Shuffles the columns within each row of a SciPy matrix, in place; the elements stay."""
    for start, end in zip(csr.indptr, csr.indptr[1:]):
        np.random.shuffle(csr.indices[start:end])


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    return _random_shape((dim0, dim1), allow_zero_size)


def rand_shape_3d(dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    return _random_shape((dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    return _random_shape((dim,) * num_dim, allow_zero_size)


def _random_shape(most: Sequence[int], allow_zero_size: bool) -> tuple[int, ...]:
    return tuple(int(np.random.randint(0 if allow_zero_size else 1, n + 1)) for n in most)


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    return int(np.random.randint(x_low, x_high)), int(np.random.randint(y_low, y_high))


def np_reduce(dat: np.ndarray, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]) -> np.ndarray:
    """Applies a reduction of NumPy's to several axes, one after another."""
    axes = [axis] if isinstance(axis, int) else range(dat.ndim) if axis is None else list(axis)
    result = dat
    for k in sorted(axes, reverse=True):
        result = numpy_reduce_func(result, axis=k)
    return result.reshape([1 if k in axes else n for k, n in enumerate(dat.shape)]) if keepdims else result


# Arrays that are large, or have a certain form


def create_vector(size: int, dtype: Any = np.int64) -> NDArray:
    """0, 1, …"""
    return nd.arange(0, size, dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = np.int64) -> NDArray:
    """Rows of equal numbers: 0, 1, …"""
    return nd.broadcast_to(nd.arange(0, rows, dtype=dtype).reshape(rows, 1), shape=(rows, columns))


def get_identity_mat(size: int) -> NDArray:
    return nd.eye(size)


def get_identity_mat_batch(size: int) -> NDArray:
    """Two identity matrices."""
    return nd.array(np.stack([np.eye(size)] * 2))


def new_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """A random matrix, well conditioned, whose eigenvalues are real and lie between -10 and 10."""
    basis = np.ones((n, n))
    while True:
        v = np.random.uniform(-1, 1, (n, 1))
        v = v / np.linalg.norm(v)
        basis = (np.eye(n) - 2 * v @ v.T) @ np.diag(np.random.uniform(-1, 1, n))
        if np.linalg.cond(basis, 2) < 3:
            return np.linalg.inv(basis) @ np.diag(np.random.uniform(-10, 10, n)) @ basis


def new_orthonormal_matrix_2d(n: int) -> np.ndarray:
    """A random orthonormal matrix."""
    x = np.random.randn(n, n)
    return np.linalg.qr(x.T @ x)[0]


def new_sym_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """A random symmetric matrix whose eigenvalues lie between -10 and 10."""
    q = new_orthonormal_matrix_2d(n)
    return q.T @ np.diag(np.random.uniform(-10, 10, n)) @ q


def new_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> np.ndarray:
    return _stacked(new_matrix_with_real_eigvals_2d, shape)


def new_sym_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> np.ndarray:
    return _stacked(new_sym_matrix_with_real_eigvals_2d, shape)


def _stacked(make: Callable[[int], np.ndarray], shape: Sequence[int]) -> np.ndarray:
    count = int(np.prod(shape[:-2]))
    return np.array([make(shape[-1]) for _ in range(count)]).reshape(shape)


# Elements one by one


def assign_each(the_input: np.ndarray, function: Callable[[Any], Any] | None) -> np.ndarray:
    """`function` of every element, as float64; a copy if there is none."""
    if function is None:
        return np.array(the_input)
    return np.array([function(x) for x in the_input.flat], np.float64).reshape(the_input.shape)


def assign_each2(input1: np.ndarray, input2: np.ndarray, function: Callable[[Any, Any], Any] | None) -> np.ndarray:
    """`function` of every two elements at one place, as float64; a copy of the first array if there is none."""
    if function is None:
        return np.array(input1)
    if input1.shape != input2.shape:
        raise AssertionError(f"shapes {input1.shape} and {input2.shape} differ")
    return np.array([function(x, y) for x, y in zip(input1.flat, input2.flat)], np.float64).reshape(input1.shape)


def collapse_sum_like(a: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The sum over axes of `a` that an array of this shape was broadcast along."""
    extra = a.ndim - len(shape)
    if extra < 0 or any(m not in (1, n) for m, n in zip(shape, a.shape[extra:])):
        raise AssertionError(f"shape {tuple(shape)} does not broadcast to {a.shape}")
    if not np.prod(shape) or not a.size:
        return np.zeros(shape, a.dtype)
    axes = [*range(extra), *(k + extra for k, n in enumerate(shape) if n != a.shape[k + extra])]
    return np.sum(a, axis=tuple(axes)).reshape(shape)
