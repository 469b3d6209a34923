"""`mx.np.ndarray`, and its creation from arrays, lists and numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gluonjit.base import mx_real_t
from gluonjit.context import Context, current_context
from gluonjit.language.kinds import as_nd, as_np
from gluonjit.language.running import recorded, running
from gluonjit.ndarray.index_keys import numpy_key
from gluonjit.ndarray.ndarray import NDArray, _placed_copy, convert, element_type, from_values
from gluonjit.numpy.methods import NumpyMethods, row_major, row_major_cast


class ndarray(NumpyMethods, NDArray):  # type: ignore[misc]
    """A multidimensional array with NumPy's semantics: `x[0]` of a vector has rank 0, comparisons give bool, operands
    broadcast, and dividing integers gives float32.

    Created by `mx.np.array` and similar functions. Indexing shares memory if the key is basic and the elements are
    contiguous; otherwise it copies.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, shape: Any, dtype: Any = np.float32, *args: Any, **kwargs: Any) -> None:
        """An uninitialized array, as from `numpy.ndarray`; an ndarray instead of a shape is wrapped."""
        given = shape is None or isinstance(shape, np.ndarray)
        super().__init__(shape if given else np.empty(shape, element_type(dtype)))

    def __format__(self, form: str) -> str:
        """A single number in any form of Python's numbers."""
        if self.ndim and form:
            raise TypeError(f"Cannot format mxnet.numpy.ndarray with format_spec {form!r}: it has {self.ndim} axes")
        return format(str(self) if self.ndim else self.item(), form)

    # What it is

    @property
    def dtype(self) -> Any:
        """The element type, as `numpy.dtype`."""
        return self._array.dtype

    @property
    def itemsize(self) -> int:
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    def __repr__(self) -> str:
        text = repr(self._array)
        if self._array.dtype == np.float32:
            text = re.sub(r",\s+dtype=float32\)$", ")", text)  # on a line of its own after a long last line
        return text

    def __str__(self) -> str:
        return str(self._array)

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise TypeError("len() of unsized object")
        return self._array.shape[0]

    @recorded
    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError("The truth value of an ndarray with multiple elements is ambiguous.")
        return bool(self.size and self._array.reshape(-1)[0])

    @recorded
    def item(self, *args: Any) -> Any:
        """The only element, or that at a position, as a Python number."""
        return self._array.item(*args)

    @recorded
    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self._array.tolist()

    # Its elements, elsewhere

    @staticmethod
    def _wrap_alike(array: np.ndarray) -> Any:
        return as_np(NDArray._wrap(array))

    def _view(self, array: np.ndarray) -> Any:
        return as_np(super()._view(array))

    def _copied(self, array: np.ndarray) -> Any:
        return as_np(super()._copied(array))

    @recorded
    def copy(self, order: str = "C") -> Any:
        row_major(order)
        return as_np(_placed_copy(self._array, self.context))

    __copy__ = copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._array, self.context)

    @recorded
    def copyto(self, other: Any) -> Any:
        """Copies the elements into another array, or into a new one on a context."""
        found = NDArray.copyto(self, other)
        return as_np(found) if isinstance(other, Context) else found

    @recorded
    def astype(  # type: ignore[override]
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """A copy with another element type; the array itself if it has that type and `copy` is False."""
        row_major_cast(order)
        target = element_type(dtype)
        if not copy and target == self._array.dtype:
            return self
        return as_np(_placed_copy(convert(self._array, target), self.context))

    def as_in_ctx(self, ctx: Context) -> Any:
        return self.as_in_context(ctx)

    @recorded
    def as_nd_ndarray(self) -> Any:
        """The array of `mx.nd` on the same memory."""
        return as_nd(self._view(self._array))

    @recorded
    def reshape_view(self, *shape: Any, **kwargs: Any) -> Any:
        """A view of another shape, which shares memory."""
        single = len(shape) == 1 and isinstance(shape[0], (tuple, list))
        return self._view(self._array.reshape(shape[0] if single else shape))

    # Indexing

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    @recorded
    def __getitem__(self, key: Any) -> Any:
        key = numpy_key(key)
        found = self._array[key if Ellipsis in _plain(key) else (*key, Ellipsis)]
        if np.may_share_memory(found, self._array) and found.flags.c_contiguous:
            return self._view(found)
        return self._copied(found)

    def _assign(self, key: Any, value: Any) -> None:
        if isinstance(value, NDArray):
            value = value._array
        value = convert(np.asarray(value), self._array.dtype)
        key = numpy_key(key)
        self._array[() if not self.ndim and key == (slice(None),) else key] = value  # as programs fill any array
        self._wrote()


def _plain(key: tuple[Any, ...]) -> list[Any]:
    """The parts of an index key that are not arrays, and so can be compared."""
    return [part for part in key if not isinstance(part, np.ndarray)]


def _restored(array: np.ndarray, context: Context) -> Any:
    return as_np(_placed_copy(array, context))


def _wrapped(array: np.ndarray) -> Any:
    return as_np(_placed_copy(np.asarray(array), current_context()))


def array(object: Any, dtype: Any = None, ctx: Context | None = None) -> Any:
    """A copy of an array, nested lists or a number. Without `dtype`, arrays keep their type, the others are float32.

    >>> mx.np.array([[1, 2], [3, 4]], dtype="int32").asnumpy()
    array([[1, 2],
           [3, 4]], dtype=int32)
    """
    if running.trace is not None and hasattr(object, "asnumpy"):
        return as_np(object.copy() if dtype is None else object.astype(dtype))
    if isinstance(object, NDArray):
        if object._grad_state is not None:  # the copy may be recorded
            copied = as_np(object.astype(object.dtype if dtype is None else dtype))
            return copied.as_in_context(current_context() if ctx is None else ctx)
        source = object._array
    elif isinstance(object, (np.ndarray, np.generic)):
        source = np.asarray(object)
    else:
        values = _numbers(object)
        source = from_values(values, element_type(mx_real_t if dtype is None else dtype))
    target = source.dtype if dtype is None else element_type(dtype)
    return as_np(_placed_copy(convert(source, element_type(target)), current_context() if ctx is None else ctx))


def _numbers(value: Any) -> Any:
    """Nested lists with their ndarrays converted to NumPy's."""
    if isinstance(value, (list, tuple)):
        return [_numbers(v) for v in value]
    return value._array if isinstance(value, NDArray) else value
