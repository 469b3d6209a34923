"""Loops and branches: functions that call their regions' functions.

A region is a planned graph, lowered like the whole one (`codegen.program`): a function of a table. What the op keeps
between calls (the regions' arenas, the buffers of carried values) lies in its scratch, `ir.buffers.control_workspace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gluonjit.codegen.layout import Layout
from gluonjit.codegen.llvm import Function, Module
from gluonjit.ir.buffers import control_workspace
from gluonjit.ir.graph import Op


@dataclass
class Region:
    """A region's function, and what its table holds."""

    name: str
    layout: Layout


def lower_control(name: str, op: Op, regions: Sequence[Region], module: Module) -> None:
    """Appends the function of a `loop` or `branch`. Its table: operands, results, scratch."""
    f = module.function(name)
    pointers = [f.table(k) for k in range(len(op.operands) + len(op.results))]
    # Without any state, arena or index there is no scratch; nothing then looks there.
    workspace = control_workspace(op.regions, op)
    scratch = f.table(len(pointers)) if workspace["end"] else "null"
    places = {key: f.gep("i8", scratch, at) for key, at in workspace.items() if key != "end"}
    operands, results = pointers[: len(op.operands)], pointers[len(op.operands) :]
    if op.name == "branch":
        _branch(f, regions, operands, results, places)
    else:
        _loop(f, op, regions, operands, results, places)


def _call(f: Function, region: Region, inputs: Sequence[str], results: Sequence[str], arena: str) -> None:
    layout = region.layout
    table = f.alloca("ptr", layout.size)
    constants = [f.module.constant(c) for c in layout.constants]
    filled = {
        **dict(zip(layout.input_slots, inputs, strict=True)),
        **dict(zip(layout.result_slots, results, strict=True)),
        **dict(zip(layout.constant_slots, constants, strict=True)),
        layout.arena_slot: arena,
    }
    for slot, pointer in filled.items():
        f.store("ptr", pointer, f.gep("ptr", table, slot), align=8)
    f.call(region.name, "void", ("ptr", table), ("i64", "%thread"), ("i64", "%nthreads"))


def _branch(
    f: Function, regions: Sequence[Region], operands: Sequence[str], results: Sequence[str], places: dict[str, str]
) -> None:
    condition, *captured = operands
    taken = f.op(f"icmp ne i8 {f.load('i8', condition)}, 0")
    with f.if_(taken):
        _call(f, regions[0], captured, results, places["arena0"])
    with f.if_(f.op(f"xor i1 {taken}, true")):
        _call(f, regions[1], captured, results, places["arena1"])


def _loop(
    f: Function,
    op: Op,
    regions: Sequence[Region],
    operands: Sequence[str],
    results: Sequence[str],
    places: dict[str, str],
) -> None:
    carried, scanned, trip = (op.attrs[key] for key in ("carried", "scanned", "trip"))
    captured = operands[carried + scanned :]
    sizes = [v.type.nbytes for v in op.operands[:carried]]
    rows = op.results[carried:]
    for k, size in enumerate(sizes):
        _copy(f, places[f"a{k}"], operands[k], size)
    if len(regions) > 1:
        # Iterations that do not run leave their rows 0.
        for pointer, v in zip(results[carried:], rows, strict=True):
            _zero(f, pointer, v.type.nbytes)
    f.store("i8", 1, places["go"])

    states = [("ptr", places[f"{buffer}{k}"]) for buffer in "ab" for k in range(carried)]
    with f.for_(0, trip, carried=states) as loop:
        now, following = loop.carried[:carried], loop.carried[carried:]
        f.store("i64", loop.index, places["index"], align=8)
        if len(regions) > 1:
            with f.if_(_goes_on(f, places)):
                _call(f, regions[1], [places["index"], *now, *captured], [places["go"]], places["arena1"])
        runs = _goes_on(f, places)
        with f.if_(runs):
            items = [
                _row(f, operands[carried + k], loop.index, op.operands[carried + k].type.nbytes, trip)
                for k in range(scanned)
            ]
            outs = [
                _row(f, pointer, loop.index, v.type.nbytes, trip)
                for pointer, v in zip(results[carried:], rows, strict=True)
            ]
            inputs = [places["index"], *now, *items, *captured]
            _call(f, regions[0], inputs, [*following, *outs], places["arena0"])
        # What was computed becomes what is carried; the other buffers are written next.
        new = [f.op(f"select i1 {runs}, ptr {b}, ptr {a}") for a, b in zip(now, following, strict=True)]
        free = [f.op(f"select i1 {runs}, ptr {a}, ptr {b}") for a, b in zip(now, following, strict=True)]
        loop.next(*new, *free)
    for pointer, final, size in zip(results[:carried], loop.results[:carried], sizes, strict=True):
        _copy(f, pointer, final, size)


def _goes_on(f: Function, places: dict[str, str]) -> str:
    return f.op(f"icmp ne i8 {f.load('i8', places['go'])}, 0")


def _row(f: Function, pointer: str, index: str, nbytes: int, trip: int) -> str:
    """Row `index` of an array of `trip` rows that take `nbytes` in all."""
    return f.gep("i8", pointer, f.mul(index, nbytes // max(trip, 1)))


def _copy(f: Function, to: str, source: str, nbytes: int) -> None:
    args = (("ptr", to), ("ptr", source), ("i64", nbytes), ("i1", "false"))
    f.intrinsic("llvm.memcpy", "void", *args, overload=("ptr", "ptr", "i64"))


def _zero(f: Function, to: str, nbytes: int) -> None:
    args = (("ptr", to), ("i8", 0), ("i64", nbytes), ("i1", "false"))
    f.intrinsic("llvm.memset", "void", *args, overload=("ptr", "i64"))
