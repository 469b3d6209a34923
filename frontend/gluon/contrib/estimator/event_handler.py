"""Event handlers: what an estimator calls before and after training, epochs and batches.

A handler derives from the events that it wants to be told of. Handlers with a lower `priority` (default 0) are called
first. `batch_end` and `epoch_end` return whether to stop.
"""

from __future__ import annotations

import math
import os
import re
import time
import warnings
from typing import Any

from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.contrib.estimator.metric_checks import checked_metrics
from gluonjit.metric import CompositeEvalMetric, EvalMetric
from gluonjit.metric import Loss as LossMetric

__all__ = [
    "BatchBegin",
    "BatchEnd",
    "CheckpointHandler",
    "EarlyStoppingHandler",
    "EpochBegin",
    "EpochEnd",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "ProgressBarHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
]


class EventHandler:
    """The base of all."""


class TrainBegin(EventHandler):
    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        pass


class TrainEnd(EventHandler):
    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        pass


class EpochBegin(EventHandler):
    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        pass


class EpochEnd(EventHandler):
    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        return False


class BatchBegin(EventHandler):
    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        pass


class BatchEnd(EventHandler):
    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        return False


class StoppingHandler(TrainBegin, BatchEnd, EpochEnd):
    """Stops after the number of epochs or batches that `fit` was asked for."""

    def __init__(self, max_epoch: int | None = None, max_batch: int | None = None) -> None:
        self.max_epoch = max_epoch
        self.max_batch = max_batch
        self.current_batch = 0
        self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.max_epoch = estimator.max_epoch
        self.max_batch = estimator.max_batch
        self.current_batch = 0
        self.current_epoch = 0
        self.stop_training = False

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        self.current_batch += 1
        if self.current_batch == self.max_batch:
            self.stop_training = True
        return self.stop_training

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        self.current_epoch += 1
        if self.current_epoch == self.max_epoch:
            self.stop_training = True
        return self.stop_training


class MetricHandler(EpochBegin, BatchEnd):
    """Resets metrics before each epoch and updates them after each batch."""

    def __init__(self, metrics: Any, priority: float = -1000) -> None:
        self.metrics = checked_metrics(metrics)
        self.priority = priority

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            metric.reset()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            if isinstance(metric, LossMetric):
                metric.update(0, kwargs["loss"])
            else:
                metric.update(kwargs["label"], kwargs["pred"])


class ValidationHandler(TrainBegin, BatchEnd, EpochEnd):
    """Calls `eval_fn(val_data=…, batch_axis=…, event_handlers=…)` every `epoch_period` epochs and every `batch_period`
    batches; None or 0: never.
    """

    def __init__(
        self,
        val_data: Any,
        eval_fn: Any,
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        priority: float = -1000,
        event_handlers: Any = None,
    ) -> None:
        self.val_data = val_data
        self.eval_fn = eval_fn
        self.epoch_period = epoch_period
        self.batch_period = batch_period
        self.current_batch = 0
        self.current_epoch = 0
        self.priority = priority
        self.event_handlers = event_handlers

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch = 0
        self.current_epoch = 0

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch += 1
        if self.batch_period and self.current_batch % self.batch_period == 0:
            self._validate(estimator)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch += 1
        if self.epoch_period and self.current_epoch % self.epoch_period == 0:
            self._validate(estimator)

    def _validate(self, estimator: Any) -> None:
        self.eval_fn(val_data=self.val_data, batch_axis=estimator.batch_axis, event_handlers=self.event_handlers)


def _shown(metrics: list[EvalMetric]) -> str:
    return ", ".join("{}: {:.4f}".format(*metric.get()) for metric in metrics)


