"""Operators on padded batches of sequences: time along one axis, the batch along another.

`sequence_length` holds the length of each batch entry; it is an input only with `use_sequence_length`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I32, dtype_of
from gluonjit.operators.attributes import boolean, integer, number
from gluonjit.operators.movement.indexing import as_index
from gluonjit.operators.movement.joining import part
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import Shapes, along, first_from_output, merge, require_shape, scalar

_value = scalar


def _inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    return ("data", "sequence_length") if attrs["use_sequence_length"] else ("data",)


def _complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    data = shapes[0]
    if data is None or len(data) < 2 or len(shapes) < 2 or attrs["axis"] not in (0, 1):
        return shapes
    return [data, merge(shapes[1], (data[1 - attrs["axis"]],))]


def _attrs(**more: Any) -> dict[str, Any]:
    return {
        "use_sequence_length": boolean(False, doc="whether there is an input `sequence_length`"),
        **more,
        "axis": integer(0, doc="the axis of time: 0 or 1"),
    }


def _checked(data: Any, axis: int) -> None:
    if axis not in (0, 1):
        raise OperatorError("Current implementation expects axis to be 0 or 1.")
    if len(data.shape) < 2:
        raise OperatorError("The data array must be of rank 2 or greater.")


def _lengths(b: Emitter, data: Any, sequence_length: Any, axis: int) -> Any:
    """The lengths as a vector of i32, at most the length of the data."""
    require_shape(sequence_length, (data.shape[1 - axis],), "sequence_length")
    return b.minimum(b.cast(as_index(b, sequence_length), dtype=I32), b.constant(data.shape[axis], I32))


@operator(
    "SequenceMask",
    inputs=_inputs,
    attrs=_attrs(value=number(0.0, doc="replaces the steps past the end")),
    complete=_complete,
    infer_inputs=first_from_output,
)
def sequence_mask(
    b: Emitter, data: Any, sequence_length: Any = None, *, use_sequence_length: bool, value: float, axis: int
) -> Any:
    """Replaces the steps past the end of each sequence by `value`

    Shapes: data (time, batch, …), or (batch, time, …) with axis=1, sequence_length (batch,) -> data's shape

    Without `use_sequence_length`, nothing is replaced.

    >>> steps = mx.nd.array([[1, 10], [2, 20], [3, 30]])
    >>> mx.nd.SequenceMask(steps, mx.nd.array([1, 2]), use_sequence_length=True).asnumpy()
    array([[ 1., 10.],
           [ 0., 20.],
           [ 0.,  0.]], dtype=float32)
    """
    _checked(data, axis)
    if sequence_length is None:
        return data
    shape = tuple(data.shape)
    rank = len(shape)
    length = b.reshape(_lengths(b, data, sequence_length, axis), shape=along(1 - axis, rank, shape[1 - axis]))
    time = b.iota(shape=along(axis, rank, shape[axis]), axis=axis, dtype=I32)
    return b.select(time < length, data, _value(b, value, dtype_of(data)))


@operator("SequenceLast", inputs=_inputs, attrs=_attrs(), complete=_complete)
def sequence_last(b: Emitter, data: Any, sequence_length: Any = None, *, use_sequence_length: bool, axis: int) -> Any:
    """The last step of each sequence

    Shapes: data (time, batch, …), or (batch, time, …) with axis=1, sequence_length (batch,) -> (batch, …)

    Without `use_sequence_length`, it is the last of all steps.

    >>> steps = mx.nd.array([[1, 10], [2, 20], [3, 30]])
    >>> mx.nd.SequenceLast(steps, mx.nd.array([1, 2]), use_sequence_length=True).asnumpy()
    array([ 1., 20.], dtype=float32)
    """
    _checked(data, axis)
    shape = tuple(data.shape)
    n, batch = shape[axis], shape[1 - axis]
    if n == 0:
        raise OperatorError(f"sequences of length 0 have no last step: {shape}")
    if sequence_length is None:
        return b.reshape(part(b, data, axis, n - 1, n), shape=shape[:axis] + shape[axis + 1 :])
    last = _lengths(b, data, sequence_length, axis) - 1
    where = [b.reshape(last, shape=(1, batch)), b.iota(shape=(1, batch), axis=1, dtype=I32)]
    return b.gather_nd(data, b.concat(*(where if axis == 0 else where[::-1]), axis=0))


@operator(
    "SequenceReverse",
    inputs=_inputs,
    attrs=_attrs(),
    complete=_complete,
    infer_inputs=first_from_output,
)
def sequence_reverse(
    b: Emitter, data: Any, sequence_length: Any = None, *, use_sequence_length: bool, axis: int
) -> Any:
    """Reverses each sequence; the steps past its end stay in place

    Shapes: data (time, batch, …), sequence_length (batch,) -> data's shape

    Without `use_sequence_length`, all steps are reversed.

    >>> steps = mx.nd.array([[1, 10], [2, 20], [3, 30]])
    >>> mx.nd.SequenceReverse(steps, mx.nd.array([2, 3]), use_sequence_length=True).asnumpy()
    array([[ 2., 30.],
           [ 1., 20.],
           [ 3., 10.]], dtype=float32)
    """
    _checked(data, axis)
    if axis != 0:
        raise OperatorError("Current implementation expects axis to be 0.")
    if sequence_length is None:
        return b.reverse(data, axes=(0,))
    n, batch = data.shape[:2]
    steps = (1, n, batch)
    length = b.reshape(_lengths(b, data, sequence_length, axis), shape=(1, 1, batch))
    time = b.iota(shape=(1, n, 1), axis=1, dtype=I32)
    mirrored = length - 1 - time
    source = b.select(time < length, mirrored, b.broadcast(time, shape=steps))
    return b.gather_nd(data, b.concat(source, b.iota(shape=steps, axis=2, dtype=I32), axis=0))
