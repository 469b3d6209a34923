"""`mx.executor_manager`: training on several contexts, as programs did it before there were modules."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gluonjit import ndarray as nd
from gluonjit.context import Context, cpu
from gluonjit.io import DataDesc
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import NDArray


class DataParallelExecutorGroup:
    """An executor for each context, each with its slice of a batch and its own copies of all parameters.

    `param_arrays`, `grad_arrays` and `aux_arrays` have a list for each name, with an array of each context;
    `data_arrays` and `label_arrays` have lists of (slice of the batch, array). `train_data` describes the batches by
    `provide_data` and `provide_label`. The arrays of parameters are those of `shared_group`, if there is one.
    """

    def __init__(
        self,
        sym: Any,
        arg_names: Sequence[str],
        param_names: Sequence[str],
        ctx: Sequence[Context],
        slices: Sequence[slice],
        train_data: Any,
        shared_group: DataParallelExecutorGroup | None = None,
    ) -> None:
        _check_arguments(sym)
        inputs = [x if isinstance(x, DataDesc) else DataDesc(*x) for x in _inputs(train_data)]
        self.data_names = [name for name, *_ in train_data.provide_data]
        self.label_names = [name for name, *_ in train_data.provide_label]
        self.aux_names = sym.list_auxiliary_states()
        self.param_idx = [k for k, name in enumerate(arg_names) if name in param_names]
        self.param_names = [arg_names[k] for k in self.param_idx]
        self.slices = list(slices)
        shared = shared_group.train_execs if shared_group is not None else [None] * len(ctx)
        self.train_execs: list[Any] = [
            _bound(sym, device, part.stop - part.start, inputs, self.param_names, other)
            for device, part, other in zip(ctx, slices, shared)
        ]
        self.data_arrays, self.label_arrays = (
            [[(part, e.arg_dict[name]) for part, e in zip(slices, self.train_execs)] for name in names]
            for names in (self.data_names, self.label_names)
        )
        self.param_arrays = [[e.arg_arrays[k] for e in self.train_execs] for k in self.param_idx]
        self.grad_arrays = [[e.grad_arrays[k] for e in self.train_execs] for k in self.param_idx]
        self.aux_arrays = [[e.aux_arrays[k] for e in self.train_execs] for k in range(len(self.aux_names))]

    def load_data_batch(self, data_batch: Any) -> None:
        """Copies each context's part of the data and labels. AssertionError for a batch of another size."""
        _load_data(data_batch, self.data_arrays)
        _load_label(data_batch, self.label_arrays)

    def forward(self, is_train: bool = False) -> None:
        for executor in self.train_execs:
            executor.forward(is_train=is_train)

    def backward(self) -> None:
        for executor in self.train_execs:
            executor.backward()

    def update_metric(self, metric: Any, labels: Sequence[Any], pre_sliced: bool = False) -> None:
        """Tells a metric of the outputs; `pre_sliced` labels are lists, one for each context."""
        for k, (executor, part) in enumerate(zip(self.train_execs, self.slices)):
            metric.update(labels[k] if pre_sliced else [label[part] for label in labels], executor.outputs)


