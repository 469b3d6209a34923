"""Functions of `mx.np` on sequences, and distributions of `mx.np.random`: in both modes, with MXNet's numbers."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.base import MXNetError

V = [1.0, 4, 9, 16]
A = [[1.0, 2, 3], [4, 5, 6]]


def places(*at):
    return mx.np.array(at, dtype="int64")


CASES = {
    "append": (lambda np, x: np.append(x, x[:1]), V, [1, 4, 9, 16, 1]),
    "diff": (lambda np, x: np.diff(x, n=2), V, [2, 2]),
    "ediff1d": (lambda np, x: np.ediff1d(x, to_begin=-1, to_end=x[:2]), V, [-1, 3, 5, 7, 1, 4]),
    "insert a row": (lambda np, x: np.insert(x, 1, x[0] * 2, axis=0), A, [[1, 2, 3], [2, 4, 6], [4, 5, 6]]),
    "insert by slice": (lambda np, x: np.insert(x, slice(None, None, -1), x), V, [16, 1, 9, 4, 4, 9, 1, 16]),
    "insert by array": (lambda np, x: np.insert(x, places(1, 1), x[:2]), V, [1, 1, 4, 4, 9, 16]),
    "delete": (lambda np, x: np.delete(x, 1, axis=1), A, [[1, 3], [4, 6]]),
    "resize": (lambda np, x: np.resize(x, (2, 4)), A, [[1, 2, 3, 4], [5, 6, 1, 2]]),
    "polyval": (lambda np, x: np.polyval(x[:3], x), V, [14, 41, 126, 329]),
    "rot90": (lambda np, x: np.rot90(x), A, [[3, 6], [2, 5], [1, 4]]),
    "percentile": (lambda np, x: np.percentile(x, 30), V, 3.7),
    "quantile": (lambda np, x: np.quantile(x, 0.4, interpolation="midpoint"), V, 6.5),
    "histogram": (lambda np, x: np.histogram(x, bins=4, range=(0, 16))[0], V, [1, 1, 1, 1]),
    "unravel_index": (lambda np, x: np.unravel_index(places(5, 3), (2, 3))[1], V, [2, 0]),
    "diag_indices_from": (lambda np, x: np.diag_indices_from(x[:, :2])[1], A, [0, 1]),
    "diagflat": (lambda np, x: np.diagflat(x[0, :2], k=-1), A, [[0, 0, 0], [1, 0, 0], [0, 2, 0]]),
    "copysign": (lambda np, x: np.copysign(x, -2), V, [-1, -4, -9, -16]),
    "ldexp": (lambda np, x: np.ldexp(3, x[:2]), V, [6, 48]),
    "hanning": (lambda np, x: np.hanning(5) * x[0], V, [0, 0.5, 1, 0.5, 0]),
    "logspace": (lambda np, x: np.logspace(0, 2, 4, endpoint=False, base=2, dtype="int32"), V, [1, 1, 2, 2]),
    "indices": (lambda np, x: np.indices((2, 2))[1], V, [[0, 1], [0, 1]]),
    "broadcast_arrays": (lambda np, x: np.broadcast_arrays(x[0], x[:, :1])[1], A, [[1, 1, 1], [4, 4, 4]]),
}


class Net(gluon.HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x):
        return self.function(F.np, x)


@pytest.mark.parametrize("name", CASES)
def test_both_modes_give_mxnets_numbers(name):
    function, given, expected = CASES[name]
    x = mx.np.array(given)
    for hybridize in (False, True):
        net = Net(function)
        net.hybridize(hybridize)
        np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-6, atol=1e-7)


def test_what_depends_on_values_or_is_no_place():
    x = mx.np.array(V)
    assert mx.np.delete(x, places(1, 1)).asnumpy().tolist() == [1, 9, 16]
    assert mx.np.bincount(mx.np.array([0, 1, 1, 3], dtype="int32"), minlength=5).asnumpy().tolist() == [1, 2, 0, 1, 0]
    net = Net(lambda np, x: np.delete(x, places(1, 1)))
    net.hybridize()
    with pytest.raises(MXNetError, match="delete of places in an array cannot be compiled"):
        net(x)
    for wrong in (
        lambda np, x: np.insert(x, places(1, 9), x[:2]),
        lambda np, x: np.unravel_index(places(6), (2, 3))[0],
    ):
        for hybridize in (False, True):
            net = Net(wrong)
            net.hybridize(hybridize)
            with pytest.raises((IndexError, MXNetError), match="out of bound"):
                net(x).asnumpy()
    with pytest.raises(MXNetError, match="exceeds the valid range"):
        mx.np.percentile(x, 101)
    with pytest.raises(RuntimeError, match=r"numpy_financial\.npv"):
        mx.np.npv(0.1, x)


# name: (arguments, mean, standard deviation), those of 200,000 numbers of MXNet's
DISTRIBUTIONS = {
    "beta": ((2.0, 3.0), 0.4, 0.2),
    "chisquare": ((3.0,), 0.75, 0.61),
    "exponential": ((2.0,), 2, 2),
    "gamma": ((2.0, 3.0), 6, 4.25),
    "gumbel": ((1.0, 2.0), 2.155, 2.565),
    "logistic": ((1.0, 2.0), 1, 3.63),
    "lognormal": ((0.0, 0.5), 1.133, 0.606),
    "pareto": ((3.0,), 0.5, 0.867),
    "power": ((3.0,), 0.75, 0.194),
    "rayleigh": ((2.0,), 2.507, 1.311),
    "weibull": ((3.0,), 0.893, 0.325),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name):
    arguments, mean, deviation = DISTRIBUTIONS[name]
    draw = getattr(mx.np.random, name)
    mx.random.seed(5)
    x = draw(*arguments, size=(20000,)).asnumpy()
    assert abs(x.mean() - mean) < 5 * deviation / 20000**0.5
    assert x.std() == pytest.approx(deviation, rel=0.15)
    assert draw(*arguments).shape == () and draw(mx.np.array([2.0, 3]), *arguments[1:], size=(3, 2)).shape == (3, 2)


def test_gradients_of_distributions():
    """Numbers that scale with a parameter have its gradient; MXNet takes beta, gamma and power as constants."""
    scale = mx.np.array([2.0])
    scale.attach_grad()
    with mx.autograd.record():
        y = mx.np.random.exponential(scale, size=(5,))
    y.backward()
    assert scale.grad.item() == pytest.approx(y.asnumpy().sum() / 2, rel=1e-5)
    with mx.autograd.record():
        y = mx.np.random.pareto(scale, size=(5,))
    y.backward()
    numbers = y.asnumpy()
    assert scale.grad.item() == pytest.approx(-((1 + numbers) * np.log1p(numbers)).sum() / 2, rel=1e-4)
    with mx.autograd.record():
        y = mx.np.random.gamma(scale, scale, size=(5,))
    y.backward()
    assert scale.grad.item() == 0
    with pytest.raises(MXNetError, match="expect scale >= 0"):
        mx.np.random.exponential(-1.0)


def test_choice_and_normal_vectors():
    mx.random.seed(3)
    p = mx.np.array([0.2, 0.3, 0.5])
    counts = np.bincount(mx.np.random.choice(3, 20000, p=p).asnumpy())
    assert np.abs(counts / 20000 - p.asnumpy()).max() < 0.02
    assert sorted(mx.np.random.choice(6, (2, 3), replace=False).asnumpy().ravel()) == [*range(6)]
    assert mx.np.random.choice(mx.np.array([5.0, 6]), 4).dtype == np.float32
    with pytest.raises(MXNetError, match="cannot take 5 of 3 without replacement"):
        mx.np.random.choice(3, 5, replace=False)
    mean, cov = mx.np.array([1.0, -1]), mx.np.array([[4, 1.5], [1.5, 1]])
    x = mx.np.random.multivariate_normal(mean, cov, size=(20000,)).asnumpy()
    np.testing.assert_allclose(np.cov(x.T), [[4.5625, 0.496], [0.496, 0.4375]], atol=0.15)  # MXNet's, LᵀL
