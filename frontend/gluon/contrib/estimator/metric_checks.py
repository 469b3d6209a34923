"""What the estimator and its handlers share: checks of metrics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gluonjit.gluon.loss import Loss, SoftmaxCrossEntropyLoss
from gluonjit.language.source import refusal
from gluonjit.metric import Accuracy, CompositeEvalMetric, EvalMetric


def checked_metrics(metrics: Any) -> list[EvalMetric]:
    """A list of simple metrics, from one, several or a composite; ValueError for anything else."""
    if isinstance(metrics, CompositeEvalMetric):
        return [m for metric in metrics.metrics for m in checked_metrics(metric)]
    if isinstance(metrics, EvalMetric):
        return [metrics]
    found = list(metrics or []) if not metrics or isinstance(metrics, (list, tuple)) else [metrics]
    for m in found:
        if not isinstance(m, EvalMetric):
            why = f"metrics must be a Metric or a list of Metric, refer to mxnet.metric.EvalMetric: {m!r}{instead(m)}"
            raise refusal(ValueError, "Estimator", why)
    return found


def instead(given: Any) -> str:
    """What to do about something given in place of an instance."""
    if isinstance(given, type):
        return f"; this is the class, pass an instance: {given.__name__}(…)"
    return f"; its type is {type(given).__name__}"


def check_known(handler: Any, known: Collection[EvalMetric]) -> None:
    """ValueError if a handler updates or logs a metric that the estimator does not have."""
    for name in dir(handler):
        if "metric" not in name:
            continue
        held = getattr(handler, name)
        for metric in held if isinstance(held, list) else [held]:
            if isinstance(metric, EvalMetric) and not any(metric is m for m in known):
                raise ValueError(
                    f"Event handler {type(handler).__name__} refers to a metric instance {metric} outside of the known "
                    "training and validation metrics. Please use the metrics from estimator.train_metrics and "
                    "estimator.val_metrics instead."
                )


def suggested_metrics(loss: Loss) -> list[EvalMetric]:
    """What is measured beside the loss, if nothing was asked for."""
    return [Accuracy()] if isinstance(loss, SoftmaxCrossEntropyLoss) else []