class LoggingHandler(TrainBegin, TrainEnd, EpochBegin, EpochEnd, BatchBegin, BatchEnd):
    """Logs settings, times and metrics: after each epoch (`log_interval="epoch"`), or every `log_interval` batches."""

    def __init__(self, log_interval: int | str = "epoch", metrics: Any = None, priority: float = math.inf) -> None:
        if not isinstance(log_interval, int) and log_interval != "epoch":
            raise ValueError("log_interval must be either an integer or string 'epoch'")
        self.metrics = checked_metrics(metrics)
        self.batch_index = 0
        self.current_epoch = 0
        self.processed_samples = 0
        self.priority = priority
        self.log_interval = log_interval
        self.log_interval_time = 0.0

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.train_start = time.time()
        trainer = estimator.trainer
        estimator.logger.info(
            "Training begin: using optimizer %s with current learning rate %.4f ",
            type(trainer.optimizer).__name__,
            trainer.learning_rate,
        )
        if estimator.max_epoch:
            estimator.logger.info("Train for %d epochs.", estimator.max_epoch)
        else:
            estimator.logger.info("Train for %d batches.", estimator.max_batch)
        self.current_epoch = 0
        self.batch_index = 0
        self.processed_samples = 0
        self.log_interval_time = 0.0

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        took = time.time() - self.train_start
        text = f"Train finished using total {int(took)}s with {self.current_epoch} epochs. "
        estimator.logger.info((text + _shown(self.metrics)).rstrip(", "))

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.batch_start = time.time()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self.log_interval, int):
            self.processed_samples += kwargs["batch"][0].shape[0]
            self.log_interval_time += time.time() - self.batch_start
            if self.batch_index % self.log_interval == 0:
                estimator.logger.info(
                    f"[Epoch {self.current_epoch}][Batch {self.batch_index}][Samples {self.processed_samples}] "
                    f"time/interval: {self.log_interval_time:.3f}s {_shown(self.metrics)}"
                )
                self.log_interval_time = 0.0
        self.batch_index += 1

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.epoch_start = time.time()
        if any("training" in metric.name for metric in self.metrics):
            rate = estimator.trainer.learning_rate
            estimator.logger.info("[Epoch %d] Begin, current learning rate: %.4f", self.current_epoch, rate)
        else:
            estimator.logger.info("Validation Begin")

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        took = time.time() - self.epoch_start
        text = f"[Epoch {self.current_epoch}] Finished in {took:.3f}s, {_shown(self.metrics)}"
        estimator.logger.info(text.rstrip(", "))
        self.current_epoch += 1
        self.batch_index = 0


class _Best:
    """The best value of a metric so far. `mode`: "min", "max", or "auto": by the metric's name."""

    def __init__(self, monitor: EvalMetric, mode: str, owner: str) -> None:
        if mode not in ("auto", "min", "max"):
            warnings.warn(f"{owner}: mode {mode!r} is unknown, 'auto' is used", RuntimeWarning, stacklevel=3)
            mode = "auto"
        name = monitor.get()[0].lower()
        self.larger = mode == "max" or mode == "auto" and any(word in name for word in ("acc", "f1"))
        self.restart()

    def restart(self, value: float | None = None) -> None:
        self.value = value if value is not None else -math.inf if self.larger else math.inf

    def improves(self, value: float, least: float = 0.0) -> bool:
        """Whether `value` is better by more than `least`."""
        return value - least > self.value if self.larger else value + least < self.value


