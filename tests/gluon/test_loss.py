"""Losses: formulas on a few numbers, weights and axes, errors. Their results at large are in test_oracle.py."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.gluon import loss
from support.compare import assert_close

pytestmark = pytest.mark.usefixtures("fresh_names")


def array(*values):
    return mx.nd.array(values)


def test_what_each_loss_is():
    pred, label = array([1.0, -2.0], [0.5, 3.0]), array([0.0, 2.0], [1.0, -1.0])
    distance = np.array([[1.0, 4.0], [0.5, 4.0]])
    assert_close(loss.L2Loss()(pred, label).asnumpy(), (distance**2 / 2).mean(1).astype(np.float32))
    assert_close(loss.L1Loss()(pred, label).asnumpy(), distance.mean(1).astype(np.float32))
    huber = np.where(distance > 1, distance - 0.5, distance**2 / 2)
    assert_close(loss.HuberLoss()(pred, label).asnumpy(), huber.mean(1).astype(np.float32))
    signs = array([1.0, -1.0], [-1.0, 1.0])
    hinge = np.maximum(0, 1 - pred.asnumpy() * signs.asnumpy())
    assert_close(loss.HingeLoss()(pred, signs).asnumpy(), hinge.mean(1))
    assert_close(loss.SquaredHingeLoss()(pred, signs).asnumpy(), (hinge**2).mean(1))
    logistic = np.log1p(np.exp(-pred.asnumpy() * signs.asnumpy()))
    assert_close(loss.LogisticLoss()(pred, signs).asnumpy(), logistic.mean(1))
    p = np.exp(pred.asnumpy()) / np.exp(pred.asnumpy()).sum(1, keepdims=True)
    assert_close(loss.SoftmaxCELoss()(pred, array(1, 0)).asnumpy(), -np.log(p[[0, 1], [1, 0]]))
    assert_close(loss.TripletLoss(margin=0)(pred, label, signs).asnumpy(), np.array([16.0, 10.0], np.float32))


def test_extreme_logits_do_not_overflow():
    pred, label = array([500.0, -500.0]), array([0.0, 1.0])
    assert_close(loss.SigmoidBCELoss()(pred, label).asnumpy(), np.array([500.0], np.float32))
    assert_close(loss.LogisticLoss()(pred, array([-1.0, 1.0])).asnumpy(), np.array([500.0], np.float32))
    assert_close(loss.SoftmaxCELoss()(pred, array(1)).asnumpy(), np.array([1000.0], np.float32))


def test_weights_and_batch_axis():
    pred, label = mx.nd.ones((2, 3, 4)), mx.nd.zeros((2, 3, 4))
    assert loss.L1Loss(batch_axis=1)(pred, label).shape == (3,)
    weighted = loss.L1Loss(weight=3)(pred, label, array([[0.5]], [[2.0]]))
    np.testing.assert_array_equal(weighted.asnumpy(), [1.5, 6.0])
    with pytest.raises(AssertionError, match="weight must be a number"):
        loss.L1Loss(weight="much")(pred, label)
    np.testing.assert_array_equal(loss._apply_weighting(mx.nd, label + 1, 2.0, None).asnumpy(), np.full((2, 3, 4), 2))
    assert loss._reshape_like(mx.nd, pred, mx.nd.zeros((6, 4))).shape == (6, 4)


def test_names_and_printed_forms():
    assert loss.SigmoidBCELoss is loss.SigmoidBinaryCrossEntropyLoss
    assert loss.SoftmaxCELoss is loss.SoftmaxCrossEntropyLoss
    assert repr(loss.SoftmaxCELoss()) == "SoftmaxCrossEntropyLoss(batch_axis=0, w=None)"
    assert repr(loss.CTCLoss(label_layout="TN", weight=2)) == "CTCLoss(batch_axis=1, w=2)"
    assert repr(loss.L2Loss()) == "L2Loss(batch_axis=0, w=1.0)"
    assert gluon.loss.HuberLoss(prefix="h_").prefix == "h_"


def test_errors():
    with pytest.raises(ValueError, match="label_format can only be signed or binary"):
        loss.LogisticLoss(label_format="ternary")
    with pytest.raises(AssertionError, match="'NTC' and 'TNC' layouts for pred"):
        loss.CTCLoss(layout="CNT")
    with pytest.raises(AssertionError, match="'NT' and 'TN' layouts for label"):
        loss.CTCLoss(label_layout="N")
    with pytest.raises(AssertionError, match="must have one shape"):
        loss.SDMLLoss()(mx.nd.ones((2, 3)), mx.nd.ones((3, 3)))
    with pytest.raises(NotImplementedError):
        loss.Loss(None, 0)(mx.nd.ones((2,)))


class Own(loss.Loss):
    """A loss as users write it."""

    def hybrid_forward(self, F, pred, label, sample_weight=None):
        error = F.square(pred - loss._reshape_like(F, label, pred))
        error = loss._apply_weighting(F, error, self._weight, sample_weight)
        return F.mean(error, axis=self._batch_axis, exclude=True)


@pytest.mark.parametrize("hybridize", [False, True])
def test_losses_of_ones_own(hybridize):
    own, known = Own(0.5, 0), loss.L2Loss()
    own.hybridize(hybridize)
    pred, label = mx.nd.random.uniform(shape=(3, 4)), mx.nd.random.uniform(shape=(12,))
    for weight in (None, mx.nd.ones((3, 1)) * 2):
        args = (pred, label) if weight is None else (pred, label, weight)
        assert_close(own(*args).asnumpy(), known(*args).asnumpy())
