"""`mx.np.linalg`.

What MXNet leaves to NumPy, and eigenvalues of matrices that are not symmetric, are computed by NumPy on values: not in
compiled code, and without a gradient. All others are operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
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
    return apply("_npi_solve", (a, b))


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse for `tensordot` over `ind` axes: the first `ind` axes have as many elements as the others

    >>> mx.np.linalg.tensorinv(mx.np.eye(4).reshape(2, 2, 4), ind=2).shape
    (4, 2, 2)
    """
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    return apply("_npi_tensorinv", (a,), {"ind": ind})


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x with `tensordot(a, x, x.ndim)` = b; the axes of `a` in `axes` are moved to its end before

    >>> mx.np.linalg.tensorsolve(mx.np.eye(4).reshape(2, 2, 4), mx.np.ones((2, 2))).shape
    (4,)
    """
    return apply("_npi_tensorsolve", (a, b), {} if axes is None else {"a_axes": tuple(axes)})


def svd(a: Any) -> Any:
    """Singular values in descending order, of matrices with at most as many rows as columns: u diag(s) v = a

    >>> u, s, v = mx.np.linalg.svd(mx.np.array([[0, 3], [2, 0]]))
    >>> u.asnumpy().tolist(), s.asnumpy().tolist(), v.asnumpy().tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [3.0, 2.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    return tuple(apply("_npi_svd", (a,)))


def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues of symmetric matrices in ascending order, and eigenvectors, which are columns. No gradient flows

    >>> values, vectors = mx.np.linalg.eigh(mx.np.array([[2, 0], [0, 1]]))
    >>> values.asnumpy().tolist(), vectors.asnumpy().tolist()
    ([1.0, 2.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    return tuple(apply("_npi_eigh", (a,), {"UPLO": UPLO}))


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues of symmetric matrices, in ascending order. No gradient flows

    >>> mx.np.linalg.eigvalsh(mx.np.array([[2, 0], [0, 1]])).asnumpy()
    array([1., 2.], dtype=float32)
    """
    return apply("_npi_eigvalsh", (a,), {"UPLO": UPLO})


def pinv(a: Any, rcond: Any = 1e-15, hermitian: bool = False) -> Any:
    """Pseudo-inverses, without singular values up to `rcond` times the largest one. No gradient flows

    >>> mx.np.linalg.pinv(mx.np.array([[2], [0]])).asnumpy()
    array([[0.5, 0. ]], dtype=float32)
    """
    if hermitian:
        raise NotImplementedError("hermitian is not supported yet...")
    if np.isscalar(rcond):
        return apply("_npi_pinv_scalar_rcond", (a,), {"rcond": float(rcond)})  # type: ignore[arg-type]
    return apply("_npi_pinv", (a, rcond))


def _real(name: str) -> Callable[..., Any]:
    """NumPy's function, whose results must be real numbers."""

    def function(a: np.ndarray) -> Any:
        found = getattr(np.linalg, name)(a)
        if np.iscomplexobj(found[0]):
            raise MXNetError(f"{name}: complex eigenvalues are not supported, and this matrix has some")
        return found

    return function


def _lstsq(a: np.ndarray, b: np.ndarray, rcond: Any = "warn") -> Any:
    x, residuals, rank, s = np.linalg.lstsq(a, b, None if rcond == "warn" else rcond)
    return x, residuals, np.int32(rank), s


_OF_VALUES: dict[str, Callable[..., Any]] = {
    "eig": _real("eig"),
    "eigvals": _real("eigvals"),
    "lstsq": _lstsq,
    **{name: getattr(np.linalg, name) for name in "cond matrix_power matrix_rank multi_dot qr".split()},
}

_NOT_COMPILED = "NumPy computes it, on values"

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "norm": norm,
    "det": det,
    "slogdet": slogdet,
    "cholesky": cholesky,
    "solve": solve,
    "svd": svd,
    "eigh": eigh,
    "eigvalsh": eigvalsh,
    "pinv": pinv,
    "tensorinv": tensorinv,
    "tensorsolve": tensorsolve,
    **{name: on_values(f"linalg.{name}", function, _NOT_COMPILED) for name, function in _OF_VALUES.items()},
}
