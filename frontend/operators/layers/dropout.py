"""`Dropout`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I32
from gluonjit.operators.attributes import boolean, enum, number, optional, shape
from gluonjit.operators.registry import operator
from gluonjit.operators.support import axis_in, require_float


def _drops(attrs: Mapping[str, Any], training: bool) -> bool:
    return attrs["p"] > 0 and (training or attrs["mode"] == "always")


@operator(
    "Dropout",
    attrs={
        "p": number(0.5, low=0, high=1, doc="the probability of a 0"),
        "mode": enum(("always", "training"), "training", doc="when elements are dropped"),
        "axes": shape((), doc="axes along which all elements are dropped or kept together"),
        "cudnn_off": optional(boolean(doc="has no effect"), False),
    },
    outputs=lambda attrs: ("output", "mask"),
    visible=lambda attrs: 1,
    same_shape=True,
    streams=lambda attrs, training: int(_drops(attrs, training)),
)
def dropout(b: Emitter, data: Any, *, p: float, mode: str, axes: tuple[int, ...], cudnn_off: bool | None) -> Any:
    """Sets elements to 0 with probability p and divides the others by 1 - p, when training or with mode='always'

    Shapes: data (any) -> the same

    From Hinton et al., 2012. `p` is the probability of a 0. In inference, the data are returned unchanged. MXNetError
    for data that are not floats.

    >>> mx.nd.Dropout(mx.nd.ones(4), p=0.5).asnumpy()
    array([1., 1., 1., 1.], dtype=float32)
    >>> np.unique(mx.nd.Dropout(mx.nd.ones(99), p=0.5, mode="always").asnumpy())
    array([0., 2.], dtype=float32)
    """
    dtype = require_float(data)
    if not _drops({"p": p, "mode": mode}, b.training):
        return data
    rank = len(data.shape)
    shared = {axis_in(axis, rank) for axis in axes}
    bits = b.random_bits(tuple(1 if k in shared else n for k, n in enumerate(data.shape)), I32)
    # The upper 24 bits are uniform in [0, 2**24); comparing them as integers involves no rounding.
    kept = b.shift_right(bits, b.constant(8, I32)) < round((1 - p) * 2**24)
    factor = 1 / (1 - p) if p < 1 else 0.0
    return data * b.select(kept, b.constant(factor, dtype), b.constant(0, dtype))
