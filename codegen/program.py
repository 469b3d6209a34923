"""Lowers a planned graph to one LLVM module: a function per kernel, and one that calls them in order.

The graph's function `@main(ptr table, i64 thread, i64 nthreads)` finds every buffer through its table: inputs,
results (outputs, then updated states), prepared values, constants, arena, scratch, in the slots that `Layout` gives
them. Each `prepare` op becomes a function of its own with a table of its own. Equal kernels are emitted once.

Every thread of a call runs the whole function, and does its share of each kernel; threads meet at the barriers of
`codegen.threads.schedule`. A kernel annotated `.threads = 1` is called by the first thread alone, as if there were no
others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gluonjit.codegen.interface import Interface, Layout, Prepare
from gluonjit.codegen.kernels.batch_split import rows_of
from gluonjit.codegen.kernels.control import Region, lower_control
from gluonjit.codegen.loops.any_size import of_any_length
from gluonjit.codegen.loops.loops import keeping_rows, lower_loops, scratch
from gluonjit.codegen.text.kernel_code import AnySize, code_of
from gluonjit.codegen.text.llvm import KERNEL_PARAMS, Function, Module
from gluonjit.codegen.threads.calls import Call, emit_calls
from gluonjit.codegen.threads.places import Place, Places
from gluonjit.codegen.threads.schedule import Span, Step
from gluonjit.codegen.threads.stamps import Stamps
from gluonjit.ir.annotations import GUARD, KERNEL, SCRATCH, STRIDES, THREADS, WORKSPACE, WORKSPACE_OFFSET
from gluonjit.ir.buffers import runs_kernel
from gluonjit.ir.cost import nanoseconds
from gluonjit.ir.dims import Dim, Extent, Undecided, aligned, most, relying, right_either_way
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.kernels.element_plans import Loops
from gluonjit.ir.kernels.op_plans import Loop
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import dimensions, is_open
from gluonjit.ir.structure import graph_key, op_key
from gluonjit.ir.types import IRError


@dataclass
class NativeProgram:
    module: Module
    interface: Interface
    kernels: Mapping[str, int] = field(default_factory=dict)
    """Kernel name → how often it is called."""
    graph: Graph | None = None
    """What was lowered; sites of `codegen.threads.stamps` refer to its ops."""

    @property
    def text(self) -> str:
        """LLVM IR."""
        return self.module.text()


class Library(Protocol):
    """Kernels that were compiled before."""

    def name(self, kind: str, key: Hashable) -> str:
        """The name of the kernel that computes what `key` says."""

    def find(self, name: str) -> bool:
        """Whether it is there; then it need not be lowered."""

    def relies(self, name: str) -> bool:
        """Whether one that is there relies on open dimensions not being 1 (`ir.dims.relying`)."""

    def note(self, name: str, relies: bool) -> None:
        """Notes whether a kernel that was just lowered does."""


Written = Callable[[Sequence[Function], str | None, bool], None]
"""Called with functions when they are complete, with the name of the kernel that they are, if it can go to a library,
and whether that is for any size, so that others are likely to want it."""


def lower_program(
    graph: Graph,
    target: Machine,
    module: Module | None = None,
    written: Written | None = None,
    library: Library | None = None,
    stamps: Stamps | None = None,
) -> NativeProgram:
    """Lowers a graph of level `planned`. Raises IRError for another level or an op without a kernel.

    The functions go to `module`, if one is given, but for kernels that `library` has: these are only declared.
    `stamps`: makes code that measures its time, and gets the sites; `prepare` ops are left out.
    """
    if graph.level != "planned":
        raise IRError(f"code is generated from level 'planned'; @{graph.name} is at {graph.level!r}")
    module = module or Module(target)
    module.dims = dimensions(graph)
    module.stamps = stamps
    if module.dims:
        graph = _with_rows(graph, module)
    with relying() as relies:
        lowering = _Lowering(module, graph, written, library)
        main = lowering.function("main", graph, alone=graph.attrs.get("threads", 1) == 1)
    interface = Interface(main, len(graph.outputs), tuple(lowering.prepares), lowering.calls_host, _unread(graph))
    if not relies.noted and not lowering.relies:
        interface.lowest = 1
    return NativeProgram(lowering.module, interface, dict(lowering.calls), graph)


def _ready(graph: Graph, places: Places, steps: Sequence[Step]) -> tuple[int, ...]:
    """After how many of the steps each result is complete."""
    last = {span.buffer: k for k, step in enumerate(steps, 1) for span in step.writes}
    return tuple(last.get(places.span(v).buffer, 0) for v in graph.results)


def _unread(graph: Graph) -> tuple[int, ...]:
    read = {v for op in graph.ops if op.name != "prepare" for v in op.operands}
    read.update(graph.results, (state for state, _ in graph.updates))
    return tuple(k for k, v in enumerate(graph.inputs) if v not in read)


def _with_rows(graph: Graph, module: Module) -> Graph:
    """The graph with `.scratch` at loops that keep rows of open lengths in memory, regions of loops included."""
    ops, sizes = [], [graph.attrs.get("scratch", 0)]
    for op in graph.ops:
        if op.definition.level == "control":
            op = replace(op, regions=tuple(_with_rows(region, module) for region in op.regions))
            sizes += (region.attrs.get("scratch", 0) for region in op.regions)
        elif (plan := KERNEL.of(op)) is not None and plan.by_element:
            size = scratch(op, module)
            if size != 0:
                op = keeping_rows(op, size)
                sizes.append(size)
        ops.append(op)
    return replace(graph, ops=tuple(ops)).with_attrs(scratch=most(sizes))


_HARDLY_COUNTS, _BRIEF = 0.01, 2000.0
"""The share of a graph's time for which its smallest loops, of so many nanoseconds each at most, are compiled fast
rather than well: they are half of all kernels of a Transformer, take a tenth of LLVM's time, and run two or three times
as long. Tiles of accumulators are not among them: at LLVM's lowest level these would leave registers, and take ten
times as long."""
_PADDING = 256
"""Alignment, in bytes, of memory that different threads write."""


def _scratch(*graphs: Graph) -> Extent:
    """Scratch bytes per thread: the most that any of these needs, as kernels run one after the other."""
    return aligned(most(g.attrs.get("scratch", 0) for g in graphs), _PADDING)


def _brief(graph: Graph, target: Machine, number: Callable[[Op], int]) -> set[Op]:
    """The smallest loops, which together hardly count in the graph's time. None where dimensions are open: they might
    be large. `number`: equal for ops that say the same."""
    left = graph.attrs.get("cost", 0)
    if isinstance(left, Dim) or dimensions(graph):
        return set()
    left *= _HARDLY_COUNTS
    kernels = [op for op in graph.ops if runs_kernel(op) and (plan := KERNEL.of(op)) is not None and plan.by_element]
    times = {n: nanoseconds(op, target) for n, op in {number(op): op for op in kernels}.items()}
    found = set()
    for time, k in sorted((times[number(op)], k) for k, op in enumerate(kernels)):
        left -= time
        if left < 0 or time > _BRIEF:
            break
        found.add(kernels[k])
    return found


class _Lowering:
    def __init__(self, module: Module, graph: Graph, written: Written | None, library: Library | None) -> None:
        self.target = module.target
        self._scratch = _scratch(graph)
        self._cold_scratch = _scratch(*(op.regions[0] for op in graph.ops if op.name == "prepare"))
        self.module = module
        self.stamps = module.stamps
        self.written = written
        self.library = library
        self._is_cold = False
        """Whether the function that is being lowered runs when a parameter changes, rather than in each call."""
        self._backwards = False
        """Whether the function that is being lowered reads its weights from the last to the first."""
        self._count = 0
        """How many functions have been given to `written`."""
        self.prepares: list[Prepare] = []
        self.calls: dict[str, int] = {}
        self.calls_host = False
        self._dims = dimensions(graph)
        """The open dimensions of the graph, which may be fewer than those of its kernels."""
        self._numbers: dict[Op | Hashable, int] = {}
        """The number of what an op says, by the op and by what it says (`op_key`), which takes long to compare."""
        self._of_any_length: dict[Op, AnySize] = {} if self._dims else of_any_length(graph.ops, self._number)
        self._brief = _brief(graph, self.target, self._number)
        self._prepared: dict[str, tuple[str, Layout]] = {}
        """The function that prepares what a region says, by its digest: the layers of a net share it, if they need no
        names for readers. Equal regions have equal plans of their memory."""
        self._kernels: dict[Hashable, str] = {}
        self._for_any: dict[int, AnySize | None] = {}
        """What serves ops of any size, by the number of what they say: repeated layers have many equal ones."""
        self.relies = False
        """Whether a kernel of the library relies on open dimensions not being 1."""

    @property
    def scratch(self) -> Extent:
        """Bytes per thread. What is prepared does not know open dimensions, so it has its own."""
        return self._cold_scratch if self._is_cold else self._scratch

    def function(self, name: str, graph: Graph, alone: bool) -> Layout:
        """Appends the function that calls the kernels of `graph` in order; `alone`: only ever on one thread."""
        prepares = [op for op in graph.ops if op.name == "prepare"]
        constants = [op for op in graph.ops if op.name == "constant"]
        layout = Layout(
            tuple(v.type for v in graph.inputs),
            tuple(v.type for v in graph.results),
            graph.attrs.get("arena", 0),
            tuple(op.attrs["value"] for op in constants),
            sum(len(op.results) for op in prepares),
            self.scratch if graph.attrs.get("scratch") else 0,
            1 if alone else int(graph.attrs.get("threads", 1)),
            graph.attrs.get("cost", 0),
            () if self._is_cold else self._dims,
        )
        places = Places(graph, layout)
        calls: list[Call] = []
        for op in graph.ops:
            if op.name == "prepare":
                if self.stamps is None:
                    self._prepare(op, graph, places)
            elif runs_kernel(op):
                calls.append(self._call(op, places, alone))
        if graph.attrs.get("tells_progress"):
            layout = replace(layout, ready=_ready(graph, places, [c.step for c in calls]))
        f = self.module.function(name)
        emit_calls(f, layout, calls, alone, self.scratch)
        self._report()
        return layout

    def _report(self, kernel: str | None = None, is_for_any: bool = False) -> None:
        new = self.module.functions[self._count :]
        for f in new:
            f.is_cold |= self._is_cold
        if self.written is not None:
            self.written(new, kernel, is_for_any)
        self._count = len(self.module.functions)

    def _prepare(self, op: Op, graph: Graph, places: Places) -> None:
        index = {v: k for k, v in enumerate(graph.inputs)}
        region = op.regions[0]
        digest = hashlib.sha256(repr(graph_key(region)).encode()).hexdigest()
        if self.library is None or digest not in self._prepared:
            name = f"prepare_{len(self.prepares)}{_for_readers(op) if self.library is None else ''}"
            self._is_cold = True
            self._prepared[digest] = name, self.function(name, region, alone=region.attrs.get("threads", 1) == 1)
            self._is_cold = False
        operands, results = tuple(index[v] for v in op.operands), tuple(places[r].at for r in op.results)
        self.prepares.append(Prepare(*self._prepared[digest], operands, results, digest))

    def _call(self, op: Op, places: Places, alone: bool) -> Call:
        pointers = [places[v] for v in (*op.operands, *op.results)]
        alone = alone or THREADS.of(op) == 1
        step = Step(
            [places.span(v) for v in op.operands],
            [places.span(r) for r in op.results],
            not alone,
        )
        workspace = Place("null")
        if WORKSPACE.of(op):
            workspace = Place("arena", WORKSPACE_OFFSET.of(op))
            step.writes.append(Span("arena", workspace.at, workspace.at + WORKSPACE.of(op)))
        if op.definition.level == "control":
            pointers += [workspace, Place("threads"), Place("team")]
        else:
            if SCRATCH.of(op):
                pointers.append(Place("scratch"))
            if WORKSPACE.of(op):
                pointers += [workspace, Place("team")]
        lowered, sizes = self._for_any_size(op)
        own, values, brief = tuple(sizes), tuple(sizes.values()), op in self._brief
        if self.stamps is None:
            return Call(self.kernel(lowered, alone, brief, own), pointers, step, sizes=values)
        site = self.stamps.kernel(op)
        outer, self.stamps.inside = self.stamps.inside, site
        name = self.kernel(lowered, alone, brief, own)
        self.stamps.inside = outer
        self.stamps.named(site, name)
        return Call(name, pointers, step, site, values)

    def _number(self, op: Op) -> int:
        """Equal for ops that say the same."""
        found = self._numbers.get(op)
        if found is None:
            found = self._numbers[op] = self._numbers.setdefault(op_key(op), len(self._numbers))
        return found

    def _for_any_size(self, op: Op) -> AnySize:
        """The op that is lowered in place of this one, so that others share its kernel."""
        if (found := self._of_any_length.get(op)) is not None:
            return found
        code = None if self._dims else code_of(op)
        if code is None:
            return AnySize(op, {})
        number = self._number(op)
        if number not in self._for_any:
            try:
                self._for_any[number] = code.for_any_size(op, self.target)
            except Undecided:  # this code has to know the op's sizes
                self._for_any[number] = None
        return self._for_any[number] or AnySize(op, {})

    def kernel(self, op: Op, alone: bool, brief: bool = False, own: tuple[str, ...] = ()) -> str:
        """The name of the function for `op`, which equal ops share; emitted on first use. `brief`: compiled fast rather
        than well; `own`: the open dimensions of the op in a graph without any."""
        if not own:
            return self._kernel(op, alone, brief, False)
        relied, before, self.module.dims = self.relies, self.module.dims, own
        with right_either_way():  # the call knows all sizes
            name = self._kernel(op, alone, brief, True)
        self.relies, self.module.dims = relied, before
        return name

    def _kernel(self, op: Op, alone: bool, brief: bool, is_for_any: bool) -> str:
        plan = KERNEL.of(op)
        if self._backwards and plan is not None and plan.backwards() is not plan:
            op = replace(op, attrs={**op.attrs, **KERNEL(plan.backwards())})
        is_control = op.definition.level == "control"
        how = (self._is_cold or brief, (alone, self._backwards) if is_control else None)
        key = (self._number(op), *how)
        name = self._kernels.get(key)
        if name is None or (is_control and self.stamps is not None):  # each loop has sites of its own
            kind = op.name if plan is None else plan.kernel
            library = self.library if op.definition.level not in ("control", "host") else None
            if library is None:
                own = "" if self.stamps is None else f"t{self.stamps.inside}_"
                name = f"{own}k{len(self._kernels)}_{kind}{_for_readers(op)}"
            else:
                dims = self.module.dims if is_open(op) else ()  # packing weights is the same for all sizes
                name = library.name(kind, ((op_key(op), *how), dims))
            self._kernels[key] = name
            self.calls_host |= op.definition.level == "host"
            if library is not None and library.find(name):
                self.module.declare(name, "void", [type for type, _ in KERNEL_PARAMS])
                self.relies |= library.relies(name)
            elif op.definition.level == "control":
                alternating = isinstance(plan, Loop) and plan.alternating
                regions = [self._region(name, k, r, alone, alternating) for k, r in enumerate(op.regions)]
                rows = None if alone else rows_of(op, self.target)
                lower_control(name, op, regions, alone, self.module, rows, self.scratch)
            else:
                with relying() as relies:
                    lower_kernel(name, op, self.module)
                if library is not None:
                    library.note(name, relies.noted)
            if not is_control:
                for f in self.module.functions[self._count :]:
                    f.is_cold |= brief
            self._report(name if library is not None else None, is_for_any)
        self.calls[name] = self.calls.get(name, 0) + 1
        return name

    def _region(self, name: str, k: int, region: Graph, alone: bool, alternating: bool) -> Region:
        if any(op.name == "prepare" for op in region.ops):
            raise IRError(
                f"the body @{region.name} holds a `prepare`; the pass `hoist` on the whole graph lifts it out"
            )
        function = f"{name}_region{k}"
        made = Region(function, self.function(function, region, alone))
        if alternating and k == 0:
            outer, self._backwards = self._backwards, True
            made.backwards = f"{function}_backwards"
            self.function(made.backwards, region, alone)
            self._backwards = outer
        return made


_NO_PART_OF_A_SYMBOL = re.compile(r"[^\w.]", re.ASCII)


def _for_readers(op: Op) -> str:
    """The end of a symbol that names the layer it is for. Code that other programs share through a library has none, as
    their layers have other names."""
    name = next((v.name for v in op.results if v.name), "")
    return f"_{_NO_PART_OF_A_SYMBOL.sub('_', name[:80])}" if name else ""


def lower_kernel(name: str, op: Op, module: Module) -> None:
    """Appends the kernel that `select` chose for `op` to the module."""
    code = code_of(op)
    if code is None:
        raise IRError(f"{op.name} has no kernel that code is generated for; run the pass `select` first")
    if (guard := GUARD.of(op)) is None:
        code.lower(name, op, module)
        return
    # The kernel is right only if the operand `guard` holds; loops over the same body are called if it does not.
    code.lower(f"{name}_guarded", op, module)
    attrs = KERNEL(Loops(rare=True)) | STRIDES(STRIDES.of(op))
    lower_loops(f"{name}_otherwise", replace(op, attrs=attrs), module)
    (otherwise,) = (g for g in module.functions if g.name == f"{name}_otherwise")
    otherwise.is_cold = True
    f = module.function(name)
    holds = f.op(f"icmp ne i8 {f.load('i8', f.table(guard))}, 0")
    for suffix, condition in (("guarded", holds), ("otherwise", f.op(f"xor i1 {holds}, true"))):
        with f.if_(condition):
            f.call(f"{name}_{suffix}", "void", ("ptr", "%table"), ("i64", "%thread"), ("i64", "%nthreads"))
