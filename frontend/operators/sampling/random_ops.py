"""Random numbers: each distribution in MXNet's three forms.

* `_random_X`: parameters are numbers, the shape is an attribute;
* `_random_X_like`: parameters are numbers, shape and element type are those of `data`;
* `_sample_X`: parameters are tensors of the same shape S, and each element gives a sample of shape `shape`: the result
  has the shape S + shape.

Numbers are computed in float32, or in float64 if that is the result's type, and converted to that type at the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BF16, F32, F64, DType, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import Attr, dtype, integer, number, optional, shape
from gluonjit.operators.documentation import ELEMENTWISE, documented, on
from gluonjit.operators.movement.creation import CTX
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.sampling import random_draws as draws
from gluonjit.operators.support import convert, require_same_shape
from gluonjit.runtime.eager import PIECE

Draw = Callable[..., Any]
"""`draw(b, *parameters, shape=, dtype=)`, with parameters as tensors of `dtype` that broadcast to `shape`."""

_DTYPE = optional(dtype(among=("float16", "float32", "float64"), doc="the element type of the result; None is float32"))


class Distribution(NamedTuple):
    """`parameters`: those of the `_random_` forms; `tensors`: the names of the inputs of the `_sample_` form.

    `check(*numbers)` returns an error message for invalid parameters, or None; `streams` is the number of streams that
    `draw` takes. `bounded`: the parameters are low and high, and results must be less than high. `shown`: parameters
    for the examples.
    """

    name: str
    doc: str
    draw: Draw
    parameters: dict[str, Attr]
    tensors: tuple[str, ...]
    check: Callable[..., str | None]
    shown: tuple[float, ...]
    streams: int = 1
    bounded: bool = False


def working_type(result: DType) -> DType:
    return F64 if result is F64 else F32


@functools.lru_cache(256)
def _largest_below(high: float, low: float, dtype: DType) -> float:
    """The largest number of a type that is less than `high`, or `low` when that is larger."""
    kind = dtype.numpy.type
    nearest = kind(high)
    return max(float(np.nextafter(nearest, kind(-np.inf)) if nearest >= high else nearest), low)


def _from_numbers(b: Emitter, d: Distribution, parameters: Mapping[str, float], shape: Shape, result: DType) -> Any:
    wrong = d.check(*parameters.values())
    if wrong:
        raise OperatorError(wrong)
    work = working_type(result)

    def compute(b: Emitter, shape: Shape) -> Any:
        numbers = [b.constant(p, work) for p in parameters.values()]
        y = d.draw(b, *numbers, shape=shape, dtype=work)
        y = convert(b, y, result) if result is not work else y
        if d.bounded and result.kind == "f" and result is not BF16:
            # Scaling and rounding may have reached `high`.
            low, high = parameters.values()
            y = b.minimum(y, b.constant(_largest_below(high, low, result), result))
        return y

    uniform = None
    if d.bounded and result is F32:
        low, high = parameters.values()
        uniform = low, high, _largest_below(high, low, F32)
    return b.elementwise(compute, shape, uniform)


def _documents(d: Distribution) -> tuple[str, str, str]:
    """The docstrings of the three forms. Examples show shapes, as the numbers are random."""
    refused = "MXNetError for parameters that the distribution does not have."
    numbers = ", ".join(f"{name}={value}" for name, value in zip(d.parameters, d.shown))
    tensors = ", ".join(on(f"[{value}, {value}]") for value in d.shown)
    result = ".shape\n(2, 3)"
    return (
        documented(
            d.doc, "no inputs -> `shape`", refused, f">>> mx.nd.random_{d.name}({numbers}, shape=(2, 3)){result}"
        ),
        documented(
            f"{d.doc}, in the shape and element type of the data",
            ELEMENTWISE,
            refused,
            f">>> mx.nd.random.{d.name}_like(mx.nd.zeros((2, 3)), {numbers}){result}",
        ),
        documented(
            f"{d.doc}: a sample of shape `shape` for each element of the parameters",
            f"{' and '.join(d.tensors)} (any, the same) -> (*{d.tensors[0]}.shape, *shape)",
            f">>> mx.nd.sample_{d.name}({tensors}, shape=3){result}",
        ),
    )


def _declare(d: Distribution) -> None:
    def random(b: Emitter, *, shape: Shape | None, ctx: str, dtype: DType | None, **parameters: float) -> Any:
        return _from_numbers(b, d, parameters, required_shape(shape, f"_random_{d.name}"), dtype or F32)

    def like(b: Emitter, data: Any, **parameters: float) -> Any:
        return _from_numbers(b, d, parameters, tuple(data.shape), dtype_of(data))

    def sample(b: Emitter, *tensors: Any, shape: Shape, dtype: DType | None) -> Any:
        require_same_shape(*tensors)
        result = dtype or F32
        work = working_type(result)
        own = tuple(tensors[0].shape)
        whole = own + shape
        spread = own + (1,) * len(shape)
        inputs = [x if dtype_of(x) is work else b.cast(x, dtype=work) for x in tensors]
        y = d.draw(b, *(b.reshape(x, shape=spread) for x in inputs), shape=whole, dtype=work)
        return y if result is work else b.cast(y, dtype=result)

    def streams(attrs: Mapping[str, Any], training: bool) -> int:
        return d.streams

    random.__doc__, like.__doc__, sample.__doc__ = _documents(d)
    plain = (f"random_{d.name}", d.name) if d.name in ("uniform", "normal") else (f"random_{d.name}",)
    placed = {"shape": optional(shape(doc="the shape of the result"), None), "ctx": CTX, "dtype": _DTYPE}
    operator(f"_random_{d.name}", aliases=plain, inputs=(), attrs={**d.parameters, **placed}, streams=streams)(random)
    operator(f"_random_{d.name}_like", attrs=d.parameters, streams=streams, same_shape=True)(like)
    operator(
        f"_sample_{d.name}",
        aliases=(f"sample_{d.name}",),
        inputs=d.tensors,
        attrs={"shape": shape((), doc="the shape of each sample"), "dtype": _DTYPE},
        streams=streams,
        gradient=gradients.zero,
    )(sample)


def is_drawn_at_once(name: str, attrs: Mapping[str, Any]) -> bool:
    """Whether plain calls of an operator draw its numbers by native code as it is (`Emitter.elementwise`), once there
    are many, so that there is no gain in compiling it."""
    if name != "_random_uniform" or attrs["dtype"] not in (None, F32):
        return False
    return attrs["shape"] is not None and math.prod(attrs["shape"]) > PIECE


def required_shape(shape: Shape | None, name: str) -> Shape:
    if shape is None:
        raise OperatorError(f"Operator {name} inferring shapes failed: it needs the attribute shape")
    return tuple(shape)


# Distributions


def _uniform(b: Emitter, low: Any, high: Any, *, shape: Shape, dtype: DType) -> Any:
    return draws.uniform(b, shape, dtype) * (high - low) + low


def _normal(b: Emitter, loc: Any, scale: Any, *, shape: Shape, dtype: DType) -> Any:
    return draws.normal(b, shape, dtype) * scale + loc


def _exponential(b: Emitter, lam: Any, *, shape: Shape, dtype: DType) -> Any:
    return draws.exponential(b, shape, dtype) / lam


def _gamma(b: Emitter, alpha: Any, beta: Any, *, shape: Shape, dtype: DType) -> Any:
    return draws.gamma(b, alpha, shape, dtype) * beta


def _poisson(b: Emitter, lam: Any, *, shape: Shape, dtype: DType) -> Any:
    return b.cast(draws.poisson(b, b.cast(lam, dtype=F64), shape), dtype=dtype)


def _poisson_of_gamma(b: Emitter, alpha: Any, scale: Any, shape: Shape, dtype: DType) -> Any:
    """Poisson variates with gamma distributed means, which are negative binomial variates."""
    mean = draws.gamma(b, alpha, shape, dtype) * scale
    return _poisson(b, mean, shape=shape, dtype=dtype)


def _negative_binomial(b: Emitter, k: Any, p: Any, *, shape: Shape, dtype: DType) -> Any:
    odds = (1 - p) / p
    return _poisson_of_gamma(b, k, odds, shape, dtype)


def _generalized_negative_binomial(b: Emitter, mu: Any, alpha: Any, *, shape: Shape, dtype: DType) -> Any:
    zero, one = b.constant(0, dtype), b.constant(1, dtype)
    certain = b.eq(alpha, zero)  # no dispersion: the mean is mu itself
    dispersion = b.select(certain, one, alpha)
    mean = draws.gamma(b, one / dispersion, shape, dtype) * (mu * dispersion)
    return _poisson(b, b.select(certain, mu, mean), shape=shape, dtype=dtype)


def _check_uniform(low: float, high: float) -> str | None:
    return None if high >= low else "low must be less or equal to high in uniform distribution"


def _check_normal(loc: float, scale: float) -> str | None:
    return None if scale > 0 else "scale parameter in gaussian has to be positive"


def _check_exponential(lam: float) -> str | None:
    return None if lam > 0 else "lambda parameter in exponential distribution has to be positive"


def _check_gamma(alpha: float, beta: float) -> str | None:
    if alpha <= 0:
        return "alpha parameter in gamma distribution has to be positive"
    return None if beta > 0 else "beta parameter in gamma distribution has to be positive"


def _check_poisson(lam: float) -> str | None:
    return None if lam >= 0 else "lambda parameter in poisson distribution has to be non-negative"


def _check_negative_binomial(k: float, p: float) -> str | None:
    if k < 0:
        return "k parameter in negative binomial distribution has to be non-negative"
    return None if 0 < p <= 1 else "p parameter in negative binomial distribution has to be in (0, 1]"


def _check_generalized(mu: float, alpha: float) -> str | None:
    if mu < 0:
        return "mu parameter in generalized negative binomial distribution has to be non-negative"
    if alpha < 0:
        return "alpha parameter in generalized negative binomial distribution has to be non-negative"
    return None


for _distribution in (
    Distribution(
        "uniform",
        "Uniform over [low, high)",
        _uniform,
        {"low": number(0.0, doc="the least number"), "high": number(1.0, doc="the bound, which is not reached")},
        ("low", "high"),
        _check_uniform,
        (2, 3),
        bounded=True,
    ),
    Distribution(
        "normal",
        "Normal with mean `loc` and standard deviation `scale`",
        _normal,
        {"loc": number(0.0, doc="the mean"), "scale": number(1.0, doc="the standard deviation")},
        ("mu", "sigma"),
        _check_normal,
        (5, 0.1),
    ),
    Distribution(
        "exponential",
        "Exponential with rate `lam`, that is with mean 1 / lam",
        _exponential,
        {"lam": number(1.0, doc="the rate")},
        ("lam",),
        _check_exponential,
        (4,),
    ),
    Distribution(
        "gamma",
        "Gamma with shape parameter `alpha` and scale `beta`",
        _gamma,
        {"alpha": number(1.0, doc="the shape parameter"), "beta": number(1.0, doc="the scale")},
        ("alpha", "beta"),
        _check_gamma,
        (2, 3),
        streams=draws.GAMMA_STREAMS,
    ),
    Distribution(
        "poisson",
        "Poisson with mean `lam`",
        _poisson,
        {"lam": number(1.0, doc="the mean")},
        ("lam",),
        _check_poisson,
        (4,),
        streams=2,
    ),
    Distribution(
        "negative_binomial",
        "Negative binomial: the number of failures before the `k`-th success of trials with probability `p`",
        _negative_binomial,
        {"k": integer(1, doc="how many successes"), "p": number(1.0, doc="the probability of a success")},
        ("k", "p"),
        _check_negative_binomial,
        (3, 0.5),
        streams=draws.GAMMA_STREAMS + 2,
    ),
    Distribution(
        "generalized_negative_binomial",
        "Negative binomial with mean `mu` and variance mu + alpha * mu**2",
        _generalized_negative_binomial,
        {"mu": number(1.0, doc="the mean"), "alpha": number(1.0, doc="the dispersion")},
        ("mu", "alpha"),
        _check_generalized,
        (2, 0.3),
        streams=draws.GAMMA_STREAMS + 2,
    ),
):
    _declare(_distribution)
