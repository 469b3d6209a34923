"""`Evaluation`: a graph as a list of NumPy calls, for graphs that run often, such as the bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.annotations import without
from gluonjit.ir.graph import Graph, Value


class Evaluation:
    """A graph of primitives with everything looked up beforehand. It computes what `graph.evaluate` does, which checks
    its inputs. What is no longer needed is freed at once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        slots: dict[Value, int] = {v: k for k, v in enumerate(graph.inputs)}
        last: dict[Value, int] = {}
        for k, op in enumerate(graph.ops):
            slots.update([(r, len(slots) + n) for n, r in enumerate(op.results)])
            last.update((v, k) for v in (*op.operands, *op.results))
        kept = {*graph.results, *graph.inputs}
        self._size = len(slots)
        self._calls: list[tuple[Callable[..., Any], dict[str, Any], list[int], list[int], list[int]]] = []
        self._dtypes: list[list[np.dtype]] = []
        for k, op in enumerate(graph.ops):
            attrs = without(op.attrs)
            definition: Any = op.definition
            if definition.region_count:
                attrs["regions"] = op.regions
            dead = [slots[v] for v in {*op.operands, *op.results} if last[v] == k and v not in kept]
            operands, results = [slots[v] for v in op.operands], [slots[v] for v in op.results]
            self._calls.append((definition.eval, attrs, operands, results, dead))
            self._dtypes.append([r.dtype.numpy for r in op.results])
        self._outputs = [slots[v] for v in graph.outputs]
        self._updates = [slots[new] for _, new in graph.updates]

    def run(self, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(outputs, updated states); they may share memory with inputs and with each other."""
        values: list[Any] = [*inputs, *[None] * (self._size - len(inputs))]
        # NumPy warns where IEEE has an answer (1/0, log(-1)); the answer is what is wanted.
        with np.errstate(all="ignore"):
            for (evaluate, attrs, operands, results, dead), dtypes in zip(self._calls, self._dtypes):
                out = evaluate(*[values[k] for k in operands], **attrs)
                if out.__class__ is not tuple:
                    out = (out,)
                for k, x, dtype in zip(results, out, dtypes):
                    values[k] = x if x.__class__ is np.ndarray and x.dtype == dtype else np.asarray(x, dtype)
                for k in dead:
                    values[k] = None
        return [values[k] for k in self._outputs], [values[k] for k in self._updates]
