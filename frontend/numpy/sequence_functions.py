"""Functions of `mx.np` on sequences of elements: differences, insertion and removal, percentiles, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.base import integer_types
from gluonjit.numpy.composed import concatenate, ravel
from gluonjit.numpy.dispatch import apply, is_number
from gluonjit.numpy.multiarray import array

# Differences, insertion and removal


def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """Two arrays joined along the axis; flattened first if the axis is None

    >>> mx.np.append(mx.np.array([1, 2]), mx.np.array([3])).asnumpy()
    array([1., 2., 3.], dtype=float32)
    """
    return concatenate((arr, values), axis)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The differences of neighbours along an axis, taken `n` times

    >>> mx.np.diff(mx.np.array([1, 4, 9])).asnumpy()
    array([3., 5.], dtype=float32)
    """
    if prepend is not None or append is not None:
        raise NotImplementedError("prepend and append options are not supported yet")
    return apply("_npi_diff", (a,), {"n": n, "axis": axis})


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours in the flattened array, between numbers or arrays that come first and last

    >>> mx.np.ediff1d(mx.np.array([1, 4, 9]), to_end=7).asnumpy()
    array([3., 5., 7.], dtype=float32)
    """
    operands = [ary]
    attrs: dict[str, Any] = {}
    for name, value in (("to_begin", to_begin), ("to_end", to_end)):
        given = hasattr(value, "as_np_ndarray")
        operands += [value] if given else []
        attrs |= {f"{name}_arr_given": given, f"{name}_scalar": None if given or value is None else float(value)}
    return apply("_npi_ediff1d", operands, attrs)


def _places(obj: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The form of an index into one axis, and how an operator gets it: operands, attributes."""
    if isinstance(obj, slice):
        return "slice", (), {"start": obj.start, "stop": obj.stop, "step": 1 if obj.step is None else obj.step}
    if isinstance(obj, integer_types):
        return "scalar", (), {"int_ind": int(obj)}
    if hasattr(obj, "as_np_ndarray"):
        return "tensor", (obj,), {}
    raise TypeError(f"'obj' can not support type {type(obj)}")


def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """The array with values in front of the places `obj`: a number, a slice, or a vector of int64

    >>> mx.np.insert(mx.np.array([1, 2, 3]), 1, 9).asnumpy()
    array([1., 9., 2., 3.], dtype=float32)
    """
    if not (is_number(values) or hasattr(values, "as_np_ndarray")):
        raise TypeError(f"'values' can not support type {type(values)}")
    form, at, attrs = _places(obj)
    attrs |= {"axis": axis, "val": float(values) if is_number(values) else None}
    return apply(f"_npi_insert_{form}", (arr, *(() if is_number(values) else (values,)), *at), attrs)


def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """The array without what is at the places `obj`: a number, a slice, or a vector, which cannot be compiled

    >>> mx.np.delete(mx.np.array([1, 2, 3]), 1).asnumpy()
    array([1., 3.], dtype=float32)
    """
    _, at, attrs = _places(obj)
    return apply("_npi_delete", (arr, *at), attrs | {"axis": axis})