class CheckpointHandler(TrainBegin, BatchEnd, EpochEnd):
    """Saves parameters and trainer states as `<prefix>-epoch<e>batch<b>.params` and `.states`.

    * every `epoch_period` epochs and every `batch_period` batches (None: never); the newest `max_checkpoints` are kept.
    * `save_best`: also `<prefix>-best.…` whenever `monitor` has improved (`mode`: "min", "max", or "auto": larger is
      better for accuracy and F1, smaller for all others).
    * `resume_from_checkpoint`: training goes on from the newest checkpoint in `model_dir`, for what is left of the
      epochs or batches that `fit` is asked for, from the start of the loader. If its files are damaged, or of another
      network, that is an error, and network and trainer stay as they are.

    The graph of a hybridized network is saved as `<prefix>-symbol.json` after the first batch.
    """

    def __init__(
        self,
        model_dir: str,
        model_prefix: str = "model",
        monitor: EvalMetric | None = None,
        verbose: int = 0,
        save_best: bool = False,
        mode: str = "auto",
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        max_checkpoints: int = 5,
        resume_from_checkpoint: bool = False,
    ) -> None:
        if not isinstance(max_checkpoints, int) or max_checkpoints < 0:
            raise ValueError(f"max_checkpoints is a number of checkpoints, got {max_checkpoints!r}")
        self.monitor = monitor
        self.verbose = verbose
        os.makedirs(model_dir, exist_ok=True)
        self.model_dir = model_dir
        self.model_prefix = model_prefix
        self.save_best = save_best
        self.epoch_period = epoch_period
        self.batch_period = batch_period
        self.current_batch = 0
        self.current_epoch = 0
        self.max_checkpoints = max_checkpoints
        self.resume_from_checkpoint = resume_from_checkpoint
        self.saved_checkpoints: list[str] = []
        self.trained_epoch = self.trained_batch = -1
        if save_best:
            if not isinstance(monitor, EvalMetric):
                raise ValueError(
                    "To save best model only, please provide one of the metric objects from estimator.train_metrics "
                    "and estimator.val_metrics as monitor."
                )
            self._best = _Best(monitor, mode, "CheckpointHandler")

    @property
    def best(self) -> float:
        """The best value of `monitor` so far."""
        return self._best.value

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch = 0
        self.current_batch = 0
        if self.save_best:
            self._best.restart()
        if not self.resume_from_checkpoint:
            return
        wrong = self.batch_period if estimator.max_epoch else self.epoch_period
        right = self.epoch_period if estimator.max_epoch else self.batch_period
        if wrong or not right:
            raise AssertionError(
                "To use resume from checkpoint, you must only specify the same type of period you used for training. "
                "For example, if you are training based on number of epochs, you must save only based on epochs, and "
                "set batch_period to None."
            )
        self._resume(estimator)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.current_batch == 0:
            self._save_symbol(estimator)
        if self.batch_period and (self.current_batch + 1) % self.batch_period == 0:
            self._save(estimator)
        self.current_batch += 1

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0:
            self._save(estimator)
        self.current_epoch += 1

    def _save(self, estimator: Any) -> None:
        epoch, batch = self.current_epoch, self.current_batch
        if self.resume_from_checkpoint:  # a checkpoint's batch is counted before it ends, after the end of its epoch
            epoch += self.trained_epoch + 1
            batch += self.trained_batch + (0 if estimator.max_epoch else 1)
        name = f"{self.model_prefix}-epoch{epoch}batch{batch}"
        self._save_as(estimator, name)
        self.saved_checkpoints.append(name)
        while len(self.saved_checkpoints) > self.max_checkpoints:
            self._remove(self.saved_checkpoints.pop(0))
        log = estimator.logger.info if self.verbose > 0 else lambda *args: None
        log(
            "[Epoch %d] CheckpointHandler: trained total %d batches, saving model at %s with prefix: %s",
            self.current_epoch,
            self.current_batch + 1,
            self.model_dir,
            name,
        )
        if self.save_best:
            self._save_if_best(estimator, log)

    def _save_if_best(self, estimator: Any, log: Any) -> None:
        assert self.monitor is not None
        name, value = self.monitor.get()
        before = self._best.value
        if math.isnan(value):
            warnings.warn(
                f"Skipping save best because {name} is not updated, make sure you pass one of the metric objects "
                "estimator.train_metrics and estimator.val_metrics as monitor",
                RuntimeWarning,
                stacklevel=2,
            )
        elif self._best.improves(value):
            self._save_as(estimator, f"{self.model_prefix}-best")
            self._best.value = value
            log(
                "[Epoch %d] CheckpointHandler: %s improved from %0.5f to %0.5f", self.current_epoch, name, before, value
            )
        else:
            log("[Epoch %d] CheckpointHandler: %s did not improve from %0.5f", self.current_epoch, name, before)

    def _save_symbol(self, estimator: Any) -> None:
        path = os.path.join(self.model_dir, f"{self.model_prefix}-symbol.json")
        if isinstance(estimator.net, HybridBlock) and estimator.net._jit_cached is not None:
            graph, _ = estimator.net._jit_exported()
            graph.save(path)
        else:
            estimator.logger.info(
                "Model architecture(symbol file) is not saved, please use HybridBlock to construct your model, and "
                "call net.hybridize() before passing to Estimator in order to save model architecture as %s.",
                path,
            )

    def _save_as(self, estimator: Any, name: str) -> None:
        # States first: a checkpoint is found by its parameters, and then it is whole.
        estimator.trainer.save_states(self._path(name, "states"))
        estimator.net.save_parameters(self._path(name, "params"))

    def _path(self, name: str, kind: str) -> str:
        return os.path.join(self.model_dir, f"{name}.{kind}")

    def _remove(self, name: str) -> None:
        for kind in ("params", "states"):
            if os.path.exists(self._path(name, kind)):
                os.remove(self._path(name, kind))

    def _found(self) -> list[tuple[int, int]]:
        """Epoch and batch of the checkpoints in the folder, oldest first."""
        found = []
        for file in os.listdir(self.model_dir):
            if not (file.startswith(f"{self.model_prefix}-epoch") and file.endswith(".params")):
                continue
            numbers = re.fullmatch(
                r"epoch(0|[1-9][0-9]*)batch(0|[1-9][0-9]*)\.params", file[len(self.model_prefix) + 1 :]
            )
            if numbers is None:
                raise ValueError(
                    f"{file} is not the name of a checkpoint, which is {self.model_prefix}-epoch<number>batch<number>"
                    ".params, with a .states file beside it"
                )
            found.append((int(numbers[1]), int(numbers[2])))
        return sorted(found)

    def _resume(self, estimator: Any) -> None:
        found = self._found()
        self.saved_checkpoints = [f"{self.model_prefix}-epoch{e}batch{b}" for e, b in found]
        by_epochs = bool(estimator.max_epoch)
        wanted, unit = (estimator.max_epoch, "epoch") if by_epochs else (estimator.max_batch, "batch")
        units = "epochs" if by_epochs else "batches"
        if not found:
            self.trained_epoch = self.trained_batch = -1
            estimator.logger.info(
                "CheckpointHandler: No checkpoint found, training from scratch for %d %s", wanted, units
            )
            return
        self.trained_epoch, self.trained_batch = found[-1]
        done = self.trained_epoch if by_epochs else self.trained_batch
        if done >= wanted - 1:
            raise ValueError(
                f"Found checkpoint with maximum number of {unit} {wanted} reached, please specify "
                "resume_from_checkpoint=False (default value) if you want to train from scratch."
            )
        left = wanted - done - 1
        name = self.saved_checkpoints[-1]
        for kind in ("params", "states"):
            if not os.path.exists(self._path(name, kind)):
                raise FileNotFoundError(f"Failed to load checkpoint, {self._path(name, kind)} does not exist")
        estimator.trainer._check_states(self._path(name, "states"))
        estimator.net.load_parameters(self._path(name, "params"), ctx=estimator.context)
        estimator.trainer.load_states(self._path(name, "states"))
        if by_epochs:
            estimator.max_epoch = left
        else:
            estimator.max_batch = left
        estimator.logger.warning(
            "CheckpointHandler: Checkpoint resumed from epoch %d batch %d, continue to train for %d %s",
            self.trained_epoch,
            self.trained_batch,
            left,
            units,
        )


