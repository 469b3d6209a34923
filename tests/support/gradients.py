"""Gradients of graphs against differences of their outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gluonjit.ir.graph import Graph
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import BOOL, F64
from gluonjit.passes import run_passes
from gluonjit.passes.partition import divide, sources

STEP = 2e-4
"""The fourth-order difference below has an error of about STEP**4, and rounding adds about 1e-15 / STEP."""
_STENCIL = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))


def legal(graph: Graph) -> Graph:
    return run_passes(graph, "expand {gradients = True}, legalize-broadcast")


def joint(graph: Graph, wrt: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> Graph:
    """The joint graph, of level `legal`, so that it can be differentiated again."""
    given = {k: tuple(v) for k, v in (("wrt", wrt), ("heads", heads)) if v is not None}
    return run_passes(legal(graph), [("differentiate", given), "legalize-broadcast", "dce"])


def differentiable(graph: Graph) -> tuple[list[int], list[int]]:
    """The numbers of the inputs and outputs whose derivatives differences can find: those of float64."""
    return (
        [k for k, v in enumerate(graph.inputs) if v.dtype is F64],
        [k for k, v in enumerate(graph.outputs) if v.dtype is F64],
    )


def gradients(both: Graph, inputs: Sequence[np.ndarray], cotangents: Sequence[np.ndarray]) -> list[np.ndarray]:
    return evaluate(both, [*inputs, *cotangents])[0][both.attrs["primals"] :]


def random_like(rng: np.random.Generator, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(rng.uniform(0.3, 1, x.shape) * rng.choice((-1, 1), x.shape)) for x in arrays]


def assert_is_gradient(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    what: str = "",
    order: int = 1,
    seed: int = 0,
    tolerance: float = 1e-7,
    smooth: bool = True,
) -> bool:
    """The gradients of a graph of float64 equal differences in a random direction; so do those of its gradients up to
    `order`. Outputs that are infinite or NaN, as maxima and means of nothing are, are left out.

    False if there is no gradient to compare, for want of floats, or, unless the graph is said to be `smooth`, of
    a derivative.
    """
    wrt, heads = differentiable(graph)
    if not wrt or not heads:
        return False
    rng = np.random.default_rng(seed)
    graph = legal(graph)
    outputs, _ = evaluate(graph, inputs)
    weights = [
        np.where(np.isfinite(outputs[k]), w, 0) for k, w in zip(heads, random_like(rng, [outputs[k] for k in heads]))
    ]
    both = joint(graph, wrt, heads)
    found = gradients(both, inputs, weights)
    directions = random_like(rng, [inputs[k] for k in wrt])
    assert [x.shape for x in found] == [x.shape for x in directions], what

    def weighted(t: float) -> float:
        moved = list(inputs)
        for k, v in zip(wrt, directions, strict=True):
            moved[k] = np.asarray(inputs[k] + t * v)
        outputs, _ = evaluate(graph, moved)
        return sum(float(np.vdot(w, np.where(w == 0, 0, outputs[k]))) for w, k in zip(weights, heads, strict=True))

    got = sum(float(np.vdot(g, v)) for g, v in zip(found, directions, strict=True))
    scale = 1 + sum(float(np.abs(g * v).sum()) for g, v in zip(found, directions, strict=True))
    for step in (STEP,) if smooth else (STEP, STEP / 30):  # a jump may lie within the longer one
        wanted = sum(c * weighted(k * step) for k, c in _STENCIL) / step
        assert np.isfinite(wanted), f"{what}: the difference is {wanted}"
        if abs(got - wanted) <= tolerance * scale * STEP / step:
            break
    else:
        assert not smooth, f"{what}: the gradient gives {got}, differences {wanted}"
        # At a kink, slopes from the left and from the right do not approach each other.
        here = weighted(0.0)
        far, near = (abs(weighted(t) - 2 * here + weighted(-t)) / t for t in (STEP / 30, STEP / 300))
        assert near > far / 4, f"{what}: the gradient gives {got}, differences {wanted}"
        return False
    if order > 1:
        primals = both.attrs["primals"]
        only = run_passes(
            Graph(both.name, both.inputs, both.ops, both.outputs[primals:], (), both.level, both.attrs), "dce"
        )
        what = f"{what}, order {order}"
        return assert_is_gradient(only, [*inputs, *weights], what, order - 1, seed + 1, tolerance, smooth)
    return True


def assert_halves_agree(graph: Graph, inputs: Sequence[np.ndarray], what: str = "", seed: int = 0) -> None:
    """Forward and backward graph, however divided, give what the joint graph gives, bit for bit."""
    wrt = [k for k, v in enumerate(graph.inputs) if v.dtype.is_float]
    heads = [k for k, v in enumerate(graph.outputs) if v.dtype is not BOOL and v.dtype.is_float]
    both = joint(graph, wrt, heads)
    rng = np.random.default_rng(seed)
    given = [
        np.asarray(rng.uniform(-1, 1, both.inputs[len(inputs) + k].shape)).astype(
            both.inputs[len(inputs) + k].dtype.numpy
        )
        for k in range(len(heads))
    ]
    outputs, updates = evaluate(both, [*inputs, *given])
    for recompute in (False, True):
        halves = divide(both, recompute)
        first, first_updates = evaluate(halves.forward, inputs)
        saved = [inputs[k] if k >= 0 else first[-1 - k] for k in sources(halves)]
        second, late = evaluate(halves.backward, [*saved, *given])
        got = [*first[: both.attrs["primals"]], *second, *first_updates, *late]
        for a, b in zip(got, [*outputs, *updates], strict=True):
            np.testing.assert_array_equal(a, b, f"{what}, recompute={recompute}")
