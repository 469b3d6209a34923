"""`mx.operator.NumpyOp` and `NDArrayOp`: operators in Python from before `CustomOp`, which runs them here.

An instance is an operator: `op(data=x, name="square")`, or `op.get_symbol(…)`, adds it to a graph. Such a graph is only
valid in this process: its JSON identifies the instance (in MXNet, by its address), but does not contain its code.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from gluonjit.language.source import stacklevel
from gluonjit.operators.control.custom_classes import PROPS, CustomOp, CustomOpProp
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
        """Writes gradients into the arrays of `in_grad`."""
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
    """`forward` and `backward` get NumPy arrays."""

    def get_symbol(self, *args: Any, **kwargs: Any) -> Symbol:
        return _node(self, _CallWithNumpy, args, kwargs)


class NDArrayOp(PythonOp):
    """`forward` and `backward` get NDArrays."""

    def get_symbol(self, *args: Any, **kwargs: Any) -> Symbol:
        return _node(self, _CallWithArrays, args, kwargs)

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        """Which arrays `backward` reads."""
        return [*(out_grad if self.need_top_grad() else []), *in_data, *out_data]


class _Call(CustomOp):
    def __init__(self, op: PythonOp) -> None:
        self.op = op


class _CallWithArrays(_Call):
    def forward(self, is_train: bool, req: list[str], in_data: list[Any], out_data: list[Any], aux: list[Any]) -> None:
        self.op.forward(in_data=in_data, out_data=out_data)

    def backward(
        self,
        req: list[str],
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        in_grad: list[Any],
        aux: list[Any],
    ) -> None:
        self.op.backward(out_grad=out_grad, in_data=in_data, out_data=out_data, in_grad=in_grad)


class _CallWithNumpy(_Call):
    def forward(self, is_train: bool, req: list[str], in_data: list[Any], out_data: list[Any], aux: list[Any]) -> None:
        with _written_back(out_data) as results:
            self.op.forward(in_data=_numpy(in_data), out_data=results)

    def backward(
        self,
        req: list[str],
        out_grad: list[Any],
        in_data: list[Any],
        out_data: list[Any],
        in_grad: list[Any],
        aux: list[Any],
    ) -> None:
        with _written_back(in_grad) as gradients:
            self.op.backward(
                out_grad=_numpy(out_grad), in_data=_numpy(in_data), out_data=_numpy(out_data), in_grad=gradients
            )


def _numpy(arrays: Sequence[Any]) -> list[Any]:
    return [x.asnumpy() for x in arrays]


@contextmanager
def _written_back(arrays: Sequence[Any]) -> Iterator[list[Any]]:
    """Copies of arrays, whose elements become those of the arrays at the end."""
    copies = _numpy(arrays)
    yield copies
    for x, new in zip(arrays, copies, strict=True):
        x[:] = new


class _Properties(CustomOpProp):
    def __init__(self, op: PythonOp, call: type[_Call]) -> None:
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
        return self.call(self.op)


def _node(op: PythonOp, call: type[_Call], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Symbol:
    op_type = f"{type(op).__name__}:{next(_numbers)}"
    PROPS[op_type] = lambda: _Properties(op, call)  # never removed: the graph may outlive the user's references
    return Custom(*args, op_type=op_type, **kwargs)
