"""When two results count as equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gluonjit.ir.types import BF16, F16, F32, F64, DType, dtype_of

EPSILON = {F64: 2.0**-52, F32: 2.0**-23, F16: 2.0**-10, BF16: 2.0**-7}
"""Distance from 1 to the next larger number."""

TOLERANCE = {F64: 1e-12, F32: 1e-5, F16: 8 * EPSILON[F16], BF16: 8 * EPSILON[BF16]}
"""Tolerances relative to max|b|. Float32: what the project guarantees, 84 epsilon. Float64: special functions are
accurate to 1e-13, and a few of them may be chained. Narrow types: both sides compute in float32 and round after every
primitive, so they differ only if the unrounded values straddle a rounding boundary, by one epsilon, which later
primitives may enlarge a little.
"""


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """max|a - b| / max|b| over the finite elements of floats; 0 or inf for others, and inf for other NaNs or infs."""
    dtype = dtype_of(b)
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return np.inf
    if not dtype.is_float:
        return 0.0 if np.array_equal(a, b) else np.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    error = float(np.abs(a[finite] - b[finite]).max())
    scale = float(np.abs(b[finite]).max())
    return error / scale if scale else (np.inf if error else 0.0)


def tolerance(dtype: DType) -> float:
    return TOLERANCE.get(dtype, 0.0)


def close(a: np.ndarray, b: np.ndarray, tol: float | None = None) -> bool:
    """Whether `a` equals the reference `b`: type and shape, positions of NaN and infinities, and |a - b| <= tol max|b|.

    Integers and bools must be equal. `tol` is `TOLERANCE` of the type unless given.
    """
    return difference(a, b) <= (tolerance(dtype_of(b)) if tol is None else tol)


def assert_close(a: np.ndarray, b: np.ndarray, what: str | Callable[[], str] = "", tol: float | None = None) -> None:
    """Raises AssertionError unless `close`. `what` they are is text, or makes it: to print graphs takes time."""
    a, b = np.asarray(a), np.asarray(b)
    if not close(a, b, tol):
        text = what if isinstance(what, str) else what()
        raise AssertionError(
            f"{text or 'result'} is {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}; "
            f"difference {difference(a, b):.3g} of max|b|\n{a}\nexpected\n{b}"
        )
