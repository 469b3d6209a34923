"""`share-windows`: kernels that read different windows of the same size become equal, so that they share code.

The slice that such a kernel computes for itself is taken out of it, but for steps, as a view: what was a constant in
its code is now where its pointer points to; what does nothing but slice becomes a copy of a view. So of the nine sums
that are the gradient of a 3×3 convolution with two filters for each channel, one for each tap, four are different.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from gluonjit.ir.annotations import KERNEL, STRIDES
from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value, copy_ops
from gluonjit.ir.kernels.element_plans import Copy, View
from gluonjit.ir.structure import op_key
from gluonjit.ir.windows import Window, is_row_major, strides_of, windows
from gluonjit.passes.manager import register_pass


@register_pass("share-windows", needs="fused")
def share_windows(graph: Graph) -> Graph:
    """Kernels that are equal but for where they slice their operands read these slices as views, and share code."""
    if not any(o.name == "slice" for op in graph.ops if op.name == "fused" for o in op.regions[0].ops):
        return graph
    places = windows(graph)
    alike: dict[Hashable, list[_Lifted]] = {}
    for op in graph.ops:
        if (lifted := _lifted(op, places)) is not None:
            alike.setdefault(op_key(lifted.kernel), []).append(lifted)
    groups = [group for group in alike.values() if len({op_key(x.op) for x in group}) > 1]
    return _Shared(graph, {x.op: x for group in groups for x in group}).run() if groups else graph


@dataclass
class _Lifted:
    """A kernel that slices operands."""

    op: Op
    windows: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    """Where the part of an operand that is read starts, and its size, by the number of the operand."""
    kernel: Op
    """The same over those parts; of a slice only the steps are left."""


def _lifted(op: Op, places: Mapping[Value, Window]) -> _Lifted | None:
    """The kernel with its slices taken out; None if no operand is read through a slice alone."""
    plan = KERNEL.of(op)
    if op.name != "fused" or plan is None or not plan.by_element:
        return None
    body = op.regions[0]
    is_copy = len(body.ops) == 1 and not body.ops[0].attrs.get("step")
    """Whether it does nothing but slice: what is left is a copy."""
    slices = {}
    for v in body.inputs:
        users = body.uses.get(v, ())
        if len(users) != 1 or users[0].name != "slice" or v in body.results:
            continue
        if users[0].result not in body.results or is_copy:
            slices[v] = users[0]
    if not slices or not all(cut.result.size for cut in slices.values()):
        return None
    b = Builder(body.name, body.level)
    env: dict[Value, Value] = {}
    parts = {}
    for k, v in enumerate(body.inputs):
        if v not in slices:
            env[v] = b.input(v.name, v.type)
            continue
        cut = slices[v]
        steps = cut.attrs["step"] or (1,) * v.ndim
        parts[k] = cut.attrs["start"], tuple((n - 1) * step + 1 for n, step in zip(cut.result.shape, steps))
        env[v] = b.input(v.name, v.type.with_shape(parts[k][1]))
    for o in body.ops:
        if o not in slices.values():
            copy_ops(b, [o], env)
        elif parts[body.inputs.index(o.operands[0])][1] == o.result.shape:
            env[o.result] = env[o.operands[0]]
        else:
            env[o.result] = b.slice(env[o.operands[0]], **{**o.attrs, "start": (0,) * o.result.ndim})
    region = replace(b.build([env[v] for v in body.outputs]), attrs=body.attrs)
    operands = tuple(Value("", v.type) for v in region.inputs)
    strides = []
    for k, v in enumerate((*operands, *op.results)):
        own = places[op.operands[k]].strides if k in parts else strides_of(op, k)
        strides.append(None if is_row_major(v.shape, own) else own)
    attrs = {key: value for key, value in op.attrs.items() if key != STRIDES.name}
    if is_copy:
        attrs |= KERNEL(Copy())
    if any(strides):
        attrs |= STRIDES(tuple(strides))
    kernel = replace(op, operands=operands, attrs=MappingProxyType(attrs), regions=(region,))
    return _Lifted(op, parts, kernel)


class _Shared(Rewriter):
    def __init__(self, graph: Graph, lifted: Mapping[Op, _Lifted]) -> None:
        super().__init__(graph)
        self.lifted = lifted

    def visit(self, op: Op) -> Sequence[Value] | None:
        found = self.lifted.get(op)
        if found is None:
            return None
        operands = [self.env[v] for v in op.operands]
        for k, (start, size) in found.windows.items():
            (operands[k],) = self.b.emit("slice", [operands[k]], {"start": start, "size": size, **KERNEL(View())})
        kernel = found.kernel
        return self.b.emit(op.name, operands, kernel.attrs, kernel.regions, op.loc, [r.name for r in op.results])
