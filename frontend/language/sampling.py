"""`nd.random` and `sym.random`: one Python function per distribution, over the random operators.

    uniform(low=0, high=1, shape, dtype, ctx, out)

If the parameters are numbers, the result has the given shape (`_random_uniform`); if they are arrays, `shape` samples
are drawn for each of their elements (`_sample_uniform`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gluonjit.base import _Null, numeric_types
from gluonjit.context import current_context
from gluonjit.language.running import running

if TYPE_CHECKING:
    from gluonjit.language.namespace import Flavour

_REQUIRED = inspect.Parameter.empty

# function: (parameters and their defaults, documentation, parameters of the example)
_DISTRIBUTIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "uniform": ({"low": 0, "high": 1}, "Uniform over [low, high).", "2, 3"),
    "normal": ({"loc": 0, "scale": 1}, "Normal with mean `loc` and standard deviation `scale`.", "5, 0.1"),
    "exponential": ({"scale": 1}, "Exponential with mean `scale`.", "4"),
    "gamma": ({"alpha": 1, "beta": 1}, "Gamma with shape `alpha` and scale `beta`.", "2, 3"),
    "poisson": ({"lam": 1}, "Poisson with mean `lam`; float32 unless `dtype` says otherwise.", "4"),
    "negative_binomial": ({"k": 1, "p": 1}, "Failures before the `k`-th success, each of probability `p`.", "3, 0.5"),
    "generalized_negative_binomial": (
        {"mu": 1, "alpha": 1},
        "Negative binomial: mean `mu`, dispersion `alpha`.",
        "2, 0.3",
    ),
    "randint": (
        {"low": _REQUIRED, "high": _REQUIRED},
        "Integers in [low, high), int32 unless `dtype` says otherwise.",
        "2, 5",
    ),
}
_PLACES = """If the parameters are numbers, `shape` is that of the result; if they are arrays, of one shape, it is that
of the samples for each of their elements, and the result has the arrays' shape followed by it."""
_COMMON = {"shape": _Null, "dtype": _Null, "ctx": None, "out": None}


def samplers(flavour: Flavour, internal: Any) -> dict[str, Callable[..., Any]]:
    """The functions of the sub-module `random`; `internal` is the module with the flavour's operators."""

    def randn(*shape: int, **kwargs: Any) -> Any:
        """Normal samples; the positional arguments are the dimensions of the result.

        >>> mx.nd.random.randn(2, 3).shape
        (2, 3)
        """
        loc, scale = kwargs.pop("loc", 0), kwargs.pop("scale", 1)
        return functions["normal"](loc, scale, shape, **kwargs)

    def multinomial(
        data: Any, shape: Any = _Null, get_prob: bool | None = None, dtype: Any = "int32", **kwargs: Any
    ) -> Any:
        """Indices drawn with the probabilities in the last axis of `data`; `get_prob` adds their log-likelihoods.

        As in MXNet, `get_prob` is True by default for symbols, and False for arrays. In a trace it is False, so that a
        hybridized block returns the same as a plain one.

        >>> mx.nd.random.multinomial(mx.nd.array([[0, 1], [1, 0]]), shape=3).asnumpy().tolist()
        [[1, 1, 1], [0, 0, 0]]
        """
        if get_prob is None:
            get_prob = not flavour.imperative and running.trace is None
        return internal._sample_multinomial(data, shape=shape, get_prob=get_prob, dtype=dtype, **kwargs)

    def shuffle(data: Any, **kwargs: Any) -> Any:
        """`data` with its first axis in random order.

        >>> np.sort(mx.nd.random.shuffle(mx.nd.array([1, 2, 3])).asnumpy())
        array([1., 2., 3.], dtype=float32)
        """
        return internal._shuffle(data, **kwargs)

    functions = {name: _distribution(name, flavour, internal) for name in _DISTRIBUTIONS}
    functions.update(randn=randn, multinomial=multinomial, shuffle=shuffle)
    for name, function in functions.items():
        function.__module__ = f"{flavour.package}.random"
        function.__qualname__ = name
    return functions


def _distribution(name: str, flavour: Flavour, internal: Any) -> Callable[..., Any]:
    """The function that draws from a distribution."""
    own, doc, shown = _DISTRIBUTIONS[name]
    kind = inspect.Parameter
    named = [kind(key, kind.POSITIONAL_OR_KEYWORD, default=d) for key, d in {**own, **_COMMON}.items()]
    signature = inspect.Signature([*named, kind("kwargs", kind.VAR_KEYWORD)])
    defaults = {p.name: p.default for p in named}
    order = tuple(defaults)

    def function(*args: Any, **kwargs: Any) -> Any:
        taken = order[: len(args)]
        given = {**defaults, **dict(zip(taken, args)), **kwargs}  # `bind` would take as long as the operator
        required = any(value is _REQUIRED for value in given.values())
        if required or len(args) > len(order) or not kwargs.keys().isdisjoint(taken):
            signature.bind(*args, **kwargs)  # raises its TypeError
        *parameters, shape, dtype, ctx, out = [given.pop(key) for key in order]
        return _draw(name, flavour, internal, parameters, shape, dtype, ctx, out, given)

    function.__name__ = name
    function.__doc__ = f"{doc}\n\n{_PLACES}\n\n>>> mx.nd.random.{name}({shown}, shape=(2, 3)).shape\n(2, 3)"
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _draw(
    name: str,
    flavour: Flavour,
    internal: Any,
    parameters: list[Any],
    shape: Any,
    dtype: Any,
    ctx: Any,
    out: Any,
    more: dict[str, Any],
) -> Any:
    """Samples of a distribution whose parameters are numbers, or arrays."""
    by_array = _check(parameters, flavour.array)
    if name == "exponential":  # the operator's parameter is the rate
        parameters = [1.0 / parameters[0]]
    if out is not None:
        more["out"] = out
    if by_array:
        return getattr(internal, f"_sample_{name}")(*parameters, shape=shape, dtype=dtype, **more)
    if shape is _Null:
        shape = 1 if out is None else out.shape
    if ctx is not None or flavour.imperative:
        more["ctx"] = str(ctx or current_context())
    return getattr(internal, f"_random_{name}")(*parameters, shape=shape, dtype=dtype, **more)


def _check(parameters: list[Any], array: type) -> bool:
    """Whether the parameters of a distribution are arrays (True) or numbers (False); an error if they are mixed."""
    first = parameters[0]
    if isinstance(first, array):
        kind: Any = array
    elif isinstance(first, numeric_types):
        kind = numeric_types
    else:
        raise ValueError(f"Distribution parameters must be either {array.__name__} or numbers, but got {type(first)}.")
    for other in parameters[1:]:
        if not isinstance(other, kind):
            raise AssertionError(
                f"Distribution parameters must all have the same type, but got both {type(first)} and {type(other)}."
            )
    return kind is array
