"""Probability densities of the distributions of `random`, at given samples.

The parameters have the shape of the samples' leading axes: each applies to one block of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import dtype_of
from gluonjit.operators.attributes import boolean
from gluonjit.operators.documentation import documented, example, on
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import (
    Shapes,
    first_from_output,
    narrowed,
    require_float,
    require_same_dtype,
    shape_text,
    widened,
)

Function = Callable[..., Any]


def _number(b: Emitter, value: float, like: Any) -> Any:
    return b.constant(value, dtype_of(like))


def _uniform(b: Emitter, x: Any, low: Any, high: Any) -> Any:
    return b.broadcast(-b.log(high - low), shape=x.shape)


def _normal(b: Emitter, x: Any, mu: Any, sigma: Any) -> Any:
    distance = x - mu
    scaled = distance * distance / (_number(b, -2, x) * (sigma * sigma))
    return scaled - (b.log(sigma) + _number(b, math.log(math.sqrt(2 * math.pi)), x))


def _gamma(b: Emitter, x: Any, alpha: Any, beta: Any) -> Any:
    one = _number(b, 1, x)
    y = alpha * b.log(beta) + (alpha - one) * b.log(x)
    return y - beta * x - b.lgamma(alpha)


def _exponential(b: Emitter, x: Any, lam: Any) -> Any:
    return b.log(lam) - lam * x


def _poisson(b: Emitter, x: Any, lam: Any) -> Any:
    return x * b.log(lam) - lam - b.lgamma(x + _number(b, 1, x))


def _negative_binomial(b: Emitter, x: Any, k: Any, p: Any) -> Any:
    one = _number(b, 1, x)
    ways = b.lgamma(x + k) - (b.lgamma(x + one) + b.lgamma(k))
    return ways + (k * b.log(p) + x * b.log(one - p))


def _generalized_negative_binomial(b: Emitter, x: Any, mu: Any, alpha: Any) -> Any:
    one = _number(b, 1, x)
    return _negative_binomial(b, x, one / alpha, one / (mu * alpha + one))


def _dirichlet(b: Emitter, x: Any, alpha: Any) -> Any:
    last = (len(x.shape) - 1,)
    powers = b.reduce((alpha - _number(b, 1, x)) * b.log(x), op="sum", axes=last)
    scale = b.lgamma(b.reduce(alpha, op="sum", axes=last)) - b.reduce(b.lgamma(alpha), op="sum", axes=last)
    y = powers + scale
    return y if y.shape else b.reshape(y, shape=(1,))


def _declare(
    name: str,
    doc: str,
    parameters: tuple[str, ...],
    formula: str,
    x: str,
    shown: tuple[str, ...],
    answer: str,
    logarithm: Function,
    vectors: bool = False,
    discrete: bool = False,
) -> None:
    """`logarithm(b, x, *parameters)` is the logarithm of the density, `formula` the density of a sample x. An
    example: it is `answer` for the sample `x` and parameters `shown`. `vectors`: a sample is a row. `discrete`: samples
    are whole numbers, by which nothing is differentiated."""

    def complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
        known = next((s for s in shapes[1:] if s is not None), None)
        return [shapes[0], *(known if s is None else s for s in shapes[1:])]

    def expand(b: Emitter, sample: Any, *given: Any, is_log: bool) -> Any:
        own = require_float(sample)
        require_same_dtype(sample, *given)
        shape, own_axes = tuple(sample.shape), 1 if vectors else 0
        x, wide = widened(b, sample), []
        for parameter in given:
            found = tuple(parameter.shape)
            lead = len(found) - own_axes
            if (
                lead < 0
                or found[:lead] != shape[:lead]
                or len(shape) < len(found)
                or vectors
                and found[-1] != shape[-1]
            ):
                raise OperatorError(
                    f"parameters have the shape of the samples' leading axes, {shape_text(shape)}; got "
                    f"{shape_text(found)}"
                )
            blocks = (*found[:lead], *(1,) * (len(shape) - len(found)), *found[lead:])
            wide.append(b.reshape(widened(b, parameter), shape=blocks))
        y = logarithm(b, x, *wide)
        return narrowed(b, y if is_log else b.exp(y), own)

    named, row = " and ".join(parameters), ", n" if vectors else ""
    expand.__doc__ = documented(
        f"The density of {doc} at the samples; with `is_log`, its logarithm",
        f"sample (*blocks, …{row}), {named} (*blocks{row or ','}) -> (*blocks, …)",
        f"{formula}. MXNetError for parameters of another shape or element type, and integers.",
        example(f"mx.nd.random_pdf_{name}({', '.join(map(on, (x, *shown)))})", answer),
    )
    operator(
        f"_random_pdf_{name}",
        aliases=(f"random_pdf_{name}",),
        inputs=("sample", *parameters),
        constants=("sample",) if discrete else (),
        attrs={"is_log": boolean(False, doc="whether the result is the logarithm of the density")},
        complete=complete,
        infer_inputs=None if vectors else first_from_output,
    )(expand)


_declare(
    "uniform",
    "the uniform distribution on [low, high)",
    ("low", "high"),
    "1 / (high - low)",
    "[[1]]",
    ("[0]", "[2]"),
    "[[0.5]]",
    _uniform,
)
_declare(
    "normal",
    "the normal distribution of mean mu and standard deviation sigma",
    ("mu", "sigma"),
    "exp(-(x - mu)² / (2 sigma²)) / (sigma sqrt(2 π))",
    "[[0]]",
    ("[0]", "[1]"),
    "[[0.399]]",
    _normal,
)
_declare(
    "gamma",
    "the gamma distribution, of shape alpha and rate beta,",
    ("alpha", "beta"),
    "beta^alpha x^(alpha - 1) exp(-beta x) / gamma(alpha)",
    "[[1]]",
    ("[1]", "[1]"),
    "[[0.368]]",
    _gamma,
)
_declare(
    "exponential",
    "the exponential distribution, of rate lam,",
    ("lam",),
    "lam exp(-lam x)",
    "[[0]]",
    ("[2]",),
    "[[2.]]",
    _exponential,
)
_declare(
    "poisson",
    "the Poisson distribution of mean lam",
    ("lam",),
    "lam^x exp(-lam) / x!",
    "[[0]]",
    ("[1]",),
    "[[0.368]]",
    _poisson,
    discrete=True,
)
_declare(
    "negative_binomial",
    "failures before k successes of probability p",
    ("k", "p"),
    "gamma(x + k) / (x! gamma(k)) p^k (1 - p)^x",
    "[[0]]",
    ("[1]", "[0.5]"),
    "[[0.5]]",
    _negative_binomial,
    discrete=True,
)
_declare(
    "generalized_negative_binomial",
    "the negative binomial distribution of mean mu and dispersion alpha",
    ("mu", "alpha"),
    "That of `random_pdf_negative_binomial` for k = 1 / alpha and p = 1 / (mu alpha + 1)",
    "[[0]]",
    ("[1]", "[1]"),
    "[[0.5]]",
    _generalized_negative_binomial,
    discrete=True,
)
_declare(
    "dirichlet",
    "the Dirichlet distribution, whose samples are rows,",
    ("alpha",),
    "The product of x^(alpha - 1), times gamma(sum of alpha) / product of gamma(alpha)",
    "[[0.5, 0.5]]",
    ("[1, 1]",),
    "[1.]",
    _dirichlet,
    vectors=True,
)
