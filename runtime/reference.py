"""The backend `numpy`: the graph op by op, by each primitive's definition."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from gluonjit.ir.graph import Graph, evaluate
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import REFERENCE_PIPELINE


class Reference:
    """Evaluates the expanded graph op by op."""

    def __init__(self, graph: Graph, after: Callable[..., None] | None = None) -> None:
        self.graph = run_passes(graph, REFERENCE_PIPELINE, after=after)

    def run(
        self, inputs: Sequence[np.ndarray], versions: Sequence[Hashable] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        outputs, updates = evaluate(self.graph, inputs)
        # Hybridized outputs never alias inputs, nor each other.
        return [np.array(x) for x in outputs], [np.array(x) for x in updates]
