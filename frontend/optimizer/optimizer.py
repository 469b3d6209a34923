"""The base of optimizers: learning rate and weight decay of each parameter, and the registry by name.

An optimizer of `rules` says what it does to a weight in `_update`. One that a user writes overrides `update`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from operator import attrgetter
from types import NoneType
from typing import Any, ClassVar, TypeVar

import numpy as np

from gluonjit import ndarray
from gluonjit.base import CheckpointError, MXNetError
from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language import rng
from gluonjit.language.interrupts import Uninterrupted
from gluonjit.language.keywords import unexpected
from gluonjit.language.kinds import as_nd
from gluonjit.language.source import quote, user_loc
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.deferred import changes
from gluonjit.optimizer import states as state_files
from gluonjit.optimizer.step import Steps, Update, take
from gluonjit.training.schedules import LRScheduler
from gluonjit.util import is_np_array

T = TypeVar("T", bound=type)


class Optimizer:
    """Settings that all optimizers share.

    * `rescale_grad` multiplies gradients, before `clip_gradient` clips them to ±`clip_gradient` (None: not at all).
    * `learning_rate` overrides the start of `lr_scheduler`; with neither it is 0.01. `wd` is the weight decay.
    * `param_idx2name` and `param_dict` map the index passed to `update` to names and gluon Parameters; from `sym`, the
      attributes `__lr_mult__` and `__wd_mult__` of variables are used.
    * `multi_precision` keeps float16 weights in float32 as well.

    `mx.optimizer.create(name, **settings)` makes one by its name in lower case. In all rules below, g is
    rescale_grad·gradient, clipped, and lr the learning rate, `lr_mult` of the parameter included.

    >>> optimizer = mx.optimizer.create("sgd", learning_rate=0.1, wd=0.01)
    >>> optimizer.learning_rate, optimizer.wd
    (0.1, 0.01)
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
        **unknown: Any,
    ) -> None:
        if unknown:
            raise unexpected(type(self), next(iter(unknown)))
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
        self.allow_np_array = is_np_array()
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

    _counts_matter: ClassVar[bool] = True
    """Whether the numbers of a step may depend on more than plain settings and the learning rate."""

    def _settings(self, indices: Sequence[Any]) -> Any:
        """What `_has_settings` takes; None if it is not known what the numbers of a step depend on."""
        if type(self).__dict__.get("_counts_matter", True) or self.lr_scheduler is not None:
            return None
        own, params = dict(self.__dict__), [*map(self.param_dict.get, indices)]
        if None in params or not all(v.__class__ in _PLAIN for k, v in own.items() if k not in _TABLES):
            return None
        count = changes.parameters  # before what is looked at
        return [own, params, [*map(_MULTIPLIERS, params)], count]

    def _has_settings(self, known: Any) -> bool:
        """Whether a step has the same numbers as when `_settings` gave this."""
        own, params, multipliers, count = known
        own["num_update"] = self.num_update
        if self.__dict__ != own:
            return False
        if count != changes.parameters:
            count = changes.parameters
            if [*map(_MULTIPLIERS, params)] != multipliers:
                return False
            known[3] = count
        return True

    def _set_current_context(self, device_id: int) -> None:
        """Selects the device whose updates are counted; replicas of a parameter are updated one after another."""
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: Any) -> None:
        counts, before, most = self._index_update_count, self.begin_num_update, self.num_update
        for i in index if isinstance(index, (list, tuple)) else [index]:
            counts[i] = count = counts.get(i, before) + 1
            if count > most:
                most = count
        self.num_update = most

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """The state that `update` keeps for a weight between calls, or None."""

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """`create_state`; a float16 weight under `multi_precision` gets (its float32 copy, that copy's state)."""
        if weight.dtype != np.float16:
            return self.create_state(index, weight)
        if self.multi_precision:
            master = weight.astype(np.float32)
            return self._with_master(self.create_state(index, master), master)
        warnings.warn(
            "Accumulating with float16 in optimizer can lead to poor accuracy or slow convergence. "
            "Consider using multi_precision=True option of the optimizer",
            stacklevel=2,
        )
        return self.create_state(index, weight)

    _master_last: ClassVar[bool] = False
    """Whether the state of a float16 weight is (state, its float32 copy), not the other way round."""

    def _with_master(self, state: Any, master: NDArray) -> Any:
        return (state, master) if self._master_last else (master, state)

    def _without_master(self, weight: NDArray, state: Any) -> tuple[NDArray | None, Any]:
        """(the weight's float32 copy or None, the rest of its state)"""
        if not (self.multi_precision and weight.dtype == np.float16 and isinstance(state, (tuple, list))):
            return None, state
        return (state[1], state[0]) if self._master_last else (state[0], state[1])

    def _update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> Update | None:
        """What the next step does to a weight, None for nothing; counts the step. `state` has no float32 copy."""
        raise NotImplementedError(f"{type(self).__name__} must define update(index, weight, grad, state)")

    def _updates(
        self, indices: Sequence[Any], weights: Sequence[NDArray], grads: Sequence[NDArray], states: Sequence[Any]
    ) -> list[Update]:
        """What the next step does to these weights, in mixed precision where the optimizer is asked to."""
        found = []
        for index, weight, grad, state in zip(indices, weights, grads, states, strict=True):
            master, inner = self._without_master(weight, state)
            update = self._update(index, weight, grad, inner)
            if update is not None:
                found.append(update._replace(master=master))
        return found

    @property
    def _has_rules(self) -> bool:
        """Whether steps are described by `_update`, rather than by the user's own methods."""
        own = type(self)
        return (
            own.update is Optimizer.update
            and own.update_multi_precision is Optimizer.update_multi_precision
            and own._update is not Optimizer._update
        )

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Changes `weight` and `state` in place, given the gradient. Each argument may be a list, for several weights.

        An optimizer that a user writes overrides this method.
        """
        several = isinstance(index, (list, tuple))
        with Uninterrupted():
            for i, w, g, s in zip(index, weight, grad, state) if several else [(index, weight, grad, state)]:
                found = self._update(i, w, g, s)
                if found is not None:
                    take([found])

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """`update`; a float16 weight under `multi_precision` is updated in float32 and rounded."""
        several = isinstance(index, (list, tuple))
        if self._has_rules:
            take(
                self._updates(index, weight, grad, state)
                if several
                else self._updates([index], [weight], [grad], [state])
            )
            return
        for i, w, g, s in zip(index, weight, grad, state) if several else [(index, weight, grad, state)]:
            master, inner = self._without_master(w, s)
            if master is None:
                self.update(i, w, g, s)
            else:
                self.update(i, master, g.astype(np.float32), inner)
                w[:] = master

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "param_dict"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "param_dict": {}}


_TABLES = frozenset(
    {"_all_index_update_counts", "_index_update_count", "idx2name", "lr_mult", "num_update", "param_dict", "sym_info"}
) | {"lr_scheduler", "wd_mult"}
"""The attributes that are no settings, or that `_multiplier` looks up."""

_MULTIPLIERS = attrgetter("lr_mult", "wd_mult")
_PLAIN = frozenset({float, int, bool, NoneType})

register = Optimizer.register
create = Optimizer.create_optimizer


class Updater:
    """An optimizer with the states of all weights: `updater(index, gradient, weight)` updates in place.

    >>> updater = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5))
    >>> weight = mx.nd.array([1, 2])
    >>> updater(0, mx.nd.array([1, -1]), weight)
    >>> weight.asnumpy()
    array([0.5, 2.5], dtype=float32)
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self.states_synced: dict[Any, bool] = {}
        """Whether a state is on its weight's device; it may not be, when it comes from a file."""
        self.aggregate_updates = optimizer.aggregate_num > 0
        self._steps = Steps()

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Each argument may be a list, for several weights, which are then updated in one compiled call."""
        several = isinstance(index, (list, tuple))
        indices, grads, weights = (index, grad, weight) if several else ([index], [grad], [weight])
        with Uninterrupted():
            found = self._prepare(list(indices), list(grads), list(weights))
            if found is not None:
                self._steps.take(found)

    def _prepare(self, indices: list[Any], grads: list[Any], weights: list[Any]) -> list[Update] | None:
        """What the step does to these weights, for `Steps.take`; counts it as done.

        An optimizer that a user wrote does it at once: None.
        """
        optimizer = self.optimizer
        if not getattr(optimizer, "allow_np_array", True) and any(x._numpy for x in (*grads, *weights)):
            raise ValueError("Converting np.ndarray to mx.nd.NDArray is not allowed")
        grads, weights = [*map(_of_nd, grads)], [*map(_of_nd, weights)]
        if weights:
            optimizer._set_current_context(weights[0].context.device_id)
        for i, w in zip(indices, weights):
            if i not in self.states:
                self.states[i] = optimizer.create_state_multi_precision(i, w)
                self.states_synced[i] = True
            elif not self.states_synced.get(i, True):
                if optimizer._has_rules:
                    self._check_loaded(i, w)
                self.states[i] = self.sync_state_context(self.states[i], w.context)
                self.states_synced[i] = True
        groups = self._groups(indices, weights, grads)
        if not optimizer._has_rules:
            for group in groups:
                for i, w, g in group:
                    optimizer.update_multi_precision(i, w, g, self.states[i])
            return None
        found = []
        for group in groups:
            own, ws, gs = zip(*group)
            found += optimizer._updates(own, ws, gs, [self.states[i] for i in own])
        return found

    def _groups(self, indices: Sequence[Any], weights: Sequence[Any], grads: Sequence[Any]) -> list[list[Any]]:
        """(index, weight, gradient) of the weights whose rates are computed together: MXNet's aggregated updates."""
        every = list(zip(indices, weights, grads))
        size = self.optimizer.aggregate_num
        if size <= 0:
            return [[one] for one in every]
        by_type: dict[Any, list[Any]] = {}
        for one in every:
            by_type.setdefault(one[1].dtype, []).append(one)
        return [same[k : k + size] for same in by_type.values() for k in range(0, len(same), size)]

    def _check_loaded(self, index: Any, weight: NDArray) -> None:
        """MXNetError if a state from a file does not belong to this weight, but to another optimizer or another
        model."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = self.optimizer.create_state_multi_precision(index, weight)
        if not _is_like(self.states[index], wanted, weight):
            param = self.optimizer.param_dict.get(index)
            known = self.optimizer.idx2name.get(index, index) if param is None else param.name
            raise MXNetError(
                f"the states that were loaded have {_described(self.states[index])} for the weight {known!r}, where "
                f"{type(self.optimizer).__name__} keeps {_described(wanted)}: they belong to another optimizer, or to "
                f"other parameters{quote(user_loc())}"
            )

    def sync_state_context(self, state: Any, context: Any) -> Any:
        """The state, moved to a context."""
        return self._synced(state, context, {})

    def _synced(self, state: Any, context: Any, seen: dict[int, Any]) -> Any:
        if isinstance(state, NDArray):
            return state.as_in_context(context)
        if isinstance(state, (tuple, list)):
            # What a file has once, but refers to often, is visited once.
            if id(state) not in seen:
                seen[id(state)] = type(state)([self._synced(x, context, seen) for x in state])
            return seen[id(state)]
        return state

    def set_states(self, states: bytes, name: str = "states") -> None:
        """Loads what `get_states` returned, here or in MXNet. Only data is read: no code in it runs.

        MXNetError for bytes that are no states, which calls them `name`.
        """
        loaded = state_files.loads(states, Optimizer, name)
        if isinstance(loaded, tuple):
            _check_settings(loaded[1])
            self.states, self.optimizer = loaded
        else:
            self.states = loaded
        self.aggregate_updates = self.optimizer.aggregate_num > 0
        self.states_synced = dict.fromkeys(self.states, False)

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states of all weights, in a form that MXNet reads; with `dump_optimizer` the optimizer, too."""
        return state_files.dumps((self.states, self.optimizer) if dump_optimizer else self.states, Optimizer)


