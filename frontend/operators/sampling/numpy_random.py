"""Random operators of `mx.np`: a parameter is a number or a tensor, and `size` is the shape of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, F64, I64, DType
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, dtype, integer, number, optional, shape
from gluonjit.operators.documentation import documented
from gluonjit.operators.movement.creation import CTX
from gluonjit.operators.reductions.histogram import bin_of
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.sampling import random_draws as draws
from gluonjit.operators.sampling.random_ops import working_type
from gluonjit.operators.support import convert, shape_text

_FLOATS = ("float16", "float32", "float64")


def _broadcast(shapes: list[Shape], size: Shape | None) -> Shape:
    """The shape of the result: `size`, or what the parameters broadcast to."""
    rank = max(map(len, shapes), default=0)
    columns = zip(*((1,) * (rank - len(s)) + s for s in shapes))
    own = tuple(next((n for n in column if n != 1), 1) for column in columns)
    if size is None:
        return own
    if len(own) > len(size) or any(m not in (1, n) for m, n in zip(own[::-1], size[::-1])):
        raise OperatorError(f"size {shape_text(size)} does not fit parameters of shape {shape_text(own)}")
    return tuple(size)


def _declare(
    name: str,
    doc: str,
    note: str,
    parameters: tuple[str, ...],
    draw: Callable[..., Any],
    trailing: bool = False,
    *,
    streams: int = 1,
    typed: bool = True,
    positive: str = "",
    default: float | None = None,
    public: str = "",
) -> None:
    """`trailing`: the variant `_n`, whose result has the shape `size` followed by the shape of the parameters. `typed`:
    whether there is an attribute for the element type. `positive`: what must not be negative, with the least number
    if it must not be 0 either. `default`: of the last parameter. `public`: its name in `np.random`, if it differs."""

    def tensors(attrs: Mapping[str, Any]) -> tuple[str, ...]:
        missing = sum(attrs[p] is None for p in parameters)
        return tuple(f"input{k + 1}" for k in range(missing))

    def expand(
        b: Emitter,
        input1: Any = None,
        input2: Any = None,
        *,
        size: Shape | None,
        ctx: str = "",
        dtype: DType = F32,
        **numbers: Any,
    ) -> Any:
        for p in parameters if positive else ():
            value = numbers[p]
            if p != "loc" and value is not None and (value < 0 or value == 0 and positive == ">"):
                raise OperatorError(f"expect {p} {positive} 0, got {value}")
        given = iter([x for x in (input1, input2) if x is not None])
        work = working_type(dtype)
        values = []
        for p in parameters:
            number = numbers[p]
            values.append(b.cast(next(given), dtype=work) if number is None else b.constant(number, work))
        shapes = [tuple(v.shape) for v in values]
        if trailing:
            result = (*(size or ()), *_broadcast(shapes, None))
        else:
            result = _broadcast(shapes, size)
        y = draw(b, *values, shape=result, dtype=work)
        return convert(b, y, dtype) if dtype is not work else y

    more = "(*size, *the parameters' broadcast shape)" if trailing else "`size`, or the parameters' broadcast shape"

    module, size = ("npx", "batch_shape=3") if trailing else ("np", "size=(3, 2)")
    values = ", ".join(["mx.np.array([2, 3])", "4"][: len(parameters)])
    expand.__doc__ = documented(
        doc,
        f"{' and '.join(parameters)}, numbers or arrays -> {more}",
        note,
        f">>> mx.{module}.random.{public or name}({values}, {size}).shape\n(3, 2)",
    )
    attrs = {
        **{
            p: optional(number(doc="a parameter; None: it is an input"), default if p == parameters[-1] else None)
            for p in parameters
        },
        "size": optional(shape(doc="shape of the result; None: that of the parameters"), None),
        "ctx": CTX,
        **({"dtype": dtype(F32, among=_FLOATS, doc="the element type of the result")} if typed else {}),
    }
    operator(
        f"_npi_{name}",
        inputs=tensors,
        attrs=attrs,
        streams=lambda attrs, training: streams,
        # As in MXNet, most variates are differentiated by their parameters; these count as constants.
        gradient=gradients.zero if draw in (_uniform, _gamma, _powers) else None,
    )(expand)


def _uniform(b: Emitter, low: Any, high: Any, *, shape: Shape, dtype: DType) -> Any:
    return draws.uniform(b, shape, dtype) * (high - low) + low


def _normal(b: Emitter, loc: Any, scale: Any, *, shape: Shape, dtype: DType) -> Any:
    return draws.normal(b, shape, dtype) * scale + loc


def _gamma(b: Emitter, alpha: Any, scale: Any, *, shape: Shape, dtype: DType) -> Any:
    return draws.gamma(b, alpha, shape, dtype) * scale


def _exponential(b: Emitter, scale: Any, *, shape: Shape, dtype: DType) -> Any:
    return draws.exponential(b, shape, dtype) * scale


def _rayleigh(b: Emitter, scale: Any, *, shape: Shape, dtype: DType) -> Any:
    return b.sqrt(draws.exponential(b, shape, dtype) * 2) * scale


def _weibull(b: Emitter, a: Any, *, shape: Shape, dtype: DType) -> Any:
    return b.exp(b.log(draws.exponential(b, shape, dtype)) / a)


def _pareto(b: Emitter, a: Any, *, shape: Shape, dtype: DType) -> Any:
    return b.expm1(draws.exponential(b, shape, dtype) / a)


def _powers(b: Emitter, a: Any, *, shape: Shape, dtype: DType) -> Any:
    return b.exp(-(draws.exponential(b, shape, dtype) / a))


def _gumbel(b: Emitter, loc: Any, scale: Any, *, shape: Shape, dtype: DType) -> Any:
    return loc - b.log(draws.exponential(b, shape, dtype)) * scale


def _logistic(b: Emitter, loc: Any, scale: Any, *, shape: Shape, dtype: DType) -> Any:
    # log(u / (1 - u)), where u = exp(-e) is not 1, as e is at least 2**-33
    e = b.maximum(draws.exponential(b, shape, dtype), b.constant(2.0**-33, dtype))
    return loc - (e + b.log(-b.expm1(-e))) * scale


_FLOWS = "Gradients flow to the parameters."
_NO_FLOW = "No gradient flows to the parameters."
_DISTRIBUTIONS: list[tuple[str, str, str, tuple[str, ...], Callable[..., Any], dict[str, Any]]] = [
    ("gamma", "Random numbers of the gamma distribution", _NO_FLOW, ("shape", "scale"), _gamma,
     {"streams": draws.GAMMA_STREAMS, "positive": ">"}),
    ("exponential", "Random numbers, exponential with mean `scale`", _FLOWS, ("scale",), _exponential,
     {"typed": False, "positive": ">=", "default": 1.0}),
    ("rayleigh", "Random numbers of the Rayleigh distribution", _FLOWS, ("scale",), _rayleigh,
     {"typed": False, "positive": ">=", "default": 1.0}),
    ("weibull", "Random numbers of the Weibull distribution with shape `a` and scale 1", _FLOWS, ("a",), _weibull,
     {"typed": False, "positive": ">"}),
    ("pareto", "Random numbers of the Pareto distribution (Lomax) with shape `a`", _FLOWS, ("a",), _pareto,
     {"typed": False, "positive": ">"}),
    ("powerd", "Random numbers in [0, 1] with density a x**(a - 1)", _NO_FLOW, ("a",), _powers,
     {"typed": False, "positive": ">", "public": "power"}),
    ("gumbel", "Random numbers of the Gumbel distribution", _FLOWS, ("loc", "scale"), _gumbel,
     {"typed": False, "positive": ">="}),
    ("logistic", "Random numbers of the logistic distribution", _FLOWS, ("loc", "scale"), _logistic,
     {"typed": False, "positive": ">="}),
]  # fmt: skip
for _name, _doc, _note, _parameters, _draw, _more in _DISTRIBUTIONS:
    _declare(_name, _doc, _note, _parameters, _draw, **_more)

for _suffix in ("", "_n"):
    _declare(
        f"uniform{_suffix}",
        "Random numbers, uniform over [low, high)",
        "No gradient flows to the parameters.",
        ("low", "high"),
        _uniform,
        bool(_suffix),
    )
    _declare(
        f"normal{_suffix}",
        "Random numbers, normal with mean `loc` and standard deviation `scale`",
        "Gradients flow to both parameters.",
        ("loc", "scale"),
        _normal,
        bool(_suffix),
    )


@operator(
    "_npi_bernoulli",
    inputs=lambda attrs: ("input1",) if attrs["prob"] is None and attrs["logit"] is None else (),
    attrs={
        "prob": optional(number(doc="the probability; None: the input"), None),
        "logit": optional(number(doc="its logit; None: the input"), None),
        "size": optional(shape(doc="shape of the result; None: that of the parameters"), None),
        "ctx": CTX,
        "dtype": dtype(F32, among=("bool", *_FLOATS, "int32", "uint8"), doc="the element type of the result"),
        "is_logit": boolean(False, doc="whether the parameter is `logit`"),
    },
    streams=lambda attrs, training: 1,
)
def bernoulli(
    b: Emitter,
    input1: Any = None,
    *,
    prob: float | None,
    logit: float | None,
    size: Shape | None,
    ctx: str,
    dtype: DType,
    is_logit: bool,
) -> Any:
    """1 with the given probability, else 0; `is_logit`: the parameter is log(p / (1 - p))

    Shapes: `prob` or `logit`, a number or an array -> `size`, or the parameter's shape

    >>> mx.npx.random.bernoulli(prob=mx.np.array([0, 1, 1])).asnumpy()
    array([0., 1., 1.], dtype=float32)
    """
    number = logit if is_logit else prob
    if number is None and input1 is None:
        raise OperatorError(f"is_logit={is_logit} needs {'logit' if is_logit else 'prob'}")
    p = b.cast(input1, dtype=F32) if number is None else b.constant(number, F32)
    if is_logit:
        p = b.sigmoid(p)
    result = _broadcast([tuple(p.shape)], size)
    return b.cast(draws.uniform(b, result, F32) < p, dtype=dtype)


def _choice_inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    count = attrs["weighted"] + (attrs["a"] is None)
    return tuple(f"input{k + 1}" for k in range(count))


@operator(
    "_npi_choice",
    inputs=_choice_inputs,
    attrs={
        "a": optional(integer(doc="how many there are; None: as many as the first input has elements"), None),
        "size": optional(shape(doc="shape of the result; None: a single number"), None),
        "ctx": CTX,
        "replace": boolean(True, doc="whether the same may be chosen again"),
        "weighted": boolean(False, doc="whether the last input holds probabilities"),
    },
    streams=lambda attrs, training: 1,
    gradient=gradients.zero,
)
def choice(b: Emitter, *inputs: Any, a: int | None, size: Shape | None, ctx: str, replace: bool, weighted: bool) -> Any:
    """Positions chosen at random, as int64

    Shapes: an array (n,) unless `a` is n, probabilities (n,) if `weighted` -> `size`

    MXNetError for more positions than there are, without replacement.

    >>> mx.np.random.choice(3, 4, p=mx.np.array([0, 1, 0])).asnumpy().tolist()
    [1, 1, 1, 1]
    """
    n = inputs[0].shape[0] if a is None else a
    result = tuple(size or ())
    count = math.prod(result)
    if n < 1 or not replace and count > n:
        raise OperatorError(f"choice: cannot take {count} of {n}{'' if replace else ' without replacement'}")
    if weighted and tuple(inputs[-1].shape) != (n,):
        raise OperatorError(f"choice: probabilities of shape {shape_text(inputs[-1].shape)} for {n} positions")
    p = b.cast(inputs[-1], dtype=F64) if weighted else None
    if not replace:
        # The first of n clocks that ring at rates p: the smallest of exponential numbers with means 1 / p.
        clock = draws.exponential(b, (n,), F64)
        order = b.sort(clock if p is None else clock / p, axis=0)[1]
        return b.reshape(b.slice(order, start=(0,), size=(count,)), shape=result)
    if p is None:
        bits = b.shift_right(b.random_bits((count,), I64), b.constant(1, I64))
        return b.reshape(b.mod(bits, b.constant(n, I64)), shape=result)
    ends = b.cumsum(p, axis=0)
    edges = b.concat(b.broadcast(b.constant(0, F64), shape=(1,)), ends, axis=0)
    whole = b.slice(ends, start=(n - 1,), size=(1,))
    return b.reshape(bin_of(b, draws.uniform(b, (count,), F64) * whole, edges)[0], shape=result)
