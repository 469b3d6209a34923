"""JAX: the whole net as one jitted function of weights and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.graph import Net, Node
from benchmarks.model import Model
from benchmarks.peers import Loaded


def load(model: Model, threads: int) -> Loaded:
    # XLA takes as many threads as the process may use cores, which the worker has seen to.
    import jax

    jax.config.update("jax_platforms", "cpu")
    net = model.net()
    run = jax.jit(lambda params, *inputs: _run(net, params, inputs))
    params = {name: jax.device_put(x) for name, x in net.params.items()}
    args = [params, *map(jax.device_put, model.inputs().values())]
    return Loaded(lambda *a: jax.block_until_ready(run(*a)), args, lambda y: [*map(np.asarray, y)], jax.__version__)


def _run(net: Net, params: dict[str, Any], inputs: tuple[Any, ...]) -> Any:
    values = {**params, **dict(zip(net.inputs, inputs))}
    for node in net.nodes:
        values[node.output] = _apply(node, [values[name] for name in node.inputs])
    return tuple(values[name] for name in net.outputs)


def _apply(node: Node, x: list[Any]) -> Any:
    import jax
    import jax.numpy as jnp

    a = node.attrs
    if node.op == "conv":
        y = jax.lax.conv_general_dilated(
            x[0],
            x[1],
            a["stride"],
            [(p, p) for p in a["pad"]],
            rhs_dilation=a["dilate"],
            feature_group_count=a["groups"],
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )
        return y + x[2][:, None, None] if len(x) > 2 else y
    if node.op == "dense":
        y = x[0] @ x[1].T
        return y + x[2] if len(x) > 2 else y
    if node.op == "batch_norm":
        data, gamma, beta, mean, variance = x
        scale = gamma / jnp.sqrt(variance + a["eps"])
        return data * scale[:, None, None] + (beta - mean * scale)[:, None, None]
    if node.op == "max_pool":
        return _windows(x[0], a, -jnp.inf, jax.lax.max)
    if node.op == "avg_pool":
        count = np.prod(a["kernel"]) if a["count_padding"] else _windows(jnp.ones_like(x[0]), a, 0.0, jax.lax.add)
        return _windows(x[0], a, 0.0, jax.lax.add) / count
    if node.op == "layer_norm":
        mean = x[0].mean(-1, keepdims=True)
        variance = ((x[0] - mean) ** 2).mean(-1, keepdims=True)
        return (x[0] - mean) * jax.lax.rsqrt(variance + a["eps"]) * x[1] + x[2]
    if node.op == "lstm":
        return _lstm(*x)
    simple = {
        "global_avg_pool": lambda t: t.mean((2, 3), keepdims=True),
        "relu": jax.nn.relu,
        "tanh": jnp.tanh,
        "sigmoid": jax.nn.sigmoid,
        "gelu": lambda t: jax.nn.gelu(t, approximate=False),
        "clip": lambda t: jnp.clip(t, a["low"], a["high"]),
        "softmax": jax.nn.softmax,
        "add": jnp.add,
        "mul": jnp.multiply,
        "scale": lambda t: t * a["factor"],
        "concat": lambda *ts: jnp.concatenate(ts, a["axis"]),
        "reshape": lambda t: t.reshape(a["shape"]),
        "transpose": lambda t: t.transpose(a["axes"]),
        "matmul": lambda t, u: t @ (jnp.swapaxes(u, -1, -2) if a["transpose"] else u),
    }
    return simple[node.op](*x)


def _windows(x: Any, a: Any, start: float, combine: Any) -> Any:
    import jax

    pads = ((0, 0), (0, 0), *zip(a["low"], a["high"]))
    return jax.lax.reduce_window(x, start, combine, (1, 1, *a["kernel"]), (1, 1, *a["stride"]), pads)


def _lstm(x: Any, wx: Any, wh: Any, bx: Any, bh: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(state, projected):
        h, c = state
        i, f, g, o = jnp.split(projected + h @ wh.T, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], wh.shape[1]), x.dtype)
    return jax.lax.scan(step, (zeros, zeros), x @ wx.T + bx + bh)[1]
