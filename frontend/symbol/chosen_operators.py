"""Functions of `mx.sym` that are not operators themselves: they choose an operator, or complete its arguments.

While tracing they accept the arguments of the functions of `mx.nd` with the same name, including a context.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from gluonjit.base import dtype_name, integer_types
from gluonjit.context import Context
from gluonjit.language.running import current_trace
from gluonjit.operators import registry
from gluonjit.operators.control.custom import custom
from gluonjit.operators.control.custom_classes import arranged, divided
from gluonjit.symbol.compose import make_node
from gluonjit.symbol.symbol import Symbol, invoke

__all__ = [
    "Custom",
    "arange",
    "eye",
    "full",
    "histogram",
    "hypot",
    "linspace",
    "maximum",
    "minimum",
    "ones",
    "pow",
    "power",
    "split_v2",
    "zeros",
]


def _binary(what: str, left: Any, right: Any, numbers: Callable[[Any, Any], Any]) -> Any:
    """`what` of two symbols, of symbol and number in either order, or of two numbers."""
    trace = current_trace()
    if trace is not None:  # an array from outside may be either
        left, right = trace.adopt(left), trace.adopt(right)
    if isinstance(left, Symbol):
        return left._arithmetic(what, right)
    if isinstance(right, Symbol) and isinstance(left, Number):
        return right._arithmetic(what, left, reverse=True)
    if isinstance(left, Number) and isinstance(right, Number):
        return numbers(left, right)
    raise TypeError(f"types ({type(left)}, {type(right)}) not supported")


def pow(base: Any, exp: Any) -> Any:
    """`base ** exp`, each a symbol or a number.

    >>> mx.sym.pow(mx.sym.var("x"), 2).eval(x=mx.nd.array([1, 3]))[0].asnumpy()
    array([1., 9.], dtype=float32)
    """
    return _binary("power", base, exp, lambda a, b: a**b)


power = pow


def maximum(left: Any, right: Any) -> Any:
    """The larger one, elementwise; each a symbol or a number.

    >>> mx.sym.maximum(mx.sym.var("x"), 2).eval(x=mx.nd.array([1, 3]))[0].asnumpy()
    array([2., 3.], dtype=float32)
    """
    return _binary("maximum", left, right, max)


def minimum(left: Any, right: Any) -> Any:
    """The smaller one, elementwise; each a symbol or a number.

    >>> mx.sym.minimum(mx.sym.var("x"), 2).eval(x=mx.nd.array([1, 3]))[0].asnumpy()
    array([1., 2.], dtype=float32)
    """
    return _binary("minimum", left, right, min)


def hypot(left: Any, right: Any) -> Any:
    """`sqrt(left² + right²)`, elementwise; each a symbol or a number.

    >>> mx.sym.hypot(mx.sym.var("x"), 12).eval(x=mx.nd.array([5, 9]))[0].asnumpy()
    array([13., 15.], dtype=float32)
    """
    return _binary("hypot", left, right, np.hypot)


def _create(op: str, attrs: dict[str, Any], place: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """Runs an operator without inputs. `place` are positional arguments: a dtype, or (as in `mx.nd`) context, dtype."""
    name, attr, out = more.pop("name", None), more.pop("attr", None), more.pop("out", None)
    given = list(place)
    if given and (isinstance(given[0], Context) or len(given) > 1):
        more["ctx"] = given.pop(0)
    if given:
        more["dtype"] = given.pop(0)
    if given:
        raise TypeError(f"{op} got {len(place)} arguments after its own, which is too many")
    dtype = more.pop("dtype", None)
    attrs["dtype"] = "float32" if dtype is None else dtype_name(dtype)
    if more.get("ctx") is None:
        more.pop("ctx", None)
    attrs.update((key, str(value) if key == "ctx" else value) for key, value in more.items())
    return invoke(registry.get(op), (), attrs, out, name, attr, op)


def zeros(shape: Any, *place: Any, **kwargs: Any) -> Any:
    """`zeros(shape, dtype=None)`: filled with 0; float32 unless told otherwise.

    >>> mx.sym.zeros((2, 3)).eval()[0].asnumpy()
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    return _create("_zeros", {"shape": shape}, place, kwargs)


def ones(shape: Any, *place: Any, **kwargs: Any) -> Any:
    """`ones(shape, dtype=None)`: filled with 1.

    >>> mx.sym.ones((2, 3)).eval()[0].asnumpy()
    array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """
    return _create("_ones", {"shape": shape}, place, kwargs)


def full(shape: Any, val: float, *place: Any, **kwargs: Any) -> Any:
    """`full(shape, val, dtype=None)`: filled with `val`.

    >>> mx.sym.full((2, 2), 7).eval()[0].asnumpy()
    array([[7., 7.],
           [7., 7.]], dtype=float32)
    """
    return _create("_full", {"shape": shape, "value": float(val)}, place, kwargs)


