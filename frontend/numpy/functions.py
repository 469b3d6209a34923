"""The functions of `mx.np`, for arrays and symbols; tables map each to its operator.

    functions(symbolic)["sum"](x, axis=1)

A function computes or appends a node, depending on its operands; without operands (`zeros`), on `symbolic` and on
whether a trace is running. NumPy computes functions of numbers alone: `np.exp(2.0)` is a number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.numpy import composed, filled_arrays, sequence_functions
from gluonjit.numpy.dispatch import apply, is_number
from gluonjit.operators.registry import get

Function = Callable[..., Any]

UNARY = {
    **{
        name: f"_npi_{name}"
        for name in (
            "abs absolute sign negative square floor ceil rint trunc fix reciprocal sqrt cbrt exp expm1 log log2 log10 "
            "log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees radians isnan isinf "
            "isfinite isposinf isneginf logical_not bitwise_not"
        ).split()
    },
    "deg2rad": "_npi_radians",
    "rad2deg": "_npi_degrees",
    "invert": "_npi_bitwise_not",
    "fabs": "_npi_abs",
}
"""Functions of one array."""

# name: (of two arrays, of array and number, of number and array, NumPy's name)
BINARY = {
    "add": ("_npi_add", "_npi_add_scalar", "_npi_add_scalar", "add"),
    "subtract": ("_npi_subtract", "_npi_subtract_scalar", "_npi_rsubtract_scalar", "subtract"),
    "multiply": ("_npi_multiply", "_npi_multiply_scalar", "_npi_multiply_scalar", "multiply"),
    "divide": ("_npi_true_divide", "_npi_true_divide_scalar", "_npi_rtrue_divide_scalar", "divide"),
    "true_divide": ("_npi_true_divide", "_npi_true_divide_scalar", "_npi_rtrue_divide_scalar", "divide"),
    "mod": ("_npi_mod", "_npi_mod_scalar", "_npi_rmod_scalar", "mod"),
    "remainder": ("_npi_mod", "_npi_mod_scalar", "_npi_rmod_scalar", "mod"),
    "power": ("_npi_power", "_npi_power_scalar", "_npi_rpower_scalar", "power"),
    "maximum": ("_npi_maximum", "_npi_maximum_scalar", "_npi_maximum_scalar", "maximum"),
    "minimum": ("_npi_minimum", "_npi_minimum_scalar", "_npi_minimum_scalar", "minimum"),
    "hypot": ("_npi_hypot", "_npi_hypot_scalar", "_npi_hypot_scalar", "hypot"),
    "arctan2": ("_npi_arctan2", "_npi_arctan2_scalar", "_npi_rarctan2_scalar", "arctan2"),
    "equal": ("_npi_equal", "_npi_equal_scalar", "_npi_equal_scalar", "equal"),
    "not_equal": ("_npi_not_equal", "_npi_not_equal_scalar", "_npi_not_equal_scalar", "not_equal"),
    "greater": ("_npi_greater", "_npi_greater_scalar", "_npi_less_scalar", "greater"),
    "greater_equal": ("_npi_greater_equal", "_npi_greater_equal_scalar", "_npi_less_equal_scalar", "greater_equal"),
    "less": ("_npi_less", "_npi_less_scalar", "_npi_greater_scalar", "less"),
    "less_equal": ("_npi_less_equal", "_npi_less_equal_scalar", "_npi_greater_equal_scalar", "less_equal"),
    "copysign": ("_npi_copysign", "_npi_copysign_scalar", "_npi_rcopysign_scalar", "copysign"),
    "ldexp": ("_npi_ldexp", "_npi_ldexp_scalar", "_npi_rldexp_scalar", "ldexp"),
    "lcm": ("_npi_lcm", "_npi_lcm_scalar", "_npi_lcm_scalar", "lcm"),
    **{
        f"bitwise_{name}": (f"_npi_bitwise_{name}", *[f"_npi_bitwise_{name}_scalar"] * 2, f"bitwise_{name}")
        for name in ("and", "or", "xor")
    },
}
"""Functions of two arrays, or of an array and a number."""

CALLS = """
    sum          _np_sum           a, axis=None, dtype=None, out=None, keepdims=False, initial=None
    mean         _npi_mean         a, axis=None, dtype=None, out=None, keepdims=False
    prod         _np_prod          a, axis=None, dtype=None, out=None, keepdims=False, initial=None
    product      _np_prod          a, axis=None, dtype=None, out=None, keepdims=False, initial=None
    max          _np_max           a, axis=None, out=None, keepdims=False, initial=None
    amax         _np_max           a, axis=None, out=None, keepdims=False, initial=None
    min          _np_min           a, axis=None, out=None, keepdims=False, initial=None
    amin         _np_min           a, axis=None, out=None, keepdims=False, initial=None
    any          _np_any           a, axis=None, out=None, keepdims=False
    sometrue     _np_any           a, axis=None, out=None, keepdims=False
    all          _np_all           a, axis=None, out=None, keepdims=False
    std          _npi_std          a, axis=None, dtype=None, out=None, ddof=0, keepdims=False
    var          _npi_var          a, axis=None, dtype=None, out=None, ddof=0, keepdims=False
    argmax       _npi_argmax       a, axis=None, out=None
    argmin       _npi_argmin       a, axis=None, out=None
    cumsum       _np_cumsum        a, axis=None, dtype=None, out=None
    sort         _npi_sort         a, axis=-1, kind, order
    around       _npi_around       x, decimals=0, out=None
    round        _npi_around       x, decimals=0, out=None
    round_       _npi_around       x, decimals=0, out=None
    copy         _np_copy          a, out=None
    reshape      _np_reshape       a, newshape!, order=C
    transpose    _np_transpose     a, axes=None
    swapaxes     _npi_swapaxes     a, axis1:dim1!, axis2:dim2!
    moveaxis     _np_moveaxis      a, source!, destination!
    expand_dims  _npi_expand_dims  a, axis!
    squeeze      _np_squeeze       x, axis=None
    broadcast_to _npi_broadcast_to array, shape!
    repeat       _np_repeat        a, repeats!, axis=None
    tile         _npi_tile         A, reps!
    roll         _np_roll          a, shift!, axis=None
    diag         _np_diag          v, k=0
    diagonal     _np_diagonal      a, offset=0, axis1=0, axis2=1
    trace        _np_trace         a, offset=0, axis1=0, axis2=1
    rot90        _npi_rot90        m, k=1, axes=None
    tril         _npi_tril         m, k=0
    dot          _np_dot           a, b, out=None
    matmul       _npi_matmul       a, b, out=None
