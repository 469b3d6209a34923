"""The types of a graph that grows node by node, some of which depend on shapes that are not known yet.

Shapes are unknown for parameters with deferred initialization, and for `zeros((0, 4))`, where 0 is any number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gluonjit.ir.types import IRError, TensorType
from gluonjit.operators.registry import Shape
from gluonjit.operators.support import merge
from gluonjit.symbol.graph import Entry, Node
from gluonjit.symbol.lower import operator_error
from gluonjit.symbol.shapes import closed, is_complete, is_open, open_shape, refine


class TypeTable:
    """`types` has the entries whose type is known; the others are in `partial`, with what is known of their shapes.

    An operator on a partial entry refines its shape: `FullyConnected` determines the shape of its weight, which is
    propagated back through the operators that produced it. `found(entry, shape)` returns the type of a variable whose
    shape has been completed.
    """

    def __init__(self, found: Callable[[Entry, Shape], TensorType]) -> None:
        self.types: dict[Entry, TensorType] = {}
        self.partial: dict[Entry, Shape | None] = {}
        self._unsettled: list[Node] = []
        self._found = found

    def add(self, node: Node) -> None:
        """Types the outputs of a node, as far as they are known. MXNetError if it does not accept its operands."""
        if is_open(node):
            self.partial[node, 0] = open_shape(node)
            return
        if all(e in self.types for e in node.inputs):
            self._infer(node)
            return
        self._unsettled.append(node)
        self.partial.update({(node, k): None for k in range(len(node.output_names))})
        self._settle()

    def _infer(self, node: Node, **attrs: Any) -> None:
        assert node.op is not None
        types = [self.types[e] for e in node.inputs]
        try:
            results = node.op.infer(types, {**node.parsed, **attrs})
        except IRError as e:
            raise operator_error(node, types, e) from None
        for k, type in enumerate(results):
            self.types[node, k] = type
            self.partial.pop((node, k), None)

    def _settle(self) -> None:
        """Applies the shape rules of operators on partial entries until nothing changes."""
        changed = True
        while changed:
            changed = False
            for node in list(self._unsettled):
                outs = [(node, k) for k in range(len(node.output_names))]
                shapes = refine(node, [self._shape(e) for e in node.inputs], [self._shape(e) for e in outs])
                for entry, shape in zip([*node.inputs, *outs], [*shapes[0], *shapes[1]]):
                    if entry in self.partial and shape != self.partial[entry]:
                        changed = True
                        self.partial[entry] = shape = merge(self.partial[entry], shape)
                        if shape is not None and is_complete(shape):
                            self._complete(entry, shape)
                if all(e in self.types for e in node.inputs):
                    changed = True
                    self._unsettled.remove(node)
                    self._infer(node)

    def _complete(self, entry: Entry, shape: Shape) -> None:
        """Types an entry whose shape is now complete, if it is a variable or an operator with an open dimension."""
        if entry[0].op is None:
            del self.partial[entry]
            self.types[entry] = self._found(entry, shape)
        elif is_open(entry[0]):
            self._infer(entry[0], **closed(entry[0], shape))

    def _shape(self, entry: Entry) -> Shape | None:
        return self.types[entry].shape if entry in self.types else self.partial[entry]
