"""In loops and branches, too, a hybridized call gives a gradient to what the plain call visits, and to nothing else.

Known answers are those of MXNet 1.9.1's plain calls. Its hybridized ones agree where it does not refuse the graph, but
for values computed before a branch, whose gradients it does not set.
"""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.gluon import HybridBlock

UNTOUCHED = [7, 7]


class Net(HybridBlock):
    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def hybrid_forward(self, F, p, x, w):
        return self.function(F, p, x, w)


def gradients(function, hybrid, p=1, heads=(0,)):
    """By x = [1, 2] and w = [3, 4], which contain 7 before."""
    net = Net(function)
    if hybrid:
        net.hybridize()
    x, w = nd.array([1, 2]), nd.array([3, 4])
    for v in (x, w):
        v.attach_grad()
        v.grad[:] = 7
    with autograd.record():
        y = net(nd.array([p]), x, w)
    y = y if isinstance(y, list) else [y]
    autograd.backward([y[k] for k in heads])
    return x.grad.asnumpy().tolist(), w.grad.asnumpy().tolist()


def prepared(F, p, x, w):
    a, b = x * 5, w * 6
    return F.contrib.cond(p, lambda: a * 2, lambda: b * 3)


def layer_before(F, p, x, w):
    a = F.MakeLoss(x * 5)
    return F.contrib.cond(p, lambda: F.sign(a), lambda: w * 3)


def nested(F, p, x, w):
    def inner():
        return F.contrib.cond(p > 1, lambda: x * 2, lambda: F.BlockGrad(F.MakeLoss(x * w)))

    return F.contrib.cond(p, inner, lambda: w * 3)


BRANCHES = {
    "one each": (lambda F, p, x, w: F.contrib.cond(p, lambda: x * 2, lambda: w * 3), [[2, 2], 7], [7, [3, 3]]),
    "one in both": (lambda F, p, x, w: F.contrib.cond(p, lambda: x * w, lambda: x * 3), [[3, 4], [1, 2]], [[3, 3], 7]),
    "one outside": (lambda F, p, x, w: F.contrib.cond(p, lambda: x, lambda: w * 3) + w, [[1, 1]] * 2, [7, [4, 4]]),
    "constants": (lambda F, p, x, w: F.contrib.cond(p, lambda: F.sign(x), lambda: F.sign(w)), [[0, 0], 7], [7, [0, 0]]),
    "prepared": (prepared, [[10, 10], 7], [7, [18, 18]]),
    "layer before": (layer_before, [[5, 5], 7], [7, [3, 3]]),
    "layer": (lambda F, p, x, w: F.contrib.cond(p, lambda: F.MakeLoss(x * 5), lambda: w * 3), [[5, 5], 7], [7, [3, 3]]),
    "layer behind a constant": (
        lambda F, p, x, w: F.contrib.cond(p, lambda: F.BlockGrad(F.MakeLoss(x * 5)), lambda: w * 3),
        [[5, 5], 7],
        [7, [3, 3]],
    ),
    "nested": (nested, [[3, 4], [1, 2]], [7, [3, 3]]),
}


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch(name, hybrid):
    function, taken, otherwise = BRANCHES[name]
    for p, wanted in ((1, taken), (0, otherwise)):
        assert gradients(function, hybrid, p) == tuple(UNTOUCHED if g == 7 else g for g in wanted)


def test_variables_of_the_branch_not_taken_are_unreachable():
    for hybrid in (False, True):
        net = Net(BRANCHES["one each"][0])
        if hybrid:
            net.hybridize()
        x, w = nd.array([1, 2]), nd.array([3, 4])
        x.attach_grad()
        w.attach_grad()
        with autograd.record():
            y = net(nd.array([1]), x, w)
        with pytest.raises(mx.base.MXNetError, match="2-th variable because it is unreachable"):
            autograd.grad(y, [x, w], retain_graph=True)
        (found,) = autograd.grad(y, [x], create_graph=True)
        assert found.asnumpy().tolist() == [2, 2]


def steps(F, p, x, w):
    out, (_, a) = F.contrib.while_loop(
        lambda i, a: i < p, lambda i, a: (a * w, [i + 1, a]), [F.zeros_like(p), x], max_iterations=3
    )
    return a + F.sum(out, axis=0)


def steps_of_a_layer(F, p, x, w):
    def step(i, a):
        return a, [i + 1, F.sign(F.MakeLoss(a * w))]

    return F.contrib.while_loop(lambda i, a: i < p, step, [F.zeros_like(p), x], max_iterations=3)[1][1]


def rows(F, step, x, w):
    return F.contrib.foreach(step, F.stack(x, x * 2), [w])


