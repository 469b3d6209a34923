"""Output layers ignore their cotangent: a head that reaches one through constants alone still starts its gradient.

The known answers are those of MXNet 1.9.1, of the plain and of the hybridized call.
"""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.gluon import HybridBlock, nn

X, W, LABEL = [[1.0, -2, 3], [0.5, 2, 4]], [[0.5, 1, -0.25], [1, 1, 2]], [[1.0, 2, 0], [0, 1, 2]]
BY_X = (np.multiply(X, W) - LABEL) * W / 3
"""The gradient of the regression by x."""


class Net(HybridBlock):
    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def hybrid_forward(self, F, x, w, label):
        return self.function(F, x, w, label)


def regression(F, x, w, label):
    return F.LinearRegressionOutput(x * w, label)


def gradients(function, hybrid, heads=(0,)):
    """By x and w, which contain 7 before."""
    (found,) = gradients_of_each(function, hybrid, [heads])
    return found


def gradients_of_each(function, hybrid, heads):
    """Of one call, for each list of heads."""
    net = Net(function)
    if hybrid:
        net.hybridize()
    x, w = nd.array(X), nd.array(W)
    for v in (x, w):
        v.attach_grad()
    with autograd.record():
        y = net(x, w, nd.array(LABEL))
    y = y if isinstance(y, list) else [y]
    for chosen in heads:
        for v in (x, w):
            v.grad[:] = 7
        autograd.backward([y[k] for k in chosen], retain_graph=True)
        yield x.grad.asnumpy(), w.grad.asnumpy()


CONSTANTS = {
    "sign": lambda F, y: F.sign(y),
    "twice": lambda F, y: F.sign(F.round(y)),
    "BlockGrad": lambda F, y: F.BlockGrad(y),
    "zeros_like": lambda F, y: F.zeros_like(y),
    "shape_array": lambda F, y: F.shape_array(y),
    "argmax": lambda F, y: F.argmax(y, axis=1),
    "topk": lambda F, y: F.topk(y),
    "comparison": lambda F, y: y > 1,
    "one_hot": lambda F, y: F.one_hot(y, 4),
    "bool": lambda F, y: F.cast(y, dtype="bool"),
    "label": lambda F, y: F.LinearRegressionOutput(F.ones_like(y), y),
}


LAYERS = [
    lambda F, x, w, label: F.MakeLoss(x * w),
    lambda F, x, w, label: F.make_loss(x * w),
    lambda F, x, w, label: F.SoftmaxOutput(x * w, label),
    lambda F, x, w, label: F.SVMOutput(x * w, F.argmax(label, axis=1)),
    lambda F, x, w, label: F.MAERegressionOutput(x * w, label),
    lambda F, x, w, label: F.LogisticRegressionOutput(x * w, label),
]


@pytest.mark.parametrize("hybrid", [False, True])
def test_an_output_layer_behind_a_constant_gives_its_gradient(hybrid):
    for function in (CONSTANTS["sign"], CONSTANTS["bool"]):
        found, _ = gradients(lambda F, *a, function=function: function(F, regression(F, *a)), hybrid)
        np.testing.assert_allclose(found, BY_X, rtol=1e-5)


@pytest.mark.parametrize("hybrid", [False, True])
def test_whatever_the_constant(hybrid):
    def all_of_them(F, *a):
        y = regression(F, *a)
        return [function(F, y) for function in CONSTANTS.values()]

    every = gradients_of_each(all_of_them, hybrid, [[k] for k in range(len(CONSTANTS))])
    for name, (found, _) in zip(CONSTANTS, every, strict=True):
        np.testing.assert_allclose(found, BY_X, rtol=1e-5, err_msg=name)


