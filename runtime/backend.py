"""What a backend is: something that makes a traced graph callable."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class Keeping(Protocol):
    """A backend that keeps code for later processes."""

    def gradient_key(self, graph: Graph, options: dict[str, Any]) -> str | None:
        """What stands for the graph, and everything on which its gradient, and the code of that, depend; None if these
        cannot be kept."""

    def kept(self, key: str, graph: Callable[[], Graph], options: dict[str, Any]) -> Callee | None:
        """The code under this key, which is that of `graph()`; None if it is not there any more."""
