"""`SVRGModule`: a `Module` whose gradients vary less from batch to batch."""

from __future__ import annotations

import logging
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.context import cpu
from gluonjit.module.base_module import Shapes
from gluonjit.module.module import Module
from gluonjit.ndarray import NDArray, zeros
from gluonjit.optimizer import Optimizer
from gluonjit.optimizer import create as create_optimizer

__all__ = ["SVRGModule"]


class SVRGModule(Module):
    """A `Module` that corrects each batch's gradient by what it was for a snapshot of the parameters.

    Every `update_freq` epochs `fit` takes the snapshot, and the mean of its gradients over all batches. A step then
    uses gradient − (snapshot's gradient for the batch) + (that mean), in one process alone.
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Any = ("data",),
        label_names: Any = ("softmax_label",),
        logger: Any = logging,
        context: Any = cpu(),  # noqa: B008 (immutable, and the signature is MXNet's)
        work_load_list: Any = None,
        fixed_param_names: Any = None,
        state_names: Any = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
        update_freq: int | None = None,
    ) -> None:
        if not isinstance(update_freq, int):
            raise TypeError(f"update_freq, the number of epochs between snapshots, is {update_freq!r}, not an int")
        if update_freq <= 0:
            raise ValueError(f"update_freq, the number of epochs between snapshots, is {update_freq}, not positive")
        given = (symbol, data_names, label_names, logger, context, work_load_list, fixed_param_names, state_names)
        super().__init__(*given, group2ctxs, compression_params)
        self.update_freq = update_freq
        self._mod_aux = Module(*given, group2ctxs, compression_params)
        """The module that has the snapshot."""
        self._param_dict: list[dict[str, NDArray]] = [{}]
        """The mean gradients of the snapshot, in a list as for MXNet's several devices."""

    def _reset_bind(self) -> None:
        super()._reset_bind()
        self._mod_aux._reset_bind()

    def bind(
        self,
        data_shapes: Shapes,
        label_shapes: Shapes | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
    ) -> None:
        given = (data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind, shared_module, grad_req)
        super().bind(*given)
        if for_training:
            self._mod_aux.bind(*given)

    def reshape(self, data_shapes: Shapes, label_shapes: Shapes | None = None) -> None:
        super().reshape(data_shapes, label_shapes)
        self._mod_aux.reshape(data_shapes, label_shapes)

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Sets the optimizer. As in MXNet, one given by its name does not know the `lr_mult` of the graph's
        variables."""
        if not isinstance(optimizer, Optimizer):
            scale = 1 / self.data_shapes[0].shape[0]
            settings = {"rescale_grad": scale, **dict(optimizer_params)}
            optimizer = create_optimizer(optimizer, param_idx2name=dict(enumerate(self._param_names)), **settings)
        super().init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        if self._store is not None:
            raise MXNetError(f"SVRGModule trains in one process; the kvstore {self._store.type!r} has several")
        self._param_dict = [{name: zeros(x.shape, x.context) for name, x in self.get_params()[0].items()}]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        super().forward(data_batch, is_train)
        if is_train:
            self._mod_aux.forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        super().backward(out_grads)
        if self._mod_aux.binded:
            self._mod_aux.backward(out_grads)

    def update(self) -> None:
        """Updates the parameters with the corrected gradients of the last `backward`."""
        group, snapshot = self._exec_group, self._mod_aux._exec_group
        for name, (gradient,), (before,) in zip(group.param_names, group.grad_arrays, snapshot.grad_arrays):
            if gradient is not None:
                gradient -= before
                gradient += self._param_dict[0][name]
        super().update()

    def update_full_grads(self, train_data: Any) -> None:
        """Takes a snapshot of the parameters, and the mean of its gradients over the batches of `train_data`.

        As in MXNet, the mean of the snapshot before counts as one more batch in the sum.
        """
        self._mod_aux.set_params(*self.get_params())
        group = self._mod_aux._exec_group
        means = self._param_dict[0]
        train_data.reset()
        count, pad = 0, 0
        for batch in train_data:
            self._mod_aux.forward(batch, is_train=True)
            self._mod_aux.backward()
            count, pad = count + 1, batch.pad
            for name, (gradient,) in zip(group.param_names, group.grad_arrays):
                if gradient is not None:
                    means[name] += gradient
        for name in group.param_names:
            means[name] /= count - pad / train_data.batch_size

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        super().prepare(data_batch, sparse_row_id_fn)
        self._mod_aux.prepare(data_batch, sparse_row_id_fn)

    def _begin_epoch(self, epoch: int, train_data: Any) -> None:
        if epoch % self.update_freq == 0:
            self.update_full_grads(train_data)
        train_data.reset()

    def _end_epoch(self, train_data: Any) -> None:
        """The next one begins with a reset."""
