"""`autograd.detect_anomaly()`: which operator made the first nan or infinity, in a recorded call or in its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.graph import Graph, Loc, Op
from gluonjit.ir.interpreter import Interpreter
from gluonjit.language.modes import modes
from gluonjit.language.source import quote
from gluonjit.symbol.monitored import run_monitored


class detect_anomaly:
    """A context in which the first nan or infinity of a recorded call or of `backward` is an error.

    The error names the operator and the user's line that made it. Every recorded result is looked at, and a compiled
    block that gave one is run again operator by operator, so this is for finding faults.
    """

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> detect_anomaly:
        self._before.append(modes.anomalies)
        modes.anomalies = True
        return self

    def __exit__(self, *exception: Any) -> None:
        modes.anomalies = self._before.pop()


def fault(arrays: Iterable[np.ndarray]) -> str | None:
    """'nan' or 'inf' if one of the arrays has such an element."""
    found = None
    for x in arrays:
        if x.dtype.kind in "iub":
            continue
        x = x if x.dtype.kind == "f" else x.astype(np.float32)  # bfloat16
        if not np.isfinite(x).all():
            if np.isnan(x).any():
                return "nan"
            found = "inf"
    return found


def check_operator(name: str, loc: Loc | None, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """An error if the results of a recorded operator have a nan or infinity."""
    found = fault(results)
    if found is None:
        return
    given = fault(inputs)
    origin = f"its inputs have {given} already" if given is not None else "its inputs are finite"
    raise MXNetError(f"detect_anomaly: {name} gives {found}; {origin}{quote(loc)}")


def check_block(
    name: str, loc: Loc | None, graph: Graph, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]
) -> None:
    """An error, which names the operator, if the results of a compiled block have a nan or infinity."""
    found = fault(results)
    if found is None:
        return
    seen: list[tuple[str, str, str]] = []

    def look(node: bytes, operator: bytes, x: Any) -> None:
        wrong = fault([x._array]) if not seen else None
        if wrong is not None:
            seen.append((node.decode(), operator.decode(), wrong))

    given = fault(inputs)
    if given is not None:
        raise MXNetError(f"detect_anomaly: {name} gives {found}; its inputs have {given} already{quote(loc)}")
    run_monitored(graph, inputs, look, False)
    if not seen:
        raise MXNetError(f"detect_anomaly: {name} gives {found}, but no operator in it does by itself{quote(loc)}")
    node, operator, wrong = seen[0]
    places = [op.loc for op in graph.ops for r in op.results if r.name and node.startswith(r.name)]
    raise MXNetError(
        f"detect_anomaly: {operator} ({node}) in {name} gives {wrong}{quote(places[0] if places else loc)}"
    )


def check_gradient(
    name: str,
    loc: Loc | None,
    cotangents: Sequence[np.ndarray],
    gradients: Sequence[np.ndarray],
    graph: Graph | None = None,
    inputs: Sequence[np.ndarray] = (),
) -> None:
    """An error if gradients have a nan or infinity. `graph` computes the gradients of a block from `inputs`."""
    found = fault(gradients)
    if found is None:
        return
    given = fault(cotangents)
    if given is not None:
        raise MXNetError(
            f"detect_anomaly: the gradient of {name} has {found}; the one that it gets has {given} already{quote(loc)}"
        )
    inside = ""
    if graph is not None:
        op = _first(graph, inputs)
        if op is not None:
            inside, loc = f" ({op.name})", op.loc or loc
    raise MXNetError(f"detect_anomaly: the gradient of {name}{inside} has {found}{quote(loc)}")


def _first(graph: Graph, inputs: Sequence[np.ndarray]) -> Op | None:
    """The first primitive of a graph whose results have a nan or infinity, though its operands have none."""
    found: list[Op] = []

    def look(op: Op, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        if not found and fault(results) is not None and fault(operands) is None:
            found.append(op)

    Interpreter(graph).run(inputs, look)
    return found[0] if found else None
