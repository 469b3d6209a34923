"""`Module`: one graph, run by an `Executor` for each shape of its inputs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gluonjit import context, ndarray
from gluonjit.data.iterators import DataDesc
from gluonjit.files import atomic
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import TensorType
from gluonjit.kvstore import DistributedStore
from gluonjit.kvstore import create as create_store
from gluonjit.language import late
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.interrupts import Uninterrupted
from gluonjit.model import load_checkpoint
from gluonjit.module.base_module import BaseModule, Params, Shapes, check_described, check_input_names, described
from gluonjit.module.executor_group import DataParallelExecutorGroup
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import requests
from gluonjit.optimizer import Optimizer, Updater, get_updater
from gluonjit.optimizer import create as create_optimizer
from gluonjit.symbol import Symbol
from gluonjit.symbol.binding import solve_variables
from gluonjit.symbol.dtypes import declared_type
from gluonjit.symbol.graph import post_order
from gluonjit.symbol.storage_types import declared_storage, gradient_storage, storage_types
from gluonjit.training.initializers import InitDesc, Uniform

if TYPE_CHECKING:
    from gluonjit.execution.executor import Executor


MAX_LISTED = 5
"""The most names that an error lists."""


class Module(BaseModule):
    """A graph and its parameters, which are the arguments not named as data, label or state.

    To predict, labels may be omitted: they are then 0, of the shape that follows from the data's. `backward` refuses to
    train on those.
    `group2ctxs`, a dict or a list of one for each context, says on which contexts the outputs of an
    `AttrScope(ctx_group=…)` are. `work_load_list` and `compression_params` have no effect here.

    >>> net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2), name="softmax")
    >>> module = mx.mod.Module(net)
    >>> module.fit(mx.io.NDArrayIter(np.ones((4, 3)), np.zeros(4), batch_size=2), num_epoch=1)
    >>> module.predict(mx.io.NDArrayIter(np.ones((4, 3)), batch_size=2)).shape
    (4, 2)
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
        groups = group2ctxs[0] if isinstance(group2ctxs, (list, tuple)) else group2ctxs or {}
        self._groups = {name: c[0] if isinstance(c, (list, tuple)) else c for name, c in (groups or {}).items()}
        self._data_names, self._label_names = list(data_names or ()), list(label_names or ())
        self._state_names, fixed = list(state_names or ()), list(fixed_param_names or ())
        check_input_names(symbol, self._data_names, "data", True)
        check_input_names(symbol, self._label_names, "label", False)
        check_input_names(symbol, self._state_names, "state", True)
        check_input_names(symbol, fixed, "fixed_param", True)
        self._symbol: Symbol = symbol
        given = [*self._data_names, *self._label_names, *self._state_names]
        self._arguments = symbol.list_arguments()
        self._inputs = [name for name in given if name in self._arguments]
        self._param_names = [name for name in self._arguments if name not in given]
        self._fixed = set(fixed)
        self._aux_names = symbol.list_auxiliary_states()
        self._loaded: tuple[Params, Params] | None = None
        """Parameters from a file, until `bind` creates the arrays to copy them to."""
        self._arrays: Params = {}
        """Parameters and auxiliary states, of all executors; modules of other buckets share them."""
        self._grads: Params = {}
        """The gradients of those parameters that get one."""
        self._executors: dict[Any, Executor] = {}
        """Executors by the types of the inputs."""
        self._executor: Executor | None = None
        """The executor that has run last, or will run first."""
        self._watch: tuple[Any, bool] | None = None
        """The callback of a Monitor, and whether it wants inputs, too."""
        self._optimizer: Optimizer | None = None
        self._updater: Updater | None = None
        self._store: DistributedStore | None = None
        """Sums gradients over processes."""
        self._sums: Params = {}
        self._states_file: str | None = None
        """The optimizer's states to load, until there is an optimizer."""
        self._last_labels: list[DataDesc] = []
        """As described when there were some last: a batch without any, of another size, is no reason to forget them."""
        self._unlabelled: list[str] = []
        """The labels that the last `forward` set to 0, because there were none."""
        self._label_shapes: list[DataDesc] | None = None
        """None before `bind`, too: MXNet's tutorials read it there."""

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """Loads `prefix-symbol.json` and `prefix-0000.params` (the epoch in four digits); `kwargs` are `Module`'s.

        With `load_optimizer_states`, `init_optimizer` will load the states of `prefix-0000.states`.
        """
        graph, args, aux = load_checkpoint(prefix, epoch)
        module = Module(symbol=graph, **kwargs)
        module._loaded = args, aux
        module.params_initialized = True
        if load_optimizer_states:
            module._states_file = f"{prefix}-{epoch:04d}.states"
        return module

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Writes `prefix-symbol.json` and `prefix-0000.params` (the epoch); with `save_optimizer_states` also
        `prefix-0000.states`."""
        file = f"{prefix}-{epoch:04d}.params"
        self.save_params(file)
        self._symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
        logging.info('Saved checkpoint to "%s"', file)
        if save_optimizer_states:
            states = f"{prefix}-{epoch:04d}.states"
            self.save_optimizer_states(states)
            logging.info('Saved optimizer state to "%s"', states)

    # Names and shapes

    @property
    def _exec_group(self) -> DataParallelExecutorGroup:
        executor, params, aux = self._bound(), self._param_names, self._aux_names
        return DataParallelExecutorGroup(
            params,
            [[self._arrays[name]] for name in params],
            [[self._grads.get(name)] for name in params],
            aux,
            [[self._arrays[name]] for name in aux],
            [executor],
            self._symbol,
            self._context,
            self._data_shapes,
            self._label_shapes,
        )

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        return self._symbol.list_outputs()

    def _bound(self) -> Executor:
        if self._executor is None:
            raise AssertionError("call bind first")
        return self._executor

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

        Parameters from a file or an earlier binding are kept; those of `shared_module` are shared, with their
        gradients. `grad_req` says what `backward` does with the gradients of parameters: a word, or one by name;
        `fixed_param_names` get none. ValueError if the names in `data_shapes` are not the module's; RuntimeError if the
        shape of a variable cannot be inferred.
        """
        if force_rebind:
            self._reset_bind()
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise AssertionError("inputs_need_grad=True needs for_training=True")
        if shared_module is not None and not (isinstance(shared_module, Module) and shared_module._executor):
            raise AssertionError("shared_module must be a Module that is bound")
        for c in self._context:
            context.placed(c)
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._requests = self._requested(grad_req)
        self._check_labels(label_shapes)
        self._infer(data_shapes, label_shapes)
        if shared_module is not None:
            self._arrays, self._grads = shared_module._arrays, shared_module._grads
            self.params_initialized = shared_module.params_initialized
        for name in (*self._param_names, *self._aux_names):
            if name not in self._arrays:
                self._arrays[name] = self._zeros(name)
            if self._requests.get(name, "null") != "null" and name not in self._grads:
                self._grads[name] = self._zero_gradient(name)
        self._states = [self._zeros(name) for name in self._state_names]
        self._executor = self._executor_of_shapes()
        if self._loaded is not None:
            self._copy(*self._loaded)
            self._loaded = None
        self.binded = True

    def _check_labels(self, shapes: Shapes | None) -> None:
        """ValueError if labels are described and the graph reads one that is not among them; to predict, they may be
        missing altogether. Labels that the graph does not read are for the metric alone: a warning."""
        given = described(shapes)
        there = [d.name for d in given]
        lacking = [name for name in self._label_names if name in self._inputs and name not in there]
        if lacking and (given or (shapes is not None and self.for_training)):
            raise ValueError(
                f"the graph reads the label {lacking[0]!r}, and the data provide "
                f"{', '.join(map(repr, there)) or 'none'}: name it in the iterator (label_name={lacking[0]!r}), or "
                "make it the module's (label_names=[...])"
            )
        check_described(self._label_names, given, "label", False)

    def _requested(self, grad_req: Any) -> dict[str, str]:
        """What is to be done with each argument's gradient."""
        if not self.for_training:
            return dict.fromkeys(self._arguments, "null")
        if isinstance(grad_req, (list, tuple)):
            return dict(zip(self._arguments, requests(grad_req, self._arguments)))
        by_name = isinstance(grad_req, Mapping)
        usual = "write" if by_name else requests(grad_req, ("",))[0]
        wanted = {*self._param_names} - self._fixed | {*(self._data_names if self.inputs_need_grad else ())}
        found = {name: usual if name in wanted else "null" for name in self._arguments}
        if by_name:
            found |= {name: request for name, request in grad_req.items() if name in found}
        return found

    def _executor_of_shapes(self) -> Executor:
        """The executor for the current shapes of the inputs."""
        key = tuple(self._types[name] for name in self._inputs)
        found = self._executors.get(key)
        if found is None:
            inputs = {name: self._zeros(name) for name in self._inputs}
            grads = {name: self._zero_gradient(name) for name in self._inputs if self._requests[name] != "null"}
            arrays, given = {**self._arrays, **inputs}, {**self._grads, **grads}
            found = self._executors[key] = late.executor_class()(
                self._symbol,
                self._context[0],
                [arrays[name] for name in self._arguments],
                [arrays[name] for name in self._aux_names],
                self._inputs,
                [given.get(name) for name in self._arguments],
                [self._requests[name] for name in self._arguments],
                next((e.codes for e in self._executors.values()), None),
                self._groups,
            )
            if self._watch is not None:
                found.set_monitor_callback(*self._watch)
        return found

    def _reset_bind(self) -> None:
        if self._executor is not None and self.params_initialized:
            self._loaded = self.get_params()
        self.binded = False
        self._executor = None
        self._executors, self._arrays, self._grads = {}, {}, {}

    def reshape(self, data_shapes: Shapes, label_shapes: Shapes | None = None) -> None:
        """Changes the inputs' shapes; parameters are kept."""
        self._bound()
        self._infer(data_shapes, label_shapes)
        self._executor = self._executor_of_shapes()

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
        leaves = [node for node in post_order(self._symbol._heads) if node.op is None]
        stypes = {node: declared_storage(node, {}) for node in leaves}
        of_grads = gradient_storage(self._symbol._heads, storage_types(self._symbol._heads, stypes), leaves)
        self._stypes = {node.name: stype for node, stype in stypes.items()}
        self._grad_stypes = {node.name: stype for node, stype in of_grads.items()}
        self._data_shapes = data
        self._label_shapes = None if label_shapes is None else labels
        self._last_labels = labels or self._last_labels

    def _zeros(self, name: str, stype: str | None = None) -> NDArray:
        kind = self._types[name]
        return ndarray.zeros(kind.shape, self._context[0], kind.dtype.numpy, stype=stype or self._stypes[name])

    def _zero_gradient(self, name: str) -> NDArray:
        return self._zeros(name, self._grad_stypes.get(name, "default"))

    # Parameters

    def get_params(self) -> tuple[Params, Params]:
        """(arguments, auxiliary states) by name, as copies."""
        if not self.params_initialized:
            raise AssertionError("call init_params or set_params first")
        if self._executor is None:
            return self._loaded or ({}, {})
        args, aux = (
            {name: self._arrays[name].copy() for name in names} for names in (self._param_names, self._aux_names)
        )
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
        for names, given in ((self._param_names, arg_params), (self._aux_names, aux_params)):
            for name in sorted(names):
                array = self._arrays[name]
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
        for given, names, what in ((args, self._param_names, "arguments"), (aux, self._aux_names, "auxiliary states")):
            for name, array in given.items():
                if name in names:
                    _assign(name, self._arrays[name], array)
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
        self._unlabelled = [name for name in self._label_names if name in self._inputs and name not in given]
        executor = self._bound()
        for name in self._inputs:
            executor.arg_dict[name][:] = given.get(name, 0)
        executor.forward(self.for_training if is_train is None else is_train)

    def _reshape_for(self, batch: Any, data: Sequence[NDArray], label: Sequence[NDArray]) -> None:
        data_shapes = None if isinstance(batch, list) else getattr(batch, "provide_data", None)
        label_shapes = None if isinstance(batch, list) else getattr(batch, "provide_label", None)
        self.reshape(
            data_shapes or _resized(self._data_shapes, data),
            label_shapes or (_resized(self._last_labels, label) if label else None),
        )

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The outputs of the last `forward`; unless `merge_multi_context`, each in a list of one array.

        The next `forward` overwrites them, if its outputs have the same shapes.
        """
        self._ready()
        outputs = self._bound().outputs
        return list(outputs) if merge_multi_context else [[x] for x in outputs]

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric with the outputs of the last `forward` and their labels."""
        if pre_sliced:
            labels = [_joined(parts) for parts in zip(*labels)]
        named = dict(zip((d.name for d in self._label_shapes or ()), labels or ()))
        eval_metric.update_dict(named, dict(zip(self.output_names, self._bound().outputs)))

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

    # Training

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradients of the last `forward`; see `Executor.backward`."""
        self._ready()
        if not self.for_training:
            raise AssertionError("re-bind with for_training=True to run backward")
        if self._unlabelled:
            missing = ", ".join(map(repr, self._unlabelled))
            raise ValueError(
                f"backward() without labels: the graph reads {missing}, which neither bind(label_shapes=...) nor the "
                "batch names; a gradient by labels of 0 would be wrong"
            )
        self._bound().backward(out_grads)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradients by the data; unless `merge_multi_context`, each in a list of one array."""
        self._ready()
        if not self.inputs_need_grad:
            raise AssertionError("bind with inputs_need_grad=True to get the gradients of inputs")
        grads = self._bound().grad_dict
        found = [grads.get(name) for name in self._data_names]
        return found if merge_multi_context else [[g] for g in found]

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Sets the optimizer: an Optimizer, or the name and the settings of one.

        Its `rescale_grad` is 1 / (batch size), unless the settings say otherwise. There is one copy of the parameters,
        so a `kvstore` matters only if it is one of several processes: they get the parameters of rank 0, gradients are
        summed, and the batch size is that of all together (for the types with `_sync`).
        """
        if not self._takes_optimizer(force_init):
            return
        store = create_store(kvstore) if isinstance(kvstore, str) else kvstore
        self._store = store if isinstance(store, DistributedStore) else None
        scale = 1 / self._data_shapes[0].shape[0]
        if self._store is not None:
            trained = [name for name in self._param_names if self._requests[name] != "null"]
            self._store.broadcast(trained, [self._arrays[n] for n in trained], [self._arrays[n] for n in trained])
            if "_sync" in self._store.type:
                scale /= self._store.num_workers
        names = dict(enumerate(self._param_names))
        if isinstance(optimizer, Optimizer):
            if optimizer.rescale_grad != scale:
                warnings.warn(
                    "Optimizer created manually outside Module but rescale_grad is not normalized to "
                    f"1.0/batch_size/num_workers ({optimizer.rescale_grad} vs. {scale}). Is this intended?",
                    stacklevel=2,
                )
            if not optimizer.idx2name:
                optimizer.idx2name = names
        else:
            settings = {"rescale_grad": scale, **dict(optimizer_params)}
            optimizer = create_optimizer(optimizer, sym=self._symbol, param_idx2name=names, **settings)
        self._optimizer, self._updater = optimizer, get_updater(optimizer)
        self.optimizer_initialized = True
        if self._states_file is not None:
            self.load_optimizer_states(self._states_file)
            self._states_file = None

    def borrow_optimizer(self, shared_module: Module) -> None:
        """Uses the optimizer of another module, with its states."""
        if not shared_module.optimizer_initialized:
            raise AssertionError("the module to borrow from has no optimizer: call its init_optimizer first")
        self._optimizer, self._updater = shared_module._optimizer, shared_module._updater
        self._store, self._sums = shared_module._store, shared_module._sums
        self.optimizer_initialized = True

    def _optimizing(self) -> Updater:
        self._ready()
        if self._updater is None:
            raise AssertionError("call init_optimizer first")
        return self._updater

    def update(self) -> None:
        """Updates the parameters with the gradients of the last `backward`."""
        updater = self._optimizing()
        wanted = [(k, name) for k, name in enumerate(self._param_names) if self._requests[name] != "null"]
        if wanted:
            keys, names = [k for k, _ in wanted], [name for _, name in wanted]
            grads = [self._grads[name] for name in names]
            with Uninterrupted():
                if self._store is not None:
                    for name, grad in zip(names, grads):
                        if name not in self._sums:
                            self._sums[name] = grad.copy()
                    sums = [self._sums[name] for name in names]
                    self._store.pushpull(names, grads, out=sums)
                    rows = [name for name in names if self._sums[name].stype != "default"]
                    self._store.pull(rows, [self._sums[name] for name in rows], ignore_sparse=False)
                    grads = sums
                updater(keys, grads, [self._arrays[name] for name in names])

    def save_optimizer_states(self, fname: Any) -> None:
        """Writes the optimizer's states to a file."""
        atomic.write(fname, [self._optimizing().get_states()])

    def load_optimizer_states(self, fname: Any) -> None:
        """Loads what `save_optimizer_states` wrote."""
        self._optimizing().set_states(Path(fname).read_bytes(), str(fname))


class _Monitored:
    """The interface of an executor that a Monitor uses, for a module."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def set_monitor_callback(self, callback: Any, monitor_all: bool = False) -> None:
        self._module._watch = callback, monitor_all
        for executor in self._module._executors.values():
            executor.set_monitor_callback(callback, monitor_all)

    @property
    def arg_dict(self) -> Params:
        return self._module._bound().arg_dict

    @property
    def aux_dict(self) -> Params:
        return self._module._bound().aux_dict


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
