"""Loops in expansions: one body, run step by step on ndarrays or recorded as the region of a `loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.primitives.control_flow import INDEX
from gluonjit.ir.types import TensorType, type_of

Values = Sequence[Any]
Body = Callable[[Any, Any, Values, Values, Values], "tuple[Values, Values]"]
"""`body(b, index, state, items, captured)` gives the new state and this iteration's rows.

It may use what it is given, and constants that it makes with `b`, but no value from outside. `index` is an i64[].
"""
Condition = Callable[[Any, Any, Values, Values], Any]
"""`condition(b, index, state, captured)`: a bool[], whether to go on."""


def loop(
    b: Any,
    body: Body,
    state: Values = (),
    scanned: Values = (),
    captured: Values = (),
    *,
    trip: int,
    condition: Condition | None = None,
) -> tuple[list[Any], list[Any]]:
    """The state after at most `trip` iterations, and the rows of all of them, stacked; 0 for those that did not run.

    Iteration k gets row k of everything `scanned`.
    """
    if isinstance(b, Builder):
        return _record(b, body, state, scanned, captured, trip, condition)
    state = list(state)
    rows: list[Any] | None = None
    for k in range(trip):
        index = np.asarray(k, np.int64)
        if condition is not None and not condition(b, index, state, captured):
            break
        state, parts = body(b, index, state, [x[k, ...] for x in scanned], captured)
        if rows is None:
            rows = [np.zeros((trip, *p.shape), p.dtype) for p in parts]
        for whole, part in zip(rows, parts):
            whole[k] = part
    if rows is None:  # not one iteration: the region knows what its rows would have been
        types = [type_of(x) for x in (*state, *scanned, *captured)]
        region = _region(Builder("infer"), body, types, len(state), len(scanned))
        rows = [np.zeros((trip, *v.shape), v.dtype.numpy) for v in region.outputs[len(state) :]]
    return list(state), rows


def _record(
    b: Builder,
    body: Body,
    state: Values,
    scanned: Values,
    captured: Values,
    trip: int,
    condition: Condition | None,
) -> tuple[list[Any], list[Any]]:
    operands = (*state, *scanned, *captured)
    regions = [_region(b, body, [v.type for v in operands], len(state), len(scanned))]
    if condition is not None:
        sub = Builder("condition", b.level, b.training)
        index = sub.input("i", INDEX)
        given = [sub.input(v.name, v.type) for v in (*state, *captured)]
        regions.append(sub.build([condition(sub, index, given[: len(state)], given[len(state) :])]))
    attrs = {"carried": len(state), "scanned": len(scanned), "trip": trip}
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
