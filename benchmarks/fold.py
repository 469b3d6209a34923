"""The transformations that some engines' own converters apply: folded batch normalizations, fused activations.

`folded` returns a net with these differences: a `batch_norm` that is the only reader of a convolution is folded into
its weights; any other one becomes `affine(x, scale, shift)` over axis 1; `conv`, `dense`, `add` and `affine` have an
attribute `activation` (None, 'relu' or 'relu6') instead of a separate node.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.graph import Net, Node

_TAKE_ACTIVATION = ("conv", "dense", "add", "affine")


def folded(net: Net) -> Net:
    params, shapes, users = dict(net.params), dict(net.shapes), net.users()
    nodes: dict[str, Node] = {}
    """By output, in order."""

    def constant(name: str, value: np.ndarray) -> str:
        params[name] = value.astype(np.float32)
        shapes[name] = value.shape
        return name

    for node in net.nodes:
        x = node.inputs[0]
        producer = nodes.get(x) if len(users[x]) == 1 and x not in net.outputs else None
        activation = _activation(node)
        if node.op == "batch_norm":
            scale, shift = _scale_and_shift([params[name].astype(np.float64) for name in node.inputs[1:]], node)
            if producer is not None and producer.op == "conv" and producer.attrs["activation"] is None:
                del nodes[x]
                weight = params[producer.inputs[1]]
                bias = params[producer.inputs[2]] if len(producer.inputs) > 2 else 0
                names = (
                    constant(f"{node.output}_weight", weight * scale[:, None, None, None]),
                    constant(f"{node.output}_bias", bias * scale + shift),
                )
                node = replace(producer, inputs=(producer.inputs[0], *names), output=node.output)
            else:
                names = constant(f"{node.output}_scale", scale), constant(f"{node.output}_shift", shift)
                node = Node("affine", (x, *names), node.output, {"activation": None})
        elif activation and producer is not None and producer.attrs.get("activation", activation) is None:
            del nodes[x]
            node = replace(producer, output=node.output, attrs={**producer.attrs, "activation": activation})
        elif node.op in _TAKE_ACTIVATION:
            node = replace(node, attrs={**node.attrs, "activation": None})
        nodes[node.output] = node
    values = {*net.inputs, *nodes, *(name for node in nodes.values() for name in node.inputs)}
    params = {name: x for name, x in params.items() if name in values}
    return Net(net.inputs, list(nodes.values()), net.outputs, params, {name: shapes[name] for name in values})


def _activation(node: Node) -> str | None:
    if node.op == "clip" and (node.attrs["low"], node.attrs["high"]) == (0, 6):
        return "relu6"
    return "relu" if node.op == "relu" else None


def _scale_and_shift(statistics: list[np.ndarray], node: Node) -> tuple[np.ndarray, np.ndarray]:
    gamma, beta, mean, variance = statistics
    scale = gamma / np.sqrt(variance + node.attrs["eps"])
    return scale, beta - mean * scale
