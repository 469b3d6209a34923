"""`mx.contrib.tensorboard`: metrics as curves in TensorBoard."""

from __future__ import annotations

from typing import Any

from gluonjit.language import mxnet_names as _mxnet_names


class LogMetricsCallback:
    """A callback of `fit` that writes metrics to the folder `logging_dir`, named `prefix-name`, by the package mxboard.

    MXNet logs an error if there is no mxboard, and fails at the first batch; here it is an ImportError.
    """

    def __init__(self, logging_dir: str, prefix: str | None = None) -> None:
        from mxboard import SummaryWriter  # an optional package

        self.prefix = prefix
        self.summary_writer = SummaryWriter(logging_dir)

    def __call__(self, param: Any) -> None:
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            shown = name if self.prefix is None else f"{self.prefix}-{name}"
            self.summary_writer.add_scalar(shown, value, global_step=param.epoch)


_mxnet_names.explain(__name__)
