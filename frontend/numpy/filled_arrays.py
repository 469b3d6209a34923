"""Functions of `mx.np` that create arrays: filled ones, ranges, random ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.base import MXNetError, integer_types
from gluonjit.context import current_context
from gluonjit.language import rng
from gluonjit.numpy.dispatch import apply
from gluonjit.numpy.multiarray import array
from gluonjit.operators.registry import get

Function = Callable[..., Any]


def _shape(value: Any) -> tuple[int, ...]:
    return (int(value),) if isinstance(value, (*integer_types, np.integer)) else tuple(value)


def _type(dtype: Any, default: Any = "float32") -> Any:
    return default if dtype is None else dtype


def _row_major(order: str) -> None:
    if order != "C":
        raise NotImplementedError(f"order {order} is not supported: arrays are row-major")


def functions(symbolic: bool) -> dict[str, Function]:
    """The functions of `np` itself, by name."""

    def make(op: str, attrs: dict[str, Any], ctx: Any, out: Any = None) -> Any:
        if not symbolic:
            attrs["ctx"] = str(current_context() if ctx is None else ctx)
        return apply(op, (), attrs, out, symbolic=symbolic)

    def zeros(shape: Any, dtype: Any = None, order: str = "C", ctx: Any = None) -> Any:
        """Zeros in the given shape; float32 unless `dtype` says otherwise

        >>> mx.np.zeros((2, 3)).asnumpy()
        array([[0., 0., 0.],
               [0., 0., 0.]], dtype=float32)
        """
        _row_major(order)
        return make("_npi_zeros", {"shape": _shape(shape), "dtype": _type(dtype)}, ctx)

    def ones(shape: Any, dtype: Any = None, order: str = "C", ctx: Any = None) -> Any:
        """Ones in the given shape; float32 unless `dtype` says otherwise

        >>> mx.np.ones(3, dtype="int32").asnumpy()
        array([1, 1, 1], dtype=int32)
        """
        _row_major(order)
        return make("_npi_ones", {"shape": _shape(shape), "dtype": _type(dtype)}, ctx)

    def empty(shape: Any, dtype: Any = None, order: str = "C", ctx: Any = None) -> Any:
        """An uninitialized array

        >>> mx.np.empty((2, 3)).shape
        (2, 3)
        """
        return zeros(shape, dtype, order, ctx)

    def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", ctx: Any = None, out: Any = None) -> Any:
        """The same number everywhere; by default bool for a bool, else float32

        >>> mx.np.full((2, 2), 7).asnumpy()
        array([[7., 7.],
               [7., 7.]], dtype=float32)
        """
        _row_major(order)
        shape = _shape(shape)
        if hasattr(fill_value, "as_np_ndarray"):
            y = apply("_npi_broadcast_to", (fill_value,), {"shape": shape}, out if dtype is None else None)
            return y if dtype is None else apply("_npi_cast", (y,), {"dtype": dtype}, out)
        own = _type(dtype, "bool" if isinstance(fill_value, bool) else "float32")
        return make("_npi_full", {"shape": shape, "value": float(fill_value), "dtype": own}, ctx, out)

    def like(value: float) -> Function:
        def function(a: Any, dtype: Any = None, order: str = "C", ctx: Any = None, out: Any = None) -> Any:
            _row_major(order)
            return apply("_npi_full_like", (a,), {"fill_value": value, "dtype": dtype}, out)

        name = "ones_like" if value else "zeros_like"
        call = f">>> mx.np.{name}(mx.np.array([5, 6])).asnumpy()\narray([{value:g}., {value:g}.], dtype=float32)"
        function.__doc__ = f"{value:g} everywhere, in the shape and element type of `a`\n\n{call}"
        return function

    def full_like(
        a: Any, fill_value: float, dtype: Any = None, order: str = "C", ctx: Any = None, out: Any = None
    ) -> Any:
        """The same number everywhere, in the shape and element type of `a`

        >>> mx.np.full_like(mx.np.array([1, 2]), 7).asnumpy()
        array([7., 7.], dtype=float32)
        """
        _row_major(order)
        return apply("_npi_full_like", (a,), {"fill_value": float(fill_value), "dtype": dtype}, out)

    def arange(start: float, stop: Any = None, step: Any = 1, dtype: Any = None, ctx: Any = None) -> Any:
        """start, start + step, … below stop; a single argument is `stop`

        >>> mx.np.arange(2, 5).asnumpy()
        array([2., 3., 4.], dtype=float32)
        """
        if step is None:
            step = 1
        if step == 0:
            raise ZeroDivisionError("step cannot be 0")
        attrs = {"start": float(start), "stop": None if stop is None else float(stop), "step": float(step)}
        return make("_npi_arange", {**attrs, "dtype": _type(dtype)}, ctx)

    def eye(N: int, M: Any = None, k: int = 0, dtype: Any = np.float32, **kwargs: Any) -> Any:
        """Ones on the k-th diagonal, zeros elsewhere

        >>> mx.np.eye(2, 3, k=1).asnumpy()
        array([[0., 1., 0.],
               [0., 0., 1.]], dtype=float32)
        """
        return make("_npi_eye", {"N": N, "M": M, "k": int(k), "dtype": _type(dtype)}, kwargs.get("ctx"))

    def identity(n: int, dtype: Any = None, ctx: Any = None) -> Any:
        """A square matrix with ones on its diagonal

        >>> mx.np.identity(2).asnumpy()
        array([[1., 0.],
               [0., 1.]], dtype=float32)
        """
        return make("_npi_identity", {"shape": (n, n), "dtype": _type(dtype)}, ctx)

    def linspace(
        start: float,
        stop: float,
        num: int = 50,
        endpoint: bool = True,
        retstep: bool = False,
        dtype: Any = None,
        axis: int = 0,
        ctx: Any = None,
    ) -> Any:
        """`num` numbers from start to stop in equal steps; with `retstep`, also the step

        >>> mx.np.linspace(0, 1, 5).asnumpy()
        array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
        """
        if axis != 0:
            raise NotImplementedError("the function only support axis 0")
        attrs = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": _type(dtype)}
        y = make("_npi_linspace", attrs, ctx)
        return (y, (stop - start) / ((num - 1) if endpoint else num)) if retstep else y

    def logspace(
        start: float,
        stop: float,
        num: int = 50,
        endpoint: bool = True,
        base: float = 10.0,
        dtype: Any = None,
        axis: int = 0,
        ctx: Any = None,
    ) -> Any:
        """`num` powers of `base`, whose exponents go from start to stop in equal steps

        >>> mx.np.logspace(0, 2, 3).asnumpy()
        array([  1.,  10., 100.], dtype=float32)
        """
        if not (np.isscalar(start) and np.isscalar(stop)):
            raise NotImplementedError("start and stop only support int and float")
        if axis != 0:
            raise NotImplementedError("the function only support axis 0")
        attrs = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "base": base, "dtype": _type(dtype)}
        return make("_npi_logspace", attrs, ctx)

    def indices(dimensions: Any, dtype: Any = np.int32, ctx: Any = None) -> Any:
        """The indices of each element of a grid, along a new first axis

        >>> mx.np.indices((2, 2)).asnumpy().tolist()
        [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
        """
        if not isinstance(dimensions, (tuple, list)):
            raise ValueError("The dimensions must be sequence of ints")
        return make("_npi_indices", {"dimensions": tuple(dimensions), "dtype": _type(dtype, "int32")}, ctx)

    def window(name: str) -> Function:
        def function(M: int, dtype: Any = np.float32, ctx: Any = None) -> Any:
            return make(f"_npi_{name}", {"M": M, "dtype": _type(dtype)}, ctx)

        function.__name__, function.__doc__ = name, get(f"_npi_{name}").doc
        return function

    made = [zeros, ones, empty, full, full_like, arange, eye, identity, linspace, logspace, indices]
    made += map(window, ("hanning", "hamming", "blackman"))
    named: dict[str, Function] = {f.__name__: f for f in made}  # type: ignore[misc]
    named |= {"zeros_like": like(0.0), "ones_like": like(1.0), "empty_like": like(0.0)}
    for name, function in named.items():
        function.__name__, function.__module__ = name, "gluonjit.numpy"
    return named


# Random numbers


def random_functions(symbolic: bool) -> dict[str, Function]:
    """The functions of `np.random` and `npx.random`, by name."""

    def draw(op: str, parameters: dict[str, Any], attrs: dict[str, Any], ctx: Any, out: Any = None) -> Any:
        """Parameters are numbers, or arrays."""
        numbers = {key: None if _is_array(v) else float(v) for key, v in parameters.items()}
        if not symbolic:
            attrs["ctx"] = str(current_context() if ctx is None else ctx)
        operands = [v for v in parameters.values() if _is_array(v)]
        return apply(op, operands, {**numbers, **attrs}, out, symbolic=symbolic)

    def size_of(size: Any, *parameters: Any) -> Any:
        if size is None:
            return None if any(map(_is_array, parameters)) else ()
        return _shape(size)

    def uniform(
        low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
    ) -> Any:
        """Uniform over [low, high); each a number or an array

        >>> mx.np.random.uniform(mx.np.array([2, 3]), 4, size=(3, 2)).shape
        (3, 2)
        """
        attrs = {"size": size_of(size, low, high), "dtype": _type(dtype)}
        return draw("_npi_uniform", {"low": low, "high": high}, attrs, ctx, out)

    def normal(
        loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
    ) -> Any:
        """Normal with mean and standard deviation; each a number or an array

        >>> mx.np.random.normal(mx.np.array([2, 3]), 4, size=(3, 2)).shape
        (3, 2)
        """
        attrs = {"size": size_of(size, loc, scale), "dtype": _type(dtype)}
        return draw("_npi_normal", {"loc": loc, "scale": scale}, attrs, ctx, out)

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

    def randint(
        low: int, high: Any = None, size: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
    ) -> Any:
        """Integers from low to high - 1; a single argument is `high`. int64 by default

        >>> x = mx.np.random.randint(3, 5, size=(2, 3)).asnumpy()
        >>> x.shape, set(x.ravel().tolist()) <= {3, 4}
        ((2, 3), True)
        """
        low, high = (0, low) if high is None else (low, high)
        attrs: dict[str, Any] = {"low": int(low), "high": int(high), "shape": size_of(size) or (1,)}
        if not symbolic:
            attrs["ctx"] = str(current_context() if ctx is None else ctx)
        y = apply("_npi_random_randint", (), {**attrs, "dtype": _type(dtype, "int64")}, out, symbolic=symbolic)
        return y if size not in (None, ()) else apply("_np_reshape", (y,), {"newshape": ()})

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
        draws = uniform(size=(*(size_of(size) or ()), int(n), 1))
        limits = apply("_np_cumsum", (pvals,), {"axis": 0})[: count - 1]
        below = apply("_npi_less", (draws, apply("_npi_cast", (limits,), {"dtype": "float32"})))
        # How many draws are below each limit; those between two of them are an outcome's.
        up_to = apply("_np_sum", (apply("_npi_cast", (below,), {"dtype": "int64"}),), {"axis": -2})
        one = apply("_np_sum", (apply("_npi_cast", (draws,), {"dtype": "int64"}),), {"axis": -2})
        ends = [apply("_npi_full_like", (one,), {"fill_value": float(k)}) for k in (0, int(n))]
        up_to = apply("_npi_concatenate", (ends[0], up_to, ends[1]), {"axis": -1, "num_args": 3})
        return apply("_npi_subtract", (up_to[..., 1:], up_to[..., :-1]))

    def distribution(name: str, parameters: dict[str, Any], typed: bool = False) -> Function:
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
            attrs = {"size": size_of(size, *values.values())} | ({"dtype": _type(said["dtype"])} if typed else {})
            return draw(op, values, attrs, said["ctx"], out)

        function.__name__, function.__doc__ = name, get(op).doc
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    gamma = distribution("gamma", {"shape": None, "scale": 1.0}, typed=True)

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
        return apply("_npi_cast", (share,), {"dtype": _type(dtype)})

    def chisquare(df: Any, size: Any = None, dtype: Any = None, ctx: Any = None) -> Any:
        """Random numbers of the gamma distribution with shape df / 2 and, as in MXNet, scale 1 / 2

        >>> mx.np.random.chisquare(mx.np.array([2, 3]), size=(3, 2)).shape
        (3, 2)
        """
        return gamma(df / 2, 0.5, size, dtype, ctx)

    def multivariate_normal(mean: Any, cov: Any, size: Any = None, check_valid: Any = None, tol: Any = None) -> Any:
        """Normal vectors with this mean and, as in MXNet, the covariance Lᵀ L, where L Lᵀ = cov: cov if it is diagonal

        >>> mx.np.random.multivariate_normal(mx.np.zeros(2), mx.np.eye(2), size=3).shape
        (3, 2)
        """
        for name, value in (("check_valid", check_valid), ("tol", tol)):
            if value is not None:
                raise NotImplementedError(f"Parameter `{name}` is not supported")
        lead = np.broadcast_shapes(tuple(mean.shape[:-1]), tuple(cov.shape[:-2]))
        noise = normal(0.0, 1.0, ((size_of(size) or ()) + (*lead, mean.shape[-1])), str(np.dtype(mean.dtype)))
        factor = apply("_npi_cholesky", (cov,))
        turned = apply("_npi_matmul", (apply("_npi_expand_dims", (noise,), {"axis": -2}), factor))
        return apply("_npi_add", (mean, apply("_np_squeeze", (turned,), {"axis": -2})))

    def choice(a: Any, size: Any = None, replace: bool = True, p: Any = None, ctx: Any = None, out: Any = None) -> Any:
        """Elements of a vector, or numbers below a number, chosen at random

        >>> mx.np.random.choice(3, 4, p=mx.np.array([0, 1, 0])).asnumpy().tolist()
        [1, 1, 1, 1]
        """
        attrs: dict[str, Any] = {"size": size_of(size), "replace": replace, "weighted": p is not None}
        if not symbolic:
            attrs["ctx"] = str(current_context() if ctx is None else ctx)
        weights = () if p is None else (p,)
        if not hasattr(a, "as_np_ndarray"):
            return apply("_npi_choice", weights, {**attrs, "a": int(a)}, out, symbolic=symbolic)
        chosen = apply("_npi_choice", (a, *weights), {**attrs, "a": None})
        return apply("_npi_take", (a, chosen), {"axis": 0, "mode": "clip"}, out)

    def shuffle(x: Any) -> None:
        """Permutes the slices along the first axis, in place

        >>> x = mx.np.array([1, 2, 3])
        >>> mx.np.random.shuffle(x)
        >>> np.sort(x.asnumpy())
        array([1., 2., 3.], dtype=float32)
        """
        x[:] = apply("_npi_shuffle", (x,))

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
        attrs = {"size": size_of(size, value), "dtype": _type(dtype), "is_logit": prob is None}
        return draw("_npi_bernoulli", {name: value}, attrs, ctx, out)

    def trailing(op: str, first: str, second: str, default: tuple[float, float]) -> Function:
        def function(
            a: Any = default[0], b: Any = default[1], batch_shape: Any = None, dtype: Any = None, ctx: Any = None
        ) -> Any:
            attrs = {"size": _shape(batch_shape or ()), "dtype": _type(dtype)}
            return draw(op, {first: a, second: b}, attrs, ctx)

        name = op.removeprefix("_npi_")
        call = f">>> mx.npx.random.{name}(mx.np.array([2, 3]), 4, batch_shape=3).shape\n(3, 2)"
        function.__doc__ = (
            f"As its namesake of `np.random`, with `batch_shape` in front of the parameters' shape\n\n{call}"
        )
        return function

    def seed(seed: int, ctx: Any = "all") -> None:
        """Seeds the random numbers

        >>> mx.npx.random.seed(7)
        >>> first = mx.np.random.rand(3).asnumpy()
        >>> mx.npx.random.seed(7)
        >>> (mx.np.random.rand(3).asnumpy() == first).all().tolist()
        True
        """
        rng.seed(seed, ctx)

    made = [uniform, normal, rand, randn, randint, multinomial, shuffle, bernoulli, seed]
    made += [gamma, lognormal, beta, chisquare, multivariate_normal, choice]
    made += [distribution(name, {"loc": 0.0, "scale": 1.0}) for name in ("gumbel", "logistic")]
    made += [distribution(name, {"scale": 1.0}) for name in ("exponential", "rayleigh")]
    made += [distribution(name, {"a": None}) for name in ("weibull", "pareto", "power")]
    named: dict[str, Function] = {f.__name__: f for f in made}  # type: ignore[misc]
    named["uniform_n"] = trailing("_npi_uniform_n", "low", "high", (0.0, 1.0))
    named["normal_n"] = trailing("_npi_normal_n", "loc", "scale", (0.0, 1.0))
    for name, function in named.items():
        function.__name__ = name
    return named


def _is_array(x: Any) -> bool:
    if hasattr(x, "as_np_ndarray"):
        return True
    if not np.isscalar(x):
        raise MXNetError(f"a parameter of a random distribution is a number or an array, not {type(x)}")
    return False
