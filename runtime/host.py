"""What native code calls when it needs the host's Python: see `codegen/kernels/host.py`.

An error must not pass through native code. It is kept until the call is over, and then raised; meanwhile the code goes
on with whatever is in its buffers.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Mapping

import numpy as np

from gluonjit.codegen.interface import CALLBACK
from gluonjit.common.aside import imported
from gluonjit.ir.graph import Graph
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.quiet import quiet
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.types import TensorType


class _State(threading.local):
    error: BaseException | None = None


_state = _State()
"""The first error since the last `raise_error`, of this thread: the one that has called the code."""


@functools.cache
def functions() -> Mapping[str, int]:
    """The addresses of what native code may call, by name."""
    return {CALLBACK: ctypes.cast(_evaluate, ctypes.c_void_p).value or 0}


def raise_error() -> None:
    """Raises what has gone wrong in a callback."""
    error, _state.error = _state.error, None
    if error is not None:
        raise error


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
def _evaluate(text: int, size: int, table: int) -> None:
    """Evaluates the graph that the text is on what the table points to: its inputs, then its outputs. In front of the
    table are the sizes of open dimensions, the last one first."""
    if _state.error is not None:
        return
    try:
        graph = _parsed(ctypes.string_at(text, size))
        names = graph.attrs.get("open", ())
        if names:
            words = (ctypes.c_int64 * len(names)).from_address(table - 8 * len(names))
            graph = with_sizes(graph, dict(zip(names, reversed(words), strict=True)))
        types = [v.type for v in (*graph.inputs, *graph.outputs)]
        arrays = [_array(p, t) for p, t in zip((ctypes.c_void_p * len(types)).from_address(table), types, strict=True)]
        count = len(graph.inputs)
        # Copies, for a function may keep what it is given, and the memory is used again.
        with quiet():
            outputs, _ = evaluate(graph, [x.copy() for x in arrays[:count]])
        for target, y in zip(arrays[count:], outputs, strict=True):
            np.copyto(target, y)
    except BaseException as e:
        _state.error = e


@functools.lru_cache(maxsize=1024)
def _parsed(text: bytes) -> Graph:
    parse_graph = imported("gluonjit.ir.text").parse_graph  # few programs have such ops
    graph: Graph = parse_graph(text.decode(), source="host call")
    return graph


def _array(address: int | None, type: TensorType) -> np.ndarray:
    if not type.nbytes:
        return np.empty(type.shape, type.dtype.numpy)
    memory = (ctypes.c_char * type.nbytes).from_address(address or 0)
    return np.ndarray(type.shape, type.dtype.numpy, buffer=memoryview(memory))
