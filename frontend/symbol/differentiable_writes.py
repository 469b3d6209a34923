"""Writes to parts of arrays, expressed in exported graphs by operators that have gradients.

A trace has `_slice_assign` for `x[1:3] = y`. MXNet has that operator, but its Gluon rejects every graph in which an
operator has no gradient, even if none is needed. So exported graphs concatenate y with the unchanged parts of x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.operators import registry
from gluonjit.symbol.compose import make_node
from gluonjit.symbol.graph import Entry, Node, post_order

Shape = tuple[int, ...]
NewConstant = Callable[[np.ndarray], Entry]
"""Makes a variable with this value."""

WRITES = ("_slice_assign", "_slice_assign_scalar", "_scatter_set_nd")


def rewritten(heads: Sequence[Entry], shapes: Mapping[Entry, Shape], constant: NewConstant) -> Sequence[Entry]:
    """`heads` over a graph without `WRITES`, except for arrays that are not in `shapes`."""
    order = post_order(heads)
    if not any(node.op is not None and node.op.name in WRITES for node in order):
        return heads
    renewed: dict[Entry, Entry] = {}
    for node in order:
        inputs = [renewed[e] for e in node.inputs]
        if node.op is not None and node.op.name in WRITES:
            shape = node.parsed.get("shape") or shapes.get(node.inputs[0])
            if shape is not None:
                renewed[node, 0] = _Write(node, constant).joined(inputs, shape)
                continue
        new = node
        if inputs != node.inputs:
            new = Node(node.op, node.name, node.attrs, inputs, node.parsed, node.loc, node.versions)
        renewed.update({(node, k): (new, k) for k in range(len(node.output_names))})
    return [renewed[head] for head in heads]


class _Write:
    """Creates the nodes that replace one write; the last of them gets its name."""

    def __init__(self, node: Node, constant: NewConstant) -> None:
        self.node = node
        self.constant = constant
        self.count = 0

    def emit(self, op: str, inputs: Sequence[Entry], **attrs: Any) -> Entry:
        name = f"{self.node.name}_{op.lower()}{self.count}"
        self.count += 1
        return make_node(registry.get(op), inputs, attrs, name=name, loc=self.node.loc, fill=False), 0

    def joined(self, inputs: Sequence[Entry], shape: Shape) -> Entry:
        x = inputs[0]
        if self.node.op is registry.get("_scatter_set_nd"):
            new, tuples = inputs[1:]
            written = self.emit("scatter_nd", [new, tuples], shape=shape)
            ones = self.emit("ones_like", [new])
            return self.emit("where", [self.emit("scatter_nd", [ones, tuples], shape=shape), written, x])
        attrs = self.node.parsed
        steps = [*attrs["step"], *[None] * len(shape)]
        bounds = [slice(b, e, s).indices(n) for b, e, s, n in zip(attrs["begin"], attrs["end"], steps, shape)]
        ranges = [range(*bound) for bound in bounds]
        return self.along(x, list(inputs[1:]), [*enumerate(ranges)], shape)

    def along(self, x: Entry, new: Sequence[Entry], axes: Sequence[tuple[int, range]], shape: Shape) -> Entry:
        """x with the box of `axes` replaced by `new`, an array or nothing (the scalar)."""
        if not axes:
            if new:
                return new[0]
            return self.emit("_mul_scalar", [self.emit("ones_like", [x])], scalar=self.node.parsed["scalar"])
        (axis, places), rest = axes[0], axes[1:]
        n = shape[axis]
        if places == range(n):
            return self.along(x, new, rest, shape)
        if places.step != 1:
            return self.scattered(x, new, axes, shape)
        middle = self.emit("slice_axis", [x], axis=axis, begin=places.start, end=places.stop) if rest or not new else x
        parts = [self.along(middle, new, rest, shape)]
        if places.start:
            parts.insert(0, self.emit("slice_axis", [x], axis=axis, begin=0, end=places.start))
        if places.stop < n:
            parts.append(self.emit("slice_axis", [x], axis=axis, begin=places.stop, end=n))
        return self.emit("Concat", parts, dim=axis)

    def scattered(self, x: Entry, new: Sequence[Entry], axes: Sequence[tuple[int, range]], shape: Shape) -> Entry:
        """`along` for a step other than 1: gathers each element from the concatenated old and new ones."""
        (axis, places), rest = axes[0], axes[1:]
        index = np.arange(shape[axis])
        kept = self.emit("take", [x, self.constant(np.array(places))], axis=axis) if rest or not new else x
        both = self.emit("Concat", [x, self.along(kept, new, rest, shape)], dim=axis)
        index[list(places)] = shape[axis] + np.arange(len(places))
        return self.emit("take", [both, self.constant(index)], axis=axis)
