"""Random operators of `mx.np`: a parameter is a number or a tensor, and `size` is the shape of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.ir.types import F32, DType
from gluonjit.operators import gradients
from gluonjit.operators import random_draws as draws
from gluonjit.operators.attributes import boolean, dtype, number, optional, shape
from gluonjit.operators.creation import CTX
from gluonjit.operators.documentation import documented
from gluonjit.operators.random_ops import working_type
from gluonjit.operators.registry import OperatorError, Shape, operator
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
    name: str, doc: str, note: str, parameters: tuple[str, ...], draw: Callable[..., Any], trailing: bool
) -> None:
    """`trailing`: the variant `_n`, whose result has the shape `size` followed by the shape of the parameters."""

    def tensors(attrs: Mapping[str, Any]) -> tuple[str, ...]:
        missing = sum(attrs[p] is None for p in parameters)
        return tuple(f"input{k + 1}" for k in range(missing))

    def expand(
        b: Any, input1: Any = None, input2: Any = None, *, size: Shape | None, ctx: str, dtype: DType, **numbers: Any
    ) -> Any:
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
    expand.__doc__ = documented(
        doc,
        f"{' and '.join(parameters)}, numbers or arrays -> {more}",
        note,
        f">>> mx.{module}.random.{name}(mx.np.array([2, 3]), 4, {size}).shape\n(3, 2)",
    )
    attrs = {
        **{p: optional(number(doc="a parameter; None: it is an input"), None) for p in parameters},
        "size": optional(shape(doc="shape of the result; None: that of the parameters"), None),
        "ctx": CTX,
        "dtype": dtype(F32, among=_FLOATS, doc="of the result"),
    }
    operator(
        f"_npi_{name}",
        inputs=tensors,
        attrs=attrs,
        streams=lambda attrs, training: 1,
        # As in MXNet, a normal variate is differentiated by its mean and deviation, a uniform one is a constant.
        gradient=gradients.zero if draw is _uniform else None,
    )(expand)


def _uniform(b: Any, low: Any, high: Any, *, shape: Shape, dtype: DType) -> Any:
    return b.add(b.mul(draws.uniform(b, shape, dtype), b.sub(high, low)), low)


def _normal(b: Any, loc: Any, scale: Any, *, shape: Shape, dtype: DType) -> Any:
    return b.add(b.mul(draws.normal(b, shape, dtype), scale), loc)


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
        "dtype": dtype(F32, among=("bool", *_FLOATS, "int32", "uint8"), doc="of the result"),
        "is_logit": boolean(False, doc="whether the parameter is `logit`"),
    },
    streams=lambda attrs, training: 1,
)
def bernoulli(
    b: Any,
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
    return b.cast(b.lt(draws.uniform(b, result, F32), p), dtype=dtype)
