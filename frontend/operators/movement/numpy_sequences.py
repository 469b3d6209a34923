"""Operators of `mx.np` on sequences of elements: differences, insertion, removal, percentiles, counts, polynomials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.primitives.host_call import ERRORS
from gluonjit.ir.types import F32, F64, I64, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.algebra.linalg import require
from gluonjit.operators.attributes import boolean, enum, integer, number, optional, shape
from gluonjit.operators.documentation import documented
from gluonjit.operators.movement.indexing import as_index
from gluonjit.operators.movement.joining import part
from gluonjit.operators.reductions.reduction import reduced_axes
from gluonjit.operators.registry import OperatorError, Shape, UndecidedOperator, operator
from gluonjit.operators.support import axis_in, require_numeric, require_same_dtype, scalar, shape_text

# Differences


def _steps(b: Emitter, x: Any, axis: int) -> Any:
    n = x.shape[axis]
    return part(b, x, axis, min(1, n), n) - part(b, x, axis, 0, max(n - 1, 0))


@operator(
    "_npi_diff",
    inputs=("a",),
    attrs={
        "n": integer(1, low=0, doc="how often differences are taken"),
        "axis": integer(-1, doc="the axis along which differences are taken"),
    },
)
def diff(b: Emitter, a: Any, *, n: int, axis: int) -> Any:
    """The differences of neighbours along an axis, taken `n` times

    Shapes: a (any) -> the same, with `n` less along `axis`

    >>> mx.np.diff(mx.np.array([1, 4, 9])).asnumpy()
    array([3., 5.], dtype=float32)
    """
    axis = axis_in(axis, len(a.shape))
    for _ in range(min(n, a.shape[axis])):
        a = _steps(b, a, axis)
    return a


def _ediff1d_inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    count = 1 + attrs["to_begin_arr_given"] + attrs["to_end_arr_given"]
    return tuple(f"input{k + 1}" for k in range(count))


@operator(
    "_npi_ediff1d",
    inputs=_ediff1d_inputs,
    attrs={
        "to_begin_arr_given": boolean(False, doc="whether what comes first is an input"),
        "to_end_arr_given": boolean(False, doc="whether what comes last is an input"),
        "to_begin_scalar": optional(number(doc="what comes first"), None),
        "to_end_scalar": optional(number(doc="what comes last"), None),
    },
)
def ediff1d(
    b: Emitter,
    input1: Any,
    input2: Any = None,
    input3: Any = None,
    *,
    to_begin_arr_given: bool,
    to_end_arr_given: bool,
    to_begin_scalar: float | None,
    to_end_scalar: float | None,
) -> Any:
    """The differences of neighbours in the flattened array, between numbers or arrays that come first and last

    Shapes: input1 (any), and up to two arrays -> a vector

    >>> mx.np.ediff1d(mx.np.array([1, 4, 9]), to_end=7).asnumpy()
    array([3., 5., 7.], dtype=float32)
    """
    inputs = [x for x in (input1, input2, input3) if x is not None]
    require_same_dtype(*inputs)
    own = dtype_of(input1)
    flat, *more = (b.reshape(x, shape=(math.prod(x.shape),)) for x in inputs)
    begin: list[Any] = []
    end: list[Any] = []
    for given, value, place in ((to_begin_arr_given, to_begin_scalar, begin), (to_end_arr_given, to_end_scalar, end)):
        if given:
            place.append(more.pop(0))
        elif value is not None:
            place.append(b.broadcast(scalar(b, value, own), shape=(1,)))
    parts = [*begin, _steps(b, flat, 0), *end]
    return b.concat(*parts, axis=0) if len(parts) > 1 else parts[0]


# Insertion and removal

_PLACES = {
    "start": optional(integer(doc="the start of a slice of places"), None),
    "stop": optional(integer(doc="the stop of a slice of places"), None),
    "step": optional(integer(doc="the step of a slice of places"), None),
    "int_ind": optional(integer(doc="one place"), None),
    "axis": optional(integer(doc="None: of the flattened array"), None),
}


def _lined_up(b: Emitter, arr: Any, axis: int | None) -> tuple[Any, int]:
    if axis is None:
        return b.reshape(arr, shape=(math.prod(arr.shape),)), 0
    return arr, axis_in(axis, len(arr.shape))


def _merged(b: Emitter, arr: Any, values: Any, places: Any, axis: int) -> Any:
    """`arr` with slice k of `values` in front of its slice places[k]."""
    n, m = arr.shape[axis], values.shape[axis]
    if not m:
        return arr
    # A stable sort by position, in which what is inserted comes before the element that was there.
    two, one = b.constant(2, I64), b.constant(1, I64)
    own = b.iota(shape=(n,), axis=0, dtype=I64) * two + one
    order = b.sort(b.concat(places * two, own, axis=0), axis=0)[1]
    return b.gather(b.concat(values, arr, axis=axis), order, axis=axis)


def _inserted(
    b: Emitter, name: str, arr: Any, values: Any, places: Any, axis: int, single: bool, scalar_place: bool
) -> Any:
    """`places`: a vector of i64, from 0. `single`: it is one, where all of `values` go."""
    rank = len(arr.shape)
    lengths = tuple(values.shape)
    if len(lengths) > rank:
        raise OperatorError(f"{name}: values of shape {shape_text(lengths)} do not fit {shape_text(arr.shape)}")
    values = b.reshape(values, shape=((1,) * (rank - len(lengths)) + lengths))
    if scalar_place and axis:
        rest = list(range(1, rank))
        rest.insert(axis, 0)
        values = b.transpose(values, perm=tuple(rest))
    count = values.shape[axis] if single else places.shape[0]
    whole = tuple(count if k == axis else n for k, n in enumerate(arr.shape))
    if any(m not in (1, n) for m, n in zip(values.shape, whole)):
        raise OperatorError(f"{name}: values of shape {shape_text(lengths)} do not fit {shape_text(whole)}")
    values = b.cast(b.broadcast(values, shape=whole), dtype=dtype_of(arr))
    return _merged(b, arr, values, b.broadcast(places, shape=(count,)), axis)


def _declare_insert(form: str, doc: str, note: str, call: str, y: str) -> None:
    name = f"_npi_insert_{form}"

    def inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
        values = ("values",) if attrs["val"] is None else ()
        return ("arr", *values, "obj") if form == "tensor" else ("arr", *values)

    def expand(
        b: Emitter, arr: Any, values: Any = None, obj: Any = None, *, val: float | None, axis: int | None, **places: Any
    ) -> Any:
        arr, axis = _lined_up(b, arr, axis)
        n = arr.shape[axis]
        at = values if obj is None else obj  # they come in order
        values = values if val is None else scalar(b, val, dtype_of(arr))
        if form == "tensor":
            single, scalar_place = math.prod(at.shape) == 1, not at.shape
            at = b.cast(b.reshape(as_index(b, at), shape=(math.prod(at.shape),)), dtype=I64)
            at = b.select(at < 0, at + n, at)
            b.check_index(b.reshape(at, shape=(1, *at.shape)), sizes=(n + 1,), negative=False)
            return _inserted(b, name, arr, values, at, axis, single, scalar_place)
        if form == "scalar":
            index = places["int_ind"] or 0
            if not -n <= index <= n:
                raise OperatorError("Index should be in the range of [-r, r-1] where r is the dim size in 'axis'")
            at, single = np.array([index % n if index < 0 else index], np.int64), True
        else:
            at = np.arange(n, dtype=np.int64)[slice(places["start"], places["stop"], places["step"])]
            single = len(at) == 1
        return _inserted(b, name, arr, values, b.constant(at), axis, single, form == "scalar")

    expand.__doc__ = documented(
        doc, "arr (any), values (broadcast to what is inserted) -> arr's, longer along `axis`", note, f">>> {call}\n{y}"
    )
    attrs = {"val": optional(number(doc="what is inserted, instead of the input `values`"), None), **_PLACES}
    operator(name, inputs=inputs, attrs=attrs)(expand)


_X = "mx.np.array([1, 2, 3])"
for _form, _doc, _note, _call, _y in [
    ("scalar", "Inserts values in front of one place", "All values go there.",
     f"mx.np.insert({_X}, 1, 9)", "9., 2., 3."),
    ("slice", "Inserts values in front of each place of a slice", "As many values as places, or one.",
     f"mx.np.insert({_X}, slice(1, 2), 9)", "9., 2., 3."),
    ("tensor", "Inserts values in front of the places in a vector", "IndexError for a place that is none.",
     f'mx.np.insert({_X}, mx.np.array([1], dtype="int64"), 9)', "9., 2., 3."),
]:  # fmt: skip
    _declare_insert(_form, _doc, _note, f"{_call}.asnumpy()", f"array([1., {_y}], dtype=float32)")

_BY_VALUES = "the length of its result depends on the values of `obj`; give a number or a slice"


@operator(
    "_npi_delete",
    inputs=lambda attrs: (
        ("arr",) if any(attrs[k] is not None for k in ("start", "stop", "step", "int_ind")) else ("arr", "obj")
    ),
    attrs=_PLACES,
)
def delete(
    b: Emitter,
    arr: Any,
    obj: Any = None,
    *,
    start: int | None,
    stop: int | None,
    step: int | None,
    int_ind: int | None,
    axis: int | None,
) -> Any:
    """Removes the slices at a place, at those of a slice, or at those in a vector, which cannot be compiled

    Shapes: arr (any) -> the same, shorter along `axis`

    >>> mx.np.delete(mx.np.array([1, 2, 3]), 1).asnumpy()
    array([1., 3.], dtype=float32)
    """
    arr, axis = _lined_up(b, arr, axis)
    n = arr.shape[axis]
    if obj is not None:
        if not isinstance(obj, np.ndarray):
            raise UndecidedOperator(f"delete of places in an array cannot be compiled: {_BY_VALUES}")
        gone: Any = obj.astype(np.int64).reshape(-1)
    else:
        gone = np.array([int_ind]) if int_ind is not None else np.arange(n)[slice(start, stop, step)]
    for index in gone.tolist():
        if not -n <= index < n:
            raise OperatorError(f"index {index} is out of bounds for axis {axis} with size {n}")
    kept = np.delete(np.arange(n), gone)
    return b.gather(arr, b.constant(kept, I64), axis=axis)


# Percentiles and counts


class PercentileError(OperatorError, ValueError):
    """A percentage below 0 or above 100; a ValueError in MXNet."""


ERRORS["percentile"] = lambda *_: PercentileError("percentile exceeds the valid range")


def _between(b: Emitter, lines: Any, place: Any, how: str) -> Any:
    """The elements at fractional places (q,) of sorted lines (n, m): (q, n)."""
    n, m = lines.shape

    def at(k: Any) -> Any:
        return b.transpose(b.gather(lines, b.cast(k, dtype=I64), axis=1), perm=(1, 0))

    below, above = b.floor(place), b.minimum(b.ceil(place), b.constant(float(m - 1), F64))
    if how in ("lower", "higher", "nearest"):
        return at({"lower": below, "higher": above, "nearest": b.rint(place)}[how])
    share = place - below
    if how == "midpoint":
        share = b.select(b.eq(share, b.constant(0, F64)), share, b.constant(0.5, F64))
    share = b.cast(b.reshape(share, shape=(place.shape[0], 1)), dtype=dtype_of(lines))
    low, high = at(below), at(above)
    return low * (1 - share) + high * share


@operator(
    "_npi_percentile",
    inputs=lambda attrs: ("a", "q") if attrs["q_scalar"] is None else ("a",),
    attrs={
        "axis": optional(shape(doc="axes to reduce; None: all"), None),
        "interpolation": enum(
            ("higher", "linear", "lower", "midpoint", "nearest"), "linear", doc="what lies between two elements"
        ),
        "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
        "q_scalar": optional(number(doc="the percentage, instead of the input `q`"), None),
    },
    gradient=gradients.zero,
)
def percentile(
    b: Emitter, a: Any, q: Any = None, *, axis: Shape | None, interpolation: str, keepdims: bool, q_scalar: float | None
) -> Any:
    """The elements below which a percentage of all elements lies; float32 for integers

    Shapes: a (any), q (n,) or () -> q's shape, then a's without the reduced axes

    ValueError for a percentage below 0 or above 100. No gradient flows.

    >>> mx.np.percentile(mx.np.array([1, 2, 4]), 75).asnumpy().tolist()
    3.0
    """
    require_numeric("percentile", a)
    if q is None:
        lead: tuple[int, ...] = ()
        if not 0 <= (q_scalar or 0) <= 100:
            raise PercentileError("percentile exceeds the valid range")
        q = b.constant(np.array([q_scalar], np.float64))
    else:
        lead = tuple(q.shape)
        if len(lead) > 1:
            raise OperatorError(f"percentile: q has one axis at most, got {shape_text(lead)}")
        q = b.cast(b.reshape(q, shape=lead or (1,)), dtype=F64)
        outside = (q < 0) | (q > 100)
        require(b, ~outside, "percentile")
    old = tuple(a.shape)
    gone = reduced_axes(old, axis)
    kept = tuple(k for k in range(len(old)) if k not in gone)
    own = F64 if dtype_of(a) is F64 else F32
    count = math.prod(old[k] for k in gone)
    if not count:
        raise OperatorError("percentile of no elements")
    lines = b.reshape(b.transpose(a, perm=(*kept, *gone)), shape=(math.prod(old[k] for k in kept), count))
    lines = b.cast(b.sort(lines, axis=1, order=False), dtype=own)
    place = q / 100 * float(count - 1)
    y = _between(b, lines, place, interpolation)
    rest = tuple(1 if k in gone else n for k, n in enumerate(old)) if keepdims else tuple(old[k] for k in kept)
    return b.reshape(y, shape=(*lead, *rest))


@operator(
    "_npi_bincount",
    inputs=lambda attrs: ("data", "weights") if attrs["has_weights"] else ("data",),
    attrs={
        "minlength": integer(0, low=0, doc="the least length of the result"),
        "has_weights": boolean(False, doc="whether there are weights"),
    },
    gradient=gradients.zero,
    imperative_only="the length of its result depends on the values; count with one_hot and sum, for a known length",
)
def bincount(b: Emitter, data: Any, weights: Any = None, *, minlength: int, has_weights: bool) -> Any:
    """How often each whole number from 0 on occurs, or the sum of its weights

    Shapes: data (n,), weights (n,) -> (max(data) + 1,), or `minlength` if that is more

    Counts have the type of the data, sums that of the weights. MXNetError in a trace, as the length depends on values.

    >>> mx.np.bincount(mx.np.array([0, 1, 1], dtype="int32")).asnumpy()
    array([1, 2], dtype=int32)
    """
    if not dtype_of(data).is_integer:
        raise OperatorError("Input data should be int type")
    if not isinstance(data, np.ndarray):
        raise OperatorError(f"bincount cannot be compiled: {bincount.imperative_only}")
    if data.size and data.min() < 0:
        raise OperatorError("input should be nonnegative number")
    found = np.bincount(data.astype(np.int64), weights, minlength)
    return found.astype((data if weights is None else weights).dtype)


@operator("_npi_polyval", inputs=("p", "x"))
def polyval(b: Emitter, p: Any, x: Any) -> Any:
    """The polynomial with the coefficients p, the highest power first, at each x

    Shapes: p (n,), x (any) -> x's shape

    >>> mx.np.polyval(mx.np.array([1, 2, 3]), mx.np.array([0, 10])).asnumpy()
    array([  3., 123.], dtype=float32)
    """
    require_same_dtype(p, x)
    if len(p.shape) != 1:
        raise OperatorError("p has to be an 1-D array.")
    y = b.broadcast(scalar(b, 0, dtype_of(x)), shape=tuple(x.shape))
    for k in range(p.shape[0]):
        y = y * x + b.reshape(part(b, p, 0, k, k + 1), shape=())
    return y


# Turned arrays


@operator(
    "_npi_rot90",
    attrs={
        "k": integer(1, doc="how many quarter turns"),
        "axes": optional(shape(doc="the axes of the plane; None: (0, 1)"), None),
    },
)
def rot90(b: Emitter, data: Any, *, k: int, axes: Shape | None) -> Any:
    """Turns the plane of two axes by quarters, from the first towards the second

    Shapes: data (any of two axes or more) -> the same, or with these axes exchanged

    >>> mx.np.rot90(mx.np.array([[1, 2], [3, 4]])).asnumpy()
    array([[2., 4.],
           [1., 3.]], dtype=float32)
    """
    rank = len(data.shape)
    if axes is not None and len(axes) != 2:
        raise OperatorError("The length of axes must be 2")
    first, second = (axis_in(axis, rank) for axis in axes or (0, 1))
    if first == second:
        raise OperatorError(f"axes have duplicates [{first},{second}]")
    k %= 4
    perm = list(range(rank))
    perm[first], perm[second] = second, first
    if k == 2:
        return b.reverse(data, axes=tuple(sorted((first, second))))
    if k == 1:
        return b.transpose(b.reverse(data, axes=(second,)), perm=tuple(perm))
    return b.reverse(b.transpose(data, perm=tuple(perm)), axes=(second,)) if k == 3 else data


@operator("_npi_diag_indices_from", gradient=gradients.zero)
def diag_indices_from(b: Emitter, data: Any) -> Any:
    """The indices of the main diagonal: a row for each axis, as int64

    Shapes: data (n, …, n) -> (axes, n)

    >>> [rows.asnumpy().tolist() for rows in mx.np.diag_indices_from(mx.np.zeros((2, 2)))]
    [[0, 1], [0, 1]]
    """
    rank = len(data.shape)
    if rank < 2:
        raise OperatorError("input array should be at least 2-d")
    if len({*data.shape}) > 1:
        raise OperatorError("All dimensions of input must be of equal length")
    return b.iota(shape=(rank, data.shape[0]), axis=1, dtype=I64)
