"""`Module`: one graph. It runs as a `SymbolBlock`, so it is compiled once for each input shape."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gluonjit import autograd, context, ndarray, symbol
from gluonjit.data.iterators import DataDesc
from gluonjit.gluon import SymbolBlock
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import TensorType
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.model import load_checkpoint
from gluonjit.module.base_module import BaseModule, Params, Shapes, check_described, check_input_names, described
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol
from gluonjit.symbol.binding import solve_variables
from gluonjit.symbol.dtypes import declared_type
from gluonjit.symbol.graph import post_order
from gluonjit.training.initializers import InitDesc, Uniform

MAX_LISTED = 5
"""The most names that an error lists."""


class Module(BaseModule):
    """A graph and its parameters, which are the arguments not named as data, label or state.

    Labels may be omitted: they are then 0, of the shape that follows from the data's.
    `work_load_list`, `group2ctxs` and `compression_params` concern several devices and have no effect here.
    """

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Any = context.cpu(),  # noqa: B008 (immutable, and the signature is MXNet's)
        work_load_list: Any = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
    ) -> None:
        super().__init__(logger)
        self._context = list(context) if isinstance(context, (list, tuple)) else [context]
        self._data_names, self._label_names = list(data_names or ()), list(label_names or ())
        self._state_names, fixed = list(state_names or ()), list(fixed_param_names or ())
        check_input_names(symbol, self._data_names, "data", True)
        check_input_names(symbol, self._label_names, "label", False)
        check_input_names(symbol, self._state_names, "state", True)
        check_input_names(symbol, fixed, "fixed_param", True)
        self._symbol: Symbol = symbol
        given = [*self._data_names, *self._label_names, *self._state_names]
        arguments = symbol.list_arguments()
        self._inputs = [name for name in given if name in arguments]
        self._param_names = [name for name in arguments if name not in given]
        self._aux_names = symbol.list_auxiliary_states()
        self._loaded: tuple[Params, Params] | None = None
        """Parameters from a file, until `bind` creates the arrays to copy them to."""
        self._block: SymbolBlock | None = None
        self._outputs: list[NDArray] = []
        self._label_shapes: list[DataDesc] | None = None
        """None before `bind`, too: MXNet's tutorials read it there."""

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """Loads `prefix-symbol.json` and `prefix-0000.params` (the epoch in four digits); `kwargs` are `Module`'s."""
        if load_optimizer_states:
            autograd.no_gradients("Module.load with load_optimizer_states")
        graph, args, aux = load_checkpoint(prefix, epoch)
        module = Module(symbol=graph, **kwargs)
        module._loaded = args, aux
        module.params_initialized = True
        return module

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Writes `prefix-symbol.json` and `prefix-0000.params` (the epoch)."""
        if save_optimizer_states:
            autograd.no_gradients("Module.save_checkpoint with save_optimizer_states")
        file = f"{prefix}-{epoch:04d}.params"
        self.save_params(file)
        self._symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
        logging.info('Saved checkpoint to "%s"', file)

    # Names and shapes

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        return self._symbol.list_outputs()

    def _bound(self) -> SymbolBlock:
        if self._block is None:
            raise AssertionError("call bind first")
        return self._block

    @property
    def data_shapes(self) -> list[DataDesc]:
        self._bound()
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        self._bound()
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        self._bound()
        shapes = {name: self._types[name].shape for name in self._inputs}
        return list(zip(self.output_names, self._symbol.infer_shape(**shapes)[1]))

    # Binding

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
        """Sets the inputs' shapes and creates parameters of the inferred shapes, all 0.

        Parameters from a file or an earlier binding are kept; those of `shared_module` are shared. ValueError if the
        names in `data_shapes` are not the module's; RuntimeError if the shape of a variable cannot be inferred.
        """
        if force_rebind:
            self._reset_bind()
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise AssertionError("inputs_need_grad is for training")
        if shared_module is not None and not (isinstance(shared_module, Module) and shared_module._block is not None):
            raise AssertionError("shared_module is a Module that is bound")
        for c in self._context:
            context.placed(c)
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        check_described(self._label_names, described(label_shapes), "label", False)
        self._infer(data_shapes, label_shapes)
        shared: ParameterDict | None = None
        if shared_module is not None:
            shared = shared_module._bound().params
            self.params_initialized = shared_module.params_initialized
        inputs = [symbol.var(name, dtype=self._types[name].dtype.numpy) for name in self._inputs]
        self._block = SymbolBlock(self._symbol, inputs, params=shared)
        for name, param in self._block.params.items():
            if param._data is None:
                type = self._types[name]
                param.dtype, param.shape = type.dtype.numpy.name, type.shape
                param._place(ndarray.zeros(type.shape, dtype=type.dtype.numpy), self._context[:1])
        self._states = [self._zeros(name) for name in self._state_names]
        if self._loaded is not None:
            self._copy(*self._loaded)
            self._loaded = None
        self.binded = True

    def _reset_bind(self) -> None:
        if self._block is not None and self.params_initialized:
            self._loaded = self.get_params()
        self.binded = False
        self._block = None

    def reshape(self, data_shapes: Shapes, label_shapes: Shapes | None = None) -> None:
        """Changes the inputs' shapes; parameters are kept."""
        self._bound()
        self._infer(data_shapes, label_shapes)

    def _infer(self, data_shapes: Shapes, label_shapes: Shapes | None) -> None:
        """Infers the types of all variables from those of data and labels."""
        data, labels = described(data_shapes), described(label_shapes)
        check_described(self._data_names, data, "data", True)
        known = [d for d in (*data, *labels) if d.name in self._inputs]
        types = {d.name: d.dtype for d in known}
        for node in post_order(self._symbol._heads):
            declared = declared_type(node) if node.op is None else None
            if declared is not None and node.name in types:
                types[node.name] = declared.numpy
        shapes = {d.name: tuple(d.shape) for d in known}
        self._types: Mapping[str, TensorType] = solve_variables(self._symbol, types, shapes)
        self._data_shapes = data
        self._label_shapes = None if label_shapes is None else labels

    def _zeros(self, name: str) -> NDArray:
        return ndarray.zeros(self._types[name].shape, dtype=self._types[name].dtype.numpy)

    # Parameters

    def get_params(self) -> tuple[Params, Params]:
        """(arguments, auxiliary states) by name, as copies."""
        if not self.params_initialized:
            raise AssertionError("call init_params or set_params first")
        if self._block is None:
            return self._loaded or ({}, {})
        params = self._block.params
        return (
            {name: params[name].data().copy() for name in self._param_names},
            {name: params[name].data().copy() for name in self._aux_names},
        )

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 (immutable, and the signature is MXNet's)
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Copies the given arrays into the parameters, and initializes those for which none are given.

        RuntimeError for a parameter that the given arrays lack, unless `allow_missing`. Arrays that
        the graph does not have are ignored.
        """
        if self.params_initialized and not force_init:
            warnings.warn(
                "Parameters already initialized and force_init=False. init_params call ignored.", stacklevel=2
            )
            return
        if not self.binded:
            raise AssertionError("call bind before initializing the parameters")
        attrs = self._symbol.attr_dict()
        params = self._bound().params
        for names, given in ((self._param_names, arg_params), (self._aux_names, aux_params)):
            for name in sorted(names):
                array = params[name].data()
                if given is not None and name in given:
                    _assign(name, array, given[name])
                elif given is not None and not allow_missing:
                    raise RuntimeError(f"{name} is not presented{_extra(given, names)}")
                elif initializer is not None:
                    initializer(InitDesc(name, attrs.get(name)), array)
        self.params_initialized = True

    def set_params(
        self,
        arg_params: Params,
        aux_params: Params,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Copies the given arrays into the parameters.

        RuntimeError for a parameter that they lack. With `allow_missing`, it keeps its value, and ValueError is raised
        for an array that the graph does not have (unless `allow_extra`).
        """
        if not allow_missing:
            self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)
        elif self.params_initialized and not force_init:
            warnings.warn("Parameters already initialized and force_init=False. set_params call ignored.", stacklevel=2)
        else:
            self._copy(arg_params, aux_params, allow_extra)
            self.params_initialized = True

    def _copy(self, args: Params, aux: Params, allow_extra: bool = False) -> None:
        params = self._bound().params
        for given, names, what in ((args, self._param_names, "arguments"), (aux, self._aux_names, "auxiliary states")):
            for name, array in given.items():
                if name in names:
                    _assign(name, params[name].data(), array)
                elif not allow_extra:
                    hint = did_you_mean(name, names)
                    raise ValueError(f'Find name "{name}" that is not in the {what}{hint}')

    # Running

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Runs a batch, or a list of batches, which are concatenated. `is_train` None means as in `bind`.

        A batch with another shape than the last one reshapes the module.
        """
        self._ready()
        if isinstance(data_batch, list):
            data = [_joined(parts) for parts in zip(*(b.data for b in data_batch))]
            label = [_joined(parts) for parts in zip(*(b.label or () for b in data_batch))]
        else:
            data, label = list(data_batch.data), list(getattr(data_batch, "label", None) or ())
        if len(data) != len(self._data_shapes):
            raise ValueError(f"the batch has {len(data)} arrays; the module's data are {', '.join(self._data_names)}")
        if any(tuple(d.shape) != x.shape for d, x in zip(self._data_shapes, data)):
            self._reshape_for(data_batch, data, label)
        given = dict(zip((d.name for d in self._data_shapes), data))
        given |= dict(zip((d.name for d in self._label_shapes or ()), label))
        given |= dict(zip(self._state_names, self._states))
        inputs = []
        for name in self._inputs:
            x = given[name] if name in given else self._zeros(name)
            type = self._types[name]
            inputs.append(x.astype(type.dtype.numpy, copy=False).as_in_context(self._context[0]))
        training = self.for_training if is_train is None else is_train
        with autograd.train_mode() if training else autograd.predict_mode():
            outputs = self._bound()(*inputs)
        self._keep(outputs if isinstance(outputs, list) else [outputs])

    def _keep(self, outputs: list[NDArray]) -> None:
        """Stores the outputs: in the arrays of the previous call, if shapes and element types are the same."""
        if [(x.shape, x.dtype) for x in outputs] != [(x.shape, x.dtype) for x in self._outputs]:
            self._outputs = outputs
            return
        for own, new in zip(self._outputs, outputs):
            if own is not new:
                new.copyto(own)

    def _reshape_for(self, batch: Any, data: Sequence[NDArray], label: Sequence[NDArray]) -> None:
        data_shapes = None if isinstance(batch, list) else getattr(batch, "provide_data", None)
        label_shapes = None if isinstance(batch, list) else getattr(batch, "provide_label", None)
        self.reshape(
            data_shapes or _resized(self._data_shapes, data),
            label_shapes or (_resized(self._label_shapes or [], label) if label else None),
        )

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The outputs of the last `forward`; unless `merge_multi_context`, each in a list of one array.

        The next `forward` overwrites them, if its outputs have the same shapes.
        """
        self._ready()
        return list(self._outputs) if merge_multi_context else [[x] for x in self._outputs]

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric with the outputs of the last `forward` and their labels."""
        if pre_sliced:
            labels = [_joined(parts) for parts in zip(*labels)]
        named = dict(zip((d.name for d in self._label_shapes or ()), labels or ()))
        eval_metric.update_dict(named, dict(zip(self.output_names, self._outputs)))

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arrays of the states, each in a list of one array."""
        self._ready()
        if merge_multi_context:
            raise AssertionError("merge_multi_context=True is not supported for get_states yet.")
        return [[x] for x in self._states]

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Sets the states to arrays (or to lists of one array), or all of them to a number."""
        self._ready()
        if (states is None) == (value is None):
            raise AssertionError("Only one of states & value can be specified, and one of them must be.")
        for k, target in enumerate(self._states):
            new = value if states is None else states[k]
            target[:] = new[0] if isinstance(new, (list, tuple)) else new

    def install_monitor(self, mon: Any) -> None:
        """Passes every operator's results to a Monitor."""
        mon.install(_Monitored(self))


