"""`select`: decides, for an explicit target, which kernel computes each op, and annotates the op with its plan.

Code generation decides nothing, so tests of this pass do not depend on the machine that runs them. A group with a
matrix product or convolution is brought into the form that its kernel needs, with tile sizes and packed weights
(`select_matmul`, `select_conv`, `select_planar`); every other op is computed by loops or a kernel that cannot be fused,
or is a view.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping
from typing import Any, Literal, NamedTuple

from gluonjit.ir.annotations import KERNEL, SCRATCH
from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Builder, Graph, Op, Value, reemit, rewrite, with_notes
from gluonjit.ir.kernels import find_kernel
from gluonjit.ir.kernels.element_plans import RUN, Loops, View, read_again
from gluonjit.ir.kernels.op_plans import Host, Sequential, Sorting
from gluonjit.ir.kernels.sort_words import sort_memory
from gluonjit.ir.machine import Machine
from gluonjit.ir.structure import op_key
from gluonjit.passes.hoist import fixed_ops
from gluonjit.passes.manager import register_pass
from gluonjit.passes.select_conv import select_conv
from gluonjit.passes.select_matmul import select_dot
from gluonjit.passes.select_planar import select_planar
from gluonjit.passes.select_weight_gradient import depthwise_gradient, select_weight_gradient
from gluonjit.passes.site import Site, past_caches
from gluonjit.passes.tiling import MAX_ROWS


def _select_conv(site: Site) -> Value | None:
    kinds = (select_conv,) if site.factors > 1 else (select_weight_gradient, select_planar, select_conv)
    for select_kind in kinds:
        made = select_kind(site)
        if made is not None:
            return made
    return None


_SELECTORS = {"dot_general": select_dot, "conv": _select_conv}


class Variant(NamedTuple):
    """Options that restrict how a product may be computed, for tuning to compare."""

    winograd: bool = True
    most: int = MAX_ROWS
    """The most rows of a register tile."""


VARIANTS = [Variant(winograd, most) for winograd in (True, False) for most in (MAX_ROWS, 12, 8, 6, 4)]
"""What tuning measures; without tuning, the first one is used."""


def has_variants(op: Op) -> bool:
    """Whether the op is a group with a product, whose kernel tuning can choose."""
    return op.name == "fused" and not KERNEL.is_on(op) and sum(o.name in _SELECTORS for o in op.regions[0].ops) == 1


@register_pass("select", needs="fused")
def select(
    graph: Graph, *, target: Machine, winograd: bool = True, variants: Mapping[Hashable, Variant] | None = None
) -> Graph:
    """Annotates each op with its kernel; the graph attribute `params` tells which weights are worth packing.

    `winograd = False`: convolutions are computed by the definition. `variants`: the variant that was measured to be the
    best, by the op's key (`ir.structure.op_key`)."""
    fixed = {graph.inputs[k] for k in graph.attrs.get("params", ())}
    fixed.update(r for op in fixed_ops(graph) for r in op.results)

    read = {v for op in graph.ops for v in op.operands}.union(graph.results, (state for _, state in graph.updates))

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if KERNEL.is_on(op):
            return None
        if op.name == "fused":
            variant = (variants.get(op_key(op)) if variants else None) or Variant(winograd)
            made = _with_anchor(b, op, operands, fixed, target, variant)
            if made is not None:
                return (made,)
        notes = _alone(op, read, target)
        return None if notes is None else reemit(b, with_notes(op, notes), operands)

    return rewrite(graph, rule)


def _alone(op: Op, read: Container[Value], target: Machine) -> dict[str, Any] | None:
    """The annotations of an op for whose kernel nothing around it has to change; None for what has no kernel. `read`:
    the values that other ops read."""
    definition = op.definition
    if op.name == "reshape":
        return KERNEL(View())
    if definition.level == "host":
        return KERNEL(Host())
    if op.name == "sort":
        memory = sort_memory(op.operands[0].type, op.attrs["axis"], op.attrs["count"]).all
        return KERNEL(Sorting(tuple(k for k, r in enumerate(op.results) if r in read))) | SCRATCH(memory)
    if op.name == "depthwise_gradient":
        return KERNEL(depthwise_gradient(op, target))
    if definition.has_own_kernel:
        return KERNEL(Sequential())
    if definition.level == "control":
        return KERNEL(find_kernel(op.name)())
    if op.name == "fused":
        streaming = past_caches(op.operands, op.results, target)
        return KERNEL(Loops(streaming=streaming, ahead=_fetched_ahead(op, target)))
    return None


def _fetched_ahead(op: Op, target: Machine) -> Literal["rows", "reads"] | None:
    """What a kernel whose operands are not cached should prefetch, because it computes so much between two loads that
    the hardware prefetchers fall behind. A plain sum needs none."""
    body, nbytes = op.regions[0], sum(hint(v.type.nbytes) for v in op.operands)
    shape = body.outputs[0].shape
    if nbytes > target.l2 and any(o.name == "reduce" and o.operands[0].shape == shape for o in body.ops):
        return "rows"  # each row is reduced, then read again
    if nbytes > target.l2 and read_again(body):
        return "rows"
    if nbytes > target.l2 and any(_sums_long_rows(o, body, target) for o in body.ops):
        return "reads"
    nbytes += sum(hint(v.type.nbytes) for v in op.results)
    if nbytes >= target.l3 and any(o.name in ("reduce_window", "arg_reduce", "concat") for o in body.ops):
        return "reads"
    return None


def _sums_long_rows(op: Op, body: Graph, target: Machine) -> bool:
    """Whether an op sums what is computed of the columns of a matrix, some at a time, of so many rows that the
    first-level cache hardly holds them until the last columns are summed."""
    if op.name != "reduce" or op.attrs["op"] != "sum" or op.operands[0] in body.inputs:
        return False
    x = op.operands[0]
    row = hint(x.shape[-1]) * x.dtype.itemsize if x.ndim > 1 else 0
    return op.attrs["axes"] == tuple(range(x.ndim - 1)) and 4 * RUN * row >= 3 * target.l1


def _with_anchor(
    b: Builder, op: Op, operands: tuple[Value, ...], fixed: set[Value], target: Machine, variant: Variant
) -> Value | None:
    anchors = [o for o in op.regions[0].ops if o.name in _SELECTORS]
    if len(anchors) != 1:
        return None
    (anchor,) = anchors
    b.loc = anchor.loc  # what its weights need is for the product, not for what follows it
    site = Site(b, op, operands, anchor, fixed, target, *variant)
    if not site.is_supported():
        return None
    made = _SELECTORS[anchor.name](site)
    if made is None and op.regions[0].outputs[0] is not anchor.result:
        made = site.split(_SELECTORS[anchor.name])
    return made
