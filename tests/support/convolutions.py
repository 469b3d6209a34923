"""Graphs with one convolution and an epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.types import F32, DType, TensorType

Each = int | Sequence[int]


def conv(
    size: Sequence[int],
    channels: int,
    filters: int,
    taps: Each,
    *,
    batch: int = 1,
    stride: Each = 1,
    low: Each = 0,
    high: Each = 0,
    dilation: Each = 1,
    groups: int = 1,
    dtype: DType = F32,
    epilogue: str = "bias",
    params: Sequence[int] = (1,),
    input_dilation: Each = 1,
) -> Graph:
    """A channels-last convolution over `size`; numbers stand for all spatial axes."""
    rank = len(size)

    def each(v: Each) -> tuple[int, ...]:
        return (v,) * rank if isinstance(v, int) else tuple(v)

    digits = "".join(map(str, range(rank)))
    b = Builder("conv", "legal")
    x = b.input("x", TensorType(dtype, (batch, *size, channels)))
    w = b.input("w", TensorType(dtype, (*each(taps), channels // groups, filters)))
    y = b.conv(
        x,
        w,
        stride=each(stride),
        low=each(low),
        high=each(high),
        dilation=each(dilation),
        input_dilation=each(input_dilation),
        groups=groups,
        layout=(f"N{digits}C", f"{digits}IO", f"N{digits}C"),
    )
    bias = b.input("bias", TensorType(dtype, (filters,)))
    y = b.add(y, b.broadcast(bias, shape=y.shape))
    if epilogue == "all":
        y = b.maximum(y, b.broadcast(b.constant(0, dtype), shape=y.shape))
        y = b.add(y, b.input("residual", y.type))
        gate = b.input("gate", TensorType(dtype, (batch, filters)))
        y = b.mul(y, b.broadcast(gate, shape=y.shape, dims=(0, y.ndim - 1)))
    if epilogue == "rows":  # a number for each row of pixels, whatever the image
        rows = b.input("rows", TensorType(dtype, (y.shape[1], filters)))
        y = b.mul(y, b.broadcast(rows, shape=y.shape, dims=(1, y.ndim - 1)))
    return b.build([y], {"params": params})
