"""`hybridize(remat=…)` and MXNET_BACKWARD_DO_MIRROR: less is kept for the gradient, and the gradient is the same."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd
from gluonjit.gluon import nn
from support.compare import assert_close


def net():
    out = nn.HybridSequential()
    out.add(
        nn.Conv2D(4, 3, in_channels=2, use_bias=False),
        nn.BatchNorm(in_channels=4),
        nn.Activation("relu"),
        nn.MaxPool2D(),
    )
    out.add(nn.Dropout(0.5), nn.Dense(5, in_units=36, activation="tanh"))
    out.initialize()
    for k, p in enumerate(out.collect_params().values()):
        p.set_data(mx.nd.array(np.random.RandomState(k).random_sample(p.shape) - 0.3))
    return out


def trained(block, **options):
    """The gradients of a step, the moving mean after it, and how many bytes were kept for it."""
    block.hybridize(**options)
    x = mx.nd.array(np.random.RandomState(9).random_sample((3, 2, 8, 8)))
    mx.random.seed(1)
    with autograd.record():
        y = block(x)
    forwards = block._jit_cached.store.entries
    (kept,) = [f.saved_bytes for c in forwards for f in c.computation()._forwards.values()]
    y.backward()
    params = block.collect_params().values()
    return [p.grad() if p.grad_req != "null" else p.data() for p in params], kept


def test_all_keeps_nothing_but_arguments_and_results():
    wanted, some = trained(net())
    found, none = trained(net(), remat="all")
    assert none == 0 < some
    for a, b in zip(found, wanted):
        assert_close(a.asnumpy(), b.asnumpy(), tol=1e-6)


def test_mxnet_s_variable_asks_for_it(monkeypatch):
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    assert trained(net())[1] == 0
    assert trained(net(), remat="elementwise")[1] > 0
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "0")
    assert trained(net())[1] > 0


def test_another_choice_compiles_again():
    block = net()
    assert trained(block)[1] > 0
    block.hybridize(clear=False, remat="all")
    assert block._jit_cached is None
    with pytest.raises(ValueError, match="remat must be None or one of elementwise, all, got 'everything'"):
        block.hybridize(remat="everything")
    with pytest.raises(mx.MXNetError, match="did you mean 'remat'"):
        block.hybridize(remt="all")
