"""Reductions of `mx.np`: a reduction over all axes has rank 0, and positions are int64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, F32, F64, I64, DType, dtype_of
from gluonjit.operators.attributes import boolean, dtype, integer, number, optional, shape
from gluonjit.operators.documentation import documented, example
from gluonjit.operators.reductions.reduction import norm_gradient, reduced_axes, require_elements
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import along, axis_in, convert, mean, widened

_AXES = {
    "axis": optional(shape(doc="axes to reduce; None: all")),
    "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
}
_INITIAL = {"initial": optional(number(doc="must be None"), None)}
_TYPES = ("float16", "float32", "float64", "int32", "int64", "int8")


def _gone(x: Any, axis: Shape | None) -> tuple[int, ...]:
    """The axes that are reduced; () reduces none."""
    return () if axis == () else reduced_axes(x.shape, axis)


def _reduced(b: Emitter, x: Any, op: str, gone: tuple[int, ...], keepdims: bool) -> Any:
    y = b.reduce(x, op=op, axes=gone) if gone else x
    return b.reshape(y, shape=tuple(1 if k in gone else n for k, n in enumerate(x.shape))) if keepdims else y


def _refuse(initial: float | None) -> None:
    if initial is not None:
        raise OperatorError("initial is not supported yet")


@operator(
    "_np_prod",
    aliases=("_np_product",),
    inputs=("a",),
    attrs={
        **_AXES,
        "dtype": optional(dtype(among=("bool", *_TYPES), doc="the element type of the result; None: the data's")),
        **_INITIAL,
    },
)
def prod(b: Emitter, a: Any, *, axis: Shape | None, keepdims: bool, dtype: DType | None, initial: float | None) -> Any:
    """The product over axes; bool counts as int64

    Shapes: a (any) -> a's without the reduced axes

    The product of no elements is 1, as in NumPy (0 in MXNet).

    >>> mx.np.prod(mx.np.array([[1, 2], [3, 4]]), axis=1).asnumpy()
    array([ 2., 12.], dtype=float32)
    """
    _refuse(initial)
    own = dtype or (I64 if dtype_of(a) is BOOL else dtype_of(a))
    wide = a if dtype_of(a) is own or dtype_of(a).is_float and not own.is_float else convert(b, a, own)
    y = _reduced(b, wide, "prod", _gone(a, axis), keepdims)
    return y if dtype_of(y) is own else convert(b, y, own)


REDUCED = "a (any) -> a's without the reduced axes"


def _declare_extreme(name: str, doc: str, y: str) -> None:
    """`y`: the results for (1, 2) and (3, 4)."""

    def expand(b: Emitter, a: Any, *, axis: Shape | None, keepdims: bool, initial: float | None) -> Any:
        _refuse(initial)
        gone = _gone(a, axis)
        require_elements(name, a.shape, gone)
        op = {"max": "any", "min": "all"}[name] if dtype_of(a) is BOOL else name
        return _reduced(b, a, op, gone, keepdims)

    expand.__doc__ = documented(
        doc,
        REDUCED,
        "MXNetError for an axis of length 0.",
        example(f"mx.np.{name}({_MATRIX}, axis=1)", y),
    )

    operator(f"_np_{name}", aliases=(f"_np_a{name}",), inputs=("a",), attrs={**_AXES, **_INITIAL})(expand)


_MATRIX = "mx.np.array([[1, 2], [3, 4]])"
_declare_extreme("max", "The largest element over axes; NaN when there is one", "[2., 4.]")
_declare_extreme("min", "The smallest element over axes; NaN when there is one", "[1., 3.]")


def _declare_logical(name: str, doc: str, answers: str, aliases: tuple[str, ...]) -> None:
    """`answers`: for (0, 1) and (1, 1)."""

    def expand(b: Emitter, data: Any, *, axis: Shape | None, keepdims: bool) -> Any:
        return _reduced(b, b.cast(data, dtype=BOOL), name, _gone(data, axis), keepdims)

    call = f">>> mx.np.{name}(mx.np.array([[0, 1], [1, 1]]), axis=1).asnumpy()\narray({answers})"

    expand.__doc__ = documented(doc, "data (any) -> data's without the reduced axes, of bool", call)
    operator(f"_np_{name}", aliases=aliases, attrs=_AXES)(expand)


_declare_logical("any", "Whether any element over the axes is not 0, as bool", "[ True,  True]", ("_np_sometrue",))
_declare_logical("all", "Whether all elements over the axes are not 0, as bool", "[False,  True]", ())


def _distances(b: Emitter, x: Any, gone: tuple[int, ...]) -> tuple[Any, int]:
    """`x` minus its mean over axes, and the number of elements of each mean."""
    count = math.prod(x.shape[k] for k in gone)
    kept = tuple(1 if k in gone else n for k, n in enumerate(x.shape))
    return x - b.reshape(mean(b, x, gone), shape=kept), count


def _declare_spread(name: str, doc: str, y: str, finish: Callable[[Emitter, Any], Any], gradient: Any = None) -> None:
    def expand(b: Emitter, a: Any, *, axis: Shape | None, keepdims: bool, dtype: DType | None, ddof: int) -> Any:
        own = dtype or dtype_of(a)
        x = widened(b, a) if dtype_of(a).is_float else b.cast(a, dtype=F64 if dtype_of(a) is I64 else F32)
        if own is F64:
            x = b.cast(x, dtype=F64)
        gone = _gone(a, axis)
        distance, count = _distances(b, x, gone)
        total = _reduced(b, distance * distance, "sum", gone, keepdims)
        y = finish(b, total / (count - ddof))
        return y if dtype_of(y) is own else convert(b, y, own)

    expand.__doc__ = documented(
        doc,
        REDUCED,
        "The mean of integers is not rounded (MXNet rounds it).",
        example(f"mx.np.{name}(mx.np.array([[1, 3], [2, 8]]), axis=1)", y),
    )

    attrs = {
        **_AXES,
        "dtype": optional(dtype(among=_TYPES, doc="the element type of the result; None: the data's")),
        "ddof": integer(0, doc="what is subtracted from n in the divisor"),
    }
    outputs: Any = {"outputs": lambda a: (name, "mean"), "visible": lambda a: 1}
    operator(f"_npi_{name}", inputs=("a",), attrs=attrs, gradient=gradient, **outputs)(expand)


def _std_gradient(b: Emitter, g: Any, y: Any, x: Any, *, axis: Shape | None, ddof: int, **_attrs: Any) -> Any:
    """The gradient of the norm of the distances, which is 0 where all elements are equal."""
    own, result = dtype_of(x[0]), dtype_of(y[0])
    if not own.is_float or not result.is_float:
        return None
    gone = _gone(x[0], axis)
    wide = F64 if result is F64 else dtype_of(widened(b, x[0]))
    distance, count = _distances(b, b.cast(x[0], dtype=wide), gone)
    each = b.cast(g[0], dtype=wide) / (count - ddof)
    return (convert(b, norm_gradient(b, distance, y[0], each, gone), own),)


_declare_spread(
    "var",
    "The variance over axes: the sum of squared distances to the mean, divided by n - ddof",
    "[1., 9.]",
    lambda b, x: x,
)
_declare_spread(
    "std",
    "The standard deviation over axes: the square root of `np.var`",
    "[1., 3.]",
    lambda b, x: b.sqrt(x),
    _std_gradient,
)


def _declare_position(name: str, doc: str, answers: str) -> None:
    """`answers`: for (1, 5, 2) and (7, 0, 7)."""

    def expand(b: Emitter, data: Any, *, axis: int | None, keepdims: bool) -> Any:
        old = tuple(data.shape)
        x = b.cast(data, dtype=F32) if dtype_of(data) is BOOL else data
        require_elements(name, old, range(len(old)) if axis is None else (axis_in(axis, len(old)),))
        if axis is None:
            y = b.arg_reduce(b.reshape(x, shape=(math.prod(old),)), op=name, axis=0)
            kept = (1,) * len(old)
        else:
            axis = axis_in(axis, len(old))
            y = b.arg_reduce(x, op=name, axis=axis)
            kept = (*old[:axis], 1, *old[axis + 1 :])
        y = b.cast(y, dtype=I64)
        return b.reshape(y, shape=kept) if keepdims else y

    call = f">>> mx.np.{name}(mx.np.array([[1, 5, 2], [7, 0, 7]]), axis=1).asnumpy().tolist()\n{answers}"

    refused = "MXNetError for an axis of length 0."
    expand.__doc__ = documented(doc, "data (any) -> data's without `axis`; () if `axis` is None", refused, call)
    attrs = {
        "axis": optional(integer(doc="the axis along which to search; None: in the flattened data"), None),
        "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
    }
    operator(f"_npi_{name}", attrs=attrs)(expand)


_declare_position(
    "argmax", "The index of the first largest element along the axis or in the flattened tensor, as int64", "[1, 0]"
)
_declare_position(
    "argmin", "The index of the first smallest element along the axis or in the flattened tensor, as int64", "[0, 1]"
)


# Means and norms


@operator(
    "_npi_average",
    inputs=lambda attrs: ("a", "weights") if attrs["weighted"] else ("a",),
    attrs={
        "axis": optional(shape(doc="axes to reduce; None: all"), None),
        "returned": boolean(False, doc="whether the sums of the weights are a result, too"),
        "weighted": boolean(True, doc="whether there is an input `weights`"),
    },
    outputs=lambda attrs: ("output0", "output1"),
    visible=lambda attrs: 1 + attrs["returned"],
)
def average(b: Emitter, a: Any, weights: Any = None, *, axis: Shape | None, returned: bool, weighted: bool) -> Any:
    """The weighted mean over axes, and the sums of the weights

    Shapes: a (any), weights (a's, or a vector along a single axis) -> a's without the reduced axes, twice

    Both results have the data's type.

    >>> mx.np.average(mx.np.array([[1, 2], [3, 4]]), axis=1, weights=mx.np.array([3, 1])).asnumpy()
    array([1.25, 3.25], dtype=float32)
    """
    own, gone = dtype_of(a), _gone(a, axis)
    work = own if own.is_float else F64
    x = a if own is work else b.cast(a, dtype=work)
    if weights is not None:
        weights = weights if dtype_of(weights) is work else b.cast(weights, dtype=work)
        if len(weights.shape) == 1 and len(gone) == 1:
            weights = b.reshape(weights, shape=along(gone[0], len(a.shape), weights.shape[0]))
    weighed = b.broadcast(b.constant(1, work) if weights is None else weights, shape=tuple(a.shape))
    total = _reduced(b, weighed, "sum", gone, False)
    if weights is None:
        result = mean(b, x, gone)
    else:
        result = _reduced(b, x * weighed, "sum", gone, False) / total
    return (result, total) if own is work else (convert(b, result, own), convert(b, total, own))


def _norm_gradient(b: Emitter, g: Any, y: Any, x: Any, *, ord: float, axis: Shape | None, **_attrs: Any) -> Any:
    if ord != 2 or not dtype_of(x[0]).is_float:
        return None
    return (norm_gradient(b, x[0], y[0], g[0], _gone(x[0], axis)),)


@operator(
    "_npi_norm",
    gradient=_norm_gradient,
    attrs={
        "ord": number(2.0, doc="1 or 2"),
        **_AXES,
        "flag": integer(-1, doc="which kind: -2 and 1 root of squares, -1 of vectors"),
    },
)
def norm(b: Emitter, data: Any, *, ord: float, axis: Shape | None, keepdims: bool, flag: int) -> Any:
    """sum(|x|) for ord 1, sqrt(sum(x * x)) for ord 2, over axes

    Shapes: data (any) -> data's without the reduced axes

    MXNetError for another order.

    >>> mx.np.linalg.norm(mx.np.array([[3, 4], [6, 8]]), axis=1).asnumpy()
    array([ 5., 10.], dtype=float32)
    """
    own = dtype_of(data)
    if flag not in (-2, -1, 1) or ord not in (1, 2):
        raise OperatorError(f"norm of order {ord:g} (flag {flag}) is not built: only sums of magnitudes and of squares")
    gone = _gone(data, axis)
    if ord == 1:
        return _reduced(b, abs(data), "sum", gone, keepdims)
    # Squares may overflow although their root does not.
    x = b.cast(data, dtype=F64)
    return convert(b, b.sqrt(_reduced(b, x * x, "sum", gone, keepdims)), own)