def eye(N: int, M: int = 0, k: int = 0, *place: Any, **kwargs: Any) -> Any:
    """`eye(N, M=0, k=0, dtype=None)`: N x M (0: N x N) with ones on the k-th diagonal.

    >>> mx.sym.eye(2).eval()[0].asnumpy()
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return _create("_eye", {"N": N, "M": M, "k": k}, place, kwargs)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    name: str | None = None,
    dtype: Any = None,
    ctx: Any = None,
) -> Any:
    """start, start + step, … below stop, each `repeat` times; one number alone is `stop`.

    With `infer_range` a single argument is `start`, and the users of the result determine the number of elements. As
    in MXNet, this holds for graphs only: `nd.arange` and hybridized blocks ignore it.

    >>> mx.sym.arange(2, 5).eval()[0].asnumpy()
    array([2., 3., 4.], dtype=float32)
    """
    infer_range = bool(infer_range) and current_trace() is None
    attrs = {"start": start, "stop": stop, "step": step, "repeat": repeat, "infer_range": infer_range}
    return _create("_arange", attrs, (), {"name": name, "dtype": dtype, "ctx": ctx})


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    name: str | None = None,
    dtype: Any = None,
    ctx: Any = None,
) -> Any:
    """`num` numbers from start to stop in equal steps; without the last one unless `endpoint`.

    >>> mx.sym.linspace(0, 1, 5).eval()[0].asnumpy()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    attrs = {"start": start, "stop": stop, "num": num, "endpoint": endpoint}
    return _create("_linspace", attrs, (), {"name": name, "dtype": dtype, "ctx": ctx})


def split_v2(ary: Symbol, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False) -> Any:
    """Parts along an axis: a number of equal ones, or cut before each of a tuple of indices.

    >>> parts = mx.sym.split_v2(mx.sym.var("x"), 2)
    >>> [part.asnumpy().tolist() for part in parts.eval(x=mx.nd.array([1, 2, 3, 4]))]
    [[1.0, 2.0], [3.0, 4.0]]
    """
    attrs: dict[str, Any] = {"axis": axis, "squeeze_axis": squeeze_axis}
    if isinstance(indices_or_sections, integer_types):
        attrs.update(indices=(), sections=indices_or_sections)
    elif isinstance(indices_or_sections, tuple):
        attrs.update(indices=(0, *indices_or_sections), sections=0)
    else:
        raise ValueError("indices_or_sections must either int or tuple of ints")
    return invoke(registry.get("_split_v2"), (ary,), attrs, hint="_split_v2")


def histogram(a: Symbol, bins: Any = 10, range: Any = None, name: str | None = None) -> Any:
    """Counts of the elements in each bin, and the bins' edges: a number of bins in a range, or given by a symbol.

    >>> counts = mx.sym.histogram(mx.sym.var("x"), bins=2, range=(0, 4))[0]
    >>> counts.eval(x=mx.nd.array([0, 1, 1, 4]))[0].asnumpy().tolist()
    [3, 1]
    """
    if isinstance(bins, integer_types):
        if range is None:
            raise ValueError("null range is not supported in symbol mode")
        attrs = {"bin_cnt": bins, "range": range}
        return invoke(registry.get("_histogram"), (a,), attrs, hint="_histogram", name=name)
    trace = current_trace()
    if trace is not None:
        bins = trace.adopt(bins)
    if not isinstance(bins, Symbol):
        raise ValueError("bins argument should be either an integer or an NDArray")
    return invoke(registry.get("_histogram"), (a, bins), {}, hint="_histogram", name=name)


def Custom(*data: Any, op_type: str, name: str | None = None, attr: Any = None, out: Any = None, **kwargs: Any) -> Any:
    """An operator that a user wrote in Python, registered as `op_type`; inputs by position or by its names for them.

    >>> class Double(mx.operator.CustomOp):
    ...     def forward(self, is_train, req, in_data, out_data, aux):
    ...         self.assign(out_data[0], req[0], in_data[0] * 2)
    >>> @mx.operator.register("drawn_double")
    ... class DoubleProp(mx.operator.CustomOpProp):
    ...     def create_operator(self, ctx, shapes, dtypes):
    ...         return Double()
    >>> y = mx.sym.Custom(mx.sym.var("x"), op_type="drawn_double")
    >>> y.eval(x=mx.nd.array([1, 2]))[0].asnumpy()
    array([2., 4.], dtype=float32)
    """
    trace = current_trace()
    named, attrs = divided(kwargs)
    raw = {"op_type": op_type, **attrs}
    names = custom.input_names(custom.parse(raw))
    if trace is not None and trace.concerns([*data, *named.values()]):
        return trace.invoke(custom, arranged(data, named, op_type, names), raw, out=out, name=name, hint="custom")
    given = {**dict(zip(names, data)), **named}
    entries = {key: value._entry(key) for key, value in given.items()}
    node = make_node(custom, entries, raw, name=name, attr=attr, hint="custom")
    return Symbol([(node, k) for k in range(node.visible)])