"""
"""Functions whose parameters are the operator's inputs and attributes. `:` is followed by the attribute's name if that
differs, `!` marks a parameter without a default; parameters that are neither inputs nor attributes have no effect."""


def functions(symbolic: bool) -> dict[str, Function]:
    """All functions, by name, in the flavour of `mx.sym.np` or of `mx.np`."""
    made = {name: _unary(name, op) for name, op in UNARY.items()}
    made |= {name: _binary(name, *ops) for name, ops in BINARY.items()}
    for line in CALLS.strip().splitlines():
        name, op, parameters = line.split(None, 2)
        made[name] = _call(name, op, [p.strip() for p in parameters.split(",")])
    return made | composed.FUNCTIONS | sequence_functions.FUNCTIONS | filled_arrays.functions(symbolic)


def _unary(name: str, op: str) -> Function:
    numbers = getattr(np, name)

    def function(x: Any, out: Any = None, **kwargs: Any) -> Any:
        _default_options(name, kwargs)
        return numbers(x) if is_number(x) else apply(op, (x,), out=out)

    return _described(function, name, get(op).doc)


def _binary(name: str, both: str, right: str, left: str, numbers: str) -> Function:
    of_numbers = getattr(np, numbers)

    def function(x1: Any, x2: Any, out: Any = None, **kwargs: Any) -> Any:
        _default_options(name, kwargs)
        if is_number(x1):
            return of_numbers(x1, x2) if is_number(x2) else apply(left, (x2,), {"scalar": float(x1)}, out)
        if is_number(x2):
            return apply(right, (x1,), {"scalar": float(x2)}, out)
        return apply(both, (x1, x2), out=out)

    return _described(function, name, get(both).doc)


_OPTIONS: dict[str, Any] = {"where": True, "casting": "same_kind", "order": "K", "dtype": None, "subok": True}


def _default_options(name: str, kwargs: dict[str, Any]) -> None:
    """Raises an error for options of NumPy's elementwise functions that are not at their defaults."""
    for key, value in kwargs.items():
        if key not in _OPTIONS:
            raise TypeError(f"{key} is an invalid keyword to function '{name}'")
        if value != _OPTIONS[key]:
            raise NotImplementedError(f"{key}={value} is not implemented yet for operator {name}")


def _call(name: str, op: str, parameters: list[str]) -> Function:
    operands = len(get(op).inputs)  # type: ignore[arg-type]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given, attrs = [], {}
    for k, text in enumerate(parameters):
        text, equals, default = text.partition("=")
        shown, _, attr = text.rstrip("!").partition(":")
        needed = k < operands or text.endswith("!")
        value = _value(default) if equals else inspect.Parameter.empty if needed else None
        given.append(inspect.Parameter(shown, kind, default=value))
        if k >= operands and (equals or needed) and shown not in ("out", "order"):
            attrs[shown] = attr or shown
    names = [p.name for p in given]
    required = {p.name for p in given if p.default is inspect.Parameter.empty}

    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(names):
            raise TypeError(f"{name}() takes {len(names)} positional arguments, but {len(args)} were given")
        said = dict(zip(names, args))
        for key in kwargs:
            if key in said or key not in names:
                what = "multiple values for" if key in said else "an unexpected keyword"
                raise TypeError(f"{name}() got {what} argument {key!r}")
        said.update(kwargs)
        if not required <= said.keys():
            raise TypeError(f"{name}() needs the arguments {', '.join(n for n in names if n in required)}")
        raw = {attrs[key]: value for key, value in said.items() if key in attrs}
        return apply(op, [said[key] for key in names[:operands]], raw, said.get("out"))

    function.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    return _described(function, name, get(op).doc)


def _value(text: str) -> Any:
    return (
        {"None": None, "True": True, "False": False}.get(text, float(text) if "." in text else text)
        if not (text.lstrip("-").isdigit())
        else int(text)
    )


def _described(function: Function, name: str, doc: str) -> Function:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "gluonjit.numpy"
    function.__doc__ = doc
    return function
