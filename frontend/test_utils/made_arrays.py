"""Arrays for tests: random ones, and ones with a given structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from gluonjit import ndarray as nd
from gluonjit.base import MXNetError
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
    shape: Sequence[int], stype: str = "default", density: Any = None, dtype: Any = None, ctx: Any = None, **kwargs: Any
) -> NDArray:
    """A standard normal array. Every storage type but 'default' is refused."""
    if stype != "default":
        rand_sparse_ndarray(shape, stype)
    return nd.array(random_arrays(shape), dtype=dtype, ctx=ctx or current_context())


def rand_sparse_ndarray(shape: Sequence[int], stype: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises MXNetError, as only dense arrays exist; AssertionError for an unknown storage type."""
    if stype not in ("csr", "row_sparse"):
        raise AssertionError(f"Unknown storage type: {stype}")
    raise MXNetError(f"storage type {stype} is not supported: only dense arrays are")


create_sparse_array = create_sparse_array_zd = rand_sparse_ndarray


def shuffle_csr_column_indices(csr: Any) -> NoReturn:
    """MXNetError: only dense arrays exist."""
    rand_sparse_ndarray((), "csr")


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
