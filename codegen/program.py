"""A planned graph as one LLVM module: a function per kernel, and one that calls them in order.

The graph's function `@main(ptr table, i64 thread, i64 nthreads)` finds every buffer through its table: inputs,
results (outputs, then updated states), prepared values, constants, arena — `Layout` says where. Each `prepare` op
becomes a function of its own with a table of its own. Kernels whose text would be equal are shared.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from gluonjit.codegen.control import Region, lower_control
from gluonjit.codegen.layout import Layout
from gluonjit.codegen.llvm import Module
from gluonjit.codegen.target import Target
from gluonjit.ir.buffers import buffer_roots, is_view, result_buffers
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import IRError


@dataclass
class Prepare:
    """One component of what depends on parameters alone."""

    name: str
    layout: Layout
    inputs: tuple[int, ...]
    """Which of the main function's inputs it takes."""
    slots: tuple[int, ...]
    """Where the main function's table holds its results."""


@dataclass
class Program:
    text: str
    main: Layout
    n_outputs: int
    """How many of the results are outputs; the rest are updated states."""
    prepares: tuple[Prepare, ...] = ()
    kernels: Mapping[str, int] = field(default_factory=dict)
    """Kernel name → how often it is called."""


def lower_program(graph: Graph, target: Target) -> Program:
    """Lowers a graph of level `planned`. Raises IRError for another level or an op without a kernel."""
    if graph.level != "planned":
        raise IRError(f"code is generated from level 'planned'; @{graph.name} is at {graph.level!r}")
    lowering = _Lowering(target)
    main = lowering.function("main", graph)
    return Program(
        lowering.module.text(),
        main,
        len(graph.outputs),
        tuple(lowering.prepares),
        dict(lowering.calls),
    )


class _Lowering:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.module = Module(target)
        self.prepares: list[Prepare] = []
        self.calls: dict[str, int] = {}
        self._kernels: dict[Hashable, str] = {}

    def function(self, name: str, graph: Graph) -> Layout:
        """Appends the function that calls the kernels of `graph` in order."""
        prepares = [op for op in graph.ops if op.name == "prepare"]
        constants = [op for op in graph.ops if op.name == "constant"]
        layout = Layout(
            tuple(v.type for v in graph.inputs),
            tuple(v.type for v in graph.results),
            int(graph.attrs.get("arena", 0)),
            tuple(op.attrs["value"] for op in constants),
            sum(len(op.results) for op in prepares),
        )
        place: dict[Value, tuple[str, int]] = {}
        """Value → ('table', slot) or ('arena', byte offset)."""
        place.update((v, ("table", k)) for k, v in zip(layout.input_slots, graph.inputs, strict=True))
        place.update(
            (r, ("table", k))
            for k, r in zip(layout.prepared_slots, (r for op in prepares for r in op.results), strict=True)
        )
        place.update((op.result, ("table", k)) for k, op in zip(layout.constant_slots, constants, strict=True))
        roots = buffer_roots(graph)
        owned = result_buffers(graph, roots)
        place.update((root, ("table", layout.result_slots[k])) for root, k in owned.items())
        for k, value in enumerate(graph.results):
            if owned.get(roots.get(value, value)) != k:
                raise IRError(f"result {k} of @{graph.name} has no kernel of its own; plan-memory adds a copy")

        calls: list[tuple[str, list[tuple[str, int]]]] = []
        for op in graph.ops:
            if op.name == "prepare":
                self._prepare(op, graph, place)
            elif op.name == "constant":
                continue
            elif is_view(op):
                place[op.result] = place[op.operands[0]]
            else:
                for r in op.results:
                    if r not in place:
                        if r.offset is None:
                            raise IRError(f"%{r.name} of @{graph.name} has no place in memory")
                        place[r] = ("arena", r.offset)
                pointers = [place[v] for v in (*op.operands, *op.results)]
                if op.attrs.get(".scratch"):
                    pointers.append(("arena", op.attrs[".scratch_offset"]))
                calls.append((self.kernel(op), pointers))
        self._emit(name, layout, calls)
        return layout

    def _prepare(self, op: Op, graph: Graph, place: Mapping[Value, tuple[str, int]]) -> None:
        name = f"prepare_{len(self.prepares)}"
        index = {v: k for k, v in enumerate(graph.inputs)}
        self.prepares.append(
            Prepare(
                name,
                self.function(name, op.regions[0]),
                tuple(index[v] for v in op.operands),
                tuple(place[r][1] for r in op.results),
            )
        )

    def kernel(self, op: Op) -> str:
        """The name of the function for `op`; made on first need, shared by ops that say the same."""
        key = op_key(op)
        name = self._kernels.get(key)
        if name is None:
            name = self._kernels[key] = f"k{len(self._kernels)}_{op.attrs.get('.kernel', op.name)}"
            if op.name in ("loop", "branch"):
                lower_control(name, op, [self._region(name, k, r) for k, r in enumerate(op.regions)], self.module)
            else:
                lower_kernel(name, op, self.target, self.module)
        self.calls[name] = self.calls.get(name, 0) + 1
        return name

    def _region(self, name: str, k: int, region: Graph) -> Region:
        if any(op.name == "prepare" for op in region.ops):
            raise IRError(
                f"the body @{region.name} holds a `prepare`; the pass `hoist` on the whole graph lifts it out"
            )
        return Region(f"{name}_region{k}", self.function(f"{name}_region{k}", region))

    def _emit(self, name: str, layout: Layout, calls: Sequence[tuple[str, list[tuple[str, int]]]]) -> None:
        f = self.module.function(name)
        own = f.alloca("ptr", max((len(pointers) for _, pointers in calls), default=1))
        arena = f.table(layout.arena_slot)
        address: dict[tuple[str, int], str] = {}
        for function, pointers in calls:
            for k, place in enumerate(pointers):
                if place not in address:
                    where, at = place
                    address[place] = f.table(at) if where == "table" else f.gep("i8", arena, at)
                f.store("ptr", address[place], f.gep("ptr", own, k), align=8)
            f.call(function, "void", ("ptr", own), ("i64", "%thread"), ("i64", "%nthreads"))


def lower_kernel(name: str, op: Op, target: Target, module: Module) -> None:
    """Appends the kernel that `select` chose for `op` to the module."""
    kind = op.attrs.get(".kernel")
    if kind in ("loops", "copy"):
        from gluonjit.codegen.loops import lower_loops

        lower_loops(name, op.regions[0], op.attrs, target, module)
    elif kind == "matmul":
        from gluonjit.codegen.matmul import lower_matmul

        lower_matmul(name, op.regions[0], op.attrs, target, module)
    elif kind == "conv":
        from gluonjit.codegen.conv import lower_conv

        lower_conv(name, op.regions[0], op.attrs, target, module)
    elif kind == "depthwise":
        from gluonjit.codegen.depthwise import lower_depthwise

        lower_depthwise(name, op.regions[0], op.attrs, target, module)
    elif kind == "sequential":
        from gluonjit.codegen.sequential import lower_sequential

        lower_sequential(name, op, target, module)
    else:
        raise IRError(f"{op.name} has no kernel ({kind!r}); run the pass `select` first")
