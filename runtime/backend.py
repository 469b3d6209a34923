"""What a backend is: something that makes a traced graph callable."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from gluonjit.ir.graph import Graph


class Callee(Protocol):
    """What a backend makes of a graph."""

    def run(
        self, inputs: Sequence[np.ndarray], versions: Sequence[Hashable] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(outputs, updated states) for inputs of the graph's types; see `Executable.run`."""


Backend = Callable[[Graph, dict[str, Any]], Callee]
"""`backend(graph, options)` compiles a traced graph."""
