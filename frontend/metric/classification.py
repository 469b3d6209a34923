"""Metrics of classification: accuracy, and correlation of predicted and true classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.metric.base import NAN, EvalMetric, alias, batches, check_label_shapes, located, register

Names = list[str] | None


@register
@alias("acc")
class Accuracy(EvalMetric):
    """The share of correct predictions. Predictions are classes, or scores with the classes along `axis`.

    Labels (batch,) of class numbers, predictions (batch, classes) or (batch,). ValueError if the counts differ.

    >>> metric = mx.metric.Accuracy()
    >>> metric.update(mx.nd.array([0, 1]), mx.nd.array([[0.9, 0.1], [0.8, 0.2]]))
    >>> metric.get()
    ('accuracy', 0.5)
    """

    def __init__(
        self, axis: int = 1, name: str = "accuracy", output_names: Names = None, label_names: Names = None
    ) -> None:
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)
        self.axis = axis

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            if pred.shape != label.shape:
                pred = pred.argmax(self.axis)
            pred, label = pred.astype(np.int32).ravel(), label.astype(np.int32).ravel()
            check_label_shapes(label, pred)
            self._add(int((pred == label).sum()), pred.size)


@register
@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """The share of labels that are among the `top_k` classes with the highest scores.

    Labels (batch,), predictions (batch, classes).

    >>> metric = mx.metric.TopKAccuracy(top_k=2)
    >>> metric.update(mx.nd.array([2, 0]), mx.nd.array([[0.1, 0.5, 0.4], [0.1, 0.5, 0.4]]))
    >>> metric.get()
    ('top_k_accuracy_2', 0.5)
    """

    def __init__(
        self, top_k: int = 1, name: str = "top_k_accuracy", output_names: Names = None, label_names: Names = None
    ) -> None:
        if top_k <= 1:
            raise AssertionError("Please use Accuracy if top_k is no more than 1")
        super().__init__(name, output_names, label_names, top_k=top_k, has_global_stats=True)
        self.top_k = top_k
        self.name += f"_{top_k}"

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            if pred.ndim > 2:
                raise AssertionError("Predictions should be no more than 2 dims")
            check_label_shapes(label, pred)
            label = label.astype(np.int32).ravel()
            if pred.ndim == 1:
                self._add(int((np.argsort(pred) == label).sum()), len(pred))
                continue
            k = min(pred.shape[1], self.top_k)
            best = np.argpartition(pred.astype(np.float32), -k)[:, -k:]
            self._add(int((best == label[:, None]).sum()), len(pred))


class _Confusion:
    """Counts of a binary classification: predicted against true."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.true_positives = self.false_positives = self.false_negatives = self.true_negatives = 0

    @property
    def total(self) -> int:
        return self.true_positives + self.false_positives + self.false_negatives + self.true_negatives

    def add(self, label: np.ndarray, pred: np.ndarray, metric: str) -> None:
        """`pred` has scores for the two classes along axis 1; class 1 is positive."""
        check_label_shapes(label, pred)
        if len(np.unique(label)) > 2:
            raise ValueError(f"{metric} currently only supports binary classification.")
        predicted, true = pred.argmax(1) == 1, label.astype(np.int32).ravel() == 1
        self.true_positives += int((predicted & true).sum())
        self.false_positives += int((predicted & ~true).sum())
        self.false_negatives += int((~predicted & true).sum())
        self.true_negatives += int((~predicted & ~true).sum())

    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        if not self.true_positives:
            return 0.0
        return 2 * self.true_positives / (2 * self.true_positives + self.false_positives + self.false_negatives)

    def matthews(self) -> float:
        """Matthews' correlation coefficient; empty rows and columns are left out of the denominator."""
        tp, fp, fn, tn = self.true_positives, self.false_positives, self.false_negatives, self.true_negatives
        if not self.total:
            return 0.0
        sums = (tp + fp, tp + fn, tn + fp, tn + fn)
        return (tp * tn - fp * fn) / math.sqrt(math.prod(s for s in sums if s))


