"""The two parts of the body of the kernel `expand_depthwise`."""

from __future__ import annotations

from gluonjit.ir.graph import Graph, Op, Value, subgraph


def halves(body: Graph) -> tuple[Graph, Graph]:
    """The product with its epilogue, [pixels, channels], and the convolution with its own, whose first input is the
    same, [images, rows, columns, channels]."""
    convolution = next(op for op in body.ops if op.name == "conv")
    between = convolution.operands[0]
    first: list[Op] = []
    read: set[Value] = {between}
    for op in reversed(body.ops):
        if read.intersection(op.results):
            first.append(op)
            read.update(op.operands)
    reshape, *product = first
    second = [op for op in body.ops if op not in first]
    inputs = [v for v in body.inputs if v in read]
    others = [v for v in body.inputs if v not in read]
    return (
        subgraph("product", reversed(product), inputs, reshape.operands, body.level),
        subgraph("convolution", second, [between, *others], body.outputs, body.level),
    )


def rows_read(band: int, conv: Op) -> int:
    """The most rows of an image that a number of rows of the convolution's result reads."""
    stride, taps, dilation = conv.attrs["stride"][0], conv.operands[1].shape[0], conv.attrs["dilation"][0]
    return int(min(conv.operands[0].shape[1], (band - 1) * stride + (taps - 1) * dilation + 1))
