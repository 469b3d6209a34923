"""Which values share memory: shared knowledge of memory planner, verifier and code generation.

A *view* (an op annotated `.kernel = 'view'`) renames its operand's buffer. The buffer of a value is named by its
*root*: the value itself, or for a view the root of its operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gluonjit.ir import opdef
from gluonjit.ir.graph import Graph, Op, Value

ALIGNMENT = 64
"""Of a place in the arena, in bytes: a cache line, and the widest vector in use."""


def is_view(op: Op) -> bool:
    return op.attrs.get(".kernel") == "view"


def buffer_roots(graph: Graph) -> dict[Value, Value]:
    """Each view's result → the value whose buffer it renames."""
    roots: dict[Value, Value] = {}
    for op in graph.ops:
        if is_view(op):
            v = op.operands[0]
            roots[op.result] = roots.get(v, v)
    return roots


def runs_kernel(op: Op) -> bool:
    """Whether the op computes something at each call (constants, views and `prepare` do not)."""
    return op.name not in ("constant", "prepare") and not is_view(op)


def result_buffers(graph: Graph, roots: Mapping[Value, Value]) -> dict[Value, int]:
    """Root → index of the graph result (outputs, then updates) whose own buffer it is written to.

    The first result that names a kernel's value gets it written in place; any other result with the same root, and
    any that is an input, a constant or a prepared value, is not in the table and needs a copy.
    """
    owners: dict[Value, int] = {}
    for k, v in enumerate(graph.results):
        root = roots.get(v, v)
        producer = graph.producers.get(root)
        if producer is not None and runs_kernel(producer) and root not in owners:
            owners[root] = k
    return owners


def in_place_pairs(op: Op, roots: Mapping[Value, Value]) -> list[tuple[Value, Value]]:
    """(result, root of an operand) pairs where the result may take the operand's memory.

    True when the kernel reads each element of the operand exactly where it writes that of the result: a body of
    elementwise primitives, in which the operand has the result's shape and is read by such primitives alone, and
    under one name (a view may be read at another index than it is written).
    """
    if op.attrs.get(".kernel") != "loops" or op.name != "fused":
        return []
    body = op.regions[0]
    if len(body.outputs) != 1:
        return []
    for o in body.ops:
        definition = o.definition
        elementwise = isinstance(definition, opdef.Primitive) and definition.elementwise
        if not elementwise and o.name not in ("constant", "broadcast"):
            return []
    moved = {v for o in body.ops if o.name == "broadcast" for v in o.operands}
    out = body.outputs[0].type
    read = [roots.get(v, v) for v in op.operands]
    return [
        (op.results[0], root)
        for inner, root in zip(body.inputs, read, strict=True)
        if inner not in moved
        and inner.shape == out.shape
        and inner.dtype.itemsize == out.dtype.itemsize
        and read.count(root) == 1
    ]


def control_workspace(regions: Sequence[Graph], op: Op) -> dict[str, int]:
    """Where a loop or branch with these planned regions keeps what in its workspace: byte offsets.

    `arena0`, `arena1`: the regions' arenas; for loops also `go` (bool, the condition's result) and, for each carried
    value k, two buffers `a<k>` and `b<k>` that change roles with every iteration. `end`: the size.
    """
    sizes = {f"arena{k}": int(region.attrs.get("arena", 0)) for k, region in enumerate(regions)}
    if op.name == "loop":
        sizes |= {"go": 1}
        for k, v in enumerate(op.operands[: op.attrs["carried"]]):
            sizes |= {f"a{k}": v.type.nbytes, f"b{k}": v.type.nbytes}
    offsets = {}
    end = 0
    for name, size in sizes.items():
        offsets[name] = end
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return {**offsets, "end": end}
