"""`gluon.Trainer`: an optimizer for a set of parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit import kvstore as kv
from gluonjit import optimizer as opt
from gluonjit.codes.compile_log import ExplainedSteps, trainers
from gluonjit.common.aside import imported
from gluonjit.files import atomic, state_files
from gluonjit.gluon.parameter import Parameter, ParameterDict
from gluonjit.language.interrupts import Uninterrupted
from gluonjit.ndarray import deferred
from gluonjit.ndarray.observed_steps import Observation, Unfit
from gluonjit.optimizer.step import Steps

__all__ = ["Trainer"]


OBSERVED_AFTER = 3
"""After how many steps one is observed, unless steps are replayed by then: the first ones compile. The next time twice
as many."""


class Trainer:
    """Applies an optimizer to parameters.

    * `params`: a ParameterDict, a dict (taken in the order of its keys) or a list of Parameters, initialized. Their
      shapes may still be unknown.
    * `optimizer`: an Optimizer, or a registered name with `optimizer_params` as settings.
    * `kvstore`: a KVStore or its type, which sums gradients over contexts, and over processes if it is one of several
      (`'dist_sync'`); unused if there is one context in one process. `update_on_kvstore`: whether it also updates,
      which is the default if it is used; the environment variable MXNET_UPDATE_ON_KVSTORE changes that.
      `compression_params` have no effect in one process, where nothing is sent.

    Otherwise each context has an updater of its own, for its own copies of the parameters. A step of all parameters on
    all contexts is one compiled call. Ctrl-C during a step waits until it is done, so parameters, states and counts are
    those of before or after it.

    >>> net = nn.Dense(1)
    >>> net.initialize()
    >>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    >>> with autograd.record():
    ...     mean = net(mx.nd.ones((4, 3))).mean()
    >>> before = net.bias.data().asscalar()
    >>> mean.backward()
    >>> trainer.step(batch_size=1)
    >>> round(float(before - net.bias.data().asscalar()), 4)
    0.1
    """

    def __init__(
        self,
        params: ParameterDict | Mapping[str, Parameter] | Sequence[Parameter],
        optimizer: str | opt.Optimizer,
        optimizer_params: Mapping[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: Mapping[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        if isinstance(params, (Mapping, ParameterDict)):
            params = [params[key] for key in sorted(params.keys())]
        if not isinstance(params, (list, tuple)):
            hint = " Pass net.collect_params()." if hasattr(params, "collect_params") else ""
            raise ValueError(f"First argument must be a list or dict of Parameters, got {type(params)}.{hint}")
        for param in params:
            if not isinstance(param, Parameter):
                raise ValueError(f"First argument must be a list or dict of Parameters, got list of {type(param)}.")
        self._params = list(params)
        self._param2idx = {param.name: k for k, param in enumerate(self._params)}
        self._contexts = self._common_contexts()
        by_index = dict(enumerate(self._params))
        if isinstance(optimizer, opt.Optimizer):
            if optimizer_params:
                raise AssertionError(
                    "optimizer_params must be None if optimizer is an instance of Optimizer instead of str"
                )
            self._optimizer = optimizer
            self._optimizer.param_dict = by_index
        else:
            self._optimizer = opt.create(optimizer, param_dict=by_index, **(optimizer_params or {}))
        self._updaters = [opt.get_updater(self._optimizer) for _ in self._contexts or [None]]
        for param in self._params:
            param._set_trainer(self)
        trainers[self] = None
        self._scale = self._optimizer.rescale_grad
        self._steps = Steps()
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        self._compression_params = compression_params
        self._steps_left = self._patience = OBSERVED_AFTER
        self._replay: Any = None
        """A `StepReplay`, once one stands for the steps of this trainer."""
        self._replayed = 0
        """How many steps were replayed by what `_replay` was before."""
        self._why_not_replayed = ""
        """Why the last step observed could not be replayed, or no more were: for `net.explain()`."""
        self._last_updates: list[Any] = []
        self._reset_kvstore()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_replay": None, "_last_updates": []}  # which are of these arrays

    def _reset_kvstore(self) -> None:
        """Forgets the store; the next step makes a new one."""
        self._kv_initialized = False
        self._kvstore: Any = None
        self._update_on_kvstore: bool | None = None
        self._distributed: bool | None = None
        self._params_to_init = list(self._params)

    def _init_kvstore(self) -> None:
        """Makes the store, if there is use for one."""
        for param in self._params:
            param._arrays()  # an error, if it has no value
        wanted = self._kvstore_params["update_on_kvstore"]
        given, devices = self._kvstore_params["kvstore"], len(self._contexts or ())
        if any(param._stype != "default" for param in self._params):
            if wanted is False:
                raise ValueError("Cannot set update_on_kvstore=False when sparse weights are present.")
            if given is None:
                raise TypeError("row_sparse parameters live in a KVStore: kvstore must be one, or its type")
            store, on_store = kv.create(given) if isinstance(given, str) else given, True
        else:
            store, on_store = kv.for_training(given, devices, self._params)
            # The store would hold a dense weight beside each gradient.
            on_store = on_store and all(param._grad_stype == "default" for param in self._params)
        self._distributed = store is not None and "dist" in store.type
        if store is not None:
            on_store = on_store if wanted is None else bool(wanted)
            if on_store and not store.is_capable("optimizer"):
                if wanted:
                    raise ValueError(f"Please set update_on_kvstore=False when training with {type(store)}")
                on_store = False
            if self._compression_params:
                store.set_gradient_compression(self._compression_params)
            if on_store:
                store.set_optimizer(self._optimizer)
            self._kvstore, self._update_on_kvstore = store, on_store
        self._kv_initialized = True

    def _init_params(self) -> None:
        """Puts the parameters that have a value by now into the store."""
        if self._kvstore is not None:
            for param in self._params_to_init:
                if not param._deferred_init:
                    arrays = param._arrays()
                    self._kvstore.broadcast(self._param2idx[param.name], arrays[0], arrays)
        deferred = [param for param in self._params_to_init if param._deferred_init]
        self._params_to_init = deferred if self._kvstore is not None else []

    def _row_sparse_pull(self, param: Parameter, out: Any, row_id: Any) -> None:
        """Fetches rows of a weight from the store."""
        self._ready()
        self._kvstore.row_sparse_pull(self._param2idx[param.name], out=out, row_ids=row_id)

    def _forget_value(self, param: Parameter) -> None:
        """The parameter's value was set: the store's is out of date."""
        if self._kvstore is not None and param not in self._params_to_init:
            self._reset_kvstore()

    def _ready(self) -> None:
        if not self._kv_initialized:
            self._init_kvstore()
        if self._params_to_init:
            self._init_params()

    def _common_contexts(self) -> Any:
        """The contexts of all parameters; RuntimeError for one that is not initialized."""
        contexts = None
        for param in self._params:
            ctx = param.list_ctx()
            if contexts is not None and contexts != ctx:
                raise AssertionError(
                    "All Parameters must be initialized on the same set of contexts, but Parameter "
                    f"{param.name} is initialized on {ctx} while previous Parameters are initialized on {contexts}."
                )
            contexts = ctx
        return contexts

    @property
    def learning_rate(self) -> float:
        return self._optimizer.learning_rate

    @property
    def optimizer(self) -> opt.Optimizer:
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    def step(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """One step of all parameters, gradients divided by `batch_size`; to be called after `backward`.

        Raises a UserWarning, which is an exception, if `backward` has not computed the gradient of a parameter since
        the last step, and then leaves parameters, states and gradients as they are. `ignore_stale_grad` leaves such
        parameters as they are. If parameters are updated on kvstore, as in MXNet, gradients count as computed once
        `backward` has computed them for the first time, and all parameters are updated.
        """
        with Uninterrupted():
            self._divide_by(batch_size)
            if self._replay is not None and self._replay.ends_with_update():
                return
            self._ready()
            if self._update_on_kvstore:
                self._why_not_replayed = "the kvstore updates the parameters: make the trainer with kvstore=None"
                if not self._overflows():
                    self._refuse_stale(ignore_stale_grad)
                    self._allreduce_grads()
                return
            # Before gradients are summed, which a step that fails could not undo. Where losses are scaled, an overflow
            # comes first, and it shows in the sums.
            if not hasattr(self, "_amp_loss_scaler"):
                self._refuse_stale(ignore_stale_grad)
            self._allreduce_grads()
            self._update(ignore_stale_grad)
            self._observe()

    def _explained_steps(self) -> ExplainedSteps | None:
        """Whether this trainer's steps are replayed, for `net.explain()`; None if it has taken none."""
        if not self._kv_initialized:
            return None
        replay = self._replay
        if replay is None:
            return ExplainedSteps(False, self._replayed, self._why_not_replayed)
        return ExplainedSteps(True, self._replayed + replay.count, replay.why_not)

    def _observe(self) -> None:
        """Ends what was observed since a trainer's last step: if that was asked for, a `StepReplay` may stand for such
        steps from now on. Asks for the next one now and then."""
        observed = deferred.observed
        if self in observed.wanted:
            observed.wanted.discard(self)
            try:
                if len(self._updaters) > 1 or self._kvstore is not None:
                    raise Unfit("gradients of several contexts or processes are summed up")
                self._replay = imported("gluonjit.execution.step_replay").replay(
                    observed.by, self, self._last_updates, self._steps.latest
                )
                self._why_not_replayed = ""
            except Unfit as e:
                self._why_not_replayed = str(e)
        if self._replay is None:
            self._steps_left -= 1
            if not self._steps_left and os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine":
                self._why_not_replayed = "MXNET_ENGINE_TYPE=NaiveEngine has each call computed at once"
            elif not self._steps_left:
                self._patience *= 2
                self._steps_left = self._patience
                observed.wanted.add(self)
        observed.by = Observation() if observed.wanted else None

    def allreduce_grads(self) -> None:
        """Sums gradients over contexts: the first half of `step`, before `update`."""
        self._ready()
        self._refuse_on_kvstore("allreduce_grads()")
        with Uninterrupted():
            self._allreduce_grads()

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """The second half of `step`, after `allreduce_grads`."""
        self._why_not_replayed = "`allreduce_grads` and `update` are called apart: call `step` instead"
        self._ready()
        self._refuse_on_kvstore("update()")
        with Uninterrupted():
            self._divide_by(batch_size)
            self._update(ignore_stale_grad)

    def _divide_by(self, batch_size: Any) -> None:
        """Has gradients divided by `batch_size`, which may be an array of one element."""
        if batch_size is None or isinstance(batch_size, str):
            raise TypeError(f"batch_size is a number, by which gradients are divided, got {batch_size!r}")
        divisor = float(batch_size)
        if divisor == 0:
            raise ZeroDivisionError("gradients cannot be divided by a batch_size of 0: leave empty batches out")
        self._optimizer.rescale_grad = self._scale / divisor

    def _refuse_on_kvstore(self, what: str) -> None:
        if self._update_on_kvstore:
            raise AssertionError(
                f"{what} when parameters are updated on kvstore is not supported. Try setting `update_on_kvstore` to "
                "False when creating trainer."
            )

    def _allreduce_grads(self) -> None:
        if self._kvstore is None:
            return
        trained = [(k, param) for k, param in enumerate(self._params) if param.grad_req != "null"]
        keys, grads = [k for k, _ in trained], [param.list_grad() for _, param in trained]
        if self._update_on_kvstore:
            self._kvstore.pushpull(keys, grads, out=[param._arrays() for _, param in trained])
        else:
            self._kvstore.pushpull(keys, grads)

    def _overflows(self) -> bool:
        """Whether losses are scaled (`amp.init_trainer`) and a gradient has overflown, so that the step is skipped."""
        scaler = getattr(self, "_amp_loss_scaler", None)
        if scaler is None:
            return False
        # Gradients that are not summed yet may overflow in one process alone.
        if self._distributed and self._update_on_kvstore:
            return scaler.has_overflow(self._params, self._kvstore.any)
        return scaler.has_overflow(self._params)

    def _refuse_stale(self, ignore_stale_grad: bool) -> None:
        """UserWarning if `backward` has not computed the gradient of a parameter."""
        if ignore_stale_grad:
            return
        for param in self._params:
            for x in param._arrays() if param.grad_req != "null" else ():
                if not x._fresh_grad:
                    raise UserWarning(
                        f"Gradient of Parameter `{param.name}` on context {x.context} has not been updated by "
                        "backward since last `step`. This could mean a bug in your model that made it only use a "
                        "subset of the Parameters (Blocks) for this iteration. If you are intentionally only using "
                        "a subset, call step with ignore_stale_grad=True to suppress this warning and skip "
                        "updating of Parameters with stale gradient"
                    )

    def _update(self, ignore_stale_grad: bool = False) -> None:
        """One step of the parameters whose gradients are fresh, each context's with its own updater."""
        if self._overflows():
            return
        self._refuse_stale(ignore_stale_grad)
        work = [[one for one in self._work(k) if one[2]._fresh_grad] for k in range(len(self._updaters))]
        prepared = []
        for updater, own in zip(self._updaters, work):
            if own:
                found = updater._prepare(*(list(part) for part in zip(*own)))
                prepared += found or []
        self._steps.take(prepared)
        self._last_updates = prepared
        for own in work:
            for _, _, x in own:
                x._fresh_grad = False

    def _work(self, context: int = 0) -> list[tuple[int, Any, Any]]:
        """The number, the gradient and the array of each parameter that is trained, on one of the contexts."""
        trained = [(k, param._arrays()) for k, param in enumerate(self._params) if param.grad_req != "null"]
        return [(k, arrays[context].grad, arrays[context]) for k, arrays in trained if context < len(arrays)]

    def save_states(self, fname: str | os.PathLike[str]) -> None:
        """Writes the optimizer, its settings and states, as MXNet does. What belongs to parameters (`lr_mult`,
        `wd_mult`) is not part of it."""
        self._ready()
        if self._update_on_kvstore:
            if self._params_to_init:
                raise AssertionError(
                    "Cannot save trainer states when some parameters are not yet initialized in kvstore."
                )
            self._kvstore.save_optimizer_states(fname, dump_optimizer=True)
        else:
            atomic.write(fname, [self._updaters[0].get_states(dump_optimizer=True)])

    def _check_states(self, fname: str | os.PathLike[str]) -> None:
        """The errors of `load_states` for a damaged file; changes nothing."""
        opt.get_updater(self._optimizer).set_states(state_files.contents(fname), os.fspath(fname))

    def load_states(self, fname: str | os.PathLike[str]) -> None:
        """Loads what `save_states` wrote, here or in MXNet. Nothing in the file is executed."""
        self._ready()
        if self._update_on_kvstore:
            self._kvstore.load_optimizer_states(fname)
            self._optimizer = self._kvstore._updater.optimizer
        else:
            states = state_files.contents(fname)
            for updater in self._updaters:
                updater.set_states(states, os.fspath(fname))
                updater.optimizer = self._updaters[0].optimizer
            self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))