def test_all_output_layers_do():
    def all_of_them(F, *a):
        return [F.sign(layer(F, *a)) for layer in LAYERS]

    heads = [[k] for k in range(len(LAYERS))]
    for plain, compiled in zip(*(gradients_of_each(all_of_them, hybrid, heads) for hybrid in (False, True))):
        assert np.any(plain[0] != 7) and np.any(plain[0])
        for a, b in zip(compiled, plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hybrid", [False, True])
def test_not_behind_detach(hybrid):
    found, _ = gradients(lambda F, x, w, label: x * regression(F, x, w, label).detach().sign() * 0 + x, hybrid)
    np.testing.assert_array_equal(found, np.ones((2, 3)))


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("constant", [lambda F, y: y, lambda F, y: F.sign(y)])
def test_not_from_a_head_that_does_not_depend_on_it(constant, hybrid):
    def both(F, x, w, label):
        return [constant(F, regression(F, x, w, label)), x * w]

    np.testing.assert_allclose(gradients(both, hybrid, heads=[0])[0], BY_X, rtol=1e-5)
    np.testing.assert_allclose(gradients(both, hybrid, heads=[1])[0], W)
    np.testing.assert_allclose(gradients(both, hybrid, heads=[0, 1])[0], BY_X + W, rtol=1e-5)


@pytest.mark.parametrize("hybrid", [False, True])
def test_by_chosen_variables(hybrid):
    net = Net(lambda F, *a: F.sign(regression(F, *a)))
    if hybrid:
        net.hybridize()
    x, w = nd.array(X), nd.array(W)
    for v in (x, w):
        v.attach_grad()
    with autograd.record():
        y = net(x, w, nd.array(LABEL))
    (found,) = autograd.grad(y, [x])
    np.testing.assert_allclose(found.asnumpy(), BY_X, rtol=1e-5)


def test_executors_do():
    sym = mx.sym
    y = sym.sign(sym.LinearRegressionOutput(sym.var("x") * sym.var("w"), sym.var("label")))
    arrays = {"x": nd.array(X), "w": nd.array(W), "label": nd.array(LABEL)}
    executor = y.bind(mx.cpu(), arrays, args_grad={"x": nd.zeros((2, 3))})
    executor.forward(is_train=True)
    executor.backward(nd.ones((2, 3)))
    np.testing.assert_allclose(executor.grad_dict["x"].asnumpy(), BY_X, rtol=1e-5)


@pytest.mark.parametrize("hybrid", [False, True])
def test_types_that_cannot_hold_the_gradient(hybrid):
    def refuses(layer, dtype, name):
        with pytest.raises(mx.base.MXNetError, match=rf"^{name} has no gradient\n  at .*{__file__.rsplit('/', 1)[1]}"):
            gradients(lambda F, x, w, label: F.BlockGrad(layer(F, F.cast(x, dtype), F.cast(label, dtype))), hybrid)

    with pytest.raises(mx.base.MXNetError, match="MakeLoss does not support boolean type"):
        gradients(lambda F, x, w, label: F.MakeLoss(F.cast(x, "bool")), hybrid)
    refuses(lambda F, x, label: F.MakeLoss(x, grad_scale=0.5), "int32", "MakeLoss of i32")
    refuses(lambda F, x, label: F.MakeLoss(x, normalization="batch"), "int32", "MakeLoss of i32")
    refuses(lambda F, x, label: F.LinearRegressionOutput(x, label), "int32", "LinearRegressionOutput of i32, i32")
    found, _ = gradients(lambda F, x, w, label: F.MakeLoss(F.cast(x, "int32"), grad_scale=2), hybrid)
    np.testing.assert_array_equal(found, np.full((2, 3), 2))
    three_times = lambda F, x, w, label: F.LinearRegressionOutput(F.cast(x, "int32"), label, grad_scale=3)  # noqa: E731
    np.testing.assert_array_equal(gradients(three_times, hybrid)[0], np.trunc(X) - LABEL)


class Normalized(HybridBlock):
    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function
        with self.name_scope():
            self.norm = nn.BatchNorm()

    def hybrid_forward(self, F, x):
        return self.function(F, self.norm(x), x)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    "function, changes",
    [
        (lambda F, y, x: F.BlockGrad(y) + x, True),
        (lambda F, y, x: F.sin(F.BlockGrad(y)) * x + F.BlockGrad(x), True),
        (lambda F, y, x: F.BlockGrad(x) + y, True),
        (lambda F, y, x: F.sin(y.detach()) + F.BlockGrad(x) * x, False),
    ],
)
def test_moving_statistics_change_behind_constants(function, changes, hybrid):
    net = Normalized(function)
    net.initialize()
    if hybrid:
        net.hybridize()
    x = nd.array([[1, 2], [3, 5]])
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    wanted = [0.2, 0.35] if changes else [0, 0]
    np.testing.assert_allclose(net.norm.running_mean.data().asnumpy(), wanted, rtol=1e-6)
