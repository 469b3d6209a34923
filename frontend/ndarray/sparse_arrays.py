"""`RowSparseNDArray` and `CSRNDArray`: arrays of which only some rows, or some elements, are stored.

Both are NDArrays. `_array` of one is a new dense array that cannot be written to, so an operator that knows nothing of
sparse arrays computes what it would of the dense one; `sparse_operators.py` has those that do better. The parts
themselves are replaced, not written to: whoever has kept them, such as the tape, still has the values of then. The
exception are the rows of a weight, which an optimizer updates in place (`RowSparseNDArray.update_rows`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np

from gluonjit.base import MXNetError, NotSupportedForSparseNDArray, integer_types, numeric_types
from gluonjit.context import Context, placed
from gluonjit.files import params
from gluonjit.files import sparse as layouts
from gluonjit.language import late
from gluonjit.language.modes import modes
from gluonjit.language.running import running
from gluonjit.ndarray.ndarray import NDArray, convert, element_type, sparse_zeros
from gluonjit.runtime.storage import Storage

__all__ = ["BaseSparseNDArray", "CSRNDArray", "RowSparseNDArray"]


def sum_rows(indices: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The indices without duplicates, ascending, and for each the sum of its parts, in their order."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    if first.all():
        return ordered, parts[order]
    starts = np.flatnonzero(first)
    if parts.dtype.kind == "V":  # bfloat16: summed in float32, rounded once
        return ordered[starts], np.add.reduceat(parts[order].astype(np.float32), starts).astype(parts.dtype)
    return ordered[starts], np.add.reduceat(parts[order], starts)


def ascending(*numbers: np.ndarray) -> np.ndarray:
    """All numbers, ascending and without duplicates. Faster than `np.unique`, as most of them are in order already."""
    every = np.sort(np.concatenate([x.reshape(-1) for x in numbers]), kind="stable")
    first = np.ones(len(every), np.bool_)
    np.not_equal(every[1:], every[:-1], out=first[1:])
    return every if first.all() else every[first]


class BaseSparseNDArray(NDArray):
    """What both layouts share. `_shape` is that of the array, `_values` what is stored, `_aux` where that belongs.

    Users may give parts that do not fit together, as MXNet lets them: `check_format` says so, and so does every other
    use but reading the parts, which takes those of `canonical()`. `_sound`: they are known to fit.
    """

    __slots__ = ("_aux", "_shape", "_sound", "_values")

    _layout: ClassVar[int]
    _aux: tuple[np.ndarray, ...]
    _values: np.ndarray
    _shape: tuple[int, ...]

    def __init__(
        self,
        shape: Sequence[int] | None,
        values: Any = None,
        aux: Sequence[np.ndarray] = (),
        device: Any = None,
        sound: bool = False,
    ) -> None:
        """Takes over the parts; users call `row_sparse_array` or `csr_matrix`. `sound`: they fit together.

        Nothing but None makes an array that `__setstate__` fills, as in MXNet's pickles."""
        if shape is None:
            shape, values = (0,), np.zeros(0, np.float32)
        self._shape = tuple(map(int, shape))
        self._values = values
        self._aux = tuple(aux)
        self._sound = sound
        self._storage = None if device is None else Storage(device)
        self._grad_state = None

    @property
    def _array(self) -> np.ndarray:  # type: ignore[override]
        """The dense array."""
        dense = self._densified()
        dense.flags.writeable = False
        return dense

    def _densified(self) -> np.ndarray:
        try:
            return layouts.densify(self._layout, self._shape, self._values, self._aux)
        except ValueError as e:
            raise MXNetError(f"{type(self).__name__}: {e}") from None

    def canonical(self) -> Any:
        """This array, or one of the same elements whose parts are as all code but `check_format` expects them.

        MXNetError if they do not fit together."""
        if not self._sound:
            try:
                layouts.check(self._layout, self._shape, self._values, self._aux)
            except ValueError as e:
                raise MXNetError(f"{type(self).__name__}: {e}") from None
            self._sound = True
        return self

    @property
    def _stand_in(self) -> np.ndarray:
        """A dense array of the same type that takes no memory, for what looks at types alone."""
        return np.broadcast_to(np.zeros((), self._values.dtype), self._shape)

    def _with(self, values: np.ndarray, aux: Sequence[np.ndarray] | None = None, shape: Any = None) -> Any:
        """An array of this class on the same device, made of parts that fit together as this array's do."""
        aux = self._aux if aux is None else aux
        return type(self)(self._shape if shape is None else shape, values, aux, self._device, self._sound)

    def _become(self, other: BaseSparseNDArray) -> None:
        """Takes over the parts of an array of the same class."""
        self._values, self._aux, self._sound = other._values, other._aux, other._sound
        self._wrote()

    def _store(self, elements: np.ndarray) -> None:
        """Replaces all elements by those of a dense array."""
        self._become(cast_dense(elements, self.stype, None))

    # Properties.

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return int(np.prod(self._shape, dtype=np.int64))

    @property
    def dtype(self) -> type:
        return self._values.dtype.type

    @property
    def stype(self) -> str:
        return layouts.NAMES[self._layout]

    @property  # type: ignore[misc]
    def writable(self) -> bool:
        return True

    @property
    def _num_aux(self) -> int:
        return len(self._aux)

    @property
    def handle(self) -> Any:
        self._refuse("handle")

    @property
    def data(self) -> NDArray:
        """A copy of what is stored."""
        return self._copied(self._values)

    def __repr__(self) -> str:
        return f"\n<{type(self).__name__} {'x'.join(map(str, self.shape))} @{self.context}>"

    def _repr_html_(self) -> str:
        text = f"{type(self).__name__} {'×'.join(map(str, self.shape))} {self._values.dtype} @{self.context}"
        return f"<i>{text}, {self._values.shape[0]} rows or elements are stored</i>"

    def __len__(self) -> int:
        return self._shape[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._shape, self._values, self._aux, self._device)

    def __getstate__(self) -> dict[str, Any]:
        """The array as MXNet's pickles hold it."""
        return {"handle": params.record(layouts.Parts(self._layout, self._shape, self._values, self._aux))}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Becomes the array in a pickle of MXNet's, on the CPU, whatever device wrote it."""
        found = params.parse_record(state["handle"], "a pickled array", keep_sparse=True)
        if not isinstance(found, layouts.Parts) or found.storage != self._layout:
            raise MXNetError(f"a pickled array that is not {self.stype} cannot become a {type(self).__name__}")
        self.__init__(found.shape, found.values, found.aux)  # type: ignore[misc]

    __hash__ = NDArray.__hash__

    # Conversions and copies.

    def asnumpy(self) -> np.ndarray:
        """A dense NumPy array."""
        if running.trace is not None:
            return running.trace.capture(self).asnumpy()
        return self._densified()

    def copy(self) -> Any:
        return NDArray._functions._internal._copy(self)

    __copy__ = copy

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """A copy in another element type. The operator `cast`, as MXNet's, gives a dense array."""
        target = element_type(dtype)
        if not copy and target == self._values.dtype:
            return self
        if running.trace is not None:
            return NDArray._functions.cast(self, dtype=dtype)
        values = convert(self._values, target)
        result = self._with(values.copy() if values is self._values else values)
        if modes.recording and self._grad_state is not None:
            late.record_rule("astype", [self], [result], lambda g: [g.astype(self.dtype)])
        return result

    def tostype(self, stype: str) -> Any:
        """The array in another storage type: `'default'` is dense."""
        if stype not in (self.stype, "default"):
            raise ValueError(
                f"cast_storage from {self.stype} to {stype} is not supported; use "
                f".tostype('default').tostype({stype!r})"
            )
        return NDArray._functions.cast_storage(self, stype=stype)

    def copyto(self, other: Any) -> Any:
        """Copies the elements into `other`, of the same shape and any storage, or to a new array on a context."""
        if isinstance(other, Context):
            parts = self._values.copy(), [x.copy() for x in self._aux]
            return type(self)(self._shape, *parts, placed(other), self._sound)
        if other is self:
            warnings.warn("You are attempting to copy an array to itself", RuntimeWarning, stacklevel=2)
            return False
        if not isinstance(other, type(self)):
            return NDArray.copyto(self, other)
        if other.shape != self._shape:
            raise MXNetError(
                f"Incompatible attr in node  at 0-th output: expected {list(self.shape)}, got {list(other.shape)}"
            )
        values = convert(self._values, other._values.dtype)
        other._become(self._with(values.copy() if values is self._values else values, [x.copy() for x in self._aux]))
        return other

    def detach(self) -> Any:
        return self._with(self._values)

    def as_np_ndarray(self) -> NoReturn:
        self._refuse("as_np_ndarray")

    def check_format(self, full_check: bool = True) -> None:
        """MXNetError if the parts do not fit together: indices must be in range and ascending."""
        try:
            layouts.check(self._layout, self._shape, self._values, self._aux)
        except ValueError as e:
            raise MXNetError(f"{type(self).__name__}: {e}") from None

    def _refuse(self, what: str) -> NoReturn:
        raise NotSupportedForSparseNDArray(
            f"Function {what} is not supported for SparseNDArray and only available in NDArray: use "
            f"x.tostype('default').{what}"
        )

    def reshape(self, *shape: Any, **kwargs: Any) -> NoReturn:
        self._refuse("reshape")

    def expand_dims(self, axis: int, inplace: bool = False) -> Any:
        return NDArray._functions.expand_dims(self, axis=axis)

    def squeeze(self, axis: Any = None, inplace: bool = False) -> Any:
        return NDArray._functions.squeeze(self, axis=axis)

    def flatten(self, inplace: bool = False) -> Any:
        return NDArray._functions.flatten(self)

    def slice_assign(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("slice_assign")

    def slice_assign_scalar(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("slice_assign_scalar")


class RowSparseNDArray(BaseSparseNDArray):
    """An array of which only some rows (along the first axis) are stored, in ascending order; the others are 0."""

    __slots__ = ()
    _layout = layouts.ROW_SPARSE

    @property
    def _rows(self) -> np.ndarray:
        """The numbers of the rows that are stored: i64."""
        return self._aux[0]

    @property
    def indices(self) -> NDArray:
        """A copy of the numbers of the rows that are stored."""
        return self._copied(self._rows)

    def check_format(self, full_check: bool = True) -> None:
        super().check_format(full_check)
        if full_check and np.any(self._rows[1:] <= self._rows[:-1]):
            raise MXNetError(
                "Indices of row_sparse NDArray should be non-negative, less than the size of first dimension and in "
                "ascending order"
            )

    def canonical(self) -> Any:
        """See above. Rows ascend; of several with one number the last counts."""
        if self._sound:
            return self
        rows = self._rows
        if np.all(rows[1:] > rows[:-1]):
            return super().canonical()
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        order = order[np.append(ordered[1:] != ordered[:-1], True)]
        return type(self)(self._shape, self._values[order], (rows[order],), self._device).canonical()

    def rows(self, wanted: np.ndarray) -> np.ndarray:
        """A copy of these rows, in this order; zeros for those that are not stored."""
        own = self._rows
        if len(own) == self._shape[0]:
            return self._values[wanted]
        result = np.zeros((len(wanted), *self._shape[1:]), self._values.dtype)
        if len(own):
            at = np.searchsorted(own, wanted)
            at[at == len(own)] = 0
            found = np.flatnonzero(own[at] == wanted)
            result[found] = self._values[at[found]]
        return result

    def update_rows(self, where: np.ndarray, values: np.ndarray) -> None:
        """Stores these rows (ascending); in place if they are stored already."""
        self._become(self.canonical())
        if len(self._rows) < self._shape[0]:
            every = ascending(self._rows, where)
            if len(every) > len(self._rows):
                self._values, self._aux = self.rows(every), (every,)
        self._values[np.searchsorted(self._rows, where)] = values
        self._wrote()

    def retain(self, indices: Any) -> RowSparseNDArray:
        """Only these rows: `mx.nd.sparse.retain`."""
        return NDArray._functions.sparse.retain(self, indices)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, integer_types):
            raise NotImplementedError(
                "__getitem__ with int key is not implemented for RowSparseNDArray yet: use x.tostype('default')[key]"
            )
        if isinstance(key, slice) and key == slice(None):
            return self
        raise ValueError("RowSparseNDArray can be sliced with [:] only: use x.tostype('default')[key]")

    def _assign(self, key: Any, value: Any) -> None:
        if not isinstance(key, slice):
            raise TypeError("RowSparseNDArray only supports [:] for assignment")
        if key != slice(None):
            raise ValueError("Assignment with slice for RowSparseNDArray is not implemented: only [:] is")
        if isinstance(value, numeric_types):
            if float(value) == 0:
                self._become(zeros(self.stype, self._shape, self._values.dtype))
            else:
                self._store(np.full(self._shape, value, self._values.dtype))
        elif isinstance(value, NDArray):
            if value is not self:
                value.copyto(self)
        else:
            self._store(convert(np.broadcast_to(np.asarray(value), self._shape), self._values.dtype))


class CSRNDArray(BaseSparseNDArray):
    """A matrix of which only some elements are stored, row by row (compressed sparse rows).

    Row r has the elements `data[k]` in the columns `indices[k]`, for `indptr[r]` ≤ k < `indptr[r + 1]`.
    """

    __slots__ = ()
    _layout = layouts.CSR

    @property
    def _indptr(self) -> np.ndarray:
        return self._aux[0]

    @property
    def _columns(self) -> np.ndarray:
        return self._aux[1]

    @property
    def _row_of_each(self) -> np.ndarray:
        """The row of each element that is stored."""
        return np.repeat(np.arange(self._shape[0]), np.diff(self._indptr))

    @property
    def indices(self) -> NDArray:
        """A copy of the column of each element that is stored."""
        return self._copied(self._columns)

    @property
    def indptr(self) -> NDArray:
        """A copy of the position of each row's first element, and of the end."""
        return self._copied(self._indptr)

    def check_format(self, full_check: bool = True) -> None:
        super().check_format(full_check)
        if full_check and np.any((np.diff(self._columns) <= 0) & (np.diff(self._row_of_each) == 0)):
            raise MXNetError(
                "Indices of csr NDArray should be non-negative, in ascending order per row  and less than the number "
                "of columns."
            )

    def asscipy(self) -> Any:
        """A copy as `scipy.sparse.csr_matrix`."""
        try:
            import scipy.sparse
        except ImportError as e:
            raise ImportError("scipy could not be imported. Please make sure that the scipy is installed.") from e
        return scipy.sparse.csr_matrix(
            (self._values.copy(), self._columns.copy(), self._indptr.copy()), shape=self._shape, dtype=self.dtype
        )

    def row_range(self, start: int, stop: int) -> CSRNDArray:
        """The rows from start to stop."""
        self.canonical()
        begin, end = int(self._indptr[start]), int(self._indptr[stop])
        aux = self._indptr[start : stop + 1] - begin, self._columns[begin:end].copy()
        return self._with(self._values[begin:end].copy(), aux, (stop - start, self._shape[1]))

    def take_rows(self, rows: np.ndarray) -> CSRNDArray:
        """These rows, in this order."""
        self.canonical()
        counts = np.diff(self._indptr)[rows]
        indptr = np.append(0, np.cumsum(counts))
        places = np.arange(indptr[-1]) + np.repeat(self._indptr[rows] - indptr[:-1], counts)
        return self._with(self._values[places], (indptr, self._columns[places]), (len(rows), self._shape[1]))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, integer_types):
            n = self._shape[0]
            if not -n <= key < n:
                raise IndexError(f"index {key} is out of bounds for axis 0 with size {n}")
            key = slice(int(key) % n, int(key) % n + 1)
        if isinstance(key, tuple):
            raise ValueError("Multi-dimension indexing is not supported: use x.tostype('default')[key]")
        if not isinstance(key, slice):
            raise ValueError(f"Undefined behaviour for {key}: use x.tostype('default')[key]")
        if key.step not in (None, 1):
            raise ValueError("CSRNDArray only supports continuous slicing on axis 0")
        if key == slice(None):
            return self
        start, stop, _ = key.indices(self._shape[0])
        return NDArray._functions.slice(self, begin=(start,), end=(max(start, stop),))

    def _assign(self, key: Any, value: Any) -> None:
        if not isinstance(key, slice) or key != slice(None):
            raise ValueError("CSRNDArray only supports [:] for assignment")
        if isinstance(value, numeric_types):
            raise ValueError("Assigning numeric types to CSRNDArray is not implemented yet.")
        if isinstance(value, NDArray):
            if value is not self:
                value.copyto(self)
        else:
            self._store(convert(np.broadcast_to(np.asarray(value), self._shape), self._values.dtype))


