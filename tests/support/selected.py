"""Runs the kernels that `select` chose one by one, and checks what memory they write."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pytest

from gluonjit.codegen.program import lower_kernel
from gluonjit.codegen.target import host, named
from gluonjit.codegen.text import llvm
from gluonjit.ir.annotations import KERNEL, SCRATCH, WORKSPACE
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.interpreter import evaluate_op
from gluonjit.ir.machine import Machine
from gluonjit.passes import run_passes
from support.kernels import loaded, runnable_targets
from support.soak import SOAK

TARGETS = ["host", *(target.cpu for target in runnable_targets()[1:])]
T = TypeVar("T")
NATIVE = (
    "matmul",
    "conv",
    "depthwise",
    "expand_depthwise",
    "winograd",
    "planar",
    "weight_gradient",
    "winograd_gradient",
    "depthwise_gradient",
)
_GUARD = 192
"""Bytes on either side of a buffer that must stay as they are."""


def in_turn(cases: Iterable[T]) -> list[tuple[T, str]]:
    """Each case with one of `TARGETS`, in turn, and with each of them in `make soak`: where a case is another shape of
    a kernel that is judged on every target anyway."""
    if SOAK > 1:
        return list(itertools.product(cases, TARGETS))
    return list(zip(cases, itertools.cycle(TARGETS)))


def kernel_name(op: Op) -> str:
    """The name of the kernel that was chosen for the op; '' if none was."""
    plan = KERNEL.of(op)
    return plan.kernel if plan is not None else ""


def runnable(name: str) -> Machine:
    """The target of that name; skips the test when this machine cannot run its code."""
    target = named(name)
    if target.arch != host().arch or target.vector_bits > host().vector_bits or target.has_fma > host().has_fma:
        pytest.skip(f"code for {name} does not run here")
    return target


class Guarded:
    """A copy of an array between guard bytes. It begins at a multiple of 64, or one element after it."""

    def __init__(self, array: np.ndarray, aligned: bool) -> None:
        self.array = array
        n = array.nbytes
        self.raw = np.full(n + 2 * _GUARD + 128, 0xA5, np.uint8)
        self.start = _GUARD + -(self.raw.ctypes.data + _GUARD) % 64 + (0 if aligned else array.itemsize)
        self.raw[self.start : self.start + n] = np.frombuffer(array.tobytes(), np.uint8)

    @property
    def view(self) -> np.ndarray:
        return self.raw[self.start : self.start + self.array.nbytes].view(self.array.dtype).reshape(self.array.shape)

    def check(self) -> None:
        outside = np.concatenate([self.raw[: self.start], self.raw[self.start + self.array.nbytes :]])
        assert (outside == 0xA5).all(), "bytes around a buffer were written"


def run_kernel(op: Op, operands: Sequence[np.ndarray], target: Machine, nthreads: int) -> list[np.ndarray]:
    """The results of one op's kernel. Nothing but the results may be written, and all of them must be."""
    module = llvm.Module(target)
    lower_kernel("k", op, module)
    code = loaded(module.text(), target)
    # NaN in every float type: it reveals elements that are not written, and padding that is read.
    blank = [np.full(r.shape, 0xFF, np.uint8).repeat(r.dtype.itemsize, -1).view(r.dtype.numpy) for r in op.results]
    # Arrays of users are aligned to their elements; what the program packed itself is aligned as the arena is.
    inputs = [Guarded(x, k == KERNEL.of(op).packed_operand()) for k, x in enumerate(operands)]
    outputs = [Guarded(x, False) for x in blank]
    sizes = [n for n in (SCRATCH.of(op), WORKSPACE.of(op)) if n]
    memory = [Guarded(np.full(n, 0xFF, np.uint8), True) for n in sizes]
    if WORKSPACE.of(op):
        assert nthreads == 1, "threads that meet have to run at the same time"
        memory.append(Guarded(np.zeros(8, np.uint8), True))  # the team, which is not used with one thread
    code.call("k", [b.view for b in (*inputs, *outputs, *memory)], nthreads)
    for b in (*inputs, *outputs, *memory):
        b.check()
    for b in inputs:
        assert b.view.tobytes() == b.array.tobytes(), "an operand was written"
    return [np.array(b.view) for b in outputs]


@dataclass
class Run:
    """The result of running a graph: its kernels, their outputs, and the reference."""

    graph: Graph
    outputs: list[np.ndarray]
    kernels: list[str] = field(default_factory=list)


def run_selected(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    target: Machine,
    nthreads: int = 1,
    winograd: bool = True,
    after: Sequence[str] = (),
) -> Run:
    """Runs `fuse, select`, the passes `after`, and then the graph: products and convolutions natively, all else by
    `evaluate`."""
    graph = run_passes(graph, ["fuse", ("select", {"winograd": winograd}), *after], target=target)
    run = Run(graph, [])
    env = dict(zip(graph.inputs, inputs))
    for op in graph.ops:
        operands = [np.asarray(env[v], order="C") for v in op.operands]
        kernel = kernel_name(op) or op.name
        native = kernel in NATIVE
        assert KERNEL.of(op) is not None or not op.operands, f"{op.name} has no kernel"
        if kernel not in ("view", "constant"):
            run.kernels.append(kernel)
        results = run_kernel(op, operands, target, nthreads) if native else evaluate_op(op, operands)
        env.update(zip(op.results, results))
    run.outputs = [env[v] for v in graph.outputs]
    return run
