"""Operators that change the shape of a tensor, and those that return its shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.dims import is_equal, is_less
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64
from gluonjit.operators.attributes import boolean, integer, optional, shape
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import Shapes, merge, shape_text

# Reshape


def _reshaped(b: Emitter, data: Any, new: Sequence[int], codes: Sequence[int]) -> Any:
    """Reads the elements in order into a shape that may have fewer, as MXNet does. Of a shape that has more, MXNet
    leaves a part unset."""
    old, size = math.prod(data.shape), math.prod(new)
    if is_less(old, size):
        raise OperatorError(f"Cannot reshape array of size {old} into shape {tuple(codes)}")
    if not is_equal(old, size):
        data = b.slice(b.reshape(data, shape=(old,)), start=(0,), size=(size,))
    return b.reshape(data, shape=tuple(new))


def decode_shape(old: Sequence[int], codes: Sequence[int], reverse: bool = False) -> Shape:
    """Decodes MXNet's reshape codes for a tensor of shape `old`; does not check the number of elements.

    0 keeps the dimension, -1 is inferred from the number of elements, -2 keeps all remaining dimensions, -3 merges two
    of them, -4 splits one into the two numbers that follow (one of which may be -1). `reverse` reads both from right
    to left.
    """
    dims, todo = list(old), list(codes)
    if reverse:
        dims.reverse()
        todo.reverse()
    out: list[int] = []
    source = 0  # the dimension of `old` that the next code refers to
    inferred = None

    def take(count: int) -> list[int]:
        nonlocal source
        if source + count > len(dims):
            raise OperatorError(
                f"Check failed: src_idx < dshape_len ({source + count - 1} vs. {len(dims)}) : "
                f"reshape {tuple(codes)} asks for more dimensions than {shape_text(old)} has"
            )
        source += count
        return dims[source - count : source]

    while todo:
        code = todo.pop(0)
        if code == 0:
            out += take(1)
        elif code == -1:
            if inferred is not None:
                raise OperatorError("One and only one dim can be inferred")
            inferred = len(out)
            out.append(1)
            source += 1
        elif code == -2:
            out += dims[source:]
            source = max(source, len(dims))
        elif code == -3:
            out.append(math.prod(take(2)))
        elif code == -4:
            (whole,) = take(1)
            if len(todo) < 2:
                raise OperatorError("Check failed: i + 2 < params_len : -4 must be followed by two dimensions")
            out += _split(whole, todo.pop(0), todo.pop(0))
        elif code > 0:
            out.append(code)
            source += 1
        else:
            raise OperatorError(f"shape dim size must be >= -1, while received {code}")
    if inferred is not None:
        rest = math.prod(out)
        out[inferred] = math.prod(dims) // rest if rest else 0
    return tuple(reversed(out) if reverse else out)


def _split(whole: int, first: int, second: int) -> list[int]:
    if first == second == -1:
        raise OperatorError("Split dims cannot both be -1.")
    known = [first, second]
    if -1 in known:
        other = second if first == -1 else first
        known[known.index(-1)] = whole // other if other > 0 else 0
    if math.prod(known) != whole or any(n < 0 for n in known):
        raise OperatorError(f"Split dims {first}, {second} do not divide original dim {whole}")
    return known


def _resolve_target(old: Sequence[int], target: Sequence[int], keep_highest: bool) -> Shape:
    """The new shape for the deprecated attributes of old graphs: one 0 in `target` is inferred."""
    out = list(target)
    if keep_highest and out and old:
        out[0] = old[0]
    unknown = [k for k, n in enumerate(out) if n == 0]
    if len(unknown) == 1:
        rest = math.prod(n for n in out if n)
        out[unknown[0]] = math.prod(old) // rest
    return tuple(out)


def _last_unknown(known: Shape | None, size: int) -> Shape | None:
    """`known` with its only unknown dimension filled in from the number of elements."""
    if known is None or known.count(0) != 1:
        return known
    rest = math.prod(n for n in known if n)
    return known if size % rest else tuple(n or size // rest for n in known)


def _from_size(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    """A `infer_inputs` rule: the input has as many elements as the output."""
    out = outputs[0]
    if out is None or 0 in out:
        return inputs
    return [_last_unknown(inputs[0], math.prod(out)), *inputs[1:]]


@operator(
    "Reshape",
    aliases=("reshape",),
    attrs={
        "shape": shape((), doc="may hold the codes 0, -1, -2, -3 and -4"),
        "reverse": boolean(False, doc="whether to read both shapes from the right"),
        "target_shape": shape((), doc="deprecated: 0 is the dimension to infer"),
        "keep_highest": boolean(False, doc="deprecated: keeps the first dimension with target_shape"),
    },
    infer_inputs=_from_size,
)
def reshape(b: Emitter, data: Any, *, shape: Shape, reverse: bool, target_shape: Shape, keep_highest: bool) -> Any:
    """Changes the shape and keeps the elements

    Shapes: data (any) -> `shape`, of as many elements, or fewer: then the last ones are dropped

    In `shape`, 0 keeps the dimension, -1 is inferred, -2 keeps all remaining ones, -3 merges two and -4 splits one into
    the two numbers that follow. MXNetError if there would be more elements.

    >>> mx.nd.reshape(mx.nd.array([1, 2, 3, 4]), shape=(2, -1)).asnumpy()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    >>> mx.nd.reshape(mx.nd.zeros((2, 3, 4)), shape=(0, -3)).shape
    (2, 12)
    """
    old = tuple(data.shape)
    if target_shape and not shape:
        return _reshaped(b, data, _resolve_target(old, target_shape, keep_highest), target_shape)
    return _reshaped(b, data, decode_shape(old, shape, reverse), shape)


def _rows_from_output(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    data, out = inputs[0], outputs[0]
    if data is None or out is None:
        return inputs
    return [merge(data, (out[0], *data[1:]))]


@operator("Flatten", aliases=("flatten",), infer_inputs=_rows_from_output)
def flatten(b: Emitter, data: Any) -> Any:
    """Merges all axes but the first

    Shapes: data (n, …) -> (n, product of the others)

    >>> mx.nd.flatten(mx.nd.zeros((2, 3, 4))).shape
    (2, 12)
    """
    old = data.shape
    if len(old) == 2:
        return data
    return b.reshape(data, shape=(*old[:1], math.prod(old[1:])))


def _part_of(rank: int, first: int | None, last: int | None, side: str) -> tuple[int, int]:
    """The axes from `first` up to `last` (None: all); negative ones count from the end."""
    start = 0 if first is None else first + rank * (first < 0)
    stop = rank if last is None else last + rank * (last < 0)
    if start < 0:
        raise OperatorError(f"Check failed: Invalid begin for {side}_begin={first}")
    if stop > rank:
        raise OperatorError(f"Check failed: Invalid end for {side}_end={last}")
    if start >= stop:
        raise OperatorError(f"Invalid begin, end, get {side}_begin={first}, {side}_end={last}")
    return start, stop


@operator(
    "reshape_like",
    inputs=("lhs", "rhs"),
    attrs={
        f"{side}_{end}": optional(integer(doc=doc))
        for side in ("lhs", "rhs")
        for end, doc in (("begin", "the first of its axes; None: 0"), ("end", "the axis after the last; None: all"))
    },
)
def reshape_like(
    b: Emitter,
    lhs: Any,
    rhs: Any,
    *,
    lhs_begin: int | None,
    lhs_end: int | None,
    rhs_begin: int | None,
    rhs_end: int | None,
) -> Any:
    """Reshapes lhs to the shape of rhs, or only its axes [lhs_begin, lhs_end) to those [rhs_begin, rhs_end) of rhs

    Shapes: lhs (any), rhs (any) -> rhs's shape, or lhs's with some axes replaced by those of rhs

    MXNetError if the number of elements would change.

    >>> mx.nd.reshape_like(mx.nd.array([1, 2, 3, 4]), mx.nd.zeros((2, 2))).asnumpy()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    mine, other = tuple(lhs.shape), tuple(rhs.shape)
    if (lhs_begin, lhs_end, rhs_begin, rhs_end) == (None,) * 4:
        new = other
    else:
        start, stop = _part_of(len(mine), lhs_begin, lhs_end, "lhs")
        first, last = _part_of(len(other), rhs_begin, rhs_end, "rhs")
        new = mine[:start] + other[first:last] + mine[stop:]
    if math.prod(new) != math.prod(mine):
        raise OperatorError(
            f"Cannot reshape lhs with shape {shape_text(mine)} to new shape {shape_text(new)} "
            "because they have different size."
        )
    return b.reshape(lhs, shape=new)


