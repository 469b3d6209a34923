"""How much the gradients of normalizations read."""

import numpy as np
import pytest

from gluonjit import autograd, nd
from gluonjit.gluon import nn
from gluonjit.ir.text import parse_graph
from gluonjit.passes import run_passes
from gluonjit.passes.partition import divide
from gluonjit.passes.pipelines import GRADIENT_PIPELINE, JOINT_PIPELINE


@pytest.mark.parametrize("name", ["BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU"])
def test_the_gradient_of_batch_norm_has_two_sums(name):
    key = ', key = "k"' if name == "_contrib_SyncBatchNorm" else ""
    graph = parse_graph(f"""
    graph @g(%x: f32[4, 3, 2, 2], %gamma: f32[3], %beta: f32[3], %mean: f32[3], %var: f32[3]) level traced {{
      %y, %m, %v = mx.{name}(%x, %gamma, %beta, %mean, %var) {{fix_gamma = False{key}}}
      return %y
    }}""").with_attrs(training=True)
    pipeline = f"{GRADIENT_PIPELINE}, differentiate {{wrt = (0, 1, 2)}}, {JOINT_PIPELINE}"
    halves = divide(run_passes(graph, pipeline))
    sums = [op for op in halves.backward.ops if op.name == "reduce"]
    assert len(sums) == 2, halves.backward
    # The data, or the data less their mean, and the statistics.
    assert sum(v.shape == (4, 3, 2, 2) for v in halves.saved) == 1


SOFTMAX = ["softmax", "log_softmax", "softmin", "SoftmaxActivation"]


@pytest.mark.parametrize("name", SOFTMAX)
def test_the_gradient_of_softmax_does_not_ask_where_the_maximum_was(name):
    attrs = "" if name == "SoftmaxActivation" else " {temperature = 2.0}"
    graph = parse_graph(f"""
    graph @g(%x: f32[4, 3]) level traced {{
      %y = mx.{name}(%x){attrs}
      return %y
    }}""")
    halves = divide(run_passes(graph, f"{GRADIENT_PIPELINE}, differentiate, {JOINT_PIPELINE}"))
    assert [op.name for op in halves.backward.ops if op.name in ("reduce", "eq")] == ["reduce"]


def _softmax(name, x, w):
    """The gradient by x of the sum of the result times w."""
    x = -x if name == "softmin" else x
    e = np.exp(x - x.max(1, keepdims=True))
    y = e / e.sum(1, keepdims=True)
    if name == "log_softmax":
        return w - w.sum(1, keepdims=True) * y
    g = (w - (w * y).sum(1, keepdims=True)) * y
    return -g if name == "softmin" else g


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("name", SOFTMAX)
def test_gradients_of_softmax_in_numbers(name, hybrid):
    gen = np.random.RandomState(0)
    net = nn.HybridLambda(lambda F, x: getattr(F, name)(x))
    if hybrid:
        net.hybridize()

    def gradient(x, w):
        x = nd.array(x, dtype=x.dtype)
        x.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward(nd.array(w, dtype=x.dtype))
        return x.grad.asnumpy(), float((y.asnumpy() * w).sum())

    for scale in (0.1, 3, 40, 1e4):
        x, w = gen.uniform(-scale, scale, (5, 7)).astype("f4"), gen.uniform(-1, 1, (5, 7)).astype("f4")
        wanted = _softmax(name, x.astype("f8"), w.astype("f8"))
        assert np.abs(gradient(x, w)[0] - wanted).max() <= 1e-5 * np.abs(wanted).max() + 1e-30
    x, w, v = (gen.uniform(-2, 2, (5, 7)) for _ in range(3))
    ends = [gradient(x + step * v, w)[1] for step in (1e-5, -1e-5)]
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, (gradient(x, w)[0] * v).sum(), rtol=1e-7)