class EarlyStoppingHandler(TrainBegin, EpochEnd, TrainEnd):
    """Stops after `patience` epochs in which `monitor` did not improve by more than `min_delta`.

    `mode` as in `CheckpointHandler`; `baseline`: what the first epochs have to improve on.
    """

    def __init__(
        self,
        monitor: EvalMetric,
        min_delta: float = 0,
        patience: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
    ) -> None:
        if not isinstance(monitor, EvalMetric):
            raise ValueError(
                "Please provide one of the metric objects from estimator.train_metrics and estimator.val_metrics as "
                "monitor."
            )
        if isinstance(monitor, CompositeEvalMetric):
            raise ValueError(
                "CompositeEvalMetric is not supported for EarlyStoppingHandler, please specify a simple metric instead."
            )
        self.monitor = monitor
        self.baseline = baseline
        self.patience = patience
        self.min_delta = min_delta
        self.wait = 0
        self.stopped_epoch = 0
        self.current_epoch = 0
        self.stop_training = False
        self._best = _Best(monitor, mode, "EarlyStoppingHandler")

    @property
    def best(self) -> float:
        """The best value of `monitor` so far, or the baseline."""
        return self._best.value

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.wait = 0
        self.stopped_epoch = 0
        self.current_epoch = 0
        self.stop_training = False
        self._best.restart(self.baseline)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        name, value = self.monitor.get()
        if math.isnan(value):
            warnings.warn(
                f"{name} is not updated, make sure you pass one of the metric objects from estimator.train_metrics and "
                "estimator.val_metrics as monitor.",
                RuntimeWarning,
                stacklevel=2,
            )
        elif self._best.improves(value, self.min_delta):
            self._best.value = value
            self.wait = 0
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch = self.current_epoch
                self.stop_training = True
        self.current_epoch += 1
        return self.stop_training

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.stopped_epoch > 0:
            estimator.logger.info(
                "[Epoch %d] EarlyStoppingHandler: early stopping due to %s not improving",
                self.stopped_epoch,
                self.monitor.get()[0],
            )


class GradientUpdateHandler(BatchEnd):
    """Takes a step of the trainer after each batch; another handler in its place may take one every few batches."""

    def __init__(self, priority: float = -2000) -> None:
        self.priority = priority

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        loss = kwargs["loss"]
        parts = loss if isinstance(loss, list) else [loss]
        estimator.trainer.step(sum(part.shape[0] for part in parts))


class ProgressBarHandler(BatchBegin, BatchEnd, EpochEnd):
    """Shows a bar for each epoch, with the metrics; drawn by tqdm (`pip install gluonjit[progress]`).

    `total`: batches in an epoch; None: the length of the loader, if it has one. `options` are tqdm's. Not in MXNet.
    """

    def __init__(self, total: int | None = None, metrics: Any = None, priority: float = -500, **options: Any) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ImportError("ProgressBarHandler draws with tqdm: pip install gluonjit[progress]") from None
        self.metrics = checked_metrics(metrics)
        self.priority = priority
        self.current_epoch = 0
        self._bar: Any = None
        self._total = total
        self._make = lambda total: tqdm(total=total, desc=f"Epoch {self.current_epoch}", **options)

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        # Not in epoch_begin, where LoggingHandler would write its line into the bar.
        if self._bar is None:
            self._bar = self._make(estimator.batches_per_epoch if self._total is None else self._total)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self._bar.set_postfix({name: f"{value:.4f}" for name, value in (m.get() for m in self.metrics)}, refresh=False)
        self._bar.update()

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self.current_epoch += 1
