"""`mx.nd.NDArray`: a NumPy array with MXNet's interface and MXNet's aliasing rules.

Views of the array's memory: `x[i]`, `x[i:j]`, any basic index whose elements are contiguous, `reshape`, `detach`.
`as_in_context` and `astype(copy=False)` return the array itself if nothing changes. Everything else copies.
An NDArray's memory is always C-contiguous.
"""

from __future__ import annotations

import ctypes
import math
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.base import MXNetError, numeric_types
from gluonjit.context import Context, cpu, placed
from gluonjit.files import params
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.quiet import quiet
from gluonjit.ir.types import DTYPES, I16, IRError, dtype, type_of
from gluonjit.language import late, rng
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.array import Array, add_methods
from gluonjit.language.kinds import as_np
from gluonjit.language.modes import modes
from gluonjit.language.running import recorded, running
from gluonjit.language.source import refusal
from gluonjit.ndarray import index_keys
from gluonjit.ndarray.variable import Variable
from gluonjit.operators import support
from gluonjit.operators.movement.shape import decode_shape
from gluonjit.operators.registry import OperatorError
from gluonjit.runtime import forks
from gluonjit.runtime.eager import Eager, Exact
from gluonjit.runtime.storage import Storage

if TYPE_CHECKING:  # with the methods that `add_methods` and `array_arithmetic` add
    from gluonjit.ndarray.array_methods import NDArrayMethods
else:
    NDArrayMethods = Array

_new = object.__new__
_CPU = cpu(0)
_making_storage = forks.held()

_lent: weakref.WeakValueDictionary[int, NDArray] = weakref.WeakValueDictionary()
"""The arrays whose handle has been handed out, by handle."""

sparse_zeros: dict[str, Callable[..., Any]] = {}
"""By storage type: `(shape, dtype, device)` gives a function that makes arrays of zeros; `sparse_arrays` adds them."""

EAGER = {training: Eager(training, rng.next_key) for training in (False, True)}
"""The emitters that evaluate expansions on arrays, by training mode."""
EXACT = {training: Exact(training, rng.next_key) for training in (False, True)}
"""The emitters for what `needs_exact`."""