def get_updater(optimizer: Optimizer) -> Updater:
    return Updater(optimizer)


def _of_nd(x: Any) -> Any:
    """The array of `mx.nd` on the same memory: the caller's own stays one of `mx.np`."""
    return as_nd(x._view(x._array)) if x._numpy else x


def _check_settings(optimizer: Optimizer) -> None:
    """CheckpointError for an optimizer from a file with settings that no step can be computed from."""
    if not optimizer._has_rules:
        return
    weight, random = ndarray.zeros(1), rng.get_state()
    try:
        for update in Updater(copy.deepcopy(optimizer))._prepare([0], [weight], [weight]) or ():
            np.array([*update.scalars.values()], np.float64)
    except Exception as e:
        raise CheckpointError(
            f"the optimizer in this file, {type(optimizer).__name__}, has settings that are damaged "
            f"({type(e).__name__}: {e})"
        ) from None
    finally:
        rng.set_state(random)  # SGLD has drawn noise


def _is_like(state: Any, wanted: Any, weight: NDArray) -> bool:
    """Whether a state has the form of `wanted`. Momentum that the optimizer has not asked for is used, as in MXNet."""
    if wanted is None:
        return state is None or isinstance(state, NDArray) and state.shape == weight.shape
    if isinstance(wanted, NDArray):
        return isinstance(state, NDArray) and state.shape == wanted.shape and state.dtype == wanted.dtype
    if isinstance(wanted, (tuple, list)):
        alike = isinstance(state, (tuple, list)) and len(state) == len(wanted)
        return alike and all(_is_like(a, b, weight) for a, b in zip(state, wanted))
    return type(state) is type(wanted)


def _described(state: Any) -> str:
    if isinstance(state, NDArray):
        return f"{np.dtype(state.dtype).name}{list(state.shape)}"
    if isinstance(state, (tuple, list)) and len(state) < 8 and all(isinstance(x, NDArray) for x in state):
        return f"({', '.join(map(_described, state))})"
    return "nothing" if state is None else f"an object of type {type(state).__name__}"


_mxnet_names.explain(__name__)
