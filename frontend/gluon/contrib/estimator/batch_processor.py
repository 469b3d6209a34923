"""`BatchProcessor`: what is done with one batch, which subclasses may change."""

from __future__ import annotations

from typing import Any

from gluonjit.gluon.utils import split_and_load
from gluonjit.language import modes

__all__ = ["BatchProcessor"]

Batch = tuple[list[Any], list[Any], list[Any], list[Any]]
"""Data, labels, predictions and losses, one of each per context."""


class BatchProcessor:
    """Computes predictions and losses of a batch (data, label), split over the estimator's contexts."""

    def _get_data_and_label(self, batch: Any, ctx: Any, batch_axis: int = 0) -> tuple[list[Any], list[Any]]:
        data, label = batch[0], batch[1]
        return split_and_load(data, ctx, batch_axis), split_and_load(label, ctx, batch_axis)

    def evaluate_batch(self, estimator: Any, val_batch: Any, batch_axis: int = 0) -> Batch:
        """The validation network's predictions, and their losses."""
        data, label = self._get_data_and_label(val_batch, estimator.context, batch_axis)
        pred = [estimator.val_net(x) for x in data]
        loss = [estimator.val_loss(p, y) for p, y in zip(pred, label)]
        return data, label, pred, loss

    def fit_batch(self, estimator: Any, train_batch: Any, batch_axis: int = 0) -> Batch:
        """Predictions and losses, recorded, and their gradients; `GradientUpdateHandler` takes the step."""
        data, label = self._get_data_and_label(train_batch, estimator.context, batch_axis)
        with modes.record():
            pred = [estimator.net(x) for x in data]
            loss = [estimator.loss(p, y) for p, y in zip(pred, label)]
        for x in loss:
            x.backward()
        return data, label, pred, loss
