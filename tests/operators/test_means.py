"""The mean of n equal numbers is that number, in plain calls and compiled: layers divide what is left by sqrt(eps)."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd
from gluonjit.gluon import HybridBlock


class Means(HybridBlock):
    """Means of equal numbers along the last axis, others and all, and what is 0 for them."""

    def hybrid_forward(self, F, x, row, channel, statistics):
        means = [F.mean(x, axis=2), F.mean(x, axis=(0, 1)), F.mean(x), F.moments(x, axes=(0, 2))[0]]
        shift = F.zeros_like(channel)
        norm = F.BatchNorm(x, statistics, F.zeros_like(statistics), statistics, statistics, eps=1e-5)
        return means, [
            F.moments(x, axes=(1,))[1],
            F.InstanceNorm(x, channel, shift, eps=1e-5),
            F.GroupNorm(x, channel, shift, num_groups=3),
            F.LayerNorm(x, row, F.zeros_like(row)),
            norm,
        ]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_equal_numbers(dtype):
    net, statistics = Means(), "float32" if dtype == "float16" else dtype
    for hybrid in (False, True):
        net.hybridize(hybrid)
        for n, value in ((49, 0.7), (1000, 1234.567)):
            x = mx.nd.full((2, 3, n), value, dtype=dtype)
            ones = [mx.nd.ones(n, dtype=dtype), mx.nd.ones(3, dtype=dtype), mx.nd.ones(3, dtype=statistics)]
            with autograd.train_mode():
                means, nothing = net(x, *ones)
            for y in means:
                assert (y.asnumpy() == x.asnumpy().flat[0]).all(), (hybrid, n, value)
            for k, y in enumerate(nothing):
                assert not y.asnumpy().any(), (hybrid, n, value, k)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_numbers_of_mx_np(dtype):
    a = mx.np.full((3, 49), 0.7, dtype=dtype)
    for y in (a.mean(), mx.np.mean(a, axis=0), mx.np.average(a, axis=1)):
        assert (y.asnumpy() == a.asnumpy()[0, 0]).all()
    for y in (mx.np.var(a), mx.np.std(a, axis=1)):
        assert not y.asnumpy().any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_mean_beyond_what_is_finite(dtype):
    top = np.finfo(dtype).max
    for values, mean in (([np.inf, 1], np.inf), ([-np.inf, np.inf], np.nan), ([1, np.nan], np.nan), ([-top, top], 0)):
        y = mx.nd.array(values, dtype=dtype).mean().asnumpy()
        np.testing.assert_array_equal(y, [mean])


def test_sync_batch_norm_gives_the_variance():
    """MXNet's results for these numbers; `BatchNorm` gives 1 / sqrt(var + eps) instead."""
    x = mx.nd.array([[1, 2], [3, 8]])
    x.attach_grad()
    ones, zeros, mean, var = mx.nd.ones(2), mx.nd.zeros(2), mx.nd.array([0.5, 1]), mx.nd.array([4, 9])

    class Net(HybridBlock):
        def hybrid_forward(self, F, x, *more):
            return F.contrib.SyncBatchNorm(x, *more, key="bn", output_mean_var=True, fix_gamma=False)

    net = Net()
    for hybrid in (False, True):
        net.hybridize(hybrid)
        mean[:], var[:] = mx.nd.array([0.5, 1]), mx.nd.array([4, 9])
        with autograd.record():
            y, batch_mean, batch_var = net(x, ones, zeros, mean, var)
        y.backward()
        assert batch_mean.asnumpy().tolist() == [2, 5] and batch_var.asnumpy().tolist() == [1, 9]
        np.testing.assert_allclose(y.asnumpy()[1], [0.9995003938674927, 0.9999444484710693], rtol=1e-6)
        np.testing.assert_allclose(mean.asnumpy(), [0.65, 1.4], rtol=1e-6)
        np.testing.assert_allclose(var.asnumpy(), [3.7, 9], rtol=1e-6)