CLASSES: dict[str, type[BaseSparseNDArray]] = {"row_sparse": RowSparseNDArray, "csr": CSRNDArray}


def check_stype(stype: str, shape: Sequence[int]) -> None:
    """ValueError for a storage type that does not exist, or that cannot hold arrays of this shape."""
    if stype not in CLASSES:
        raise ValueError(f"unknown storage type: {stype}; expected 'default', 'row_sparse' or 'csr'")
    if stype == "csr" and len(shape) != 2:
        raise ValueError(f"To convert to a CSR, the NDArray should be 2 Dimensional. Current shape is {tuple(shape)}")
    if not shape:
        raise ValueError("a scalar has no rows: it cannot be row_sparse")


def zeros(stype: str, shape: Sequence[int], dtype: np.dtype, device: Context | None = None) -> Any:
    """An array of zeros, of which nothing is stored."""
    check_stype(stype, shape)
    none = np.zeros(0, np.int64)
    if stype == "csr":
        return CSRNDArray(shape, np.zeros(0, dtype), (np.zeros(shape[0] + 1, np.int64), none), device, True)
    return RowSparseNDArray(shape, np.zeros((0, *shape[1:]), dtype), (none,), device, True)


def maker_of_zeros(stype: str, shape: Sequence[int], dtype: np.dtype, device: Context | None) -> Callable[[], Any]:
    """A function that makes such an array."""
    check_stype(stype, shape)
    return lambda: zeros(stype, shape, dtype, device)


