"""Functions of `mx.np.random` and `mx.npx.random`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.context import current_context
from gluonjit.language import rng
from gluonjit.numpy.dispatch import apply
from gluonjit.numpy.filled_arrays import Function, as_shape, as_type
from gluonjit.numpy.multiarray import array
from gluonjit.operators.registry import get


def functions(symbolic: bool) -> dict[str, Function]:
    """The functions of `np.random` and `npx.random`, by name."""
    draws = _Draws(symbolic)
    uniform, normal, *shaped = _uniform_and_normal(draws)
    gamma = _distribution(draws, "gamma", {"shape": None, "scale": 1.0}, typed=True)
    made = [uniform, normal, *shaped, gamma, *_discrete(draws), *_outcomes(uniform)]
    made += [*_from_others(normal, gamma), *_normal_vectors(normal), *_of_the_generator()]
    made += [_distribution(draws, name, {"loc": 0.0, "scale": 1.0}) for name in ("gumbel", "logistic")]
    made += [_distribution(draws, name, {"scale": 1.0}) for name in ("exponential", "rayleigh")]
    made += [_distribution(draws, name, {"a": None}) for name in ("weibull", "pareto", "power")]
    made += [_trailing(draws, "uniform_n", "low", "high", (0.0, 1.0))]
    made += [_trailing(draws, "normal_n", "loc", "scale", (0.0, 1.0))]
    return {f.__name__: f for f in made}  # type: ignore[misc]


class _Draws:
    """Runs the operators that draw random numbers, on arrays or on symbols."""

    def __init__(self, symbolic: bool) -> None:
        self.symbolic = symbolic

    def apply(self, op: str, operands: Any, attrs: dict[str, Any], ctx: Any, out: Any = None) -> Any:
        """The result of an operator that may have no operands, which would tell its context."""
        return apply(op, operands, self.placed(attrs, ctx), out, symbolic=self.symbolic)

    def placed(self, attrs: dict[str, Any], ctx: Any) -> dict[str, Any]:
        """The attributes with a context, which symbols do not have."""
        return attrs if self.symbolic else {**attrs, "ctx": str(current_context() if ctx is None else ctx)}

    def of_parameters(
        self, op: str, parameters: dict[str, Any], attrs: dict[str, Any], ctx: Any, out: Any = None
    ) -> Any:
        """The result of an operator whose parameters are numbers, or arrays."""
        numbers = {key: None if _is_array(v) else float(v) for key, v in parameters.items()}
        operands = [v for v in parameters.values() if _is_array(v)]
        return self.apply(op, operands, {**numbers, **attrs}, ctx, out)


def _size(size: Any, *parameters: Any) -> Any:
    """`size` as a shape; without one, () for parameters that are numbers, else None: that of the parameters."""
    if size is None:
        return None if any(map(_is_array, parameters)) else ()
    return as_shape(size)


def _uniform_and_normal(draws: _Draws) -> list[Function]:
    """Uniform and normal numbers."""

    def uniform(
        low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
    ) -> Any:
        """Uniform over [low, high); each a number or an array

        >>> mx.np.random.uniform(mx.np.array([2, 3]), 4, size=(3, 2)).shape
        (3, 2)
        """
        attrs = {"size": _size(size, low, high), "dtype": as_type(dtype)}
        return draws.of_parameters("_npi_uniform", {"low": low, "high": high}, attrs, ctx, out)

    def normal(
        loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
    ) -> Any:
        """Normal with mean and standard deviation; each a number or an array

        >>> mx.np.random.normal(mx.np.array([2, 3]), 4, size=(3, 2)).shape
        (3, 2)
        """
        attrs = {"size": _size(size, loc, scale), "dtype": as_type(dtype)}
        return draws.of_parameters("_npi_normal", {"loc": loc, "scale": scale}, attrs, ctx, out)

    def rand(*size: int, **kwargs: Any) -> Any:
        """Uniform over [0, 1)

        >>> mx.np.random.rand(2, 3).shape
        (2, 3)
        """
        return uniform(0.0, 1.0, size, **kwargs)

    def randn(*size: int, **kwargs: Any) -> Any:
        """Standard normal

        >>> mx.np.random.randn(2, 3).shape
        (2, 3)
        """
        return normal(0.0, 1.0, size, **kwargs)

    return [uniform, normal, rand, randn]


def _distribution(draws: _Draws, name: str, parameters: dict[str, Any], typed: bool = False) -> Function:
    """A function of the parameters with these defaults (None: none), then of size, dtype if `typed`, ctx, out."""
    op = "_npi_powerd" if name == "power" else f"_npi_{name}"
    rest = {"size": None, **({"dtype": None} if typed else {}), "ctx": None, "out": None}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter(p, kind, default=inspect._empty if d is None else d) for p, d in parameters.items()]
        + [inspect.Parameter(p, kind, default=d) for p, d in rest.items()]
    )

    def function(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        said = given.arguments
        values = {p: said[p] for p in parameters}
        out = said["out"]
        size = said["size"] if out is None else out.shape
        attrs = {"size": _size(size, *values.values())} | ({"dtype": as_type(said["dtype"])} if typed else {})
        return draws.of_parameters(op, values, attrs, said["ctx"], out)

    function.__name__, function.__doc__ = name, get(op).doc
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _from_others(normal: Function, gamma: Function) -> list[Function]:
    """Numbers computed from normal ones, and from those of the gamma distribution."""

    def lognormal(
        mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
    ) -> Any:
        """exp of normal numbers with mean and standard deviation; each a number or an array

        >>> mx.np.random.lognormal(mx.np.array([2, 3]), 4, size=(3, 2)).shape
        (3, 2)
        """
        return apply("_npi_exp", (normal(mean, sigma, size, dtype, ctx),), out=out)

    def beta(a: Any, b: Any, size: Any = None, dtype: Any = None, ctx: Any = None) -> Any:
        """Random numbers of the beta distribution, in [0, 1]

        >>> mx.np.random.beta(mx.np.array([2, 3]), 4, size=(3, 2)).shape
        (3, 2)
        """
        x, y = (gamma(k, 1.0, size, "float64", ctx) for k in (a, b))
        share = apply("_npi_true_divide", (x, apply("_npi_add", (x, y))))
        return apply("_npi_cast", (share,), {"dtype": as_type(dtype)})

    def chisquare(df: Any, size: Any = None, dtype: Any = None, ctx: Any = None) -> Any:
        """Random numbers of the gamma distribution with shape df / 2 and, as in MXNet, scale 1 / 2

        >>> mx.np.random.chisquare(mx.np.array([2, 3]), size=(3, 2)).shape
        (3, 2)
        """
        return gamma(df / 2, 0.5, size, dtype, ctx)

    return [lognormal, beta, chisquare]


def _normal_vectors(normal: Function) -> list[Function]:
    """Vectors of normal numbers that depend on each other."""

    def multivariate_normal(mean: Any, cov: Any, size: Any = None, check_valid: Any = None, tol: Any = None) -> Any:
        """Normal vectors with this mean and, as in MXNet, the covariance Lᵀ L, where L Lᵀ = cov: cov if it is diagonal

        >>> mx.np.random.multivariate_normal(mx.np.zeros(2), mx.np.eye(2), size=3).shape
        (3, 2)
        """
        for name, value in (("check_valid", check_valid), ("tol", tol)):
            if value is not None:
                raise NotImplementedError(f"Parameter `{name}` is not supported")
        lead = np.broadcast_shapes(tuple(mean.shape[:-1]), tuple(cov.shape[:-2]))
        noise = normal(0.0, 1.0, ((_size(size) or ()) + (*lead, mean.shape[-1])), str(np.dtype(mean.dtype)))
        factor = apply("_npi_cholesky", (cov,))
        turned = apply("_npi_matmul", (apply("_npi_expand_dims", (noise,), {"axis": -2}), factor))
        return apply("_npi_add", (mean, apply("_np_squeeze", (turned,), {"axis": -2})))

    return [multivariate_normal]


def _discrete(draws: _Draws) -> list[Function]:
    """Integers, elements of a vector, and 0 or 1."""

    def randint(
        low: int, high: Any = None, size: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
    ) -> Any:
        """Integers from low to high - 1; a single argument is `high`. int64 by default

        >>> x = mx.np.random.randint(3, 5, size=(2, 3)).asnumpy()
        >>> x.shape, set(x.ravel().tolist()) <= {3, 4}
        ((2, 3), True)
        """
        low, high = (0, low) if high is None else (low, high)
        attrs: dict[str, Any] = {"low": int(low), "high": int(high), "shape": _size(size) or (1,)}
        y = draws.apply("_npi_random_randint", (), {**attrs, "dtype": as_type(dtype, "int64")}, ctx, out)
        return y if size not in (None, ()) else apply("_np_reshape", (y,), {"newshape": ()})

    def choice(a: Any, size: Any = None, replace: bool = True, p: Any = None, ctx: Any = None, out: Any = None) -> Any:
        """Elements of a vector, or numbers below a number, chosen at random

        >>> mx.np.random.choice(3, 4, p=mx.np.array([0, 1, 0])).asnumpy().tolist()
        [1, 1, 1, 1]
        """
        attrs: dict[str, Any] = {"size": _size(size), "replace": replace, "weighted": p is not None}
        weights = () if p is None else (p,)
        if not hasattr(a, "as_np_ndarray"):
            return draws.apply("_npi_choice", weights, {**attrs, "a": int(a)}, ctx, out)
        chosen = apply("_npi_choice", (a, *weights), draws.placed({**attrs, "a": None}, ctx))
        return apply("_npi_take", (a, chosen), {"axis": 0, "mode": "clip"}, out)

    def bernoulli(
        prob: Any = None, logit: Any = None, size: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
    ) -> Any:
        """1 with probability p, else 0; p is `prob`, or given by `logit`, log(p / (1 - p))

        >>> mx.npx.random.bernoulli(prob=mx.np.array([0, 1, 1])).asnumpy()
        array([0., 1., 1.], dtype=float32)
        """
        if (prob is None) == (logit is None):
            raise ValueError("Either `prob` or `logit` must be specified, but not both.")
        name, value = ("prob", prob) if logit is None else ("logit", logit)
        attrs = {"size": _size(size, value), "dtype": as_type(dtype), "is_logit": prob is None}
        return draws.of_parameters("_npi_bernoulli", {name: value}, attrs, ctx, out)

    return [randint, choice, bernoulli]


def _outcomes(uniform: Function) -> list[Function]:
    """Counts of outcomes."""

    def multinomial(n: int, pvals: Any, size: Any = None) -> Any:
        """How often each of several outcomes comes in `n` draws with these probabilities, as int64

        >>> mx.np.random.multinomial(5, [0, 1, 0]).asnumpy()
        array([0, 5, 0])
        """
        if isinstance(pvals, np.ndarray):
            raise ValueError("numpy ndarray is not supported!")
        if not hasattr(pvals, "as_np_ndarray"):
            if any(isinstance(p, (list, tuple)) for p in pvals):
                raise ValueError("object too deep for desired array")
            pvals = array(pvals)
        count = pvals.shape[0]
        draws = uniform(size=(*(_size(size) or ()), int(n), 1))
        limits = apply("_np_cumsum", (pvals,), {"axis": 0})[: count - 1]
        below = apply("_npi_less", (draws, apply("_npi_cast", (limits,), {"dtype": "float32"})))
        # How many draws are below each limit; those between two of them are an outcome's.
        up_to = apply("_np_sum", (apply("_npi_cast", (below,), {"dtype": "int64"}),), {"axis": -2})
        one = apply("_np_sum", (apply("_npi_cast", (draws,), {"dtype": "int64"}),), {"axis": -2})
        ends = [apply("_npi_full_like", (one,), {"fill_value": float(k)}) for k in (0, int(n))]
        up_to = apply("_npi_concatenate", (ends[0], up_to, ends[1]), {"axis": -1, "num_args": 3})
        return apply("_npi_subtract", (up_to[..., 1:], up_to[..., :-1]))

    return [multinomial]


def _of_the_generator() -> list[Function]:
    """What changes an array, or the generator, in place."""

    def shuffle(x: Any) -> None:
        """Permutes the slices along the first axis, in place

        >>> x = mx.np.array([1, 2, 3])
        >>> mx.np.random.shuffle(x)
        >>> np.sort(x.asnumpy())
        array([1., 2., 3.], dtype=float32)
        """
        x[:] = apply("_npi_shuffle", (x,))

    def seed(seed: int, ctx: Any = "all") -> None:
        """Seeds the random numbers

        >>> mx.npx.random.seed(7)
        >>> first = mx.np.random.rand(3).asnumpy()
        >>> mx.npx.random.seed(7)
        >>> (mx.np.random.rand(3).asnumpy() == first).all().tolist()
        True
        """
        rng.seed(seed, ctx)

    return [shuffle, seed]


def _trailing(draws: _Draws, name: str, first: str, second: str, default: tuple[float, float]) -> Function:
    def function(
        a: Any = default[0], b: Any = default[1], batch_shape: Any = None, dtype: Any = None, ctx: Any = None
    ) -> Any:
        attrs = {"size": as_shape(batch_shape or ()), "dtype": as_type(dtype)}
        return draws.of_parameters(f"_npi_{name}", {first: a, second: b}, attrs, ctx)

    call = f">>> mx.npx.random.{name}(mx.np.array([2, 3]), 4, batch_shape=3).shape\n(3, 2)"
    function.__name__ = name
    function.__doc__ = f"As its namesake of `np.random`, with `batch_shape` in front of the parameters' shape\n\n{call}"
    return function


def _is_array(x: Any) -> bool:
    if hasattr(x, "as_np_ndarray"):
        return True
    if not np.isscalar(x):
        raise MXNetError(f"a parameter of a random distribution is a number or an array, not {type(x)}")
    return False
