"""`SequentialModule`: a chain of modules; the outputs of each are the data of the next."""

from __future__ import annotations

import logging
from typing import Any

from gluonjit.data.iterators import DataBatch, DataDesc
from gluonjit.module.base_module import BaseModule, Params, Shapes
from gluonjit.training.initializers import Uniform


class SequentialModule(BaseModule):
    """A chain of modules, to which `add` appends. Its keywords are:

    * `take_labels`: the module gets the batch's labels.
    * `auto_wiring`: the outputs of the previous module become its data by order, whatever their names.
    """

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging) -> None:
        super().__init__(logger)
        self._chain: list[tuple[BaseModule, dict[str, Any]]] = []
        self._label_shapes: Shapes | None = None

    def add(self, module: BaseModule, **kwargs: Any) -> SequentialModule:
        """Appends a module; returns the chain, which must be bound anew."""
        for key in kwargs:
            if key not in (self.META_TAKE_LABELS, self.META_AUTO_WIRING):
                raise AssertionError(f'Unknown meta "{key}", a typo?')
        self._chain.append((module, kwargs))
        self.binded = self.params_initialized = False
        return self

    def _links(self) -> list[BaseModule]:
        if not self._chain:
            raise AssertionError("add a module first")
        return [module for module, _ in self._chain]

    @property
    def data_names(self) -> list[str]:
        return self._chain[0][0].data_names if self._chain else []

    @property
    def output_names(self) -> list[str]:
        return self._chain[-1][0].output_names if self._chain else []

    @property
    def data_shapes(self) -> list[DataDesc]:
        return self._links()[0].data_shapes

    @property
    def label_shapes(self) -> Any:
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._links()[-1].output_shapes

    def bind(
        self,
        data_shapes: Shapes,
        label_shapes: Shapes | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: BaseModule | None = None,
        grad_req: Any = "write",
    ) -> None:
        """Binds each module to the output shapes of the previous one."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if shared_module is not None:
            raise AssertionError("Shared module is not supported")
        self._links()
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._label_shapes = label_shapes if any(meta.get("take_labels") for _, meta in self._chain) else None
        shapes: Any = data_shapes
        for k, (module, meta) in enumerate(self._chain):
            if meta.get(self.META_AUTO_WIRING):
                if len(module.data_names) != len(shapes):
                    raise AssertionError(f"module {k} takes {len(module.data_names)} data, but there are {len(shapes)}")
                shapes = [(name, tuple(shape)) for name, (_, shape) in zip(module.data_names, shapes)]
            labels = label_shapes if meta.get(self.META_TAKE_LABELS) else None
            needs_grad = inputs_need_grad or (for_training and k > 0)
            module.bind(shapes, labels, for_training, needs_grad, force_rebind, None, grad_req)
            shapes = module.output_shapes
        self.binded = True

    def get_params(self) -> tuple[Params, Params]:
        args: Params = {}
        aux: Params = {}
        for module in self._links():
            more_args, more_aux = module.get_params()
            args.update(more_args)
            aux.update(more_aux)
        return args, aux

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 (immutable, and the signature is MXNet's)
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """`init_params` of every module. AssertionError when two have a parameter of the same name."""
        if self.params_initialized and not force_init:
            return
        if not self.binded:
            raise AssertionError("call bind before initializing the parameters")
        owners: dict[str, int] = {}
        for k, module in enumerate(self._links()):
            module.init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
            for name in [name for part in module.get_params() for name in part]:
                if owners.setdefault(name, k) != k:
                    raise AssertionError(f'Duplicated parameter names: name "{name}" in layers {owners[name]} and {k}')
        self.params_initialized = True

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        self._ready()
        batch = data_batch
        for module, meta in self._chain:
            labels = data_batch.label if meta.get(self.META_TAKE_LABELS) else None
            module.forward(DataBatch(batch.data, labels), is_train)
            batch = DataBatch(module.get_outputs())

    def backward(self, out_grads: Any = None) -> None:
        """`backward` of every module, from the last, each with the gradients by the inputs of the next one."""
        self._ready()
        modules = self._links()
        for k, module in reversed(list(enumerate(modules))):
            module.backward(out_grads)
            if k:
                out_grads = module.get_input_grads()

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        return self._links()[0].get_input_grads(merge_multi_context)

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        if not self._takes_optimizer(force_init):
            return
        for module in self._links():
            module.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        self.optimizer_initialized = True

    def update(self) -> None:
        for module in self._links():
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        return self._links()[-1].get_outputs(merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        for module, meta in self._chain:
            if meta.get(self.META_TAKE_LABELS):
                module.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        for module in self._links():
            module.install_monitor(mon)
