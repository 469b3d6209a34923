"""`Evaluator`: runs a graph op by op through each primitive's NumPy `eval`."""

from __future__ import annotations

from gluonjit.ir.evaluation import Evaluation
from gluonjit.ir.graph import Graph
from gluonjit.passes import run_passes


class Evaluator(Evaluation):
    """The `Evaluation` of a graph of any level up to `legal`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(run_passes(graph, "expand"))