class _Binary(EvalMetric):
    """A score of a binary classification: `average` 'macro' averages over updates, 'micro' uses the summed counts."""

    def __init__(self, name: str, output_names: Names, label_names: Names, average: str) -> None:
        self.average = average
        self._local, self._global = _Confusion(), _Confusion()
        super().__init__(name, output_names, label_names, average=average, has_global_stats=True)

    @staticmethod
    def score(counts: _Confusion) -> float:
        raise NotImplementedError

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            for counts in (self._local, self._global):
                counts.add(label, pred, type(self).__name__)
        if self.average == "macro":
            self._add(self.score(self._local), 1)
            self._local.reset()
            self._global.reset()
        else:
            self.num_inst, self.global_num_inst = self._local.total, self._global.total
            self.sum_metric = self.score(self._local) * self.num_inst
            self.global_sum_metric = self.score(self._global) * self.global_num_inst

    def reset(self) -> None:
        super().reset()
        self._global.reset()

    def reset_local(self) -> None:
        super().reset_local()
        self._local.reset()


@register
class F1(_Binary):
    """2 · precision · recall / (precision + recall).

    Labels (batch,) of 0 and 1, predictions (batch, 2). `average`: 'macro' is the mean over calls of `update`, 'micro'
    counts all of them together. ValueError for more than two different labels.

    >>> metric = mx.metric.F1()
    >>> metric.update(mx.nd.array([1, 1, 0]), mx.nd.array([[0, 1], [1, 0], [1, 0]]))
    >>> metric.get()[0], round(metric.get()[1], 4)
    ('f1', 0.6667)
    """

    def __init__(
        self, name: str = "f1", output_names: Names = None, label_names: Names = None, average: str = "macro"
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    @staticmethod
    def score(counts: _Confusion) -> float:
        return counts.f1()


@register
class MCC(_Binary):
    """Matthews' correlation coefficient.

    (TP·TN − FP·FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN)), from −1 to 1 (Matthews, 1975). Shapes and `average` as for `F1`.

    >>> metric = mx.metric.MCC()
    >>> metric.update(mx.nd.array([1, 1, 0, 0]), mx.nd.array([[0, 1], [1, 0], [1, 0], [1, 0]]))
    >>> round(metric.get()[1], 4)
    0.5774
    """

    def __init__(
        self, name: str = "mcc", output_names: Names = None, label_names: Names = None, average: str = "macro"
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    @staticmethod
    def score(counts: _Confusion) -> float:
        return counts.matthews()


@register
class PCC(EvalMetric):
    """Pearson's correlation of predicted and true classes: Matthews' coefficient for any number of them.

    `lcm` and `gcm` are the local and the global confusion matrix.

    Labels (batch,), predictions (batch, classes).

    >>> metric = mx.metric.PCC()
    >>> metric.update([mx.nd.array([0, 1, 2])], [mx.nd.eye(3)])
    >>> round(metric.get()[1], 4)
    1.0
    """

    lcm: np.ndarray
    gcm: np.ndarray

    def __init__(
        self,
        name: str = "pcc",
        output_names: Names = None,
        label_names: Names = None,
        has_global_stats: bool = True,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=has_global_stats)

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            pred = pred.argmax(1) if pred.shape != label.shape else pred
            pred, label = pred.astype(np.int32).ravel(), label.astype(np.int32).ravel()
            self.lcm = _with_counts(self.lcm, pred, label)
            self.gcm = _with_counts(self.gcm, pred, label)
        self.num_inst += 1
        self.global_num_inst += 1

    @property
    def sum_metric(self) -> float:  # type: ignore[override]
        return _correlation(self.lcm) * self.num_inst

    @property
    def global_sum_metric(self) -> float:  # type: ignore[override]
        return _correlation(self.gcm) * self.global_num_inst

    def reset(self) -> None:
        self.global_num_inst = 0
        self.gcm = np.zeros((2, 2), np.int64)
        self.reset_local()

    def reset_local(self) -> None:
        self.num_inst = 0
        self.lcm = np.zeros((2, 2), np.int64)


def _with_counts(counts: np.ndarray, pred: np.ndarray, label: np.ndarray) -> np.ndarray:
    """A confusion matrix [predicted, true] with more pairs added; it grows with the number of classes seen."""
    size = max(len(counts), int(pred.max(initial=-1)) + 1, int(label.max(initial=-1)) + 1)
    counts = np.pad(counts, (0, size - len(counts)))
    np.add.at(counts, (pred, label), 1)
    return counts


def _correlation(counts: np.ndarray) -> float:
    n, x, y = counts.sum(), counts.sum(1), counts.sum(0)
    spread = float((x * (n - x)).sum()) * float((y * (n - y)).sum())
    return float((counts.diagonal() * n - x * y).sum()) / math.sqrt(spread) if spread else NAN
