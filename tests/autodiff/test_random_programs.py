"""Random plain programs give the same with NumPy, and where they move to native code on the way."""

import random

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.autodiff import operator_computations, tiering
from gluonjit.codes.store import Store
from gluonjit.ndarray import imperative
from support.soak import tries

PROGRAMS = tries(8)


class Program:
    """Draws steps by a seed alone, so that both ways take the same ones. Sizes are few: programs share code."""

    def __init__(self, seed):
        self.choice, rng = random.Random(seed), np.random.RandomState(seed)
        mx.random.seed(seed)
        self.draw = lambda *shape: nd.array(rng.uniform(-1, 1, shape))
        self.filters = self.draw(2, 4, 4, 3, 3)  # two weights in one storage
        self.statistics = [self.draw(4) for _ in range(3)] + [nd.ones((4,))]
        self.x = self.draw(self.choice.choice((0, 1, 3)), 4, 5, 5)

    def run(self):
        steps = (self.convolved, self.normalized, self.trained, self.twice, self.written, self.dropped, self.resized)
        results = []
        for _ in range(8):
            results += [(step.__name__, y.asnumpy()) for step in [self.choice.choice(steps)] for y in step()]
        return [*results, ("stream", nd.random.uniform(shape=(2,)).asnumpy())]

    def convolve(self, x, k):
        return nd.Convolution(x, self.filters[k], kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True)

    def convolved(self):
        return [self.convolve(self.x, self.choice.randint(0, 1)) for _ in range(3)]

    def normalized(self):
        with autograd.record(train_mode=self.choice.random() < 0.5):
            y = nd.BatchNorm(self.x, *self.statistics, fix_gamma=False)
        return [y, *self.statistics]

    def trained(self):
        w = self.filters[0]
        w.attach_grad(self.choice.choice(("write", "add", "null")))
        self.x.attach_grad()
        with autograd.record():
            y = nd.Convolution(self.x, w, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True)
            loss = nd.Pooling(y, kernel=(3, 3), stride=(2, 2), pad=(1, 1)).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        if w.grad is not None:
            w -= 0.01 * w.grad
        return [loss, self.x.grad, w]

    def twice(self):
        self.x.attach_grad()
        with autograd.record():
            g = autograd.grad(nd.tanh(self.x).sum(), self.x, create_graph=True)[0]
            y = (g * g).sum()
        y.backward()
        return [g, self.x.grad]

    def written(self):
        self.filters[self.choice.randint(0, 1)][:] *= 0.5
        nd.sigmoid(self.x, out=self.x)
        self.x[:, 0] += 0.5
        return [self.x]

    def dropped(self):
        with autograd.train_mode():
            return [nd.Dropout(self.x, p=0.5)]

    def resized(self):
        self.x = self.draw(self.choice.choice((0, 1, 3)), 4, 5, 5)
        return [nd.softmax(self.x, axis=2)]


@pytest.fixture
def ways(monkeypatch):
    """`ways(setting, budget)`: how plain calls run from now on."""

    def use(setting, budget):
        monkeypatch.setenv("GLUONJIT_PLAIN", setting)
        monkeypatch.setattr(tiering, "_accounts", tiering.defaultdict(tiering.Account))
        monkeypatch.setattr(imperative, "SMALL", 0)
        monkeypatch.setattr(imperative, "_calls", {})
        monkeypatch.setattr(operator_computations, "_computations", Store(4096))
        monkeypatch.setattr(operator_computations, "_codes", Store(4096))
        monkeypatch.setattr(tiering, "_CALL", -1e5)
        monkeypatch.setattr(tiering, "BUDGET", budget)

    return use


def test_programs(ways):
    ways("numpy", 0.0)
    expected = [Program(seed).run() for seed in range(PROGRAMS)]
    ways("", 3e5)
    for seed in range(PROGRAMS):
        for k, ((step, y), (_, want)) in enumerate(zip(Program(seed).run(), expected[seed], strict=True)):
            where = f"program {seed}, result {k}, of {step}"
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(initial=1), err_msg=where)
