"""Metrics of regression: errors, and correlation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.metric.base import NAN, EvalMetric, alias, batches, check_label_shapes, located, register

Names = list[str] | None


class _Error(EvalMetric):
    """The mean over arrays of `error(difference)`."""

    def __init__(self, name: str, output_names: Names, label_names: Names) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    @staticmethod
    def error(difference: np.ndarray) -> Any:
        raise NotImplementedError

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            # Vectors become columns, so that [n] and [n, 1] do not broadcast to a matrix.
            label, pred = (x.reshape(-1, 1) if x.ndim == 1 else x for x in (label, pred))
            self._add(self.error(label - pred), 1)


@register
class MAE(_Error):
    """The mean of |label − prediction|.

    Labels and predictions of equal shapes; the mean over calls of `update`.

    >>> metric = mx.metric.MAE()
    >>> metric.update([mx.nd.array([1, 2])], [mx.nd.array([1, 5])])
    >>> metric.get()
    ('mae', 1.5)
    """

    def __init__(self, name: str = "mae", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)

    @staticmethod
    def error(difference: np.ndarray) -> Any:
        return np.abs(difference).mean()


@register
class MSE(_Error):
    """The mean of (label − prediction)².

    Labels and predictions of equal shapes; the mean over calls of `update`.

    >>> metric = mx.metric.MSE()
    >>> metric.update([mx.nd.array([1, 2])], [mx.nd.array([1, 5])])
    >>> metric.get()
    ('mse', 4.5)
    """

    def __init__(self, name: str = "mse", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)

    @staticmethod
    def error(difference: np.ndarray) -> Any:
        return (difference**2.0).mean()


@register
class RMSE(_Error):
    """The mean, over arrays, of the root of the mean squared error.

    Labels and predictions of equal shapes.

    >>> metric = mx.metric.RMSE()
    >>> metric.update([mx.nd.array([1, 2])], [mx.nd.array([4, 5])])
    >>> metric.get()
    ('rmse', 3.0)
    """

    def __init__(self, name: str = "rmse", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)

    @staticmethod
    def error(difference: np.ndarray) -> Any:
        return np.sqrt((difference**2.0).mean())


@register
@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions: the mean over arrays ('macro'), or of all numbers ('micro').

    Labels and predictions of equal shapes.

    >>> metric = mx.metric.PearsonCorrelation()
    >>> metric.update([mx.nd.array([1, 2, 3])], [mx.nd.array([2, 4, 6])])
    >>> round(float(metric.get()[1]), 4)
    1.0
    """

    def __init__(
        self, name: str = "pearsonr", output_names: Names = None, label_names: Names = None, average: str = "macro"
    ) -> None:
        self.average = average
        super().__init__(name, output_names, label_names, average=average, has_global_stats=True)

    def reset(self) -> None:
        super().reset()
        self._count = 0
        self._means = np.zeros(2)
        self._scatter: Any = np.zeros((2, 2))
        """Sums of products of deviations from the means, of label and prediction."""

    @located
    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            check_label_shapes(label, pred, False, True)
            pair = np.stack([label.ravel(), pred.ravel()]).astype(np.float64)
            if self.average == "macro":
                self._add(np.asarray(np.corrcoef(pair))[0, 1], 1)
                continue
            # Chan's formula: the sum of the scatter within the new numbers, within the old, and between their means.
            n = pair.shape[1]
            means: Any = pair.mean(1)
            between = np.asarray(means - self._means)
            weight = self._count * n / (self._count + n)
            centered = pair - means[:, None]
            self._scatter += centered @ centered.T + weight * np.outer(between, between)
            self._means += between * n / (self._count + n)
            self._count += n
            self.num_inst += 1
            self.global_num_inst += 1

    def get(self) -> tuple[str, float]:
        if self.average == "macro" or not self._count:
            return super().get()
        spread = self._scatter[0, 0] * self._scatter[1, 1]
        return self.name, float(self._scatter[0, 1]) / math.sqrt(spread) if spread else NAN

    def get_global(self) -> tuple[str, float]:
        return super().get_global() if self.average == "macro" else self.get()
