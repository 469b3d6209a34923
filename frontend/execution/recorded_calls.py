"""Calls of compiled graphs on the tape."""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.context import Context
from gluonjit.execution.computation import Computation
from gluonjit.execution.session import Inputs, Monitor, Session
from gluonjit.execution.tape import Saved, note_block
from gluonjit.language.kinds import as_np
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import tracked
from gluonjit.runtime.storage import Storage


def recorded_call(
    name: str,
    session: Session,
    computation: Computation,
    inputs: Inputs,
    monitor: Monitor | None,
    kinds: Sequence[bool],
    device: Context | None,
) -> list[NDArray] | None:
    """The results of the session's graph, noted on the tape; None if no gradient flows through the call.

    `kinds` says which results are arrays of `mx.np`, `device` where they are (None: cpu(0)).
    """
    wrt = tuple([k for k, x in enumerate(inputs.arrays) if x._grad_state is not None and tracked(x)])
    heads = computation.differentiable(wrt) if wrt else ()
    if not heads:
        return None
    forward = computation.forward(wrt, heads)
    # Before the call, which may write to its inputs.
    saved = [Saved.of(x) for x in (*inputs.arrays, *inputs.elements[len(inputs.arrays) :])]
    outputs, kept = session.run_forward(forward, inputs, monitor)
    results = []
    for x, kind in zip(outputs[: forward.count], kinds, strict=True):
        result = NDArray._wrap(x)
        if device is not None:
            result._storage = Storage(device)
        results.append(as_np(result) if kind else result)
    note_block(name, computation, forward, wrt, heads, inputs.arrays, saved, results, outputs, kept)
    return results
