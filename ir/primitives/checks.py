"""What the `infer` functions of the primitives share: checks that say which type or attribute does not fit.

The operator's name and signature are put in front of these messages by `Builder.emit`, so they only say what is wrong
and what would be right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.ir.dims import Dim, is_at_most
from gluonjit.ir.types import BOOL, IRError, TensorType, broadcast_shapes

FLOAT, INTEGER, NUMERIC, LOGICAL, ANY = "f", "iu", "fiu", "biu", "fiub"
"""Sets of `DType.kind`s, for `check_kind`."""

_KIND_WORDS = {
    FLOAT: "a float type",
    INTEGER: "an integer type",
    NUMERIC: "a numeric type",
    LOGICAL: "bool or an integer type",
}


def check_kind(x: TensorType, kinds: str, what: str = "operand") -> None:
    if x.dtype.kind not in kinds:
        raise IRError(f"{what} {x} must have {_KIND_WORDS[kinds]}; cast it first")


def check_same_dtype(a: TensorType, b: TensorType) -> None:
    if a.dtype is not b.dtype:
        raise IRError(f"operands must have one element type, got {a} and {b}; cast one of them")


def check_bool(x: TensorType, what: str) -> None:
    if x.dtype is not BOOL:
        raise IRError(f"{what} must be bool, got {x}; compare it with 0 first")


def ints(name: str, value: Any, length: int | None = None, low: int | None = None) -> tuple[Any, ...]:
    """Attribute `name` as a tuple of ints or open extents, of `length` entries that are at least `low`."""
    if not isinstance(value, (tuple, list)):
        raise IRError(f"{name} must be a tuple of ints, got {value!r}")
    for v in value:
        if type(v) is not int and (not isinstance(v, (int, Dim)) or isinstance(v, bool)):
            raise IRError(f"{name} must be a tuple of ints, got {value!r}")
    if length is not None and len(value) != length:
        raise IRError(f"{name} = {tuple(value)} must have {length} entries, one per axis")
    if low is not None:
        for v in value:
            if not (v >= low if type(v) is int else is_at_most(low, v)):
                raise IRError(f"entries of {name} = {tuple(value)} must be at least {low}")
    return tuple(value)


def check_axis(axis: Any, x: TensorType) -> None:
    if not isinstance(axis, int) or isinstance(axis, bool) or not 0 <= axis < x.rank:
        raise IRError(f"axis = {axis!r} is not an axis of {x}; it must be in 0..{x.rank - 1}")


def check_axes(name: str, axes: Any, x: TensorType) -> None:
    """`axes` must be distinct axes of `x`."""
    for axis in ints(name, axes):
        if not 0 <= axis < x.rank:
            raise IRError(f"{name} = {tuple(axes)} names axis {axis}, but {x} has axes 0..{x.rank - 1}")
    if len(set(axes)) != len(axes):
        raise IRError(f"{name} = {tuple(axes)} names an axis twice")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise IRError(f"{name} = {value!r} must be one of {', '.join(map(repr, choices))}")


def broadcast(*types: TensorType) -> tuple[int, ...]:
    """The common shape of elementwise operands, broadcast as in NumPy."""
    first = types[0].shape
    return first if all(t.shape == first for t in types) else broadcast_shapes(*(t.shape for t in types))


def window_extent(what: str, n: int, k: int, stride: int, low: int, high: int, dilation: int, inner: int = 1) -> int:
    """The number of positions of a window of `k` taps along an axis of `n` elements.

    The axis has `inner` - 1 zeros between its elements, and `low` and `high` elements of padding at its ends (negative
    ones crop); taps are `dilation` apart and the window moves by `stride`. If the window is one element too long, there
    are 0 positions (as for a window of 1 on an empty axis); IRError if it is longer than that.
    """
    padded = (n - 1) * inner + 1 if n else 0
    padded += low + high
    extent = (k - 1) * dilation + 1
    if padded < extent - 1:
        raise IRError(f"a window that spans {extent} does not fit the padded {what} of {padded}; pad more")
    return (padded - extent) // stride + 1
