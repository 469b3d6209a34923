"""The backend `numpy`: graphs are interpreted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Graph
from gluonjit.ir.interpreter import Interpreter


class Reference:
    """A graph that is interpreted wherever code is expected (`runtime.backend.Callee`)."""

    def __init__(self, graph: Graph) -> None:
        self._interpreter = Interpreter(graph)

    def run(
        self, inputs: Sequence[np.ndarray], versions: Sequence[Hashable] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        outputs, updates = self._interpreter.run(inputs)
        # Hybridized outputs never alias inputs, nor each other.
        return [np.array(x, order="C") for x in outputs], [np.array(x, order="C") for x in updates]


def reference(graph: Graph, options: dict[str, Any]) -> Reference:
    """The backend (`runtime.backend.Backend`), which has no options."""
    return Reference(graph)
