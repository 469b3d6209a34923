"""Calls of compiled graphs on the tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gluonjit.autodiff import anomalies
from gluonjit.autodiff.computation import Computation
from gluonjit.autodiff.graph_nodes import BlockCall, note_block, note_others, note_refusal
from gluonjit.autodiff.tape import Program, Saved
from gluonjit.base import MXNetError
from gluonjit.context import Context
from gluonjit.language.kinds import as_np
from gluonjit.language.modes import modes
from gluonjit.language.source import user_loc
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import tracked, wants_rows
from gluonjit.runtime.storage import Storage

if TYPE_CHECKING:
    from gluonjit.execution.session import Inputs, Monitor, Session


def recorded_call(
    name: str,
    session: Session,
    computation: Computation,
    inputs: Inputs,
    monitor: Monitor | None,
    kinds: Sequence[bool],
    device: Context | None,
    targets: Sequence[NDArray] = (),
) -> list[NDArray] | None:
    """The results of the session's graph, noted on the tape; None if no gradient flows to any input.

    `kinds` says which results are arrays of `mx.np`, `device` where they are (None: cpu(0)).
    `targets` are arrays that the call writes to; the computation gives their new values behind the results.
    """
    reached = [k for k, x in enumerate(inputs.arrays) if x._grad_state is not None and tracked(x)]
    if not reached:
        return None
    program = Program.of(session.graph_of(inputs), inputs.arrays)
    wrt = tuple(k for k in reached if inputs.arrays[k]._stand_in.dtype != np.bool_)

    def wrapped(outputs: Sequence[np.ndarray]) -> list[NDArray]:
        results = []
        for x, kind in zip(outputs, kinds, strict=True):
            result = NDArray._wrap(x)
            if device is not None:
                result._storage = Storage(device)
            results.append(as_np(result) if kind else result)
        return results

    heads = computation.differentiable(wrt) if wrt else ()
    if not heads:
        results = wrapped(session.run(inputs, monitor))
        note_others(name, computation, inputs.arrays, reached, results)
        program.note(results)
        return results
    rows = tuple([n for n, k in enumerate(wrt) if wants_rows(inputs.arrays[k])])
    try:
        forward = computation.forward(wrt, heads, rows)
    except MXNetError as e:
        results = wrapped(session.run(inputs, monitor))
        note_refusal(name, [inputs.arrays[k] for k in wrt], heads, [*results, *targets], e)
        program.note(results)
        return results
    saved = [Saved.of(x) for x in (*inputs.arrays, *inputs.elements[len(inputs.arrays) :])]
    for k in session.written:  # by this very call: its gradient reads what was there before
        saved[k] = saved[k].copied()
    outputs, kept = session.run_forward(forward, inputs, monitor)
    results = wrapped(outputs[: forward.count - len(targets)])
    if modes.anomalies:
        given = [*(value.array for value in saved)]
        anomalies.check_block(name, user_loc(), session.graph_of(inputs), given, [x._array for x in results])
    made = [*results, *targets]
    note_block(BlockCall(name, computation, forward, wrt, heads, inputs.arrays, saved, made, outputs, kept))
    # Not the targets: a state that no gradient flows to stays an array that programs may write to.
    note_others(name, computation, inputs.arrays, wrt, results)
    program.note(results)
    return results
