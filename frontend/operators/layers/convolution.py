"""`Convolution` and `Deconvolution`, in 1 to 3 dimensions, channels first or last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import DType
from gluonjit.operators.attributes import boolean, enum, integer, optional, shape
from gluonjit.operators.layers.dense import weight_inputs
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    Shapes,
    along,
    merge,
    parameters,
    require_float,
    require_same_dtype,
    require_shape,
    shape_text,
)

_DEFAULT_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}

_ATTRS = {
    "kernel": shape(doc="extents of a kernel"),
    "stride": shape((), doc="default 1 along each axis"),
    "dilate": shape((), doc="default 1 along each axis"),
    "pad": shape((), doc="default 0 along each axis"),
    "num_filter": integer(low=1, doc="how many kernels there are, and channels of the result"),
    "num_group": integer(1, low=1, doc="groups of channels, each with its own kernels"),
    "workspace": integer(1024, low=0, doc="has no meaning here"),
    "no_bias": boolean(False, doc="whether there is no input `bias`"),
    "cudnn_tune": optional(enum(("fastest", "limited_workspace", "off"), doc="has no effect"), None),
    "cudnn_off": boolean(False, doc="has no effect"),
    "layout": optional(
        enum(
            ("NCDHW", "NCHW", "NCW", "NDHWC", "NHWC"),
            doc="order of the axes of data and result; None: channels after the batch",
        ),
        None,
    ),
}


class Geometry:
    """The attributes with defaults filled in, per spatial axis, and the position of each axis in the data."""

    def __init__(self, attrs: Mapping[str, Any], rank: int) -> None:
        self.kernel = attrs["kernel"]
        self.n = len(self.kernel)
        if self.n not in _DEFAULT_LAYOUTS:
            raise OperatorError(f"{self.n}D convolution is not supported: kernel = {shape_text(self.kernel)}")
        self.layout = attrs["layout"] or _DEFAULT_LAYOUTS[self.n]
        if rank != self.n + 2:
            order = "-".join({"N": "batch", "C": "num_filter"}.get(axis, axis.lower()) for axis in self.layout)
            raise OperatorError(
                f"Input data should be {self.n + 2}D in {order} for kernel = {shape_text(self.kernel)}, "
                f"but it has {rank} dimensions"
            )
        if len(self.layout) != rank:
            raise OperatorError(f"layout {self.layout} does not fit data of {rank} dimensions")
        self.stride = self._each(attrs, "stride", 1, 1)
        self.dilate = self._each(attrs, "dilate", 1, 1)
        self.pad = self._each(attrs, "pad", 0, 0)
        self.groups = attrs["num_group"]
        self.channel = self.layout.index("C")
        self.spatial = tuple(k for k in range(rank) if k not in (0, self.channel))
        # The primitive's layouts, in which digits are spatial axes. Channels are last in the weights if in the data.
        digits = "".join(map(str, range(self.n)))
        self.last = self.channel == rank - 1
        self.data_layout = f"N{digits}C" if self.last else f"NC{digits}"
        self.weight_layout = f"O{digits}I" if self.last else f"OI{digits}"
        if attrs["num_filter"] % self.groups:
            raise OperatorError(f"num_filter = {attrs['num_filter']} must be divisible by num_group = {self.groups}")

    def _each(self, attrs: Mapping[str, Any], name: str, default: int, low: int) -> tuple[int, ...]:
        values = attrs[name] or (default,) * self.n
        if len(values) != self.n:
            raise OperatorError(
                f"{name} must have the same number of dimensions with kernel_size, "
                f"but kernel_size is set to {shape_text(self.kernel)} while {name} is {shape_text(values)}"
            )
        if any(v < low for v in values):
            raise OperatorError(f"incorrect {name} size: {shape_text(values)}; entries must be at least {low}")
        return values

    def span(self, k: int) -> int:
        """The extent of the dilated kernel along spatial axis `k`."""
        return (self.kernel[k] - 1) * self.dilate[k] + 1

    def weight_shape(self, outer: int, inner: int) -> Shape:
        """Shape of the weights with their two channel axes `outer` and `inner`."""
        return (outer, *self.kernel, inner) if self.last else (outer, inner, *self.kernel)

    def group_channels(self, channels: int) -> int:
        if channels % self.groups:
            raise OperatorError(f"input channels = {channels} must be divisible by num_group = {self.groups}")
        return channels // self.groups


def _add_bias(b: Emitter, out: Any, bias: Any, geometry: Geometry, filters: int) -> Any:
    if bias is None:
        return out
    require_same_dtype(out, bias)
    require_shape(bias, (filters,), "bias")
    return out + b.reshape(bias, shape=along(geometry.channel, len(out.shape), filters))


def _convolution_parameters(attrs: Mapping[str, Any], data: Shape) -> Sequence[Shape | None]:
    g, filters = Geometry(attrs, len(data)), attrs["num_filter"]
    return [g.weight_shape(filters, g.group_channels(data[g.channel])), (filters,)]


def _infer_convolution_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    """Infers the batch size, and the extents along axes of stride 1, from the output."""
    data, out = inputs[0], outputs[0]
    if data is None or out is None:
        return inputs
    g = Geometry(attrs, len(data))
    known = [out[0], *(0,) * (len(data) - 1)]
    for k, axis in enumerate(g.spatial):
        if out[axis] and g.stride[k] == 1:
            known[axis] = out[axis] + g.span(k) - 1 - 2 * g.pad[k]
    return [merge(data, tuple(known)), *inputs[1:]]


CONVOLUTION: dict[str, Any] = {
    "inputs": weight_inputs,
    "attrs": _ATTRS,
    "complete": parameters(_convolution_parameters),
    "infer_inputs": _infer_convolution_inputs,
}


@operator("Convolution", **CONVOLUTION)
def convolution(b: Emitter, data: Any, weight: Any, bias: Any = None, **attrs: Any) -> Any:
    """Cross-correlation of the data with num_filter kernels, plus a bias per filter

    Shapes: data (batch, channels, *space), weight (num_filter, channels / num_group, *kernel), bias (num_filter,) ->
    (batch, num_filter, *extents)

    The space has 1 to 3 axes. With a layout such as NHWC, channels are last in data, weight and result. An extent is
    floor((n + 2 pad - dilate (kernel - 1) - 1) / stride) + 1. Each of `num_group` groups of filters sees its own group
    of channels. MXNetError if a kernel is larger than the padded data.

    >>> data = mx.nd.array([[[1, 2, 4, 8]]])
    >>> mx.nd.Convolution(data, mx.nd.array([[[-1, 1]]]), no_bias=True, kernel=2, num_filter=1).asnumpy()
    array([[[1., 2., 4.]]], dtype=float32)
    """
    require_float(data)
    return convolve(b, data, weight, bias, **attrs)


def convolve(b: Emitter, data: Any, weight: Any, bias: Any = None, *, dtype: DType | None = None, **attrs: Any) -> Any:
    """`convolution` for data of any numeric type, with results, and a bias, of the type `dtype`: None for the same."""
    require_same_dtype(data, weight)
    g, filters = Geometry(attrs, len(data.shape)), attrs["num_filter"]
    require_shape(weight, g.weight_shape(filters, g.group_channels(data.shape[g.channel])), "weight")
    for k, axis in enumerate(g.spatial):
        if g.span(k) > data.shape[axis] + 2 * g.pad[k]:
            raise OperatorError(
                f"kernel size exceed input: it spans {g.span(k)} along axis {axis}, where the padded input has "
                f"{data.shape[axis] + 2 * g.pad[k]}"
            )
    out = b.conv(
        data,
        weight,
        stride=g.stride,
        low=g.pad,
        high=g.pad,
        dilation=g.dilate,
        input_dilation=(1,) * g.n,
        groups=g.groups,
        layout=(g.data_layout, g.weight_layout, g.data_layout),
        dtype=dtype,
    )
    return _add_bias(b, out, bias, g, filters)


def _adjusted(g: Geometry, attrs: Mapping[str, Any], extents: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Per axis, the padding to remove and the number of elements to append; `target_shape` overrides both."""
    target = attrs["target_shape"]
    if not target:
        adj = g._each(attrs, "adj", 0, 0)
        for k in range(g.n):
            if adj[k] >= g.stride[k]:
                raise OperatorError(f"adj[{k}] = {adj[k]} must be smaller than stride[{k}] = {g.stride[k]}")
        return g.pad, adj
    if len(target) != g.n:
        raise OperatorError(f"target_shape {shape_text(target)} must have an entry per axis of {shape_text(g.kernel)}")
    surplus = tuple(g.stride[k] * (extents[k] - 1) + g.span(k) - target[k] for k in range(g.n))
    if min(surplus) < 0:
        raise OperatorError(f"too big target shape: {shape_text(target)} is beyond what the kernel reaches")
    return tuple((s + 1) // 2 for s in surplus), tuple(s % 2 for s in surplus)


def _deconvolution_parameters(attrs: Mapping[str, Any], data: Shape) -> Sequence[Shape | None]:
    g, filters = Geometry(attrs, len(data)), attrs["num_filter"]
    return [g.weight_shape(data[g.channel], filters // g.groups), (filters,)]


def _infer_batch_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    data, out = inputs[0], outputs[0]
    if data is None or out is None:
        return inputs
    return [merge(data, (out[0], *(0,) * (len(data) - 1))), *inputs[1:]]


@operator(
    "Deconvolution",
    inputs=weight_inputs,
    attrs={
        **{k: _ATTRS[k] for k in ("kernel", "stride", "dilate", "pad")},
        "adj": shape((), doc="elements appended to each axis of the result, fewer than its stride"),
        "target_shape": shape((), doc="extents of the result; replaces pad and adj"),
        "num_filter": _ATTRS["num_filter"],
        "num_group": _ATTRS["num_group"],
        "workspace": integer(512, low=0, doc="has no meaning here"),
        "no_bias": boolean(True, doc="whether there is no input `bias`"),
        **{k: _ATTRS[k] for k in ("cudnn_tune", "cudnn_off", "layout")},
    },
    complete=parameters(_deconvolution_parameters),
    infer_inputs=_infer_batch_inputs,
)
def deconvolution(b: Emitter, data: Any, weight: Any, bias: Any = None, **attrs: Any) -> Any:
    """Transposed convolution: the gradient of `Convolution` with respect to its data, plus a bias per filter

    Shapes: data (batch, channels, *space), weight (channels, num_filter / num_group, *kernel), bias (num_filter,) ->
    (batch, num_filter, *extents)

    An extent is stride (n - 1) + dilate (kernel - 1) + 1 - 2 pad + adj.

    >>> data = mx.nd.array([[[1, 2]]])
    >>> mx.nd.Deconvolution(data, mx.nd.array([[[1, 10]]]), kernel=2, stride=2, num_filter=1).asnumpy()
    array([[[ 1., 10.,  2., 20.]]], dtype=float32)
    """
    require_float(data)
    require_same_dtype(data, weight)
    g, filters = Geometry(attrs, len(data.shape)), attrs["num_filter"]
    channels = data.shape[g.channel]
    inner = filters // g.groups
    require_shape(weight, g.weight_shape(channels, inner), "weight")
    pad, adj = _adjusted(g, attrs, [data.shape[axis] for axis in g.spatial])
    # A convolution of the data, dilated by `stride`, with the kernels reversed and their channel axes swapped.
    taps = tuple(range(1, 1 + g.n)) if g.last else tuple(range(2, 2 + g.n))
    weight = b.reverse(weight, axes=taps)
    layout = g.weight_layout.translate(str.maketrans("OI", "IO"))
    if g.groups > 1:
        weight, layout = _swap_channels(b, weight, g, channels, inner), g.weight_layout
    low = tuple(g.span(k) - 1 - pad[k] for k in range(g.n))
    out = b.conv(
        data,
        weight,
        stride=(1,) * g.n,
        low=low,
        high=tuple(low[k] + adj[k] for k in range(g.n)),
        dilation=g.dilate,
        input_dilation=g.stride,
        groups=g.groups,
        layout=(g.data_layout, layout, g.data_layout),
    )
    return _add_bias(b, out, bias, g, filters)


def _swap_channels(b: Emitter, weight: Any, g: Geometry, channels: int, inner: int) -> Any:
    """Swaps the channel axes within each group: (groups·i, *kernel, o) to (groups·o, *kernel, i)."""
    per_group = g.group_channels(channels)
    outer, swapped = (g.groups, per_group), g.weight_shape(g.groups * inner, per_group)
    split = b.reshape(weight, shape=(*outer, *weight.shape[1:]))
    other = len(split.shape) - 1 if g.last else 2
    perm = list(range(len(split.shape)))
    perm[1], perm[other] = other, 1
    return b.reshape(b.transpose(split, perm=tuple(perm)), shape=swapped)
