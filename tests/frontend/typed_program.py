"""A program for a type checker: `make lint` fails where it finds another type, or an error that none is expected for,
or none where one is ignored."""

from typing import Any

import numpy as np
from typing_extensions import assert_type

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.gluon import nn
from gluonjit.gluon.block import HybridBlock
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.numpy.multiarray import ndarray
from gluonjit.symbol.symbol import Symbol


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
    assert_type(x[0] * 2 + 1, NDArray)
    assert_type(nd.dot(x, x).sum(axis=1).reshape((1, -1)).astype("float16"), NDArray)
    assert_type(mx.nd.contrib.box_nms(x), NDArray)
    assert_type(mx.nd.random.uniform(0, 1, shape=(2, 3)), NDArray)
    assert_type(mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=3, name="fc"), Symbol)
    assert_type(nd.split(x, num_outputs=2, axis=1, squeeze_axis=1), Any)
    nd.Activation(x, act_type=kind)
    nd.Pooling(x, kernel=(2, 2), pool_type="max")
    nd.Convolution(x, x, kernel=(3, 3), num_filter="8")  # type: ignore[arg-type]
    nd.Convolution(x, x, kernels=(3, 3))  # type: ignore[call-arg]
    nd.Convolutio(x)  # type: ignore[attr-defined]
    mx.metric.Accuracy().update(labels=[y], preds=[net(x)])
    mx.metric.Accuracy().update(label=[y], preds=[x])  # type: ignore[call-arg]
    assert_type(gluon.model_zoo.vision.resnet18_v1().features, nn.HybridSequential)
    assert_type(gluon.model_zoo.vision.get_model("alexnet").output, HybridBlock)
    for batch in mx.io.NDArrayIter(data, label):
        assert_type(batch.data[0], Any)
    assert_type(next(iter(x)), NDArray)
    [layer.name for layer in nn.HybridSequential()]
    [example[0] for example in gluon.data.ArrayDataset(x, y)]
    mx.np.bool(1)
    assert_type(mx.sym.Variable("x"), Symbol)
    mx.sym.relu(x)  # type: ignore[arg-type]
    x.sum(axes=1)  # type: ignore[call-arg]
    nn.Conv2D(8, 3, strides="a")  # type: ignore[arg-type]
    assert_type(mx.np.tanh(mx.np.array([1.0])), ndarray)
    assert_type(mx.npx.relu(mx.np.ones((2, 3))), ndarray)
    mx.np.linalg.norm(mx.np.zeros(3), order=2)  # type: ignore[call-arg]
    mx.np.concatenat([mx.np.pi])  # type: ignore[attr-defined]
    _ = mx.nothing  # type: ignore[attr-defined]
    return float(loss.asscalar())
