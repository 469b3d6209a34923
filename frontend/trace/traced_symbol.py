"""`TracedSymbol`: a symbol of known type, with the whole interface of an NDArray.

It prints as a symbol, and records instead of computing. Otherwise its methods have NDArray's semantics, including
in-place operators, views and indexing. What needs an element's value raises TraceError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral, Number
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from gluonjit.base import MXNetError, dtype_name, numeric_types
from gluonjit.context import Context
from gluonjit.ir.types import TensorType
from gluonjit.ir.types import dtype as ir_dtype
from gluonjit.language.array import Array
from gluonjit.language.kinds import as_np
from gluonjit.language.source import refusal
from gluonjit.operators import registry
from gluonjit.symbol.graph import Entry
from gluonjit.symbol.signs import ARITHMETIC
from gluonjit.symbol.symbol import Symbol
from gluonjit.trace import subscripts
from gluonjit.trace.memory import Cell, read

if TYPE_CHECKING:
    from gluonjit.trace.recorder import Recorder

USE_WHERE = (
    "F.where(condition, a, b), or F.contrib.cond; or leave this block as it is with block.hybridize(active=False)"
)


class TracedSymbol(Symbol):
    """A handle on memory of a running trace: a cell, an offset in elements and a shape (see `memory`).

    `_seen` caches the last `read`: the cell's version, the entry, and the frame in which it was read. No gradient flows
    through a handle that is `_detached`, whatever the memory holds.
    """

    __slots__ = ("_cell", "_detached", "_offset", "_recorder", "_seen", "_shape")
    __hash__ = object.__hash__

    def __init__(self, recorder: Recorder, cell: Cell, offset: int, shape: tuple[int, ...] | None) -> None:
        self._recorder = recorder
        self._cell = cell
        self._offset = offset
        self._shape = shape
        self._seen: tuple[int, Entry, object] | None = None
        self._detached = False

    @property
    def _heads(self) -> Sequence[Entry]:  # type: ignore[override]
        return [read(self)]

    def __repr__(self) -> str:
        """`<Symbol conv0 1x64x56x56 float32>`: with the shape and element type in this trace, where they are known.
        Printing records no fact, as other calls may run the same trace with other shapes."""
        known = self._recorder.types.get(read(self))
        shape = "" if known is None else f" {'x'.join(map(str, known.shape)) or 'scalar'} {known.dtype.numpy.name}"
        return f"<Symbol {self.name}{shape}>"

    @property
    def _type(self) -> TensorType:
        """The type, without recording a fact."""
        return self._recorder.type(self)

    # Facts about its type

    @property
    def shape(self) -> tuple[int, ...]:
        return self._recorder.ask("shape", self)

    @property
    def dtype(self) -> Any:
        """The element type, as NDArray gives it: a NumPy scalar type."""
        return self._recorder.ask("dtype", self).numpy.type

    @property
    def ndim(self) -> int:
        return self._recorder.ask("ndim", self)

    @property
    def size(self) -> int:
        return self._recorder.ask("size", self)

    @property
    def context(self) -> Any:
        self._recorder.context_fact = True
        return self._recorder.context

    ctx = context

    @property
    def stype(self) -> str:
        return "default"

    @property
    def writable(self) -> bool:
        return True

    @property
    def grad(self) -> None:
        return None

    def __len__(self) -> int:
        return self._recorder.ask("len", self)

    # Indexing

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return subscripts.get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        subscripts.put(self, key, value)

    # Views and copies

    def view(self, offset: int, shape: tuple[int, ...], entry: Entry | None = None) -> TracedSymbol:
        """A handle on the elements from `offset` on; `entry` is their current value, if it is known."""
        handle = TracedSymbol(self._recorder, self._cell, self._offset + offset, shape)
        handle._detached = self._detached or self._recorder.paused
        if entry is not None and not handle._detached:
            handle._seen = (self._cell.version, entry, self._recorder.frames[-1])
        return handle

    def reshape(self, *shape: Any, **kwargs: Any) -> TracedSymbol:
        """A view with another shape; codes 0, -1, -2, -3, -4, and `reverse=True`, as in `F.reshape`."""
        if len(shape) == 1 and isinstance(shape[0], (list, tuple)):
            shape = tuple(shape[0])
        elif not shape:
            given = kwargs.get("shape")
            if given is None:
                raise AssertionError("Shape must be provided.")
            shape = (given,) if isinstance(given, int) else tuple(given)
        unknown = [key for key in kwargs if key not in ("shape", "reverse")]
        if unknown:
            raise TypeError(
                f"Got unknown keywords in reshape: {', '.join(unknown)}. Accepted keyword arguments are 'shape' and "
                "'reverse'."
            )
        before = self._type
        call = f"NDArray.reshape({before})"
        if not all(isinstance(n, Integral) for n in shape):
            raise refusal(TypeError, call, f"a shape has integers, got {shape}")
        codes = tuple(int(n) for n in shape)
        attrs: dict[str, Any] = {"shape": codes}
        if kwargs.get("reverse"):
            attrs["reverse"] = True
        try:
            entry = self._recorder.emit("Reshape", [read(self)], attrs, hint="reshape")[0]
        except MXNetError as e:
            raise refusal(ValueError, call, f"Cannot reshape array of size {before.size} into shape {shape}") from e
        after = self._recorder.types[entry].shape
        if not self._recorder.note("same size", read(self), entry):  # the operator, too, takes smaller shapes
            raise refusal(ValueError, call, f"Cannot reshape array of size {before.size} into shape {shape}")
        if after == before.shape:
            self._recorder.ask("shape", self)  # for arrays of another shape, the view would have another shape
        return self.view(0, after, entry)

    def flatten(self, inplace: bool = False, **kwargs: Any) -> Any:
        """Keeps the first axis and merges the others; a view if `inplace`."""
        return self.reshape((0, -1)) if inplace else super().flatten(**kwargs)

    def expand_dims(self, axis: int, inplace: bool = False, **kwargs: Any) -> Any:
        """Inserts an axis of size 1; a view if `inplace`."""
        if not inplace:
            return super().expand_dims(axis, **kwargs)
        shape = list(self.shape)
        shape.insert(axis + len(shape) + 1 if axis < 0 else axis, 1)
        return self.reshape(shape)

    def squeeze(self, axis: Any = None, inplace: bool = False, **kwargs: Any) -> Any:
        """Drops axes of size 1; a view if `inplace`."""
        result = super().squeeze(axis, **kwargs)
        return self.reshape(result.shape) if inplace else result

    def broadcast_to(self, *args: Any, **kwargs: Any) -> Any:
        """Repeats axes of size 1 up to the given shape; as for an NDArray, axes in front may be missing."""
        shape = args[0] if args else kwargs.get("shape", ())
        return Symbol.broadcast_to(self._of_rank(len(shape)), *args, **kwargs)

    def broadcast_like(self, other: Any, *args: Any, **kwargs: Any) -> Any:
        """Repeats axes of size 1 up to the shape of another array; axes in front may be missing."""
        other = self._recorder.lift(other)
        known = not (args or kwargs) and read(other) in self._recorder.types
        return Symbol.broadcast_like(self._of_rank(other.ndim) if known else self, other, *args, **kwargs)

    def _of_rank(self, rank: int) -> TracedSymbol:
        """The array with axes of size 1 added in front up to `rank`."""
        if read(self) not in self._recorder.types:
            return self
        x = self
        for _ in range(rank - self.ndim):
            x = x.expand_dims(axis=0)
        return x

    def detach(self) -> TracedSymbol:  # type: ignore[override]
        """A view that is not part of the gradient graph."""
        handle = self.view(0, self._type.shape)
        handle._detached = True
        return handle

    def as_in_context(self, context: Any) -> TracedSymbol:  # type: ignore[override]
        """The array itself: all contexts share one memory."""
        return self

    as_in_ctx = as_in_context

    def tostype(self, stype: str) -> TracedSymbol:
        """A copy; only dense arrays are supported."""
        if stype != "default":
            raise MXNetError(f"storage type {stype} is not supported: only dense arrays are")
        return self.copy()

    def copy(self) -> TracedSymbol:  # type: ignore[override]
        """A new array with the same elements."""
        return self._recorder.fresh(read(self))

    __copy__ = copy  # type: ignore[assignment]

    def __deepcopy__(self, memo: Any) -> TracedSymbol:
        return self.copy()

    def as_np_ndarray(self) -> Any:
        """The `mx.np.ndarray` on the same memory."""
        return as_np(self.view(0, self._type.shape))

    def copyto(self, other: Any) -> Any:
        """Writes its elements to `other`, an array of the same shape; with a context, a copy."""
        if isinstance(other, Context):
            return self.copy()
        target = self._recorder.lift(other)
        if target.shape != self.shape:
            raise MXNetError(
                f"Incompatible attr in node  at 0-th output: expected {list(self.shape)}, got {list(target.shape)}"
            )
        target[:] = self
        return other

    def astype(self, dtype: Any, copy: bool = True, **kwargs: Any) -> TracedSymbol:
        """The array converted to `dtype`; the array itself if it has that type and `copy` is False."""
        name = dtype_name(dtype)
        if not copy and self.dtype == ir_dtype(name).numpy.type:
            return self
        return self._recorder.fresh(self._recorder.emit("Cast", [read(self)], {"dtype": name}, hint="cast")[0])

    def wait_to_read(self) -> None:  # type: ignore[override]
        """Nothing: calls are synchronous."""

    @property
    def T(self) -> Any:
        """The array with its axes reversed, as a copy."""
        if self.ndim <= 1:
            return self
        return self._recorder.fresh(self._recorder.emit("transpose", [read(self)], {})[0])

    # Arithmetic

    def _arithmetic(self, what: str, other: Any, numbers: Any = Number, reverse: bool = False) -> Any:
        """Follows `mx.nd`: different shapes broadcast, and numbers are of the types that NDArray accepts. For equal
        shapes the node is the one that MXNet's symbols make."""
        operands, op, hint, attrs = self._sign(what, other, reverse)
        return self._recorder.invoke(registry.get(op), operands, attrs, hint=hint)

    def _sign(self, what: str, other: Any, reverse: bool = False) -> tuple[list[Any], str, str, dict[str, Any]]:
        """(operands, operator, name hint, attributes) of `self <what> other`."""
        sign = ARITHMETIC[what]
        if isinstance(other, Array):
            left, right = self, self._recorder.lift(other)
            if reverse:
                left, right = right, left
            if self._recorder.same_shape(left, right):
                return [left, right], sign.both, sign.both_hint, {}
            return [left, right], f"broadcast_{what}", f"broadcast_{what}", {}
        if isinstance(other, numeric_types):
            op, hint = (sign.reverse, sign.reverse_hint) if reverse else (sign.scalar, sign.scalar_hint)
            return [self], op, hint, {"scalar": other}
        raise TypeError(f"type {type(other)} not supported")

    def _in_place(self, what: str, other: Any) -> TracedSymbol:
        operands, op, hint, attrs = self._sign(what, other)
        self._recorder.invoke(registry.get(op), operands, attrs, out=self, hint=hint)
        return self

    def __iadd__(self, other: Any) -> TracedSymbol:  # type: ignore[override,misc]
        return self._in_place("add", other)

    def __isub__(self, other: Any) -> TracedSymbol:  # type: ignore[override,misc]
        return self._in_place("sub", other)

    def __imul__(self, other: Any) -> TracedSymbol:  # type: ignore[override,misc]
        return self._in_place("mul", other)

    def __itruediv__(self, other: Any) -> TracedSymbol:  # type: ignore[override,misc]
        return self._in_place("div", other)

    __idiv__ = __itruediv__

    def __imod__(self, other: Any) -> TracedSymbol:
        return self._in_place("mod", other)

    # What needs a value

    def __bool__(self) -> bool:
        if self.size == 0:
            return False
        if self.size > 1:
            raise ValueError("The truth value of an NDArray with multiple elements is ambiguous.")
        value = self._recorder.value(
            self,
            "`if`, `while`, `and`, `or` and `not` on the value of an array cannot be compiled: the value is not known "
            "while tracing",
            USE_WHERE,
        )
        return bool(value)

    def _value(self, what: str) -> np.ndarray:
        return self._recorder.value(
            self,
            f"{what} cannot be compiled: the value of {self!r} is not known while tracing",
            "operators of F on the array itself; or call this outside the hybridized block",
        )

    def __float__(self) -> float:
        return float(self._value("float(x)").item())

    def __int__(self) -> int:
        return int(self._value("int(x)").item())

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.asarray(self._value("the conversion to a NumPy array"), *args, **kwargs)

    @property
    def _array(self) -> np.ndarray:
        """TraceError: here an NDArray has its elements, which functions written for NDArrays read."""
        return self._value("this function")

    def slice_assign(self, rhs: Any, begin: Any, end: Any, step: Any = None) -> TracedSymbol:
        """Writes `rhs` to `self[begin:end:step]`, with an entry per axis. Returns the array itself."""
        self[tuple(slice(*parts) for parts in zip(begin, end, step or (None,) * len(begin)))] = rhs
        return self

    slice_assign_scalar = slice_assign

    def asnumpy(self) -> np.ndarray:  # type: ignore[override]
        return self._value("asnumpy()")

    def asscalar(self) -> Any:
        return self._value("asscalar()").item()

    def __index__(self) -> int:
        return int(self._value("an array as index of a Python sequence").item())

    def to_dlpack_for_read(self) -> NoReturn:
        self._recorder.refuse("to_dlpack_for_read() cannot be compiled", for_value=True)

    def to_dlpack_for_write(self) -> NoReturn:
        self._recorder.refuse("to_dlpack_for_write() cannot be compiled", for_value=True)

    def __reduce__(self) -> NoReturn:
        self._recorder.refuse("pickling an array cannot be compiled", for_value=True)

    def attach_grad(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._recorder.refuse("attach_grad() inside a hybridized block cannot be compiled")

    def backward(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._recorder.refuse("backward() inside a hybridized block cannot be compiled")
