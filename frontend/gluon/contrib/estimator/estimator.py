"""`Estimator`: the training loop, with event handlers."""

from __future__ import annotations

import copy
import sys
import warnings
from typing import Any

from gluonjit.context import Context, cpu
from gluonjit.gluon.contrib.estimator.batch_processor import BatchProcessor
from gluonjit.gluon.contrib.estimator.event_handler import (
    BatchBegin,
    BatchEnd,
    EpochBegin,
    EpochEnd,
    EventHandler,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    TrainBegin,
    TrainEnd,
    ValidationHandler,
)
from gluonjit.gluon.contrib.estimator.metric_checks import check_known, checked_metrics, instead, suggested_metrics
from gluonjit.gluon.data import DataLoader
from gluonjit.gluon.loss import Loss
from gluonjit.gluon.trainer import Trainer
from gluonjit.language.source import refusal
from gluonjit.metric import EvalMetric
from gluonjit.metric import Loss as LossMetric

__all__ = ["Estimator"]


class Estimator:
    """Trains `net` with `loss`, and evaluates it.

    * `train_metrics`, `val_metrics`: one or several. By default the loss, and for SoftmaxCrossEntropyLoss the accuracy;
      for validation, copies of the training metrics. Their names get a `training ` or `validation ` in front.
    * `initializer`: for parameters that are not initialized yet; `context`: where, default cpu().
    * `trainer`: default SGD with learning rate 0.001, with a warning.
    * `val_net`, `val_loss`: for validation, if they are others; they should share parameters.
    * `batch_processor`: what is done with a batch.

    `logger` writes to standard output.
    """

    max_epoch: int | None = None
    max_batch: int | None = None
    """How long the current `fit` trains: one of them is None."""
    batch_axis = 0
    batches_per_epoch: int | None = None
    """Batches per epoch of the current `fit` or `evaluate`; None if the loader has no length."""

    def __init__(
        self,
        net: Any,
        loss: Loss,
        train_metrics: Any = None,
        val_metrics: Any = None,
        initializer: Any = None,
        trainer: Trainer | None = None,
        context: Context | list[Context] | None = None,
        val_net: Any = None,
        val_loss: Loss | None = None,
        batch_processor: Any = None,
    ) -> None:
        self.net = net
        self.loss = self._check_loss(loss)
        self._train_metrics = self._training_metrics(train_metrics)
        self._val_metrics = self._validation_metrics(val_metrics)
        self.val_loss = self.loss if val_loss is None else self._check_loss(val_loss)
        self.val_net = net if val_net is None else val_net
        import logging  # few programs need it

        self.logger = logging.Logger(name="Estimator", level=logging.INFO)
        self.logger.addHandler(logging.StreamHandler(sys.stdout))
        self.context = self._check_context(context)
        self._initialize(initializer)
        self.trainer = self._check_trainer(trainer)
        self.batch_processor = self._check_batch_processor(batch_processor)

    @staticmethod
    def _check_loss(loss: Any) -> Loss:
        if not isinstance(loss, Loss):
            raise refusal(
                ValueError, "Estimator", f"loss must be a Loss, refer to gluon.loss.Loss:{loss}{instead(loss)}"
            )
        return loss

    @staticmethod
    def _check_context(context: Any) -> list[Context]:
        found = context if isinstance(context, list) else [context] if context else [cpu()]
        if not all(isinstance(c, Context) for c in found):
            raise ValueError(
                "context must be a Context or a list of Context, for example mx.cpu() or [mx.cpu(0), mx.cpu(1)], refer "
                f"to mxnet.Context:{context}"
            )
        for c in found:
            if c.device_type == "gpu":
                raise AssertionError(f"{c} is not available, please make sure your context is mx.cpu()")
        return found

    @staticmethod
    def _check_batch_processor(given: Any) -> Any:
        if given is None:
            return BatchProcessor()
        if not all(callable(getattr(given, name, None)) for name in ("fit_batch", "evaluate_batch")):
            raise ValueError("Customized Batch Processor must contain fit_batch() and evaluate_batch() methods")
        return given

    def _initialize(self, initializer: Any) -> None:
        if not self._is_initialized():
            self.net.initialize(**({"init": initializer} if initializer else {}), ctx=self.context)
        elif initializer:
            warnings.warn(
                "Network already fully initialized, skipping initialization. You don't need to pass initializer if you "
                "already initialized your net. You can use "
                "net.initialize(init=your_initializer, force_reinit=True) to force re-initialize.",
                stacklevel=3,
            )

    def _is_initialized(self) -> bool:
        try:
            for param in self.net.collect_params().values():
                param.list_ctx()
        except RuntimeError:
            return False
        return True

    def _check_trainer(self, trainer: Any) -> Trainer:
        if not trainer:
            warnings.warn("No trainer specified, default SGD optimizer with learning rate 0.001 is used.", stacklevel=3)
            return Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.001})
        if not isinstance(trainer, Trainer):
            why = f"Trainer must be a Gluon Trainer instance, refer to gluon.Trainer:{trainer}{instead(trainer)}"
            raise refusal(ValueError, "Estimator", why)
        return trainer

    def _training_metrics(self, given: Any) -> list[EvalMetric]:
        metrics = checked_metrics(given)
        if not metrics:
            metrics = [*suggested_metrics(self.loss), LossMetric(self.loss.name.rstrip("1234567890"))]
        for metric in metrics:
            metric.name = f"training {metric.name}"
        return metrics

    def _validation_metrics(self, given: Any) -> list[EvalMetric]:
        metrics = checked_metrics(given) or [copy.deepcopy(metric) for metric in self._train_metrics]
        for metric in metrics:
            if "training" in metric.name:
                metric.name = metric.name.replace("training", "validation")
            else:
                metric.name = f"validation {metric.name}"
        return metrics

    @property
    def train_metrics(self) -> list[EvalMetric]:
        return self._train_metrics

    @property
    def val_metrics(self) -> list[EvalMetric]:
        return self._val_metrics

    @staticmethod
    def _check_data(data: Any) -> None:
        if not isinstance(data, DataLoader):
            raise ValueError(
                "Estimator only support input as Gluon DataLoader. Alternatively, you can transform your DataIter or "
                "any NDArray into Gluon DataLoader. Refer to gluon.data.DataLoader"
            )

    def evaluate(self, val_data: DataLoader, batch_axis: int = 0, event_handlers: Any = None) -> None:
        """Updates `val_metrics` on all of `val_data`; a MetricHandler and a LoggingHandler are added if missing."""
        self._check_data(val_data)
        for metric in self.val_metrics:
            metric.reset()
        given = _handlers(event_handlers)
        defaults: list[EventHandler] = []
        if not _any(given, MetricHandler):
            defaults.append(MetricHandler(metrics=self.val_metrics))
        if not _any(given, LoggingHandler):
            defaults.append(LoggingHandler(metrics=self.val_metrics))
        handlers = _combined(given, defaults, self.val_metrics)
        outer, self.batches_per_epoch = self.batches_per_epoch, _length(val_data)
        for handler in _those(handlers, EpochBegin):
            handler.epoch_begin(self)
        for batch in val_data:
            for handler in _those(handlers, BatchBegin):
                handler.batch_begin(self, batch=batch)
            _, label, pred, loss = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            for handler in _those(handlers, BatchEnd):
                handler.batch_end(self, batch=batch, pred=pred, label=label, loss=loss)
        for handler in _those(handlers, EpochEnd):
            handler.epoch_end(self)
        self.batches_per_epoch = outer

    def fit(
        self,
        train_data: DataLoader,
        val_data: DataLoader | None = None,
        epochs: int | None = None,
        event_handlers: Any = None,
        batches: int | None = None,
        batch_axis: int = 0,
    ) -> None:
        """Trains for a number of `epochs` or of `batches`; give one of them.

        Handlers that stop, step, measure, log, and, given `val_data`, validate are added, unless `event_handlers` has
        one of the kind.
        """
        self._check_data(train_data)
        if (not epochs) == (not batches):
            raise ValueError(
                "Fit only support exactly one type of iteration, train by number of epochs or number of batches. "
                "Please specify one and only one of: epochs or batches."
            )
        self.max_epoch, self.max_batch, self.batch_axis = epochs, batches, batch_axis
        self.batches_per_epoch = _length(train_data)
        handlers = self._prepare_default_handlers(val_data, event_handlers)
        for handler in _those(handlers, TrainBegin):
            handler.train_begin(self)
        stop = False
        while not stop:
            for handler in _those(handlers, EpochBegin):
                handler.epoch_begin(self)
            for batch in train_data:
                for handler in _those(handlers, BatchBegin):
                    handler.batch_begin(self, batch=batch)
                _, label, pred, loss = self.batch_processor.fit_batch(self, batch, batch_axis)
                told = {"batch": batch, "pred": pred, "label": label, "loss": loss}
                # Lists: each handler is told, even when one has asked to stop.
                asked = [handler.batch_end(self, **told) for handler in _those(handlers, BatchEnd)]
                if any(asked):
                    break
            asked = [handler.epoch_end(self) for handler in _those(handlers, EpochEnd)]
            stop = any(asked)
        for handler in _those(handlers, TrainEnd):
            handler.train_end(self)

    @staticmethod
    def _categorize_handlers(event_handlers: list[Any]) -> tuple[list[Any], ...]:
        """The handlers of each event: of training, epochs and batches, begin and end."""
        events = (TrainBegin, EpochBegin, BatchBegin, BatchEnd, EpochEnd, TrainEnd)
        return tuple(_those(event_handlers, event) for event in events)

    def _prepare_default_handlers(self, val_data: Any, event_handlers: Any) -> list[Any]:
        """All handlers of `fit`, in their order."""
        given = _handlers(event_handlers)
        defaults: list[EventHandler] = [StoppingHandler(self.max_epoch, self.max_batch)]
        if not _any(given, GradientUpdateHandler):
            defaults.append(GradientUpdateHandler())
        if not _any(given, MetricHandler):
            defaults.append(MetricHandler(metrics=self.train_metrics))
        if val_data and not _any(given, ValidationHandler):
            defaults.append(ValidationHandler(val_data=val_data, eval_fn=self.evaluate))
        if not _any(given, LoggingHandler):
            defaults.append(LoggingHandler(metrics=self.train_metrics))
        return _combined(given, defaults, [*self.train_metrics, *self.val_metrics])


def _length(loader: DataLoader) -> int | None:
    """The number of batches; None if the loader's sampler does not tell."""
    try:
        return len(loader)
    except TypeError:
        return None


def _handlers(given: Any) -> list[Any]:
    found = [given] if isinstance(given, EventHandler) else list(given or [])
    if not all(isinstance(handler, EventHandler) for handler in found):
        wrong = next(handler for handler in found if not isinstance(handler, EventHandler))
        why = f"handlers must be an EventHandler or a list of EventHandler, got: {given}{instead(wrong)}"
        raise refusal(ValueError, "Estimator", why)
    return found


def _any(handlers: list[Any], kind: type) -> bool:
    return any(isinstance(handler, kind) for handler in handlers)


def _those(handlers: list[Any], event: type) -> list[Any]:
    return [handler for handler in handlers if isinstance(handler, event)]


def _combined(given: list[Any], defaults: list[EventHandler], known: list[EvalMetric]) -> list[Any]:
    """All handlers, in the order of their priority. Those given beside defaults must use metrics of the estimator."""
    handlers = [*given, *defaults]
    if given and defaults:
        for handler in handlers:
            check_known(handler, known)
    return sorted(handlers, key=lambda handler: getattr(handler, "priority", 0))
