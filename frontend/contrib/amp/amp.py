"""Automatic mixed precision: after `init`, operators cast their inputs, by MXNet's lists; losses are scaled."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gluonjit import ndarray, symbol
from gluonjit.contrib.amp import operator_lists as lists
from gluonjit.contrib.amp.loss_scaler import LossScaler
from gluonjit.gluon.trainer import Trainer
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.array import Array
from gluonjit.language.mxnet_names import place_of
from gluonjit.operators.registry import OPERATORS
from gluonjit.optimizer import Optimizer

_amp_initialized = False
"""Programs read it to see whether `init` has been called."""
_amp_loss_scale_initialized = False
_loss_scaler: LossScaler | None = None


def init(
    target_dtype: Any = "float16",
    target_precision_ops: list[str] | None = None,
    conditional_fp32_ops: list[tuple[str, str, list[str]]] | None = None,
    fp32_ops: list[str] | None = None,
) -> None:
    """From here on, operators cast their inputs; to be called before models are made, once.

    `target_dtype`: "float16" or "bfloat16". The lists override MXNet's (`list_lp16_ops` and its like).
    """
    global _amp_initialized, _loss_scaler
    if _amp_initialized:
        return
    target = lists.checked(target_dtype)
    low = lists.list_lp16_ops(target) if target_precision_ops is None else target_precision_ops
    some = lists.list_conditional_fp32_ops(target) if conditional_fp32_ops is None else conditional_fp32_ops
    single = lists.list_fp32_ops(target) if fp32_ops is None else fp32_ops
    _loss_scaler = LossScaler()
    for package in (ndarray, symbol):
        for name in low:
            _wrap(package, name, functools.partial(_casting, package, target))
        for name in single:
            _wrap(package, name, functools.partial(_casting, package, "float32"))
        for name, key, values in some:
            _wrap(package, name, functools.partial(_casting, package, "float32", condition=(key, tuple(values))))
        for name in lists.list_widest_type_cast(target):
            _wrap(package, name, functools.partial(_widening, package))
        for name in lists.list_loss_output_functions(target):
            _wrap(package, name, _scaling if package is ndarray else _warning)
    _amp_initialized = True
    logging.info("Using AMP")


def _wrap(package: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Replaces an operator's function, wherever it is found. Operators with auxiliary states stay as they are: their
    states would be copies."""
    op = OPERATORS.get(name)
    if op is None or op.aux:
        return
    place, short = place_of(name)
    module = sys.modules[f"{package.__name__}.{place}"]
    new = wrapper(getattr(module, short))
    setattr(module, short, new)
    if place == "op":
        setattr(package, short, new)


def _casting(
    package: Any, dtype: str, function: Any, condition: tuple[str, tuple[str, ...]] | None = None
) -> Callable[..., Any]:
    cast = package.amp_cast

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if condition is not None and kwargs.get(condition[0]) not in condition[1]:
            return function(*args, **kwargs)
        out = kwargs.pop("out", None)
        args = tuple([cast(x, dtype=dtype) if isinstance(x, Array) else x for x in args])
        kwargs = {key: cast(x, dtype=dtype) if isinstance(x, Array) else x for key, x in kwargs.items()}
        return function(*args, **kwargs) if out is None else function(*args, out=out, **kwargs)

    return call


def _widening(package: Any, function: Any) -> Callable[..., Any]:
    cast = package.amp_multicast

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        keys = [key for key, x in kwargs.items() if isinstance(x, Array)]
        places = [k for k, x in enumerate(args) if isinstance(x, Array)]
        arrays = [*(args[k] for k in places), *(kwargs[key] for key in keys)]
        if len(arrays) > 1:
            wide = list(cast(*arrays, num_outputs=len(arrays)))
            given = list(args)
            for k, x in zip(places, wide):
                given[k] = x
            args, kwargs = tuple(given), {**kwargs, **dict(zip(keys, wide[len(places) :]))}
        return function(*args, **kwargs) if out is None else function(*args, out=out, **kwargs)

    return call


def _scaling(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        assert _loss_scaler is not None
        kwargs["grad_scale"] = kwargs.get("grad_scale", 1.0) * _loss_scaler.loss_scale
        return function(*args, **kwargs)

    return call


def _warning(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        logging.warning(
            "%s does not support dynamic loss scaling in symbolic and hybridized execution.", function.__name__
        )
        return function(*args, **kwargs)

    return call


def _checked_trainer(given: Any) -> Trainer:
    if isinstance(given, Optimizer):
        raise TypeError("AMP is currently only compatible with Gluon Trainer")
    if not isinstance(given, Trainer):
        raise TypeError(f"optimizer_or_trainer should be a Gluon Trainer or an optimizer, instead is {type(given)}")
    return given


def init_trainer(optimizer_or_trainer: Any) -> None:
    """Has a trainer check for overflow at each step, skip those that overflow, and adapt the loss's scale."""
    global _amp_loss_scale_initialized
    if not _amp_initialized:
        raise AssertionError("AMP not initialized, did you forget to call amp.init()?")
    trainer: Any = _checked_trainer(optimizer_or_trainer)
    # The first trainer's scaler is also that of loss layers.
    trainer._amp_loss_scaler = LossScaler() if _amp_loss_scale_initialized else _loss_scaler
    trainer._amp_original_scale = trainer._scale
    _amp_loss_scale_initialized = True


@contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Any) -> Iterator[Any]:
    """`with scale_loss(loss, trainer) as scaled: autograd.backward(scaled)`; the step divides the gradients again."""
    scaler = getattr(optimizer_or_trainer, "_amp_loss_scaler", None)
    if scaler is None:
        raise AssertionError("Loss scaler is not initialized, did you forget to call amp.init_trainer()?")
    optimizer_or_trainer._scale = optimizer_or_trainer._amp_original_scale / scaler.loss_scale
    if isinstance(loss, (list, tuple)):
        yield [x * scaler.loss_scale for x in loss]
    else:
        yield loss * scaler.loss_scale


def unscale(optimizer_or_trainer: Any) -> None:
    """Divides the gradients by the loss's scale now, for programs that read or clip them before the step."""
    trainer = _checked_trainer(optimizer_or_trainer)
    for param in trainer._params:
        if param.grad_req != "null":
            for g in param.list_grad():
                g[:] = g * trainer._scale
    trainer._scale = 1.0


_mxnet_names.explain(__name__)