class DataParallelExecutorManager:
    """Executors on several contexts with the same parameters; with `sym_gen`, a function of a bucket's key that makes
    a symbol, also for batches of several shapes.

    `work_load_list`: how the batch is divided. ValueError if a context would get no example.
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Sequence[Context],
        train_data: Any,
        arg_names: Sequence[str],
        param_names: Sequence[str],
        aux_names: Sequence[str],
        work_load_list: list[float] | None = None,
        logger: Any = None,
        sym_gen: Callable[[Any], Any] | None = None,
    ) -> None:
        (logger or logging).info("Start training with %s", ctx)
        loads = [1] * len(ctx) if work_load_list is None else work_load_list
        if not isinstance(loads, list) or len(loads) != len(ctx):
            raise AssertionError(f"Invalid settings for work load: {loads} for {len(ctx)} contexts")
        self.slices = _split_input_slice(train_data.batch_size, loads)
        self.symbol, self.sym_gen, self.ctx = symbol, sym_gen, ctx
        self.arg_names, self.param_names, self.aux_names = arg_names, param_names, aux_names
        self.execgrp = DataParallelExecutorGroup(symbol, arg_names, param_names, ctx, self.slices, train_data)
        self.curr_execgrp: DataParallelExecutorGroup | None = None
        """The group of the loaded batch."""
        self.execgrp_bucket = {train_data.default_bucket_key: self.execgrp} if sym_gen is not None else {}

    def install_monitor(self, monitor: Any) -> None:
        if self.sym_gen is not None:
            raise NotImplementedError("Monitoring is not implemented for bucketing")
        for executor in self.execgrp.train_execs:
            monitor.install(executor)

    def set_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Copies the values into the arrays of all contexts."""
        for executor in self.execgrp.train_execs:
            executor.copy_params_from(arg_params, aux_params)

    def copy_to(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Writes the means over all contexts into these arrays."""
        for names, arrays, targets in (
            (self.param_names, self.param_arrays, arg_params),
            (self.aux_names, self.aux_arrays, aux_params),
        ):
            for name, copies in zip(names, arrays):
                mean = sum(x.copyto(cpu()) for x in copies) / len(copies)
                mean.astype(targets[name].dtype).copyto(targets[name])

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        return self.execgrp.param_arrays

    @property
    def grad_arrays(self) -> list[list[NDArray]]:
        return self.execgrp.grad_arrays

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        return self.execgrp.aux_arrays

    def load_data_batch(self, data_batch: Any) -> None:
        """Copies a batch, which chooses the executors by its `bucket_key` if there is a `sym_gen`."""
        group = self.execgrp
        if self.sym_gen is not None:
            key = data_batch.bucket_key
            if key not in self.execgrp_bucket:
                names = self.arg_names, self.param_names, self.ctx, self.slices
                self.execgrp_bucket[key] = DataParallelExecutorGroup(
                    self.sym_gen(key), *names, data_batch, shared_group=self.execgrp
                )
            group = self.execgrp_bucket[key]
        self.curr_execgrp = group
        group.load_data_batch(data_batch)

    def forward(self, is_train: bool = False) -> None:
        self._loaded().forward(is_train)

    def backward(self) -> None:
        self._loaded().backward()

    def update_metric(self, metric: Any, labels: Sequence[Any], pre_sliced: bool = False) -> None:
        self._loaded().update_metric(metric, labels, pre_sliced)

    def _loaded(self) -> DataParallelExecutorGroup:
        if self.curr_execgrp is None:
            raise AssertionError("no batch is loaded: call load_data_batch first")
        return self.curr_execgrp


def _inputs(batches: Any) -> list[Any]:
    return [*batches.provide_data, *batches.provide_label]


def _bound(symbol: Any, ctx: Context, size: int, inputs: Sequence[DataDesc], params: Sequence[str], shared: Any) -> Any:
    """An executor for batches of `size`, with gradients for all but the inputs; parameters, their gradients and the
    states are those of `shared`, if it is an executor."""
    arguments, _, states = symbol.infer_shape(**{x.name: (size, *x.shape[1:]) for x in inputs})
    dtypes, _, state_dtypes = symbol.infer_type(**{x.name: x.dtype for x in inputs})
    names = symbol.list_arguments()
    learned = set(names) - {x.name for x in inputs}
    values, gradients = {}, {}
    for name, shape, dtype in zip(names, arguments, dtypes):
        old = shared is not None and name in params
        values[name] = shared.arg_dict[name] if old else nd.zeros(shape, ctx, dtype)
        if values[name].shape != shape:
            raise AssertionError(f"{name} is {values[name].shape}, but {shape} in another bucket")
        if name in learned and name in params:
            gradients[name] = shared.grad_dict[name] if old else nd.zeros(shape, ctx, dtype)
    if shared is not None:
        aux = shared.aux_arrays
    else:
        aux = [nd.zeros(shape, ctx, dtype) for shape, dtype in zip(states, state_dtypes)]
    requests = {name: "write" if name in gradients else "null" for name in names}
    return symbol.bind(ctx, values, gradients, requests, aux)


def _load_general(data: Sequence[NDArray], targets: Sequence[Any]) -> None:
    """Copies arrays to arrays, or to lists of (slice, array of that part)."""
    for source, target in zip(data, targets):
        if isinstance(target, NDArray):
            source.copyto(target)
            continue
        if target[-1][0].stop != source.shape[0]:
            raise AssertionError(f"Batch size miss match. Expected {target[-1][0].stop}, got {source.shape[0]}")
        for part, array in target:
            source[part].copyto(array)


def _load_data(batch: Any, targets: Sequence[Any]) -> None:
    _load_general(batch.data, targets)


def _load_label(batch: Any, targets: Sequence[Any]) -> None:
    _load_general(batch.label, targets)


def _split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """The part of a batch for each device, in proportion to these loads. ValueError if one would be empty."""
    total = sum(work_load_list)
    sizes = [round(load * batch_size / total) for load in work_load_list]
    sizes[-1] += max(batch_size - sum(sizes), 0)
    found, end = [], 0
    for size in sizes:
        begin, end = min(end, batch_size), min(end + size, batch_size)
        if begin >= end:
            raise ValueError("Too many slices. Some splits are empty.")
        found.append(slice(begin, end))
    return found


def _check_arguments(symbol: Any) -> None:
    """ValueError if two arguments or two auxiliary states of a symbol have the same name."""
    for names, what in ((symbol.list_arguments(), "argument"), (symbol.list_auxiliary_states(), "auxiliary param")):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f'Find duplicated {what} name "{twice[0]}", please make the names unique')


_mxnet_names.explain(__name__)
