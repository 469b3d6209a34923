"""Programs that do not hybridize: what `python -m benchmarks.plain` measures.

MXNet's own process reads this module, too, so nothing here imports an engine: `mx` is gluonjit or MXNet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.steps import STEPS, batches, gluon_net
from benchmarks.weights import values

Call = Callable[[], Any]
"""Runs the program once, to its end, and returns an array that depends on all it has computed."""


class Program(NamedTuple):
    key: str
    title: str
    make: Callable[[Any], Call]
    """Given the engine, the call."""


def _filled(mx: Any, net: Any, x: Any, gain: float = 2.0) -> Any:
    """The net with weights that depend on their names alone; `x`: an input, which completes the shapes."""
    net.initialize()
    net(x)
    for name, parameter in net._collect_params_with_prefix().items():
        parameter.set_data(mx.nd.array(values(name, parameter.shape, gain)))
    return net


def _image_net(name: str) -> Callable[[Any], Any]:
    return lambda mx: getattr(mx.gluon.model_zoo.vision, name)(classes=10)


def _lstm(layers: int, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda mx: mx.gluon.rnn.LSTM(128, layers, **kwargs)


def _step_of(mx: Any, key: str, batch: int) -> Call:
    """A step of training, as in `benchmarks.steps`."""
    step = STEPS[key]
    data, labels = batches(step, batch)[0]
    x, y = mx.nd.array(data), mx.nd.array(labels)
    net = _filled(mx, gluon_net(mx, step), x, step.gain)
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), step.optimizer, dict(step.settings))

    def call() -> Any:
        with mx.autograd.record():
            loss = loss_function(net(x), y)
        loss.backward()
        trainer.step(batch)
        return loss

    return call


def _prediction(mx: Any, make: Callable[[Any], Any], shape: tuple[int, ...]) -> Call:
    x = mx.nd.array(np.random.RandomState(0).uniform(-1, 1, shape).astype(np.float32))
    net = _filled(mx, make(mx), x)
    return lambda: net(x)


def _gradients(mx: Any, make: Callable[[Any], Any], shape: tuple[int, ...]) -> Call:
    """Forward and backward, with a gradient of the input."""
    x = mx.nd.array(np.random.RandomState(0).uniform(-1, 1, shape).astype(np.float32))
    net = _filled(mx, make(mx), x, 1.0)
    x.attach_grad()

    def call() -> Any:
        with mx.autograd.record():
            y = net(x)
        y.backward()
        return x.grad

    return call


def _pooling(mx: Any) -> Any:
    net = mx.gluon.nn.Sequential()
    net.add(mx.gluon.nn.MaxPool2D(3, 2, 1), mx.gluon.nn.AvgPool2D(2, 2), mx.gluon.nn.GlobalAvgPool2D())
    return net


def _unrolled(mx: Any) -> Any:
    class Unrolled(mx.gluon.Block):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.cell = mx.gluon.rnn.LSTMCell(64)

        def forward(self, x: Any) -> Any:
            return self.cell.unroll(20, x, layout="NTC", merge_outputs=True)[0]

    return Unrolled()


def _small_operators(mx: Any) -> Call:
    x = mx.nd.array(np.random.RandomState(0).uniform(1, 2, (8, 8)).astype(np.float32))

    def call() -> Any:
        y = x
        for _ in range(20):
            y = (y + x) / (x.sum() + y.max())
            y = mx.nd.concat(y[:4], y.T[4:], dim=0).reshape((8, 8))
        return y

    return call


def _elementwise(mx: Any) -> Call:
    rng = np.random.RandomState(0)
    x, y = (mx.nd.array(rng.uniform(1, 2, (512, 1024)).astype(np.float32)) for _ in range(2))
    return lambda: mx.nd.sqrt(mx.nd.exp(-x) + y * y) / (mx.nd.tanh(x) - 3 * y)


def _of(make: Callable[[Any], Any], shape: tuple[int, ...], run: Any = _prediction) -> Callable[[Any], Call]:
    return lambda mx: run(mx, make, shape)


PROGRAMS = {
    p.key: p
    for p in (
        Program("mlp", "MLP 784-128-64-10, a step of 64", lambda mx: _step_of(mx, "T1", 64)),
        Program("lenet", "LeNet, a step of 64", lambda mx: _step_of(mx, "T2", 64)),
        Program("lenet-predict", "LeNet, 64 images", _of(lambda mx: gluon_net(mx, STEPS["T2"]), (64, 1, 28, 28))),
        Program("resnet18", "ResNet-18, an image", _of(_image_net("resnet18_v1"), (1, 3, 224, 224))),
        Program("resnet18-step", "ResNet-18 at 32x32, a step of 16", lambda mx: _step_of(mx, "T3", 16)),
        Program("mobilenet", "MobileNetV2, an image", _of(_image_net("mobilenet_v2_1_0"), (1, 3, 224, 224))),
        Program("mobilenet-step", "MobileNetV2, a step of 4", lambda mx: _step_of(mx, "T5", 4)),
        Program("pooling", "pooling, forward and backward", _of(_pooling, (8, 32, 64, 64), _gradients)),
        Program("lstm", "LSTM of 2 layers, forward and backward", _of(_lstm(2), (35, 16, 128), _gradients)),
        Program("bilstm", "LSTM in two directions", _of(_lstm(1, bidirectional=True), (35, 16, 128), _gradients)),
        Program("unrolled", "LSTMCell, 20 steps, forward and backward", _of(_unrolled, (16, 20, 64), _gradients)),
        Program("small", "small operators", _small_operators),
        Program("elementwise", "elementwise operators", _elementwise),
        Program("encoder-step", "4 encoder layers, a step of 2", lambda mx: _step_of(mx, "T7", 2)),
    )
}
