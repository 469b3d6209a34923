"""What `HybridBlock.export` writes: the graph that a block was traced to, and every array that it reads.

MXNet's graphs have inputs and parameters. A trace may hold more: arrays captured from outside and constants that the
program makes; they are written as parameters. It may also write to arrays that outlive the call, which no exported
graph does: a warning says so.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gluonjit import ndarray, symbol
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol, differentiable_writes
from gluonjit.symbol.graph import Entry, copy_graph, post_order

if TYPE_CHECKING:
    from gluonjit.trace import Trace

STACK = 5
"""Frames from a warning here to the caller of `HybridBlock.export`."""


def write(
    path: str | os.PathLike[str], epoch: int, graph: Symbol, arrays: Mapping[str, NDArray], remove_amp_cast: bool
) -> None:
    """Writes `<path>-symbol.json` and `<path>-<epoch>.params`; `arrays` are those of the graph's variables by name."""
    prefix = os.fspath(path)
    aux = set(graph.list_auxiliary_states())
    names = [name for name in graph.list_inputs() if name in arrays]
    ndarray.save(
        f"{prefix}-{epoch:04d}.params",
        {f"{'aux' if name in aux else 'arg'}:{name}": arrays[name] for name in names},
    )
    graph.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)


def of_traces(block: str, prefix: str, traces: Sequence[Trace]) -> tuple[Symbol, dict[str, NDArray]]:
    """The graph of a block's last trace, and the values of its variables, inputs aside, by name.

    Arrays that are not parameters get names with the block's prefix.
    """
    trace = traces[-1]
    if len(traces) > 1:
        _warn(
            f"{block} has been traced {len(traces)} times, because what it does depends on the shapes, element "
            "types or mode it is called with; the graph of the last one is exported, which is right for such calls only"
        )
    if trace.writes:
        _warn(
            f"{block} writes to arrays that are there before the call (its arguments, or NDArrays that it keeps); "
            "the exported graph computes the same outputs, but leaves those arrays alone"
        )
    if trace.own_modes:
        _warn(f"{block} sets the training mode for a part of it; in the exported graph all has the caller's mode")
    arrays = {param.name: param._reduce() for param in trace.params}
    taken = {node.name for node in post_order(trace.outputs)}

    def variable(kind: str, array: NDArray) -> Entry:
        name = _free(f"{prefix}{kind}", taken)
        arrays[name] = array
        return symbol.var(name, shape=array.shape, dtype=array.dtype)._heads[0]

    def constant(value: np.ndarray) -> Entry:
        return variable("constant", NDArray._wrap(np.array(value)))

    heads = differentiable_writes.rewritten(trace.outputs, trace.pinned_shapes, constant)
    nodes = set(post_order(heads))
    replaced = {n: variable("captured", x) for n, x in trace.captured_variables.items() if n in nodes}
    replaced |= {n: constant(value) for n, value in trace.constants.items() if n in nodes}
    return Symbol(copy_graph(heads, replaced)), arrays


def _free(stem: str, taken: set[str]) -> str:
    """`stem` with the first number that makes a name not taken, which it now is."""
    name = next(name for k in range(len(taken) + 1) if (name := f"{stem}{k}") not in taken)
    taken.add(name)
    return name


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=STACK)
