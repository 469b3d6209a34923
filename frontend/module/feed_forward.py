"""`mx.model.FeedForward`: the interface to training from before `Module`, which does the work."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from gluonjit import metric as metrics
from gluonjit.base import mx_real_t
from gluonjit.context import current_context
from gluonjit.data.iterators import DataIter, NDArrayIter, ResizeIter
from gluonjit.execution.executor import Executor
from gluonjit.language import late
from gluonjit.language.source import stacklevel
from gluonjit.model import BatchEndParam, load_checkpoint, save_checkpoint
from gluonjit.module.base_module import _notify
from gluonjit.module.module import Module
from gluonjit.ndarray import NDArray, zeros
from gluonjit.symbol import Symbol
from gluonjit.symbol.shapes import is_complete
from gluonjit.training.initializers import Uniform

Params = dict[str, NDArray]


class FeedForward:
    """A graph that is trained with `fit` on arrays or a DataIter, as in MXNet before `Module`.

    `kwargs` are settings of the optimizer. Arrays are divided into batches of `numpy_batch_size`. With `epoch_size`,
    an epoch is that many batches.
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = Uniform(0.01),  # noqa: B008 (immutable, and the signature is MXNet's)
        numpy_batch_size: int = 128,
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        warnings.warn(
            "mxnet.model.FeedForward has been deprecated. Please use mxnet.mod.Module instead.",
            DeprecationWarning,
            stacklevel=stacklevel(),
        )
        self.symbol = symbol if isinstance(symbol, Symbol) else None
        self.sym_gen = None if isinstance(symbol, Symbol) else symbol
        self.ctx = ctx if ctx is not None else current_context()
        self.num_epoch, self.begin_epoch, self.epoch_size = num_epoch, begin_epoch, epoch_size
        self.optimizer, self.initializer, self.kwargs = optimizer, initializer, dict(kwargs)
        self.numpy_batch_size = numpy_batch_size
        self.arg_params, self.aux_params = arg_params, aux_params
        self.allow_extra_params = allow_extra_params
        self._pred_exec: Executor | None = None
        self._pred_symbol: Symbol | None = None
        """The graph that `_pred_exec` runs."""

    def _batches(self, x: Any, y: Any, training: bool) -> Any:
        """A DataIter over arrays, shuffled for training; a DataIter itself."""
        if isinstance(x, (np.ndarray, NDArray)):
            x = np.asarray(x.asnumpy() if isinstance(x, NDArray) else x)
            if y is None:
                if training:
                    raise ValueError("y must be specified when X is numpy.ndarray")
                y = np.zeros(x.shape[0])
            y = np.asarray(y.asnumpy() if isinstance(y, NDArray) else y)
            if x.shape[0] != y.shape[0]:
                raise ValueError("The numbers of data points and labels not equal")
            if y.ndim == 2 and y.shape[1] == 1:
                y = y.flatten()
            if y.ndim != 1:
                raise ValueError("Label must be 1D or 2D (with 2nd dimension being 1)")
            size = min(x.shape[0], self.numpy_batch_size)
            # The remainder counts in a prediction; in training it waits for the next epoch.
            return NDArrayIter(x, y, size, shuffle=training, last_batch_handle="roll_over" if training else "pad")
        if not isinstance(x, DataIter):
            raise TypeError("X must be DataIter, NDArray or numpy.ndarray")
        return x

    def _module(self, data: Any) -> Module:
        if self.symbol is None:
            assert self.sym_gen is not None
            self.symbol = self.sym_gen(data.default_bucket_key)
        arguments = self.symbol.list_arguments()
        names = [d[0] for d in data.provide_label or () if d[0] in arguments]
        return Module(self.symbol, [d[0] for d in data.provide_data], names, context=self.ctx)

    def fit(
        self,
        X: Any,
        y: Any = None,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Any = None,
        monitor: Any = None,
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
    ) -> None:
        """Trains the parameters, which `arg_params` and `aux_params` hold afterwards; see `Module.fit`."""
        data: Any = self._batches(X, y, True)
        if self.epoch_size is not None:
            data = ResizeIter(data, self.epoch_size, reset_internal=False)
        if isinstance(eval_data, (tuple, list)):
            if len(eval_data) != 2:
                raise ValueError("Eval data must be a pair of data and labels, or a DataIter")
            eval_data = self._batches(eval_data[0], eval_data[1], False)
        module = self._module(data)
        if logger is not None:
            module.logger = logger
        known = {*module._param_names, *module._aux_names}
        args, aux = (
            None if p is None else {k: v for k, v in p.items() if k in known or not self.allow_extra_params}
            for p in (self.arg_params, self.aux_params)
        )
        module.fit(
            data,
            eval_data,
            eval_metric,
            epoch_end_callback,
            batch_end_callback,
            kvstore,
            self.optimizer,
            self.kwargs,
            eval_end_callback,
            eval_batch_end_callback,
            self.initializer,
            args,
            aux,
            allow_missing=True,
            begin_epoch=self.begin_epoch,
            num_epoch=self.num_epoch,
            monitor=monitor,
        )
        self.arg_params, self.aux_params = module.get_params()

    def _predictor(self, data: Any) -> Executor:
        """The graph bound to the parameters for inference. What else it needs, such as labels, stays 0."""
        if self.symbol is None:
            assert self.sym_gen is not None
            self.symbol = self.sym_gen(data.default_bucket_key)
        names, states = self.symbol.list_arguments(), self.symbol.list_auxiliary_states()
        args, aux = self._known(self.arg_params, names), self._known(self.aux_params, states)
        shapes = {d[0]: tuple(d[1]) for d in data.provide_data}
        last = self._pred_exec
        if last is not None and self._pred_symbol is self.symbol and _holds(last, args, aux):
            if any(last.arg_dict[name].shape != shape for name, shape in shapes.items()):
                last = last.reshape(partial_shaping=True, allow_up_sizing=True, **shapes)
            self._pred_exec = last
            return last
        known = {**{name: x.shape for name, x in args.items()}, **shapes}
        found, _, found_aux = self.symbol.infer_shape_partial(**known)
        if not all(map(is_complete, found)):
            known |= {d[0]: tuple(d[1]) for d in data.provide_label or () if d[0] in names}
            found, _, found_aux = self.symbol.infer_shape(**known)
        dtypes = {d[0]: getattr(d, "dtype", mx_real_t) for d in data.provide_data}
        ctx = self.ctx[0] if isinstance(self.ctx, (list, tuple)) else self.ctx
        args |= {k: zeros(shape, ctx, dtypes.get(k, mx_real_t)) for k, shape in zip(names, found) if k not in args}
        aux |= {k: zeros(shape, ctx) for k, shape in zip(states, found_aux) if k not in aux}
        self._pred_exec, self._pred_symbol = self.symbol.bind(ctx, args, grad_req="null", aux_states=aux), self.symbol
        return self._pred_exec

    def _known(self, params: Params | None, names: Collection[str]) -> Params:
        """The parameters that the graph has. ValueError if there are others, unless `allow_extra_params`."""
        extra = [name for name in params or {} if name not in names]
        if extra and not self.allow_extra_params:
            raise ValueError(f'Find name "{extra[0]}" that is not in the graph; allow_extra_params=True leaves it out')
        return {name: x for name, x in (params or {}).items() if name in names}

    def _predicted(self, data: Any, num_batch: int | None, reset: bool) -> Iterator[tuple[Any, list[NDArray]]]:
        """Batches, and the outputs for each."""
        if reset:
            data.reset()
        predictor = self._predictor(data)
        names = [d[0] for d in data.provide_data]
        for k, batch in enumerate(data):
            if k == num_batch:
                return
            yield batch, predictor.forward(False, **dict(zip(names, batch.data)))

    def predict(self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True) -> Any:
        """The outputs as NumPy arrays, one or a list; with `return_data` (outputs, data, labels)."""
        data = self._batches(X, None, False)
        parts: list[list[np.ndarray]] = []
        count = 0
        for batch, outputs in self._predicted(data, num_batch, reset):
            arrays = [*outputs, *batch.data, *batch.label] if return_data else outputs
            parts.append([x[: data.batch_size - batch.pad].asnumpy() for x in arrays])
            count = len(outputs)
        joined = [np.concatenate(x) for x in zip(*parts)]
        groups = [joined[:count]]
        if return_data:
            middle = count + len(data.provide_data)
            groups += [joined[count:middle], joined[middle:]]
        single = [group[0] if len(group) == 1 else group for group in groups]
        return single if return_data else single[0]

    def score(
        self,
        X: Any,
        eval_metric: Any = "acc",
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        reset: bool = True,
    ) -> float:
        """The value of a metric over a DataIter."""
        data = self._batches(X, None, False)
        if not isinstance(eval_metric, metrics.EvalMetric):
            eval_metric = metrics.create(eval_metric)
        for k, (batch, outputs) in enumerate(self._predicted(data, num_batch, reset)):
            eval_metric.update(batch.label, outputs)
            _notify(batch_end_callback, BatchEndParam(0, k, eval_metric, locals()))
        return eval_metric.get()[1]

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Writes `prefix-symbol.json` and `prefix-0000.params` (the epoch; default: `num_epoch`)."""
        epoch = self.num_epoch if epoch is None else epoch
        if epoch is None:
            raise AssertionError("save needs an epoch: give it, or make the model with num_epoch")
        save_checkpoint(prefix, epoch, self.symbol, self.arg_params or {}, self.aux_params or {}, remove_amp_cast)

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """Loads what `save` wrote; `fit` will go on from that epoch."""
        graph, args, aux = load_checkpoint(prefix, epoch)
        return FeedForward(graph, ctx=ctx, arg_params=args, aux_params=aux, begin_epoch=epoch, **kwargs)

    @staticmethod
    def create(
        symbol: Any,
        X: Any,
        y: Any = None,
        ctx: Any = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: Any = "sgd",
        initializer: Any = Uniform(0.01),  # noqa: B008 (immutable, and the signature is MXNet's)
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        logger: Any = None,
        work_load_list: Any = None,
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
        **kwargs: Any,
    ) -> FeedForward:
        """A model that has been trained with `fit`."""
        model = FeedForward(symbol, ctx, num_epoch, epoch_size, optimizer, initializer, **kwargs)
        model.fit(
            X,
            y,
            eval_data,
            eval_metric,
            epoch_end_callback,
            batch_end_callback,
            kvstore,
            logger,
            work_load_list,
            None,
            eval_end_callback,
            eval_batch_end_callback,
        )
        return model


def _holds(executor: Executor, args: Params, aux: Params) -> bool:
    """Whether it is bound to these very arrays."""
    pairs = ((executor.arg_dict, args), (executor.aux_dict, aux))
    return all(own.get(name) is x for own, given in pairs for name, x in given.items())


late.feed_forward_class.provide(lambda: FeedForward)
