"""Comparing arrays: tolerances by element type, and messages that show the worst places."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ndarray import NDArray

# Tolerances


def default_dtype() -> type:
    return np.float32


def default_rtols() -> dict[np.dtype, float]:
    """Relative tolerance by element type."""
    return _tolerances(1e-2, 1e-4, 1e-5)


def default_atols() -> dict[np.dtype, float]:
    """Absolute tolerance by element type."""
    return _tolerances(1e-1, 1e-3, 1e-20)


def default_numeric_eps() -> dict[np.dtype, float]:
    """How far finite differences step, by element type: powers of two, so that no bit of a step is lost."""
    return {np.dtype("float16"): 2.0**-6, np.dtype("float32"): 2.0**-9, np.dtype("float64"): 2.0**-14}


def _tolerances(f16: float, f32: float, f64: float) -> dict[np.dtype, float]:
    exact = dict.fromkeys(map(np.dtype, ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64")), 0.0)
    return {np.dtype("float16"): f16, np.dtype("float32"): f32, np.dtype("float64"): f64, **exact}


def get_rtol(rtol: float | None = None, dtype: Any = np.float64) -> float:
    return default_rtols()[np.dtype(dtype)] if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = np.float64) -> float:
    return default_atols()[np.dtype(dtype)] if atol is None else atol


def get_etol(etol: float | None = None) -> float:
    """The share of elements that may differ: none unless said otherwise."""
    return 0 if etol is None else etol


def effective_dtype(dat: Any) -> np.dtype:
    """The element type that decides about tolerances: the array's own (MXNet: a narrower one on some GPUs)."""
    return np.dtype(dat.dtype)


def get_tolerance(dat: Any, tol: Any, default_tol: Mapping[np.dtype, float]) -> float:
    """`tol` if it is a number; else what it, or else `default_tol`, has for the array's element type."""
    if isinstance(tol, numbers.Number):
        return tol  # type: ignore[return-value]
    dtype = effective_dtype(dat)
    return (tol or {}).get(dtype, default_tol.get(dtype, 0.0))


def get_tols(x: Any, y: Any, rtol: Any, atol: Any) -> tuple[float, float]:
    """(relative, absolute) tolerance for comparing two arrays: given numbers, or the larger of their types' ones."""
    arrays = [v if hasattr(v, "dtype") else np.asarray(v) for v in (x, y)]
    relative, absolute = default_rtols(), default_atols()
    return max(get_tolerance(v, rtol, relative) for v in arrays), max(get_tolerance(v, atol, absolute) for v in arrays)


# Comparisons


def _numpy(x: Any) -> np.ndarray:
    return x.asnumpy() if isinstance(x, NDArray) else np.asarray(x)


def same(a: Any, b: Any) -> bool:
    """Whether shapes and all elements are equal."""
    return np.array_equal(_numpy(a), _numpy(b))


