"""Metrics beyond what real MXNet was asked (test_python_api.py): how they are made, and what they refuse."""

import math

import numpy as np
import pytest

from gluonjit import metric, nd


def test_made_from_names_functions_and_lists():
    assert isinstance(metric.create("ACC"), metric.Accuracy)
    assert isinstance(metric.create('["topkaccuracy", {"top_k": 3}]'), metric.TopKAccuracy)
    assert isinstance(metric.create({"metric": "f1", "average": "micro"}), metric.F1)
    several = metric.create(["acc", lambda a, b: 1.0])
    assert several.get()[0] == ["accuracy", "custom(<lambda>)"]
    again = metric.create(several.metrics[0].get_config())
    assert type(again) is metric.Accuracy and again.axis == 1
    with pytest.raises(AssertionError, match="acuracy is not registered.*did you mean 'accuracy'"):
        metric.create("acuracy")


def test_own_metrics():
    @metric.register
    @metric.alias("first")
    class FirstElement(metric.EvalMetric):
        def __init__(self, name="first", **kwargs):
            super().__init__(name, **kwargs)

        def update(self, labels, preds):
            self._add(float(preds[0].asnumpy().ravel()[0]), 1)

    for name in ("firstelement", "first"):
        own = metric.create(name)
        own.update([nd.zeros(1)], [nd.array([7])])
        assert own.get() == ("first", 7.0)
    with pytest.warns(UserWarning, match="is overriding existing metric"):
        metric.register(type("FirstElement", (metric.EvalMetric,), {}))


def test_arrays_by_name():
    accuracy = metric.Accuracy(output_names=["y"], label_names=["t"])
    arrays = {"y": nd.array([[0, 1], [1, 0]]), "other": nd.zeros(5)}
    accuracy.update_dict({"t": nd.array([1, 1]), "u": nd.zeros(3)}, arrays)
    assert accuracy.get() == ("accuracy", 0.5)
    several = metric.CompositeEvalMetric([metric.Accuracy()], output_names=["y"], label_names=["t"])
    several.update_dict({"t": nd.array([1, 1]), "u": nd.zeros(3)}, arrays)
    assert several.get() == (["accuracy"], [0.5])


def test_single_arrays_need_no_list():
    accuracy = metric.Accuracy()
    accuracy.update(nd.array([1, 0]), nd.array([[0, 1], [0, 1]]))
    assert accuracy.get_name_value() == [("accuracy", 0.5)]


def test_what_they_refuse():
    with pytest.raises(ValueError, match="Shape of labels 1 does not match shape of predictions 2"):
        metric.Accuracy().update([nd.zeros(2)], [nd.zeros((2, 2))] * 2)
    with pytest.raises(ValueError, match="Shape of labels 3 does not match shape of predictions 2"):
        metric.Accuracy().update([nd.zeros(3)], [nd.zeros((2, 2))])
    with pytest.raises(ValueError, match="F1 currently only supports binary"):
        metric.F1().update([nd.array([0, 1, 2])], [nd.ones((3, 3))])
    with pytest.raises(AssertionError, match="use Accuracy"):
        metric.TopKAccuracy(1)
    with pytest.raises(ValueError, match="out of range"):
        metric.CompositeEvalMetric(["acc"]).get_metric(1)
    with pytest.raises(NotImplementedError):
        metric.create(lambda a, b: 0).get_config()


def test_nothing_seen_is_not_a_number():
    for name in ("acc", "f1", "mcc", "pcc", "mae", "ce", "pearsonr", "loss"):
        assert math.isnan(metric.create(name).get()[1])


def test_pearson_of_all_numbers_whatever_the_batches():
    rng = np.random.RandomState(0)
    label, pred = rng.randn(2, 60) + 5
    pearson = metric.PearsonCorrelation(average="micro")
    for part in (slice(0, 7), slice(7, 8), slice(8, 60)):
        pearson.update([nd.array(label[part])], [nd.array(pred[part])])
    assert abs(pearson.get()[1] - np.corrcoef(label, pred)[0, 1]) < 1e-6
    assert pearson.get_global() == pearson.get()


def test_classes_that_come_late():
    pcc = metric.PCC()
    pcc.update([nd.array([0, 1])], [nd.array([0, 1])])
    pcc.update([nd.array([5, 0])], [nd.array([5, 1])])
    assert pcc.lcm.shape == (6, 6) and 0 < pcc.get()[1] < 1


def test_sums_are_float64():
    entropy = metric.CrossEntropy()
    pred = nd.array([[0.3, 0.7]])
    for _ in range(1000):
        entropy.update([nd.array([1])], [pred])
    assert type(entropy.get()[1]) is float
    assert entropy.get()[1] == pytest.approx(-np.log(np.float32(0.7) + 1e-12), rel=1e-7)
