"""What `HybridBlock.export` writes: the graph that a block was traced to, and every array that it reads.

MXNet's graphs have inputs and parameters. A trace may also hold captured arrays and constants that the program creates;
these are exported as parameters. A trace may write to arrays that outlive the call, which an exported graph cannot; a
warning says so.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gluonjit import ndarray, symbol
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol
from gluonjit.symbol.differentiable_writes import rewritten as with_differentiable_writes
from gluonjit.symbol.graph import Entry, copy_graph, post_order
from gluonjit.symbol.traced_gradients import without_own_gradients

if TYPE_CHECKING:
    from gluonjit.trace import Trace

STACK = 5
"""Stack frames between a warning here and the caller of `HybridBlock.export`."""


def write(
    path: str | os.PathLike[str], epoch: int, graph: Symbol, arrays: Mapping[str, NDArray], remove_amp_cast: bool
) -> None:
    """Writes `<path>-symbol.json` and `<path>-<epoch>.params`; `arrays` holds the graph's variables by name."""
    prefix = os.fspath(path)
    aux = set(graph.list_auxiliary_states())
    names = [name for name in graph.list_inputs() if name in arrays]
    ndarray.save(
        f"{prefix}-{epoch:04d}.params",
        {f"{'aux' if name in aux else 'arg'}:{name}": arrays[name] for name in names},
    )
    graph.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)


def of_traces(block: str, prefix: str, traces: Sequence[Trace]) -> tuple[Symbol, dict[str, NDArray]]:
    """(graph of a block's last trace, values of its variables, except inputs, by name).

    Arrays that are not parameters get names with the block's prefix.
    """
    trace = traces[-1]
    if len(traces) > 1:
        _warn(
            f"{block} has been traced {len(traces)} times, because what it does depends on the shapes, element "
            "types or mode it is called with; the last graph is exported, which is right only for calls like the last"
        )
    if trace.writes:
        _warn(
            f"{block} writes to arrays that exist before the call (its arguments, or NDArrays that it keeps); "
            "the exported graph computes the same outputs, but does not change those arrays"
        )
    if trace.own_modes:
        _warn(f"{block} sets the training mode for a part of it; the exported graph runs in the caller's mode")
    arrays = {param.name: param._reduce() for param in trace.params}
    taken = {node.name for node in post_order(trace.outputs)}

    def variable(kind: str, array: NDArray) -> Entry:
        name = _free(f"{prefix}{kind}", taken)
        arrays[name] = array
        return symbol.var(name, shape=array.shape, dtype=array.dtype)._heads[0]

    def constant(value: np.ndarray) -> Entry:
        return variable("constant", NDArray._wrap(np.array(value)))

    outputs, own = without_own_gradients(trace.outputs)
    if own:
        _warn(
            f"{block} defines a gradient (autograd.Function), which the exported graph does not have, nor "
            "that of arrays written to in autograd.pause()"
        )
    heads = with_differentiable_writes(outputs, trace.pinned_shapes, constant)
    nodes = set(post_order(heads))
    replaced = {n: variable("captured", x) for n, x in trace.captured_variables.items() if n in nodes}
    replaced |= {n: constant(value) for n, value in trace.constants.items() if n in nodes}
    return Symbol(copy_graph(heads, replaced)), arrays


def _free(stem: str, taken: set[str]) -> str:
    """`stem` with the first number that gives an unused name, which is added to `taken`."""
    name = next(name for k in range(len(taken) + 1) if (name := f"{stem}{k}") not in taken)
    taken.add(name)
    return name


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=STACK)