def almost_equal(
    a: Any,
    b: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """Whether |a − b| ≤ atol + rtol · |b| everywhere."""
    a, b = _numpy(a), _numpy(b)
    if not use_broadcast:
        checkShapes(a, b)
    return np.allclose(a, b, rtol=get_rtol(rtol), atol=get_atol(atol), equal_nan=equal_nan)


def checkShapes(a: Any, b: Any) -> None:
    """AssertionError unless the shapes are equal."""
    if a.shape != b.shape:
        raise AssertionError(
            np.testing.build_err_msg([a, b], err_msg=f"a.shape = {a.shape} and b.shape = {b.shape} are not equal")
        )


def locationError(a: Any, b: Any, index: Any, names: Sequence[str], maxError: bool = False) -> str:
    """Which elements stand at `index`, in words."""
    maximum = "maximum " if maxError else ""
    return f"Location of {maximum}error: {index}, {names[0]}={a[index]:.8f}, {names[1]}={b[index]:.8f}"


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """AssertionError, with the worst place, unless |a − b| ≤ atol + rtol · |b| everywhere.

    Tolerances are numbers or dicts by element type; by default those of `default_rtols` and `default_atols`. Of
    `mismatches`, the first says how many places are printed, the second how many are counted (0: all).
    """
    rtol, atol = get_tols(a, b, rtol, atol)
    a, b = _numpy(a), _numpy(b)
    if not almost_equal(a, b, rtol, atol, equal_nan, use_broadcast):
        raise AssertionError(_mismatch(a, b, rtol, atol, names, equal_nan, mismatches))


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    etol: float | None = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """`assert_almost_equal` that lets a share `etol` of the elements differ."""
    etol = get_etol(etol)
    if not etol > 0:
        assert_almost_equal(a, b, rtol, atol, equal_nan=equal_nan)
        return
    rtol, atol = get_tols(a, b, rtol, atol)
    a, b = _numpy(a), _numpy(b)
    if 1 - np.mean(np.isclose(a, b, rtol=rtol, atol=atol)) > etol:
        raise AssertionError(_mismatch(a, b, rtol, atol, names, equal_nan, mismatches))


def _mismatch(
    a: np.ndarray,
    b: np.ndarray,
    rtol: float,
    atol: float,
    names: Sequence[str],
    equal_nan: bool,
    mismatches: tuple[int, int],
) -> str:
    """The message about arrays that differ; prints the worst places."""
    x, y = np.broadcast_arrays(a, b)
    x, y = (v.astype(np.float64) if v.dtype.kind in "biu" else v for v in (x, y))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(x == y, 0.0, np.abs(x - y)) / (atol + rtol * np.abs(y) + 1e-20)
    if equal_nan:
        error = np.where(np.isnan(x) & np.isnan(y), 0.0, error)
    order = np.argsort(-np.where(np.isnan(error), np.inf, error), axis=None, kind="stable")
    wrong = int(np.count_nonzero(~(error <= 1)))
    counted = min(wrong, mismatches[1] + 1) if mismatches[1] > 0 else wrong
    places = [tuple(map(int, np.unravel_index(k, error.shape))) for k in order[: max(min(counted, mismatches[0]), 1)]]
    limits = f"rtol={rtol:e}, atol={atol:e}"
    if error.ndim == 0:
        text = f"Error {error:f} exceeds tolerance {limits}.\n"
    else:
        print(f"\n*** Maximum errors for vector of size {error.size}:  rtol={rtol}, atol={atol}\n")
        for k, place in enumerate(places[: mismatches[0]], 1):
            print(f"{k:3d}: Error {error[place]:f}  {locationError(x, y, place, names)}")
        least = "at least " if counted < wrong or 0 < mismatches[1] < counted else ""
        share = f"{least}{100 * counted / error.size:f}%"
        text = f"Error {error[places[0]]:f} exceeds tolerance {limits} (mismatch {share}).\n" + locationError(
            x, y, places[0], names, maxError=True
        )
    with np.printoptions(threshold=4, suppress=True):
        return np.testing.build_err_msg([a, b], err_msg=text)


def assert_allclose(a: Any, b: Any, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True) -> None:
    assert_almost_equal(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, names: tuple[str, str] = ("a", "b")
) -> None:
    """`assert_almost_equal` where neither is NaN."""
    a, b = _numpy(a).copy(), _numpy(b).copy()
    a[np.isnan(b)] = b[np.isnan(a)] = np.nan
    assert_almost_equal(np.nan_to_num(a, nan=0.0), np.nan_to_num(b, nan=0.0), rtol, atol, names)


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Any = None, atol: Any = None) -> None:
    """`assert_almost_equal` of nested tuples of arrays, some of which may be None."""
    if t1 is None or t2 is None:
        return
    if isinstance(t1, tuple):
        for x, y in zip(t1, t2):
            compare_ndarray_tuple(x, y, rtol, atol)
    else:
        assert_almost_equal(t1, t2, rtol=rtol, atol=atol)


def same_array(array1: Any, array2: Any) -> bool:
    """Whether two arrays are the same memory: found by writing to one."""
    array1[:] += 1
    changed = same(array1, array2)
    array1[:] -= 1
    return changed and same(array1, array2)
