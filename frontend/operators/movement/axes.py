"""Operators that permute axes: transposition, and moving blocks of pixels to channels and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.operators.attributes import integer, shape
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import Shapes, merge, shape_text


def _permuted(x: Shape | None, perm: Sequence[int]) -> Shape | None:
    return None if x is None or len(x) != len(perm) else tuple(x[p] for p in perm)


def _infer_transpose_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    out = outputs[0]
    if out is None:
        return inputs
    rank = len(out)
    perm = [a % rank for a in attrs["axes"]] if attrs["axes"] else range(rank)[::-1]
    inverse = sorted(range(rank), key=list(perm).__getitem__)
    return [merge(inputs[0], _permuted(out, inverse))]


@operator(
    "transpose",
    attrs={"axes": shape((), doc="result axis k is data axis axes[k]; () reverses all")},
    infer_inputs=_infer_transpose_inputs,
)
def transpose(b: Emitter, data: Any, *, axes: Shape) -> Any:
    """The data with its axes permuted

    Shapes: data (any) -> its extents in the order `axes`

    MXNetError unless `axes` is a permutation of the data's axes.

    >>> mx.nd.transpose(mx.nd.array([[1, 2, 3], [4, 5, 6]])).asnumpy()
    array([[1., 4.],
           [2., 5.],
           [3., 6.]], dtype=float32)
    >>> mx.nd.transpose(mx.nd.zeros((2, 3, 4)), axes=(0, 2, 1)).shape
    (2, 4, 3)
    """
    rank = len(data.shape)
    if not axes:
        return b.transpose(data, perm=tuple(range(rank))[::-1])
    if len(axes) != rank:
        raise OperatorError(
            f"Check failed: std::max(shp.ndim(), out_shp.ndim()) == param.axes.ndim() ({rank} vs. {len(axes)}) : "
            f"transpose of {shape_text(data.shape)} needs {rank} axes"
        )
    perm = tuple(a + rank if a < 0 else a for a in axes)
    if sorted(perm) != list(range(rank)):
        raise OperatorError(f"axes {tuple(axes)} are not a permutation of those of {shape_text(data.shape)}")
    return b.transpose(data, perm=perm)


def _swap(rank: int, dim1: int, dim2: int) -> tuple[int, ...]:
    perm = list(range(rank))
    for name, axis in (("axis1", dim1), ("axis2", dim2)):
        if not -rank <= axis < rank:
            raise OperatorError(f"{name}: axis {axis} is out of bounds for array of ndim {rank}")
    perm[dim1], perm[dim2] = perm[dim2], perm[dim1]
    return tuple(perm)


def _infer_swap_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    out = outputs[0]
    return inputs if out is None else [merge(inputs[0], _permuted(out, _swap(len(out), attrs["dim1"], attrs["dim2"])))]


@operator(
    "SwapAxis",
    aliases=("swapaxes",),
    attrs={"dim1": integer(0, doc="an axis"), "dim2": integer(0, doc="another axis")},
    infer_inputs=_infer_swap_inputs,
)
def swap_axis(b: Emitter, data: Any, *, dim1: int, dim2: int) -> Any:
    """The data with two axes exchanged

    Shapes: data (any) -> the same with extents `dim1` and `dim2` exchanged

    >>> mx.nd.swapaxes(mx.nd.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    return b.transpose(data, perm=_swap(len(data.shape), dim1, dim2))


# Blocks of pixels


def _block_axes(data: Any, block: int, what: str) -> tuple[int, int, int, int]:
    if len(data.shape) != 4:
        raise OperatorError(f"Operation {what} requires exactly 4D tensor")
    if block <= 0:
        raise OperatorError("block_size must be a positive integer value")
    return tuple(data.shape)  # type: ignore[return-value]


@operator("depth_to_space", attrs={"block_size": integer(doc="height and width of a block")})
def depth_to_space(b: Emitter, data: Any, *, block_size: int) -> Any:
    """Moves channels into blocks of pixels, `block_size` high and wide

    Shapes: data (n, s * s * c, h, w) -> (n, c, s * h, s * w), where s is `block_size`

    MXNetError if s² does not divide the number of channels.

    >>> mx.nd.depth_to_space(mx.nd.array([1, 2, 3, 4]).reshape((1, 4, 1, 1)), block_size=2).asnumpy()
    array([[[[1., 2.],
             [3., 4.]]]], dtype=float32)
    """
    n, c, h, w = _block_axes(data, block_size, "Depth To Space")
    s = block_size
    if c % (s * s):
        raise OperatorError(
            "Cannot perform Depth To Space operation on the specified tensor. "
            "Dimension:1(depth dimension) should be a multiple of 'block^2'"
        )
    c //= s * s
    blocks = b.transpose(b.reshape(data, shape=(n, s, s, c, h, w)), perm=(0, 3, 4, 1, 5, 2))
    return b.reshape(blocks, shape=(n, c, h * s, w * s))


@operator("space_to_depth", attrs={"block_size": integer(doc="height and width of a block")})
def space_to_depth(b: Emitter, data: Any, *, block_size: int) -> Any:
    """Moves blocks of pixels, `block_size` high and wide, into channels

    Shapes: data (n, c, s * h, s * w) -> (n, s * s * c, h, w), where s is `block_size`

    MXNetError if s does not divide the height and the width.

    >>> mx.nd.space_to_depth(mx.nd.array([[[[1, 2], [3, 4]]]]), block_size=2).asnumpy().ravel()
    array([1., 2., 3., 4.], dtype=float32)
    """
    n, c, h, w = _block_axes(data, block_size, "Space To Depth")
    s = block_size
    for axis, (size, name) in enumerate(((h, "1st"), (w, "2nd")), 2):
        if size % s:
            raise OperatorError(
                "Cannot perform Space To Depth operation on the specified tensor. "
                f"Dimension:{axis}({name} space dimension) should be a multiple of 'block'"
            )
    blocks = b.transpose(b.reshape(data, shape=(n, c, h // s, s, w // s, s)), perm=(0, 3, 5, 1, 2, 4))
    return b.reshape(blocks, shape=(n, c * s * s, h // s, w // s))
