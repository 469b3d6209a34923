"""Element types and tensor types.

A `DType` names an element type once for the whole compiler (`f32`, `bool`, …) and carries its NumPy counterpart.
A `TensorType` is a dtype and a shape; `()` is a 0-d tensor, and a dimension may be 0, or open (`ir/dims.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from gluonjit.ir.dims import Extent


class IRError(Exception):
    """Something is wrong with a graph or with what was asked of it; the message says what, where and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. There is one object per type, so `is` compares.

    `kind` is `f` (float), `i` (signed), `u` (unsigned) or `b` (bool); `bits` is the width in memory, except for bool,
    which takes a byte (0 or 1) there and says 1.
    """

    name: str
    numpy: np.dtype
    kind: str
    bits: int

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)


F16 = DType("f16", np.dtype(np.float16), "f", 16)
BF16 = DType("bf16", np.dtype(ml_dtypes.bfloat16), "f", 16)
F32 = DType("f32", np.dtype(np.float32), "f", 32)
F64 = DType("f64", np.dtype(np.float64), "f", 64)
I8 = DType("i8", np.dtype(np.int8), "i", 8)
U8 = DType("u8", np.dtype(np.uint8), "u", 8)
I16 = DType("i16", np.dtype(np.int16), "i", 16)
"""The compiler's own, in which it multiplies 8-bit integers. No array of a program has it, and none names it."""
I32 = DType("i32", np.dtype(np.int32), "i", 32)
I64 = DType("i64", np.dtype(np.int64), "i", 64)
BOOL = DType("bool", np.dtype(np.bool_), "b", 1)

DTYPES: dict[str, DType] = {d.name: d for d in (F16, BF16, F32, F64, I8, U8, I16, I32, I64, BOOL)}


def _named(name: str) -> DType:
    return DTYPES[name]


_OF_ARRAYS: dict[np.dtype, DType] = {d.numpy: d for d in DTYPES.values()}
_OF_PROGRAMS = {name: d for name, d in DTYPES.items() if d is not I16}
_BY_NUMPY: dict[np.dtype, DType] = {d.numpy: d for d in _OF_PROGRAMS.values()}


def dtype(spec: Any) -> DType:
    """The `DType` that `spec` means: a DType, its name, or anything `np.dtype` takes. Raises IRError for others, and
    for i16, which no program has."""
    if isinstance(spec, np.dtype) and spec in _BY_NUMPY:  # the common case
        return _BY_NUMPY[spec]
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        if spec in _OF_PROGRAMS:
            return _OF_PROGRAMS[spec]
        if spec == "bfloat16":
            return BF16
    try:
        return _BY_NUMPY[np.dtype(spec)]
    except (KeyError, TypeError, ValueError, SyntaxError):  # np.dtype has a language of its own: "(2,3)f4,i8"
        pass
    import difflib

    near = difflib.get_close_matches(str(spec), [*_OF_PROGRAMS, *map(str, _BY_NUMPY)], 1)
    hint = f"did you mean {near[0]!r}?" if near else f"supported are {', '.join(_OF_PROGRAMS)}"
    raise IRError(f"unsupported element type {spec!r}; {hint}")


_MOST = 1 << 62
"""Bytes. No index, and no product of an index and a stride, may overflow; memory ends long before."""


_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape. Prints as `f32[2,3]`, with an open dimension as `f32[n,3]`; 0-d as `f32[]`.

    `size` and `nbytes` of a shape with open dimensions are open, too.
    """

    dtype: DType
    shape: tuple[Any, ...] = ()
    is_static: bool = field(init=False, repr=False, compare=False)
    """Whether no dimension is open: every pass asks that of many values, few of which have types of their own."""
    _size: int | None = field(init=False, repr=False, compare=False)
    """Number of elements, where it is known."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TensorType):
            return NotImplemented
        return self.dtype is other.dtype and self.shape == other.shape

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorType, (self.dtype, self.shape)  # a hash is right in its own process alone

    def __post_init__(self) -> None:
        is_static = certain = True
        for n in self.shape:
            if not isinstance(n, int):
                is_static = False
                certain = certain and min(getattr(n, "terms", {}).values(), default=0) > 0
        size = math.prod(self.shape) if is_static else None
        _set(self, "is_static", is_static)
        _set(self, "_size", size)
        _set(self, "_hash", hash((self.dtype, self.shape)))
        if certain and not is_static:
            return  # it is not empty, whatever the sizes, and how large it is nobody knows
        # Strides, and so NumPy, count an extent of 0 as 1.
        count = size or math.prod(self.shape) or math.prod([n or 1 for n in self.shape])
        if isinstance(count, int) and count * self.dtype.itemsize > _MOST:
            has = "it has" if self.size else "without its zeros it would have"
            raise IRError(f"{self} is too large: {has} {count} elements, and addresses have 64 bits")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements."""
        return math.prod(self.shape) if self._size is None else self._size

    @property
    def nbytes(self) -> Any:
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: tuple[Extent, ...]) -> TensorType:
        return TensorType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__


def tensor(spec: Any, *shape: Extent) -> TensorType:
    """`tensor('f32', 2, 3)` is `f32[2,3]`."""
    return TensorType(dtype(spec), shape)


def type_of(x: Any) -> TensorType:
    """The tensor type of an ndarray, NumPy scalar, or of anything that has a `.type` (a Value)."""
    own = getattr(x, "type", None)
    if isinstance(own, TensorType):
        return own
    return TensorType(dtype_of(x), tuple(x.shape))


def dtype_of(x: Any) -> DType:
    """The element type of a Value, an ndarray or a NumPy scalar."""
    spec = x.dtype
    return _OF_ARRAYS.get(spec) or dtype(spec)


def broadcast_shapes(*shapes: tuple[Extent, ...]) -> tuple[Any, ...]:
    """NumPy's broadcasting rule; raises IRError that names the shapes."""
    rank = max(map(len, shapes), default=0)
    out: list[Extent] = [1] * rank
    for shape in shapes:
        for axis, n in enumerate(shape, rank - len(shape)):
            if n != 1:
                if out[axis] not in (1, n):
                    raise IRError("operands could not be broadcast together with shapes " + " ".join(map(str, shapes)))
                out[axis] = n
    return tuple(out)
