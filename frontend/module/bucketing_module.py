"""`BucketingModule`: a graph for each bucket key (such as a sequence length), with shared parameters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gluonjit import context, ndarray, symbol
from gluonjit.base import CheckpointError
from gluonjit.data.iterators import DataDesc
from gluonjit.model import load_params
from gluonjit.module.base_module import BaseModule, Params, Shapes, check_input_names
from gluonjit.module.module import Module
from gluonjit.name import NameManager
from gluonjit.training.initializers import Uniform


class BucketingModule(BaseModule):
    """A `Module` for each bucket; `sym_gen(bucket_key)` returns (symbol, data names, label names).

    The bucket of `default_bucket_key` is bound first and owns the shared parameters. The other arguments are
    `Module`'s.
    """

    def __init__(
        self,
        sym_gen: Callable[[Any], tuple[Any, Any, Any]],
        default_bucket_key: Any = None,
        logger: Any = logging,
        context: Any = context.cpu(),  # noqa: B008 (immutable, and the signature is MXNet's)
        work_load_list: Any = None,
        fixed_param_names: Any = None,
        state_names: Any = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
    ) -> None:
        super().__init__(logger)
        if default_bucket_key is None:
            raise AssertionError("default_bucket_key is missing: it says which bucket is bound first")
        self._default_bucket_key = default_bucket_key
        self._sym_gen = sym_gen
        self._options = {
            "logger": logger,
            "context": context,
            "fixed_param_names": fixed_param_names,
            "state_names": state_names,
        }
        graph, data_names, label_names = self._generate(default_bucket_key)
        for kind, names, required in (
            ("data", data_names, True),
            ("label", label_names, False),
            ("state", state_names, True),
            ("fixed_param", fixed_param_names, True),
        ):
            check_input_names(graph, list(names or ()), kind, required)
        self._buckets: dict[Any, Module] = {}
        self._current: Module | None = None
        self._monitor: Any = None

    def _generate(self, key: Any) -> tuple[Any, Any, Any]:
        with NameManager():  # numbers start at 0 for each bucket, so that parameter names agree
            return self._sym_gen(key)

    @property
    def _curr_module(self) -> Module | None:
        """The module of the current bucket, or None. Programs read this and `_curr_bucket_key`, by MXNet's names."""
        return self._current

    @property
    def _curr_bucket_key(self) -> Any:
        return next((key for key, module in self._buckets.items() if module is self._current), None)

    @property
    def _module(self) -> Module:
        """The module of the current bucket."""
        if self._current is None:
            raise AssertionError("call bind first")
        return self._current

    @property
    def symbol(self) -> Any:
        return self._module.symbol

    @property
    def data_names(self) -> list[str]:
        return self._module.data_names if self.binded else self._generate(self._default_bucket_key)[1]

    @property
    def output_names(self) -> list[str]:
        graph = self._module.symbol if self.binded else self._generate(self._default_bucket_key)[0]
        return graph.list_outputs()

    @property
    def data_shapes(self) -> list[DataDesc]:
        return self._module.data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        return self._module.label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._module.output_shapes

    # Buckets

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
        """Binds the default bucket; the others are bound by their first batch."""
        if shared_module is not None:
            raise AssertionError("shared_module for BucketingModule is not supported")
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        self.for_training, self.inputs_need_grad, self._grad_req = for_training, inputs_need_grad, grad_req
        default = self._bucket(self._default_bucket_key)
        default.bind(data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind, None, grad_req)
        for module in self._buckets.values():
            if module is not default:
                module._reset_bind()
        self._current = default
        self.binded = True

    def _bucket(self, key: Any) -> Module:
        if key not in self._buckets:
            self._buckets[key] = Module(*self._generate(key), **self._options)
        return self._buckets[key]

    def switch_bucket(self, bucket_key: Any, data_shapes: Shapes, label_shapes: Shapes | None = None) -> None:
        """Makes a bucket the current one; binds it to these shapes if it is not bound yet."""
        self._module  # noqa: B018  (raises if nothing is bound)
        module = self._bucket(bucket_key)
        if not module.binded:
            shared = self._buckets[self._default_bucket_key]
            module._loaded = None
            grads = self.for_training, self.inputs_need_grad
            module.bind(data_shapes, label_shapes, *grads, shared_module=shared, grad_req=self._grad_req)
            if self.optimizer_initialized:
                module.borrow_optimizer(shared)
            if self._monitor is not None:
                module.install_monitor(self._monitor)
        self._current = module

    # Parameters

    def get_params(self) -> tuple[Params, Params]:
        return (self._current or self._bucket(self._default_bucket_key)).get_params()

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 (immutable, and the signature is MXNet's)
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        if self.params_initialized and not force_init:
            return
        if not self.binded:
            raise AssertionError("call bind before initializing the parameters")
        self._module.init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
        self._initialized()

    def set_params(
        self,
        arg_params: Params,
        aux_params: Params,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        self._module.set_params(arg_params, aux_params, allow_missing, force_init, allow_extra)
        self._initialized()

    def _initialized(self) -> None:
        self.params_initialized = True
        for module in self._buckets.values():
            module.params_initialized = True

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        return self._module.get_states(merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        self._module.set_states(states, value)

    # Running

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Runs a batch in the bucket of its `bucket_key`."""
        self._ready()
        self.switch_bucket(data_batch.bucket_key, data_batch.provide_data, data_batch.provide_label)
        self._module.forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        self._ready()
        self._module.backward(out_grads)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        return self._module.get_input_grads(merge_multi_context)

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Sets the optimizer, which all buckets share."""
        if not self._takes_optimizer(force_init):
            return
        default = self._buckets[self._default_bucket_key]
        default.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        for module in self._buckets.values():
            if module is not default and module.binded:
                module.borrow_optimizer(default)
        self.optimizer_initialized = True

    def update(self) -> None:
        self._module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        return self._module.get_outputs(merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._module.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        self._module  # noqa: B018  (raises if nothing is bound)
        self._monitor = mon
        for module in self._buckets.values():
            if module.binded:
                module.install_monitor(mon)

    # Files

    def save_checkpoint(self, prefix: str, epoch: int, remove_amp_cast: bool = False) -> None:
        """Writes `prefix-0000.params`, `prefix-<key>-symbol.json` of each bucket so far, and `prefix.buckets`."""
        if not self._buckets:
            raise AssertionError("Empty BucketingModule cannot be saved")
        self.save_params(f"{prefix}-{epoch:04d}.params")
        for key, module in self._buckets.items():
            module.symbol.save(f"{prefix}-{key}-symbol.json", remove_amp_cast=remove_amp_cast)
        ndarray.save(f"{prefix}.buckets", ndarray.array(list(self._buckets), dtype=np.int32))

    @staticmethod
    def load(
        prefix: str, epoch: int, sym_gen: Any = None, default_bucket_key: Any = None, **kwargs: Any
    ) -> BucketingModule:
        """Loads what `save_checkpoint` wrote; `sym_gen` is for further buckets and for the names of inputs."""
        if sym_gen is None or default_bucket_key is None:
            raise AssertionError("sym_gen and default_bucket_key are required for loading BucketingModule")
        stored = ndarray.load(f"{prefix}.buckets")
        if not isinstance(stored, list) or len(stored) != 1:
            raise CheckpointError(f"{prefix}.buckets: {len(stored)} arrays; expected one of bucket keys")
        graphs = {key: symbol.load(f"{prefix}-{key}-symbol.json") for key in map(int, stored[0].asnumpy())}
        args, aux = load_params(prefix, epoch)
        return BucketingModule.load_dict(graphs, sym_gen, default_bucket_key, args, aux, **kwargs)

    @staticmethod
    def load_dict(
        sym_dict: Mapping[Any, Any] | None = None,
        sym_gen: Any = None,
        default_bucket_key: Any = None,
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """A module from graphs by bucket key, and the parameters that they share."""
        if sym_dict is None or arg_params is None or aux_params is None or default_bucket_key is None:
            raise AssertionError(
                "sym_dict, default_bucket_key, arg_params and aux_params need to be provided for "
                "BucketingModule.load_dict"
            )
        module = BucketingModule(sym_gen, default_bucket_key, **kwargs)
        for key, graph in sym_dict.items():
            _, data_names, label_names = module._generate(key)
            module._buckets[key] = Module(graph, data_names, label_names, **module._options)
        module._bucket(default_bucket_key)._loaded = arg_params, aux_params
        module._initialized()
        return module
