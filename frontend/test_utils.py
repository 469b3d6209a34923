"""`mx.test_utils`: comparisons and random arrays, as tests of models use them."""

from __future__ import annotations

import functools
import json
import numbers
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from gluonjit import autograd, context, io
from gluonjit import ndarray as nd
from gluonjit.context import Context, current_context
from gluonjit.gluon.utils import download
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol
from gluonjit.util import get_gpu_count, getenv, setenv

__all__ = [
    "DummyIter",
    "almost_equal",
    "assert_allclose",
    "assert_almost_equal",
    "assert_almost_equal_ignore_nan",
    "assert_exception",
    "check_gluon_hybridize_consistency",
    "check_numeric_gradient",
    "check_symbolic_backward",
    "check_symbolic_forward",
    "compare_ndarray_tuple",
    "default_atols",
    "default_context",
    "default_dtype",
    "default_rtols",
    "discard_stderr",
    "download",
    "environment",
    "get_atol",
    "get_rtol",
    "get_tols",
    "getenv",
    "list_gpus",
    "np_reduce",
    "rand_coord_2d",
    "rand_ndarray",
    "rand_shape_2d",
    "rand_shape_3d",
    "rand_shape_nd",
    "random_arrays",
    "random_sample",
    "random_uniform_arrays",
    "retry",
    "same",
    "same_array",
    "same_symbol_structure",
    "set_default_context",
    "setenv",
    "simple_forward",
]

# Defaults


def default_context() -> Context:
    return current_context()


def set_default_context(ctx: Context) -> None:
    """Makes `ctx` the context of this thread outside of any `with`."""
    context.placed(ctx)
    context._current.context = ctx


def default_dtype() -> type:
    return np.float32


def default_rtols() -> dict[np.dtype, float]:
    """Relative tolerance by element type."""
    return _tolerances(1e-2, 1e-4, 1e-5)


def default_atols() -> dict[np.dtype, float]:
    """Absolute tolerance by element type."""
    return _tolerances(1e-1, 1e-3, 1e-20)


def _tolerances(f16: float, f32: float, f64: float) -> dict[np.dtype, float]:
    exact = dict.fromkeys(map(np.dtype, ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64")), 0.0)
    return {np.dtype("float16"): f16, np.dtype("float32"): f32, np.dtype("float64"): f64, **exact}


def get_rtol(rtol: float | None = None, dtype: Any = np.float64) -> float:
    return default_rtols()[np.dtype(dtype)] if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = np.float64) -> float:
    return default_atols()[np.dtype(dtype)] if atol is None else atol


def get_tols(x: Any, y: Any, rtol: Any, atol: Any) -> tuple[float, float]:
    """(relative, absolute) tolerance for comparing two arrays: given numbers, or the larger of their types' ones."""

    def choose(given: Any, defaults: Mapping[np.dtype, float]) -> float:
        if isinstance(given, numbers.Number):
            return given  # type: ignore[return-value]
        types = [np.dtype(v.dtype) if hasattr(v, "dtype") else np.asarray(v).dtype for v in (x, y)]
        return max((given or {}).get(t, defaults.get(t, 0.0)) for t in types)

    return choose(rtol, default_rtols()), choose(atol, default_atols())


# Comparisons


def _numpy(x: Any) -> np.ndarray:
    return x.asnumpy() if isinstance(x, NDArray) else np.asarray(x)


def same(a: Any, b: Any) -> bool:
    """Whether shapes and all elements are equal."""
    return np.array_equal(_numpy(a), _numpy(b))


def almost_equal(
    a: Any,
    b: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """Whether |a − b| ≤ atol + rtol · |b| everywhere."""
    a, b = _numpy(a), _numpy(b)
    if not use_broadcast and a.shape != b.shape:
        raise AssertionError(f"a.shape = {a.shape} and b.shape = {b.shape} are not equal")
    return np.allclose(a, b, rtol=get_rtol(rtol), atol=get_atol(atol), equal_nan=equal_nan)


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """AssertionError, with the worst place, unless |a − b| ≤ atol + rtol · |b| everywhere.

    Tolerances are numbers or dicts by element type; by default those of `default_rtols` and `default_atols`.
    """
    rtol, atol = get_tols(a, b, rtol, atol)
    a, b = _numpy(a), _numpy(b)
    if almost_equal(a, b, rtol, atol, equal_nan, use_broadcast):
        return
    x, y = np.broadcast_arrays(a, b)
    x, y = (v.astype(np.float64) if v.dtype.kind in "biu" else v for v in (x, y))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(x == y, 0.0, np.abs(x - y)) / (atol + rtol * np.abs(y) + 1e-20)
    if equal_nan:
        error = np.where(np.isnan(x) & np.isnan(y), 0.0, error)
    worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), error.shape)
    wrong = 100 * float(np.mean(~(error <= 1)))
    raise AssertionError(
        f"\nItems are not equal:\nError {error[worst]} exceeds tolerance rtol={rtol:e}, atol={atol:e} "
        f"(mismatch {wrong}%).\nLocation of maximum error: {tuple(map(int, worst))}, "
        f"{names[0]}={x[worst]:.8f}, {names[1]}={y[worst]:.8f}\n {names[0]}: {a!r}\n {names[1]}: {b!r}"
    )


