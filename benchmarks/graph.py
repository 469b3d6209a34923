"""An exported model as a list of about twenty plain operators, from which every engine's own model is made.

Shapes are static, images (N, C, H, W), and everything that MXNet leaves to defaults or conventions is spelled out:

    conv(x, weight (O, C/groups, kh, kw)[, bias]) {stride, pad, dilate, groups}      pad: the same on both sides
    dense(x (…, I), weight (O, I)[, bias])
    batch_norm(x, gamma, beta, mean, variance) {eps}                                 over axis 1
    max_pool(x), avg_pool(x) {kernel, stride, low, high, count_padding}              windows that fit, once padded
    global_avg_pool(x)                                                               (N, C, 1, 1)
    relu(x), tanh(x), sigmoid(x), gelu(x), clip(x) {low, high}, softmax(x)           softmax over the last axis
    add(x, y), mul(x, y), scale(x) {factor}                                          operands of equal shapes
    concat(x, …) {axis}, reshape(x) {shape}, transpose(x) {axes}
    matmul(x (…, M, K), y) {transpose}                                               y (…, N, K) if so, else (…, K, N)
    layer_norm(x, gamma, beta) {eps}                                                 over the last axis
    lstm(x (T, N, I), wx (4H, I), wh (4H, H), bx, bh)                                gates i, f, g, o; from states of 0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Node:
    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Net:
    """Values have names; `shapes` knows all, `params` those that are constant, outputs perhaps among them."""

    inputs: list[str]
    nodes: list[Node]
    outputs: list[str]
    params: dict[str, np.ndarray]
    shapes: dict[str, Shape]

    def users(self) -> dict[str, list[Node]]:
        """The nodes that read each value."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def flop(self) -> float:
        """Operations by the textbook: 2 per multiply-add, 1 per element of whatever else is no movement."""
        return float(sum(self._flop(node) for node in self.nodes))

    def nbytes(self) -> int:
        """What has to move at least: inputs, parameters and outputs, once."""
        names = {*self.inputs, *self.outputs, *self.params}
        return 4 * sum(math.prod(self.shapes[name]) for name in names)

    def _flop(self, node: Node) -> int:
        size = math.prod(self.shapes[node.output])
        if node.op in ("conv", "dense"):
            return 2 * size * math.prod(self.shapes[node.inputs[1]][1:])
        if node.op == "matmul":
            return 2 * size * self.shapes[node.inputs[0]][-1]
        if node.op == "lstm":
            steps = math.prod(self.shapes[node.inputs[0]][:2])
            return 2 * steps * sum(math.prod(self.shapes[w]) for w in node.inputs[1:3])
        return 0 if node.op in ("reshape", "transpose", "concat") else size


def read(prefix: Path, inputs: Mapping[str, Shape]) -> Net:
    """The model in `<prefix>-symbol.json` and `<prefix>-0000.params`, for inputs of these shapes."""
    import gluonjit as mx
    from gluonjit.symbol.graph import post_order

    graph = mx.sym.load(f"{prefix}-symbol.json")
    arrays = mx.nd.load(f"{prefix}-0000.params") or {}
    params = {name.partition(":")[2]: x.asnumpy() for name, x in arrays.items()}
    internals = graph.get_internals()
    _, shapes, _ = internals.infer_shape(**inputs)
    translator = _Translator(params, dict(zip(internals.list_outputs(), map(tuple, shapes))))
    for node in post_order(graph._heads):
        if node.op is not None:
            operands = [translator.value(n.output_names[k]) for n, k in node.inputs]
            translator.add(node.op.name, operands, node.output_names[0], node.parsed)
    outputs = [translator.value(n.output_names[k]) for n, k in graph._heads]
    return translator.net(list(inputs), outputs)


