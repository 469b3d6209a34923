"""Packed weights are kept once for all the signatures of a block whose code packs them in the same way."""

from __future__ import annotations

import numpy as np

import gluonjit as mx
from gluonjit.gluon import nn


def _prepared(net):
    codes = [c.session.callee for c in net._cached._compiled.values()]
    return [[p.results for p in code.prepared] for code in codes]


def test_two_batch_sizes_share_what_they_pack_alike():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(32, 3, padding=1, in_channels=16), nn.Conv2D(32, 3, padding=1, in_channels=32))
    net.initialize()
    x = mx.nd.random.uniform(shape=(6, 16, 8, 8))
    wanted = net(x).asnumpy()
    net.hybridize(dynamic=False)
    for n in (4, 5, 6):
        np.testing.assert_allclose(net(x[:n]).asnumpy(), wanted[:n], rtol=1e-4, atol=1e-5)
    first, *others = _prepared(net)
    assert first and all(a is b for other in others for a, b in zip(first, other, strict=True))

    # A write to a weight is seen by all of them, and packed once.
    net[0].weight.set_data(net[0].weight.data() * 2)
    wanted = net[1](net[0](x)).asnumpy()
    for n in (5, 4, 6):
        np.testing.assert_allclose(net(x[:n]).asnumpy(), wanted[:n], rtol=1e-4, atol=1e-5)
    first, *others = _prepared(net)
    assert all(a is b for other in others for a, b in zip(first, other, strict=True))
