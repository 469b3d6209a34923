# ruff: noqa: F821, B018
"""A program for a type checker (test_stubs.py): comments say which errors and types it must report."""

from typing import Any

import numpy as np

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.gluon import nn


class Net(gluon.HybridBlock):
    def __init__(self, act: str = "relu", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv = nn.Conv2D(8, kernel_size=3, activation=act)
            self.dense = nn.Dense(10)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.dense(F.relu(self.conv(x)))


def train(net: Net, data: np.ndarray, label: np.ndarray, kind: str) -> float:
    net.initialize(mx.init.Xavier(), ctx=mx.cpu())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    x, y = mx.nd.array(data), mx.nd.array(label)
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():
        loss = loss_function(net(x), y).mean()
    loss.backward()
    trainer.step(x.shape[0])
    x.attach_grad()
    x[:] = 0
    x += 1
    np.add(x.asnumpy(), x.grad.asnumpy())
    reveal_type(x[0] * 2 + 1)  # is gluonjit.ndarray.ndarray.NDArray
    reveal_type(nd.dot(x, x).sum(axis=1).reshape((1, -1)).astype("float16"))  # is gluonjit.ndarray.ndarray.NDArray
    reveal_type(mx.nd.contrib.box_nms(x))  # is gluonjit.ndarray.ndarray.NDArray
    reveal_type(mx.nd.random.uniform(0, 1, shape=(2, 3)))  # is gluonjit.ndarray.ndarray.NDArray
    reveal_type(mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="fc"))  # is gluonjit.symbol.symbol.Symbol
    reveal_type(nd.split(x, num_outputs=2, axis=1, squeeze_axis=1))  # is Any
    nd.Activation(x, act_type=kind)
    nd.Pooling(x, kernel=(2, 2), pool_type="max")
    nd.Convolution(x, x, kernel=(3, 3), num_filter="8")  # error: Argument "num_filter" to "Convolution" has
    nd.Convolution(x, x, kernels=(3, 3))  # error: Unexpected keyword argument "kernels" for "Convolution"
    nd.Convolutio(x)  # error: Module has no attribute "Convolutio"; maybe "Convolution"?
    mx.metric.Accuracy().update(labels=[y], preds=[net(x)])
    mx.metric.Accuracy().update(label=[y], preds=[x])  # error: Unexpected keyword argument "label" for "update"
    reveal_type(gluon.model_zoo.vision.resnet18_v1().features)  # is gluonjit.gluon.nn.containers.HybridSequential
    reveal_type(gluon.model_zoo.vision.get_model("alexnet").output)  # is gluonjit.gluon.block.HybridBlock
    for batch in mx.io.NDArrayIter(data, label):
        reveal_type(batch.data[0])  # is Any
    reveal_type(next(iter(x)))  # is gluonjit.ndarray.ndarray.NDArray
    [layer.name for layer in nn.HybridSequential()]
    [example[0] for example in gluon.data.ArrayDataset(x, y)]
    mx.np.bool(1)
    reveal_type(mx.sym.Variable("x"))  # is gluonjit.symbol.symbol.Symbol
    mx.sym.relu(x)  # error: Argument 1 to "relu" has incompatible type "NDArray"; expected "Symbol | None"
    x.sum(axes=1)  # error: Unexpected keyword argument "axes" for "sum"
    nn.Conv2D(8, 3, strides="a")  # error: Argument "strides" to "Conv2D" has incompatible type "str"
    reveal_type(mx.np.tanh(mx.np.array([1.0])))  # is gluonjit.numpy.multiarray.ndarray
    reveal_type(mx.npx.relu(mx.np.ones((2, 3))))  # is gluonjit.numpy.multiarray.ndarray
    mx.np.linalg.norm(mx.np.zeros(3), order=2)  # error: Unexpected keyword argument "order" for "norm"
    mx.np.concatenat([mx.np.pi])  # error: Module has no attribute "concatenat"; maybe "concatenate"?
    mx.nothing  # error: Module has no attribute "nothing"
    return float(loss.asscalar())
