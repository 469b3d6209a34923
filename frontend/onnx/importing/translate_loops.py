"""ONNX's operators that hold graphs: If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.types import TensorType
from gluonjit.onnx.importing.importer import Importer, Untranslated, Val, translation
from gluonjit.onnx.importing.onnx_files import Call
from gluonjit.onnx.importing.translate_shapes import progression
from gluonjit.symbol import Symbol, symbolic_loops

_UNROLLED = 16
"""Loops of no more iterations are written out, so that in each of them its number is known."""


@translation("If")
def _if(g: Importer, call: Call, condition: Val) -> list[Val]:
    around = g.around
    branches = call.attrs["then_branch"], call.attrs["else_branch"]
    if condition.array is not None:
        return g.body(branches[not condition.array.reshape(-1)[0]], [], around)
    types: list[list[TensorType]] = []

    def chosen(branch: Any) -> Any:
        def run() -> list[Symbol]:
            found = g.body(branch, [], around)
            types.append([v.type for v in found])
            return [g.symbol(v) for v in found]

        return run

    test = g.symbol(g.op("_np_reshape", condition, newshape=(1,)))
    then, other = map(chosen, branches)
    found = symbolic_loops.cond(test, then, other, g.unused_name())
    if types[0] != types[1]:
        raise Untranslated(f"whose branches give {_listed(types[0])} and {_listed(types[1])}")
    found = found if isinstance(found, (list, tuple)) else [found]
    return [Val(t, x) for t, x in zip(types[0], found)]


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))


@translation("Scan")
def _scan(g: Importer, call: Call, *given: Val) -> list[Val]:
    if call.version < 9:
        raise Untranslated("of opset 8")
    around, body, count = g.around, call.attrs["body"], call.attrs["num_scan_inputs"]
    states, rows = list(given[: len(given) - count]), list(given[len(given) - count :])
    for k, axis in enumerate(call.get("scan_input_axes") or ()):
        rows[k] = _moved(g, rows[k], axis % rows[k].rank, 0)
    for k, backwards in enumerate(call.get("scan_input_directions") or ()):
        rows[k] = g.op("_npi_flip", rows[k], axis=(0,)) if backwards else rows[k]
    ends, made = _foreach(g, lambda items, now: g.body(body, [*now, *items], around), rows, states)
    for k, backwards in enumerate(call.get("scan_output_directions") or ()):
        made[k] = g.op("_npi_flip", made[k], axis=(0,)) if backwards else made[k]
    for k, axis in enumerate(call.get("scan_output_axes") or ()):
        made[k] = _moved(g, made[k], 0, axis % made[k].rank)
    return [*ends, *made]


def _moved(g: Importer, x: Val, source: int, target: int) -> Val:
    order = [k for k in range(x.rank) if k != source]
    order.insert(target, source)
    return x if source == target else g.op("transpose", x, axes=tuple(order))


def _foreach(g: Importer, body: Any, rows: Sequence[Val], states: Sequence[Val]) -> tuple[list[Val], list[Val]]:
    """(last states, rows of results); `body(items, states)` gives the next states and a row of each result."""
    types: list[TensorType] = []

    def run(items: Any, now: Any) -> Any:
        inner = [Val(x.type.with_shape(x.shape[1:]), item) for x, item in zip(rows, items)]
        found = body(inner, [Val(x.type, state) for x, state in zip(states, now)])
        _check_states(states, found)
        types.extend(v.type for v in found)
        results = [g.symbol(v) for v in found]
        return results[len(states) :], results[: len(states)]

    name = g.unused_name()
    made, ends = symbolic_loops.foreach(run, [g.symbol(x) for x in rows], [g.symbol(x) for x in states], name)
    trip = rows[0].shape[0]
    every = [Val(t.with_shape((trip, *t.shape)), x) for t, x in zip(types[len(states) :], made)]
    return [Val(x.type, end) for x, end in zip(states, ends)], every


def _check_states(states: Sequence[Val], found: Sequence[Val]) -> None:
    for before, after in zip(states, found):
        if before.type != after.type:
            raise Untranslated(f"whose state changes from {before.type} to {after.type}")


@translation("Loop")
def _loop(g: Importer, call: Call, trip: Val | None, first: Val | None, *states: Val) -> list[Val]:
    around, body = g.around, call.attrs["body"]
    true = g.constant(np.array(True))
    rows = len(body.output) > len(states) + 1
    count = None if trip is None or trip.array is None else int(trip.array.reshape(()))
    if count is not None and count >= 1 << 40:
        raise Untranslated(f"of {count:,} iterations")
    if count is not None and count <= _UNROLLED and first is not None and first.array is None and rows:
        g.known(first, "condition")  # the number of rows depends on it
    known = first is None or first.array is not None
    if known and first is not None and not first.array.reshape(()) or count is not None and count <= 0:  # type: ignore[union-attr]
        count = 0
    if known and count is not None and count <= _UNROLLED and (count or not rows):
        unrolled = _unrolled(g, body, count, states, around)
        if unrolled is not None:
            return unrolled
    if known and trip is not None:
        always: list[Val] = []

        def step(items: Sequence[Val], now: Sequence[Val]) -> list[Val]:
            going, *found = g.body(body, [items[0], true, *now], around)
            always.append(going)
            return found

        zero, one = (g.constant(np.array(k, np.int64)) for k in (0, 1))
        numbers = progression(g, zero, trip, one)
        ends, made = _foreach(g, step, [numbers], states)
        if always[0].array is not None and always[0].array.all():
            return [*ends, *made]
    if count is None:
        g.known(trip, "number of iterations")
    assert count is not None
    if rows:
        raise Untranslated("that gives as many rows as a condition says")
    return _while(g, body, count, true if first is None else first, states, around)


def _unrolled(g: Importer, body: Any, count: int, states: Sequence[Val], around: Any) -> list[Val] | None:
    """None if a condition decides when it ends."""
    made: list[list[Val]] = []
    now = list(states)
    for k in range(count):
        given = [g.constant(np.array(k, np.int64)), g.constant(np.array(True)), *now]
        going, *found = g.body(body, given, around, f"{k}_")
        if going.array is None:
            return None
        now = found[: len(states)]
        made.append(found[len(states) :])
        if not going.array.all():
            break
    rows = [[g.op("expand_dims", v, axis=0) for v in row] for row in zip(*made)]
    return [*now, *(g.op("Concat", *row, dim=0) if len(row) > 1 else row[0] for row in rows)]


def _while(g: Importer, body: Any, count: int, first: Val, states: Sequence[Val], around: Any) -> list[Val]:
    index = g.constant(np.array(0, np.int64), g.unused_name())
    carried = [index, first, *states]

    def going(index: Any, condition: Any, *now: Any) -> Any:
        return condition

    def step(index: Any, condition: Any, *now: Any) -> Any:
        given = [Val(v.type, x) for v, x in zip(carried, (index, condition, *now))]
        following = g.op("_plus_scalar", given[0], scalar=1.0)
        found = g.body(body, given, around)
        _check_states([first, *states], found)
        return [], [g.symbol(v) for v in (following, *found)]

    made = symbolic_loops.while_loop(going, step, [g.symbol(v) for v in carried], count, g.unused_name())
    return [Val(v.type, x) for v, x in zip(states, made[1][2:])]
