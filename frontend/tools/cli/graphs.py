"""Graphs of the compiler in text files, as models: what their inputs are, and their compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.dims import hinted
from gluonjit.ir.graph import Graph
from gluonjit.ir.types import IRError, dtype_of, type_of
from gluonjit.tools.cli import inputs as cli_inputs
from gluonjit.tools.cli.inputs import Input, random_input
from gluonjit.tools.cli.loading import load_graph


def is_graph(path: str) -> bool:
    """Whether a command's argument is a file with a graph's text; `-` is standard input."""
    return path.endswith(".ir") or path == "-"


def runnable(path: str) -> Graph:
    """The graph in a file, expanded. IRError for one of a level that is no longer compiled by itself."""
    from gluonjit.passes import run_passes

    graph = load_graph(path, places=True)
    if graph.level not in ("traced", "expanded", "legal"):
        raise IRError(f"a graph that runs is of level traced, expanded or legal; {path} is {graph.level!r}")
    return run_passes(graph, "expand") if graph.level == "traced" else graph


def inputs_of(graph: Graph, given: Sequence[Input], seed: int) -> list[np.ndarray]:
    """An array for each of the graph's inputs: the given ones, by name or in order, or random ones if none are given.

    MXNetError for names that are not the graph's, IRError for other types, or if only some inputs are given.
    """
    if not given:
        rng = np.random.default_rng(seed)
        return [random_input(v.type.with_shape(hinted(v.shape)), rng) for v in graph.inputs]
    types = {v.name: v.type for v in graph.inputs}
    listed = ", ".join(f"{name}: {type}" for name, type in types.items()) or "none"
    found = cli_inputs.arrays(given, seed)
    values = cli_inputs.by_name(found, list(types), listed)
    for name, x in values.items():
        if type_of(x) != types[name] and (types[name].is_static or dtype_of(x) is not types[name].dtype):
            raise IRError(f"--input {name} is {type_of(x)}; the graph takes {types[name]}")
    missing = [name for name in types if name not in values]
    if missing:
        raise IRError(f"no --input for {', '.join(missing)}; the graph has {listed}")
    return [values[v.name] for v in graph.inputs]


class GraphModel:
    """A graph's compiled code, to be called and measured as a hybridized block is."""

    _active = True

    def __init__(self, path: str) -> None:
        from gluonjit.runtime.compiler import compile_graph

        self.graph = runnable(path)
        self._code = compile_graph(self.graph)

    def __call__(self, *inputs: Any) -> None:
        versions = [0] * len(inputs)  # nothing changes the arrays, so that parameters are packed once
        self._code.run([x._array for x in inputs], versions)
