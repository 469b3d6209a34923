"""Kernels with open dimensions: written once, run with many sizes, compared with what they mean for these."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.codegen.program import lower_kernel
from gluonjit.codegen.text import llvm
from gluonjit.ir.annotations import KERNEL, SCRATCH, WORKSPACE
from gluonjit.ir.dims import at
from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.interpreter import evaluate, evaluate_op
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import dimensions, with_sizes
from gluonjit.passes import run_passes
from support.compare import difference
from support.kernels import compiled
from support.selected import Guarded, kernel_name


class OpenKernel:
    """The kernel of a group with this body and these annotations."""

    within = 1e-5

    def __init__(
        self,
        body: Graph,
        attrs: Mapping[str, Any],
        dims: Sequence[str],
        target: Machine,
    ) -> None:
        self.body, self.attrs, self.dims = body, dict(attrs), tuple(dims)
        b = Builder("g", "fused")
        inputs = [b.input(v.name, v.type) for v in body.inputs]
        graph = b.build(b.emit("fused", inputs, self.attrs, [body]))
        (self.op,) = graph.ops
        self.module = llvm.Module(target, self.dims)
        lower_kernel("k", self.op, self.module)
        self.loaded = compiled(self.module.text(), target)
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.entry = kernel(self.loaded.address("k"))

    def table(self, buffers: Sequence[np.ndarray], sizes: Mapping[str, int]) -> Any:
        """(what must be kept, the address to call with)."""
        words = [*(sizes[name] for name in reversed(self.dims)), *(b.ctypes.data for b in buffers)]
        table = (ctypes.c_int64 * len(words))(*words)
        return table, ctypes.addressof(table) + 8 * len(self.dims)

    def run(self, inputs: Sequence[np.ndarray], sizes: Mapping[str, int], nthreads: int = 1) -> np.ndarray:
        """The result. Nothing but the result may be written, and all of it must be."""
        result = with_sizes(self.body, sizes).outputs[0].type
        blank = np.full((*result.shape, result.dtype.itemsize), 0xFF, np.uint8).view(result.dtype.numpy)[..., 0]
        arrays = [Guarded(x, k == KERNEL.of(self.op).packed_operand()) for k, x in enumerate(inputs)]
        outputs = [Guarded(blank, False)]
        memory = [
            Guarded(np.full(at(n, sizes), 0xFF, np.uint8), True)
            for n in (SCRATCH.of(self.op), WORKSPACE.of(self.op))
            if n
        ]
        if WORKSPACE.of(self.op):
            assert nthreads == 1, "threads that meet have to run at the same time"
            memory.append(Guarded(np.zeros(8, np.uint8), True))  # the team, which is not used with one thread
        buffers = (*arrays, *outputs, *memory)
        _kept, address = self.table([b.view for b in buffers], sizes)
        for thread in range(nthreads):
            self.entry(address, thread, nthreads)
        for b in buffers:
            b.check()
        for b in arrays:
            assert b.view.tobytes() == b.array.tobytes(), "an operand was written"
        return np.array(outputs[0].view)

    def inputs(self, sizes: Mapping[str, int]) -> list[np.ndarray]:
        rng = np.random.default_rng(sum(sizes.values()))
        return [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in with_sizes(self.body, sizes).inputs]

    def check(self, sizes: Mapping[str, int], nthreads: int = 1, inputs: Sequence[np.ndarray] | None = None) -> None:
        """The results are what the body means for these sizes, to the same bits on several threads."""
        inputs = self.inputs(sizes) if inputs is None else inputs
        expected = evaluate(with_sizes(self.body, sizes), inputs)[0][0]
        native = self.run(inputs, sizes)
        assert difference(native, expected) < self.within, sizes
        for count in range(2, nthreads + 1):
            np.testing.assert_array_equal(self.run(inputs, sizes, count), native)


class Selected:
    """The one op of an open graph that `select` chooses this kernel for; `within` as for `OpenKernel`."""

    def __init__(self, graph: Graph, kernel: str, target: Machine, after: Sequence[str] = (), **options: Any) -> None:
        self.graph = run_passes(graph, ["fuse", ("select", options), *after], target=target)
        (self.op,) = (op for op in self.graph.ops if kernel_name(op) == kernel)
        self.kernel = OpenKernel(self.op.regions[0], self.op.attrs, dimensions(graph), target)

    def check(self, sizes: Mapping[str, int], nthreads: int = 1) -> None:
        """`OpenKernel.check` with the operands that the ops before it make of random inputs."""
        static = with_sizes(self.graph, sizes)
        rng = np.random.default_rng(sum(sizes.values()))
        known = {v: rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in static.inputs}
        for op in static.ops[: self.graph.ops.index(self.op)]:
            known.update(zip(op.results, evaluate_op(op, [known[v] for v in op.operands])))
        operands = static.ops[self.graph.ops.index(self.op)].operands
        self.kernel.check(sizes, nthreads, [known[v] for v in operands])
