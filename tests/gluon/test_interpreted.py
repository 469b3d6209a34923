"""A block that cannot be compiled inside a hybridized one: it runs as Python, what is beside it is compiled."""

import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.base import TraceError
from gluonjit.gluon import nn


class Peaks(gluon.HybridBlock):
    """Where each channel of a heat map is highest, moved a quarter towards its higher neighbour."""

    def hybrid_forward(self, F, x):
        batch, channels, height, width = x.shape
        flat = x.reshape((0, 0, -3))
        index = flat.argmax(axis=2, keepdims=True)
        points = F.concat(index % width, (index / width).floor(), flat.max(axis=2, keepdims=True), dim=2)
        for b in range(batch):
            for k in range(channels):
                column, row = int(points[b, k, 0].asscalar()), int(points[b, k, 1].asscalar())
                if 0 < column < width - 1 and 0 < row < height - 1:
                    points[b, k, 0] += (x[b, k, row, column + 1] - x[b, k, row, column - 1]).sign() * 0.25
                    points[b, k, 1] += (x[b, k, row + 1, column] - x[b, k, row - 1, column]).sign() * 0.25
        return points


class Pose(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(nn.Conv2D(4, 3, padding=1, activation="relu"), nn.Conv2D(3, 3, padding=1))
        self.tail = nn.HybridSequential()
        self.tail.add(nn.HybridLambda(lambda F, x: x * 2), Peaks())

    def hybrid_forward(self, F, x):
        return self.tail(self.body(x))


def pose():
    net = Pose()
    net.initialize(mx.init.Xavier(rnd_type="gaussian", magnitude=3))
    x = nd.array(np.random.default_rng(0).standard_normal((2, 3, 9, 7)), dtype="float32")
    return net, x, net(x).asnumpy()


def test_the_answer_is_the_imperative_one_and_the_rest_is_compiled():
    net, x, expected = pose()
    net.hybridize()
    said = r"(?s)peaks\d+ cannot be compiled: .*pose\d+, hybridsequential\d+.*asscalar\(\).*points\[b, k, 0\]"
    with pytest.warns(UserWarning, match=said):
        first = net(x).asnumpy()
    np.testing.assert_allclose(first, expected, rtol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it says so once
        np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
    assert net.body._jit_cached.traces and net.tail[0]._jit_cached.traces
    assert all(b._jit_cached is None for b in (net, net.tail, net.tail[1]))


def test_other_values_take_other_branches():
    net, x, _ = pose()
    other = nd.array(np.random.default_rng(1).standard_normal((1, 3, 9, 7)), dtype="float32")
    expected = net(other).asnumpy()
    net.hybridize()
    with pytest.warns(UserWarning, match="cannot be compiled"):
        net(x)
    np.testing.assert_allclose(net(other).asnumpy(), expected, rtol=1e-5)


def test_the_block_that_was_called_itself_is_an_error():
    block = Peaks()
    block.hybridize()
    with pytest.raises(TraceError, match=r"asscalar\(\) cannot be compiled"):
        block(nd.ones((1, 1, 3, 3)))
    net, x, _ = pose()
    net.hybridize()
    with pytest.warns(UserWarning, match="cannot be compiled"):
        net(x)
    net.tail[1].hybridize()  # asks for this block alone
    with pytest.raises(TraceError, match=r"asscalar\(\) cannot be compiled"):
        net.tail[1](nd.ones((1, 1, 3, 3)))


def test_until_it_is_hybridized_again():
    net, x, _ = pose()
    net.hybridize()
    with pytest.warns(UserWarning, match="cannot be compiled"):
        net(x)
    net.hybridize()
    with pytest.warns(UserWarning, match="cannot be compiled"):
        net(x)
    net.hybridize(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(x)


def test_a_trace_of_such_a_block_is_an_error():
    net, x, _ = pose()
    with pytest.raises(TraceError, match=r"asscalar\(\) cannot be compiled"):
        net.optimize_for(x, backend="llvm")


class Chosen(gluon.HybridBlock):
    """Its arguments hold what no compiled call takes; nor do those of its child."""

    def __init__(self):
        super().__init__()
        self.inner = gluon.nn.HybridLambda(lambda F, x, kept: x * kept["factor"])

    def hybrid_forward(self, F, x, double):
        return self.inner(x, {"factor": 2 if double else 3})


class Choosing(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.chosen, self.peaks = Chosen(), Peaks()

    def hybrid_forward(self, F, x):
        return self.chosen(x, True) + self.chosen(x, False), self.peaks(x)


def test_blocks_that_are_given_no_arrays_run_as_python_too():
    net = Choosing()
    x = nd.array(np.random.default_rng(0).standard_normal((2, 3, 9, 7)), dtype="float32")
    expected = net(x)
    net.hybridize()
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = net(x)
        for a, b in zip(got, expected):
            np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-6)
    with pytest.raises(ValueError, match="must be .nested. list of Symbol or NDArray, but got True"):
        alone = Chosen()
        alone.hybridize()
        alone(x, True)


def test_a_child_with_a_forward_of_its_own_that_needs_a_value():
    """It is Python in any case; the block around it becomes so, too, and the one beside it is compiled."""

    class Child(gluon.HybridBlock):
        def forward(self, x):
            return x + 1 if x.sum().asscalar() > 0 else x - 1

    class Parent(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="parent_")
            with self.name_scope():
                self.dense, self.child = gluon.nn.Dense(3), Child(prefix="child_")

        def hybrid_forward(self, F, x):
            return self.child(self.dense(x)) * 2

    net = Parent()
    net.initialize()
    x = mx.nd.ones((2, 3))
    plain = net(x).asnumpy()
    net.hybridize()
    with pytest.warns(UserWarning, match=r"it and the blocks around it \(parent\)(?s:.*)\(parent/child\)"):
        assert (net(x).asnumpy() == plain).all()
    assert (net(x).asnumpy() == plain).all() and net.dense._jit_cached is not None
