"""`dynamic_unroll`: runs a cell over a sequence of any length, as a loop instead of one copy per step."""

from __future__ import annotations

from typing import Any

from gluonjit.base import _as_list
from gluonjit.gluon.rnn.recurrent_cell import States
from gluonjit.gluon.rnn.sequences import _format_sequence

__all__ = ["dynamic_unroll"]


def dynamic_unroll(
    cell: Any,
    inputs: Any,
    begin_state: Any,
    drop_inputs: float = 0,
    drop_outputs: float = 0,
    layout: str = "TNC",
    valid_length: Any = None,
) -> tuple[Any, States]:
    """`cell.unroll` by `F.contrib.foreach`: (outputs as one array in `layout`, states after the last valid step).

    `drop_inputs` and `drop_outputs` are rates of dropout with one mask for all steps.
    """
    inputs, axis, F, _ = _format_sequence(None, inputs, layout, True)
    swapped = list(range(len(layout)))
    swapped[0], swapped[axis] = swapped[axis], swapped[0]
    if axis != 0:
        inputs = F.transpose(inputs, axes=swapped)
    if drop_inputs:
        inputs = F.Dropout(inputs, p=drop_inputs, axes=(0,))

    def step(x: Any, states: Any) -> Any:
        if valid_length is None:
            return cell(x, states)
        # The last state counts the steps; from step valid_length on, the other states of a sample do not change.
        *old, count = states
        output, new = cell(x, old)
        goes_on = F.broadcast_greater(valid_length, count)
        return output, [*(F.where(goes_on, a, b) for a, b in zip(new, old)), count + 1]

    states = begin_state if valid_length is None else [*_as_list(begin_state), F.zeros((1,))]
    outputs, states = F.contrib.foreach(step, inputs, states)
    if drop_outputs:
        outputs = F.Dropout(outputs, p=drop_outputs, axes=(0,))
    if axis != 0:
        outputs = F.transpose(outputs, axes=swapped)
    if valid_length is None:
        return outputs, states
    outputs = F.SequenceMask(outputs, sequence_length=valid_length, use_sequence_length=True, axis=axis)
    return outputs, states[:-1]
