"""The base of all modules: iterating over data, and parameter files."""

from __future__ import annotations

import itertools
import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gluonjit import metric, ndarray
from gluonjit.base import _as_list
from gluonjit.data.iterators import DataBatch, DataDesc, DataIter
from gluonjit.model import BatchEndParam
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.array_files import borrow
from gluonjit.symbol import Symbol
from gluonjit.training.initializers import Uniform

Params = dict[str, NDArray]
Shapes = Sequence[Any]
"""DataDesc, or (name, shape) pairs."""


class BaseModule:
    """A computation that is first bound to shapes (`binded`), then given parameters (`params_initialized`)."""

    def __init__(self, logger: Any = logging) -> None:
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Symbol | None = None

    @property
    def symbol(self) -> Any:
        """The graph."""
        return self._symbol

    def _ready(self) -> None:
        if not (self.binded and self.params_initialized):
            raise AssertionError("call bind, then init_params or set_params, before running a module")

    def _takes_optimizer(self, force_init: bool) -> bool:
        """Whether `init_optimizer` is to set the optimizer; logs a warning if there is one that stays."""
        self._ready()
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return False
        return True

    # Defined by subclasses

    @property
    def data_names(self) -> list[str]:
        raise NotImplementedError

    @property
    def output_names(self) -> list[str]:
        raise NotImplementedError

    @property
    def data_shapes(self) -> list[DataDesc]:
        raise NotImplementedError

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        raise NotImplementedError

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        raise NotImplementedError

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
        raise NotImplementedError

    def get_params(self) -> tuple[Params, Params]:
        raise NotImplementedError

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 (immutable, and the signature is MXNet's)
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        raise NotImplementedError

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        raise NotImplementedError

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        raise NotImplementedError

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        raise NotImplementedError

    def install_monitor(self, mon: Any) -> None:
        raise NotImplementedError

    # Parameters

    def set_params(
        self,
        arg_params: Params,
        aux_params: Params,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Copies the given arrays into the parameters; see `init_params`."""
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def save_params(self, fname: Any) -> None:
        """Writes the parameters to a file, as `arg:…` and `aux:…`."""
        args, aux = self.get_params()
        named = {f"arg:{name}": x for name, x in args.items()} | {f"aux:{name}": x for name, x in aux.items()}
        ndarray.save(fname, named)

    def load_params(self, fname: Any) -> None:
        """Loads the parameters from a file. ValueError if a name does not begin with `arg:` or `aux:`."""
        parts: dict[str, Params] = {"arg": {}, "aux": {}}
        loaded = borrow(fname) or {}
        if not isinstance(loaded, dict) or any(not key.startswith(("arg:", "aux:")) for key in loaded):
            raise ValueError(f"Invalid param file {fname}")
        for key, x in loaded.items():
            parts[key[:3]][key[4:]] = x
        self.set_params(parts["arg"], parts["aux"])

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Arrays that are kept from one call to the next."""
        self._ready()
        return []

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Sets the states to arrays, or all of them to a number."""
        self._ready()
        if states or value:
            raise AssertionError("this module has no states")

    # Running

    def prepare(self, data_batch: Any, sparse_row_id_fn: Callable[[Any], Any] | None = None) -> None:
        """Prepares for a batch, whose shape may differ from the last one's. `sparse_row_id_fn` has no effect: the
        module has all rows of its row_sparse parameters."""

    def _batches(self, data: DataIter, num_batch: int | None, reset: bool) -> Iterator[tuple[int, Any]]:
        """Runs each batch in inference mode; yields (number of the batch, batch)."""
        self._ready()
        if reset:
            data.reset()
        for k, batch in enumerate(data):
            if k == num_batch:
                break
            self.prepare(batch)
            self.forward(batch, is_train=False)
            yield k, batch

    def iter_predict(
        self, eval_data: DataIter, num_batch: int | None = None, reset: bool = True, sparse_row_id_fn: Any = None
    ) -> Iterator[tuple[list[NDArray], int, Any]]:
        """Yields (outputs without padding, number of the batch, batch); the next batch overwrites the outputs."""
        for k, batch in self._batches(eval_data, num_batch, reset):
            yield _without_padding(self.get_outputs(), batch.pad), k, batch

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Any = None,
    ) -> Any:
        """The outputs for all batches, without padding.

        With `merge_batches`, a list of one array for each output; or the array itself, if there is one output and
        `always_output_list` is False. Otherwise a list of outputs for each batch. `eval_data` is a DataIter, or an
        array, which is one batch; ValueError for others.
        """
        self._ready()
        if isinstance(eval_data, (NDArray, np.ndarray)):
            array = eval_data if isinstance(eval_data, NDArray) else ndarray.array(eval_data)
            self.forward(DataBatch([array]))
            return self.get_outputs()[0]
        if not isinstance(eval_data, DataIter):
            raise ValueError("eval_data must be of type NDArray or DataIter")
        batches = [[x.copy() for x in outputs] for outputs, _, _ in self.iter_predict(eval_data, num_batch, reset)]
        if not merge_batches or not batches:
            return batches
        if len({len(outputs) for outputs in batches}) > 1:
            raise AssertionError(
                "Cannot merge batches, as num of outputs is not the same in mini-batches. Maybe bucketing is used?"
            )
        merged = [ndarray.concatenate(list(parts)) for parts in zip(*batches)]
        return merged if len(merged) > 1 or always_output_list else merged[0]

    def score(
        self,
        eval_data: DataIter,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        score_end_callback: Any = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Any = None,
    ) -> list[tuple[str, float]]:
        """Name and value of the metric (an EvalMetric, or what `mx.metric.create` takes) over all batches."""
        if not isinstance(eval_metric, metric.EvalMetric):
            eval_metric = metric.create(eval_metric)
        eval_metric.reset()
        count = 0
        for k, batch in self._batches(eval_data, num_batch, reset):
            self.update_metric(eval_metric, batch.label)
            _notify(batch_end_callback, BatchEndParam(epoch, k, eval_metric, locals()))
            count = k + 1
        _notify(score_end_callback, BatchEndParam(epoch, count, eval_metric, locals()))
        return eval_metric.get_name_value()

    # Training

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradients of the last `forward`. `out_grads` are those of the outputs that are no losses."""
        raise NotImplementedError

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The gradients by the data, which `bind(inputs_need_grad=True)` asks for."""
        raise NotImplementedError

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        raise NotImplementedError

    def update(self) -> None:
        """Updates the parameters with the gradients of the last `backward`."""
        raise NotImplementedError

    def forward_backward(self, data_batch: Any) -> None:
        """`forward` in training mode, then `backward`."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def fit(
        self,
        train_data: Any,
        eval_data: DataIter | None = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
        initializer: Any = Uniform(0.01),  # noqa: B008 (immutable, and the signature is MXNet's)
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_missing: bool = False,
        force_rebind: bool = False,
        force_init: bool = False,
        begin_epoch: int = 0,
        num_epoch: int | None = None,
        validation_metric: Any = None,
        monitor: Any = None,
        sparse_row_id_fn: Any = None,
    ) -> None:
        """Trains for the epochs from `begin_epoch` to `num_epoch`, with data of `train_data`.

        Binds the module, initializes its parameters and sets its optimizer first, as far as that has not been done. The
        metric is logged after each epoch; with `eval_data`, so is `validation_metric` (default: the same).
        `batch_end_callback(BatchEndParam)` is called after each batch, `epoch_end_callback(epoch, symbol, arguments,
        auxiliary states)` after each epoch; each may be a list.
        """
        if num_epoch is None:
            raise AssertionError("please specify number of epochs")
        if not hasattr(train_data, "provide_data"):
            made = "mx.io.NDArrayIter(data, label, batch_size) makes one of arrays"
            raise TypeError(f"fit takes a DataIter, got {type(train_data).__name__}; {made}")
        self.bind(train_data.provide_data, train_data.provide_label, for_training=True, force_rebind=force_rebind)
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(initializer, arg_params, aux_params, allow_missing, force_init)
        self.init_optimizer(kvstore, optimizer, optimizer_params)
        validation_metric = eval_metric if validation_metric is None else validation_metric
        if not isinstance(eval_metric, metric.EvalMetric):
            eval_metric = metric.create(eval_metric)
        for epoch in range(begin_epoch, num_epoch):
            started = time.time()
            eval_metric.reset()
            self._begin_epoch(epoch, train_data)
            values = []
            for nbatch, data_batch, following in _with_next(train_data):
                if monitor is not None:
                    monitor.tic()
                self.forward_backward(data_batch)
                self.update()
                several = isinstance(data_batch, list)
                labels = [b.label for b in data_batch] if several else data_batch.label
                self.update_metric(eval_metric, labels, pre_sliced=several)
                if following is not None:
                    self.prepare(following, sparse_row_id_fn)
                else:
                    values = eval_metric.get_global_name_value()
                if monitor is not None:
                    monitor.toc_print()
                _notify(batch_end_callback, BatchEndParam(epoch, nbatch, eval_metric, locals()))
            for name, value in values:
                self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
            self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - started)
            args, aux = self.get_params()
            self.set_params(args, aux)
            for callback in _as_list(epoch_end_callback) if epoch_end_callback is not None else ():
                callback(epoch, self.symbol, args, aux)
            if eval_data is not None:
                found = self.score(
                    eval_data,
                    validation_metric,
                    score_end_callback=eval_end_callback,
                    batch_end_callback=eval_batch_end_callback,
                    epoch=epoch,
                )
                for name, value in found:
                    self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
            self._end_epoch(train_data)

    def _begin_epoch(self, epoch: int, train_data: DataIter) -> None:
        """Called before the batches of an epoch of `fit`."""

    def _end_epoch(self, train_data: DataIter) -> None:
        """Called after an epoch of `fit`."""
        train_data.reset()


