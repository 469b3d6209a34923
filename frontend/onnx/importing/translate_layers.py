"""ONNX's layers: convolutions, products, pooling, normalizations, reductions and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.dims import Dim
from gluonjit.onnx.importing.importer import Importer, Untranslated, Val, translation
from gluonjit.onnx.importing.onnx_files import Call
from gluonjit.onnx.importing.translate_elementwise import cast, truncated_quotient

# Windows


class Window:
    """Kernel, strides, dilations and padding along the spatial axes."""

    def __init__(self, call: Call, x: Val, kernel: Sequence[int]) -> None:
        n = x.rank - 2
        self.kernel = tuple(kernel)
        self.stride = tuple(call.get("strides") or (1,) * n)
        self.dilate = tuple(call.get("dilations") or (1,) * n)
        pads = list(call.get("pads") or (0,) * 2 * n)
        if len(self.kernel) != n or len(self.stride) != n or len(self.dilate) != n or len(pads) != 2 * n:
            raise ValueError(f"kernel_shape, strides, dilations and pads do not fit {n} spatial axes")
        self.ceil = bool(call.get("ceil_mode", 0))
        self.low, self.high = pads[:n], pads[n:]
        auto = call.get("auto_pad", "NOTSET")
        if auto == "VALID":
            self.low, self.high = [0] * n, [0] * n
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            for k in range(n):
                size = x.shape[2 + k]
                if self.stride[k] == 1:
                    total = self.span(k) - 1
                elif isinstance(size, Dim):
                    raise Untranslated(f"with auto_pad {auto} of an open size")
                else:
                    total = max((-(-size // self.stride[k]) - 1) * self.stride[k] + self.span(k) - size, 0)
                half = total // 2
                self.low[k], self.high[k] = (half, total - half) if auto == "SAME_UPPER" else (total - half, half)

    def span(self, k: int) -> int:
        return (self.kernel[k] - 1) * self.dilate[k] + 1

    @property
    def even(self) -> bool:
        return list(self.low) == list(self.high) and min(self.low, default=0) >= 0


def padded(g: Importer, x: Val, low: Sequence[int], high: Sequence[int], value: float = 0.0) -> Val:
    """`x` with its last axes padded, or cut where a number is negative."""
    lead = x.rank - len(low)
    for k, (a, b) in enumerate(zip(low, high)):
        if a < 0 or b < 0:
            x = g.op("slice_axis", x, axis=lead + k, begin=max(-a, 0), end=None if b >= 0 else b)
    pairs = ((0, 0),) * lead + tuple((max(a, 0), max(b, 0)) for a, b in zip(low, high))
    return g.op("_npi_pad", x, pad_width=pairs, mode="constant", constant_value=value) if any(map(any, pairs)) else x


@translation("Conv")
def _conv(g: Importer, call: Call, x: Val, weight: Val, bias: Val | None = None) -> Val:
    w = Window(call, x, call.get("kernel_shape") or weight.shape[2:])
    pad = tuple(w.low)
    if not w.even:
        x, pad = padded(g, x, w.low, w.high), (0,) * len(pad)
    return g.op(
        "Convolution",
        *(v for v in (x, weight, bias) if v is not None),
        kernel=w.kernel,
        stride=w.stride,
        dilate=w.dilate,
        pad=pad,
        num_filter=weight.shape[0],
        num_group=call.get("group", 1),
        no_bias=bias is None,
    )


@translation("ConvTranspose")
def _conv_transpose(g: Importer, call: Call, x: Val, weight: Val, bias: Val | None = None) -> Val:
    kernel = call.get("kernel_shape") or weight.shape[2:]
    n = x.rank - 2
    auto = call.get("auto_pad", "NOTSET")
    w = Window(call._replace(attrs={**call.attrs, "auto_pad": "NOTSET"}), x, kernel)
    more = list(call.get("output_padding") or (0,) * n)
    target = call.get("output_shape") or ()
    if auto in ("SAME_UPPER", "SAME_LOWER") and not target:
        target = [x.shape[2 + k] * w.stride[k] for k in range(n)]
    if target:
        for k, size in enumerate(target[-n:]):
            total = w.stride[k] * (x.shape[2 + k] - 1) + more[k] + w.span(k) - size
            if isinstance(total, Dim) or total < 0:
                raise Untranslated(f"to {size}")
            half = total // 2
            w.low[k], w.high[k] = (total - half, half) if auto == "SAME_LOWER" else (half, total - half)
            if auto == "NOTSET":
                w.low[k], w.high[k] = half, total - half
    y = g.op(
        "Deconvolution",
        *(v for v in (x, weight, bias) if v is not None),
        kernel=w.kernel,
        stride=w.stride,
        dilate=w.dilate,
        pad=tuple(w.low) if w.even else (0,) * n,
        adj=tuple(more) if w.even and all(a < s for a, s in zip(more, w.stride)) else (0,) * n,
        num_filter=weight.shape[1] * call.get("group", 1),
        num_group=call.get("group", 1),
        no_bias=bias is None,
    )
    if w.even and all(a < s for a, s in zip(more, w.stride)):
        return y
    low, high = ([0] * n, [0] * n) if w.even else (w.low, w.high)
    adj = [0] * n if w.even else more
    if any(adj) and bias is not None:
        raise Untranslated("with a bias, uneven padding and output_padding")
    return padded(g, y, [-a for a in low], [m - b for m, b in zip(adj if not w.even else more, high)])


@translation("MaxPool", "AveragePool", "LpPool")
def _pool(g: Importer, call: Call, x: Val) -> Val:
    if len([name for name in call.outputs if name]) > 1:
        raise Untranslated("with indices")
    w = Window(call, x, call.attrs["kernel_shape"])
    kind = {"MaxPool": "max", "AveragePool": "avg", "LpPool": "lp"}[call.op]
    count = bool(call.get("count_include_pad", 0))
    if kind == "max" and not x.floats:
        return cast(g, _windows(g, cast(g, x, np.float32), w, kind, 0, True), x.dtype)
    return _windows(g, x, w, kind, call.get("p", 2), count)


def _windows(g: Importer, x: Val, w: Window, kind: str, p: int, count: bool) -> Val:
    plain = {"kernel": w.kernel, "stride": w.stride}
    dilated = any(d != 1 for d in w.dilate)
    fits = all(a < k for a, k in zip(w.low, w.kernel))
    if w.even and fits and not dilated and kind != "lp" and (not w.ceil or kind == "max" or not count):
        shape = {**plain, "pad": tuple(w.low), "pooling_convention": "full" if w.ceil else "valid"}
        same = _counts(x, w) if w.ceil else None
        if same is None or same == [_full(x.shape[2 + k], w, k) for k in range(len(w.kernel))]:
            more = {"count_include_pad": count} if kind == "avg" else {}
            return g.op("Pooling", x, pool_type=kind, **shape, **more)
    sizes = _counts(x, w)
    convention = _convention(x, w, sizes)
    if convention and fits and not dilated and (kind == "max" or kind == "avg" and not count):
        more = {"count_include_pad": False} if kind == "avg" else {}
        pad = tuple(w.low)
        return g.op("Pooling", x, pool_type=kind, **plain, pad=pad, pooling_convention=convention, **more)
    nothing = float(np.finfo(np.float32).min) if kind == "max" else 0.0
    # What lies after the last window that counts is padding, too.
    high = [max((sizes[k] - 1) * w.stride[k] + w.span(k) - x.shape[2 + k] - w.low[k], 0) for k in range(len(w.kernel))]
    whole = padded(g, x, w.low, high, nothing)
    whole = _exactly(g, whole, w, sizes)
    if dilated:
        return _dilated(g, x, whole, w, kind, sizes, count, high)
    if kind == "max":
        return g.op("Pooling", whole, pool_type="max", **plain)
    if kind == "lp":
        power = g.op("_power_scalar", g.op("abs", whole), scalar=float(p))
        total = g.op("Pooling", power, pool_type="sum", **plain)
        return g.op("_power_scalar", total, scalar=1.0 / p)
    total = g.op("Pooling", whole, pool_type="sum", **plain)
    return g.op("broadcast_div", total, _divisors(g, x, w, sizes, count))


def _convention(x: Val, w: Window, sizes: Sequence[Any]) -> str:
    """The one of MXNet's conventions that gives the same windows with equal padding at both ends, if there is one."""
    steps = [x.shape[2 + k] + 2 * w.low[k] - w.kernel[k] for k in range(len(w.kernel))]
    if min(w.low) < 0 or any(isinstance(n, Dim) or n < 0 for n in steps):
        return ""
    if list(sizes) == [n // s + 1 for n, s in zip(steps, w.stride)]:
        return "valid"
    return "full" if list(sizes) == [-(-n // s) + 1 for n, s in zip(steps, w.stride)] else ""


def _full(n: Any, w: Window, k: int) -> Any:
    """The number of windows by MXNet's convention `full`."""
    return -(-(n + w.low[k] + w.high[k] - w.kernel[k]) // w.stride[k]) + 1


def _counts(x: Val, w: Window) -> list[Any]:
    """The number of windows along each spatial axis."""
    found = []
    for k in range(len(w.kernel)):
        steps = x.shape[2 + k] + w.low[k] + w.high[k] - w.span(k)
        count = (-(-steps // w.stride[k]) if w.ceil else steps // w.stride[k]) + 1
        if w.ceil and not isinstance(count, Dim) and (count - 1) * w.stride[k] >= x.shape[2 + k] + w.low[k]:
            count -= 1  # a window must not start after the data
        found.append(count)
    return found


def _exactly(g: Importer, x: Val, w: Window, sizes: Sequence[Any]) -> Val:
    """`x` without what no window reaches."""
    for k, count in enumerate(sizes):
        end = (count - 1) * w.stride[k] + w.span(k)
        if not isinstance(end, Dim) and x.shape[2 + k] > end:
            x = g.op("slice_axis", x, axis=2 + k, begin=0, end=end)
    return x


def _divisors(g: Importer, x: Val, w: Window, sizes: Sequence[Any], count: bool) -> Val:
    """How many elements each window has."""
    grid = np.ones((1, 1) + (1,) * len(sizes), x.dtype)
    for k, number in enumerate(sizes):
        n = x.shape[2 + k]
        if isinstance(number, Dim) or isinstance(n, Dim):
            raise Untranslated("of open sizes")
        taps = np.arange(number)[:, None] * w.stride[k] + np.arange(w.kernel[k]) * w.dilate[k] - w.low[k]
        inside = (taps >= -w.low[k]) & (taps < n + w.high[k]) if count else (taps >= 0) & (taps < n)
        line = np.maximum(inside.sum(1), 1)
        grid = grid * line.reshape([-1 if axis == 2 + k else 1 for axis in range(2 + len(sizes))]).astype(x.dtype)
    return g.constant(grid)


def _dilated(
    g: Importer, x: Val, whole: Val, w: Window, kind: str, sizes: Sequence[Any], count: bool, high: Sequence[int]
) -> Val:
    """Tap by tap."""
    if kind == "lp" or math.prod(w.kernel) > 1024:
        raise Untranslated("with dilations")
    total: Val | None = None
    for tap in np.ndindex(*w.kernel):
        begin = [None, None, *(t * d for t, d in zip(tap, w.dilate))]
        end = [None, None]
        for k, number in enumerate(sizes):
            end.append(begin[2 + k] + (number - 1) * w.stride[k] + 1)
        part = g.op("slice", whole, begin=tuple(begin), end=tuple(end), step=(1, 1, *w.stride))
        if total is None:
            total = part
        else:
            total = g.op("broadcast_maximum" if kind == "max" else "broadcast_add", total, part)
    assert total is not None
    return total if kind == "max" else g.op("broadcast_div", total, _divisors(g, x, w, sizes, count))


@translation("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(g: Importer, call: Call, x: Val) -> Val:
    kind = {"GlobalAveragePool": "avg", "GlobalMaxPool": "max", "GlobalLpPool": "lp"}[call.op]
    axes = tuple(range(2, x.rank))
    if kind == "lp":
        p = call.get("p", 2)
        total = g.op("sum", g.op("_power_scalar", g.op("abs", x), scalar=float(p)), axis=axes, keepdims=True)
        return g.op("_power_scalar", total, scalar=1.0 / p)
    if 3 <= x.rank <= 5:
        return g.op("Pooling", x, kernel=(1,) * len(axes), global_pool=True, pool_type=kind)
    return g.op("mean" if kind == "avg" else "max", x, axis=axes, keepdims=True)


# Regions and grids


@translation("RoiAlign")
def _roi_align(g: Importer, call: Call, x: Val, regions: Val, images: Val) -> Val:
    if call.get("mode", "avg") != "avg":
        raise Untranslated("with maxima")
    mode = call.get("coordinate_transformation_mode", "half_pixel" if call.version >= 16 else "output_half_pixel")
    images = g.op("expand_dims", cast(g, images, regions.dtype), axis=1)
    return g.op(
        "_contrib_ROIAlign",
        x,
        g.op("Concat", images, regions, dim=1),
        pooled_size=(call.get("output_height", 1), call.get("output_width", 1)),
        spatial_scale=call.get("spatial_scale", 1.0),
        sample_ratio=call.get("sampling_ratio", 0),
        aligned=mode == "half_pixel",
    )


@translation("GridSample")
def _grid_sample(g: Importer, call: Call, x: Val, grid: Val) -> Val:
    mode, padding = call.get("mode", "linear"), call.get("padding_mode", "zeros")
    if mode not in ("linear", "bilinear") or padding not in ("zeros", "border"):
        raise Untranslated(f"of mode {mode} with padding {padding}")
    if x.rank != 4:
        raise Untranslated("of volumes")
    grid = g.op("transpose", grid, axes=(0, 3, 1, 2))
    if not call.get("align_corners", 0):  # -1 and 1 are the outer edges of the image, not the centers of its corners
        sizes = x.shape[:1:-1]
        if any(isinstance(n, Dim) or n < 2 for n in sizes):
            raise Untranslated("of an open size, or of one pixel, without align_corners")
        factors = np.array([n / (n - 1) for n in sizes], grid.dtype).reshape(1, 2, 1, 1)
        grid = g.op("broadcast_mul", grid, g.constant(factors))
    if padding == "border":
        grid = g.op("clip", grid, a_min=-1.0, a_max=1.0)
    return g.op("BilinearSampler", x, cast(g, grid, x.dtype))


# Products


@translation("MatMul")
def _matmul(g: Importer, call: Call, x: Val, y: Val) -> Val:
    return g.op("_npi_matmul", x, y)


@translation("Gemm")
def _gemm(g: Importer, call: Call, a: Val, b: Val, c: Val | None = None) -> Val:
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if call.get("transA", 0):
        a = g.op("transpose", a)
    if not call.get("transB", 0):
        b = g.constant(b.array.T.copy(), b.name) if b.array is not None else g.op("transpose", b)
    bias = c if alpha == 1 and beta == 1 and c is not None and c.shape == (b.shape[0],) else None
    inputs = [a, b] if bias is None else [a, b, bias]
    if not a.floats:
        y = g.op("_npi_matmul", a, g.op("transpose", b))
        return y if c is None else g.op("broadcast_add", y, c)
    y = g.op("FullyConnected", *inputs, num_hidden=b.shape[0], no_bias=bias is None, flatten=False)
    if alpha != 1:
        y = g.op("_mul_scalar", y, scalar=alpha)
    if c is None or bias is not None or beta == 0:
        return y
    return g.op("broadcast_add", y, c if beta == 1 else g.op("_mul_scalar", c, scalar=beta))


@translation("Einsum")
def _einsum(g: Importer, call: Call, *xs: Val) -> Val:
    return g.op("_npi_einsum", *xs, subscripts=call.attrs["equation"].replace(" ", ""))


@translation("MatMulInteger")
def _matmul_integer(g: Importer, call: Call, a: Val, b: Val, low_a: Val | None = None, low_b: Val | None = None) -> Val:
    operands = []
    for x, zero, axis in ((a, low_a, -2), (b, low_b, -1)):
        wide = cast(g, x, np.float64)  # exact: sums stay below 2**53
        if zero is not None:
            low = cast(g, zero, np.float64)
            if low.rank == 1 and axis == -2:
                low = g.op("expand_dims", low, axis=-1)
            wide = g.op("broadcast_sub", wide, low)
        operands.append(wide)
    return cast(g, g.op("_npi_matmul", *operands), np.int32)


@translation("ConvInteger")
def _conv_integer(g: Importer, call: Call, x: Val, w: Val, low_x: Val | None = None, low_w: Val | None = None) -> Val:
    operands = []
    for v, zero in ((x, low_x), (w, low_w)):
        wide = cast(g, v, np.float64)  # exact: sums stay below 2**53
        if zero is not None:
            low = cast(g, zero, np.float64)
            if low.rank == 1 and v is w and low.shape[0] != 1:
                low = g.op("_np_reshape", low, newshape=(-1, *(1,) * (w.rank - 1)))
            wide = g.op("broadcast_sub", wide, low)
        operands.append(wide)
    return cast(g, _conv(g, call, *operands), np.int32)


def _along(g: Importer, v: Val, rank: int, axis: int) -> Val:
    if v.rank != 1 or v.shape[0] == 1:
        return v
    return g.op("_np_reshape", v, newshape=tuple(-1 if k == axis % rank else 1 for k in range(rank)))


@translation("DequantizeLinear")
def _dequantize(g: Importer, call: Call, x: Val, scale: Val, zero: Val | None = None) -> Val:
    if call.get("block_size", 0):
        raise Untranslated("with blocks")
    axis = call.get("axis", 1)
    y = cast(g, x, scale.dtype)
    if zero is not None:
        y = g.op("broadcast_sub", y, _along(g, cast(g, zero, scale.dtype), x.rank, axis))
    return g.op("broadcast_mul", y, _along(g, scale, x.rank, axis))


@translation("QuantizeLinear")
def _quantize(g: Importer, call: Call, x: Val, scale: Val, zero: Val | None = None) -> Val:
    if call.get("block_size", 0) or call.get("precision", 0):
        raise Untranslated("with blocks or a precision")
    to = np.dtype(np.uint8) if zero is None else zero.dtype
    if to.kind not in "iu":
        raise Untranslated(f"to {to.name}")
    axis = call.get("axis", 1)
    y = g.op("_npi_around", g.op("broadcast_div", cast(g, x, scale.dtype), _along(g, scale, x.rank, axis)))
    if zero is not None:
        y = g.op("broadcast_add", y, _along(g, cast(g, zero, scale.dtype), x.rank, axis))
    info = np.iinfo(to)
    return cast(g, g.op("clip", y, a_min=float(info.min), a_max=float(info.max)), to)


@translation("QLinearMatMul", "QLinearConv")
def _q_linear(
    g: Importer, call: Call, a: Val, a_scale: Val, a_zero: Val, b: Val, b_scale: Val, b_zero: Val, *more: Val
) -> Val:
    y_scale, y_zero, *bias = more
    wide = call._replace(attrs={"axis": a.rank - 1})
    x = _dequantize(g, wide, a, a_scale, a_zero)
    if call.op == "QLinearMatMul":
        y = g.op("_npi_matmul", x, _dequantize(g, wide, b, b_scale, b_zero))
        return _quantize(g, call._replace(attrs={}), y, y_scale, y_zero)
    weight = _dequantize(g, call._replace(attrs={"axis": 0}), b, b_scale, b_zero)
    y = _conv(g, call, x, weight)
    if bias and bias[0] is not None:
        unit = g.op("broadcast_mul", a_scale, b_scale)
        amount = g.op("broadcast_mul", cast(g, bias[0], np.float32), unit)
        y = g.op("broadcast_add", y, _along(g, amount, y.rank, 1))
    return _quantize(g, call._replace(attrs={}), y, y_scale, y_zero)


# Normalizations and softmax


@translation("BatchNormalization")
def _batch_norm(g: Importer, call: Call, x: Val, scale: Val, bias: Val, mean: Val, var: Val) -> Val:
    if call.get("training_mode", 0) or len([name for name in call.outputs if name]) > 1:
        raise Untranslated("in training")
    eps = call.get("epsilon", 1e-5)
    if all(v.array is not None and v.dtype == x.dtype for v in (scale, bias, mean, var)) and x.rank > 1:
        return g.op(
            "BatchNorm", x, scale, bias, mean, var, eps=eps, momentum=call.get("momentum", 0.9), fix_gamma=False
        )
    deviation = g.op("sqrt", g.op("_plus_scalar", cast(g, var, x.dtype), scalar=eps))
    parts = [_along(g, cast(g, v, x.dtype), x.rank, 1) for v in (mean, deviation, scale, bias)]
    y = g.op("broadcast_div", g.op("broadcast_sub", x, parts[0]), parts[1])
    return g.op("broadcast_add", g.op("broadcast_mul", y, parts[2]), parts[3])


@translation("InstanceNormalization")
def _instance_norm(g: Importer, call: Call, x: Val, scale: Val, bias: Val) -> Val:
    return g.op("InstanceNorm", x, scale, bias, eps=call.get("epsilon", 1e-5))


@translation("LayerNormalization")
def _layer_norm(g: Importer, call: Call, x: Val, scale: Val, bias: Val | None = None) -> Val | None:
    more = len([name for name in call.outputs if name]) > 1
    if call.get("axis", -1) % x.rank != x.rank - 1 or scale.rank != 1 or more:
        return None
    if bias is None:
        bias = g.op("zeros_like", scale)
    if any(v.type.dtype is not x.type.dtype for v in (scale, bias)):
        return None
    return g.op("LayerNorm", x, scale, bias, axis=-1, eps=call.get("epsilon", 1e-5))


@translation("LRN")
def _lrn(g: Importer, call: Call, x: Val) -> Val:
    size = call.attrs["size"]
    if size % 2 == 0:
        raise Untranslated("of an even size")
    numbers = {"alpha": call.get("alpha", 1e-4), "beta": call.get("beta", 0.75), "knorm": call.get("bias", 1.0)}
    return g.op("LRN", x, nsize=size, **numbers)


@translation("LpNormalization")
def _lp_norm(g: Importer, call: Call, x: Val) -> Val:
    p, axis = call.get("p", 2), call.get("axis", -1)
    if p not in (1, 2):
        raise Untranslated(f"with p = {p}")
    power = g.op("abs", x) if p == 1 else g.op("square", x)
    size = g.op("sum", power, axis=(axis,), keepdims=True)
    size = size if p == 1 else g.op("sqrt", size)
    none = g.op("_npi_equal", size, g.op("zeros_like", size))
    return g.op("broadcast_div", x, g.op("_npi_where", none, g.op("ones_like", size), size))


@translation("Softmax", "LogSoftmax", "Hardmax")
def _softmax(g: Importer, call: Call, x: Val) -> Val:
    axis = call.get("axis", -1 if call.version >= 13 else 1)
    old = x.shape
    axis = axis % max(x.rank, 1) if axis < 0 or axis < x.rank else axis
    flat = call.version < 13 and axis != x.rank - 1
    if flat:
        from_axis = math.prod(old[axis:])
        x = g.op("Reshape", x, shape=(-1, from_axis))
        axis = 1
    if call.op == "Hardmax":
        place = g.op("_npi_argmax", x, axis=axis, keepdims=True)
        shape = tuple(-1 if k == axis else 1 for k in range(x.rank))
        steps = g.op("_np_reshape", g.constant(np.arange(x.shape[axis])), newshape=shape)
        y = cast(g, g.op("_npi_equal", steps, place), x.dtype)
    else:
        y = g.op("softmax" if call.op == "Softmax" else "log_softmax", x, axis=axis)
    return _like(g, y, old) if flat else y


def _like(g: Importer, y: Val, shape: Sequence[Any]) -> Val:
    open_ = [k for k, n in enumerate(shape) if isinstance(n, Dim)]
    if len(open_) > 1:
        raise Untranslated("of several open dimensions")
    return g.op("Reshape", y, shape=tuple(-1 if k in open_ else n for k, n in enumerate(shape)))


# Reductions


@translation(
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceLogSumExp", "ReduceSumSquare"),
)
def _reduce(g: Importer, call: Call, x: Val, axes: Val | None = None) -> Val:
    chosen = call.get("axes")
    if axes is not None:
        chosen = [int(k) for k in g.known(axes, "axes").reshape(-1)]
    if not chosen:
        if call.get("noop_with_empty_axes", 0):
            chosen = ()
        else:
            chosen = range(x.rank)
    gone = tuple(k % x.rank for k in chosen) if x.rank else ()
    keep = bool(call.get("keepdims", 1))
    kind = call.op.removeprefix("Reduce")

    def over(name: str, v: Val) -> Val:
        if not gone:
            return v
        if name == "mean" and not v.floats:
            total = over("sum", v)
            return truncated_quotient(g, total, g.constant(np.array(math.prod(x.shape[k] for k in gone), v.dtype)))
        if v.dtype == np.bool_:
            return g.op("_np_any" if name == "max" else "_np_all", v, axis=gone, keepdims=keep)
        ops = {"sum": "_np_sum", "prod": "_np_prod", "max": "_np_max", "min": "_np_min", "mean": "_npi_mean"}
        more = {"dtype": v.dtype.name} if name in ("sum", "prod") and v.dtype.name in ("int8", "int32", "int64") else {}
        if v.dtype.name == "uint8":
            return cast(g, over(name, cast(g, v, np.int32)), v.dtype)
        return g.op(ops[name], v, axis=gone, keepdims=keep, **more)

    match kind:
        case "Sum" | "Mean" | "Max" | "Min" | "Prod":
            return over(kind.lower(), x)
        case "L1":
            return over("sum", g.op("abs", x))
        case "L2" | "SumSquare":
            total = over("sum", g.op("square", x))
            if kind == "SumSquare":
                return total
            return g.op("sqrt", total) if x.floats else cast(g, g.op("sqrt", cast(g, total, np.float64)), x.dtype)
        case "LogSum":
            return g.op("log", over("sum", x))
        case _:
            if not gone:
                return x
            largest = g.op("_np_max", x, axis=gone, keepdims=True)
            finite = g.op("_npi_isfinite", largest)
            largest = g.op("_npi_where", finite, largest, g.op("zeros_like", largest))
            total = g.op("log", over("sum", g.op("exp", g.op("broadcast_sub", x, largest))))
            if not keep:
                largest = g.op("_np_squeeze", largest, axis=gone)
            return g.op("broadcast_add", total, largest)


@translation("ArgMax", "ArgMin")
def _arg(g: Importer, call: Call, x: Val) -> Val:
    axis = call.get("axis", 0) % x.rank
    name = "_npi_argmax" if call.op == "ArgMax" else "_npi_argmin"
    keep = bool(call.get("keepdims", 1))
    if not call.get("select_last_index", 0):
        return g.op(name, x, axis=axis, keepdims=keep)
    found = g.op(name, g.op("_npi_flip", x, axis=(axis,)), axis=axis, keepdims=keep)
    last = g.op("broadcast_sub", g.extent(x.shape[axis]), g.constant(np.array([1], np.int64)))
    return g.op("broadcast_sub", g.op("_np_squeeze", last, axis=(0,)), found)


@translation("CumSum")
def _cumsum(g: Importer, call: Call, x: Val, axis: Val) -> Val:
    k = int(g.known(axis, "axis").reshape(())) % x.rank
    if call.get("reverse", 0):
        x = g.op("_npi_flip", x, axis=(k,))
    y = g.op("_np_cumsum", x, axis=k)
    if call.get("exclusive", 0):
        y = g.op("broadcast_sub", y, x)
    return g.op("_npi_flip", y, axis=(k,)) if call.get("reverse", 0) else y


@translation("Det")
def _det(g: Importer, call: Call, x: Val) -> Val:
    y = g.op("_linalg_det", x)
    return g.op("_np_reshape", y, newshape=()) if x.rank == 2 else y


# Recurrent layers

_MOST_STEPS = 256
"""The most steps of a recurrent layer that MXNet does not have: each of them becomes operators of its own."""
_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""MXNet's gates among ONNX's: input, forget, cell, output of an LSTM; reset, update, new of a GRU."""


@translation("LSTM", "GRU", "RNN")
def _recurrent(
    g: Importer,
    call: Call,
    x: Val,
    w: Val,
    r: Val,
    bias: Val | None = None,
    lengths: Val | None = None,
    *begin: Val | None,
) -> list[Val]:
    kind, hidden = call.op, call.attrs["hidden_size"]
    direction = call.get("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    mode = _mode(call, directions)
    if len(begin) > 2 and begin[2] is not None and not (begin[2].array is not None and not begin[2].array.any()):
        raise Untranslated("with peepholes")
    if lengths is not None and lengths.array is not None and (lengths.array == x.shape[0]).all():
        lengths = None
    if call.get("layout", 0):
        x = g.op("transpose", x, axes=(1, 0, 2))
        begin = tuple(v if v is None else g.op("transpose", v, axes=(1, 0, 2)) for v in begin[:2])
    if kind == "GRU" and not call.get("linear_before_reset", 0):
        return _gru_in_steps(g, call, x, w, r, bias, lengths, begin[0] if begin else None)
    if direction == "reverse":
        if lengths is not None:
            raise Untranslated("reversed, with sequence_lens")
        x = g.op("_npi_flip", x, axis=(0,))
    if bias is None:
        bias = g.constant(np.zeros((directions, 2 * len(_ORDER[kind]) * hidden), x.dtype))
    states = []
    for k in range(2 if kind == "LSTM" else 1):
        given = begin[k] if k < len(begin) else None
        states.append(given if given is not None else _zero_state(g, x, directions, hidden))
    inputs = [x, _packed(g, kind, w, r, bias, directions, hidden), *states]
    if lengths is not None:
        inputs.append(lengths)
    found = g.op(
        "RNN",
        *inputs,
        mode=mode,
        state_size=hidden,
        num_layers=1,
        bidirectional=directions == 2,
        state_outputs=True,
        use_sequence_length=lengths is not None,
    )
    y, *ends = found
    if direction == "reverse":
        y = g.op("_npi_flip", y, axis=(0,))
    batch_first = bool(call.get("layout", 0))
    if directions == 2:
        y = g.op("Reshape", y, shape=(0, 0, -4, 2, -1))
        y = g.op("transpose", y, axes=(1, 0, 2, 3) if batch_first else (0, 2, 1, 3))
    else:
        y = g.op("transpose", g.op("expand_dims", y, axis=2), axes=(1, 0, 2, 3)) if batch_first else y
        y = y if batch_first else g.op("expand_dims", y, axis=1)
    if batch_first:
        ends = [g.op("transpose", v, axes=(1, 0, 2)) for v in ends]
    return [y, *ends]


def _mode(call: Call, directions: int) -> str:
    """The `mode` of MXNet's RNN. Untranslated if it has none such."""
    usual = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}[call.op] * directions
    used = [name.lower() for name in call.get("activations") or usual]
    if call.get("clip") is not None or call.get("input_forget", 0):
        raise Untranslated("with clip or input_forget")
    if call.op == "RNN" and used == ["relu"] * directions:
        return "rnn_relu"
    if used != usual:
        raise Untranslated(f"with the activations {', '.join(used)}")
    return {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[call.op]


def _packed(g: Importer, kind: str, w: Val, r: Val, bias: Val, directions: int, hidden: int) -> Val:
    """The vector of parameters of MXNet's RNN: the weights of each direction, then its biases, with MXNet's order of
    gates."""
    gates = len(_ORDER[kind])

    def part(v: Val, direction: int, first: int = 0) -> Val:
        one = g.op("slice_axis", v, axis=0, begin=direction, end=direction + 1)
        parts = [
            g.op("slice_axis", one, axis=1, begin=first + k * hidden, end=first + (k + 1) * hidden)
            for k in _ORDER[kind]
        ]
        return g.op("_np_reshape", g.op("Concat", *parts, dim=1) if gates > 1 else parts[0], newshape=(-1,))

    weights = [part(v, k) for k in range(directions) for v in (w, r)]
    biases = [part(bias, k, first) for k in range(directions) for first in (0, gates * hidden)]
    return g.op("Concat", *weights, *biases, dim=0)


def _gru_in_steps(
    g: Importer, call: Call, x: Val, w: Val, r: Val, bias: Val | None, lengths: Val | None, begin: Val | None
) -> list[Val]:
    """A GRU that resets the state before the product with it, unlike MXNet's: (length, directions, batch, hidden), and
    the last states.

    z, s = sigmoid(x W_zs + h R_zs + b), n = tanh(x W_n + (s h) R_n + b), h' = n + z (h - n)
    """
    steps, hidden = x.shape[0], call.attrs["hidden_size"]
    if isinstance(steps, Dim) or steps > _MOST_STEPS:
        raise Untranslated(f"without linear_before_reset, over an open axis or more than {_MOST_STEPS} steps")
    direction = call.get("direction", "forward")
    directions = w.shape[0]
    if lengths is not None and direction != "forward":
        raise Untranslated("reversed, with sequence_lens")
    if begin is None:
        begin = _zero_state(g, x, directions, hidden)

    def of_direction(v: Val, k: int) -> Val:
        return g.op("squeeze", g.op("slice_axis", v, axis=0, begin=k, end=k + 1), axis=0)

    def part(v: Val, axis: int, first: int, last: int) -> Val:
        return g.op("slice_axis", v, axis=axis, begin=first * hidden, end=last * hidden)

    def product(v: Val, weight: Val) -> Val:
        return g.op("FullyConnected", v, weight, num_hidden=weight.shape[0], no_bias=True, flatten=False)

    results, ends = [], []
    for k in range(directions):
        weight, recurrent, h = (of_direction(v, k) for v in (w, r, begin))
        given = product(x, weight)
        if bias is not None:
            both = of_direction(bias, k)
            total = g.op("elemwise_add", part(both, 0, 0, 3), part(both, 0, 3, 6))
            given = g.op("broadcast_add", given, g.op("_np_reshape", total, newshape=(1, 1, -1)))
        gates, new = part(recurrent, 0, 0, 2), part(recurrent, 0, 2, 3)
        ys: list[Val] = []
        order = range(steps)
        for t in reversed(order) if direction == "reverse" or k == 1 else order:
            now = g.op("squeeze", g.op("slice_axis", given, axis=0, begin=t, end=t + 1), axis=0)
            zs = g.op("sigmoid", g.op("elemwise_add", part(now, 1, 0, 2), product(h, gates)))
            z, s = part(zs, 1, 0, 1), part(zs, 1, 1, 2)
            n = g.op("elemwise_add", part(now, 1, 2, 3), product(g.op("elemwise_mul", s, h), new))
            n = g.op("tanh", n)
            after = y = g.op("elemwise_add", n, g.op("elemwise_mul", z, g.op("elemwise_sub", h, n)))
            if lengths is not None:
                live = g.op("expand_dims", cast(g, g.op("_greater_scalar", lengths, scalar=float(t)), x.dtype), axis=1)
                y = g.op("broadcast_mul", after, live)
                after = g.op("elemwise_add", h, g.op("broadcast_mul", g.op("elemwise_sub", after, h), live))
            h = after
            ys.append(y)
        if direction == "reverse" or k == 1:
            ys.reverse()
        results.append(g.op("stack", *ys, axis=0))
        ends.append(h)
    batch_first = bool(call.get("layout", 0))
    y = g.op("stack", *results, axis=1)
    end = g.op("stack", *ends, axis=1 if batch_first else 0)
    return [g.op("transpose", y, axes=(2, 0, 1, 3)) if batch_first else y, end]


def _zero_state(g: Importer, x: Val, directions: int, hidden: int) -> Val:
    batch = x.shape[1]
    zeros = g.constant(np.zeros((directions, 1 if isinstance(batch, Dim) else batch, hidden), x.dtype))
    if not isinstance(batch, Dim):
        return zeros
    # A column of the data has the batch's size.
    column = g.op("slice", x, begin=(0, None, 0), end=(1, None, 1), step=(1, 1, 1))
    return g.op("broadcast_mul", g.op("zeros_like", column), g.constant(np.ones((directions, 1, hidden), x.dtype)))
