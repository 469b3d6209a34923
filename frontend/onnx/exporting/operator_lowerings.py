"""MXNet operators that ONNX has as one operator, or nearly so; all others are written as their primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.dims import Dim, is_at_most
from gluonjit.ir.graph import Op
from gluonjit.onnx.exporting.onnx_writer import Unsupported, Writer, lowering
from gluonjit.onnx.exporting.primitive_lowerings import clipped, conv, padding_is_too_large, transposed
from gluonjit.operators.layers.convolution import Geometry, _adjusted
from gluonjit.operators.layers.pooling import _spatial_axes, _Windows
from gluonjit.operators.layers.rnn import _Sizes


def _axis(axis: int, op: Op) -> int:
    return axis % op.operands[0].ndim


def _wide(op: Op) -> bool:
    """Whether the data are of float32 or float64: with narrower ones, gluonjit computes in float32."""
    return op.operands[0].dtype.bits >= 32


@lowering("mx.Convolution", "mx.Convolution_v1")
def _convolution(w: Writer, op: Op) -> str:
    g = Geometry(op.attrs, op.operands[0].ndim)
    x, weight, *bias = map(w.name, op.operands)
    if not g.last:
        return conv(w, [x, weight, *bias], g.kernel, g.stride, g.pad, g.pad, g.dilate, g.groups)
    first, last = _channel_first(g.n + 2), _channel_last(g.n + 2)
    inputs = [transposed(w, x, first), transposed(w, weight, first), *bias]
    return transposed(w, conv(w, inputs, g.kernel, g.stride, g.pad, g.pad, g.dilate, g.groups), last)


def _channel_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _channel_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


@lowering("mx.Deconvolution")
def _deconvolution(w: Writer, op: Op) -> str | None:
    g = Geometry(op.attrs, op.operands[0].ndim)
    if g.last:
        return None
    sizes = [op.operands[0].shape[axis] for axis in g.spatial]
    pad, adj = _adjusted(g, op.attrs, sizes)
    return w.emit(
        "ConvTranspose",
        [w.name(v) for v in op.operands],
        kernel_shape=list(g.kernel),
        strides=list(g.stride),
        pads=[*pad, *pad],
        dilations=list(g.dilate),
        output_padding=list(adj) if any(adj) else None,
        group=g.groups,
    )


@lowering("mx.FullyConnected")
def _fully_connected(w: Writer, op: Op) -> str:
    data, weight, *bias = op.operands
    x = w.name(data)
    if op.attrs["flatten"] and data.ndim != 2:
        x = w.emit("Flatten", [x], axis=1)
    if op.attrs["flatten"] or data.ndim == 2:
        return w.emit("Gemm", [x, *map(w.name, op.operands[1:])], transB=1)
    product = w.emit("MatMul", [x, w.transposed(weight)])
    return w.emit("Add", [product, w.name(bias[0])]) if bias else product


@lowering("mx.BatchNorm", "mx.BatchNorm_v1", "mx._contrib_SyncBatchNorm", "mx._contrib_BatchNormWithReLU")
def _batch_norm(w: Writer, op: Op) -> str | None:
    data, gamma, *rest = op.operands
    if op.attrs.get("axis", 1) % data.ndim != 1 or op.attrs.get("output_mean_var"):
        return None
    scale = w.constant(np.ones(gamma.shape, gamma.dtype.numpy)) if op.attrs["fix_gamma"] else w.name(gamma)
    if data.dtype is not gamma.dtype and w.opset < 15:
        return None
    y = w.emit("BatchNormalization", [w.name(data), scale, *map(w.name, rest)], epsilon=float(op.attrs["eps"]))
    return w.emit("Relu", [y]) if op.name.endswith("ReLU") else y


@lowering("mx.LayerNorm")
def _layer_norm(w: Writer, op: Op) -> str | None:
    last = op.operands[0].ndim - 1
    if w.opset < 17 or _axis(op.attrs["axis"], op) != last or op.attrs["output_mean_var"] or not _wide(op):
        return None
    return w.emit("LayerNormalization", [w.name(v) for v in op.operands], axis=-1, epsilon=float(op.attrs["eps"]))


@lowering("mx.InstanceNorm")
def _instance_norm(w: Writer, op: Op) -> str | None:
    if op.operands[0].ndim < 3:
        return None
    return w.emit("InstanceNormalization", [w.name(v) for v in op.operands], epsilon=float(op.attrs["eps"]))


@lowering("mx.LRN")
def _lrn(w: Writer, op: Op) -> str:
    a = op.attrs
    numbers: dict[str, Any] = {"alpha": float(a["alpha"]), "beta": float(a["beta"]), "bias": float(a["knorm"])}
    return w.emit("LRN", [w.name(op.operands[0])], size=a["nsize"], **numbers)


@lowering("mx.Pooling", "mx.Pooling_v1")
def _pooling(w: Writer, op: Op) -> str | None:
    a, (data,) = op.attrs, op.operands
    kind, layout = a["pool_type"], a.get("layout")
    axes = _spatial_axes(data.ndim, layout)
    if axes != tuple(range(2, data.ndim)) or kind not in ("max", "avg"):
        return None
    name = {"max": "MaxPool", "avg": "AveragePool"}[kind]
    if a["global_pool"]:
        return w.emit(f"Global{name}", [w.name(data)])
    windows = _Windows(data.shape, axes, a["kernel"], a["stride"], a["pad"], a["pooling_convention"])
    outside = any(windows.has_outside(k, data.shape[axis]) for k, axis in enumerate(axes))
    kernel, low = windows.kernel, windows.pad
    # `windows` leaves out taps that no window needs.
    cut = zip(windows.high, windows.window, kernel, low, windows.low)
    high = [end - (taps - n) - (pad - first) for end, taps, n, pad, first in cut]
    if outside or any(isinstance(n, Dim) for n in high) or padding_is_too_large(kernel, low, high):
        return None
    shape: dict[str, Any] = {"kernel_shape": list(kernel), "strides": list(windows.stride)}
    pads = [*low, *high]
    if kind == "max":
        return w.emit("MaxPool", [w.name(data)], **shape, pads=pads)
    counts = a.get("count_include_pad") is not False
    if counts and high != list(low):
        # The last windows extend past the padding, and what is there does not count.
        return None
    return w.emit("AveragePool", [w.name(data)], **shape, pads=pads, count_include_pad=int(counts))


_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign"}


@lowering("mx.Activation")
def _activation(w: Writer, op: Op) -> str:
    return w.emit(_ACTIVATIONS[op.attrs["act_type"]], [w.name(op.operands[0])])


@lowering("mx.relu", "mx._npx_relu")
def _relu(w: Writer, op: Op) -> str | None:
    if op.operands[0].dtype.is_integer and w.opset < 14:
        return None
    return w.emit("Relu", [w.name(op.operands[0])])


@lowering("mx.LeakyReLU")
def _leaky_relu(w: Writer, op: Op) -> str | None:
    kind, x = op.attrs["act_type"], w.name(op.operands[0])
    if kind == "leaky":
        return w.emit("LeakyRelu", [x], alpha=float(op.attrs["slope"]))
    if kind == "elu":
        return w.emit("Elu", [x], alpha=float(op.attrs["slope"]))
    if kind == "selu":
        return w.emit("Selu", [x])
    if kind == "gelu" and w.opset >= 20:
        return w.emit("Gelu", [x])
    return None


@lowering("mx.hard_sigmoid")
def _hard_sigmoid(w: Writer, op: Op) -> str:
    a = op.attrs
    return w.emit("HardSigmoid", [w.name(op.operands[0])], alpha=float(a["alpha"]), beta=float(a["beta"]))


@lowering("mx.clip")
def _clip(w: Writer, op: Op) -> str | None:
    (x,) = op.operands
    low, high = op.attrs["a_min"], op.attrs["a_max"]
    if not x.dtype.is_float or low is None or high is None:
        return None
    return w.emit("Clip", [w.name(x), w.like(low, x), w.like(high, x)])


@lowering("mx.softmax", "mx.log_softmax")
def _softmax(w: Writer, op: Op) -> str | None:
    a = op.attrs
    plain = a["temperature"] in (None, 1.0) and a["dtype"] in (None, op.operands[0].dtype) and not a["use_length"]
    if not plain or not _wide(op):
        return None
    return w.emit("LogSoftmax" if "log" in op.name else "Softmax", [w.name(op.operands[0])], axis=a["axis"])


@lowering("mx.SoftmaxOutput", "mx.SoftmaxActivation")
def _softmax_output(w: Writer, op: Op) -> str | None:
    a, x = op.attrs, op.operands[0]
    if not _wide(op):
        return None
    if op.name == "mx.SoftmaxActivation" or a["multi_output"] or a["preserve_shape"] or x.ndim == 2:
        channel = a.get("multi_output") or a.get("mode") == "channel"
        if op.name == "mx.SoftmaxActivation" and x.ndim != 2 and not channel:
            return None
        return w.emit("Softmax", [w.name(x)], axis=1 if channel else -1)
    return None


@lowering("mx.Flatten")
def _flatten(w: Writer, op: Op) -> str:
    return w.emit("Flatten", [w.name(op.operands[0])], axis=1)


@lowering("mx._copy", "mx.BlockGrad", "mx.make_loss", "mx.MakeLoss", "mx._np_copy", "mx.IdentityAttachKLSparseReg")
def _copy(w: Writer, op: Op) -> str:
    return w.name(op.operands[0])


@lowering("mx.Dropout")
def _dropout(w: Writer, op: Op) -> Sequence[str] | None:
    return [w.name(op.operands[0]), ""] if op.attrs["mode"] == "training" else None


@lowering("mx.add_n")
def _add_n(w: Writer, op: Op) -> str:
    return w.emit("Sum", [w.name(v) for v in op.operands])


_REDUCTIONS = {
    "mx.sum": "ReduceSum",
    "mx.mean": "ReduceMean",
    "mx.max": "ReduceMax",
    "mx.min": "ReduceMin",
    "mx.prod": "ReduceProd",
}


@lowering(*_REDUCTIONS)
def _reduction(w: Writer, op: Op) -> str | None:
    (x,) = op.operands
    axis = op.attrs["axis"]
    axes = [k % x.ndim for k in ((axis,) if isinstance(axis, int) else axis or range(x.ndim))]
    if op.attrs["exclude"]:
        axes = [k for k in range(x.ndim) if k not in axes]
    kept = len(op.result.shape) == x.ndim
    if not axes or not _wide(op) or not x.dtype.is_float or (not kept and len(op.result.shape) != x.ndim - len(axes)):
        return None
    return w.reduce(_REDUCTIONS[op.name], w.name(x), sorted(axes), kept)


@lowering("mx.Embedding", "mx._contrib_SparseEmbedding")
def _embedding(w: Writer, op: Op) -> str:
    index, weight = op.operands
    at = w.name(index) if index.dtype.name == "i64" else w.cast(w.name(index), np.int64)
    return w.emit("Gather", [w.name(weight), clipped(w, at, weight.shape[0])], axis=0)


@lowering("mx.batch_dot", "mx._linalg_gemm2", "mx._npi_matmul")
def _batch_dot(w: Writer, op: Op) -> str | None:
    a, b = op.operands
    if a.ndim != b.ndim or a.ndim < 2 or not _wide(op) or op.attrs.get("axis", -2) not in (-2, a.ndim - 2):
        return None
    names = [
        w.transposed(v) if op.attrs.get(flag) else w.name(v) for v, flag in ((a, "transpose_a"), (b, "transpose_b"))
    ]
    y = w.emit("MatMul", names)
    alpha = op.attrs.get("alpha", 1.0)
    return y if alpha == 1 else w.emit("Mul", [y, w.like(alpha, a)])


@lowering("mx.SliceChannel")
def _slice_channel(w: Writer, op: Op) -> Any:
    (x,) = op.operands
    axis, count = op.attrs["axis"] % x.ndim, op.attrs["num_outputs"]
    each = x.shape[axis] // count
    sizes = w.shape([each] * count)
    parts = w.emit("Split", [w.name(x), sizes], count, axis=axis)
    parts = [parts] if count == 1 else parts
    return [w.squeeze(part, axis) for part in parts] if op.attrs["squeeze_axis"] else parts


@lowering("mx.tile")
def _tile(w: Writer, op: Op) -> str:
    (x,) = op.operands
    reps = op.attrs["reps"]
    name = w.name(x)
    rank = len(op.result.shape)
    if x.ndim < rank:
        name = w.unsqueeze(name, *range(rank - x.ndim))
    return w.emit("Tile", [name, w.ints(*(1,) * (rank - len(reps)), *reps)])


@lowering("mx.depth_to_space", "mx.space_to_depth")
def _depth(w: Writer, op: Op) -> str:
    name = "DepthToSpace" if op.name == "mx.depth_to_space" else "SpaceToDepth"
    return w.emit(name, [w.name(op.operands[0])], blocksize=op.attrs["block_size"])


@lowering("mx.UpSampling")
def _upsampling(w: Writer, op: Op) -> str | None:
    if op.attrs["sample_type"] != "nearest" or len(op.operands) != 1:
        return None
    scales = w.constant(np.array([1, 1, op.attrs["scale"], op.attrs["scale"]], np.float32))
    how: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return w.emit("Resize", [w.name(op.operands[0]), "", scales], **how)


@lowering("mx._contrib_BilinearResize2D")
def _bilinear_resize(w: Writer, op: Op) -> str | None:
    data = op.operands[0]
    old, new = data.shape[2:], op.result.shape[2:]
    if any(isinstance(n, Dim) for n in (*old, *new)) or not _wide(op) or 1 in new:
        return None
    mode = "align_corners" if op.attrs["align_corners"] else "half_pixel"
    return w.emit(
        "Resize", [w.name(data), "", "", w.shape(op.result.shape)], mode="linear", coordinate_transformation_mode=mode
    )


@lowering("mx.topk")
def _topk(w: Writer, op: Op) -> Any:
    a, (x,) = op.attrs, op.operands
    if a["axis"] is None or a["ret_typ"] not in ("value", "indices", "both") or a["k"] < 1:
        return None
    axis = a["axis"] % x.ndim
    if not is_at_most(a["k"], x.shape[axis]):
        return None
    name = w.name(x)
    values, places = w.emit("TopK", [name, w.ints(a["k"])], 2, axis=axis, largest=int(not a["is_ascend"]))
    wanted = [places] if a["ret_typ"] != "value" else []
    if wanted:
        wanted = [w.cast(places, op.results[-1].dtype.numpy)]
    return [values, *wanted] if a["ret_typ"] == "both" else wanted or [values]


# Recurrent layers

_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""The gates in ONNX's order: an LSTM's are input, output, forget, cell; a GRU's update, reset, new."""
_CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


