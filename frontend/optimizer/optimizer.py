"""The base of optimizers: learning rate and weight decay of each parameter, and the registry by name.

Optimizers can be created and configured, and a user's optimizer that defines `update` works. Those in `rules` have no
`update` yet, because there are no gradients.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.modes import no_gradients
from gluonjit.ndarray import NDArray
from gluonjit.training.schedules import LRScheduler

T = TypeVar("T", bound=type)


class Optimizer:
    """Settings that all optimizers share.

    * `rescale_grad` multiplies gradients, before `clip_gradient` clips them to ±`clip_gradient` (None: not at all).
    * `learning_rate` overrides the start of `lr_scheduler`; with neither it is 0.01. `wd` is the weight decay.
    * `param_idx2name` and `param_dict` map the index passed to `update` to names and gluon Parameters; from `sym`, the
      attributes `__lr_mult__` and `__wd_mult__` of variables are used.
    * `multi_precision` keeps float16 weights in float32 as well.
    """

    opt_registry: ClassVar[dict[str, type[Optimizer]]] = {}

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: dict[int, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: LRScheduler | None = None,
        sym: Any = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: dict[int, Any] | None = None,
    ) -> None:
        if param_idx2name is not None and not isinstance(param_idx2name, dict):
            raise AssertionError("param_idx2name should be a dict of param indexes to names.")
        self.rescale_grad = rescale_grad
        self.lr_scheduler = lr_scheduler
        self.lr = 0.01 if learning_rate is None and lr_scheduler is None else learning_rate
        if lr_scheduler is not None and learning_rate is not None and lr_scheduler.base_lr != learning_rate:
            warnings.warn(
                "learning rate from ``lr_scheduler`` has been overwritten by ``learning_rate`` in optimizer.",
                UserWarning,
                stacklevel=3,
            )
            lr_scheduler.base_lr = learning_rate
        self.wd = wd
        self.clip_gradient = clip_gradient
        self.multi_precision = multi_precision
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update
        self.aggregate_num = 0
        self._all_index_update_counts: dict[int, dict[Any, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self.idx2name = dict(param_idx2name or {})
        self.param_dict = param_dict or {}
        self.sym_info = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        self.lr_mult: dict[Any, float] = {}
        self.wd_mult: dict[Any, float] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    # The registry

    @staticmethod
    def register(klass: T) -> T:
        """Class decorator: registers the optimizer under its class name, which is case-insensitive."""
        if not isinstance(klass, type):
            raise AssertionError(f"register takes a class, not {klass!r}")
        name = klass.__name__.lower()
        old = Optimizer.opt_registry.get(name)
        if old is not None:
            warnings.warn(
                f"WARNING: New optimizer {klass.__module__}.{klass.__name__} is overriding existing optimizer "
                f"{old.__module__}.{old.__name__}",
                stacklevel=2,
            )
        Optimizer.opt_registry[name] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """The optimizer registered as `name`, with the given settings."""
        klass = Optimizer.opt_registry.get(name.lower())
        if klass is None:
            hint = did_you_mean(name.lower(), Optimizer.opt_registry)
            raise ValueError(f"Cannot find optimizer {name}{hint}")
        return klass(**kwargs)

    # Rates

    @property
    def learning_rate(self) -> Any:
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        if self.lr_scheduler is not None:
            raise UserWarning(
                "LRScheduler of the optimizer has already been defined. Note that set_learning_rate can mutate the "
                "value of the learning rate of the optimizer only when the LRScheduler of the optimizer is undefined."
            )
        self.lr = lr

    def set_lr_mult(self, args_lr_mult: dict[Any, float]) -> None:
        """Sets factors of the learning rate, by parameter name or index."""
        self.lr_mult = {**self._from_symbol("__lr_mult__"), **args_lr_mult}

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Sets factors of the weight decay; the default is 0 for names that end in neither `_weight` nor `_gamma`."""
        spared = {n: 0.0 for n in self.idx2name.values() if not n.endswith(("_weight", "_gamma"))}
        self.wd_mult = {**spared, **self._from_symbol("__wd_mult__"), **args_wd_mult}

    def _from_symbol(self, key: str) -> dict[str, float]:
        if not self.sym_info:
            return {}
        attrs, names = self.sym_info
        return {name: float(attrs[name][key]) for name in names if key in attrs.get(name, ())}

    def _get_lrs(self, indices: Sequence[Any]) -> list[float]:
        rate = self.learning_rate
        return [rate * self._multiplier(i, "lr_mult") for i in indices]

    def _get_lr(self, index: Any) -> float:
        return self._get_lrs([index])[0]

    def _get_wds(self, indices: Sequence[Any]) -> list[float]:
        return [self.wd * self._multiplier(i, "wd_mult") for i in indices]

    def _get_wd(self, index: Any) -> float:
        return self._get_wds([index])[0]

    def _multiplier(self, index: Any, key: str) -> float:
        if index in self.param_dict:
            return getattr(self.param_dict[index], key)
        table = getattr(self, key)
        return table[index] if index in table else table.get(self.idx2name.get(index), 1.0)

    # Updates

    def _set_current_context(self, device_id: int) -> None:
        """Selects the device whose updates are counted; replicas of a parameter are updated one after another."""
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: Any) -> None:
        for i in index if isinstance(index, (list, tuple)) else [index]:
            count = self._index_update_count.get(i, self.begin_num_update) + 1
            self._index_update_count[i] = count
            self.num_update = max(count, self.num_update)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """The state that `update` keeps for a weight between calls, or None."""

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """`create_state`; a float16 weight under `multi_precision` gets (its float32 copy, that copy's state)."""
        if weight.dtype != np.float16:
            return self.create_state(index, weight)
        if self.multi_precision:
            master = weight.astype(np.float32)
            return master, self.create_state(index, master)
        warnings.warn(
            "Accumulating with float16 in optimizer can lead to poor accuracy or slow convergence. "
            "Consider using multi_precision=True option of the optimizer",
            stacklevel=2,
        )
        return self.create_state(index, weight)

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Changes `weight` in place, given its gradient; subclasses define it."""
        no_gradients(f"{type(self).__name__}.update")

    def update_multi_precision(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """`update`; a float16 weight under `multi_precision` is updated in float32 and rounded."""
        if self.multi_precision and weight.dtype == np.float16:
            master, inner = state
            self.update(index, master, grad.astype(np.float32), inner)
            weight[:] = master
        else:
            self.update(index, weight, grad, state)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "param_dict"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "param_dict": {}}


register = Optimizer.register
create = Optimizer.create_optimizer


class Updater:
    """An optimizer with the states of all weights: `updater(index, gradient, weight)` updates in place."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Each argument may be a list, for several weights."""
        several = isinstance(index, (list, tuple))
        for i, g, w in zip(index, grad, weight) if several else [(index, grad, weight)]:
            if i not in self.states:
                self.states[i] = self.optimizer.create_state_multi_precision(i, w)
            self.optimizer.update_multi_precision(i, w, g, self.states[i])

    def set_states(self, states: bytes) -> None:
        """Loads what `get_states` returned. The bytes are unpickled, so they must be trusted."""
        loaded = pickle.loads(states)
        if isinstance(loaded, tuple) and len(loaded) == 2:
            self.states, self.optimizer = loaded
        else:
            self.states = loaded

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        return pickle.dumps((self.states, self.optimizer) if dump_optimizer else self.states)


def get_updater(optimizer: Optimizer) -> Updater:
    return Updater(optimizer)


_mxnet_names.explain(__name__)
