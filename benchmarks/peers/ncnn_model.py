"""A `benchmarks.graph.Net` as an ncnn model: the text of its `.param` file and the bytes of its `.bin`.

ncnn has no batch axis. For images, or a batch of 1, the first axis is dropped, and a batch is one run per image;
otherwise the batch is the height of a matrix. A sequence (T, 1, I) is a matrix of T rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.fold import folded
from benchmarks.graph import Net, Node, Shape

_MAGIC = 7767517


@dataclass
class NcnnModel:
    param: str
    weights: bytes
    inputs: list[str]
    output: str
    runs: int
    """How many inputs of batch 1 make one of the net's."""
    shape: Callable[[Shape], Shape]
    """From a shape in the net to the one of a single run."""


def ncnn_model(net: Net) -> NcnnModel:
    net = folded(net)
    writer = _Writer(net)
    for name in net.inputs:
        writer.layer("Input", [], [writer.value(name)])
        writer.split(name)
    for node in net.nodes:
        _LAYERS[node.op](writer, node)
        writer.split(node.output)
    runs = net.shapes[net.inputs[0]][0] if writer.dropped == 0 else 1
    names = [f"v{writer.number(name)}" for name in net.inputs]
    return NcnnModel(writer.text(), b"".join(writer.data), names, writer.read(net.outputs[0]), runs, writer.shape)


@dataclass
class _Writer:
    net: Net
    lines: list[str] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    copies: dict[str, list[str]] = field(default_factory=dict)
    blobs: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        ops = {node.op for node in self.net.nodes}
        first = self.net.shapes[self.net.inputs[0]]
        self.dropped = 1 if "lstm" in ops else 0 if "conv" in ops or first[0] == 1 else None
        """The axis that shapes have here no more."""
        self.users = self.net.users()

    def text(self) -> str:
        return "\n".join([str(_MAGIC), f"{len(self.lines)} {len(self.blobs)}", *self.lines, ""])

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def value(self, name: str) -> str:
        """The blob that a layer writes."""
        return f"v{self.number(name)}"

    def read(self, name: str) -> str:
        """A blob for one more reader: each may be read once."""
        return self.copies[name].pop() if name in self.copies else self.value(name)

    def split(self, name: str) -> None:
        count = len(self.users.get(name, [])) + self.net.outputs.count(name)
        if count > 1:
            blob = self.value(name)
            copies = [f"{blob}_{k}" for k in range(count)]
            self.layer("Split", [blob], copies)
            self.copies[name] = copies[::-1]

    def shape(self, shape: Shape) -> Shape:
        return shape if self.dropped is None else (*shape[: self.dropped], *shape[self.dropped + 1 :])

    def axis(self, axis: int) -> int:
        return axis if self.dropped is None or axis < self.dropped else axis - 1

    def layer(self, kind: str, inputs: list[str], outputs: list[str], options: dict[int, Any] | None = None) -> None:
        self.blobs.update(outputs)
        words = [kind, f"l{len(self.lines)}", len(inputs), len(outputs), *inputs, *outputs]
        for key, value in (options or {}).items():
            if isinstance(value, tuple):
                words.append(f"{-23300 - key}={','.join(map(str, (len(value), *value)))}")
            else:
                words.append(f"{key}={value}")
        self.lines.append(" ".join(map(str, words)))

    def one(self, kind: str, node: Node, options: dict[int, Any] | None = None) -> None:
        """A layer from the node's first input to its output."""
        self.layer(kind, [self.read(node.inputs[0])], [self.value(node.output)], options)

    def tagged(self, value: np.ndarray) -> None:
        """Weights that may have another type; 0 says float32."""
        self.data.append(b"\0\0\0\0")
        self.plain(value)

    def plain(self, value: np.ndarray) -> None:
        self.data.append(np.ascontiguousarray(value, np.float32).tobytes())


def _activation(node: Node) -> dict[int, Any]:
    return {None: {}, "relu": {9: 1}, "relu6": {9: 3, 10: (0.0, 6.0)}}[node.attrs["activation"]]


def _conv(w: _Writer, node: Node) -> None:
    x, weight, *bias = node.inputs
    values, a = w.net.params[weight], node.attrs
    if w.net.shapes[x][2:] == values.shape[2:] == (1, 1):
        _dense(w, node)  # as ncnn itself advises
        return
    (kh, kw), (dh, dw), (sh, sw), (ph, pw) = values.shape[2:], a["dilate"], a["stride"], a["pad"]
    options = {0: len(values), 1: kw, 11: kh, 2: dw, 12: dh, 3: sw, 13: sh, 4: pw, 14: ph}
    options |= {5: len(bias), 6: values.size, **_activation(node)}
    if a["groups"] > 1:
        options[7] = a["groups"]
    w.one("ConvolutionDepthWise" if a["groups"] > 1 else "Convolution", node, options)
    w.tagged(values)
    for name in bias:
        w.plain(w.net.params[name])


def _dense(w: _Writer, node: Node) -> None:
    x, weight, *bias = node.inputs
    values = w.net.params[weight]
    w.one("InnerProduct", node, {0: len(values), 1: len(bias), 2: values.size, **_activation(node)})
    w.tagged(values)
    for name in bias:
        w.plain(w.net.params[name])


