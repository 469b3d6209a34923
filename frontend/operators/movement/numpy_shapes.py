"""Operators of `mx.np` that move elements. As in NumPy, tensors may have rank 0 and axes may have length 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.ir.dims import is_equal
from gluonjit.ir.graph import Emitter
from gluonjit.ir.opdef import REQUIRED
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.attributes import (
    Attr,
    boolean,
    counted,
    enum,
    integer,
    literal,
    number,
    optional,
    shape,
    string,
)
from gluonjit.operators.documentation import documented, example
from gluonjit.operators.movement.creation import diag as legacy_diag
from gluonjit.operators.movement.joining import concat, part, split_v2
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import axis_in, require_same_dtype, scalar, shape_text

# Axes


@operator(
    "_np_transpose",
    inputs=("a",),
    attrs={"axes": optional(shape(doc="result axis k is data axis axes[k]; None reverses all"), None)},
)
def transpose(b: Emitter, a: Any, *, axes: Shape | None) -> Any:
    """Permutes the axes; reverses them if no order is given

    Shapes: a (any) -> its extents in the order `axes`

    >>> mx.np.transpose(mx.np.array([[1, 2, 3], [4, 5, 6]])).asnumpy()
    array([[1., 4.],
           [2., 5.],
           [3., 6.]], dtype=float32)
    """
    rank = len(a.shape)
    perm = tuple(range(rank))[::-1] if axes is None or axes == () else tuple(axis_in(k, rank, "axes") for k in axes)
    if sorted(perm) != list(range(rank)):
        raise OperatorError(f"axes {axes} do not match an array of shape {shape_text(a.shape)}")
    return b.transpose(a, perm=perm)


@operator(
    "_np_moveaxis",
    inputs=("a",),
    attrs={"source": shape(doc="axes to move"), "destination": shape(doc="where they go")},
)
def moveaxis(b: Emitter, a: Any, *, source: Shape, destination: Shape) -> Any:
    """Moves the axes `source` to the positions `destination`; the others keep their order

    Shapes: a (any) -> the same, in another order

    >>> mx.np.moveaxis(mx.np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    rank = len(a.shape)
    sources, places = ([axis_in(k, rank) for k in axes] for axes in (source, destination))
    if len(sources) != len(places) or len({*sources}) < len(sources) or len({*places}) < len(places):
        raise OperatorError("source and destination must have the same number of different axes")
    order = [axis for axis in range(rank) if axis not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return b.transpose(a, perm=tuple(order))


@operator(
    "_np_squeeze", inputs=("a",), attrs={"axis": optional(shape(doc="axes to remove; None: all of length 1"), None)}
)
def squeeze(b: Emitter, a: Any, *, axis: Shape | None) -> Any:
    """Removes the given axes, which must have length 1, or by default all axes of length 1

    Shapes: a (any) -> a's without these axes

    >>> mx.np.squeeze(mx.np.zeros((1, 2, 1))).shape
    (2,)
    """
    old = tuple(a.shape)
    gone = {k for k, n in enumerate(old) if is_equal(n, 1)} if axis is None else {axis_in(k, len(old)) for k in axis}
    if any(old[k] != 1 for k in gone):
        raise OperatorError(f"cannot select an axis to squeeze out which has size not equal to one: {shape_text(old)}")
    return b.reshape(a, shape=tuple(n for k, n in enumerate(old) if k not in gone))


@operator("_npi_broadcast_to", inputs=("array",), attrs={"shape": shape((), doc="the shape of the result")})
def broadcast_to(b: Emitter, array: Any, *, shape: Shape) -> Any:
    """Broadcasts the tensor along axes of length 1 and along new leading axes

    Shapes: array (any) -> `shape`

    >>> mx.np.broadcast_to(mx.np.array([1, 2]), (2, 2)).asnumpy()
    array([[1., 2.],
           [1., 2.]], dtype=float32)
    """
    old, new = tuple(array.shape), tuple(shape)
    # -2 keeps the length that the axis has.
    lead = len(new) - len(old)
    new = tuple(old[k - lead] if n == -2 and k >= lead else n for k, n in enumerate(new))
    if lead < 0 or any(m not in (1, n) for m, n in zip(old, new[lead:])):
        raise OperatorError(f"Array cannot be broadcasted from {shape_text(old)} to {shape_text(new)}")
    return b.broadcast(array, shape=new)


def _npx_shape(old: Shape, codes: Shape) -> Shape:
    out: list[int] = []
    todo, at = list(codes), 0

    def take(count: int) -> Shape:
        nonlocal at
        at += count
        if at > len(old):
            raise OperatorError(f"reshape {codes} asks for more dimensions than {shape_text(old)} has")
        return old[at - count : at]

    while todo:
        code = todo.pop(0)
        if code == -2:
            out += take(1)
        elif code == -3:
            if take(1) != (1,):
                raise OperatorError("reshape: -3 leaves out a dimension, which must be 1")
        elif code == -4:
            out += old[at:]
            at = len(old)
        elif code == -5:
            out.append(math.prod(take(2)))
        elif code == -6:
            (whole,) = take(1)
            pair, todo = todo[:2], todo[2:]
            if len(pair) < 2 or pair == [-1, -1]:
                raise OperatorError("reshape: -6 is followed by two dimensions, one of which may be -1")
            known = max(pair) or 1
            out += [whole // known if n == -1 else n for n in pair]
        elif code >= -1:
            out.append(code)
            at += 1
        else:
            raise OperatorError(f"reshape: dimension {code} has no meaning")
    return tuple(out)


def filled_in(size: int, codes: Shape) -> Shape:
    """The shape `codes` for `size` elements, with the dimension of -1 inferred."""
    known = math.prod(n for n in codes if n != -1)
    if codes.count(-1) > 1:
        raise OperatorError("One and only one dim can be inferred")
    if known != size if -1 not in codes else not known or size % known:
        raise OperatorError(f"Cannot reshape array of size {size} into shape {shape_text(codes)}")
    return tuple(size // known if n == -1 else n for n in codes)


@operator(
    "_npx_reshape",
    aliases=("_npi_reshape",),
    inputs=("a",),
    attrs={
        "newshape": shape(doc="the shape of the result"),
        "reverse": boolean(False, doc="whether to read both shapes from the right"),
        "order": string("C", doc="has no effect: always C"),
    },
)
def npx_reshape(b: Emitter, a: Any, *, newshape: Shape, reverse: bool, order: str) -> Any:
    """Changes the shape: -1 is inferred, and other negative numbers are codes

    Shapes: a (any) -> `newshape`, of as many elements

    -2 keeps a dimension, -3 removes one of length 1, -4 keeps all remaining ones, -5 merges two, -6 splits one into the
    two numbers that follow. `reverse` reads the dimensions and codes from right to left.

    >>> mx.npx.reshape(mx.np.zeros((2, 3, 4)), (-2, -5)).shape
    (2, 12)
    """
    old = tuple(a.shape)
    if reverse:
        codes = _npx_shape(old[::-1], tuple(newshape)[::-1])[::-1]
    else:
        codes = _npx_shape(old, tuple(newshape))
    return b.reshape(a, shape=filled_in(math.prod(old), codes))


# Joining


def _at_least(b: Emitter, x: Any, rank: int) -> Any:
    """Adds axes of length 1 up to the given rank: leading ones, but for rank 3 the last one is trailing."""
    old = tuple(x.shape)
    after = 1 if rank == 3 and len(old) in (1, 2) else 0
    lead = max(rank - len(old) - after, 0)
    new = (*(1,) * lead, *old, *(1,) * after) if len(old) < rank else old
    return b.reshape(x, shape=new)


def _join(b: Emitter, parts: list[Any], axis: int) -> Any:
    return concat.expand(b, *parts, num_args=len(parts), dim=axis)


_AS_CONCATENATE: dict[str, Any] = {
    "inputs": lambda attrs: tuple(f"data{k}" for k in range(attrs["num_args"])),
    "outputs": lambda attrs: ("out",),
}
"""MXNet's input and output names of some of these operators."""


def _declare_join(
    name: str,
    doc: str,
    y: str,
    shaped: Callable[[Emitter, Any], Any],
    axis: Callable[[int], int],
    dim: Attr | None = None,
) -> None:
    """`y`: the result for the vectors (1, 2) and (3, 4)."""

    def expand(b: Emitter, *data: Any, num_args: int, **_dim: int) -> Any:
        parts = [shaped(b, x) for x in data]
        return _join(b, parts, axis(len(parts[0].shape)))

    call = f"mx.np.{name}([mx.np.array([1, 2]), mx.np.array([3, 4])])"
    joined = "arrays alike but along that axis -> the same, with the sum of their extents along it"
    expand.__doc__ = documented(doc, joined, "MXNetError if they differ in another axis.", example(call, y))
    attrs = {"num_args": counted(doc="how many inputs there are")}
    if dim is None:
        operator(f"_npi_{name}", variadic=True, attrs=attrs)(expand)
    else:
        operator(f"_npi_{name}", variadic=True, attrs={**attrs, "dim": dim}, **_AS_CONCATENATE)(expand)


def _column(b: Emitter, x: Any) -> Any:
    return b.reshape(x, shape=(math.prod(x.shape), 1)) if len(x.shape) < 2 else x


_DIM = integer(1, doc="has no effect")
_declare_join(
    "vstack",
    "Concatenates the inputs along the first axis; a vector is a row",
    "[[1., 2.],\n       [3., 4.]]",
    lambda b, x: _at_least(b, x, 2),
    lambda rank: 0,
)
_declare_join(
    "hstack",
    "Concatenates the inputs along the second axis; vectors along their only one",
    "[1., 2., 3., 4.]",
    lambda b, x: _at_least(b, x, 1),
    lambda rank: 1 if rank > 1 else 0,
    _DIM,
)
_declare_join(
    "dstack",
    "Concatenates the inputs along the third axis; a vector is (1, n, 1)",
    "[[[1., 3.],\n        [2., 4.]]]",
    lambda b, x: _at_least(b, x, 3),
    lambda rank: 2,
    _DIM,
)
_declare_join(
    "column_stack",
    "Concatenates the inputs along the second axis; a vector is a column",
    "[[1., 3.],\n       [2., 4.]]",
    _column,
    lambda rank: 1,
)


@operator(
    "_npi_stack",
    variadic=True,
    attrs={"axis": integer(0, doc="where the new axis goes"), "num_args": counted(doc="how many inputs there are")},
)
def stack(b: Emitter, *data: Any, axis: int, num_args: int) -> Any:
    """Joins inputs of the same shape along a new axis

    Shapes: n arrays of one shape -> that shape, with n inserted at `axis`

    >>> mx.np.stack([mx.np.array([1, 2]), mx.np.array([3, 4])], axis=1).asnumpy()
    array([[1., 3.],
           [2., 4.]], dtype=float32)
    """
    require_same_dtype(*data)
    old = tuple(data[0].shape)
    axis = axis_in(axis, len(old) + 1)
    if any(tuple(x.shape) != old for x in data):
        raise OperatorError("all input arrays must have the same shape")
    return _join(b, [b.reshape(x, shape=(*old[:axis], 1, *old[axis:])) for x in data], axis)


@operator(
    "_npi_concatenate",
    variadic=True,
    attrs={
        "num_args": counted(doc="how many inputs there are"),
        "axis": optional(integer(doc="the axis to join along; None: the flattened inputs"), 0),
    },
    **_AS_CONCATENATE,
)
def concatenate(b: Emitter, *data: Any, num_args: int, axis: int | None) -> Any:
    """Concatenates the inputs along the axis; without an axis, the flattened inputs

    Shapes: arrays alike but along `axis` -> the same, with the sum of their extents along `axis`

    >>> mx.np.concatenate([mx.np.array([[1, 2]]), mx.np.array([[3]])], axis=1).asnumpy()
    array([[1., 2., 3.]], dtype=float32)
    """
    if axis is None:
        return _join(b, [b.reshape(x, shape=(math.prod(x.shape),)) for x in data], 0)
    return _join(b, list(data), axis)


# Splitting


def _declare_split(name: str, doc: str, x: str, y: str, own_axis: Callable[[int], int]) -> None:
    """`x`, `y`: an array, and its two parts."""

    def expand(b: Emitter, data: Any, *, axis: int, **attrs: Any) -> Any:
        return split_v2.expand(b, data, axis=own_axis(len(data.shape)), **attrs)

    call = f">>> [y.asnumpy().tolist() for y in mx.np.{name}(mx.np.array({x}), 2)]\n{y}"
    expand.__doc__ = documented(doc, "data (any) -> parts that differ along that axis", call)
    attrs = {**split_v2.attrs, "axis": integer(1, doc="has no effect")}
    operator(f"_npi_{name}", attrs=attrs, outputs=split_v2.outputs)(expand)


_declare_split(
    "hsplit",
    "`split` along the second axis; of a vector, along its only one",
    "[[1, 2]]",
    "[[[1.0]], [[2.0]]]",
    lambda rank: min(rank - 1, 1),
)
_declare_split("dsplit", "`split` along the third axis", "[[[1, 2]]]", "[[[[1.0]]], [[[2.0]]]]", lambda rank: 2)


# Order


@operator("_npi_flip", attrs={"axis": optional(shape(doc="axes to reverse; None: all"), REQUIRED)})
def flip(b: Emitter, data: Any, *, axis: Shape | None) -> Any:
    """Reverses the elements along the axes, by default along all

    Shapes: data (any) -> the same

    >>> mx.np.flip(mx.np.array([[1, 2, 3], [4, 5, 6]]), 1).asnumpy()
    array([[3., 2., 1.],
           [6., 5., 4.]], dtype=float32)
    """
    if axis is None:
        axis = tuple(range(len(data.shape)))
    return b.reverse(data, axes=tuple(axis_in(k, len(data.shape)) for k in axis)) if axis else data


@operator(
    "_np_roll",
    attrs={
        "shift": optional(shape(doc="how many places to shift by"), None),
        "axis": optional(shape(doc="the axes along which to shift; None: in the flattened data"), None),
    },
)
def roll(b: Emitter, data: Any, *, shift: Shape | None, axis: Shape | None) -> Any:
    """Shifts the elements circularly along the axes; without an axis, in the flattened tensor

    Shapes: data (any) -> the same

    >>> mx.np.roll(mx.np.array([1, 2, 3]), 1).asnumpy()
    array([3., 1., 2.], dtype=float32)
    """
    if shift is None:
        raise OperatorError("roll needs a shift")
    old = tuple(data.shape)
    if axis is None:
        if len(shift) != 1:
            raise OperatorError("shift of the flattened tensor is one number")
        return b.reshape(_rolled(b, b.reshape(data, shape=(math.prod(old),)), 0, shift[0]), shape=old)
    if len(shift) not in (1, len(axis)):
        raise OperatorError(f"shift {shift} and axis {axis} do not go together")
    for k, distance in zip(axis, shift * len(axis) if len(shift) == 1 else shift):
        data = _rolled(b, data, axis_in(k, len(old)), distance)
    return data


def _rolled(b: Emitter, x: Any, axis: int, distance: int) -> Any:
    n = x.shape[axis]
    cut = -distance % n if n else 0
    return b.concat(part(b, x, axis, cut, n), part(b, x, axis, 0, cut), axis=axis) if cut else x


# Matrices


@operator("_npi_tril", attrs={"k": integer(0, doc="which diagonal; positive ones are above the main one")})
def tril(b: Emitter, data: Any, *, k: int) -> Any:
    """Sets the elements above diagonal `k` of matrices to 0; a vector stands for the matrix that has it in each row

    Shapes: data (…, n, m), or (n,) -> data's shape, or (n, n)

    >>> mx.np.tril(mx.np.array([[1, 2], [3, 4]])).asnumpy()
    array([[1., 0.],
           [3., 4.]], dtype=float32)
    """
    if not data.shape:
        raise OperatorError("tril needs an array of at least one axis")
    if len(data.shape) == 1:
        data = b.broadcast(data, shape=(data.shape[0], data.shape[0]))
    rows, columns = data.shape[-2:]
    row = b.iota(shape=(rows, 1), axis=0, dtype=I64)
    column = b.iota(shape=(1, columns), axis=1, dtype=I64)
    return b.select(column <= row + k, data, b.constant(0, dtype_of(data)))


@operator("_np_diag", attrs={"k": integer(0, doc="which diagonal; positive ones are above the main one")})
def diag(b: Emitter, data: Any, *, k: int) -> Any:
    """A diagonal of a matrix, or a matrix with the given diagonal

    Shapes: data (n, m) -> (length of the diagonal,); data (n,) -> (n + |k|, n + |k|)

    >>> mx.np.diag(mx.np.array([[1, 2], [3, 4]])).asnumpy()
    array([1., 4.], dtype=float32)
    """
    if len(data.shape) not in (1, 2):
        raise OperatorError("Input must be 1- or 2-d.")
    return legacy_diag.expand(b, data, k=k, axis1=0, axis2=1)


@operator(
    "_np_diagonal",
    attrs={
        "offset": integer(0, doc="which diagonal; positive ones are above the main one"),
        "axis1": integer(0, doc="the rows"),
        "axis2": integer(1, doc="the columns"),
    },
)
def diagonal(b: Emitter, data: Any, *, offset: int, axis1: int, axis2: int) -> Any:
    """A diagonal of the matrices in two axes, as the last axis

    Shapes: data (any) -> the other axes, then the length of the diagonal

    >>> mx.np.diagonal(mx.np.array([[1, 2], [3, 4]]), 1).asnumpy()
    array([2.], dtype=float32)
    """
    if len(data.shape) < 2:
        raise OperatorError("diagonal needs an array of at least two axes")
    return legacy_diag.expand(b, data, k=offset, axis1=axis1, axis2=axis2)


@operator(
    "_np_trace",
    attrs={
        "offset": integer(0, doc="which diagonal; positive ones are above the main one"),
        "axis1": integer(0, doc="the rows"),
        "axis2": integer(1, doc="the columns"),
    },
)
def trace(b: Emitter, data: Any, *, offset: int, axis1: int, axis2: int) -> Any:
    """The sum of a diagonal of the matrices in two axes

    Shapes: data (any) -> the other axes

    >>> mx.np.trace(mx.np.array([[[1], [2]], [[3], [4]]])).asnumpy()
    array([5.], dtype=float32)
    """
    line = diagonal.expand(b, data, offset=offset, axis1=axis1, axis2=axis2)
    return b.reduce(line, op="sum", axes=(len(line.shape) - 1,))


# Padding


def _pairs(value: Any) -> tuple[tuple[int, int], ...]:
    pairs = literal(value) if isinstance(value, str) else value
    parsed = tuple(_PAIR.parse(pair) for pair in pairs)
    if any(len(pair) != 2 for pair in parsed):
        raise ValueError(f"expect pairs, got {value!r}")
    return parsed  # type: ignore[return-value]


_PAIR = shape()


@operator(
    "_npi_pad",
    attrs={
        "pad_width": Attr("tuple of <Shape(tuple)>", _pairs, doc="per axis: elements to add before and after"),
        "mode": enum(("constant", "edge", "reflect", "symmetric"), "constant", doc="what is added"),
        "constant_value": number(0.0, doc="the value of the added elements, for `constant`"),
        "reflect_type": string("even", doc="has no effect: always even"),
    },
)
def pad(b: Emitter, data: Any, *, pad_width: Any, mode: str, constant_value: float, reflect_type: str) -> Any:
    """Pads the tensor with a constant, its edge or its mirror image

    Shapes: data (any) -> each extent plus its two entries of `pad_width`

    >>> mx.np.pad(mx.np.array([1, 2]), ((1, 2),), mode="constant").asnumpy()
    array([0., 1., 2., 0., 0.], dtype=float32)
    """
    rank = len(data.shape)
    if len(pad_width) != rank or any(min(pair) < 0 for pair in pad_width):
        raise OperatorError(f"pad_width {pad_width} does not fit the shape {shape_text(data.shape)}")
    if mode == "constant":
        low, high = tuple(p[0] for p in pad_width), tuple(p[1] for p in pad_width)
        return b.pad(data, scalar(b, constant_value, dtype_of(data)), low=low, high=high)
    for axis, (low, high) in enumerate(pad_width):
        n = data.shape[axis]
        if low or high:
            if not n or max(low, high) > n - (mode == "reflect"):
                raise OperatorError(f"pad_width {pad_width} is more than the shape {shape_text(data.shape)} has")
            # Padding the positions with NumPy gives the source of each element.
            index = np.pad(np.arange(n), (low, high), mode=mode)  # type: ignore[call-overload]
            data = b.gather(data, b.constant(index, I64), axis=axis, mode="clip")
    return data
