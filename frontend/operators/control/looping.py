"""Loops in expansions: a body that runs eagerly on ndarrays, or is recorded as the region of a `loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Builder, Emitter, Graph
from gluonjit.ir.primitives.control_flow import INDEX
from gluonjit.ir.types import TensorType, type_of

Values = Sequence[Any]
Body = Callable[[Emitter, Any, Values, Values, Values], "tuple[Values, Values]"]
"""`body(b, index, state, items, captured)` returns the new state and this iteration's rows.

It may use its arguments and constants made with `b`, but no other value from outside. `index` is an i64[].
"""
Condition = Callable[[Emitter, Any, Values, Values], Any]
"""`condition(b, index, state, captured)` returns a bool[]: whether to run this iteration."""


def loop(
    b: Emitter,
    body: Body,
    state: Values = (),
    scanned: Values = (),
    captured: Values = (),
    *,
    trip: int,
    condition: Condition | None = None,
    last_first: bool = False,
) -> tuple[list[Any], list[Any]]:
    """Runs at most `trip` iterations; returns the last state and the stacked rows, 0 for iterations that did not run.

    Iteration k gets row k of each of `scanned`, and gives row k of the results; if `last_first`, the k-th from the end.
    """
    if isinstance(b, Builder):
        return _record(b, body, state, scanned, captured, trip, condition, last_first)
    state = list(state)
    rows: list[Any] | None = None
    for k in range(trip):
        (index,) = b.operands((np.asarray(k, np.int64),))
        if condition is not None and not condition(b, index, state, captured):
            break
        place = trip - 1 - k if last_first else k
        state, parts = body(b, index, state, [x[place, ...] for x in scanned], captured)
        if rows is None:
            rows = [np.zeros((trip, *p.shape), p.dtype) for p in parts]
        for stacked, part in zip(rows, parts):
            stacked[place] = part
    if rows is None:  # no iteration ran: infer the types of the rows
        types = [type_of(x) for x in (*state, *scanned, *captured)]
        region = _region(Builder("infer"), body, types, len(state), len(scanned))
        rows = [np.zeros((trip, *v.shape), v.dtype.numpy) for v in region.outputs[len(state) :]]
    return list(state), list(b.operands(rows))


def _record(
    b: Builder,
    body: Body,
    state: Values,
    scanned: Values,
    captured: Values,
    trip: int,
    condition: Condition | None,
    last_first: bool,
) -> tuple[list[Any], list[Any]]:
    operands = (*state, *scanned, *captured)
    regions = [_region(b, body, [v.type for v in operands], len(state), len(scanned))]
    if condition is not None:
        sub = Builder("condition", b.level, b.training)
        index = sub.input("i", INDEX)
        given = [sub.input(v.name, v.type) for v in (*state, *captured)]
        regions.append(sub.build([condition(sub, index, given[: len(state)], given[len(state) :])]))
    attrs = {"carried": len(state), "scanned": len(scanned), "trip": trip, "last_first": last_first}
    results = b.emit("loop", operands, attrs, regions)
    return list(results[: len(state)]), list(results[len(state) :])


def _region(b: Builder, body: Body, types: Sequence[TensorType], carried: int, scanned: int) -> Graph:
    sub = Builder("body", b.level, b.training)
    index = sub.input("i", INDEX)
    end = carried + scanned
    items = [t.with_shape(t.shape[1:]) for t in types[carried:end]]
    values = [sub.input("", t) for t in (*types[:carried], *items, *types[end:])]
    state, rows = body(sub, index, values[:carried], values[carried:end], values[end:])
    return sub.build([*state, *rows])
