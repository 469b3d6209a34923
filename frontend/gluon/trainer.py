"""`gluon.Trainer`: an optimizer for a set of parameters. It can be created and inspected; steps need gradients."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from gluonjit import optimizer as opt
from gluonjit.gluon.parameter import Parameter, ParameterDict
from gluonjit.language.modes import no_gradients

__all__ = ["Trainer"]


class Trainer:
    """Applies an optimizer to parameters.

    * `params`: a ParameterDict, a dict (taken in the order of its keys) or a list of Parameters, initialized.
    * `optimizer`: an Optimizer, or a registered name with `optimizer_params` as settings.
    * `kvstore`, `compression_params`, `update_on_kvstore`: how MXNet sums gradients over devices. They have no effect,
      as all devices share the host's memory.

    Each context has an updater of its own, for its own copies of the parameters.
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
            raise ValueError(f"First argument must be a list or dict of Parameters, got {type(params)}.")
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
        self._scale = self._optimizer.rescale_grad

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

    def step(self, batch_size: int, ignore_stale_grad: bool = False) -> NoReturn:
        """One step of all parameters, gradients divided by `batch_size`."""
        no_gradients("Trainer.step")

    def allreduce_grads(self) -> NoReturn:
        """Sums gradients over contexts."""
        no_gradients("Trainer.allreduce_grads")

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> NoReturn:
        """`step` without summing over contexts."""
        no_gradients("Trainer.update")

    def save_states(self, fname: str | os.PathLike[str]) -> None:
        """Writes the optimizer, its settings and states."""
        with open(fname, "wb") as file:
            file.write(self._updaters[0].get_states(dump_optimizer=True))

    def load_states(self, fname: str | os.PathLike[str]) -> None:
        """Loads what `save_states` wrote. The file is unpickled, so it must be trusted."""
        with open(fname, "rb") as file:
            states = file.read()
        for updater in self._updaters:
            updater.set_states(states)
            updater.optimizer = self._updaters[0].optimizer
        self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))
