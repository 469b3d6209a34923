"""Primitives that run regions as functions: `loop`, `branch` and `call`; and `with_gradient`.

`loop(carried…, scanned…, captured…) {carried = C, scanned = S, trip = T} (body[, condition])`

    state = carried
    for i in range(T):
        if condition and not condition(i, state…, captured…): break
        state…, row… = body(i, state…, x[i] for x in scanned…, captured…)
        rows[i] = row…
    results: state…, rows…

`i` is an i64[]. Every scanned operand has T rows; the body sees one of them. The rows of iterations that did not run
are 0. If `last_first`, row T - 1 - i stands for row i, of what is scanned and of the results, as in the gradient of a
loop. The condition, an optional second region, gives a bool[].

`branch(condition: bool[], captured…) (then, otherwise)`: the results of one region; both take the captured operands.

`call(operands…) {captured = n} (function)`: the results of the region. Ops that occur again and again, such as the
steps of an unrolled recurrent cell, become calls of one function, which is optimized and lowered once (the pass
`outline`). The last n operands are *captured*: the same values in every call of the function, such as weights.

`with_gradient(operands…) {to = (…), fixed = (…), late = (…), refuses = ""} (forward[, gradient])`: the results of the
first region. When a graph is differentiated, the second region gives the cotangents of the operands numbered by `to`;
it takes operands, results, and the cotangents of all results. Without one, the forward region is differentiated, and
the operands numbered by `fixed` count as constants. `late` are pairs (operand, result): the operand's array gets the
value of the result when the gradient is computed, as BatchNorm's moving mean does. `refuses` is the name of what has no
gradient, which is then an error. No code is generated for it: `differentiate` takes it apart.

Codegen lowers a region as a graph of its own, which is called in a loop (or after a conditional jump). Carried values
have two buffers, which swap roles after each iteration; rows are read and written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.dims import Dim
from gluonjit.ir.graph import Graph
from gluonjit.ir.interpreter import Interpreter
from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.types import BOOL, I64, IRError, TensorType

_BOOL = TensorType(BOOL)
INDEX = TensorType(I64)
"""The type of a body's first input, the number of the iteration."""


