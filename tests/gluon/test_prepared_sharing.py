"""Packed weights are kept once for all the signatures of a block whose code packs them in the same way."""

from __future__ import annotations

import itertools

import numpy as np

import gluonjit as mx
from gluonjit.gluon import nn


def _prepared(net):
    """For each code, the prepared values by what prepares them, which may depend on the batch size."""
    codes = [c.session.callee for c in net._jit_cached.store.entries]
    return [{p.same: p.content for p in code.prepared} for code in codes]


def _are_shared(codes):
    shared = [a[key] is b[key] for a, b in itertools.combinations(codes, 2) for key in a.keys() & b.keys()]
    return bool(shared) and all(shared)


def test_two_batch_sizes_share_what_they_pack_alike():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(32, 3, padding=1, in_channels=16), nn.Conv2D(32, 3, padding=1, in_channels=32))
    net.initialize()
    x = mx.nd.random.uniform(shape=(7, 16, 8, 8))
    wanted = net(x).asnumpy()
    net.hybridize(dynamic=False)
    for n in (4, 5, 6, 7):
        np.testing.assert_allclose(net(x[:n]).asnumpy(), wanted[:n], rtol=1e-4, atol=1e-5)
    assert _are_shared(_prepared(net))

    # A write to a weight is seen by all of them, and packed once.
    net[0].weight.set_data(net[0].weight.data() * 2)
    wanted = net[1](net[0](x)).asnumpy()
    for n in (5, 4, 7, 6):
        np.testing.assert_allclose(net(x[:n]).asnumpy(), wanted[:n], rtol=1e-4, atol=1e-5)
    assert _are_shared(_prepared(net))


class _Products(mx.gluon.HybridBlock):
    def __init__(self, *weights):
        super().__init__()
        self.weights = weights

    def hybrid_forward(self, F, x):
        for w in self.weights:
            x = F.relu(F.dot(x, w, transpose_b=True))
        return x


def test_blocks_that_read_the_same_arrays():
    whole = mx.nd.random.uniform(shape=(128, 64))
    low, high = whole[:64], whole[64:]  # of one storage
    x = mx.nd.random.uniform(shape=(5, 64))
    nets = [_Products(low, high), _Products(high, low, high), _Products(low.copy(), high)]
    for _ in range(2):
        for net in nets:
            net.hybridize(False)
            wanted = net(x).asnumpy()
            net.hybridize()
            np.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-4)
        packed = [{id(r) for code in _prepared(net) for c in code.values() for r in c.results} for net in nets]
        assert packed[0] == packed[1] and len(packed[0]) == 2 and len(packed[2] & packed[0]) == 1
        low[:] = low * 0.5
        nets[2].weights[0][:] = low
