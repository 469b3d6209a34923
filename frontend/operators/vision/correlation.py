"""`Correlation`: compares patches of one image with displaced patches of another one."""

from __future__ import annotations

from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.attributes import boolean, integer
from gluonjit.operators.control.looping import loop
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import (
    narrowed,
    require_float,
    require_same_dtype,
    require_same_shape,
    scalar,
    shape_text,
    widened,
)


@operator(
    "Correlation",
    inputs=("data1", "data2"),
    attrs={
        "kernel_size": integer(1, low=1, doc="side of a patch, odd"),
        "max_displacement": integer(1, low=0, doc="the largest displacement in pixels, along each axis"),
        "stride1": integer(1, low=1, doc="the distance from one patch of data1 to the next"),
        "stride2": integer(1, low=1, doc="the distance from one displacement to the next"),
        "pad_size": integer(0, low=0, doc="pixels of zeros around both inputs"),
        "is_multiply": boolean(True, doc="whether patches are multiplied; otherwise absolute differences are summed"),
    },
    outputs=lambda attrs: ("output", "tmp1", "tmp2"),
    visible=lambda attrs: 1,
)
def correlation(
    b: Emitter,
    data1: Any,
    data2: Any,
    *,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    pad_size: int,
    is_multiply: bool,
) -> Any:
    """The mean product of each patch of data1 with displaced patches of data2; each displacement is a channel

    Shapes: data1 and data2 (batch, channels, h, w) -> (batch, d * d, h', w'), where d = 2 * (max_displacement //
    stride2) + 1 and h' = ceil((h + 2 * pad_size - 2 * (max_displacement + kernel_size // 2)) / stride1), and so is w'

    From FlowNet (Dosovitskiy et al., 2015). The mean is over the channels and the pixels of the patch.

    >>> x = mx.nd.array([[[[1, 2, 3]]]])
    >>> mx.nd.Correlation(x, x, max_displacement=1, pad_size=1).asnumpy()[0, 3:6, 0]
    array([[0., 2., 6.],
           [1., 4., 9.],
           [2., 6., 0.]], dtype=float32)
    """
    own = require_float(data1)
    require_same_dtype(data1, data2)
    if len(data1.shape) != 4:
        raise OperatorError(f"data should be a 4D tensor, got {shape_text(data1.shape)}")
    require_same_shape(data1, data2)
    if kernel_size % 2 == 0:
        raise OperatorError(f"kernel size should be odd number, got {kernel_size}")
    batch, channels, *size = data1.shape
    border = max_displacement + kernel_size // 2
    extents = [-(-(n + 2 * pad_size - 2 * border) // stride1) for n in size]
    if min(extents) < 1:
        raise OperatorError(
            "Correlation cannot be done with current settings.Neighborhood and kernel don't fit in blob"
        )
    # The pixels of data1 at which patches are centred, and the displacements along each axis.
    spans = [(n - 1) * stride1 + kernel_size for n in extents]
    radius = max_displacement // stride2
    grid = 2 * radius + 1

    first, second = (_padded(b, widened(b, x), pad_size) for x in (data1, data2))
    dtype = dtype_of(first)
    fixed = (batch, *spans, channels)
    first = b.slice(first, start=(0, max_displacement, max_displacement, 0), size=fixed)

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        first, moved = captured
        places = (b.div(index, b.constant(grid, I64)), b.mod(index, b.constant(grid, I64)))
        for k, place in enumerate(places):
            start = place * stride2 + (max_displacement - radius * stride2)
            at = b.iota(shape=(spans[k],), axis=0, dtype=I64) + start
            moved = b.gather(moved, at, axis=1 + k)
        fit = first * moved if is_multiply else _distance(b, first, moved)
        fit = b.reduce(fit, op="sum", axes=(3,))
        if kernel_size > 1 or stride1 > 1:
            window, stride = (1, kernel_size, kernel_size), (1, stride1, stride1)
            fit = b.reduce_window(fit, op="sum", window=window, stride=stride, low=(0, 0, 0), high=(0, 0, 0))
        return [], [fit / scalar(b, kernel_size**2 * channels, dtype)]

    _, (rows,) = loop(b, body, (), (), [first, second], trip=grid * grid)
    return narrowed(b, b.transpose(rows, perm=(1, 0, 2, 3)), own)


def _distance(b: Emitter, x: Any, y: Any) -> Any:
    """|x - y|, whose derivative by x is 1 where they are equal, as in MXNet."""
    difference = x - y
    return b.select(x >= y, difference, -difference)


def _padded(b: Emitter, x: Any, pad: int) -> Any:
    """Channels last, with zeros around the image."""
    x = b.transpose(x, perm=(0, 2, 3, 1))
    around = (0, pad, pad, 0)
    return b.pad(x, scalar(b, 0, dtype_of(x)), low=around, high=around) if pad else x