@lowering("mx.RNN")
def _rnn(w: Writer, op: Op) -> Sequence[str]:
    """Layer by layer, both directions of one in one node."""
    a = op.attrs
    mode = a["mode"]
    data, parameters, *states = op.operands
    if a["projection_size"] or a["lstm_state_clip_min"] is not None:
        raise Unsupported("with projections or clipped states")
    lengths = w.cast(w.name(states.pop()), np.int32) if a["use_sequence_length"] else ""
    if not _wide(op):
        raise Unsupported("of float16")
    sizes = _Sizes.of(a)
    vector = w.known(parameters)
    if vector is None:
        vector = w.parameter(parameters)
    cells = _cells(vector, sizes, data.shape[2], _GATES[mode])
    time, batch = data.shape[:2]
    x, ends = w.name(data), [[] for _ in states]  # type: ignore[var-annotated]
    for layer in range(sizes.layers):
        first = layer * sizes.directions
        weights = [
            w.constant(np.stack([cell[k] for cell in cells[first : first + sizes.directions]])) for k in range(3)
        ]
        begin = [_layer(w, v, first, sizes) for v in states]
        inputs = [x, *weights, lengths, *begin]
        options: dict[str, Any] = {"hidden_size": sizes.hidden}
        if sizes.directions == 2:
            options["direction"] = "bidirectional"
        if mode == "gru":
            options["linear_before_reset"] = 1
        if mode == "rnn_relu":
            options["activations"] = ["Relu"] * sizes.directions
        every, *last = w.emit(_CELLS[mode], inputs, 1 + len(states), **options)
        for found, end in zip(ends, last):
            found.append(end)
        if sizes.directions == 1:
            x = w.squeeze(every, 1)
        else:
            turned = transposed(w, every, (0, 2, 1, 3))
            old = (time, batch, sizes.directions, sizes.hidden)
            x = w.reshape(turned, old, (time, batch, sizes.directions * sizes.hidden))
    if not a["state_outputs"]:
        return [x]
    return [x, *(found[0] if len(found) == 1 else w.emit("Concat", found, axis=0) for found in ends)]


def _layer(w: Writer, state: Any, first: int, sizes: _Sizes) -> str:
    if sizes.layers == 1:
        return w.name(state)
    return w.slice(w.name(state), 0, first, first + sizes.directions)


def _cells(vector: np.ndarray, sizes: _Sizes, channels: int, order: Sequence[int]) -> list[tuple[np.ndarray, ...]]:
    """(W, R, B) of every layer and direction, with gates in ONNX's order, from MXNet's vector of parameters."""
    at = 0

    def take(*shape: int) -> np.ndarray:
        nonlocal at
        part = vector[at : at + math.prod(shape)].reshape(sizes.gates, -1, *shape[1:])
        at += math.prod(shape)
        return part[list(order)].reshape(shape)

    weights = [(take(*cell["i2h"]), take(*cell["h2h"])) for cell in sizes.layout(channels)]
    rows = sizes.gates * sizes.hidden
    return [(i2h, h2h, np.concatenate([take(rows), take(rows)])) for i2h, h2h in weights]
