"""Measured choices: `hybridize(tune=True)` times candidates on this machine instead of relying on estimates.

For every distinct matrix product and convolution of a graph, each kernel that `select` could choose is run by itself on
random operands, the candidates taking turns. Then the whole graph is timed on one thread and on several. The candidates
are those of the passes (`passes.select.VARIANTS`), so their results differ by rounding alone. Kernels with open
dimensions are measured as if all of these were HINT.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from gluonjit.codegen.program import lower_kernel
from gluonjit.codegen.text import llvm
from gluonjit.ir.annotations import KERNEL, SCRATCH, WORKSPACE
from gluonjit.ir.graph import Graph, Op, Value, subgraph
from gluonjit.ir.interpreter import evaluate_op
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import with_hints
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.hoist import fixed_ops
from gluonjit.passes.select import VARIANTS, Variant, has_variants
from gluonjit.runtime.arenas import aligned_array
from gluonjit.runtime.executable import Executable

_SECONDS = 1e-3
"""Approximate duration of a turn."""
_TURNS = 7
_GAIN = 0.97
"""A candidate must take at most this share of the time of the estimated best; smaller gains may be noise."""

Call = Callable[[], float]
"""Runs something once or several times; seconds per run."""


def measured_variants(graph: Graph, target: Machine, winograd: bool) -> dict[Hashable, Variant]:
    """The best variant of each op of a graph of level `fused`, by its key, where that is not the estimated one."""
    hinted = with_hints(graph)
    fixed = {hinted.inputs[k] for k in graph.attrs.get("params", ())}
    early = fixed_ops(graph)
    fixed.update(r for op, twin in zip(graph.ops, hinted.ops, strict=True) if op in early for r in twin.results)
    allowed = [v for v in VARIANTS if winograd or not v.winograd]
    best: dict[Hashable, Variant] = {}
    seen = set()
    for op, twin in zip(graph.ops, hinted.ops, strict=True):
        key = op_key(op)
        if key in seen or not has_variants(op):
            continue
        seen.add(key)
        alone, measured = _alone(twin, fixed), op_key(twin)
        kernels: dict[Hashable, tuple[Variant, Op, list[np.ndarray]]] = {}
        for variant in allowed:
            found = _kernel(run_passes(alone, [("select", {"variants": {measured: variant}})], target=target))
            if found is not None:
                kernels.setdefault(op_key(found[0]), (variant, *found))
        if len(kernels) > 1:
            variants = [variant for variant, _, _ in kernels.values()]
            times = in_turns([_timed(kernel, buffers, target) for _, kernel, buffers in kernels.values()])
            k = times.index(min(times))
            if times[k] < _GAIN * times[0]:
                best[key] = variants[k]
    return best


def fastest(calls: Sequence[Call]) -> int:
    """The index of the fastest call; 0 unless another one is clearly faster."""
    times = in_turns(calls)
    k = times.index(min(times))
    return k if times[k] < _GAIN * times[0] else 0


def in_turns(calls: Sequence[Call]) -> list[float]:
    """Median seconds of each call. They take turns, so that all of them run at the same clock frequencies."""
    for call in calls:
        call()
    turns = [[call() for call in calls] for _ in range(_TURNS)]
    return [statistics.median(column) for column in zip(*turns)]


def timed_graph(executable: Executable) -> Call:
    """A call that runs a whole graph, with random numbers for float inputs and zeros for others."""
    inputs = [_arbitrary(t) for t in executable.input_types]
    versions = [0] * len(inputs)  # constant, so that prepared values are kept

    def timed() -> float:
        n, spent = 0, 0.0
        start = time.perf_counter()
        while spent < _SECONDS:
            executable.run(inputs, versions)
            n += 1
            spent = time.perf_counter() - start
        return spent / n

    return timed


def _arbitrary(t: TensorType) -> np.ndarray:
    if not t.dtype.is_float:
        return np.zeros(t.shape, t.dtype.numpy)
    return np.random.default_rng(0).standard_normal(t.shape).astype(t.dtype.numpy)


def _alone(op: Op, fixed: set[Value]) -> Graph:
    """A graph of this op alone."""
    inputs = list(dict.fromkeys(op.operands))
    graph = subgraph("alone", [op], inputs, op.results, "fused")
    return graph.with_attrs(params=tuple(k for k, v in enumerate(inputs) if v in fixed))


def _kernel(graph: Graph) -> tuple[Op, list[np.ndarray]] | None:
    """The product's kernel in a graph of one op after `select`, and its operands; None if loops compute it."""
    env = {v: _arbitrary(v.type) for v in graph.inputs}
    products = [op for op in graph.ops if (plan := KERNEL.of(op)) is not None and plan.is_product]
    for op in graph.ops:
        operands = [env[v] for v in op.operands]
        if products and op is products[-1]:
            return op, operands
        env.update(zip(op.results, evaluate_op(op, operands), strict=True))
    return None


def _timed(op: Op, operands: Sequence[np.ndarray], target: Machine) -> Call:
    """A call that runs a kernel on this thread alone."""
    module = llvm.Module(target)
    lower_kernel("k", op, module)
    f = module.function("repeated", (("ptr", "table"), ("i64", "n")))
    with f.for_(0, "%n"):
        f.call("k", "void", ("ptr", "%table"), ("i64", 0), ("i64", 1))
    loaded = llvm.load(llvm.compile_module(module.text(), target))
    buffers = []
    for x in operands:
        buffers.append(aligned_array(x.shape, x.dtype))
        buffers[-1][...] = x
    buffers += [aligned_array(r.shape, r.dtype.numpy) for r in op.results]
    memory = [n for n in (SCRATCH.of(op), WORKSPACE.of(op)) if isinstance(n, int) and n]
    buffers += [aligned_array((n,), np.dtype(np.uint8)) for n in (*memory, 8)]  # 8: a team of one, never read
    table = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
    function: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address("repeated"))

    def run(n: int) -> float:
        assert loaded and buffers  # the closure keeps them alive
        start = time.perf_counter()
        function(ctypes.addressof(table), n)
        return (time.perf_counter() - start) / n

    count = max(1, int(_SECONDS / max(run(1), 1e-7)))
    return lambda: run(count)
