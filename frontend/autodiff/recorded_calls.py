"""Calls of compiled graphs on the tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gluonjit.autodiff import anomalies
from gluonjit.autodiff.computation import Computation, Forward
from gluonjit.autodiff.graph_nodes import BlockCall, note_block, note_others, note_refusal
from gluonjit.autodiff.tape import Saved, note_program
from gluonjit.base import MXNetError
from gluonjit.context import Context
from gluonjit.ir.graph import Graph
from gluonjit.language.kinds import as_np
from gluonjit.language.modes import modes
from gluonjit.language.source import user_loc
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import tracked, wants_rows
from gluonjit.runtime.storage import Storage


class Inputs(Protocol):
    """The inputs of a call."""

    @property
    def arrays(self) -> list[Any]:
        """The caller's arrays."""

    @property
    def elements(self) -> list[Any]:
        """An ndarray for each input of the graph; the last may be a random key."""


class Runs(Protocol):
    """What runs a graph (`execution.session.Session`). `monitor`: what is shown its results."""

    written: tuple[int, ...]
    """Positions of the inputs whose arrays it writes to."""

    def graph_of(self, inputs: Any) -> Graph:
        """The graph for inputs of these shapes."""

    def run(self, inputs: Any, monitor: Any = None) -> list[np.ndarray]:
        """The outputs."""

    def run_forward(self, forward: Forward, inputs: Any, monitor: Any = None) -> tuple[list[np.ndarray], list[Any]]:
        """The outputs, followed by what the gradient needs, and objects that must live as long as that."""


def recorded_call(
    name: str,
    session: Runs,
    computation: Computation,
    inputs: Inputs,
    monitor: Any,
    kinds: Sequence[bool],
    device: Context | None,
    targets: Sequence[NDArray] = (),
) -> list[NDArray] | None:
    """The results of the session's graph, noted on the tape; None if no gradient flows to any input.

    `kinds` says which results are arrays of `mx.np`, `device` where they are (None: cpu(0)).
    `targets` are arrays that the call writes to; the computation gives their new values after the results.
    """
    arrays = inputs.arrays
    reached = [k for k, x in enumerate(arrays) if x._grad_state is not None and tracked(x)]
    if not reached:
        return None
    graph, states = session.graph_of(inputs), tuple([x._grad_state for x in arrays])
    wrt = tuple([k for k in reached if arrays[k]._stand_in.dtype != np.bool_])
    heads = computation.differentiable(wrt) if wrt else ()
    forward, refusal = None, None
    if heads:
        try:
            rows = tuple([n for n, k in enumerate(wrt) if wants_rows(arrays[k])])
            forward = computation.forward(wrt, heads, rows)
        except MXNetError as e:
            refusal = e
    if forward is None:
        results = [_wrapped(x, kind, device) for x, kind in zip(session.run(inputs, monitor), kinds, strict=True)]
    else:
        saved = values_before(session, inputs)
        outputs, kept = session.run_forward(forward, inputs, monitor)
        own = outputs[: forward.count - len(targets)]
        results = [_wrapped(x, kind, device) for x, kind in zip(own, kinds, strict=True)]
        if modes.anomalies:
            anomalies.check_block(name, user_loc(), session.graph_of(inputs), [v.array for v in saved], own)
        made = [*results, *targets]
        note_block(BlockCall(name, computation, forward, wrt, heads, arrays, saved, made, outputs, kept))
    if refusal is not None:
        note_refusal(name, [arrays[k] for k in wrt], heads, [*results, *targets], refusal)
    else:
        # Not the targets: a state that no gradient flows to stays an array that programs may write to.
        note_others(name, computation, arrays, wrt if heads else reached, results)
    note_program(graph, states, results)
    return results


def values_before(session: Runs, inputs: Inputs) -> list[Saved]:
    """The values of all inputs before a call, which may write to some: its gradient reads what was there."""
    saved = [Saved.of(x) for x in (*inputs.arrays, *inputs.elements[len(inputs.arrays) :])]
    for k in session.written:
        saved[k] = saved[k].copied()
    return saved


def _wrapped(x: np.ndarray, kind: bool, device: Context | None) -> NDArray:
    result = NDArray._wrap(x)
    if device is not None:
        result._storage = Storage(device)
    return as_np(result) if kind else result
