"""`_own_gradient`: results of a traced program, with a gradient that its user wrote (`autograd.Function`).

Operands are results, inputs, and what the gradient reads besides; the node gives the results again. The graph that it
holds takes the cotangents of the results, then some of the operands, and gives the cotangents of the inputs `to`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.graph import Builder, Loc, Value
from gluonjit.ir.types import TensorType
from gluonjit.operators.attributes import counted, shape
from gluonjit.operators.loops_and_branches import ControlFlow

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
"""No operator of MXNet: nodes of traces alone have it."""
