"""`Custom`: operators that users write in Python (`gluonjit.operator`), which compiled code calls back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gluonjit.ir.graph import Builder, Emitter, Loc
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import I64, TensorType, dtype, dtype_of
from gluonjit.language.source import quote
from gluonjit.operators.attributes import Attr, string
from gluonjit.operators.control.custom_classes import PROPS
from gluonjit.operators.gradients import WithGradient
from gluonjit.operators.registry import Operator, OperatorError, operator
from gluonjit.operators.support import Shapes, merge

OP_TYPE, TRAINING, KEPT, TO = ".op_type", ".training", ".kept", ".to"
"""Arguments of the callbacks (`ndarray.custom_calls`) besides the operator's own attributes.

`KEPT`: the call is recorded, so its `CustomOp` is kept for the gradient, and its number is the last result.
`TO`: the numbers of the inputs whose gradients are wanted.
"""


@contextmanager
def blamed(op_type: str) -> Iterator[None]:
    """A context for calls of a custom operator's methods: adds the operator and the line to an AssertionError."""
    try:
        yield
    except AssertionError as e:
        import traceback

        places = [Loc(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(e.__traceback__)]
        said = f": {e}" if str(e) else ""
        raise OperatorError(f"Error in operator Custom({op_type!r}): AssertionError{said}{quote(places[-1])}") from None


def properties(attrs: Mapping[str, Any]) -> Any:
    """The `CustomOpProp` for these attributes. OperatorError if there is no operator of that type."""
    kind = attrs["op_type"]
    if kind not in PROPS:
        raise OperatorError(f"Cannot find custom operator {kind}{did_you_mean(kind, PROPS)}")
    with blamed(kind):
        return PROPS[kind](**dict(attrs["arguments"]))


class CustomOperator(Operator):
    """Its attributes are `op_type` and those of the user's class, which are parsed into `arguments`, as strings."""

    def parse(self, raw: Mapping[str, Any], node: str = "") -> dict[str, Any]:
        if "op_type" not in raw:
            raise OperatorError("Required parameter op_type of string is not presented, in operator Custom")
        known = raw.get("arguments")
        given = dict(known) if isinstance(known, tuple) else {}
        for key, value in raw.items():
            if key != "op_type" and value is not known and not (key.startswith("__") and key.endswith("__")):
                given[key] = str(value)
        return {"op_type": str(raw["op_type"]), "arguments": tuple(given.items())}

    def aux_names(self, attrs: Mapping[str, Any]) -> Sequence[str]:
        return tuple(properties(attrs).list_auxiliary_states())

    def with_gradient(
        self, types: Sequence[TensorType], attrs: Mapping[str, Any], training: bool = False
    ) -> WithGradient:
        """The gradient calls `CustomOp.backward`, on the object whose `forward` made the results."""
        op_type, arguments = attrs["op_type"], attrs["arguments"]
        prop = properties(attrs)
        count, made = len(prop.list_arguments()), len(prop.list_outputs())
        forward = Builder(op_type, training=training)
        inputs = [forward.input("", t) for t in types]
        results = _call(forward, inputs, op_type, arguments, kept=True)
        b = Builder(f"{op_type}_gradient", training=training)
        x = [b.input("", t) for t in types]
        y, g = ([b.input("", v.type) for v in results] for _ in range(2))
        groups = ([*range(made)], [*range(made, made + count)], [*range(made + count, made + count + made)])
        with blamed(op_type):
            read = set(prop.declare_backward_dependency(*groups))
        numbered = zip((*groups[0], *groups[1], *groups[2]), (*g[:made], *x[:count], *y[:made]))
        given = [v if k in read else b.broadcast(b.constant(0, v.dtype), shape=v.shape) for k, v in numbered]
        to = [k for k in range(count) if types[k].dtype.is_float]
        wanted = " ".join(map(str, to))
        if not to:
            return WithGradient({"to": ()}, (forward.build(results), b.build([])))
        found = b.emit(
            "host_call",
            [*given, *y[made:]],
            {
                "function": "the gradient of Custom",
                "arguments": ((OP_TYPE, op_type), (TO, wanted), *arguments),
                "types": tuple(types[k] for k in to),
            },
        )
        return WithGradient({"to": tuple(to)}, (forward.build(results), b.build(found)))


def _inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    prop = properties(attrs)
    return (*prop.list_arguments(), *prop.list_auxiliary_states())


def _results(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the results, then of the hidden ones: new values of auxiliary states."""
    prop = properties(attrs)
    return (*prop.list_outputs(), *prop.list_auxiliary_states())


def _complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    """The shapes that the user's class infers, once that of the first input is known."""
    if shapes[0] is None or 0 in shapes[0]:
        return shapes
    count = len(properties(attrs).list_arguments())
    with blamed(attrs["op_type"]):
        arguments, _, *aux = properties(attrs).infer_shape([list(s or ()) for s in shapes[:count]])
    return [merge(old, tuple(new)) for old, new in zip(shapes, [*arguments, *(aux[0] if aux else ())])]


def _updates(attrs: Mapping[str, Any]) -> dict[int, int]:
    prop = properties(attrs)
    first, count = len(prop.list_arguments()), len(prop.list_outputs())
    return {first + k: count + k for k in range(len(prop.list_auxiliary_states()))}


@operator(
    "Custom",
    kind=CustomOperator,
    inputs=_inputs,
    attrs={
        "op_type": string(doc="the name it was registered under"),
        "arguments": Attr("string", lambda value: value, (), doc="the arguments of the class"),
    },
    outputs=_results,
    visible=lambda attrs: len(properties(attrs).list_outputs()),
    complete=_complete,
    updates=_updates,
    host="it is written in Python",
)
def custom(b: Emitter, *inputs: Any, op_type: str, arguments: tuple[tuple[str, str], ...]) -> Any:
    """The results of the custom operator that was registered as `op_type` with mx.operator.register

    Shapes: as the class's `infer_shape` says

    A class of your own computes them, in Python, also from compiled code; `help(mx.operator.CustomOp)` tells how to
    write one.

    >>> class Double(mx.operator.CustomOp):
    ...     def forward(self, is_train, req, in_data, out_data, aux):
    ...         self.assign(out_data[0], req[0], in_data[0] * 2)
    >>> @mx.operator.register("documented_double")
    ... class DoubleProp(mx.operator.CustomOpProp):
    ...     def create_operator(self, ctx, shapes, dtypes):
    ...         return Double()
    >>> mx.nd.Custom(mx.nd.array([1, 2]), op_type="documented_double").asnumpy()
    array([2., 4.], dtype=float32)
    """
    return _call(b, inputs, op_type, arguments)


def _call(
    b: Emitter, inputs: Sequence[Any], op_type: str, arguments: tuple[tuple[str, str], ...], kept: bool = False
) -> Any:
    """Emits the call of an operator's `forward`, a tuple of results."""
    prop = properties({"op_type": op_type, "arguments": arguments})
    count = len(prop.list_arguments())
    with blamed(op_type):
        _, shapes, *_ = prop.infer_shape([list(x.shape) for x in inputs[:count]])
        _, dtypes, *_ = prop.infer_type([dtype_of(x).numpy.type for x in inputs[:count]])
    types = [TensorType(dtype(np.dtype(t)), tuple(s)) for s, t in zip(shapes, dtypes)]
    types += [TensorType(dtype_of(x), tuple(x.shape)) for x in inputs[count:]]
    arguments = ((OP_TYPE, op_type), (TRAINING, str(b.training)), *arguments)
    if kept:
        arguments, types = ((KEPT, "1"), *arguments), [*types, TensorType(I64)]
    return b.emit("host_call", inputs, {"function": "custom", "arguments": arguments, "types": tuple(types)})