# Axes of length 1


def _new_axis(rank: int, axis: int) -> int:
    if not -rank - 1 <= axis <= rank:
        raise OperatorError(f"axis must be in the range [{-rank}, {rank}] ({axis} provided)")
    return axis + rank + 1 if axis < 0 else axis


def _infer_expand_dims_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    out = outputs[0]
    if not out:
        return inputs
    axis = _new_axis(len(out) - 1, attrs["axis"])
    return [merge(inputs[0], (*out[:axis], *out[axis + 1 :]))]


@operator("expand_dims", attrs={"axis": integer(doc="where the new axis goes")}, infer_inputs=_infer_expand_dims_inputs)
def expand_dims(b: Emitter, data: Any, *, axis: int) -> Any:
    """Inserts an axis of length 1 at the given position

    Shapes: data (any) -> data's with 1 inserted at `axis`

    Negative numbers count from the end: -1 is after the last axis. MXNetError for an axis outside of that.

    >>> mx.nd.expand_dims(mx.nd.array([1, 2]), axis=1).asnumpy()
    array([[1.],
           [2.]], dtype=float32)
    """
    old = tuple(data.shape)
    axis = _new_axis(len(old), axis)
    return b.reshape(data, shape=(*old[:axis], 1, *old[axis:]))


def _squeezed_axes(old: Sequence[int], axis: Shape | None) -> set[int]:
    rank = len(old)
    if axis is None:
        return {k for k, n in enumerate(old) if is_equal(n, 1)}
    chosen = set()
    for a in axis:
        if not -rank <= a < rank:
            raise OperatorError(f"axis {a} is out of bounds for array of dimension {rank}")
        if old[a] not in (0, 1):
            raise OperatorError(f"cannot select an axis to squeeze out which has size={old[a]} not equal to one")
        if a % rank in chosen:
            raise OperatorError("duplicate value in axis")
        chosen.add(a % rank)
    return chosen


