"""Symbols with NumPy's semantics: untyped ones (`mx.sym.np`), and those of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gluonjit.base import dtype_name
from gluonjit.language.array import Array
from gluonjit.language.kinds import as_nd, as_np, declare_pairs
from gluonjit.ndarray import NDArray
from gluonjit.numpy.composed import where
from gluonjit.numpy.dispatch import apply
from gluonjit.numpy.methods import NumpyMethods, row_major, row_major_cast
from gluonjit.numpy.multiarray import ndarray
from gluonjit.symbol.symbol import Symbol
from gluonjit.trace import subscripts
from gluonjit.trace.traced_symbol import TracedSymbol


class _Symbol(NumpyMethods, Symbol):  # type: ignore[misc]
    """Outputs of a graph, with NumPy's semantics."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    __iadd__, __isub__ = Symbol.__iadd__, Symbol.__isub__
    __imul__, __itruediv__ = Symbol.__imul__, Symbol.__itruediv__

    def as_nd_ndarray(self) -> Any:
        """The same graph, with the semantics of `mx.sym`."""
        return Symbol(self._heads)

    def astype(self, dtype: Any, order: str | None = "K", **kwargs: Any) -> Any:
        """A copy with another element type."""
        row_major_cast(order)
        return apply("_npi_cast", (self,), {"dtype": dtype})

    def __iter__(self) -> Iterator[Any]:
        return (_Symbol([head]) for head in self._heads)

    def __getitem__(self, key: Any) -> Any:
        """An output, by number or name, if there are several; else elements, by integers and slices."""
        if len(self._heads) > 1 or isinstance(key, str):
            return as_np(super().__getitem__(key))
        parts = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(part, (int, np.integer, slice)) for part in parts):
            raise TypeError("a symbol whose shape is not known is indexed by whole numbers and slices")
        bounds: list[list[Any]] = [[], [], []]
        for part in parts:
            if not isinstance(part, slice):
                part = slice(int(part), int(part) + 1 if part != -1 else None)
            for bound, value in zip(bounds, (part.start, part.stop, part.step)):
                bound.append(value)
        begin, end, step = map(tuple, bounds)
        found = apply("_npi_slice", (self,), {"begin": begin, "end": end, "step": step})
        gone = tuple(k for k, part in enumerate(parts) if not isinstance(part, slice))
        return apply("_np_squeeze", (found,), {"axis": gone}) if gone else found


class TracedArray(NumpyMethods, TracedSymbol):  # type: ignore[misc]
    """A symbol of a running trace, with the interface of `mx.np.ndarray`."""

    __slots__ = ()
    __hash__ = TracedSymbol.__hash__

    @property
    def dtype(self) -> Any:
        """The element type, as `numpy.dtype`."""
        return self._recorder.ask("dtype", self).numpy

    def as_nd_ndarray(self) -> Any:
        """The array of `mx.nd` on the same memory."""
        return as_nd(self.view(0, self._type.shape))

    def view(self, offset: int, shape: tuple[int, ...], entry: Any = None) -> Any:
        return as_np(super().view(offset, shape, entry))

    def detach(self) -> Any:  # type: ignore[override]
        return as_np(super().detach())

    def copy(self, order: str = "C") -> Any:  # type: ignore[override]
        """A copy of the array."""
        row_major(order)
        return as_np(super().copy())

    __copy__ = copy  # type: ignore[assignment]

    def astype(  # type: ignore[override]
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """A copy with another element type; the array itself if it has that type and `copy` is False."""
        row_major_cast(order)
        return as_np(super().astype(dtype_name(dtype), copy=copy))

    def reshape_view(self, *shape: Any) -> Any:
        """The elements in another shape."""
        return self.reshape(*shape)

    def item(self, *args: Any) -> Any:
        return self._value("item()")

    def tolist(self) -> Any:
        return self._value("tolist()")

    def __getitem__(self, key: Any) -> Any:
        return as_np(subscripts.get_as_numpy(self, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        mask: Any = key if isinstance(key, Array) else None
        if mask is not None and mask.dtype == np.bool_ and mask.shape == self.shape:
            # One value for all elements that a mask selects does not require the mask's values.
            if hasattr(value, "as_np_ndarray") and value.size == 1:
                value = apply("_np_reshape", (value,), {"newshape": ()}).astype(self.dtype)
            if np.ndim(value) == 0:
                self[...] = where(mask, value, self)
                return
        super().__setitem__(key, value)


def declare() -> None:
    """Registers which class of `mx.np` corresponds to which legacy class."""
    declare_pairs({NDArray: ndarray, Symbol: _Symbol, TracedSymbol: TracedArray})