sparse_zeros.update((stype, partial(maker_of_zeros, stype)) for stype in CLASSES)


def cast_dense(x: np.ndarray, stype: str, device: Context | None) -> Any:
    """A dense array in sparse storage: rows, or elements, that are 0 are not stored."""
    check_stype(stype, x.shape)
    if stype == "csr":
        rows, columns = np.nonzero(x)
        return from_elements(x.shape, rows, columns, x[rows, columns], device)
    kept = np.flatnonzero((x != 0).reshape(len(x), -1).any(1)) if x.size else np.zeros(0, np.int64)
    return RowSparseNDArray(x.shape, x[kept], (kept,), device, True)


def with_all_rows(x: np.ndarray, device: Context | None) -> RowSparseNDArray:
    """A row_sparse array that stores every row of `x`, which it takes over."""
    return RowSparseNDArray(x.shape, x, (np.arange(len(x)),), device, True)


def from_elements(
    shape: Sequence[int], rows: np.ndarray, columns: np.ndarray, values: np.ndarray, device: Context | None
) -> CSRNDArray:
    """A matrix of elements that are ordered by row."""
    indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=shape[0])))
    return CSRNDArray(shape, values, (indptr.astype(np.int64), columns.astype(np.int64)), device, True)


def from_additions(
    shape: Sequence[int], terms: Sequence[tuple[np.ndarray, np.ndarray]], device: Context | None = None
) -> RowSparseNDArray:
    """The sum of (indices, rows), where an index may occur more than once. Indices out of range count for nothing."""
    indices = np.concatenate([i.reshape(-1).astype(np.int64) for i, _ in terms])
    rows = np.concatenate([x.reshape(i.size, *shape[1:]) for i, x in terms])
    inside = (indices >= 0) & (indices < shape[0])
    if not inside.all():
        indices, rows = indices[inside], rows[inside]
    where, values = sum_rows(indices, rows)
    return RowSparseNDArray(shape, np.ascontiguousarray(values), (where,), device, True)


def add_rows(a: RowSparseNDArray, b: RowSparseNDArray) -> RowSparseNDArray:
    """a + b"""
    a, b = a.canonical(), b.canonical()
    return from_additions(a.shape, [(a._rows, a._values), (b._rows, b._values)], a._device)
