"""Names that MXNet's classes do not have are free for subclasses: nothing here calls a user's by accident."""

import numpy as np

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.gluon import nn, rnn


def never(*args, **kwargs):
    raise AssertionError("a method of the user's own was called")


class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.graph = nn.Dense(2)  # a child, under the name of a method of ours
            self.intermediates = [1, 2]

    compile = prepare = explain = gates = never

    def hybrid_forward(self, F, x):
        return self.graph(x) * len(self.intermediates)


def test_attributes_and_methods_of_blocks():
    x = nd.array([[1.0, 2, 3]])
    plain, compiled = Net(), Net()
    plain.initialize(mx.init.One())
    compiled.initialize(mx.init.One())
    compiled.hybridize()
    for _ in range(2):
        assert compiled(x).asnumpy().tolist() == plain(x).asnumpy().tolist() == [[12, 12]]
    trainer = gluon.Trainer(compiled.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = compiled(x).sum()
    loss.backward()
    trainer.step(1)
    assert "graph.weight" in compiled._collect_params_with_prefix()
    compiled.optimize_for(x, backend="llvm")
    assert compiled(x).shape == (1, 2)


def test_parameters_cells_updaters_and_monitors():
    class Parameter(gluon.Parameter):
        complete_shape = never

    class Layer(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = Parameter("w", shape=(2, 0), allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.FullyConnected(x, w, no_bias=True, num_hidden=2)

    layer = Layer()
    layer.w.initialize(mx.init.One())
    layer.hybridize()
    assert layer(nd.ones((1, 3))).asnumpy().tolist() == [[3, 3]]

    class Cell(rnn.LSTMCell):
        def gates(self):
            return never()

    cell = Cell(2, input_size=3)
    cell.initialize()
    assert cell.i2h_weight.shape == (8, 3)
    assert cell(nd.ones((1, 3)), cell.begin_state(1))[0].shape == (1, 2)

    class Updater(mx.optimizer.Updater):
        prepare = never

    weight = nd.ones(2)
    Updater(mx.optimizer.SGD(learning_rate=0.5))(0, nd.ones(2), weight)
    assert weight.asnumpy().tolist() == [0.5, 0.5]

    class Monitor(mx.monitor.Monitor):
        def stat_helper(self, *args):
            return never()

    monitor = Monitor(1, stat_func=lambda x: x.sum(), monitor_all=True)
    executor = (mx.sym.var("a") * 2).bind(mx.cpu(), {"a": nd.ones(3)})
    monitor.install(executor)
    monitor.tic()
    executor.forward()
    found = {name: float(np.ravel(eval_text(value))[0]) for _, name, value in monitor.toc()}
    assert found["a"] == 3


def eval_text(text):
    return np.array([float(part) for part in text.replace("[", " ").replace("]", " ").split()])
