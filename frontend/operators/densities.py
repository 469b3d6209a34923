"""Probability densities of the distributions of `random`, at given samples.

The parameters have the shape of the samples' leading axes: each applies to one block of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.ir.types import dtype_of
from gluonjit.operators.attributes import boolean
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


def _number(b: Any, value: float, like: Any) -> Any:
    return b.constant(value, dtype_of(like))


def _uniform(b: Any, x: Any, low: Any, high: Any) -> Any:
    return b.broadcast(b.neg(b.log(b.sub(high, low))), shape=x.shape)


def _normal(b: Any, x: Any, mu: Any, sigma: Any) -> Any:
    distance = b.sub(x, mu)
    scaled = b.div(b.mul(distance, distance), b.mul(_number(b, -2, x), b.mul(sigma, sigma)))
    return b.sub(scaled, b.add(b.log(sigma), _number(b, math.log(math.sqrt(2 * math.pi)), x)))


def _gamma(b: Any, x: Any, alpha: Any, beta: Any) -> Any:
    one = _number(b, 1, x)
    y = b.add(b.mul(alpha, b.log(beta)), b.mul(b.sub(alpha, one), b.log(x)))
    return b.sub(b.sub(y, b.mul(beta, x)), b.lgamma(alpha))


def _exponential(b: Any, x: Any, lam: Any) -> Any:
    return b.sub(b.log(lam), b.mul(lam, x))


def _poisson(b: Any, x: Any, lam: Any) -> Any:
    return b.sub(b.sub(b.mul(x, b.log(lam)), lam), b.lgamma(b.add(x, _number(b, 1, x))))


def _negative_binomial(b: Any, x: Any, k: Any, p: Any) -> Any:
    one = _number(b, 1, x)
    ways = b.sub(b.lgamma(b.add(x, k)), b.add(b.lgamma(b.add(x, one)), b.lgamma(k)))
    return b.add(ways, b.add(b.mul(k, b.log(p)), b.mul(x, b.log(b.sub(one, p)))))


def _generalized_negative_binomial(b: Any, x: Any, mu: Any, alpha: Any) -> Any:
    one = _number(b, 1, x)
    return _negative_binomial(b, x, b.div(one, alpha), b.div(one, b.add(b.mul(mu, alpha), one)))


def _dirichlet(b: Any, x: Any, alpha: Any) -> Any:
    last = (len(x.shape) - 1,)
    powers = b.reduce(b.mul(b.sub(alpha, _number(b, 1, x)), b.log(x)), op="sum", axes=last)
    scale = b.sub(
        b.lgamma(b.reduce(alpha, op="sum", axes=last)),
        b.reduce(b.lgamma(alpha), op="sum", axes=last),
    )
    y = b.add(powers, scale)
    return y if y.shape else b.reshape(y, shape=(1,))


def _declare(
    name: str,
    doc: str,
    parameters: tuple[str, ...],
    logarithm: Function,
    vectors: bool = False,
    discrete: bool = False,
) -> None:
    """`logarithm(b, x, *parameters)` is the logarithm of the density. `vectors`: a sample is a row. `discrete`: samples
    are whole numbers, by which nothing is differentiated."""

    def complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
        known = next((s for s in shapes[1:] if s is not None), None)
        return [shapes[0], *(known if s is None else s for s in shapes[1:])]

    def expand(b: Any, sample: Any, *given: Any, is_log: bool) -> Any:
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

    expand.__doc__ = f"The density of {doc} at the samples; with `is_log`, its logarithm"
    operator(
        f"_random_pdf_{name}",
        aliases=(f"random_pdf_{name}",),
        inputs=("sample", *parameters),
        constants=("sample",) if discrete else (),
        attrs={"is_log": boolean(False)},
        complete=complete,
        infer_inputs=None if vectors else first_from_output,
    )(expand)


_declare("uniform", "the uniform distribution on [low, high)", ("low", "high"), _uniform)
_declare("normal", "the normal distribution", ("mu", "sigma"), _normal)
_declare("gamma", "the gamma distribution, of shape alpha and rate beta", ("alpha", "beta"), _gamma)
_declare("exponential", "the exponential distribution, of rate lam", ("lam",), _exponential)
_declare("poisson", "the Poisson distribution", ("lam",), _poisson, discrete=True)
_declare(
    "negative_binomial", "failures before k successes of probability p", ("k", "p"), _negative_binomial, discrete=True
)
_declare(
    "generalized_negative_binomial",
    "the negative binomial distribution of mean mu and dispersion alpha",
    ("mu", "alpha"),
    _generalized_negative_binomial,
    discrete=True,
)
_declare("dirichlet", "the Dirichlet distribution, whose samples are rows,", ("alpha",), _dirichlet, vectors=True)
