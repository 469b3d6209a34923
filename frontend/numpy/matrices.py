"""`mx.np.linalg`.

Systems of equations and Cholesky factors are compositions of operators: they can be compiled, and have gradients. What
MXNet leaves to NumPy, and decompositions whose results are only determined up to signs or order, are computed by NumPy
on values: not in compiled code, and without a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.numpy.composed import det, norm, on_values, slogdet
from gluonjit.numpy.dispatch import apply


def cholesky(a: Any) -> Any:
    """The lower triangular L with L Lᵀ = a, of positive definite matrices

    >>> mx.np.linalg.cholesky(mx.np.array([[4, 0], [0, 9]])).asnumpy()
    array([[2., 0.],
           [0., 3.]], dtype=float32)
    """
    return apply("_linalg_potrf", (a,))


def solve(a: Any, b: Any) -> Any:
    """The x with a x = b, for square matrices a; b has the rank of a, or one less for vectors

    >>> mx.np.linalg.solve(mx.np.array([[4, 1], [2, 3]]), mx.np.array([1, 2])).asnumpy().round(5)
    array([0.1, 0.6], dtype=float32)
    """
    a, b = _of_floats(a), _of_floats(b)
    if a.dtype != b.dtype:
        a, b = (apply("_npi_cast", (x,), {"dtype": "float64"}) for x in (a, b))
    vectors = b.ndim == a.ndim - 1
    b = apply("_npi_expand_dims", (b,), {"axis": -1}) if vectors else b
    inverse = apply("_npi_inv", (a,))
    x = apply("_npi_matmul", (inverse, b))
    # Once more for what is left: the error is then that of a solver, not of an inverse.
    left = apply("_npi_subtract", (b, apply("_npi_matmul", (a, x))))
    x = apply("_npi_add", (x, apply("_npi_matmul", (inverse, left))))
    return apply("_np_squeeze", (x,), {"axis": -1}) if vectors else x


def _of_floats(a: Any) -> Any:
    integers = getattr(a, "dtype", None) is not None and np.dtype(a.dtype).kind in "biu"
    return apply("_npi_cast", (a,), {"dtype": "float64"}) if integers else a


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse for `tensordot` over `ind` axes: the first `ind` axes have as many elements as the others

    >>> mx.np.linalg.tensorinv(mx.np.eye(4).reshape(2, 2, 4), ind=2).shape
    (4, 2, 2)
    """
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    a, size = _of_floats(a), math.prod(a.shape[ind:])
    inverse = apply("_npi_inv", (apply("_np_reshape", (a,), {"newshape": (size, size)}),))
    return apply("_np_reshape", (inverse,), {"newshape": (*a.shape[ind:], *a.shape[:ind])})


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x with `tensordot(a, x, x.ndim)` = b; the axes of `a` in `axes` are moved to its end before

    >>> mx.np.linalg.tensorsolve(mx.np.eye(4).reshape(2, 2, 4), mx.np.ones((2, 2))).shape
    (4,)
    """
    if axes is not None:
        moved = [k % a.ndim for k in axes]
        a = apply("_np_transpose", (a,), {"axes": (*(k for k in range(a.ndim) if k not in moved), *moved)})
    shape = a.shape[b.ndim :]
    size = math.prod(shape)
    matrix = apply("_np_reshape", (a,), {"newshape": (size, size)})
    return apply("_np_reshape", (solve(matrix, b.reshape(-1)),), {"newshape": shape})


def _svd(a: np.ndarray) -> Any:
    return np.linalg.svd(a, full_matrices=False)


def _lstsq(a: np.ndarray, b: np.ndarray, rcond: Any = "warn") -> Any:
    x, residuals, rank, s = np.linalg.lstsq(a, b, None if rcond == "warn" else rcond)
    return x, residuals, np.int32(rank), s


_OF_VALUES: dict[str, Callable[..., Any]] = {
    "svd": _svd,
    "lstsq": _lstsq,
    **{
        name: getattr(np.linalg, name)
        for name in "cond eig eigh eigvals eigvalsh matrix_power matrix_rank multi_dot pinv qr".split()
    },
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "norm": norm,
    "det": det,
    "slogdet": slogdet,
    "cholesky": cholesky,
    "solve": solve,
    "tensorinv": tensorinv,
    "tensorsolve": tensorsolve,
    **{name: on_values(f"linalg.{name}", function) for name, function in _OF_VALUES.items()},
}
