"""Sequences in the two forms that `unroll` takes: one array with a time axis, or a list with an array per step.

`layout` names the axes of the single array ('NTC', 'TNC'); `F` is `mx.nd` or `mx.sym`, depending on the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gluonjit import ndarray, symbol
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol

if TYPE_CHECKING:
    from gluonjit.gluon.rnn.recurrent_cell import RecurrentCell

tensor_types = (Symbol, NDArray)


def split_steps(F: Any, data: Any, axis: int, count: int, squeeze_axis: int = True) -> list[Any]:
    """The `count` steps along `axis`, without that axis. Graphs record `squeeze_axis` as it was spelled (True or 1)."""
    steps = F.split(data, axis=axis, num_outputs=count, squeeze_axis=squeeze_axis)
    return list(steps) if count > 1 else [steps]


def _format_sequence(
    length: int | None, inputs: Any, layout: str, merge: bool | None, in_layout: str | None = None
) -> tuple[Any, int, Any, int]:
    """(sequence, time axis of `layout`, F, batch size); the batch size of symbols is 0, which means unknown.

    The sequence is one array (`merge` True), a list (False), or unchanged `inputs` (None). `in_layout` is the layout of
    `inputs`, if it is a different one. AssertionError if there are not `length` steps.
    """
    if inputs is None:
        raise AssertionError("unroll(inputs=None) has been deprecated. Please create input variables outside unroll.")
    axis = layout.find("T")
    in_axis = axis if in_layout is None else in_layout.find("T")
    batch_size = 0
    if isinstance(inputs, tensor_types):
        F: Any = symbol
        if isinstance(inputs, NDArray):
            F = ndarray
            batch_size = inputs.shape[layout.find("N")]
        if merge is False:
            inputs = split_steps(F, inputs, in_axis, _steps(F, inputs, in_axis, length), 1)
    else:
        if length is not None and len(inputs) != length:
            raise AssertionError(f"unroll is for {length} steps, but there are {len(inputs)} inputs")
        F = symbol if isinstance(inputs[0], Symbol) else ndarray
        if F is ndarray:
            batch_size = inputs[0].shape[0]
        if merge is True:
            inputs = F.stack(*inputs, axis=axis)
            in_axis = axis
    if isinstance(inputs, tensor_types) and axis != in_axis:
        inputs = F.swapaxes(inputs, dim1=axis, dim2=in_axis)
    return inputs, axis, F, batch_size


def _steps(F: Any, inputs: Any, axis: int, length: int | None) -> int:
    """The number of steps of `inputs` along `axis`; AssertionError if it is known and differs from `length`."""
    if F is symbol:
        if len(inputs.list_outputs()) != 1:
            raise AssertionError(
                "unroll doesn't allow grouped symbol as input. Please convert to list with list(inputs) first or let "
                "unroll handle splitting."
            )
        return length  # type: ignore[return-value]
    if length is not None and length != inputs.shape[axis]:
        raise AssertionError(f"unroll is for {length} steps, but the input has {inputs.shape[axis]}")
    return inputs.shape[axis]


def _get_begin_state(cell: RecurrentCell, F: Any, begin_state: Any, inputs: Any, batch_size: int) -> Any:
    """`begin_state`; if it is None, zeros on the context of `inputs`."""
    if begin_state is not None:
        return begin_state
    if F is not ndarray:
        return cell.begin_state(func=F.zeros, batch_size=batch_size)
    with (inputs if isinstance(inputs, NDArray) else inputs[0]).context:
        return cell.begin_state(func=F.zeros, batch_size=batch_size)


def _mask_sequence_variable_length(
    F: Any, data: Any, length: int, valid_length: Any, time_axis: int, merge: bool | None
) -> Any:
    """`data` with the steps of each sample from `valid_length` on set to zero; as a list unless `merge`."""
    if valid_length is None:
        raise AssertionError("valid_length is needed to mask a sequence")
    if not isinstance(data, tensor_types):
        data = F.stack(*data, axis=time_axis)
    outputs = F.SequenceMask(data, sequence_length=valid_length, use_sequence_length=True, axis=time_axis)
    return outputs if merge else split_steps(F, outputs, time_axis, length)


def _reverse_sequences(sequences: Any, unroll_step: int, valid_length: Any = None) -> list[Any]:
    """The steps in reverse order; with `valid_length`, only the first `valid_length` steps of each sample."""
    if valid_length is None:
        return list(reversed(sequences))
    F = symbol if isinstance(sequences[0], Symbol) else ndarray
    merged = F.stack(*sequences, axis=0)
    backward = F.SequenceReverse(merged, sequence_length=valid_length, use_sequence_length=True)
    return split_steps(F, backward, 0, unroll_step)
