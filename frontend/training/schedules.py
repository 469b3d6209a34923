"""Learning rates as functions of the number of updates: `mx.lr_scheduler`.

All start with an optional warm-up of `warmup_steps` updates, from `warmup_begin_lr` to `base_lr` in equal steps
('linear'), or at `warmup_begin_lr` throughout ('constant').
"""

from __future__ import annotations

from math import cos, pi

__all__ = ["CosineScheduler", "FactorScheduler", "LRScheduler", "MultiFactorScheduler", "PolyScheduler"]


class LRScheduler:
    """The base of all: `scheduler(num_update)` is the learning rate after that many updates.

    During the first `warmup_steps` updates, the rate rises from `warmup_begin_lr` to `base_lr` ('linear'), or stays at
    `warmup_begin_lr` ('constant').

    >>> mx.lr_scheduler.FactorScheduler(step=100, warmup_steps=4, base_lr=0.4)(1)
    0.1
    """

    def __init__(
        self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"
    ) -> None:
        if not isinstance(warmup_steps, int):
            raise AssertionError(f"warmup_steps must be an int, not {type(warmup_steps).__name__}")
        if warmup_begin_lr > base_lr:
            raise ValueError("Base lr has to be higher than warmup_begin_lr")
        if warmup_steps < 0:
            raise ValueError("Warmup steps has to be positive or 0")
        if warmup_mode not in ("linear", "constant"):
            raise ValueError("Supports only linear and constant modes of warmup")
        self.base_lr = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_final_lr = base_lr
        self.warmup_mode = warmup_mode

    def get_warmup_lr(self, num_update: int) -> float:
        """The learning rate during warm-up."""
        if num_update >= self.warmup_steps:
            raise AssertionError(f"update {num_update} is after the warm-up of {self.warmup_steps}")
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        done = num_update / self.warmup_steps
        return self.warmup_begin_lr + (self.warmup_final_lr - self.warmup_begin_lr) * done

    def __call__(self, num_update: int) -> float:
        raise NotImplementedError("must override this")


def _log(num_update: int, rate: float) -> None:
    import logging

    logging.info("Update[%d]: Change learning rate to %0.5e", num_update, rate)


class FactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` after every `step` updates, down to `stop_factor_lr`.

    >>> scheduler = mx.lr_scheduler.FactorScheduler(step=10, factor=0.5, base_lr=1)
    >>> [scheduler(n) for n in (1, 11, 21)]
    [1, 0.5, 0.25]
    """

    def __init__(
        self,
        step: int,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if step < 1:
            raise ValueError("Schedule step must be greater or equal than 1 round")
        if factor > 1.0:
            raise ValueError("Factor must be no more than 1 to make lr reduce")
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr
        self.count = 0

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if self.step < 1:  # in a file
            raise ValueError("Schedule step must be greater or equal than 1 round")
        # Several steps at once, if training continues from a checkpoint.
        while num_update > self.count + self.step:
            self.count += self.step
            self.base_lr = max(self.base_lr * self.factor, self.stop_factor_lr)
            _log(num_update, self.base_lr)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` after each of the updates listed in `step`.

    >>> scheduler = mx.lr_scheduler.MultiFactorScheduler(step=[5, 8], factor=0.5, base_lr=1)
    >>> [scheduler(n) for n in (5, 6, 9)]
    [1, 0.5, 0.25]
    """

    def __init__(
        self,
        step: list[int],
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, list) or not step:
            raise AssertionError("step must be a list of updates that is not empty")
        if any(b <= a for a, b in zip(step, step[1:])):
            raise ValueError("Schedule step must be an increasing integer list")
        if step[0] < 1:
            raise ValueError("Schedule step must be greater or equal than 1 round")
        if factor > 1.0:
            raise ValueError("Factor must be no more than 1 to make lr reduce")
        self.step = step
        self.cur_step_ind = 0
        self.factor = factor
        self.count = 0

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            _log(num_update, self.base_lr)
        return self.base_lr


class _Decay(LRScheduler):
    """Rates from `base_lr` to `final_lr`, reached at `max_update`; afterwards constant."""

    def __init__(
        self,
        max_update: int,
        base_lr: float,
        final_lr: float,
        warmup_steps: int,
        warmup_begin_lr: float,
        warmup_mode: str,
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(max_update, int):
            raise AssertionError(f"max_update must be an int, not {type(max_update).__name__}")
        if max_update < 1:
            raise ValueError("maximum number of updates must be strictly positive")
        self.base_lr_orig = base_lr
        self.max_update = max_update
        self.final_lr = final_lr
        self.max_steps = max_update - warmup_steps

    def remaining(self, progress: float) -> float:
        """The remaining fraction of the difference between `base_lr` and `final_lr` at `progress`, both from 0 to 1."""
        raise NotImplementedError

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if num_update <= self.max_update:
            rest = self.remaining((num_update - self.warmup_steps) / self.max_steps)
            self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * rest
        return self.base_lr


class PolyScheduler(_Decay):
    """final_lr + (base_lr − final_lr) · (1 − progress)^pwr.

    `progress` is the share of `max_update`, warm-up not counted, that is done.

    >>> scheduler = mx.lr_scheduler.PolyScheduler(max_update=10, base_lr=1)
    >>> [scheduler(n) for n in (0, 5, 10)]
    [1.0, 0.25, 0.0]
    """

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.power = pwr

    def remaining(self, progress: float) -> float:
        return (1 - progress) ** self.power


class CosineScheduler(_Decay):
    """final_lr + (base_lr − final_lr) · (1 + cos(π · progress)) / 2.

    `progress` as for `PolyScheduler` (Loshchilov and Hutter, 2016).

    >>> scheduler = mx.lr_scheduler.CosineScheduler(max_update=10, base_lr=1)
    >>> [round(scheduler(n), 3) for n in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)

    def remaining(self, progress: float) -> float:
        return (1 + cos(pi * progress)) / 2
