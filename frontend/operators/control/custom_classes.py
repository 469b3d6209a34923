"""The base classes of operators that users write in Python (`mx.operator`), and the registry of those operators.

They are called as `nd.Custom(x, op_type="name")`; compiled code calls back into Python for them
(`operators.control.custom`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gluonjit.base import MXNetError
from gluonjit.context import Context
from gluonjit.ir.primitives.host_call import FUNCTIONS
from gluonjit.language import late

if TYPE_CHECKING:
    from gluonjit.ndarray import NDArray

T = TypeVar("T", bound=type)


class CustomOp:
    """The computation of a custom operator: `forward` writes the results with `assign`."""

    def forward(
        self, is_train: bool, req: list[str], in_data: list[NDArray], out_data: list[NDArray], aux: list[NDArray]
    ) -> None:
        """Computes `out_data` from `in_data`. `req` says for each result whether to 'write' or 'add' it."""
        raise NotImplementedError

    def backward(
        self,
        req: list[str],
        out_grad: list[NDArray],
        in_data: list[NDArray],
        out_data: list[NDArray],
        in_grad: list[NDArray],
        aux: list[NDArray],
    ) -> None:
        """Computes `in_grad` with `assign`; `req` is 'null' for inputs whose gradient nobody wants.

        Called on the object whose `forward` has made `out_data`.
        """
        raise NotImplementedError

    def assign(self, dst: NDArray, req: str, src: Any) -> None:
        """Writes `src` to `dst`, or adds it for `req` 'add'; does nothing for 'null'."""
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] += src


class CustomOpProp:
    """The properties of a custom operator: names, shapes and element types of its inputs and results."""

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def list_arguments(self) -> list[str]:
        return ["data"]

    def list_outputs(self) -> list[str]:
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        return []

    def infer_shape(self, in_shape: list[Any]) -> tuple[Any, ...]:
        """(shapes of inputs, of results, and, if there are any, of auxiliary states)."""
        return in_shape, (in_shape[0],) * len(self.list_outputs()), ()

    def infer_type(self, in_type: list[Any]) -> tuple[Any, ...]:
        """(element types of inputs, of results, of auxiliary states)."""
        return (
            in_type,
            [in_type[0]] * len(self.list_outputs()),
            [in_type[0]] * len(self.list_auxiliary_states()),
        )

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        """Which arrays `backward` reads, of those with the given numbers. It finds zeros in the others."""
        return [*(out_grad if self.need_top_grad_ else []), *in_data, *out_data]

    def create_operator(self, ctx: Context, in_shapes: list[Any], in_dtypes: list[Any]) -> CustomOp:
        return CustomOp()


PROPS: dict[str, Callable[..., CustomOpProp]] = {}
"""The registered classes, by `op_type`."""

FUNCTIONS["custom"] = late.call_custom
FUNCTIONS["the gradient of Custom"] = late.call_custom_backward


def register(reg_name: str) -> Callable[[T], T]:
    """Class decorator that registers a CustomOpProp as `op_type=reg_name`."""

    def decorate(prop_cls: T) -> T:
        if not issubclass(prop_cls, CustomOpProp):
            raise AssertionError("can only register subclass of CustomOpProp")
        PROPS[reg_name] = prop_cls
        return prop_cls

    return decorate


def arranged(data: Sequence[Any], named: Mapping[str, Any], op_type: str, names: Sequence[str]) -> list[Any]:
    """The inputs of a custom operator in the order of `names`: `data` by position, others by name.

    MXNetError if any is missing, or for an unknown one.
    """
    inputs = {**dict(zip(names, data)), **named}
    if len(data) > len(names) or set(inputs) != set(names) or len(inputs) != len(data) + len(named):
        given = [*(["an array"] * len(data)), *named]
        raise MXNetError(f"custom operator {op_type} takes {', '.join(names)}; got {', '.join(given) or 'nothing'}")
    return [inputs[name] for name in names]


def divided(kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divides keywords into (possible arrays, attributes), without those that are None."""
    plain = (str, int, float, tuple, list, bool)
    given = {key: value for key, value in kwargs.items() if value is not None}
    attrs = {key: value for key, value in given.items() if isinstance(value, plain)}
    return {key: value for key, value in given.items() if key not in attrs}, attrs