def resize(a: Any, new_shape: Any) -> Any:
    """The elements, repeated as often as necessary, in another shape

    >>> mx.np.resize(mx.np.array([1, 2, 3]), (2, 2)).asnumpy()
    array([[1., 2.],
           [3., 1.]], dtype=float32)
    """
    new = (new_shape,) if isinstance(new_shape, integer_types) else tuple(new_shape)
    count, flat = int(np.prod(new)), ravel(a)
    if not a.size or not count:
        return apply("_npi_full_like", (a if not count else flat,), {"fill_value": 0.0}).reshape(-1)[:0].reshape(new)
    whole = apply("_npi_tile", (flat,), {"reps": (-(-count // a.size),)})
    return apply("_np_reshape", (whole[:count],), {"newshape": new})


def diagflat(array: Any, k: int = 0) -> Any:
    """A matrix with the elements on its k-th diagonal

    >>> mx.np.diagflat(mx.np.array([[1, 2]])).asnumpy()
    array([[1., 0.],
           [0., 2.]], dtype=float32)
    """
    return apply("_np_diag", (ravel(array),), {"k": k})


def diag_indices_from(arr: Any) -> Any:
    """The indices of the main diagonal, a vector of int64 for each axis

    >>> [rows.asnumpy().tolist() for rows in mx.np.diag_indices_from(mx.np.zeros((2, 2)))]
    [[0, 1], [0, 1]]
    """
    rows = apply("_npi_diag_indices_from", (arr,))
    return tuple(rows[k] for k in range(arr.ndim))


def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    """The positions in an array of the given shape, from positions in its flattened elements: a vector for each axis

    >>> [axis.asnumpy().tolist() for axis in mx.np.unravel_index(mx.np.array([5], dtype="int64"), (2, 3))]
    [[1], [2]]
    """
    if order != "C":
        raise NotImplementedError("unravel_index does not support column-major order")
    if np.dtype(indices.dtype).kind not in "iu":
        raise TypeError("only int indices permitted")
    shape = (shape,) if isinstance(shape, integer_types) else tuple(shape)
    known = array(np.arange(int(np.prod(shape)), dtype=indices.dtype))
    inside = apply("_npi_take", (known, indices), {"axis": 0, "mode": "raise"})  # which checks them
    rows = apply("_unravel_index", (inside,), {"shape": shape})
    return tuple(rows[k] for k in range(len(shape)))


# Percentiles, counts and polynomials


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = None,
    interpolation: str = "linear",
    keepdims: bool = False,
) -> Any:
    """The elements below which `q` percent of all elements lie, over the axes. No gradient flows

    >>> mx.np.percentile(mx.np.array([1, 2, 4]), 75).asnumpy().tolist()
    3.0
    """
    if overwrite_input is not None:
        raise NotImplementedError("overwrite_input is not supported yet")
    attrs = {"axis": axis, "interpolation": interpolation, "keepdims": keepdims}
    if is_number(q):
        return apply("_npi_percentile", (a,), {**attrs, "q_scalar": float(q)}, out)
    return apply(
        "_npi_percentile", (a, q if hasattr(q, "as_np_ndarray") else array(q)), {**attrs, "q_scalar": None}, out
    )


def quantile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """`percentile` of 100 q

    >>> mx.np.quantile(mx.np.array([1, 2, 4]), 0.75).asnumpy().tolist()
    3.0
    """
    return percentile(a, (q if is_number(q) or hasattr(q, "as_np_ndarray") else array(q)) * 100, *args, **kwargs)


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each whole number from 0 on occurs, or the sum of its weights. Not in compiled code

    >>> mx.np.bincount(mx.np.array([0, 1, 1], dtype="int32")).asnumpy()
    array([1, 2], dtype=int32)
    """
    if minlength < 0:
        raise ValueError("Minlength value should greater than 0")
    operands = (x,) if weights is None else (x, weights)
    return apply("_npi_bincount", operands, {"minlength": minlength, "has_weights": weights is not None})


def histogram(
    a: Any, bins: Any = 10, range: Any = None, normed: Any = None, weights: Any = None, density: Any = None
) -> Any:
    """The number of elements in each bin, and the bins' edges; the last bin includes its upper edge

    >>> counts, edges = mx.np.histogram(mx.np.array([0, 1, 1, 4]), bins=2, range=(0, 4))
    >>> counts.asnumpy().tolist(), edges.asnumpy().tolist()
    ([3, 1], [0.0, 2.0, 4.0])
    """
    for name, value in (("normed", normed or None), ("weights", weights), ("density", density or None)):
        if value is not None:
            raise NotImplementedError(f"{name} is not supported yet...")
    if hasattr(bins, "as_np_ndarray"):
        return apply("_npi_histogram", (a, bins))
    if not is_number(bins):
        raise NotImplementedError(f"bins of type {type(bins)} are not supported yet...")
    if range is None:
        raise NotImplementedError("automatic range is not supported yet...")
    return apply("_npi_histogram", (a,), {"bin_cnt": int(bins), "range": tuple(map(float, range))})


def polyval(p: Any, x: Any) -> Any:
    """The polynomial with the coefficients p, the highest power first, at each x

    >>> mx.np.polyval(mx.np.array([1, 2, 3]), mx.np.array([0, 10])).asnumpy()
    array([  3., 123.], dtype=float32)
    """
    arrays = [hasattr(v, "as_np_ndarray") for v in (p, x)]
    if not any(arrays):
        return np.polyval(p, x)
    if not all(arrays):
        raise TypeError("type not supported")
    return apply("_npi_polyval", (p, x))


def _removed(name: str) -> Callable[..., Any]:
    message = f"NumPy has removed {name}, which MXNet took from it: use numpy_financial.{name}"

    def function(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(message)

    function.__name__ = name
    function.__doc__ = f"""What NumPy has no more; says where it is

    >>> mx.np.{name}()
    Traceback (most recent call last):
    RuntimeError: {message}
    """
    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function  # type: ignore[misc]
    for function in (
        append,
        diff,
        ediff1d,
        insert,
        delete,
        resize,
        diagflat,
        diag_indices_from,
        unravel_index,
        percentile,
        quantile,
        bincount,
        histogram,
        polyval,
        *map(_removed, ("mirr", "npv", "ppmt", "pv", "rate")),
    )
}
for _function in FUNCTIONS.values():
    _function.__module__ = "gluonjit.numpy"
