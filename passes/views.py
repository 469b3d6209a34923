"""`views`: concats, slices and transposes that only decide where values lie in memory become views.

A concat that is a kernel reads all of its operands and writes them again. As a view, it is a buffer into which the
kernels that make the operands write: each has its place in every row, so it writes with the strides of the result, and
other readers of the operand read with them. An operand that cannot be written there (an input, a result of
the graph, what another concat has already, …) is copied to its place. A slice that a kernel computes for others that
take strides becomes a window of its operand.

So does a transpose that leaves the last axes together, like that of attention's heads. Where its readers take no
strides, the kernel that makes its operand may write it as they want it.

The kernels concerned are told by the annotation `.strides` (`ir/windows.py`). What `evaluate` gives does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gluonjit.ir.annotations import KERNEL, STRIDES
from gluonjit.ir.buffers import runs_kernel
from gluonjit.ir.dims import Extent, hint
from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value, with_notes
from gluonjit.ir.kernels.element_plans import Copy, View
from gluonjit.ir.machine import LINE, PAGE
from gluonjit.ir.windows import (
    Strides,
    Window,
    is_row_major,
    kernel_strides,
    parts,
    reshaped,
    restrided,
    row_major,
    sliced,
    takes_strides,
    transposed,
    windows,
)
from gluonjit.passes.manager import register_pass


@register_pass("views", needs="fused")
def views(graph: Graph, *, line: int = LINE) -> Graph:
    """Has kernels write their results straight into the concat that follows, and read slices and transposes where they
    are.

    Pieces of rows shorter than `line` bytes cost more to touch apart than to copy together."""
    planner = _Planner(graph, line)
    for op in reversed(graph.ops):
        moved = _moves(op)
        if moved is not None and moved.name == "concat":
            planner.try_concat(op, moved)
    for op in graph.ops:
        moved = _moves(op)
        if moved is not None and moved.name in ("slice", "transpose"):
            planner.try_window(op, moved)
    if not planner.plans:
        return graph
    graph = _WithViews(graph, planner.plans).run()
    places = windows(graph)

    def told(op: Op) -> Op:
        strides = kernel_strides(op, places) if runs_kernel(op) else ()
        return with_notes(op, STRIDES(strides)) if strides else op

    return replace(graph, ops=tuple([told(op) for op in graph.ops]))


_MANY = 16
"""Operands of a concat from which on copying them is faster than a kernel that looks at each element for which operand
it is from: 9 microseconds for 82, of 40 operands f32[16,1,32]."""


@dataclass
class _View:
    """What becomes of a kernel: the primitive that it holds, as a view over `operands`, of which some are copied."""

    primitive: Op
    operands: tuple[Value, ...]
    copied: frozenset[int] = frozenset()
    into: bool = False
    """A transpose that is written, not read, in other strides."""


def _moves(op: Op) -> Op | None:
    """The concat, slice or transpose that is all that a kernel does."""
    plan = KERNEL.of(op)
    if op.name != "fused" or plan is None or not plan.by_element or len(op.regions[0].ops) != 1:
        return None
    (only,) = op.regions[0].ops
    moves = only.name in ("concat", "transpose")
    moves |= only.name == "slice" and all(k == 1 for k in only.attrs["step"] or ())
    return only if moves and only.result.size and op.regions[0].outputs == (only.result,) else None


@dataclass
class _Planner:
    graph: Graph
    line: int
    plans: dict[Op, _View] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source = reshaped(self.graph)
        self.renamed: dict[Value, list[Value]] = {}
        """Value → the reshapes of it that are views."""
        for v, made in self.source.items():
            self.renamed.setdefault(made, []).append(v)
        self.windows: dict[Value, Window] = {}
        """The windows of values that do not lie in buffers of their own."""
        self.results = set(self.graph.results)

    def window(self, v: Value) -> Window:
        return self.windows.get(v) or Window(v, 0, row_major(v.shape))

    # ---- concats, of which the last ones come first

    def try_concat(self, op: Op, concat: Op) -> None:
        """Plans a concat as a view, if most of it is then written in place, or if it has many operands of one type,
        which one kernel copies one after the other."""
        operands = _outer(op, concat)
        whole = self.window(op.result)
        places = parts(replace(concat, operands=operands), whole)
        found: dict[Value, Window] = {}
        copied = set()
        for k, (v, place) in enumerate(zip(operands, places)):
            made = self.source.get(v, v)
            strides = restrided(v.shape, place.strides, made.shape)
            if strides is None or made in found or not self._can_lie(made, place._replace(strides=strides)):
                copied.add(k)
            else:
                found[made] = place._replace(strides=strides)
        size = sum(hint(operands[k].size) for k in copied)
        alike = len(operands) >= _MANY and len({v.type for v in operands}) == 1
        one_by_one = alike and _run(operands[0], places[0].strides) >= self.line
        if 2 * size <= hint(concat.result.size) and found or one_by_one:
            self.windows.update(found)
            self.plans[op] = _View(concat, operands, frozenset(copied))

    def _can_lie(self, made: Value, window: Window) -> bool:
        """Whether a value can be written there, and be read there by all who read it."""
        maker = self.graph.producers.get(made)
        if maker is None or not runs_kernel(maker) or made in self.windows:
            return False
        if made in self.results or any(v in self.results for v in self.renamed.get(made, ())):
            return False
        plain = is_row_major(made.shape, window.strides)
        k = len(maker.operands) + maker.results.index(made)
        if not plain and (not takes_strides(maker, k, window.strides) or _run(made, window.strides) < self.line):
            return False
        return self._can_be_read(made, window.strides)

    def _can_be_read(self, made: Value, strides: Strides) -> bool:
        """Whether all readers of a value, and of its reshapes, take strides."""
        for v in (made, *self.renamed.get(made, ())):
            own = restrided(made.shape, strides, v.shape)
            if own is None:
                return False
            if is_row_major(v.shape, own):
                continue
            for op in self.graph.uses.get(v, ()):
                for k, operand in enumerate(op.operands):
                    if operand is v and runs_kernel(op) and not (takes_strides(op, k, own) and _harmless(op, k, own)):
                        return False
        return True

    # ---- slices and transposes

    def try_window(self, op: Op, move: Op) -> None:
        """Plans a slice or transpose as a view, if all who read it take the strides that it has in its operand."""
        (operand,) = _outer(op, move)
        if op.result in self.windows:
            return
        made = self.source.get(operand, operand)
        root, offset, strides = self.window(made)
        own = restrided(made.shape, strides, operand.shape)
        leaves = any(v in self.results for v in (op.result, *self.renamed.get(op.result, ())))
        if own is not None and not leaves:
            whole = Window(root, offset, own)
            window = (sliced if move.name == "slice" else transposed)(replace(move, operands=(operand,)), whole)
            if _run(op.result, window.strides) >= self.line and self._can_be_read(op.result, window.strides):
                self.windows[op.result] = window
                self.plans[op] = _View(move, (operand,))
                return
        if move.name == "transpose":
            self._try_filled(op, move, operand, made)

    def _try_filled(self, op: Op, transpose: Op, operand: Value, made: Value) -> None:
        """Plans a transpose as the buffer that the kernel of its operand writes, if that can."""
        (place,) = parts(transpose, Window(op.result, 0, row_major(op.result.shape)))
        strides = restrided(operand.shape, place.strides, made.shape)
        near = {o for v in (made, *self.renamed.get(made, ())) for o in self.graph.uses.get(v, ())}
        near.update(o for o in [self.graph.producers.get(made)] if o is not None)
        if not near.isdisjoint(self.plans):
            return  # its windows, or those that it consists of, depend on where it lies
        if strides is not None and self._can_lie(made, place._replace(strides=strides)):
            self.windows[made] = place._replace(strides=strides)
            self.plans[op] = _View(transpose, (operand,), into=True)


def _outer(op: Op, primitive: Op) -> tuple[Value, ...]:
    """The operands of the one primitive in a kernel, as the graph around it knows them."""
    inner = dict(zip(op.regions[0].inputs, op.operands, strict=True))
    return tuple(inner[v] for v in primitive.operands)


def _run(v: Value, strides: Strides) -> int:
    """Bytes of the pieces without gaps that the value consists of."""
    run: Extent = 1
    for n, s in zip(reversed(v.shape), reversed(strides)):
        if n != 1 and s != run:
            break
        run *= n
    return hint(run) * v.dtype.itemsize


def _harmless(op: Op, k: int, strides: Strides) -> bool:
    """Whether the pixels that a product reads together lie in different sets of the first cache, as they did before."""
    plan = KERNEL.of(op)
    if k != 0 or plan is None or not plan.reads_lines:
        return True
    v = op.operands[0]
    apart, before = (hint(n) * v.dtype.itemsize for n in (strides[-2], v.shape[-1]))
    return apart % PAGE != 0 or before % PAGE == 0


# ---- the new graph


class _WithViews(Rewriter):
    def __init__(self, graph: Graph, plans: Mapping[Op, _View]) -> None:
        super().__init__(graph)
        self.plans = plans

    def visit(self, op: Op) -> Sequence[Value] | None:
        plan = self.plans.get(op)
        if plan is None:
            return None
        operands = [self.env[v] for v in plan.operands]
        for k in plan.copied:
            operands[k] = _copy(self.b, operands[k])
        attrs = {**plan.primitive.attrs, **KERNEL(View(into=plan.into))}
        return self.b.emit(plan.primitive.name, operands, attrs, (), op.loc, [op.result.name])


def _copy(b: Builder, x: Value) -> Value:
    body = Builder("copy", b.level)
    return b.emit("fused", [x], KERNEL(Copy()), [body.build([body.input("x", x.type)])])[0]
