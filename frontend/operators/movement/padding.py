"""`Pad`: padding of images."""

from __future__ import annotations

from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.operators.attributes import enum, number, shape
from gluonjit.operators.movement.joining import part
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import require_float, scalar, shape_text


def _ends(b: Emitter, x: Any, axis: int, low: int, high: int, mode: str) -> Any:
    """Pads `x` along one axis with `low` and `high` elements: copies of its ends, or its mirror image."""
    n = x.shape[axis]
    parts = [x]
    for count, at_low in ((low, True), (high, False)):
        if not count:
            continue
        if mode == "edge":
            edge = part(b, x, axis, 0, 1) if at_low else part(b, x, axis, n - 1, n)
            piece = b.broadcast(edge, shape=(*x.shape[:axis], count, *x.shape[axis + 1 :]))
        else:
            # The outermost element is the axis of reflection and is not repeated.
            image = part(b, x, axis, 1, count + 1) if at_low else part(b, x, axis, n - 1 - count, n - 1)
            piece = b.reverse(image, axes=(axis,))
        parts.insert(0 if at_low else len(parts), piece)
    return b.concat(*parts, axis=axis) if len(parts) > 1 else x


@operator(
    "Pad",
    aliases=("pad",),
    attrs={
        "mode": enum(("constant", "edge", "reflect"), doc="what is added"),
        "pad_width": shape(doc="per axis: elements to add before and after"),
        "constant_value": number(0.0, doc="the value of the added elements, for `constant`"),
    },
)
def pad(b: Emitter, data: Any, *, mode: str, pad_width: Shape, constant_value: float) -> Any:
    """Pads the spatial axes of a 4-D or 5-D tensor with a constant, the edge or the mirror image

    Shapes: data (batch, channels, …) of 4 or 5 axes -> each extent plus its two entries of `pad_width`

    MXNetError if the first two axes are to be padded, or a mirror image is longer than the data.

    >>> image = mx.nd.array([[[[1, 2]]]])
    >>> mx.nd.pad(image, mode="edge", pad_width=(0, 0, 0, 0, 0, 0, 1, 1)).asnumpy()
    array([[[[1., 1., 2., 2.]]]], dtype=float32)
    """
    rank = len(data.shape)
    if rank not in (4, 5):
        raise OperatorError("Current implementation only supports 4-D or 5-D input.")
    if len(pad_width) != 2 * rank:
        raise OperatorError("Input shape vs padding spec mismatch.")
    if any(pad_width[:4]):
        raise OperatorError("Current implementation expects padding on the first two axes to be zero.")
    if min(pad_width) < 0:
        raise OperatorError(f"pad_width must not be negative, got {tuple(pad_width)}")
    dtype = require_float(data)
    low, high = tuple(pad_width[::2]), tuple(pad_width[1::2])
    if mode == "constant":
        return b.pad(data, scalar(b, constant_value, dtype), low=low, high=high)
    y = data
    for axis in range(2, rank):
        n = data.shape[axis]
        if mode == "reflect" and max(low[axis], high[axis]) >= max(n, 1):
            raise OperatorError(
                "Current implementation of reflection padding only supports padding sizes smaller than the input size."
            )
        if n == 0 and low[axis] + high[axis]:
            raise OperatorError(f"axis {axis} of {shape_text(data.shape)} is empty and has no edge to copy")
        y = _ends(b, y, axis, low[axis], high[axis], mode)
    return y