class NDArray(NDArrayMethods):
    """A multidimensional array of one element type, made by `nd.array`, `nd.zeros`, … and by operators.

    `_array` holds the elements. `_storage` is the identity of that memory, shared with all views; it is made on first
    use (`storage`). `_grad_state` is None, or says what `backward` has to know (`autodiff/tape.py`).

    >>> x = mx.nd.array([[1, 2], [3, 4]])
    >>> x.shape, x.dtype.__name__, x.context
    ((2, 2), 'float32', cpu(0))
    >>> x[0] = 0  # views share memory: x[0], x[1:2], x.reshape(…)
    >>> (x * 2 + 1).sum(axis=0).asnumpy()
    array([ 8., 10.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_array", "_grad_state", "_storage")

    __array_priority__ = 1000.0  # NumPy leaves `np.float32(2) + x` to NDArray

    _array: np.ndarray
    _storage: Storage | None
    _grad_state: Any

    def __init__(self, array: np.ndarray | ctypes.c_void_p | None, writable: bool = True) -> None:
        """Wraps `array` without a copy if it is C-contiguous. Users call `nd.array`, which copies. None: an array
        without elements, to which `__setstate__` gives some.

        Programs written for MXNet also pass a handle: `NDArray(ctypes.cast(x, NDArrayHandle))`, where a hook was
        called with `x`, shares memory with `x`. ValueError if that array no longer exists.
        """
        self._storage = None
        self._grad_state = None
        if array is None:
            array = np.empty(0, np.float32)
        if isinstance(array, np.ndarray):
            self._array = np.ascontiguousarray(array).reshape(array.shape)
            return
        lent = _lent.get(array.value or 0)
        if lent is None:
            raise ValueError(f"{array} is not the handle of an existing array")
        self._array = lent._array[...]
        self._array.flags.writeable = writable and lent.writable
        self._storage = lent.storage()
        self._storage.aliased = True

    @staticmethod
    def _wrap(array: np.ndarray) -> NDArray:
        """An NDArray that takes over a C-contiguous array without a copy."""
        x = _new(NDArray)
        x._array = array
        x._storage = None
        x._grad_state = None
        return x

    @staticmethod
    def _wrap_alike(array: np.ndarray) -> NDArray:
        """`_wrap` for the class of `self`."""
        return NDArray._wrap(array)

    def _view(self, array: np.ndarray) -> NDArray:
        """An NDArray on `array`, which is a view of this one's memory."""
        x = NDArray._wrap(array)
        x._storage = storage = self.storage()
        storage.aliased = True
        return x

    def storage(self) -> Storage:
        """The identity of this array's memory: the same object for all its views."""
        storage = self._storage
        if storage is None:
            with _making_storage:  # two threads that take views at once must get the same storage
                storage = self._storage
                if storage is None:
                    storage = self._storage = Storage()
        return storage

    def _wrote(self) -> None:
        """Must follow every write to the elements: compiled code then recomputes what it derived from them."""
        if self._storage is not None:
            self._storage.wrote()

    @property
    def _stand_in(self) -> np.ndarray:
        """An array of the same shape and element type, for what does not look at elements."""
        return self._array

    # Properties.

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        return self._array.size

    @property
    def dtype(self) -> type:
        """The element type as NumPy scalar type, such as `numpy.float32`."""
        return self._array.dtype.type

    @property
    def stype(self) -> str:
        return "default"

    @property
    def _device(self) -> Context | None:
        """The context; None for cpu(0), the common case."""
        return None if self._storage is None else self._storage.context

    @property
    def context(self) -> Context:
        return self._device or _CPU

    ctx = context

    @property
    def writable(self) -> bool:
        return self._array.flags.writeable

    @writable.setter
    def writable(self, value: bool) -> None:
        self._array.flags.writeable = value

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """The handle that ctypes passes for this array; `NDArray(handle)` accepts it while the array exists."""
        _lent[id(self)] = self
        return ctypes.c_void_p(id(self))

    @property
    def handle(self) -> ctypes.c_void_p:
        """The address of the elements."""
        return ctypes.c_void_p(self._array.ctypes.data)

    def __repr__(self) -> str:
        return f"\n{self._array}\n<{type(self).__name__} {'x'.join(map(str, self.shape))} @{self.context}>"

    def _repr_html_(self) -> str:
        from html import escape

        kind = f"{type(self).__name__} {'×'.join(map(str, self.shape)) or 'scalar'} {self._array.dtype} @{self.context}"
        return f"<div><pre>{escape(str(self._array))}</pre><i>{escape(kind)}</i></div>"

    def __len__(self) -> int:
        return self.shape[0]

    def __hash__(self) -> int:
        return id(self) // 16

    @recorded
    def __bool__(self) -> bool:
        if self.size > 1:
            why = (
                "The truth value of an NDArray with multiple elements is ambiguous. Reduce it, as by x.sum() or x.max()"
            )
            raise self._refused(ValueError, "__bool__", why)
        return bool(self.size and self.asscalar())

    @recorded
    def __float__(self) -> float:
        if self.size != 1:
            raise TypeError("float() argument must be a string or a real number, not 'NDArray'")
        return float(self.asscalar())

    @recorded
    def __int__(self) -> int:
        if self.size != 1:
            raise TypeError("int() argument must be a string, a bytes-like object or a real number, not 'NDArray'")
        return int(self.asscalar())

    @recorded
    def __index__(self) -> int:
        if self.size != 1 or self._array.dtype.kind not in "iu":
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self.asscalar())

    # Conversions and copies.

    @recorded
    def asnumpy(self) -> np.ndarray:
        """A NumPy copy."""
        return self._array.copy()

    @recorded
    def asscalar(self) -> Any:
        """The one element, as NumPy scalar."""
        if self._array.size != 1:
            why = "The current array is not a scalar; asnumpy() returns all its elements"
            raise self._refused(ValueError, "asscalar", why)
        return self._array.reshape(-1)[0]

    @recorded
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("NumPy can only get a copy of an NDArray's elements; copy=False is not possible")
        return np.array(self._array, dtype)

    def wait_to_read(self) -> None:
        """Returns at once, as calls are synchronous, unless the array is deferred (`ndarray/deferred.py`)."""

    @recorded
    def copy(self) -> NDArray:
        return _placed_copy(self._array, self.context)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> NDArray:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _placed_copy, (self._array, self.context)

    def __getstate__(self) -> dict[str, Any]:
        """The array as MXNet's pickles hold it."""
        return {"handle": params.record(self._array)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Becomes the array in a pickle of MXNet's, on the CPU, whatever device wrote it."""
        handle = state["handle"]
        self.__init__(None if handle is None else params.parse_record(handle, "a pickled array"))  # type: ignore[misc]

    @recorded
    def copyto(self, other: NDArray | Context) -> Any:
        """Copies the elements into `other`, which has the same shape and any element type, or to a new array on a
        context. Returns the target; False, with a warning, for the array itself."""
        if isinstance(other, Context):
            return _placed_copy(self._array, other)
        if not isinstance(other, NDArray):
            raise TypeError(f"copyto does not support type {type(other)}")
        if other._array is self._array:
            warnings.warn("You are attempting to copy an array to itself", RuntimeWarning, stacklevel=2)
            return False
        if other.shape != self.shape:
            raise self._refused(
                MXNetError,
                "copyto",
                f"Incompatible attr in node  at 0-th output: expected {list(self.shape)}, got {list(other.shape)}; the "
                "target must have the same shape",
            )
        other._store(convert(self._array, np.dtype(other.dtype)))
        return other

    def _refused(self, kind: type[Exception], method: str, why: object) -> Exception:
        """The error of a method of this array: with its name, the array's type and the user's line."""
        return refusal(kind, f"{type(self).__name__}.{method}({type_of(self._stand_in)})", why)

    def _store(self, elements: np.ndarray) -> None:
        """Replaces all elements by those of an array of the same shape and type."""
        if elements is not self._array:
            self._array[...] = elements
        self._wrote()

    def as_in_context(self, context: Context) -> NDArray:
        return self if context == self.context else self.copyto(context)

    @recorded
    def astype(self, dtype: Any, copy: bool = True) -> NDArray:
        target = element_type(dtype)
        if not copy and target == self._array.dtype:
            return self
        return _placed_copy(convert(self._array, target), self.context)

    @recorded
    def detach(self) -> NDArray:
        """A view of the whole array that is not part of the gradient graph."""
        return self._view(self._array)

    def tostype(self, stype: str) -> NDArray:
        """A copy in another storage type: `'default'` (dense), `'row_sparse'` or `'csr'`."""
        if stype == "csr" and self.ndim != 2:
            raise ValueError(f"To convert to a CSR, the NDArray should be 2 Dimensional. Current shape is {self.shape}")
        return NDArray._functions.cast_storage(self, stype=stype)

    def as_nd_ndarray(self) -> NDArray:
        return self

    @recorded
    def as_np_ndarray(self) -> Any:
        """The `mx.np.ndarray` on the same memory."""
        return as_np(self._view(self._array))

    # Indexing.

    @recorded
    def __getitem__(self, key: Any) -> NDArray:
        array = self._array
        shape = array.shape
        if isinstance(key, index_keys.integer_types):
            # Its IndexError is also what ends `for row in x`.
            return self._row(int(key))
        if isinstance(key, slice):
            if key.step in (None, 1):
                if key.start is None and key.stop is None:
                    return self
                start, stop = index_keys.first_axis(key, shape[0])
                return self._view(array[start:stop])
        elif isinstance(key, tuple):
            if not key:
                return self
            if len(key) == len(shape) and all(isinstance(k, index_keys.integer_types) for k in key):
                x = self
                for k in key:
                    x = x._row(int(k))
                return x
        meaning = index_keys.parse(key, shape)
        if isinstance(meaning, index_keys.Advanced):
            new = array[meaning.key]
            final = list(new.shape)
            for axis in meaning.new_axes:
                final.insert(axis, 1)
            return self._copied(new.reshape(final or (1,)))
        part = array[meaning.slices].reshape(meaning.shape)
        return self._view(part) if meaning.contiguous else self._copied(part)

    def _row(self, k: int) -> NDArray:
        n = self._array.shape[0]
        if not -n <= k < n:
            raise IndexError(f"index {k} is out of bounds for axis 0 with size {n}")
        k %= n
        if self._array.ndim == 1:
            return self._view(self._array[k : k + 1])
        return self._view(self._array[k])

    def _copied(self, array: np.ndarray) -> NDArray:
        """A new NDArray on the same device, with the elements of an array that may be a view of this one."""
        x = NDArray._wrap(array.copy())
        if self._storage is not None and self._storage.context is not None:
            x._storage = Storage(self._storage.context)
        return x

    def __setitem__(self, key: Any, value: Any) -> None:
        if running.trace is not None:
            running.trace.capture(self)[key] = value
        elif modes.recording:
            late.record_assignment(type(self)._assign, self, key, value)
        else:
            self._assign(key, value)

    def _assign(self, key: Any, value: Any) -> None:
        try:
            self._write_part(key, value)
        except index_keys.Misfit as e:
            raise self._refused(ValueError, "__setitem__", e) from None

    def _write_part(self, key: Any, value: Any) -> None:
        array = self._array
        if array.ndim == 0:
            _check_scalar_key(key)
            if not isinstance(value, numeric_types) and getattr(value, "size", 0) != 1:
                raise ValueError("setting an array element with a sequence.")
            array[...] = self._elements(value).reshape(())
        elif array.size:
            meaning = index_keys.parse(key, array.shape)
            elements = self._elements(value)
            if elements.ndim == 0:
                array[meaning.key if isinstance(meaning, index_keys.Advanced) else meaning.slices] = elements
            elif isinstance(meaning, index_keys.Advanced):
                array[meaning.key] = index_keys.fit(elements, array[meaning.key].shape, meaning.new_axes)
            else:
                dropped = [n for k, n in enumerate(meaning.size) if k not in meaning.int_axes]
                elements = index_keys.fit(elements, tuple(dropped) or (1,), meaning.new_axes)
                array[meaning.slices] = elements.reshape(meaning.size)
        self._wrote()

    def _elements(self, value: Any) -> np.ndarray:
        """`value` as a NumPy array of this array's element type, for assignment to it."""
        if isinstance(value, NDArray):
            value = value._array
        elif isinstance(value, numeric_types):
            value = np.asarray(float(value))
        elif not isinstance(value, np.ndarray):
            try:
                value = from_values(value, self._array.dtype)
            except (TypeError, ValueError, OverflowError):
                raise TypeError(
                    f"{type(self)} does not support assignment with non-array-like object {value} of type {type(value)}"
                ) from None
        return convert(value, self._array.dtype)

    @recorded
    def slice_assign(self, rhs: NDArray, begin: Any, end: Any, step: Any) -> NDArray:
        """Writes `rhs` to `self[begin:end:step]`, with an entry per axis; None is an open bound. Returns self."""
        box = tuple(slice(*parts) for parts in zip(begin, end, step or (None,) * len(begin)))
        if rhs.size != self._array[box].size:
            why = f"rhs has shape {rhs.shape}, the part of {begin} to {end} has {self._array[box].shape}"
            raise self._refused(ValueError, "slice_assign", why)
        self._array[box] = convert(rhs._array, self._array.dtype).reshape(self._array[box].shape)
        self._wrote()
        return self

    @recorded
    def slice_assign_scalar(self, value: float, begin: Any, end: Any, step: Any) -> NDArray:
        """Writes one number to all of `self[begin:end:step]`; see `slice_assign`. Returns self."""
        box = tuple(slice(*parts) for parts in zip(begin, end, step or (None,) * len(begin)))
        self._array[box] = self._elements(value)
        self._wrote()
        return self

    # Shapes.

    @recorded
    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """A view in another shape: `reshape(2, -1)`, `reshape((2, -1))` or `reshape(shape=…, reverse=…)`.

        Codes: 0 copies a dimension, -1 is inferred, -2 copies all that remain, -3 merges two, -4 splits one into the
        two numbers after it; `reverse` matches them from the right.
        """
        if len(shape) == 1 and isinstance(shape[0], (list, tuple)):
            shape = tuple(shape[0])
        elif not shape:
            shape = kwargs.get("shape")  # type: ignore[assignment]
            if not shape:
                raise AssertionError("Shape must be provided.")
            shape = (shape,) if isinstance(shape, int) else tuple(shape)
        for n in shape:
            if n.__class__ is not int and not isinstance(n, (int, np.integer)):
                raise self._refused(TypeError, "reshape", f"a shape has integers, got {shape}")
        unknown = [key for key in kwargs if key not in ("shape", "reverse")] if kwargs else None
        if unknown:
            raise TypeError(
                f"Got unknown keywords in reshape: {', '.join(unknown)}. "
                "Accepted keyword arguments are 'shape' and 'reverse'."
            )
        try:
            target, size = _decoded(self._array.shape, shape, bool(kwargs.get("reverse", False)))
        except OperatorError as e:
            raise self._refused(OperatorError, "reshape", e) from None
        if size != self._array.size:
            kind, which = (MXNetError, "larger") if size > self.size else (ValueError, "smaller")
            why = f"Cannot reshape array of size {self.size} into shape {shape}, which is {which}"
            raise self._refused(kind, "reshape", why)
        return self._view(self._array.reshape(target))

    @property
    def T(self) -> NDArray:
        return self if self.ndim < 2 else NDArray._functions.transpose(self)

    def _reshaped(self, shape: Iterable[int]) -> NDArray:
        """A view of another shape. `reshape` records it, but means something else by 0."""
        return self.reshape(tuple(shape)) if self.size else self._view(self._array.reshape(tuple(shape)))

    def flatten(self, inplace: bool = False) -> NDArray:
        """The array of shape (n, …) as a matrix (n, product of the other dimensions); a copy unless `inplace`."""
        return self.reshape((0, -1)) if inplace else NDArray._functions.flatten(self)

    def expand_dims(self, axis: int, inplace: bool = False) -> NDArray:
        """The array with an axis of length 1 inserted at `axis`; a copy unless `inplace`."""
        if not inplace:
            return NDArray._functions.expand_dims(self, axis=axis)
        if not -self.ndim - 1 <= axis <= self.ndim:
            raise AssertionError(f"axis {axis} is out of range for {self.ndim}d array")
        shape = list(self.shape)
        shape.insert(axis + self.ndim + 1 if axis < 0 else axis, 1)
        return self._reshaped(shape)

    def squeeze(self, axis: Any = None, inplace: bool = False) -> NDArray:
        """The array without its axes of length 1 (all, or those given); a copy unless `inplace`."""
        if not inplace:
            return NDArray._functions.squeeze(self, axis=axis)
        axes = [axis] if isinstance(axis, int) else list(axis or ())
        if len(axes) != len(set(axes)):
            raise AssertionError(f"axis {axes} contains duplicate which is not allowed.")
        for k in axes:
            if not -self.ndim <= k < self.ndim:
                raise AssertionError(f"axis {k} is out of range for {self.ndim}d array")
            if self.shape[k] != 1:
                raise AssertionError(f"Squeeze target axis {k} must be size 1, got {self.shape[k]}.")
        drop = {k % self.ndim for k in axes} if axes else {k for k, n in enumerate(self.shape) if n == 1}
        shape = tuple(n for k, n in enumerate(self.shape) if k not in drop)
        return self._reshaped(shape or (1,))

    def broadcast_to(self, shape: Any) -> NDArray:
        own = (1,) * (len(shape) - self.ndim) + self.shape
        if len(own) != len(shape) or any(m not in (1, n) for m, n in zip(own, shape)):
            raise self._refused(
                ValueError,
                "broadcast_to",
                "operands could not be broadcast together with remapped shapes[original->remapped]: "
                f"{own} and requested shape {shape}; only axes of length 1 can be extended",
            )
        return NDArray._functions.broadcast_to(self.reshape(own) if own != self.shape else self, shape=tuple(shape))

    def broadcast_like(self, other: NDArray) -> NDArray:
        return self.broadcast_to(other.shape)

    def split_v2(self, *args: Any, **kwargs: Any) -> Any:
        return NDArray._functions.split_v2(self, *args, **kwargs)

    # Gradients.

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Asks for gradients by this array: `backward` writes them to `grad`, a new array of zeros.

        `grad_req`: `write` replaces the gradient at each `backward`, `add` adds to it, `null` asks for none. An array
        that was computed is cut off from what it was computed from. `stype`: the storage type of `grad`, by default
        that of this array; a `row_sparse` gradient has the rows that were looked up.
        """
        stype = stype or self.stype
        self._grad_state = Variable(grad_req, self._maker_of_zeros(stype), stype)

    def _maker_of_zeros(self, stype: str) -> Any:
        """A function that makes an array of zeros like this one, and does not keep this one alive."""
        shape, dtype, device, wrap = self.shape, self._stand_in.dtype, self._device, self._wrap_alike
        if stype != "default":
            if stype not in sparse_zeros:
                raise ValueError(f"unknown storage type: {stype}{did_you_mean(stype, ('default', *sparse_zeros))}")
            return sparse_zeros[stype](shape, dtype, device)

        def make() -> NDArray:
            grad = wrap(np.zeros(shape, dtype))
            if device is not None:
                grad._storage = Storage(device)
            return grad

        return make

    @property
    def grad(self) -> Any:  # NDArray or None; programs do not ask which
        """The array that `backward` writes this one's gradient to; None without `attach_grad`."""
        return getattr(self._grad_state, "grad", None)

    @property
    def _fresh_grad(self) -> bool:
        """Whether `backward` has written the gradient since this was last set to False."""
        return bool(getattr(self._grad_state, "fresh", False))

    @_fresh_grad.setter
    def _fresh_grad(self, value: bool) -> None:
        if self._grad_state.__class__ is Variable:
            self._grad_state.fresh = bool(value)

    def drop_grad(self) -> None:
        """Undoes `attach_grad`."""
        self._grad_state = None

    def backward(self, out_grad: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
        """Computes the gradients of this array by all arrays with `attach_grad` that it was computed from.

        `out_grad` is the gradient of the final result by this array; None stands for ones.
        """
        late.backward([self], [out_grad], retain_graph, train_mode)


add_methods(NDArray)


def _placed_copy(array: np.ndarray, context: Context) -> Any:
    """A new NDArray on `context` with the elements of `array`; while a trace runs, a constant of that trace.

    MXNetError for a device that does not exist.
    """
    device = placed(context)
    if running.trace is not None:
        return running.trace.constant(array)
    x = NDArray._wrap(np.array(array, order="C"))
    if device is not None:
        x._storage = Storage(device)
    return x


@lru_cache(1024)
def _decoded(old: tuple[int, ...], codes: tuple[int, ...], reverse: bool) -> tuple[tuple[int, ...], int]:
    """The shape that codes mean, and its number of elements: programs repeat few of them."""
    target = tuple(map(int, decode_shape(old, codes, reverse)))
    return target, math.prod(target)


def _check_scalar_key(key: Any) -> None:
    if not isinstance(key, slice) and key != ():
        raise IndexError("scalar tensor can only accept `()` and `:` as index")


_ELEMENT_TYPES = {d.numpy for d in DTYPES.values() if d is not I16}


def element_type(spec: Any) -> np.dtype:
    """The NumPy dtype that `spec` names, or that it has, as an array does. TypeError if there is none, MXNetError if
    arrays do not support it."""
    if not isinstance(spec, (str, type, np.dtype)):
        spec = getattr(spec, "dtype", spec)
    try:
        return dtype(spec).numpy
    except IRError as e:
        np.dtype(spec)
        raise MXNetError(str(e)) from None


def from_values(values: Any, dtype: np.dtype) -> np.ndarray:
    """An array of nested lists. Integers out of the type's range wrap around, as in the NumPy of MXNet's time."""
    try:
        return np.array(values, dtype)
    except OverflowError:
        found = np.array(values)
        if found.dtype.kind not in "iu":
            raise
        return found.astype(dtype)


def convert(array: np.ndarray, target: np.dtype) -> np.ndarray:
    """`array` converted to `target` as the operator `Cast` does; `array` itself if it has that type."""
    if array.dtype == target:
        return array
    with quiet():
        if array.dtype not in _ELEMENT_TYPES:  # int16, complex, object, …: NumPy's own rules
            return array.astype(target)
        return support.convert(EAGER[False], array, dtype(target))


_mxnet_names.explain(__name__)