def _infer_squeeze_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    data, out = inputs[0], outputs[0]
    if data is None or out is None or attrs["axis"] is None:
        return inputs
    gone = _squeezed_axes(data, attrs["axis"])
    if len(data) - len(gone) != len(out):
        return inputs
    rest = iter(out)
    return [merge(data, tuple(1 if k in gone else next(rest) for k in range(len(data))))]


@operator(
    "squeeze",
    attrs={"axis": optional(shape(doc="axes to remove; None: all of length 1"), None)},
    infer_inputs=_infer_squeeze_inputs,
)
def squeeze(b: Emitter, data: Any, *, axis: Shape | None) -> Any:
    """Removes the given axes of length 1, or by default all of them; at least one axis remains

    Shapes: data (any) -> data's without these axes

    MXNetError for an axis of another length.

    >>> mx.nd.squeeze(mx.nd.array([[[1], [2]]])).asnumpy()
    array([1., 2.], dtype=float32)
    """
    old = tuple(data.shape)
    gone = _squeezed_axes(old, axis)
    if any(old[k] != 1 for k in gone):
        raise OperatorError("cannot select an axis to squeeze out which has size=0 not equal to one")
    return b.reshape(data, shape=tuple(n for k, n in enumerate(old) if k not in gone) or (1,))


# The shape as data


@operator("shape_array")
def shape_array(b: Emitter, data: Any) -> Any:
    """The shape, as int64

    Shapes: data (any) -> (axes,)

    >>> mx.nd.shape_array(mx.nd.zeros((2, 3))).asnumpy().tolist()
    [2, 3]
    """
    return b.constant(tuple(data.shape), I64)


@operator("size_array")
def size_array(b: Emitter, data: Any) -> Any:
    """The number of elements, as int64 in shape (1,)

    Shapes: data (any) -> (1,)

    >>> mx.nd.size_array(mx.nd.zeros((2, 3))).asnumpy().tolist()
    [6]
    """
    return b.constant((math.prod(data.shape),), I64)
