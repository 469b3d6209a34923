"""A `benchmarks.graph.Net` as a LiteRT (TensorFlow Lite) flatbuffer.

As LiteRT's converters do: images are (N, H, W, C), batch normalizations are folded, activations fused. Padding other
than LiteRT's SAME (which puts the odd row last) becomes a separate PAD, which the XNNPACK delegate fuses again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.fold import folded
from benchmarks.graph import Net, Node

_TO_LAST = (0, 2, 3, 1)
_SPATIAL = ("conv", "max_pool", "avg_pool", "global_avg_pool", "batch_norm", "affine")


def images(net: Net) -> set[str]:
    """The values that are (N, C, H, W) in `net` and (N, H, W, C) here."""
    found = {node.inputs[0] for node in net.nodes if node.op in _SPATIAL and node.inputs[0] in net.inputs}
    for node in net.nodes:
        follows = node.op not in ("reshape", "transpose", "matmul") and any(x in found for x in node.inputs)
        if node.op in _SPATIAL or follows:
            found.add(node.output)
    return found


def litert_model(net: Net) -> bytes:
    """Inputs are in the order of `net`."""
    import flatbuffers

    net = folded(net)
    writer = _Writer(net)
    for node in net.nodes:
        _OPERATORS[node.op](writer, node)
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(writer.finish().Pack(builder), b"TFL3")
    return bytes(builder.Output())


class _Writer:
    def __init__(self, net: Net) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.schema: Any = schema
        self.net = net
        self.images = images(net)
        self.model = schema.ModelT(version=3, buffers=[schema.BufferT()], operatorCodes=[])
        self.graph = schema.SubGraphT(tensors=[], operators=[])
        self.index: dict[str, int] = {}
        self.codes: dict[str, int] = {}
        self.graph.inputs = [self.value(name) for name in net.inputs]

    def finish(self) -> Any:
        self.graph.outputs = [self.value(name) for name in self.net.outputs]
        self.model.subgraphs = [self.graph]
        return self.model

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self.net.shapes[name]
        return tuple(shape[k] for k in _TO_LAST) if name in self.images else shape

    def value(self, name: str) -> int:
        """The tensor of a value of the net; parameters must have been given by `constant`."""
        if name not in self.index:
            self.index[name] = self.tensor(name, self.shape(name), np.float32, 0)
        return self.index[name]

    def new(self, shape: Iterable[int]) -> int:
        return self.tensor(f"t{len(self.graph.tensors)}", shape, np.float32, 0)

    def constant(self, value: Any) -> int:
        value = np.ascontiguousarray(value)
        data = np.frombuffer(value.tobytes(), np.uint8)
        self.model.buffers.append(self.schema.BufferT(data=data))
        return self.tensor(f"c{len(self.graph.tensors)}", value.shape, value.dtype.type, len(self.model.buffers) - 1)

    def tensor(self, name: str, shape: Iterable[int], dtype: Any, buffer: int) -> int:
        kinds = self.schema.TensorType
        kind = {np.float32: kinds.FLOAT32, np.int32: kinds.INT32}[dtype]
        tensor = self.schema.TensorT(shape=list(shape), type=kind, buffer=buffer, name=name, hasRank=True)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def emit(self, op: str, inputs: list[int], outputs: list[int], options: str = "", **fields: Any) -> None:
        s = self.schema
        if op not in self.codes:
            code = getattr(s.BuiltinOperator, op)
            self.codes[op] = len(self.model.operatorCodes)
            old = min(code, 127)  # where readers that know fewer operators look
            self.model.operatorCodes.append(s.OperatorCodeT(builtinCode=code, deprecatedBuiltinCode=old, version=1))
        operator = s.OperatorT(opcodeIndex=self.codes[op], inputs=inputs, outputs=outputs)
        if options:
            operator.builtinOptionsType = getattr(s.BuiltinOptions, options)
            operator.builtinOptions = getattr(s, f"{options}T")(**fields)
        self.graph.operators.append(operator)

    def activation(self, node: Node) -> int:
        kinds = self.schema.ActivationFunctionType
        return {None: kinds.NONE, "relu": kinds.RELU, "relu6": kinds.RELU6}[node.attrs.get("activation")]

    def padded(self, node: Node, low: Iterable[int], high: Iterable[int], kernel: list[int]) -> tuple[int, int]:
        """(the tensor to slide windows over, SAME or VALID)"""
        x, kinds = node.inputs[0], self.schema.Padding
        sizes = self.net.shapes[x][2:]
        out = self.net.shapes[node.output][2:]
        # Pads after the last window do nothing; so count what is needed.
        needed = [
            (p, max((o - 1) * s + k - size - p, 0))
            for o, s, k, size, p in zip(out, node.attrs["stride"], kernel, sizes, low)
        ]
        same = [
            divmod(max((o - 1) * s + k - size, 0), 2) for o, s, k, size in zip(out, node.attrs["stride"], kernel, sizes)
        ]
        if not any(map(any, needed)):
            return self.value(x), kinds.VALID
        if needed == [(half, half + odd) for half, odd in same] and node.op != "avg_pool":
            return self.value(x), kinds.SAME
        if node.op == "max_pool" and not self.positive(x):
            raise NotImplementedError("padded maximum of values that may be negative")
        pads = np.array([(0, 0), *needed, (0, 0)], np.int32)
        batch, height, width, channels = self.shape(x)
        (top, bottom), (left, right) = needed
        y = self.new((batch, height + top + bottom, width + left + right, channels))
        self.emit("PAD", [self.value(x), self.constant(pads)], [y], "PadOptions")
        return y, kinds.VALID

    def positive(self, name: str) -> bool:
        producer = next((n for n in self.net.nodes if n.output == name), None)
        return producer is not None and (producer.op == "relu" or producer.attrs.get("activation") is not None)


def _simple(op: str, options: str = "", **fields: Any) -> Callable[[_Writer, Node], None]:
    return lambda w, n: w.emit(op, [w.value(x) for x in n.inputs], [w.value(n.output)], options, **fields)


def _conv(w: _Writer, node: Node) -> None:
    x, weight, *bias = node.inputs
    values, a = w.net.params[weight], node.attrs
    kernel = [(k - 1) * d + 1 for k, d in zip(values.shape[2:], a["dilate"])]
    data, padding = w.padded(node, a["pad"], a["pad"], kernel)
    offset = w.net.params[bias[0]] if bias else np.zeros(len(values), np.float32)
    options = {"padding": padding, "fusedActivationFunction": w.activation(node)}
    options |= {"strideH": a["stride"][0], "strideW": a["stride"][1]}
    options |= {"dilationHFactor": a["dilate"][0], "dilationWFactor": a["dilate"][1]}
    channels = w.net.shapes[x][1]
    if a["groups"] == channels > 1:
        weights = w.constant(values.transpose(1, 2, 3, 0).reshape(1, *values.shape[2:], -1))
        inputs, options["depthMultiplier"] = [data, weights, w.constant(offset)], len(values) // channels
        w.emit("DEPTHWISE_CONV_2D", inputs, [w.value(node.output)], "DepthwiseConv2DOptions", **options)
        return
    weights = w.constant(values.transpose(0, 2, 3, 1))
    w.emit("CONV_2D", [data, weights, w.constant(offset)], [w.value(node.output)], "Conv2DOptions", **options)


def _dense(w: _Writer, node: Node) -> None:
    x, weight, *bias = node.inputs
    values = w.net.params[weight]
    flattened = next((n for n in w.net.nodes if n.output == x and n.op == "reshape"), None)
    if flattened is not None and flattened.inputs[0] in w.images:
        image = w.net.shapes[flattened.inputs[0]][1:]
        values = values.reshape(-1, *image).transpose(_TO_LAST).reshape(values.shape)
    offset = w.net.params[bias[0]] if bias else np.zeros(len(values), np.float32)
    inputs = [w.value(x), w.constant(values), w.constant(offset)]
    options = {"keepNumDims": len(w.net.shapes[x]) > 2, "fusedActivationFunction": w.activation(node)}
    w.emit("FULLY_CONNECTED", inputs, [w.value(node.output)], "FullyConnectedOptions", **options)


def _affine(w: _Writer, node: Node) -> None:
    x, scale, shift = node.inputs
    product = w.new(w.shape(x))
    w.emit("MUL", [w.value(x), w.constant(w.net.params[scale])], [product], "MulOptions")
    inputs = [product, w.constant(w.net.params[shift])]
    w.emit("ADD", inputs, [w.value(node.output)], "AddOptions", fusedActivationFunction=w.activation(node))


def _add(w: _Writer, node: Node) -> None:
    inputs = [w.value(x) for x in node.inputs]
    w.emit("ADD", inputs, [w.value(node.output)], "AddOptions", fusedActivationFunction=w.activation(node))


def _pool(w: _Writer, node: Node) -> None:
    a = node.attrs
    if node.op == "avg_pool" and not a["count_padding"] and any((*a["low"], *a["high"])):
        raise NotImplementedError("averages that do not count the padding")
    data, padding = w.padded(node, a["low"], a["high"], list(a["kernel"]))
    op = "MAX_POOL_2D" if node.op == "max_pool" else "AVERAGE_POOL_2D"
    options = {"padding": padding, "strideH": a["stride"][0], "strideW": a["stride"][1]}
    options |= {"filterHeight": a["kernel"][0], "filterWidth": a["kernel"][1]}
    w.emit(op, [data], [w.value(node.output)], "Pool2DOptions", **options)


def _mean(w: _Writer, x: int, y: int, axes: list[int]) -> None:
    w.emit("MEAN", [x, w.constant(np.array(axes, np.int32))], [y], "ReducerOptions", keepDims=True)


def _scale(w: _Writer, node: Node) -> None:
    factor = w.constant(np.float32(node.attrs["factor"]))
    w.emit("MUL", [w.value(node.inputs[0]), factor], [w.value(node.output)], "MulOptions")


def _reshape(w: _Writer, node: Node) -> None:
    shape = w.shape(node.output)
    x, y = w.value(node.inputs[0]), w.value(node.output)
    w.emit("RESHAPE", [x, w.constant(np.array(shape, np.int32))], [y], "ReshapeOptions", newShape=list(shape))


def _transpose(w: _Writer, node: Node) -> None:
    axes = w.constant(np.array(node.attrs["axes"], np.int32))
    w.emit("TRANSPOSE", [w.value(node.inputs[0]), axes], [w.value(node.output)], "TransposeOptions")


def _concat(w: _Writer, node: Node) -> None:
    axis = node.attrs["axis"]
    if node.output in w.images:
        axis = _TO_LAST.index(axis)
    inputs = [w.value(x) for x in node.inputs]
    w.emit("CONCATENATION", inputs, [w.value(node.output)], "ConcatenationOptions", axis=axis)


def _matmul(w: _Writer, node: Node) -> None:
    inputs = [w.value(x) for x in node.inputs]
    w.emit("BATCH_MATMUL", inputs, [w.value(node.output)], "BatchMatMulOptions", adjY=node.attrs["transpose"])


def _layer_norm(w: _Writer, node: Node) -> None:
    x, gamma, beta = node.inputs
    shape = w.shape(x)
    last, row = len(shape) - 1, (*shape[:-1], 1)
    mean, variance, guarded, inverse = (w.new(row) for _ in range(4))
    centered, squares, normal, scaled = (w.new(shape) for _ in range(4))
    data = w.value(x)
    _mean(w, data, mean, [last])
    w.emit("SUB", [data, mean], [centered], "SubOptions")
    w.emit("SQUARED_DIFFERENCE", [data, mean], [squares], "SquaredDifferenceOptions")
    _mean(w, squares, variance, [last])
    w.emit("ADD", [variance, w.constant(np.float32(node.attrs["eps"]))], [guarded], "AddOptions")
    w.emit("RSQRT", [guarded], [inverse])
    w.emit("MUL", [centered, inverse], [normal], "MulOptions")
    w.emit("MUL", [normal, w.constant(w.net.params[gamma])], [scaled], "MulOptions")
    w.emit("ADD", [scaled, w.constant(w.net.params[beta])], [w.value(node.output)], "AddOptions")


def _lstm(w: _Writer, node: Node) -> None:
    """Unrolled: the projection of all steps at once, then a row of small operators for each step."""
    x, *names = node.inputs
    wx, wh, bx, bh = (w.net.params[name] for name in names)
    steps, batch, _ = w.net.shapes[x]
    hidden = wh.shape[1]
    projected = w.new((steps, batch, 4 * hidden))
    dense = {"options": "FullyConnectedOptions", "keepNumDims": True}
    w.emit("FULLY_CONNECTED", [w.value(x), w.constant(wx), w.constant(bx + bh)], [projected], **dense)
    rows = [w.new((batch, 4 * hidden)) for _ in range(steps)]
    w.emit("UNPACK", [projected], rows, "UnpackOptions", num=steps, axis=0)
    weights, nothing, axis = w.constant(wh), w.constant(np.zeros(4 * hidden, np.float32)), w.constant(np.int32(1))
    h = c = w.constant(np.zeros((batch, hidden), np.float32))
    outputs = []
    for row in rows:
        recurrent, gates = w.new((batch, 4 * hidden)), w.new((batch, 4 * hidden))
        w.emit("FULLY_CONNECTED", [h, weights, nothing], [recurrent], **dense)
        w.emit("ADD", [recurrent, row], [gates], "AddOptions")
        i, f, g, o, kept, added, new_c, squashed, new_h = (w.new((batch, hidden)) for _ in range(9))
        parts = [w.new((batch, hidden)) for _ in range(4)]
        w.emit("SPLIT", [axis, gates], parts, "SplitOptions", numSplits=4)
        for part, gate, function in zip(parts, (i, f, g, o), ("LOGISTIC", "LOGISTIC", "TANH", "LOGISTIC")):
            w.emit(function, [part], [gate])
        w.emit("MUL", [f, c], [kept], "MulOptions")
        w.emit("MUL", [i, g], [added], "MulOptions")
        w.emit("ADD", [kept, added], [new_c], "AddOptions")
        w.emit("TANH", [new_c], [squashed])
        w.emit("MUL", [o, squashed], [new_h], "MulOptions")
        h, c = new_h, new_c
        outputs.append(h)
    w.emit("PACK", outputs, [w.value(node.output)], "PackOptions", valuesCount=steps, axis=0)


_OPERATORS: dict[str, Callable[[_Writer, Node], None]] = {
    "conv": _conv,
    "dense": _dense,
    "affine": _affine,
    "max_pool": _pool,
    "avg_pool": _pool,
    "global_avg_pool": lambda w, n: _mean(w, w.value(n.inputs[0]), w.value(n.output), [1, 2]),
    "relu": _simple("RELU"),
    "tanh": _simple("TANH"),
    "sigmoid": _simple("LOGISTIC"),
    "gelu": _simple("GELU", "GeluOptions", approximate=False),
    "softmax": _simple("SOFTMAX", "SoftmaxOptions", beta=1.0),
    "add": _add,
    "mul": _simple("MUL", "MulOptions"),
    "scale": _scale,
    "concat": _concat,
    "reshape": _reshape,
    "transpose": _transpose,
    "matmul": _matmul,
    "layer_norm": _layer_norm,
    "lstm": _lstm,
}
