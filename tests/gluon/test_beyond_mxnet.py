"""Code in public models that MXNet can run imperatively but not hybridized: here both give the same results.

Each block does what models of gluoncv2 do: `bisenet_*`, `wrn20_10_1bit_*`. For `simplepose_*_coco`, see
`test_interpreted`.
"""

import math

import numpy as np
import pytest

from gluonjit import autograd, gluon, nd
from gluonjit.gluon import nn


class Pyramid(gluon.HybridBlock):
    """Pools to one pixel and scales that up to the size of its input, which it asks for."""

    def __init__(self, in_size=None):
        super().__init__()
        self.in_size = in_size
        self.pool = nn.GlobalAvgPool2D()
        self.conv = nn.Conv2D(4, 1)

    def hybrid_forward(self, F, x):
        assert x.shape[2] % 4 == 0 and x.shape[3] % 4 == 0
        in_size = self.in_size if self.in_size is not None else x.shape[2:]
        pooled = self.conv(self.pool(x))
        return F.concat(F.contrib.BilinearResize2D(pooled, height=in_size[0], width=in_size[1]), x, dim=1)


class Binarize(autograd.Function):
    """Signs, scaled by the number of weights of a filter."""

    def forward(self, x):
        return math.sqrt(2.0 / (x.shape[1] * x.shape[2] * x.shape[3])) * x.sign()

    def backward(self, dy):
        return dy


class OneBit(nn.Conv2D):
    """A convolution with weights of one bit: a layer's program that goes on with a changed parameter."""

    def hybrid_forward(self, F, x, weight, bias=None):
        return super().hybrid_forward(F, x, weight=Binarize()(weight), bias=bias)


def one_bit():
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(in_channels=3), nn.Activation("relu"), OneBit(6, 3, in_channels=3, use_bias=False))
    net.add(OneBit(4, 1, in_channels=6))
    return net


@pytest.mark.parametrize("make", [Pyramid, lambda: Pyramid((8, 12)), one_bit], ids=["pyramid", "fixed size", "one bit"])
def test_hybridized_equals_imperative(make):
    net = make()
    net.initialize()
    rng = np.random.default_rng(0)
    images = [nd.array(rng.standard_normal((n, 3, 8, 12)), dtype="float32") for n in (1, 2)]
    if not isinstance(net, Pyramid) or net.in_size is None:
        images.append(nd.array(rng.standard_normal((1, 3, 16, 4)), dtype="float32"))
    expected = [net(x).asnumpy() for x in images]
    net.hybridize()
    for x, want in zip(images, expected):
        np.testing.assert_allclose(net(x).asnumpy(), want, rtol=1e-5, atol=1e-6)


def test_what_such_a_block_asserts_of_shapes_holds_for_new_ones():
    net = Pyramid()
    net.initialize()
    net.hybridize()
    net(nd.ones((1, 3, 8, 8)))
    with pytest.raises(AssertionError):
        net(nd.ones((1, 3, 9, 8)))


def test_weights_that_change_are_binarized_anew():
    layer = OneBit(1, 1, in_channels=2, use_bias=False)
    layer.initialize()
    layer.hybridize()
    x = nd.ones((1, 2, 1, 1))
    for weight in ([1.0, 3.0], [-1.0, 2.0], [-5.0, -1.0]):
        layer.weight.set_data(nd.array(weight).reshape((1, 2, 1, 1)))
        np.testing.assert_allclose(layer(x).asnumpy().item(), np.sign(weight).sum(), rtol=1e-6)
