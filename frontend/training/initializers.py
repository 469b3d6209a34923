"""Initializers (`mx.init`), which set parameters to their first values.

`init(InitDesc(name, attrs), array)` fills `array` in place. Attribute `__init__` of the description names the
initializer to use; without it the end of the name decides (`_weight`, `_bias`, `_gamma`, …). Random numbers come from
`mx.random`'s generator, so `mx.random.seed` repeats them.
"""

from __future__ import annotations

import math
import re
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit import ndarray
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ndarray import NDArray


class InitDesc(str):
    """The name of an array to initialize, with its variable's attributes and the initializer to fall back to.

    >>> mx.init.InitDesc("conv0_weight", {"__lr_mult__": "2"}).attrs
    {'__lr_mult__': '2'}
    """

    attrs: Mapping[str, Any]
    global_init: Initializer | None

    def __new__(
        cls, name: str, attrs: Mapping[str, Any] | None = None, global_init: Initializer | None = None
    ) -> InitDesc:
        self = super().__new__(cls, name)
        self.attrs = attrs or {}
        self.global_init = global_init
        return self


class Initializer:
    """The base of all initializers. `dumps` writes `kwargs`, and initializers of a class with equal `kwargs` are equal.

    A subclass overrides `_init_weight`, and other `_init_*` methods if it treats these parameters differently.

    >>> @mx.init.register
    ... class Halves(mx.init.Initializer):
    ...     def _init_weight(self, name, array):
    ...         array[:] = 0.5
    >>> layer = nn.Dense(2, in_units=1, weight_initializer="halves")
    >>> layer.initialize()
    >>> layer.weight.data().asnumpy()
    array([[0.5],
           [0.5]], dtype=float32)
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs
        self._verbose = False
        self._print_func: Callable[[NDArray], str] = _mean_norm

    def set_verbosity(self, verbose: bool = False, print_func: Callable[[NDArray], str] | None = None) -> Initializer:
        """Whether to log what is initialized, with `print_func` of the array (default |x|₂/√n) beside it."""
        self._verbose = verbose
        self._print_func = print_func or _mean_norm
        return self

    def dumps(self) -> str:
        """JSON that `create` makes an equal initializer from: `["xavier", {"magnitude": 3, …}]`."""
        import json

        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __repr__(self) -> str:
        given = getattr(self, "_kwargs", {})  # which subclasses of others may not have set
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in given.items())})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Initializer):
            return NotImplemented
        return type(self) is type(other) and self._kwargs == other._kwargs

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, desc: InitDesc | str, arr: NDArray) -> None:
        if not isinstance(desc, InitDesc):
            self._by_name(desc, arr)
            return
        if desc.global_init is None:
            desc.global_init = self
        init = desc.attrs.get("__init__", "")
        if init:
            create(init)._init_weight(desc, arr)
            self._log(desc, init, arr)
            return
        for suffix, method in _BY_SUFFIX.items():
            if desc.endswith(suffix):
                getattr(self, method)(desc, arr)
                self._log(desc, suffix, arr)
                return
        self._init_default(desc, arr)

    def _log(self, desc: str, how: Any, arr: NDArray) -> None:
        if self._verbose:
            import logging

            logging.info("Initialized %s as %s: %s", desc, how, self._print_func(arr))

    def _by_name(self, name: str, arr: NDArray) -> None:
        """Chooses the method by the name alone, as MXNet did before it had `InitDesc`."""
        warnings.warn(
            "Calling initializer with init(str, NDArray) has been deprecated. "
            "Please use init(mx.init.InitDesc(...), NDArray) instead.",
            DeprecationWarning,
            stacklevel=3,
        )
        if not isinstance(name, str):
            raise TypeError("name must be string")
        if not isinstance(arr, NDArray):
            raise TypeError("arr must be NDArray")
        for pattern, method in _BY_PATTERN.items():
            if re.search(pattern, name):
                getattr(self, method)(name, arr)
                return
        self._init_default(name, arr)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError("Must override it")

    def _init_zero(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_one(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_bias(self, name: str, arr: NDArray) -> None:
        self._init_zero(name, arr)

    def _init_gamma(self, name: str, arr: NDArray) -> None:
        self._init_one(name, arr)

    def _init_beta(self, name: str, arr: NDArray) -> None:
        self._init_zero(name, arr)

    def _init_quantized_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = np.rint(_uniform(-127, 127, arr).asnumpy()).astype(np.int8)

    def _init_quantized_bias(self, name: str, arr: NDArray) -> None:
        self._init_zero(name, arr)

    def _init_bilinear(self, name: str, arr: NDArray) -> None:
        arr[:] = _bilinear(arr.shape)

    def _init_loc_bias(self, name: str, arr: NDArray) -> None:
        if arr.shape[0] != 6:
            raise AssertionError(f"{name} must hold the 6 numbers of an affine map, not {arr.shape[0]}")
        arr[:] = np.array([1.0, 0, 0, 0, 1.0, 0])

    def _init_default(self, name: str, arr: NDArray) -> None:
        raise ValueError(
            f"Unknown initialization pattern for {name}. Default initialization is now limited to "
            '"weight", "bias", "gamma" (1.0), and "beta" (0.0).'
            "Please use mx.sym.Variable(init=mx.init.*) to set initialization pattern"
        )


_BY_SUFFIX = {
    "weight": "_init_weight",
    "bias": "_init_bias",
    "gamma": "_init_gamma",
    "beta": "_init_beta",
    "min": "_init_zero",
    "max": "_init_one",
    "weight_quantize": "_init_quantized_weight",
    "bias_quantize": "_init_quantized_bias",
}

_BY_PATTERN = {
    "^upsampling": "_init_bilinear",
    "^stn_loc.*weight$": "_init_zero",
    "^stn_loc.*bias$": "_init_loc_bias",
    "bias$": "_init_bias",
    "gamma$": "_init_gamma",
    "beta$": "_init_beta",
    "weight$": "_init_weight",
    "moving_mean$": "_init_zero",
    "moving_var$": "_init_one",
    "moving_inv_var$": "_init_zero",
    "moving_avg$": "_init_zero",
    "min$": "_init_zero",
    "max$": "_init_one",
}


def _mean_norm(arr: NDArray) -> str:
    return str(np.float32(np.linalg.norm(arr.asnumpy().astype(np.float64)) / math.sqrt(arr.size)))


# The registry: initializers by name.

_CLASSES: dict[str, type[Initializer]] = {}
_INSTANCES: weakref.WeakValueDictionary[str, Initializer] = weakref.WeakValueDictionary()


def _register_as(name: str, klass: type[Initializer]) -> None:
    if not issubclass(klass, Initializer):
        raise AssertionError("Can only register subclass of Initializer")
    name = name.lower()
    old = _CLASSES.get(name)
    if old is not None:
        warnings.warn(
            f"New initializer {klass.__module__}.{klass.__name__} registered with name {name} is "
            f"overriding existing initializer {old.__module__}.{old.__name__}",
            UserWarning,
            stacklevel=3,
        )
    _CLASSES[name] = klass


def register(klass: type[Initializer]) -> type[Initializer]:
    """Class decorator: makes the initializer known by its class name in lower case."""
    _register_as(klass.__name__, klass)
    return klass


def alias(*names: str) -> Callable[[type[Initializer]], type[Initializer]]:
    """Class decorator: makes the initializer known by more names."""

    def decorate(klass: type[Initializer]) -> type[Initializer]:
        for name in names:
            _register_as(name, klass)
        return klass

    return decorate


def register_instance(name: str, init: Initializer) -> None:
    """Makes one object known by a name, for as long as it lives."""
    _INSTANCES[name.lower()] = init


def create(initializer: Any, *args: Any, **kwargs: Any) -> Initializer:
    """An initializer from a name and arguments, from what `dumps` wrote, or as it is when it is one already."""
    if isinstance(initializer, Initializer):
        if args or kwargs:
            raise AssertionError("initializer is already an instance. Additional arguments are invalid")
        return initializer
    if isinstance(initializer, dict):
        return create(**initializer)
    if not isinstance(initializer, str):
        made = f": write {initializer.__name__}(), which makes one" if isinstance(initializer, type) else ""
        raise AssertionError(f"initializer must be of string type{made}")
    if initializer.startswith(("[", "{")):
        if args or kwargs:
            raise AssertionError("an initializer given as JSON takes no further arguments")
        import json

        described = json.loads(initializer)
        return create(described[0], **described[1]) if isinstance(described, list) else create(**described)
    name = initializer.lower()
    if name in _INSTANCES:
        return _INSTANCES[name]
    if name not in _CLASSES:
        raise AssertionError(
            f"{name} is not registered. Please register with initializer.register first{did_you_mean(name, _CLASSES)}"
        )
    return _CLASSES[name](*args, **kwargs)


# Sources of numbers.


def _uniform(low: float, high: float, like: NDArray, shape: Sequence[int] | None = None) -> NDArray:
    """Uniform numbers for an array like `like`, drawn in float64 for a float64 one and in float32 for all others."""
    dtype = "float64" if like.dtype == np.float64 else "float32"
    return ndarray.random.uniform(low, high, shape=like.shape if shape is None else shape, dtype=dtype)


def _fill_uniform(low: float, high: float, array: NDArray) -> None:
    """Overwrites an array by such numbers."""
    if array.dtype == np.float32 and array.stype == "default" and array._grad_state is None:
        ndarray.random.uniform(low, high, shape=array.shape, out=array)  # without a copy of them
    else:
        array[:] = _uniform(low, high, array)


def _normal(sigma: float, like: NDArray, shape: Sequence[int] | None = None) -> NDArray:
    """Normal numbers with mean 0, as `_uniform`."""
    dtype = "float64" if like.dtype == np.float64 else "float32"
    return ndarray.random.normal(0.0, sigma, shape=like.shape if shape is None else shape, dtype=dtype)


def _bilinear(shape: Sequence[int]) -> np.ndarray:
    """The upsampling kernel over the last two axes: (1 − |x/f − c|)·(1 − |y/f − c|)."""
    f = math.ceil(shape[3] / 2.0)
    c = (2 * f - 1 - f % 2) / (2.0 * f)
    rows, columns = (1 - np.abs(np.arange(n) / f - c) for n in shape[2:4])
    return np.broadcast_to(np.outer(rows, columns), shape).astype(np.float32)


# Initializers.


@register
@alias("zeros")
class Zero(Initializer):
    """All 0.

    >>> p = gluon.Parameter("weight", shape=(2,), init=mx.init.Zero())
    >>> p.initialize()
    >>> p.data().asnumpy()
    array([0., 0.], dtype=float32)
    """

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 0


@register
@alias("ones")
class One(Initializer):
    """All 1.

    >>> p = gluon.Parameter("weight", shape=(2,), init=mx.init.One())
    >>> p.initialize()
    >>> p.data().asnumpy()
    array([1., 1.], dtype=float32)
    """

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 1


@register
class Constant(Initializer):
    """A number, or an array of the parameter's shape.

    >>> p = gluon.Parameter("weight", shape=(2,), init=mx.init.Constant(3))
    >>> p.initialize()
    >>> p.data().asnumpy()
    array([3., 3.], dtype=float32)
    """

    def __init__(self, value: Any) -> None:
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value

    def __eq__(self, other: object) -> bool:
        if type(other) is not Constant:
            return super().__eq__(other)
        return np.array_equal(_to_numpy(self.value), _to_numpy(other.value))

    __hash__ = None  # type: ignore[assignment]

    def dumps(self) -> str:
        import json

        value = self.value if np.isscalar(self.value) else _to_numpy(self.value).tolist()
        return json.dumps(["constant", {"value": value}])


def _to_numpy(value: Any) -> np.ndarray:
    # Not `asnumpy`: blocks may be traced meanwhile, to which its elements are a value that is not known yet.
    return value._array if isinstance(value, NDArray) else np.asarray(value)


@register
class Uniform(Initializer):
    """Uniform over [-scale, scale].

    >>> p = gluon.Parameter("weight", shape=(1000,), init=mx.init.Uniform(0.5))
    >>> p.initialize()
    >>> 0.4 < float(p.data().abs().max().asscalar()) <= 0.5
    True
    """

    def __init__(self, scale: float = 0.07) -> None:
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _fill_uniform(-self.scale, self.scale, arr)


@register
class Normal(Initializer):
    """Normal with mean 0 and standard deviation `sigma`.

    >>> p = gluon.Parameter("weight", shape=(1000,), init=mx.init.Normal(2))
    >>> p.initialize()
    >>> 1.5 < float(p.data().asnumpy().std()) < 2.5
    True
    """

    def __init__(self, sigma: float = 0.01) -> None:
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = _normal(self.sigma, arr)


@register
class Orthogonal(Initializer):
    """`scale` times a matrix with orthonormal rows or columns (arXiv:1312.6120), from a random one by SVD.

    Weights (rows, …), seen as a matrix (rows, product of the other axes).

    >>> p = gluon.Parameter("weight", shape=(2, 3), init=mx.init.Orthogonal(scale=1))
    >>> p.initialize()
    >>> (mx.nd.dot(p.data(), p.data().T).asnumpy().round(3) + 0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        flat = (arr.shape[0], math.prod(arr.shape[1:]))
        if self.rand_type == "uniform":
            random = _uniform(-1.0, 1.0, arr, flat)
        elif self.rand_type == "normal":
            random = _normal(1.0, arr, flat)
        else:
            raise ValueError(f"Unknown random type {self.rand_type!r}: 'uniform' and 'normal' are known")
        u, _, v = np.linalg.svd(random.asnumpy(), full_matrices=False)
        arr[:] = self.scale * (u if u.shape == flat else v).reshape(arr.shape)


@register
class Xavier(Initializer):
    """Keeps the scale of gradients similar in all layers: spread c = √(magnitude / factor).

    `factor` is fan-in, fan-out or their mean (`factor_type` 'in', 'out', 'avg'); `rnd_type` 'uniform' draws from
    [-c, c], 'gaussian' with standard deviation c.

    Glorot and Bengio (2010). Fan-in is the product of all axes but the first, fan-out of all but the second. ValueError
    for weights of fewer than two axes.

    >>> p = gluon.Parameter("weight", shape=(10, 20), init=mx.init.Xavier())
    >>> p.initialize()
    >>> float(p.data().abs().max().asscalar()) <= (3 / 15) ** 0.5
    True
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        shape = arr.shape
        if len(shape) < 2:
            raise ValueError(f"Xavier initializer cannot be applied to vector {name}. It requires at least 2D.")
        window = math.prod(shape[2:])
        fan_in, fan_out = shape[1] * window, shape[0] * window
        factors = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}
        if self.factor_type not in factors:
            raise ValueError("Incorrect factor type")
        scale = math.sqrt(self.magnitude / factors[self.factor_type])
        if self.rnd_type == "uniform":
            _fill_uniform(-scale, scale, arr)
        elif self.rnd_type == "gaussian":
            arr[:] = _normal(scale, arr)
        else:
            raise ValueError("Unknown random type")


@register
class MSRAPrelu(Xavier):
    """Gaussian Xavier of magnitude 2 / (1 + slope²), for (P)ReLU (arXiv:1502.01852).

    >>> p = gluon.Parameter("weight", shape=(100, 100), init=mx.init.MSRAPrelu(slope=0))
    >>> p.initialize()
    >>> 0.13 < float(p.data().asnumpy().std()) < 0.15
    True
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Bilinear(Initializer):
    """Upsampling by bilinear interpolation, for transposed convolutions.

    >>> p = gluon.Parameter("weight", shape=(1, 1, 4, 4), init=mx.init.Bilinear())
    >>> p.initialize()
    >>> (p.data().asnumpy()[0, 0, 0] * 16).tolist()
    [1.0, 3.0, 3.0, 1.0]
    """

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = _bilinear(arr.shape)


@register
class LSTMBias(Initializer):
    """0, except the forget gate's quarter (the second), which is `forget_bias`.

    >>> p = gluon.Parameter("bias", shape=(4,), init=mx.init.LSTMBias(2))
    >>> p.initialize()
    >>> p.data().asnumpy()
    array([0., 2., 0., 0.], dtype=float32)
    """

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        hidden = arr.shape[0] // 4
        arr[:] = 0.0
        arr[hidden : 2 * hidden] = self.forget_bias


@register
class FusedRNN(Initializer):
    """Fills the packed parameter vector of a fused RNN: `init` fills each gate's weights and biases in turn.

    The vector holds, layer by layer and direction by direction, all input-to-hidden then hidden-to-hidden weights,
    gate after gate; then the biases in the same order.

    >>> vector = mx.nd.zeros((2 * 3 + 2 * 2 + 2 + 2,))  # W_i2h, W_h2h, b_i2h, b_h2h of 2 units for 3 inputs
    >>> init = mx.init.FusedRNN(mx.init.One(), num_hidden=2, num_layers=1, mode="rnn_tanh")
    >>> init(mx.init.InitDesc("rnn_weight"), vector)
    >>> vector.asnumpy().tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """

    _GATES = {"rnn_relu": ("",), "rnn_tanh": ("",), "lstm": ("_i", "_f", "_c", "_o"), "gru": ("_r", "_z", "_o")}

    def __init__(
        self,
        init: Initializer | str | None,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        if isinstance(init, str):
            init = create(init)
        super().__init__(
            init=init.dumps() if init is not None else None,
            num_hidden=num_hidden,
            num_layers=num_layers,
            mode=mode,
            bidirectional=bidirectional,
            forget_bias=forget_bias,
        )
        if mode not in self._GATES:
            raise ValueError(f"Unknown mode {mode!r}{did_you_mean(mode, self._GATES)}")
        self._init = init
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._mode = mode
        self._directions = "lr" if bidirectional else "l"
        self._forget_bias = forget_bias

    def _parts(self, size: int) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of every gate's weight and bias, in the order of the packed vector."""
        h, gates, directions = self._num_hidden, self._GATES[self._mode], len(self._directions)
        per_direction = len(gates) * h
        # The first layer's i2h weights are what remains of `size` without biases, h2h weights and upper i2h weights.
        upper = (self._num_layers - 1) * (h * directions + h + 2)
        first = size // (per_direction * directions) - upper - h - 2
        weights: list[tuple[str, tuple[int, ...]]] = []
        biases: list[tuple[str, tuple[int, ...]]] = []
        for layer in range(self._num_layers):
            for direction in self._directions:
                for kind, width in (("i2h", h * directions if layer else first), ("h2h", h)):
                    for gate in gates:
                        stem = f"{direction}{layer}_{kind}{gate}"
                        weights.append((f"{stem}_weight", (h, width)))
                        biases.append((f"{stem}_bias", (h,)))
        return weights + biases

    def _init_weight(self, name: str, arr: NDArray) -> None:
        start = 0
        packed = np.empty(arr.size, np.float32)
        fallback = self._init or getattr(name, "global_init", None) or Uniform()
        for part, shape in self._parts(arr.size):
            piece = ndarray.zeros(shape)
            if self._mode == "lstm" and part.endswith("_f_bias"):
                piece[:] = self._forget_bias
            else:
                fallback(InitDesc(part, global_init=getattr(name, "global_init", None)), piece)
            packed[start : start + piece.size] = piece.asnumpy().reshape(-1)
            start += piece.size
        if start != arr.size:
            raise ValueError(
                f"{name} has {arr.size} numbers, but an RNN of mode {self._mode} with {self._num_layers} layers of "
                f"{self._num_hidden} units has {start}"
            )
        arr[:] = packed.reshape(arr.shape)


class Load:
    """Takes values by name from `param`, a dict of arrays or the file of one; others from `default_init`.

    >>> array = mx.nd.zeros((2,))
    >>> mx.init.Load({"arg:w": mx.nd.array([1, 2])})("w", array)
    >>> array.asnumpy()
    array([1., 2.], dtype=float32)
    """

    def __init__(self, param: str | Mapping[str, NDArray], default_init: Any = None, verbose: bool = False) -> None:
        arrays = ndarray.load(param) if isinstance(param, str) else param
        if not isinstance(arrays, Mapping):
            raise AssertionError(f"Load needs named arrays, not a {type(arrays).__name__}")
        self.param = {name[4:] if name.startswith(("arg:", "aux:")) else name: arr for name, arr in arrays.items()}
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, arr: NDArray) -> None:
        if name in self.param:
            loaded = self.param[name]
            if arr.shape != loaded.shape:
                raise AssertionError(
                    f"Parameter {name} cannot be initialized from loading. "
                    f"Shape mismatch, target {arr.shape} vs loaded {loaded.shape}"
                )
            arr[:] = loaded
        else:
            if self.default_init is None:
                raise AssertionError(
                    f"Cannot Initialize {name}. Not found in loaded param and no default Initializer is provided."
                )
            self.default_init(name, arr)
        if self.verbose:
            import logging

            logging.info("Initialized %s by %s", name, "loading" if name in self.param else "default")


class Mixed:
    """The first of `patterns` (regular expressions, matched at the start) that fits the name picks the initializer.

    >>> init = mx.init.Mixed(["embedding", ".*"], [mx.init.One(), mx.init.Zero()])
    >>> arrays = {"embedding_weight": mx.nd.zeros((1,)), "other_weight": mx.nd.ones((1,))}
    >>> for name, array in arrays.items():
    ...     init(mx.init.InitDesc(name), array)
    >>> [array.asscalar().item() for array in arrays.values()]
    [1.0, 0.0]
    """

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Any]) -> None:
        if len(patterns) != len(initializers):
            raise AssertionError(f"{len(patterns)} patterns, but {len(initializers)} initializers")
        self.map = [(re.compile(p), init) for p, init in zip(patterns, initializers)]

    def __call__(self, name: str, arr: NDArray) -> None:
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        raise ValueError(
            f'Parameter name {name} did not match any pattern. Consider adding a ".*" pattern at the end '
            "with default Initializer."
        )