def _with_next(data: Iterable[Any]) -> Iterator[tuple[int, Any, Any]]:
    """(number, batch, the following batch or None)."""
    batches = iter(data)
    batch = next(batches, None)
    for k in itertools.count():
        if batch is None:
            return
        following = next(batches, None)
        yield k, batch, following
        batch = following


def _without_padding(outputs: Iterable[NDArray], pad: int | None) -> list[NDArray]:
    return [x[: x.shape[0] - (pad or 0)] for x in outputs]


def _notify(callbacks: Any, params: BatchEndParam) -> None:
    for callback in _as_list(callbacks) if callbacks is not None else ():
        callback(params)


def check_input_names(symbol: Symbol, names: Sequence[str], kind: str, required: bool) -> None:
    """ValueError (a warning, unless `required`) for a name that no argument of the graph has."""
    arguments = symbol.list_arguments()
    for name in names:
        if name not in arguments:
            learned = ("_weight", "_bias", "_gamma", "_beta")
            candidates = "\n\t".join(n for n in arguments if not n.endswith(learned))
            message = (
                f"You created Module with Module(..., {kind}_names={names}) but input with name '{name}' is not found "
                f"in symbol.list_arguments(). Did you mean one of:\n\t{candidates}"
            )
            if required:
                raise ValueError(message)
            warnings.warn(message, stacklevel=3)


def described(shapes: Shapes | None) -> list[DataDesc]:
    """Shapes as DataDesc."""
    return [x if isinstance(x, DataDesc) else DataDesc(*x) for x in shapes or ()]


def check_described(names: Sequence[str], descriptions: Sequence[DataDesc], kind: str, required: bool) -> None:
    """ValueError (a warning, unless `required`) when the descriptions are not of just these names."""
    if sorted(names) != sorted(d.name for d in descriptions):
        message = (
            f"Data provided by {kind}_shapes don't match names specified by {kind}_names ({descriptions} vs. {names})"
        )
        if required:
            raise ValueError(message)
        warnings.warn(message, stacklevel=4)  # where bind is called