def _count(name: str, value: Any, most: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise IRError(f"{name} must be an int >= 0, got {value!r}")
    if most is not None and value > most:
        raise IRError(f"{name} = {value}, but there are {most} operands left")
    return value


def _check_region(what: str, region: Graph, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """The result types of a region, which must take `inputs`."""
    given = tuple(v.type for v in region.inputs)
    if given != tuple(inputs):
        raise IRError(f"the {what} takes ({', '.join(map(str, given))}), not ({', '.join(map(str, inputs))})")
    if region.updates:
        raise IRError(f"the {what} cannot update states; return their new values instead")
    return tuple(v.type for v in region.outputs)


def _infer_loop(
    *operands: TensorType, carried: Any, scanned: Any, trip: Any, last_first: Any, regions: tuple[Graph, ...]
) -> tuple[TensorType, ...]:
    if len(regions) not in (1, 2):
        raise IRError(f"needs a body and optionally a condition, got {len(regions)} regions")
    split = _count("carried", carried, len(operands))
    end = split + _count("scanned", scanned, len(operands) - split)
    if not isinstance(last_first, bool):
        raise IRError(f"last_first must be a bool, got {last_first!r}")
    if not isinstance(trip, Dim):
        _count("trip", trip)
    state, rows, captured = operands[:split], operands[split:end], operands[end:]
    for x in rows:
        if not x.shape or x.shape[0] != trip:
            raise IRError(f"scanned operand {x} must have a row for each of {trip} iterations")
    items = tuple(x.with_shape(x.shape[1:]) for x in rows)
    results = _check_region("body", regions[0], (INDEX, *state, *items, *captured))
    if results[:split] != state:
        raise IRError(
            f"the body must give back what is carried, ({', '.join(map(str, state))}), before its rows; it gives "
            f"({', '.join(map(str, results))})"
        )
    if len(regions) == 2:
        decision = _check_region("condition", regions[1], (INDEX, *state, *captured))
        if decision != (_BOOL,):
            raise IRError(f"the condition must give a bool[], got ({', '.join(map(str, decision))})")
    return (*state, *(t.with_shape((trip, *t.shape)) for t in results[split:]))


def _eval_loop(
    *operands: np.ndarray, carried: int, scanned: int, trip: int, last_first: bool, regions: Sequence[Interpreter]
) -> tuple[np.ndarray, ...]:
    body, *condition = regions
    end = carried + scanned
    state, rows, captured = list(operands[:carried]), operands[carried:end], operands[end:]
    out = [np.zeros((trip, *v.type.shape), v.type.dtype.numpy) for v in body.graph.outputs[carried:]]
    for k in range(trip):
        index = np.asarray(k, np.int64)
        if condition and not condition[0].run([index, *state, *captured])[0][0]:
            break
        place = trip - 1 - k if last_first else k
        results, _ = body.run([index, *state, *(np.asarray(x[place]) for x in rows), *captured])
        state = results[:carried]
        for whole, row in zip(out, results[carried:]):
            whole[place] = row
    return (*state, *out)


def _infer_branch(condition: TensorType, *captured: TensorType, regions: tuple[Graph, ...]) -> tuple[TensorType, ...]:
    if len(regions) != 2:
        raise IRError(f"needs two regions, got {len(regions)}")
    if condition != _BOOL:
        raise IRError(f"the condition must be a bool[], got {condition}")
    then, otherwise = (
        _check_region(name, region, captured) for name, region in zip(("first region", "second region"), regions)
    )
    if then != otherwise:
        raise IRError(
            f"the regions must give the same types; they give ({', '.join(map(str, then))}) and "
            f"({', '.join(map(str, otherwise))})"
        )
    return then


def _eval_branch(
    condition: np.ndarray, *captured: np.ndarray, regions: Sequence[Interpreter]
) -> tuple[np.ndarray, ...]:
    return tuple(regions[0 if condition else 1].run(captured)[0])


def _infer_call(*operands: TensorType, captured: Any, regions: tuple[Graph, ...]) -> tuple[TensorType, ...]:
    if len(regions) != 1:
        raise IRError(f"needs one region, got {len(regions)}")
    _count("captured", captured, len(operands))
    return _check_region("function", regions[0], operands)


primitive(
    "loop",
    infer=_infer_loop,
    eval=_eval_loop,
    attrs={"carried": 0, "scanned": 0, "trip": REQUIRED, "last_first": False},
    region_count=1,
    level="control",
    doc="runs its body at most `trip` times; results are what is carried at the end, and the rows of all iterations",
)
primitive(
    "branch",
    infer=_infer_branch,
    eval=_eval_branch,
    region_count=2,
    level="control",
    doc="the results of the first region if the condition holds, else of the second",
)


primitive(
    "call",
    infer=_infer_call,
    eval=lambda *operands, captured, regions: tuple(regions[0].run(operands)[0]),
    attrs={"captured": 0},
    region_count=1,
    level="control",
    doc="the results of its region, a function that other calls share",
)


def _infer_with_gradient(
    *operands: TensorType, to: Any, fixed: Any, late: Any, refuses: str, regions: tuple[Graph, ...]
) -> tuple[TensorType, ...]:
    if len(regions) not in (1, 2):
        raise IRError(f"needs a forward region and optionally a gradient, got {len(regions)} regions")
    results = _check_region("forward region", regions[0], operands)
    for k in (*to, *fixed):
        if not 0 <= k < len(operands):
            raise IRError(f"to = {to}, fixed = {fixed}, but there are {len(operands)} operands")
    for k, j in late:
        if not 0 <= k < len(operands) or not 0 <= j < len(results) or operands[k] != results[j]:
            raise IRError(f"late = {late}: operand {k} cannot become result {j}")
    if len(regions) == 2:
        given = _check_region("gradient", regions[1], (*operands, *results, *results))
        wanted = tuple(operands[k] for k in to)
        if given != wanted:
            raise IRError(f"the gradient gives ({', '.join(map(str, given))}), not ({', '.join(map(str, wanted))})")
    return results


primitive(
    "with_gradient",
    infer=_infer_with_gradient,
    eval=lambda *operands, to, fixed, late, refuses, regions: tuple(regions[0].run(operands)[0]),
    attrs={"to": (), "fixed": (), "late": (), "refuses": ""},
    region_count=2,
    level="control",
    doc="its first region's results; the second region is their gradient",
)
