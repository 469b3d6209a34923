"""A `benchmarks.graph.Net` as an ONNX model, for those engines that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.graph import Net, Node

OPSET = 20
"""The first with Gelu."""


def onnx_model(net: Net, dims: Mapping[int, str] | None = None) -> bytes:
    """Serialized, at most 2 GB; outputs and inputs have the names they have in `net`.

    `dims`: sizes that no dimension has by itself → names. The model takes any size in their places."""
    from onnx import TensorProto, checker, helper

    writer = _Writer(net, dims or {})
    for node in net.nodes:
        _OPERATORS.get(node.op, _plain)(writer, node)
    for name in net.params.keys() & net.outputs:
        writer.emit("Identity", [writer.constant(f"{name}_value", net.params[name])], name)

    def described(names: list[str]) -> list[Any]:
        shapes = {name: [writer.dims.get(n, n) for n in net.shapes[name]] for name in names}
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in names]

    graph = helper.make_graph(writer.nodes, "net", described(net.inputs), described(net.outputs), writer.constants())
    # The version of the file format that came with the operator set, so that older readers take it.
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    checker.check_model(made)
    return made.SerializeToString()


class _Writer:
    def __init__(self, net: Net, dims: Mapping[int, str]) -> None:
        self.net = net
        self.dims = dims
        self.nodes: list[Any] = []
        self.values = dict(net.params)

    def emit(self, op: str, inputs: list[str], output: str, **attrs: Any) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [output], **attrs))

    def constant(self, name: str, value: Any) -> str:
        self.values[name] = np.asarray(value)
        return name

    def constants(self) -> list[Any]:
        from onnx import numpy_helper

        read = {name for node in self.nodes for name in node.input}
        return [numpy_helper.from_array(np.ascontiguousarray(x), n) for n, x in self.values.items() if n in read]


_NAMES = {
    "relu": "Relu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "gelu": "Gelu",
    "add": "Add",
    "mul": "Mul",
    "global_avg_pool": "GlobalAveragePool",
}


def _plain(w: _Writer, node: Node) -> None:
    w.emit(_NAMES[node.op], list(node.inputs), node.output)


def _conv(w: _Writer, node: Node) -> None:
    a = node.attrs
    options = {"strides": a["stride"], "pads": [*a["pad"], *a["pad"]], "dilations": a["dilate"], "group": a["groups"]}
    w.emit("Conv", list(node.inputs), node.output, **options)


def _dense(w: _Writer, node: Node) -> None:
    x, weight, *bias = node.inputs
    if len(w.net.shapes[x]) == 2:
        w.emit("Gemm", [x, weight, *bias], node.output, transB=1)
        return
    transposed = w.constant(f"{node.output}_weight", w.net.params[weight].T)
    product = f"{node.output}_product" if bias else node.output
    w.emit("MatMul", [x, transposed], product)
    if bias:
        w.emit("Add", [product, *bias], node.output)


def _pool(w: _Writer, node: Node) -> None:
    a = node.attrs
    options = {"kernel_shape": a["kernel"], "strides": a["stride"], "pads": [*a["low"], *a["high"]]}
    if node.op == "avg_pool":
        options["count_include_pad"] = int(a["count_padding"])
    w.emit("MaxPool" if node.op == "max_pool" else "AveragePool", list(node.inputs), node.output, **options)


def _clip(w: _Writer, node: Node) -> None:
    low, high = (w.constant(f"{node.output}_{end}", np.float32(node.attrs[end])) for end in ("low", "high"))
    w.emit("Clip", [*node.inputs, low, high], node.output)


def _scale(w: _Writer, node: Node) -> None:
    factor = w.constant(f"{node.output}_factor", np.float32(node.attrs["factor"]))
    w.emit("Mul", [*node.inputs, factor], node.output)


def _reshape(w: _Writer, node: Node) -> None:
    # 0 is the operand's own size there, -1 what is left.
    own = w.net.shapes[node.inputs[0]]
    open_ = [
        n if n not in w.dims else 0 if own[axis : axis + 1] == (n,) else -1
        for axis, n in enumerate(node.attrs["shape"])
    ]
    shape = w.constant(f"{node.output}_shape", np.array(open_, np.int64))
    w.emit("Reshape", [*node.inputs, shape], node.output)


def _matmul(w: _Writer, node: Node) -> None:
    x, y = node.inputs
    if node.attrs["transpose"]:
        rank = len(w.net.shapes[y])
        turned = f"{node.output}_transposed"
        w.emit("Transpose", [y], turned, perm=[*range(rank - 2), rank - 1, rank - 2])
        y = turned
    w.emit("MatMul", [x, y], node.output)


def _lstm(w: _Writer, node: Node) -> None:
    x, *names = node.inputs
    # Gates i, f, g, o here are i, o, f, g there; a leading axis counts directions.
    wx, wh, bx, bh = (
        np.concatenate([blocks[0], blocks[3], blocks[1], blocks[2]])[None]
        for blocks in (np.split(w.net.params[name], 4) for name in names)
    )
    arrays = {"W": wx, "R": wh, "B": np.concatenate([bx, bh], axis=1)}
    weights = [w.constant(f"{node.output}_{name}", value) for name, value in arrays.items()]
    every = f"{node.output}_directions"
    w.emit("LSTM", [x, *weights], every, hidden_size=wh.shape[-1])
    w.emit("Squeeze", [every, w.constant(f"{node.output}_axis", np.array([1], np.int64))], node.output)


_OPERATORS: dict[str, Callable[[_Writer, Node], None]] = {
    "conv": _conv,
    "dense": _dense,
    "batch_norm": lambda w, n: w.emit("BatchNormalization", list(n.inputs), n.output, epsilon=n.attrs["eps"]),
    "max_pool": _pool,
    "avg_pool": _pool,
    "clip": _clip,
    "scale": _scale,
    "softmax": lambda w, n: w.emit("Softmax", list(n.inputs), n.output, axis=-1),
    "concat": lambda w, n: w.emit("Concat", list(n.inputs), n.output, axis=n.attrs["axis"]),
    "reshape": _reshape,
    "transpose": lambda w, n: w.emit("Transpose", list(n.inputs), n.output, perm=n.attrs["axes"]),
    "matmul": _matmul,
    "layer_norm": lambda w, n: w.emit("LayerNormalization", list(n.inputs), n.output, axis=-1, epsilon=n.attrs["eps"]),
    "lstm": _lstm,
}