def _affine(w: _Writer, node: Node) -> None:
    x, scale, shift = (*node.inputs,)
    fused = node.attrs["activation"]
    scaled = f"{w.value(node.output)}_scaled" if fused else w.value(node.output)
    w.layer("Scale", [w.read(x)], [scaled], {0: w.net.params[scale].size, 1: 1})
    w.plain(w.net.params[scale])
    w.plain(w.net.params[shift])
    _activate(w, scaled, node)


def _add(w: _Writer, node: Node) -> None:
    added = f"{w.value(node.output)}_added" if node.attrs["activation"] else w.value(node.output)
    w.layer("BinaryOp", [w.read(x) for x in node.inputs], [added], {0: 0})
    _activate(w, added, node)


def _activate(w: _Writer, blob: str, node: Node) -> None:
    if node.attrs["activation"] == "relu":
        w.layer("ReLU", [blob], [w.value(node.output)])
    elif node.attrs["activation"]:
        w.layer("Clip", [blob], [w.value(node.output)], {0: 0.0, 1: 6.0})


def _pool(w: _Writer, node: Node) -> None:
    a = node.attrs
    (kh, kw), (sh, sw), (top, left), (bottom, right) = a["kernel"], a["stride"], a["low"], a["high"]
    options = {0: int(node.op == "avg_pool"), 1: kw, 11: kh, 2: sw, 12: sh, 3: left, 13: top, 14: right, 15: bottom}
    # Windows that do not fit are left out; so the paddings say everything.
    w.one("Pooling", node, {**options, 5: 1, 6: int(a["count_padding"])})


def _reshape(w: _Writer, node: Node) -> None:
    shape = w.shape(node.attrs["shape"])
    w.one("Reshape", node, dict(zip((0, 1, 2), shape[::-1])))


_ORDERS = {(0, 1, 2): 0, (0, 2, 1): 1, (1, 0, 2): 2, (1, 2, 0): 3, (2, 0, 1): 4, (2, 1, 0): 5}
"""Permutations of (c, h, w) by their number in layer Permute."""


def _transpose(w: _Writer, node: Node) -> None:
    axes = tuple(w.axis(a) for a in node.attrs["axes"] if a != w.dropped)
    w.one("Permute", node, {0: _ORDERS[axes]})


def _layer_norm(w: _Writer, node: Node) -> None:
    x, gamma, beta = node.inputs
    w.one("LayerNorm", node, {0: w.net.params[gamma].size, 1: node.attrs["eps"], 2: 1})
    w.plain(w.net.params[gamma])
    w.plain(w.net.params[beta])


def _lstm(w: _Writer, node: Node) -> None:
    x, *names = node.inputs
    wx, wh, bx, bh = (w.net.params[name] for name in names)
    if w.net.shapes[x][1] != 1:
        raise NotImplementedError("sequences in batches")

    def reordered(value: np.ndarray) -> np.ndarray:  # i, f, g, o → i, f, o, g
        i, f, g, o = np.split(value, 4)
        return np.concatenate([i, f, o, g])

    w.one("LSTM", node, {0: wh.shape[1], 1: wx.size, 2: 0})
    for value in (wx, bx + bh, wh):
        w.tagged(reordered(value))


def _binary(kind: int) -> Callable[[_Writer, Node], None]:
    return lambda w, n: w.layer("BinaryOp", [w.read(x) for x in n.inputs], [w.value(n.output)], {0: kind})


def _layer(kind: str, options: Callable[[_Writer, Node], dict[int, Any]] = lambda w, n: {}) -> Callable[..., None]:
    return lambda w, n: w.one(kind, n, options(w, n))


_LAYERS: dict[str, Callable[[_Writer, Node], None]] = {
    "conv": _conv,
    "dense": _dense,
    "affine": _affine,
    "max_pool": _pool,
    "avg_pool": _pool,
    "global_avg_pool": _layer("Pooling", lambda w, n: {0: 1, 4: 1}),
    "relu": _layer("ReLU"),
    "tanh": _layer("TanH"),
    "sigmoid": _layer("Sigmoid"),
    "gelu": _layer("GELU", lambda w, n: {0: 0}),
    "softmax": _layer("Softmax", lambda w, n: {0: len(w.shape(w.net.shapes[n.output])) - 1, 1: 1}),
    "add": _add,
    "mul": _binary(2),
    "scale": _layer("BinaryOp", lambda w, n: {0: 2, 1: 1, 2: n.attrs["factor"]}),
    "concat": lambda w, n: w.layer(
        "Concat", [w.read(x) for x in n.inputs], [w.value(n.output)], {0: w.axis(n.attrs["axis"])}
    ),
    "reshape": _reshape,
    "transpose": _transpose,
    "matmul": lambda w, n: w.layer(
        "MatMul", [w.read(x) for x in n.inputs], [w.value(n.output)], {0: int(n.attrs["transpose"])}
    ),
    "layer_norm": _layer_norm,
    "lstm": _lstm,
}
