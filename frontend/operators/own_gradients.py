"""Results of a traced program whose gradient is not that of what they are computed by; no operators of MXNet.

`_own_gradient`: results with a gradient that its user wrote (`autograd.Function`). Operands are results,
inputs, and what the gradient reads besides; the node gives the results again. The graph that it holds takes the
cotangents of the results, then some of the operands, and gives the cotangents of the inputs `to`.

`_redirected_gradient`: the first operand, whose cotangent goes to the second, of the same type: memory that was written
to while recording was paused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.graph import Builder, Loc, Value
from gluonjit.ir.types import TensorType
from gluonjit.operators.attributes import counted, shape
from gluonjit.operators.control.loops_and_branches import ControlFlow

Attrs = Mapping[str, Any]


def _types(attrs: Attrs, types: Sequence[TensorType]) -> Sequence[TensorType]:
    return types[: attrs["num_outputs"]]


def _build(
    b: Builder, operands: Sequence[Value], attrs: Attrs, names: Sequence[str], loc: Loc | None
) -> Sequence[Value]:
    (graph,) = attrs["subgraphs"]
    count = attrs["num_outputs"]
    mode = {"training": b.training}
    forward = Builder("forward", "traced", b.training)
    given = [forward.input("", v.type) for v in operands]
    backward = Builder("gradient", "traced", b.training)
    x = [backward.input("", v.type) for v in operands]
    _, g = ([backward.input("", v.type) for v in operands[:count]] for _ in range(2))
    cotangents = graph.emit(backward, [[*g, *x][at] for at in attrs["in_locs"]])
    regions = [forward.build(given[:count], mode), backward.build(cotangents, mode)]
    return b.emit("with_gradient", operands, {"to": tuple(attrs["to"])}, regions, loc, names)


OWN_GRADIENT = ControlFlow(
    name="_own_gradient",
    expand=lambda b, *operands, **attrs: operands,
    inputs=(),
    variadic=True,
    attrs={"num_args": counted(low=1), "num_outputs": counted(low=0), "to": shape(()), "in_locs": shape(())},
    outputs=lambda attrs: tuple(f"output{k}" for k in range(attrs["num_outputs"])),
    result_types=_types,
    build=_build,
)


def _build_redirected(
    b: Builder, operands: Sequence[Value], attrs: Attrs, names: Sequence[str], loc: Loc | None
) -> Sequence[Value]:
    type = operands[0].type
    forward, backward = Builder("forward", b.level, b.training), Builder("gradient", b.level, b.training)
    value, _ = (forward.input("", type) for _ in range(2))
    *_, g = (backward.input("", type) for _ in range(4))
    regions = [forward.build([value]), backward.build([g])]
    return b.emit("with_gradient", operands, {"to": (1,)}, regions, loc, names)


REDIRECTED_GRADIENT = ControlFlow(
    name="_redirected_gradient",
    expand=lambda b, value, origin, **attrs: value,
    inputs=(),
    variadic=True,
    attrs={"num_args": counted(low=2)},
    graphs=0,
    result_types=lambda attrs, types: types[:1],
    build=_build_redirected,
)
