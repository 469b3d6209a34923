"""`LossScaler`: how large a factor keeps small gradients in float16 from becoming 0, found while training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from gluonjit import ndarray
from gluonjit.language import modes


class LossScaler:
    """The factor of the loss: halved after a step whose gradients overflow, doubled after 2000 in a row that do not."""

    def __init__(self) -> None:
        self._loss_scale = 2.0**16
        self._next_loss_scale = self._loss_scale
        self._max_loss_scale = 2.0**24
        self._scale_seq_len = 2000
        self._unskipped = 0

    @property
    def loss_scale(self) -> float:
        return self._loss_scale

    def has_overflow(self, params: Iterable[Any], anywhere: Callable[[bool], bool] = bool) -> bool:
        """Whether a gradient is infinite or NaN; the step is then skipped. Chooses the next factor.

        `anywhere(found)`: whether one was found in any process.
        """
        grads = [g for p in params if p.grad_req != "null" for g in p.list_grad()]
        with modes.pause():
            overflow = bool(grads) and not ndarray.multi_all_finite(*grads, num_arrays=len(grads)).asscalar()
        overflow = anywhere(overflow)
        self._loss_scale = self._next_loss_scale
        if overflow:
            self._next_loss_scale = self._loss_scale / 2.0
            self._unskipped = 0
            logging.info("AMP: decreasing loss scale to %f", self._next_loss_scale)
        else:
            self._unskipped += 1
        if self._unskipped == self._scale_seq_len:
            self._unskipped = 0
            self._next_loss_scale = min(self._max_loss_scale, self._loss_scale * 2.0)
            logging.info("AMP: increasing loss scale to %f", self._next_loss_scale)
        return overflow
