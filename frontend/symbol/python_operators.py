"""`mx.operator.NumpyOp` and `NDArrayOp`: operators in Python from before `CustomOp`, which runs them here.

An instance is an operator: `op(data=x, name="square")`, or `op.get_symbol(…)`, adds it to a graph. Such a graph is only
valid in this process: its JSON identifies the instance (in MXNet, by its address), but does not contain its code.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from gluonjit.language.source import stacklevel
from gluonjit.operators.custom_classes import PROPS, CustomOp, CustomOpProp
from gluonjit.symbol.chosen_operators import Custom
from gluonjit.symbol.symbol import Symbol

__all__ = ["NDArrayOp", "NumpyOp", "PythonOp"]

_numbers = count()


class PythonOp:
    """The common base: names, shapes, and methods for users to override. `get_symbol` is in the subclasses."""

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad
        warnings.warn(f"{type(self).__name__}: PythonOp is deprecated, use CustomOp", stacklevel=stacklevel())

    def __call__(self, *args: Any, **kwargs: Any) -> Symbol:
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Symbol:
        """A node of this operator; inputs by position or name."""
        raise NotImplementedError("Must override this")

    def forward(self, in_data: list[Any], out_data: list[Any]) -> None:
        """Writes the results into the arrays of `out_data`."""
        out_data[0][:] = in_data[0]

    def backward(self, out_grad: list[Any], in_data: list[Any], out_data: list[Any], in_grad: list[Any]) -> None:
        """Writes gradients into the arrays of `in_grad`; not called yet."""
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: list[list[int]]) -> tuple[Sequence[Any], Sequence[Any]]:
        """(shapes of inputs, of results)."""
        return in_shape, [in_shape[0]]

    def list_outputs(self) -> list[str]:
        return ["output"]

    def list_arguments(self) -> list[str]:
        return ["data"]

    def need_top_grad(self) -> bool:
        """Whether `backward` reads `out_grad`."""
        return self.need_top_grad_


class NumpyOp(PythonOp):
    """`forward` gets NumPy arrays."""

    def get_symbol(self, *args: Any, **kwargs: Any) -> Symbol:
        return _node(self, _call_with_numpy, args, kwargs)


class NDArrayOp(PythonOp):
    """`forward` gets NDArrays."""

    def get_symbol(self, *args: Any, **kwargs: Any) -> Symbol:
        return _node(self, _call_with_arrays, args, kwargs)

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        """Which arrays `backward` reads."""
        return [*(out_grad if self.need_top_grad() else []), *in_data, *out_data]


def _call_with_arrays(op: PythonOp, inputs: list[Any], outputs: list[Any]) -> None:
    op.forward(in_data=inputs, out_data=outputs)


def _call_with_numpy(op: PythonOp, inputs: list[Any], outputs: list[Any]) -> None:
    results = [x.asnumpy() for x in outputs]
    op.forward(in_data=[x.asnumpy() for x in inputs], out_data=results)
    for out, result in zip(outputs, results):
        out[:] = result


class _Call(CustomOp):
    def __init__(self, op: PythonOp, call: Callable[..., None]) -> None:
        self.op, self.call = op, call

    def forward(self, is_train: bool, req: list[str], in_data: list[Any], out_data: list[Any], aux: list[Any]) -> None:
        self.call(self.op, in_data, out_data)


class _Properties(CustomOpProp):
    def __init__(self, op: PythonOp, call: Callable[..., None]) -> None:
        super().__init__(op.need_top_grad())
        self.op, self.call = op, call

    def list_arguments(self) -> list[str]:
        return self.op.list_arguments()

    def list_outputs(self) -> list[str]:
        return self.op.list_outputs()

    def infer_shape(self, in_shape: list[Any]) -> tuple[Any, ...]:
        inputs, outputs = self.op.infer_shape(in_shape)
        return inputs, outputs, ()

    def create_operator(self, ctx: Any, in_shapes: list[Any], in_dtypes: list[Any]) -> CustomOp:
        return _Call(self.op, self.call)


def _node(op: PythonOp, call: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Symbol:
    op_type = f"{type(op).__name__}:{next(_numbers)}"
    PROPS[op_type] = lambda: _Properties(op, call)  # never removed: the graph may outlive the user's references
    return Custom(*args, op_type=op_type, **kwargs)
