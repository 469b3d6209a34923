"""The body of a convolution with open sizes: what becomes of the shapes of its operands and of its epilogue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.epilogue import feeding
from gluonjit.ir.dims import Dim, Extent, Shape
from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.types import IRError


class Opening(NamedTuple):
    """What becomes of known shapes."""

    result: Shape
    input: Shape
    lead: Shape
    """The open shape of the result but for its channels."""
    depth: Extent
    filters: Extent

    def of_input(self) -> Shape:
        more = (n - known for n, known in zip(self.input[1:-1], self.result[1:-1], strict=True))
        return (self.lead[0], *(n + k for n, k in zip(self.lead[1:], more, strict=True)), self.depth)

    def of_result(self, shape: Shape) -> Shape | None:
        """The open shape of a value of the epilogue, whose channels are its last axis."""
        if shape[-1:] != self.result[-1:]:
            return shape if math.prod(shape) == 1 else None
        if shape == self.result:
            return (*self.lead, self.filters)
        if len(shape) > 2 and self.lead[1:] != self.result[1:-1]:
            return None
        # With as many axes as this it has images, too, and if it has two, these may be images and channels.
        lead: list[Extent] = [*shape[:-1]]
        if len(shape) in (2, len(self.result)) and shape[0] == self.result[0]:
            lead[0] = self.lead[0]
        return (*lead, self.filters)

    def spreads_alike(self, op: Op) -> bool:
        """Whether what the op broadcasts is the same for all pixels, or their number is known."""
        ndim, shape = op.operands[0].ndim, op.result.shape
        dims = broadcast_dims(ndim, shape, op.attrs["dims"])
        return self.lead[1:] == self.result[1:-1] or all(d in (0, len(shape) - 1) for d in dims)

    @property
    def has_channels(self) -> bool:
        """Whether channels are open."""
        return isinstance(self.depth, Dim) or isinstance(self.filters, Dim)

    def of_packed(self, shape: Shape) -> Shape:
        """That of weights [.., P, I, nr], P panels of nr output channels, if channels are open."""
        *positions, panels, _, columns = shape
        return (*positions, self.filters // columns if isinstance(self.filters, Dim) else panels, self.depth, columns)

    def of_weights(self, shape: Shape) -> Shape:
        """That of weights [.., I, O] as they are restored, if channels are open."""
        filters = self.filters if isinstance(self.filters, Dim) else shape[-1]
        return (*shape[:-2], self.depth, filters)


def with_sizes(body: Graph, anchor: Op, opening: Opening) -> Graph | None:
    """The body of a convolution with open sizes; None if that is not the same for all sizes."""
    x, w = anchor.operands[0], body.inputs[1]
    b = Builder(body.name, body.level)
    env: dict[Value, Value] = {}
    for v in body.inputs:
        shape: Shape | None
        if v is x:
            shape = opening.of_input()
        elif v is w:
            shape = opening.of_packed(v.shape) if opening.has_channels else v.shape
        else:
            shape = opening.of_result(v.shape)
        if shape is None:
            return None
        env[v] = b.input(v.name, v.type.with_shape(shape))
    before = feeding(body, anchor)
    for op in body.ops:
        attrs = _attributes(op, op in before, opening)
        if attrs is None:
            return None
        try:
            env.update(zip(op.results, b.emit(op.name, [env[v] for v in op.operands], attrs), strict=True))
        except IRError:  # an axis that is as long as there are images, and is another one
            return None
    return b.build([env[v] for v in body.outputs])


def _attributes(op: Op, is_before: bool, opening: Opening) -> Mapping[str, Any] | None:
    """The op's attributes with open sizes. `is_before`: it restores weights."""
    attrs = dict(op.attrs)
    if is_before:
        if not opening.has_channels:
            return attrs
        if op.name == "reshape":
            attrs["shape"] = opening.of_weights(op.result.shape)
        elif op.name == "slice":
            attrs["size"] = opening.of_weights(op.result.shape)
    elif op.name == "broadcast":
        shape = opening.of_result(op.result.shape)
        if shape is None or not opening.spreads_alike(op):
            return None
        attrs["shape"] = shape
    elif not op.definition.elementwise and op.name not in ("conv", "constant"):
        return None
    return attrs
