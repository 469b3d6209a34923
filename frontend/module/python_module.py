"""`PythonModule` and `PythonLossModule`: modules without parameters, which compute in Python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit import ndarray
from gluonjit.data.iterators import DataDesc
from gluonjit.module.base_module import BaseModule, Params, Shapes, described
from gluonjit.ndarray import NDArray
from gluonjit.training.initializers import Uniform


class PythonModule(BaseModule):
    """The base of modules in Python. Subclasses define `forward`, `get_outputs`, `_compute_output_shapes` and, to be
    trained through, `backward` and `get_input_grads`.
    """

    def __init__(
        self,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        output_names: Sequence[str],
        logger: Any = logging,
    ) -> None:
        super().__init__(logger)
        self._data_names = list(data_names)
        self._label_names = None if label_names is None else list(label_names)
        self._output_names = list(output_names)
        self._data_shapes: list[DataDesc] = []
        self._label_shapes: list[DataDesc] | None = None
        self._output_shapes: list[tuple[str, tuple[int, ...]]] = []

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._output_shapes

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
        """Notes the shapes of data and labels, from which follow those of the outputs."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if grad_req != "write":
            raise AssertionError("Python module only support write gradient")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._data_shapes = described(data_shapes)
        if [d.name for d in self._data_shapes] != self._data_names:
            raise AssertionError(f"data_shapes are of {[d.name for d in self._data_shapes]}, not {self._data_names}")
        self._label_shapes = None if label_shapes is None else described(label_shapes)
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of every output, from `_data_shapes` and `_label_shapes`."""
        raise NotImplementedError

    def get_params(self) -> tuple[Params, Params]:
        """No parameters."""
        return {}, {}

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 (immutable, and the signature is MXNet's)
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Nothing to initialize."""
        self.params_initialized = True

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Nothing to optimize."""
        self.optimizer_initialized = True

    def update(self) -> None:
        """Nothing to update."""

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric with the outputs, if the module has labels."""
        if self._label_shapes is None:
            return
        if pre_sliced:
            raise RuntimeError("PythonModule does not support presliced labels")
        eval_metric.update(labels, self.get_outputs())

    def install_monitor(self, mon: Any) -> None:
        """There are no operators to look at."""


class PythonLossModule(PythonModule):
    """A loss: its output is its data, the scores; `grad_func(scores, labels)` gives the gradient by them."""

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] = ("softmax_label",),
        logger: Any = logging,
        grad_func: Callable[[NDArray, NDArray], Any] | None = None,
    ) -> None:
        super().__init__(data_names, label_names, [f"{name}_output"], logger)
        if len(data_names) != 1 or len(label_names) != 1:
            raise AssertionError("PythonLossModule takes one data and one label")
        if grad_func is not None and not callable(grad_func):
            raise AssertionError("grad_func must be a function of scores and labels")
        self._grad_func = grad_func
        self._scores: Any = None
        self._labels: Any = None
        self._gradient: Any = None

    def _compute_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(self._output_names[0], tuple(self._data_shapes[0].shape))]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        self._scores = data_batch.data[0]
        if self.for_training if is_train is None else is_train:
            self._labels = data_batch.label[0]

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        return [self._scores] if merge_multi_context else [[self._scores]]

    def backward(self, out_grads: Any = None) -> None:
        """Calls `grad_func`. Subclasses may override `_backward_impl` instead of passing one."""
        if out_grads is not None:
            raise AssertionError("For a loss module, out_grads should be None")
        if not self.for_training:
            raise AssertionError("re-bind with for_training=True to run backward")
        self._backward_impl()

    def _backward_impl(self) -> None:
        if self._grad_func is None:
            raise NotImplementedError("pass grad_func, or override _backward_impl")
        gradient = self._grad_func(self._scores, self._labels)
        self._gradient = gradient if isinstance(gradient, NDArray) else ndarray.array(np.asarray(gradient))

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        return [self._gradient] if merge_multi_context else [[self._gradient]]