class _Monitored:
    """The interface of an executor that a Monitor uses, for a module."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def set_monitor_callback(self, callback: Any, monitor_all: bool = False) -> None:
        block = self._module._bound()
        block._monitored_as_bound = True
        block.register_op_hook(lambda name, op, array: callback(name, array), monitor_all)

    @property
    def arg_dict(self) -> Params:
        return {name: self._module._bound().params[name].data() for name in self._module._param_names}

    @property
    def aux_dict(self) -> Params:
        return {name: self._module._bound().params[name].data() for name in self._module._aux_names}


def _extra(given: Params, names: Collection[str]) -> str:
    """The given names that the graph does not have, as one of them may be misspelt: the end of an error message."""
    extra = [name for name in given if name not in names]
    return f"; given, but not in the graph: {', '.join(extra[:MAX_LISTED])}" if extra else ""


def _assign(name: str, target: NDArray, value: NDArray) -> None:
    if tuple(target.shape) != tuple(value.shape):
        raise ValueError(f"parameter {name} has shape {value.shape}; the graph's has {target.shape}")
    target[:] = value


def _joined(parts: Sequence[NDArray]) -> NDArray:
    return parts[0] if len(parts) == 1 else ndarray.concatenate(list(parts))


def _resized(descriptions: Sequence[DataDesc], arrays: Sequence[NDArray]) -> list[DataDesc]:
    return [DataDesc(d.name, x.shape, d.dtype, d.layout) for d, x in zip(descriptions, arrays)]


_mxnet_names.explain(__name__)
