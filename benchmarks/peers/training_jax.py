"""Training steps in JAX: loss, gradient and update as one jitted function (T1, T2 and T7)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.model import Model
from benchmarks.peers import LOSSES, Loaded, losses_array
from benchmarks.steps import STEPS, Step, batches
from benchmarks.weights import values

Params = dict[str, Any]


def load(model: Model, threads: int) -> Loaded:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_platforms", "cpu")
    facts = model.facts
    step, updates = STEPS[facts["step"]], facts["updates"]
    if step.key not in _SCORES:
        raise NotImplementedError(f"{step.key} is not written for JAX")
    shapes, scores = _SCORES[step.key]
    params = {name: jnp.asarray(values(name, shape, step.gain)) for name, shape in shapes.items()}
    state = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)]

    def loss(params: Params, x: Any, y: Any) -> Any:
        logs = jax.nn.log_softmax(scores(params, x))
        return -jnp.take_along_axis(logs, y[:, None], 1).mean()

    def run(params: Params, state: Any, t: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        # Without an update, the gradients stand in for the parameters: they must be computed in full.
        return value, *(_update(step, params, gradients, state, t) if updates else (gradients, state))

    jitted = jax.jit(run, donate_argnums=(0, 1) if updates else ())
    data = [(jnp.asarray(x), jnp.asarray(y.astype(np.int32))) for x, y in batches(step, facts["batch"])]
    turns, losses, now = itertools.cycle(data), [], [params, state, 0.0]

    def call() -> None:
        now[2] += 1
        value, *new = jitted(now[0], now[1], now[2], *next(turns))
        jax.block_until_ready(new)
        if updates:
            now[:2] = new
        if len(losses) < LOSSES:
            losses.append(float(value))

    return Loaded(call, [], lambda _: losses_array(losses), jax.__version__)


def _update(step: Step, params: Params, gradients: Params, state: Any, t: Any) -> Any:
    import jax
    import jax.numpy as jnp

    rate, first, second = step.settings["learning_rate"], *state
    if step.optimizer == "adam":
        rate = rate * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        params = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), params, first, second)
    else:
        momentum = step.settings.get("momentum", 0.0)
        first = jax.tree.map(lambda m, g: momentum * m + g, first, gradients)
        params = jax.tree.map(lambda w, m: w - rate * m, params, first)
    return params, (first, second)


def _dense(p: Params, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _mlp(p: Params, x: Any) -> Any:
    import jax

    return _dense(p, "2", jax.nn.relu(_dense(p, "1", jax.nn.relu(_dense(p, "0", x)))))


def _lenet(p: Params, x: Any) -> Any:
    import jax

    for name in ("0", "2"):
        x = jax.lax.conv_general_dilated(x, p[f"{name}.weight"], (1, 1), "VALID")
        x = jax.nn.relu(x + p[f"{name}.bias"][:, None, None])
        x = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return _dense(p, "5", jax.nn.relu(_dense(p, "4", x.reshape(len(x), -1))))


def _encoder(p: Params, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def norm(name: str, x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x * p[f"{name}.gamma"] + p[f"{name}.beta"]

    count, length, units = x.shape
    for k in range(4):
        parts = _dense(p, f"{k}.qkv", x).reshape(count, length, 3, 4, units // 4)
        query, key, value = jnp.moveaxis(parts, 2, 0)
        weights = jax.nn.softmax(jnp.einsum("nqhd,nkhd->nhqk", query, key) * (units // 4) ** -0.5)
        mixed = jnp.einsum("nhqk,nkhd->nqhd", weights, value).reshape(x.shape)
        x = norm(f"{k}.norm1", x + _dense(p, f"{k}.proj", mixed))
        inner = jax.nn.gelu(_dense(p, f"{k}.ffn1", x), approximate=False)
        x = norm(f"{k}.norm2", x + _dense(p, f"{k}.ffn2", inner))
    return _dense(p, "5", x.mean(1))


def _layers(weights: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of weights and biases, given those of the weights."""
    biases = {f"{name}.bias": shape[:1] for name, shape in weights.items()}
    return {**{f"{name}.weight": shape for name, shape in weights.items()}, **biases}


def _encoder_shapes() -> dict[str, tuple[int, ...]]:
    dense = {"qkv": (768, 256), "proj": (256, 256), "ffn1": (1024, 256), "ffn2": (256, 1024)}
    shapes = _layers({"5": (10, 256), **{f"{k}.{name}": s for k in range(4) for name, s in dense.items()}})
    norms = [f"{k}.norm{n}.{kind}" for k in range(4) for n in (1, 2) for kind in ("gamma", "beta")]
    return {**shapes, **dict.fromkeys(norms, (256,))}


_SCORES = {
    "T1": (_layers({"0": (128, 784), "1": (64, 128), "2": (10, 64)}), _mlp),
    "T2": (_layers({"0": (20, 1, 5, 5), "2": (50, 20, 5, 5), "4": (500, 800), "5": (10, 500)}), _lenet),
    "T7": (_encoder_shapes(), _encoder),
}
"""The parameters' shapes by their names in Gluon, and the net."""
