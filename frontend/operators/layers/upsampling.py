"""`UpSampling`: enlarges images by an integer factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.operators.attributes import counted, enum, integer
from gluonjit.operators.layers.convolution import deconvolution
from gluonjit.operators.movement.broadcasting import repeated
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import Shapes, merge, require_float, require_same_dtype, shape_text


def _inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    if attrs["sample_type"] == "bilinear":
        return "data", "weight"
    return tuple(f"arg{k}" for k in range(attrs["num_args"]))


def _side(scale: int) -> int:
    """The side of the window with which `bilinear` interpolates."""
    return 2 * scale - scale % 2


def _weight(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    """A `complete` rule: the weight has one window for each channel of the data."""
    if attrs["sample_type"] != "bilinear" or inputs[0] is None or len(inputs[0]) != 4:
        return inputs
    side = _side(attrs["scale"])
    return [inputs[0], merge(inputs[1], (inputs[0][1], 1, side, side))]


@operator(
    "UpSampling",
    variadic=True,
    inputs=_inputs,
    complete=_weight,
    attrs={
        "scale": integer(low=1, doc="factor for height and width"),
        "num_filter": integer(0, low=0, doc="has no effect: the number of channels is that of the data"),
        "sample_type": enum(("bilinear", "nearest"), doc="repeats pixels, or interpolates by weights"),
        "multi_input_mode": enum(("concat", "sum"), "concat", doc="how several enlarged inputs are combined"),
        "num_args": counted(doc="how many inputs there are"),
        "workspace": integer(512, low=0, doc="has no effect"),
    },
)
def upsampling(
    b: Emitter,
    *data: Any,
    scale: int,
    num_filter: int,
    sample_type: str,
    multi_input_mode: str,
    num_args: int,
    workspace: int,
) -> Any:
    """Enlarges NCHW images `scale` times by repeating pixels or, with weights as second input, by interpolation

    Shapes: data (batch, channels, h, w) -> (batch, channels, scale * h, scale * w); several inputs add up or follow
    each other along the channels

    `nearest` takes several inputs, enlarges each to the enlarged size of the first, and concatenates them along the
    channels or adds them. `bilinear` is a `Deconvolution` of each channel with the given weights.

    >>> mx.nd.UpSampling(mx.nd.array([[[[1, 2]]]]), scale=2, sample_type="nearest").asnumpy()
    array([[[[1., 1., 2., 2.],
             [1., 1., 2., 2.]]]], dtype=float32)
    """
    require_same_dtype(*data)
    for x in data[: 1 if sample_type == "bilinear" else None]:
        if len(x.shape) != 4:
            raise OperatorError(
                f"UpSamplingNearest: Input data should be 4D in (batch, channel, y, x), got {shape_text(x.shape)}"
            )
    if sample_type == "bilinear":
        return _bilinear(b, data, scale)
    size = tuple(n * scale for n in data[0].shape[2:])
    parts = []
    for x in data:
        factors = [n // m if m else 1 for n, m in zip(size, x.shape[2:])]
        if any(m * f != n for m, f, n in zip(x.shape[2:], factors, size)):
            raise OperatorError(
                f"inputs of UpSampling must divide {shape_text(size)} evenly, got {shape_text(x.shape)}"
            )
        parts.append(repeated(b, x, (1, 1, *factors)))
    if multi_input_mode == "concat":
        return b.concat(*parts, axis=1) if num_args > 1 else parts[0]
    total = parts[0]
    for x in parts[1:]:
        if x.shape != total.shape:
            raise OperatorError("Number of channels of the inputs of UpSampling must be equal to add them")
        total = total + x
    return total


def _bilinear(b: Emitter, data: tuple[Any, ...], scale: int) -> Any:
    require_float(data[0])
    channels, side = data[0].shape[1], _side(scale)
    attrs = deconvolution.parse(
        {
            "kernel": (side, side),
            "stride": (scale, scale),
            "pad": (scale // 2, scale // 2),
            "num_filter": channels,
            "num_group": channels,
        }
    )
    return deconvolution.expand_into(b, data, attrs)[0]
