"""Functions of `mx.np` that create arrays: filled ones, ranges, windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.base import integer_types
from gluonjit.context import current_context
from gluonjit.numpy.dispatch import apply
from gluonjit.numpy.methods import row_major
from gluonjit.operators.registry import get

Function = Callable[..., Any]


def as_shape(value: Any) -> tuple[int, ...]:
    return (int(value),) if isinstance(value, (*integer_types, np.integer)) else tuple(value)


def as_type(dtype: Any, default: Any = "float32") -> Any:
    return default if dtype is None else dtype


Make = Callable[..., Any]
"""`make(op, attrs, ctx, out=None)`: the result of an operator without inputs, an array or a symbol."""


def functions(symbolic: bool) -> dict[str, Function]:
    """The functions of `np` itself, by name."""

    def make(op: str, attrs: dict[str, Any], ctx: Any, out: Any = None) -> Any:
        if not symbolic:
            attrs["ctx"] = str(current_context() if ctx is None else ctx)
        return apply(op, (), attrs, out, symbolic=symbolic)

    made = [*_filled(make), *_matrices(make), *_progressions(make), *_windows(make)]
    named: dict[str, Function] = {f.__name__: f for f in made}  # type: ignore[misc]
    for function in made:
        function.__module__ = "gluonjit.numpy"
    return named


def _filled(make: Make) -> list[Function]:
    """Arrays filled with one number."""

    def zeros(shape: Any, dtype: Any = None, order: str = "C", ctx: Any = None) -> Any:
        """Zeros in the given shape; float32 unless `dtype` says otherwise

        >>> mx.np.zeros((2, 3)).asnumpy()
        array([[0., 0., 0.],
               [0., 0., 0.]], dtype=float32)
        """
        row_major(order)
        return make("_npi_zeros", {"shape": as_shape(shape), "dtype": as_type(dtype)}, ctx)

    def ones(shape: Any, dtype: Any = None, order: str = "C", ctx: Any = None) -> Any:
        """Ones in the given shape; float32 unless `dtype` says otherwise

        >>> mx.np.ones(3, dtype="int32").asnumpy()
        array([1, 1, 1], dtype=int32)
        """
        row_major(order)
        return make("_npi_ones", {"shape": as_shape(shape), "dtype": as_type(dtype)}, ctx)

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
        row_major(order)
        shape = as_shape(shape)
        if hasattr(fill_value, "as_np_ndarray"):
            y = apply("_npi_broadcast_to", (fill_value,), {"shape": shape}, out if dtype is None else None)
            return y if dtype is None else apply("_npi_cast", (y,), {"dtype": dtype}, out)
        own = as_type(dtype, "bool" if isinstance(fill_value, bool) else "float32")
        return make("_npi_full", {"shape": shape, "value": float(fill_value), "dtype": own}, ctx, out)

    def full_like(
        a: Any, fill_value: float, dtype: Any = None, order: str = "C", ctx: Any = None, out: Any = None
    ) -> Any:
        """The same number everywhere, in the shape and element type of `a`

        >>> mx.np.full_like(mx.np.array([1, 2]), 7).asnumpy()
        array([7., 7.], dtype=float32)
        """
        row_major(order)
        return apply("_npi_full_like", (a,), {"fill_value": float(fill_value), "dtype": dtype}, out)

    return [
        zeros,
        ones,
        empty,
        full,
        full_like,
        *map(_filled_like, ("zeros_like", "ones_like", "empty_like"), (0.0, 1.0, 0.0)),
    ]


def _filled_like(name: str, value: float) -> Function:
    """`zeros_like` and its like."""

    def function(a: Any, dtype: Any = None, order: str = "C", ctx: Any = None, out: Any = None) -> Any:
        row_major(order)
        return apply("_npi_full_like", (a,), {"fill_value": value, "dtype": dtype}, out)

    shown = "ones_like" if value else "zeros_like"
    call = f">>> mx.np.{shown}(mx.np.array([5, 6])).asnumpy()\narray([{value:g}., {value:g}.], dtype=float32)"
    function.__name__ = name
    function.__doc__ = f"{value:g} everywhere, in the shape and element type of `a`\n\n{call}"
    return function


def _matrices(make: Make) -> list[Function]:
    """Matrices with ones on a diagonal, and the indices of a grid."""

    def eye(N: int, M: Any = None, k: int = 0, dtype: Any = np.float32, **kwargs: Any) -> Any:
        """Ones on the k-th diagonal, zeros elsewhere

        >>> mx.np.eye(2, 3, k=1).asnumpy()
        array([[0., 1., 0.],
               [0., 0., 1.]], dtype=float32)
        """
        return make("_npi_eye", {"N": N, "M": M, "k": int(k), "dtype": as_type(dtype)}, kwargs.get("ctx"))

    def identity(n: int, dtype: Any = None, ctx: Any = None) -> Any:
        """A square matrix with ones on its diagonal

        >>> mx.np.identity(2).asnumpy()
        array([[1., 0.],
               [0., 1.]], dtype=float32)
        """
        return make("_npi_identity", {"shape": (n, n), "dtype": as_type(dtype)}, ctx)

    def indices(dimensions: Any, dtype: Any = np.int32, ctx: Any = None) -> Any:
        """The indices of each element of a grid, along a new first axis

        >>> mx.np.indices((2, 2)).asnumpy().tolist()
        [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
        """
        if not isinstance(dimensions, (tuple, list)):
            raise ValueError("The dimensions must be sequence of ints")
        return make("_npi_indices", {"dimensions": tuple(dimensions), "dtype": as_type(dtype, "int32")}, ctx)

    return [eye, identity, indices]


def _progressions(make: Make) -> list[Function]:
    """Arithmetic and geometric progressions."""

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
        return make("_npi_arange", {**attrs, "dtype": as_type(dtype)}, ctx)

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
        attrs = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": as_type(dtype)}
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
        attrs = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "base": base, "dtype": as_type(dtype)}
        return make("_npi_logspace", attrs, ctx)

    return [arange, linspace, logspace]


def _windows(make: Make) -> list[Function]:
    """Windows for the analysis of signals."""

    def window(name: str) -> Function:
        def function(M: int, dtype: Any = np.float32, ctx: Any = None) -> Any:
            return make(f"_npi_{name}", {"M": M, "dtype": as_type(dtype)}, ctx)

        function.__name__, function.__doc__ = name, get(f"_npi_{name}").doc
        return function

    return [window(name) for name in ("hanning", "hamming", "blackman")]
