"""The handler behind the loops of a kernel: arithmetic, memory, reductions, and what has been computed where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gluonjit.codegen.loops.access import Buffer, Index
from gluonjit.codegen.loops.evaluate import Evaluator
from gluonjit.codegen.loops.reduce_loops import Reductions
from gluonjit.codegen.math.values import Val
from gluonjit.codegen.text.llvm import Function
from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Graph, Value
from gluonjit.ir.windows import Strides

AHEAD = 8192
"""The least bytes between what is computed and what is fetched."""


class Handler(Reductions):
    """What the element functions of a body are evaluated over, while its code is written."""

    def __init__(self, f: Function, body: Graph, width: int, strides: Sequence[Strides | None] = ()) -> None:
        super().__init__(f, width)
        self.body = body
        self.strides = {v: s for v, s in zip(body.inputs, strides) if s is not None}
        self.evaluator = _KeepingEvaluator(body, self)
        self.ahead: str | None = None
        """What to prefetch when operands are not cached: 'reads', what follows each vector that is read; 'rows', a
        later row while one is written, or while one is reduced that was read before."""
        self.inputs = {
            v: Buffer(f.table(k), v.dtype, v.shape, f.root, self.strides.get(v)) for k, v in enumerate(body.inputs)
        }

    @property
    def context(self) -> Val | None:
        return self.mask

    @context.setter
    def context(self, mask: Val | None) -> None:
        self.mask = mask

    def memo(self, index: Index) -> dict[Any, Any]:
        scope = self.scope_of([v for i in index for v in i.leaves])
        if self.mask is not None and self.mask.scope.depth > scope.depth:
            scope = self.mask.scope
        return scope.memo

    def load_input(self, v: Value, index: Index) -> Val:
        buffer = self.inputs[v]
        value = self.load(buffer, index)
        if self.ahead == "reads" and value.lanes and value.scope is self.f.scope:
            self.fetch(buffer, self.flat(buffer, index) + AHEAD // v.dtype.itemsize)
        if (row := self.row_read_again) and value.lanes and v not in self.strides and v.shape[-len(row) :] == row:
            distance = math.prod(row)
            rows = -(-AHEAD // (hint(distance) * v.dtype.itemsize))
            self.fetch(buffer, self.flat(buffer, index) + distance * rows, nearest=False)
        return value


class _KeepingEvaluator(Evaluator):
    """Takes kept values from their rows."""

    s: Handler

    def compute(self, v: Value, index: Index) -> Val:
        if v not in self.s.kept:
            return super().compute(v, index)
        value = self.s.recall(v, index)
        if value is None:
            value = super().compute(v, index)
            self.s.keep(v, index, value)
        return value
