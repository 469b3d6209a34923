"""`nd.random` and `sym.random`: one Python function per distribution, over the random operators.

    uniform(low=0, high=1, shape, dtype, ctx, out)

Numbers as parameters draw an array of the given shape (`_random_uniform`); arrays draw `shape` samples for each of
their elements (`_sample_uniform`). MXNet spells some parameters differently here and in the operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gluonjit.base import _Null, numeric_types
from gluonjit.context import current_context

if TYPE_CHECKING:
    from gluonjit.namespace import Flavour


def samplers(flavour: Flavour, internal: Any) -> dict[str, Callable[..., Any]]:
    """The functions of the sub-module `random`; `internal` holds the flavour's operators."""
    array = flavour.array

    def draw(name: str, parameters: list[Any], shape: Any, dtype: Any, ctx: Any, out: Any, more: dict[str, Any]) -> Any:
        first = parameters[0]
        kind: Any = array if isinstance(first, array) else numeric_types if isinstance(first, numeric_types) else None
        if kind is None:
            raise ValueError(
                f"Distribution parameters must be either {array.__name__} or numbers, but got {type(first)}."
            )
        for other in parameters[1:]:
            if not isinstance(other, kind):
                raise AssertionError(
                    "Distribution parameters must all have the same type, "
                    f"but got both {type(first)} and {type(other)}."
                )
        if out is not None:
            more["out"] = out
        if kind is array:
            return getattr(internal, f"_sample_{name}")(*parameters, shape=shape, dtype=dtype, **more)
        if shape is _Null and out is None:
            shape = 1
        if ctx is not None or flavour.imperative:
            more["ctx"] = str(ctx or current_context())
        return getattr(internal, f"_random_{name}")(*parameters, shape=shape, dtype=dtype, **more)

    def uniform(
        low: Any = 0,
        high: Any = 1,
        shape: Any = _Null,
        dtype: Any = _Null,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Uniform over [low, high)."""
        return draw("uniform", [low, high], shape, dtype, ctx, out, kwargs)

    def normal(
        loc: Any = 0,
        scale: Any = 1,
        shape: Any = _Null,
        dtype: Any = _Null,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Normal with mean `loc` and standard deviation `scale`."""
        return draw("normal", [loc, scale], shape, dtype, ctx, out, kwargs)

    def randn(*shape: int, **kwargs: Any) -> Any:
        """Normal, with the dimensions of the result as positional arguments."""
        loc, scale = kwargs.pop("loc", 0), kwargs.pop("scale", 1)
        dtype, ctx, out = kwargs.pop("dtype", _Null), kwargs.pop("ctx", None), kwargs.pop("out", None)
        return draw("normal", [loc, scale], shape, dtype, ctx, out, kwargs)

    def exponential(
        scale: Any = 1,
        shape: Any = _Null,
        dtype: Any = _Null,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Exponential with mean `scale`, that is with rate 1 / scale."""
        return draw("exponential", [1.0 / scale], shape, dtype, ctx, out, kwargs)

    def gamma(
        alpha: Any = 1,
        beta: Any = 1,
        shape: Any = _Null,
        dtype: Any = _Null,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Gamma with shape `alpha` and scale `beta`."""
        return draw("gamma", [alpha, beta], shape, dtype, ctx, out, kwargs)

    def poisson(
        lam: Any = 1,
        shape: Any = _Null,
        dtype: Any = _Null,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Poisson with mean `lam`; float32 unless told otherwise."""
        return draw("poisson", [lam], shape, dtype, ctx, out, kwargs)

    def negative_binomial(
        k: Any = 1,
        p: Any = 1,
        shape: Any = _Null,
        dtype: Any = _Null,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Failures before the `k`-th success, each with probability `p`."""
        return draw("negative_binomial", [k, p], shape, dtype, ctx, out, kwargs)

    def generalized_negative_binomial(
        mu: Any = 1,
        alpha: Any = 1,
        shape: Any = _Null,
        dtype: Any = _Null,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Negative binomial with mean `mu` and dispersion `alpha`."""
        return draw("generalized_negative_binomial", [mu, alpha], shape, dtype, ctx, out, kwargs)

    def randint(
        low: int,
        high: int,
        shape: Any = _Null,
        dtype: Any = _Null,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Integers in [low, high); int32 unless told otherwise."""
        if isinstance(low, array):
            raise ValueError(f"randint takes numbers as its bounds, but got {type(low)}.")
        return draw("randint", [low, high], shape, dtype, ctx, out, kwargs)

    def multinomial(
        data: Any,
        shape: Any = _Null,
        get_prob: bool = not flavour.imperative,
        dtype: Any = "int32",
        **kwargs: Any,
    ) -> Any:
        """Indices drawn with the probabilities in the last axis of `data`; `get_prob` adds their log-likelihoods."""
        return internal._sample_multinomial(data, shape=shape, get_prob=get_prob, dtype=dtype, **kwargs)

    def shuffle(data: Any, **kwargs: Any) -> Any:
        """`data` with its first axis in random order."""
        return internal._shuffle(data, **kwargs)

    functions = [uniform, normal, randn, exponential, gamma, poisson, negative_binomial, generalized_negative_binomial]
    functions += [randint, multinomial, shuffle]
    for function in functions:
        function.__module__ = f"{flavour.package}.random"
        function.__qualname__ = function.__name__
    return {function.__name__: function for function in functions}
