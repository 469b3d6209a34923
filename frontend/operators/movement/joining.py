"""Operators that join tensors along an axis or split them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import dtype_of
from gluonjit.operators.attributes import boolean, counted, integer, shape
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import Shapes, axis_in, merge, require_same_dtype, shape_text, type_name

# Joining


def _with(shape: Shape, axis: int, n: int) -> Shape:
    return (*shape[:axis], n, *shape[axis + 1 :])


def _unify_except(axis: int, shapes: Shapes) -> Shapes:
    """Merges partial shapes that must agree on all axes except `axis`; unknown shapes take the merged one."""
    common: Shape | None = None
    for s in shapes:
        if s is not None:
            at = axis_in(axis, len(s))
            common = merge(common, _with(s, at, 0))
    if common is None:
        return shapes
    at = axis_in(axis, len(common))
    return [common if s is None else merge(_with(common, at, s[at]), s) for s in shapes]


def _concat_complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    return _unify_except(attrs["dim"], shapes)


def _infer_concat_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    out = outputs[0]
    if out is None:
        return inputs
    axis = axis_in(attrs["dim"], len(out))
    inputs = [merge(s, _with(out, axis, 0)) for s in inputs]
    unknown = [k for k, s in enumerate(inputs) if not s[axis]]  # type: ignore[index]
    if len(unknown) == 1 and out[axis]:
        rest = out[axis] - sum(s[axis] for s in inputs if s is not None)
        inputs[unknown[0]] = merge(inputs[unknown[0]], _with(out, axis, max(rest, 0)))
    return inputs


@operator(
    "Concat",
    aliases=("concat",),
    variadic=True,
    attrs={"num_args": counted(doc="how many inputs there are"), "dim": integer(1, doc="the axis to join along")},
    complete=_concat_complete,
    infer_inputs=_infer_concat_inputs,
)
def concat(b: Emitter, *data: Any, num_args: int, dim: int) -> Any:
    """Concatenates the inputs along the axis `dim`

    Shapes: arrays alike but along `dim` -> the same, with the sum of their extents along `dim`

    MXNetError if they differ in element type or in another axis.

    >>> mx.nd.concat(mx.nd.array([[1, 2]]), mx.nd.array([[3]]), dim=1).asnumpy()
    array([[1., 2., 3.]], dtype=float32)
    """
    first = data[0]
    rank = len(first.shape)
    axis = axis_in(dim, rank)
    rest = _with(tuple(first.shape), axis, -1)
    for k, x in enumerate(data[1:], 1):
        if len(x.shape) != rank or _with(tuple(x.shape), axis, -1) != rest:
            raise OperatorError(f"Incompatible input shape: expected {shape_text(rest)}, got {shape_text(x.shape)}")
        if x.dtype != first.dtype:
            raise OperatorError(
                f"Non-uniform data type in Concat, expected data type {type_name(dtype_of(first))}, "
                f"got data type {type_name(dtype_of(x))} for input {k}"
            )
    return b.concat(*data, axis=axis) if num_args > 1 else first


def _infer_rnn_param_concat_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    """Unknown lengths belong to the first layer's input weights, which have the same length in all directions."""
    out = outputs[0]
    unknown = [k for k, s in enumerate(inputs) if not s or not s[0]]
    if not out or not out[0] or not unknown:
        return inputs
    rest = out[0] - sum(s[0] for s in inputs if s)
    return [merge(s, (max(rest, 0) // len(unknown),)) if k in unknown else s for k, s in enumerate(inputs)]


@operator(
    "_rnn_param_concat",
    variadic=True,
    attrs={
        "num_args": counted(doc="how many inputs there are"),
        "dim": integer(1, doc="has no effect: the inputs are vectors"),
    },
    infer_inputs=_infer_rnn_param_concat_inputs,
)
def rnn_param_concat(b: Emitter, *data: Any, num_args: int, dim: int) -> Any:
    """Concatenates the parameters of a recurrent layer to one vector

    Shapes: vectors -> (the sum of their lengths,)

    >>> mx.nd._internal._rnn_param_concat(mx.nd.array([1, 2]), mx.nd.array([3]), dim=0).asnumpy()
    array([1., 2., 3.], dtype=float32)
    """
    require_same_dtype(*data)
    if any(len(x.shape) != 1 for x in data):
        raise OperatorError("_rnn_param_concat joins vectors only; reshape the parameters first")
    return b.concat(*data, axis=0)


def _alike(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    common: Shape | None = None
    for s in shapes:
        common = merge(common, s)
    return [common] * len(shapes)


def _infer_stack_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    out = outputs[0]
    if not out:
        return inputs
    axis = axis_in(attrs["axis"], len(out))
    return [merge(s, (*out[:axis], *out[axis + 1 :])) for s in inputs]


@operator(
    "stack",
    variadic=True,
    attrs={"axis": integer(0, doc="where the new axis goes"), "num_args": counted(doc="how many inputs there are")},
    complete=_alike,
    infer_inputs=_infer_stack_inputs,
)
def stack(b: Emitter, *data: Any, axis: int, num_args: int) -> Any:
    """Joins inputs of the same shape along a new axis

    Shapes: n arrays of one shape -> that shape, with n inserted at `axis`

    >>> mx.nd.stack(mx.nd.array([1, 2]), mx.nd.array([3, 4]), axis=1).asnumpy()
    array([[1., 3.],
           [2., 4.]], dtype=float32)
    """
    require_same_dtype(*data)
    old = tuple(data[0].shape)
    axis = axis_in(axis, len(old) + 1)
    for k, x in enumerate(data[1:], 1):
        if tuple(x.shape) != old:
            raise OperatorError(
                f"Incompatible attr in node at {k}-th input: expected {shape_text(old)}, got {shape_text(x.shape)}"
            )
    new = (*old[:axis], 1, *old[axis:])
    parts = [b.reshape(x, shape=new) for x in data]
    return b.concat(*parts, axis=axis) if num_args > 1 else parts[0]


# Splitting


def part(b: Emitter, x: Any, axis: int, start: int, stop: int) -> Any:
    """x[start:stop] along one axis."""
    old = tuple(x.shape)
    if (start, stop) == (0, old[axis]):
        return x
    return b.slice(x, start=_with((0,) * len(old), axis, start), size=_with(old, axis, stop - start))


def _squeezed(b: Emitter, x: Any, axis: int) -> Any:
    return b.reshape(x, shape=(*x.shape[:axis], *x.shape[axis + 1 :]))


def _require_even(x: Any, axis: int, count: int) -> None:
    n = x.shape[axis]
    if n % count:
        raise OperatorError(
            f"You are trying to split the {axis}-th axis of input tensor with shape {shape_text(x.shape)} into "
            f"num_outputs={count} evenly sized chunks, but this is not possible because {count} "
            f"does not evenly divide {n}"
        )


def _infer_split_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    count = attrs["num_outputs"]
    common = _alike(attrs, outputs[:count])[0]
    if common is None:
        return inputs
    if attrs["squeeze_axis"]:
        axis = axis_in(attrs["axis"], len(common) + 1)
        return [merge(inputs[0], (*common[:axis], count, *common[axis:]))]
    axis = axis_in(attrs["axis"], len(common))
    return [merge(inputs[0], _with(common, axis, common[axis] * count))]


@operator(
    "SliceChannel",
    aliases=("split",),
    attrs={
        "num_outputs": counted(doc="how many parts there are"),
        "axis": integer(1, doc="the axis that is split"),
        "squeeze_axis": boolean(False, doc="whether parts of length 1 lose the axis"),
    },
    outputs=lambda attrs: tuple(f"output{k}" for k in range(attrs["num_outputs"])),
    infer_inputs=_infer_split_inputs,
)
def slice_channel(b: Emitter, data: Any, *, num_outputs: int, axis: int, squeeze_axis: bool) -> Any:
    """Splits the data into `num_outputs` parts of equal length along the axis

    Shapes: data (any) -> num_outputs times the same, with 1 / num_outputs of the extent along `axis`

    `squeeze_axis` removes the axis. MXNetError if its length is not a multiple of `num_outputs`, or with `squeeze_axis`
    not equal to it.

    >>> [y.asnumpy().tolist() for y in mx.nd.split(mx.nd.array([[1, 2, 3, 4]]), num_outputs=2, axis=1)]
    [[[1.0, 2.0]], [[3.0, 4.0]]]
    """
    axis = axis_in(axis, len(data.shape))
    n = data.shape[axis]
    if squeeze_axis and n != num_outputs:
        raise OperatorError(
            "If squeeze axis is True, the size of the sliced axis must be the same as num_outputs. "
            f"Input shape={shape_text(data.shape)}, axis={axis}, num_outputs={num_outputs}."
        )
    _require_even(data, axis, num_outputs)
    size = n // num_outputs
    parts = [part(b, data, axis, k * size, (k + 1) * size) for k in range(num_outputs)]
    return tuple(_squeezed(b, x, axis) for x in parts) if squeeze_axis else tuple(parts)


def _part_count(attrs: Mapping[str, Any]) -> int:
    return attrs["sections"] or max(len(attrs["indices"]), 1)


@operator(
    "_split_v2",
    attrs={
        "indices": shape(doc="where each part starts; the first entry must be 0"),
        "axis": integer(1, doc="the axis that is split"),
        "squeeze_axis": boolean(False, doc="whether parts of length 1 lose the axis"),
        "sections": counted(0, low=0, doc="number of equal parts, instead of indices"),
    },
    outputs=lambda attrs: (
        ("output",) if _part_count(attrs) == 1 else tuple(f"output{k}" for k in range(_part_count(attrs)))
    ),
)
def split_v2(b: Emitter, data: Any, *, indices: Shape, axis: int, squeeze_axis: bool, sections: int) -> Any:
    """Splits the data along the axis before each of `indices`, or into `sections` equal parts

    Shapes: data (any) -> parts that differ along `axis`

    MXNetError if `sections` does not divide the length, or an index exceeds it.

    >>> [y.asnumpy().tolist() for y in mx.nd.split_v2(mx.nd.array([1, 2, 3, 4]), (1,))]
    [[1.0], [2.0, 3.0, 4.0]]
    """
    axis = axis_in(axis, len(data.shape))
    n = data.shape[axis]
    if sections:
        _require_even(data, axis, sections)
        starts = [k * (n // sections) for k in range(sections)]
    else:
        starts = list(indices) or [0]
        if starts[0] != 0:
            raise OperatorError(f"Shape inconsistent: the first of indices={tuple(indices)} must be 0")
    parts = []
    for k, (start, stop) in enumerate(zip(starts, [*starts[1:], n])):
        if start > stop or start < 0:
            raise OperatorError(f"start {start} is not less than end {stop} for subarray {k}")
        if stop > n:
            raise OperatorError(f"end {stop} is not less than the size of the axis {n}")
        if squeeze_axis and stop - start != 1:
            raise OperatorError(f"expected axis size of 1 but got {stop - start}")
        x = part(b, data, axis, start, stop)
        parts.append(_squeezed(b, x, axis) if squeeze_axis else x)
    return tuple(parts)