def assert_allclose(a: Any, b: Any, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True) -> None:
    assert_almost_equal(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, names: tuple[str, str] = ("a", "b")
) -> None:
    """`assert_almost_equal` where neither is NaN."""
    a, b = _numpy(a).copy(), _numpy(b).copy()
    a[np.isnan(b)] = b[np.isnan(a)] = np.nan
    assert_almost_equal(np.nan_to_num(a, nan=0.0), np.nan_to_num(b, nan=0.0), rtol, atol, names)


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Any = None, atol: Any = None) -> None:
    """`assert_almost_equal` of nested tuples of arrays, some of which may be None."""
    if t1 is None or t2 is None:
        return
    if isinstance(t1, tuple):
        for x, y in zip(t1, t2):
            compare_ndarray_tuple(x, y, rtol, atol)
    else:
        assert_almost_equal(t1, t2, rtol=rtol, atol=atol)


def same_array(array1: Any, array2: Any) -> bool:
    """Whether two arrays are the same memory: found by writing to one."""
    array1[:] += 1
    changed = same(array1, array2)
    array1[:] -= 1
    return changed and same(array1, array2)


def assert_exception(f: Callable[..., Any], exception_type: Any, *args: Any, **kwargs: Any) -> None:
    """AssertionError unless `f` raises `exception_type`."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{exception_type} was not raised")


def retry(n: int) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Decorator: a test that fails is run again, `n` times in all."""
    if n < 1:
        raise AssertionError("retry needs at least one attempt")

    def decorate(f: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(f)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            for attempt in range(n):
                try:
                    f(*args, **kwargs)
                    return
                except AssertionError:
                    if attempt == n - 1:
                        raise

        return wrapper

    return decorate


# Random arrays


def random_arrays(*shapes: Sequence[int]) -> Any:
    """Standard normal float32 arrays: a list of them, or one for one shape."""
    arrays: list[np.ndarray] = [np.asarray(np.random.randn(*shape)).astype(default_dtype()) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(*shapes: Any, low: float = 0.0, high: float = 1.0, dtype: Any = np.float32) -> list:
    return [np.asarray(np.random.uniform(low, high, shape)).astype(dtype) for shape in shapes]


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """`k` different elements, in the order of the population."""
    if not 0 <= k <= len(population):
        raise AssertionError(f"cannot take {k} of {len(population)}")
    return [population[i] for i in sorted(np.random.choice(len(population), k, replace=False))]


def rand_ndarray(
    shape: Sequence[int], stype: str = "default", density: Any = None, dtype: Any = None, ctx: Any = None, **kwargs: Any
) -> NDArray:
    """A standard normal array. Every storage type but 'default' is refused."""
    nd.empty((1,), stype=stype)
    return nd.array(random_arrays(shape), dtype=dtype, ctx=ctx or default_context())


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    return _random_shape((dim0, dim1), allow_zero_size)


def rand_shape_3d(dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    return _random_shape((dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    return _random_shape((dim,) * num_dim, allow_zero_size)


def _random_shape(most: Sequence[int], allow_zero_size: bool) -> tuple[int, ...]:
    return tuple(int(np.random.randint(0 if allow_zero_size else 1, n + 1)) for n in most)


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    return int(np.random.randint(x_low, x_high)), int(np.random.randint(y_low, y_high))


def np_reduce(dat: np.ndarray, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]) -> np.ndarray:
    """Applies a reduction of NumPy's to several axes, one after another."""
    axes = [axis] if isinstance(axis, int) else range(dat.ndim) if axis is None else list(axis)
    result = dat
    for k in sorted(axes, reverse=True):
        result = numpy_reduce_func(result, axis=k)
    return result.reshape([1 if k in axes else n for k, n in enumerate(dat.shape)]) if keepdims else result


# Symbols and blocks


def simple_forward(sym: Symbol, ctx: Any = None, is_train: bool = False, **inputs: Any) -> Any:
    """The symbol's results for inputs by name, as NumPy arrays: a list of them, or one."""
    executor = sym.bind(ctx or default_context(), args={name: nd.array(x) for name, x in inputs.items()})
    outputs = [x.asnumpy() for x in executor.forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def check_symbolic_forward(
    sym: Symbol,
    location: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    ctx: Any = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> list[NDArray]:
    """AssertionError unless the symbol computes `expected` from `location`; both are lists, or dicts by name.

    Inputs are cast to `dtype`; 'asnumpy' keeps their own.
    """
    ctx = ctx or default_context()
    arguments = _by_name(sym.list_arguments(), location, ctx, dtype)
    states = _by_name(sym.list_auxiliary_states(), aux_states or [], ctx, dtype)
    if isinstance(expected, Mapping):
        expected = [expected[name] for name in sym.list_outputs()]
    outputs = sym.bind(ctx, args=arguments, aux_states=states).forward(is_train=False)
    for name, expect, output in zip(sym.list_outputs(), expected, outputs):
        names = (f"EXPECTED_{name}", f"FORWARD_{name}")
        assert_almost_equal(expect, output, rtol, atol, names, equal_nan=equal_nan)
    return outputs


def _by_name(names: Sequence[str], values: Any, ctx: Any, dtype: Any) -> dict[str, NDArray]:
    if not isinstance(values, Mapping):
        values = dict(zip(names, values))
    if set(values) != set(names):
        raise ValueError(
            f"Symbol arguments and keys of the given location do not match. symbol args: {sorted(names)}, "
            f"location.keys(): {sorted(values)}"
        )
    return {
        name: x
        if isinstance(x, NDArray)
        else nd.array(x, ctx=ctx, dtype=np.asarray(x).dtype if dtype == "asnumpy" else dtype)
        for name, x in values.items()
    }


def check_symbolic_backward(*args: Any, **kwargs: Any) -> NoReturn:
    autograd.no_gradients("check_symbolic_backward")


def check_numeric_gradient(*args: Any, **kwargs: Any) -> NoReturn:
    autograd.no_gradients("check_numeric_gradient")


def check_gluon_hybridize_consistency(
    net_builder: Callable[..., Any],
    data_l: list[NDArray],
    numpy_func: Callable[..., Any] | None = None,
    test_grad: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    """AssertionError unless a block gives one answer, hybridized or not, and `numpy_func` gives it, too.

    `net_builder(prefix=)` makes the block. `test_grad` must be False: there are no gradients yet.
    """
    if test_grad:
        autograd.no_gradients("check_gluon_hybridize_consistency(test_grad=True)")
    first = net_builder(prefix="net_")
    first.initialize()
    expected = first(*data_l).asnumpy()
    second = net_builder(prefix="net_")
    second.initialize()
    for name, param in second.collect_params().items():
        param.set_data(first.collect_params()[name].data())
    second.hybridize()
    assert_almost_equal(second(*data_l), expected, rtol=rtol, atol=atol)
    if numpy_func is not None:
        assert_almost_equal(expected, numpy_func(*(x.asnumpy() for x in data_l)), rtol=rtol, atol=atol)


def same_symbol_structure(sym1: Symbol, sym2: Symbol) -> bool:
    """Whether two graphs have the same operators in the same order."""
    first, second = ([node["op"] for node in json.loads(s.tojson())["nodes"]] for s in (sym1, sym2))
    return first == second


class DummyIter(io.DataIter):
    """The first batch of an iterator, over and over."""

    def __init__(self, real_iter: Any) -> None:
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data = real_iter.provide_data
        self.provide_label = real_iter.provide_label
        self.the_batch = next(real_iter)

    def next(self) -> Any:
        return self.the_batch


# The process


def list_gpus() -> range:
    return range(get_gpu_count())


@contextmanager
def environment(*args: Any) -> Iterator[None]:
    """`with environment(name, value):` or `with environment({name: value, …}):`; None removes a variable."""
    if len(args) not in (1, 2):
        raise AssertionError("Expecting one dict arg or two args: env var name and value")
    wanted = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {name: getenv(name) for name in wanted}
    for name, value in wanted.items():
        setenv(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setenv(name, value)


@contextmanager
def discard_stderr() -> Iterator[None]:
    """Sends standard error nowhere, that of native code included."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
