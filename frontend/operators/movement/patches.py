"""`im2col` and `col2im`: the windows of a convolution as columns of a matrix, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.operators.attributes import shape
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import check_table, require_float, shape_text

_ATTRS = {
    "kernel": shape(doc="extents of a kernel"),
    "stride": shape((), doc="default 1 along each axis"),
    "dilate": shape((), doc="default 1 along each axis"),
    "pad": shape((), doc="default 0 along each axis"),
}


class _Windows:
    """The positions of the windows in data of the given spatial extents, including padding."""

    def __init__(self, attrs: Mapping[str, Any], extents: Sequence[int]) -> None:
        n = len(extents)
        kernel = attrs["kernel"]
        stride, dilate = attrs["stride"] or (1,) * n, attrs["dilate"] or (1,) * n
        self.pad = attrs["pad"] or (0,) * n
        if not 1 <= n <= 3 or any(len(v) != n for v in (kernel, stride, dilate, self.pad)):
            raise OperatorError(f"kernel, stride, dilate and pad must have {n} dimensions, 1 to 3, as the space has")
        if any(v < 1 for v in (*kernel, *stride, *dilate)) or any(v < 0 for v in self.pad):
            raise OperatorError("kernel, stride and dilate must be at least 1, pad at least 0")
        self.padded = tuple(x + 2 * p for x, p in zip(extents, self.pad))
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilate)]
        if any(span > x for span, x in zip(spans, self.padded)):
            raise OperatorError(
                f"kernel size exceed input: it spans {shape_text(spans)}, the padded input {shape_text(self.padded)}"
            )
        counts = [(x - span) // s + 1 for x, span, s in zip(self.padded, spans, stride)]
        self.taps, self.count = math.prod(kernel), math.prod(counts)
        check_table(self.taps, self.count)
        # The position in the flattened padded space of each (tap, window).
        at = np.zeros((1, 1), np.int64)
        for k, d, c, s, extent in zip(kernel, dilate, counts, stride, self.padded):
            along = (np.arange(k)[:, None] * d + np.arange(c) * s)[None, :, None, :]
            at = (at[:, None, :, None] * extent + along).reshape(at.shape[0] * k, at.shape[1] * c)
        self.at = at.reshape(-1)


@operator("im2col", attrs=_ATTRS)
def im2col(b: Emitter, data: Any, **attrs: Any) -> Any:
    """Copies each window of a convolution to a column

    Shapes: data (batch, channels, *space) -> (batch, channels * taps, windows)

    >>> mx.nd.im2col(mx.nd.array([[[[1, 2, 3]]]]), kernel=(1, 2)).asnumpy()
    array([[[1., 2.],
            [2., 3.]]], dtype=float32)
    """
    own = require_float(data)
    batch, channels, *extents = data.shape
    w = _Windows(attrs, extents)
    x = b.pad(data, b.constant(0, own), low=(0, 0, *w.pad), high=(0, 0, *w.pad)) if any(w.pad) else data
    x = b.reshape(x, shape=(batch, channels, math.prod(w.padded)))
    return b.reshape(b.gather(x, b.constant(w.at), axis=2), shape=(batch, channels * w.taps, w.count))


@operator("col2im", attrs={"output_size": shape(doc="extents of the result's space"), **_ATTRS})
def col2im(b: Emitter, data: Any, *, output_size: tuple[int, ...], **attrs: Any) -> Any:
    """Adds each column to its window, the adjoint of `im2col`

    Shapes: data (batch, channels * taps, windows) -> (batch, channels, *output_size)

    >>> mx.nd.col2im(mx.nd.array([[[1, 2], [2, 3]]]), output_size=(1, 3), kernel=(1, 2)).asnumpy()
    array([[[[1., 4., 3.]]]], dtype=float32)
    """
    own = require_float(data)
    w = _Windows(attrs, output_size)
    if len(data.shape) != 3 or data.shape[2] != w.count or data.shape[1] % w.taps:
        raise OperatorError(
            f"columns for a kernel of {w.taps} taps and {w.count} windows must have the shape (batch, channels * "
            f"{w.taps}, {w.count}), got {shape_text(data.shape)}"
        )
    batch, channels = data.shape[0], data.shape[1] // w.taps
    rows = b.reshape(data, shape=(batch * channels, w.taps * w.count))
    space = b.broadcast(b.constant(0, own), shape=(math.prod(w.padded), batch * channels))
    space = b.scatter_add(space, b.constant(w.at[None]), b.transpose(rows, perm=(1, 0)))
    space = b.reshape(b.transpose(space, perm=(1, 0)), shape=(batch, channels, *w.padded))
    if not any(w.pad):
        return space
    return b.slice(space, start=(0, 0, *w.pad), size=(batch, channels, *output_size))
