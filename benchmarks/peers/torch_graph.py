"""A `benchmarks.graph.Net` as a `torch.fx.GraphModule`."""

from __future__ import annotations

from typing import Any

from benchmarks.graph import Net, Node


def torch_module(net: Net) -> Any:
    import torch

    root = torch.nn.Module()
    graph = torch.fx.Graph()
    values = {name: graph.placeholder(f"input{k}") for k, name in enumerate(net.inputs)}
    for k, array in enumerate(net.params.values()):
        root.register_buffer(f"param{k}", torch.from_numpy(array.copy()))
    names = {name: f"param{k}" for k, name in enumerate(net.params)}
    for k, node in enumerate(net.nodes):
        if node.op == "lstm":
            root.add_module(f"lstm{k}", _lstm(net, node))
            both = graph.call_module(f"lstm{k}", (values[node.inputs[0]],))
            values[node.output] = graph.call_function(_first, (both,))
            continue
        for name in node.inputs:
            if name not in values:
                values[name] = graph.get_attr(names[name])
        function, *rest = _call(node, [values[name] for name in node.inputs])
        values[node.output] = graph.call_function(function, *rest)
    for name in net.outputs:
        if name not in values:
            values[name] = graph.get_attr(names[name])
    graph.output(tuple(values[name] for name in net.outputs))
    return torch.fx.GraphModule(root, graph).eval()


def _first(pair: Any) -> Any:
    return pair[0]


def _call(node: Node, x: list[Any]) -> tuple[Any, ...]:
    """(function, arguments[, keyword arguments])"""
    import torch
    import torch.nn.functional as F

    a = node.attrs
    if node.op == "conv":
        bias = x[2] if len(x) > 2 else None
        return F.conv2d, (x[0], x[1], bias, a["stride"], a["pad"], a["dilate"], a["groups"])
    if node.op == "batch_norm":
        _, gamma, beta, mean, variance = x
        return F.batch_norm, (x[0], mean, variance, gamma, beta, False, 0.0, a["eps"])
    if node.op == "max_pool":
        # Windows that reach beyond the padding are what torch, too, calls the ceiling mode.
        return F.max_pool2d, (x[0], a["kernel"], a["stride"], a["low"], 1, a["high"] != a["low"])
    if node.op == "avg_pool":
        return F.avg_pool2d, (x[0], a["kernel"], a["stride"], a["low"], False, a["count_padding"])
    if node.op == "layer_norm":
        return _layer_norm, (*x, a["eps"])
    if node.op == "matmul":
        return _matmul, (*x, a["transpose"])
    simple = {
        "dense": (F.linear, tuple(x)),
        "global_avg_pool": (F.adaptive_avg_pool2d, (x[0], 1)),
        "relu": (torch.relu, tuple(x)),
        "tanh": (torch.tanh, tuple(x)),
        "sigmoid": (torch.sigmoid, tuple(x)),
        "gelu": (F.gelu, tuple(x)),
        "add": (torch.add, tuple(x)),
        "mul": (torch.mul, tuple(x)),
    }
    if node.op in simple:
        return simple[node.op]
    movement = {
        "clip": (torch.clamp, ("low", "high")),
        "softmax": (torch.softmax, ()),
        "scale": (torch.mul, ("factor",)),
        "concat": (torch.cat, ("axis",)),
        "reshape": (torch.reshape, ("shape",)),
        "transpose": (torch.permute, ("axes",)),
    }
    function, keys = movement[node.op]
    operands = (x,) if node.op == "concat" else (*x, -1) if node.op == "softmax" else tuple(x)
    return function, (*operands, *(a[key] for key in keys))


def _layer_norm(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    import torch.nn.functional as F

    return F.layer_norm(x, gamma.shape, gamma, beta, eps)


def _matmul(x: Any, y: Any, transpose: bool) -> Any:
    return x @ (y.transpose(-1, -2) if transpose else y)


def _lstm(net: Net, node: Node) -> Any:
    import torch

    wx, wh, bx, bh = (torch.from_numpy(net.params[name].copy()) for name in node.inputs[1:])
    layer = torch.nn.LSTM(wx.shape[1], wh.shape[1])
    with torch.no_grad():
        for name, value in (("weight_ih", wx), ("weight_hh", wh), ("bias_ih", bx), ("bias_hh", bh)):
            getattr(layer, f"{name}_l0").copy_(value)
    return layer