class _Translator:
    def __init__(self, params: dict[str, np.ndarray], shapes: dict[str, Shape]) -> None:
        self.params = params
        self.shapes = {**shapes, **{name: x.shape for name, x in params.items()}}
        self.nodes: list[Node] = []
        self.same: dict[str, str] = {}
        """Values that are others' under another name."""

    def value(self, name: str) -> str:
        return self.same.get(name, name)

    def net(self, inputs: list[str], outputs: list[str]) -> Net:
        read = {*outputs, *(name for node in self.nodes for name in node.inputs)}
        params = {name: x for name, x in self.params.items() if name in read}
        values = {*inputs, *params, *(node.output for node in self.nodes)}
        return Net(inputs, self.nodes, outputs, params, {name: self.shapes[name] for name in values})

    def add(self, op: str, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
        try:
            translate = _OPERATORS[op]
        except KeyError:
            raise NotImplementedError(f"{op} ({output}): benchmarks/graph.py does not translate it") from None
        translate(self, inputs, output, attrs)

    def emit(self, op: str, inputs: list[str], output: str, **attrs: Any) -> None:
        self.nodes.append(Node(op, tuple(inputs), output, attrs))

    def constant(self, name: str, value: np.ndarray) -> None:
        self.params[name] = value
        self.shapes[name] = value.shape


_Translate = Callable[[_Translator, "list[str]", str, Mapping[str, Any]], None]


def _plain(op: str) -> _Translate:
    return lambda t, inputs, output, attrs: t.emit(op, inputs, output)


def _convolution(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    rank = len(attrs["kernel"])
    stride, dilate, pad = (tuple(attrs[key] or (default,) * rank) for key, default in _WINDOW)
    t.emit("conv", inputs, output, stride=stride, pad=pad, dilate=dilate, groups=attrs["num_group"])


_WINDOW = (("stride", 1), ("dilate", 1), ("pad", 0))


def _dense(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    shape = t.shapes[inputs[0]]
    if attrs["flatten"] and len(shape) > 2:
        flat = f"{output}_flat"
        t.shapes[flat] = (shape[0], math.prod(shape[1:]))
        t.emit("reshape", inputs[:1], flat, shape=t.shapes[flat])
        inputs = [flat, *inputs[1:]]
    t.emit("dense", inputs, output)


def _batch_norm(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    if attrs["fix_gamma"]:
        inputs[1] = f"{output}_ones"
        t.constant(inputs[1], np.ones(t.shapes[inputs[2]], np.float32))
    t.emit("batch_norm", inputs, output, eps=attrs["eps"])


def _pooling(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    kind = attrs["pool_type"]
    if attrs["global_pool"]:
        if kind != "avg":
            raise NotImplementedError(f"global {kind} pooling")
        t.emit("global_avg_pool", inputs, output)
        return
    rank = len(attrs["kernel"])
    kernel, (stride, _, low) = attrs["kernel"], (tuple(attrs.get(k) or (d,) * rank) for k, d in _WINDOW)
    high = low
    if attrs["pooling_convention"] == "full":
        # The last window may reach beyond the padding: as much more of it makes all windows fit.
        sizes = zip(t.shapes[inputs[0]][2:], t.shapes[output][2:], kernel, stride, low)
        high = tuple(max(p, (out - 1) * s + k - size - p) for size, out, k, s, p in sizes)
        if kind == "avg" and high != low:
            raise NotImplementedError("average pooling of windows that reach beyond the padding")
    counted = attrs.get("count_include_pad", True) is not False
    t.emit(f"{kind}_pool", inputs, output, kernel=kernel, stride=stride, low=low, high=high, count_padding=counted)


def _reshape(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    if inputs[0] in t.params:
        t.constant(output, t.params[inputs[0]].reshape(t.shapes[output]))
    else:
        t.emit("reshape", inputs, output, shape=t.shapes[output])


def _concat(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    if all(name in t.params for name in inputs):
        t.constant(output, np.concatenate([t.params[name] for name in inputs], attrs["dim"]))
    else:
        t.emit("concat", inputs, output, axis=attrs["dim"])


def _anchors(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    import gluonjit as mx

    # They depend on the feature map's height and width alone.
    features = mx.nd.zeros((1, 1, *t.shapes[inputs[0]][2:]))
    t.constant(output, mx.nd.contrib.MultiBoxPrior(features, **attrs).asnumpy())


def _join_weights(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    t.constant(output, np.concatenate([t.params[name] for name in inputs]))


def _rnn(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    if attrs["mode"] != "lstm" or attrs["num_layers"] != 1 or attrs["bidirectional"]:
        raise NotImplementedError("recurrent layers other than one LSTM")
    x, weights, *_ = inputs
    hidden, width = attrs["state_size"], t.shapes[x][-1]
    shapes = ((4 * hidden, width), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,))
    names, at = [], 0
    for name, shape in zip(("wx", "wh", "bx", "bh"), shapes):
        names.append(f"{output}_{name}")
        t.constant(names[-1], t.params[weights][at : at + math.prod(shape)].reshape(shape))
        at += math.prod(shape)
    t.emit("lstm", [x, *names], output)


def _same(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    t.same[output] = inputs[0]


def _leaky_relu(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    if attrs["act_type"] != "gelu":
        raise NotImplementedError(f"LeakyReLU({attrs['act_type']})")
    t.emit("gelu", inputs, output)


def _softmax(t: _Translator, inputs: list[str], output: str, attrs: Mapping[str, Any]) -> None:
    if attrs["axis"] not in (-1, len(t.shapes[output]) - 1):
        raise NotImplementedError("softmax over another axis than the last")
    t.emit("softmax", inputs, output)


_OPERATORS: dict[str, _Translate] = {
    "Convolution": _convolution,
    "FullyConnected": _dense,
    "BatchNorm": _batch_norm,
    "Pooling": _pooling,
    "Activation": lambda t, inputs, output, attrs: t.emit(attrs["act_type"], inputs, output),
    "LeakyReLU": _leaky_relu,
    "clip": lambda t, i, output, attrs: t.emit("clip", i, output, low=attrs["a_min"], high=attrs["a_max"]),
    "softmax": _softmax,
    "tanh": _plain("tanh"),
    "sigmoid": _plain("sigmoid"),
    "elemwise_add": _plain("add"),
    "elemwise_mul": _plain("mul"),
    "_mul_scalar": lambda t, i, output, attrs: t.emit("scale", i, output, factor=float(attrs["scalar"])),
    "Concat": _concat,
    "_contrib_MultiBoxPrior": _anchors,
    "Flatten": _reshape,
    "Reshape": _reshape,
    "transpose": lambda t, inputs, output, attrs: t.emit("transpose", inputs, output, axes=tuple(attrs["axes"])),
    "_linalg_gemm2": lambda t, i, output, attrs: t.emit("matmul", i, output, transpose=attrs["transpose_b"]),
    "LayerNorm": lambda t, inputs, output, attrs: t.emit("layer_norm", inputs, output, eps=attrs["eps"]),
    "Dropout": _same,
    "_rnn_param_concat": _join_weights,
    "_zeros": lambda t, inputs, output, attrs: None,  # an LSTM's first state
    "RNN": _rnn,
}