def rows_of_a_layer(F, p, x, w):
    return rows(F, lambda d, s: (F.sign(F.MakeLoss(d * s[0])), s), x, w)[0]


def rows_beside_a_layer(F, p, x, w):
    return rows(F, lambda d, s: ([F.MakeLoss(d * s[0]), d * 2], s), x, w)[0]


def state_from_a_layer(F, p, x, w):
    return rows(F, lambda d, s: (d, [F.cast(F.cast(F.MakeLoss(d * s[0]), "int32"), "float32")]), x, w)[1][0]


def one_behind_the_other(F, p, x, w):
    """The layer of the last row is in no result."""
    step = lambda d, s: (d, [s[1], F.BlockGrad(F.MakeLoss(d * s[1]))])  # noqa: E731
    return F.contrib.foreach(step, F.stack(x, x * 2), [w, x])[1][0]


def replaced(F, p, x, w):
    return F.contrib.foreach(lambda d, s: (d, [s[0] * 1, d * 2]), F.stack(x, x * 2), [w, x])[1][1]


def regression(F, p, x, w):
    step = lambda d, s: (F.argmax(F.LinearRegressionOutput(d * s[0], F.ones_like(d)), axis=0), s)  # noqa: E731
    return rows(F, step, F.reshape(x, (1, 2)), F.reshape(w, (1, 2)))[0]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    "function, p, heads, by_x, by_w",
    [
        (steps, 0, [0], [1, 1], UNTOUCHED),
        (steps, 2, [0], [7, 9], [2, 4]),
        (steps_of_a_layer, 0, [0], [1, 1], UNTOUCHED),
        (steps_of_a_layer, 2, [0], [3, 4], [2, 3]),
        (rows_of_a_layer, 1, [0], [9, 12], [3, 6]),
        (rows_beside_a_layer, 1, [0], [9, 12], [3, 6]),
        (rows_beside_a_layer, 1, [1], [6, 6], UNTOUCHED),
        (rows_beside_a_layer, 1, [0, 1], [15, 18], [3, 6]),
        (state_from_a_layer, 1, [0], [9, 20], [1, 2]),
        (one_behind_the_other, 1, [0], [2, 4], UNTOUCHED),
        (replaced, 1, [0], [4, 4], UNTOUCHED),
        (regression, 1, [0], None, None),
    ],
)
def test_a_loop(function, p, heads, by_x, by_w, hybrid):
    found = gradients(function, hybrid, p, heads)
    if by_x is None:
        assert found == gradients(function, False, p, heads) and np.any(found)
    else:
        assert found == (by_x, by_w)


def test_gradients_of_gradients():
    for p, wanted in ((1, [6, 12]), (0, None)):
        for hybrid in (False, True):
            net = Net(lambda F, p, x, w: F.contrib.cond(p, lambda: x * x * x, lambda: w * 3))
            if hybrid:
                net.hybridize()
            x, w = nd.array([1, 2]), nd.array([3, 4])
            x.attach_grad()
            w.attach_grad()
            with autograd.record():
                y = net(nd.array([p]), x, w) + x
                (g,) = autograd.grad(y, [x], create_graph=True)
            if wanted:
                g.backward()
                assert x.grad.asnumpy().tolist() == wanted
            else:
                assert g.asnumpy().tolist() == [1, 1]


def regression_before(F, p, x, w):
    y = F.LinearRegressionOutput(x * w, F.ones_like(x))
    return F.contrib.cond(p, lambda: F.sign(y) + x * x * w, lambda: x * x * x)


def regressions_beside_rows(F, p, x, w):
    return rows(F, lambda d, s: ([F.LinearRegressionOutput(d * s[0], F.ones_like(d)), d * d * s[0]], s), x, w)[0]


@pytest.mark.parametrize(
    "function, p, head, by_x",
    [
        (
            regression_before,
            1,
            0,
            [12, 36],
        ),  # 2 w + (x w - 1) w: the gradient reads the result of the regression, which is visited again
        (regression_before, 0, 0, [6, 12]),
        (regressions_beside_rows, 1, 1, [30, 40]),
    ],
)
def test_what_gradients_of_gradients_visit(function, p, head, by_x):
    found = []
    for hybrid in (False, True):
        net = Net(function)
        if hybrid:
            net.hybridize()
        x, w = nd.array([1, 2]), nd.array([3, 4])
        x.attach_grad()
        w.attach_grad()
        with autograd.record():
            y = net(nd.array([p]), x, w)
            y = y[head] if isinstance(y, list) else y
            (g,) = autograd.grad(y, [x], create_graph=True)
        g.backward()
        found.append((x.grad.asnumpy().tolist(), w.grad.asnumpy().tolist()))
    assert found[0] == found[1] and found[0][0] == by_x
