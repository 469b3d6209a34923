"""Compiled code holds weights with scales folded in; changes of parameters and modes must still take effect."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from support.compare import assert_close


class Pair:
    """The same network twice: imperative and hybridized, with the same parameters."""

    def __init__(self):
        self.nets = [self.make(), self.make()]
        self.x = mx.nd.array(np.random.RandomState(1).uniform(-1, 1, (2, 3, 8, 8)))
        for net in self.nets:
            net(self.x)
            for k, p in enumerate(net.collect_params().values()):
                p.set_data(mx.nd.array(np.random.RandomState(k).uniform(0.5, 1.5, p.shape)))
        self.nets[1].hybridize()

    @staticmethod
    def make():
        net = nn.HybridSequential()
        net.add(nn.Conv2D(6, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(4, 1, use_bias=False))
        net.add(nn.BatchNorm(scale=False), nn.Flatten(), nn.Dense(5), nn.BatchNorm())
        net.initialize()
        return net

    def check(self, message=""):
        plain, compiled = (net(self.x).asnumpy() for net in self.nets)
        assert_close(compiled, plain, message, 1e-5)

    def write(self, key, make):
        for net in self.nets:
            for name, p in net.collect_params().items():
                if name.endswith(key):
                    p.set_data(mx.nd.array(make(p.shape)))


@pytest.mark.parametrize("key", ["gamma", "beta", "running_mean", "running_var", "weight", "bias"])
def test_parameters_written_after_compilation(key):
    pair = Pair()
    pair.check()
    pair.write(key, lambda shape: np.random.RandomState(7).uniform(1, 3, shape))
    pair.check(f"{key} set")
    for net in pair.nets:  # in place, and through a view
        for name, p in net.collect_params().items():
            if name.endswith(key):
                p.data()[:] *= 2
                p.data()[0] += 1
    pair.check(f"{key} written in place")


@pytest.mark.parametrize("batch", [4, 3])
@pytest.mark.parametrize("operator", ["Convolution", "Deconvolution"])
def test_the_kernel_is_an_argument_and_the_image_fixed(operator, batch):
    """What scales the channels belongs to the kernel, though the image is what does not change."""
    image, scale = mx.nd.random.normal(shape=(batch, 4, 6, 6)), mx.nd.arange(1, 5).reshape((1, 4, 1, 1))

    def program(F, kernel):
        y = getattr(F, operator)(image, kernel, kernel=(3, 3), num_filter=4, no_bias=True)
        return F.broadcast_add(F.broadcast_mul(y, scale), scale)

    nets = [nn.HybridLambda(program) for _ in range(2)]
    nets[1].hybridize()
    kernel = mx.nd.random.normal(shape=(4, 4, 3, 3))
    assert_close(nets[1](kernel).asnumpy(), nets[0](kernel).asnumpy(), "", 1e-5)


def test_training_takes_the_batchs_statistics_and_evaluation_the_new_ones():
    pair = Pair()
    pair.check("before")
    with mx.autograd.record(train_mode=True):
        pair.check("training")
    pair.check("after one step")
    for (name, a), b in zip(pair.nets[0].collect_params().items(), pair.nets[1].collect_params().values()):
        assert_close(b.data().asnumpy(), a.data().asnumpy(), name, 1e-5)
    with mx.autograd.train_mode():
        pair.check("training again")
    pair.check("after two")
