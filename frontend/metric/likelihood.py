"""Metrics of probabilities, and means of losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.metric.base import NAN, EvalMetric, alias, batches, located, register
from gluonjit.ndarray import NDArray

Names = list[str] | None


@register
class Perplexity(EvalMetric):
    """exp of the mean of −log p(label). Predictions have the classes along `axis`; each has one label.

    Labels equal to `ignore_label` (None: none) are not counted.

    >>> metric = mx.metric.Perplexity(ignore_label=None)
    >>> metric.update([mx.nd.array([0, 1])], [mx.nd.array([[0.5, 0.5], [0.5, 0.5]])])
    >>> round(metric.get()[1], 4)
    2.0
    """

    def __init__(
        self,
        ignore_label: int | None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(name, output_names, label_names, ignore_label=ignore_label, axis=axis, has_global_stats=True)
        self.ignore_label = ignore_label
        self.axis = axis

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            if label.size * pred.shape[-1] != pred.size:
                raise AssertionError(f"shape mismatch: {label.shape} vs. {pred.shape}")
            scores = np.moveaxis(pred, self.axis, -1).reshape(label.size, -1)
            label = label.astype(np.int64).ravel()
            # Labels out of range are clipped, as by the operator `pick`.
            p = scores[np.arange(label.size), label.clip(0, scores.shape[1] - 1)].astype(np.float64)
            counted = label != self.ignore_label if self.ignore_label is not None else np.ones(label.size, bool)
            self._add(-np.log(np.maximum(p[counted], 1e-10)).sum(), int(counted.sum()))

    def _value(self, total: float, count: int) -> float:
        return math.exp(total / count) if count else NAN


class _LogLikelihood(EvalMetric):
    """The mean of −log(p(label) + eps)."""

    def __init__(self, eps: float, name: str, output_names: Names, label_names: Names) -> None:
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            label = label.astype(np.int64).ravel()
            if label.size != len(pred):
                raise AssertionError(f"{label.size} labels for {len(pred)} predictions")
            self._add(-np.log(pred[np.arange(label.size), label] + self.eps).sum(), label.size)


@register
@alias("ce")
class CrossEntropy(_LogLikelihood):
    """The mean of −log(p(label) + eps).

    Labels (batch,), predictions (batch, classes) of probabilities.

    >>> metric = mx.metric.CrossEntropy()
    >>> metric.update([mx.nd.array([0])], [mx.nd.array([[0.5, 0.5]])])
    >>> round(metric.get()[1], 4)
    0.6931
    """

    def __init__(
        self, eps: float = 1e-12, name: str = "cross-entropy", output_names: Names = None, label_names: Names = None
    ) -> None:
        super().__init__(eps, name, output_names, label_names)


@register
@alias("nll_loss")
class NegativeLogLikelihood(_LogLikelihood):
    """The mean of −log(p(label) + eps).

    Labels (batch,), predictions (batch, classes) of probabilities.

    >>> metric = mx.metric.NegativeLogLikelihood()
    >>> metric.update([mx.nd.array([0])], [mx.nd.array([[0.5, 0.5]])])
    >>> round(metric.get()[1], 4)
    0.6931
    """

    def __init__(
        self, eps: float = 1e-12, name: str = "nll-loss", output_names: Names = None, label_names: Names = None
    ) -> None:
        super().__init__(eps, name, output_names, label_names)


@register
class Loss(EvalMetric):
    """The mean of the predictions, which are losses; labels are ignored.

    >>> metric = mx.metric.Loss()
    >>> metric.update(None, [mx.nd.array([1, 3])])
    >>> metric.get()
    ('loss', 2.0)
    """

    def __init__(self, name: str = "loss", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for pred in [preds] if isinstance(preds, NDArray) else preds:
            self._add(pred.sum().asscalar(), pred.size)


@register
class Torch(Loss):
    """An old name of Loss.

    >>> mx.metric.Torch().get()[0]
    'torch'
    """

    def __init__(self, name: str = "torch", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)


@register
class Caffe(Loss):
    """An old name of Loss.

    >>> mx.metric.Caffe().get()[0]
    'caffe'
    """

    def __init__(self, name: str = "caffe", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)
