"""Kernels compiled and run by themselves."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from gluonjit.codegen.loops.loops import keeping_rows, lower_loops, scratch
from gluonjit.codegen.target import host, named
from gluonjit.codegen.text import llvm
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import Extent, at
from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.kernels import Plan, sort_words
from gluonjit.ir.kernels.element_plans import Loops
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import sized
from gluonjit.ir.types import TensorType


def runnable_targets() -> list[Machine]:
    """The host, and less capable machines that it can run the code of, if this code is another: what is written for
    vectors of the same length is the same."""
    targets = [host()]
    if host().arch == "x86":
        lesser = [named("x86-64-v3"), named("x86-64-v2")]
        targets += [t for t in lesser if t.vector_bits < host().vector_bits or t.vector_bits == 128]
    return targets


def body(make: Callable[..., Any], *types: TensorType) -> Graph:
    """The graph of `make(builder, *inputs)`, which returns a value or several."""
    b = Builder("body", "legal")
    made = make(b, *(b.input(f"x{k}", t) for k, t in enumerate(types)))
    return b.build([made] if isinstance(made, Value) else list(made))


def compiled(source: str, target: Machine) -> llvm.Loaded:
    """LLVM IR for one of `runnable_targets`, loaded. LLVM's level 0 takes a third of the time, and what is judged is
    the code that LLVM gets: that its levels make the same of it, `codegen/test_levels.py` judges."""
    return llvm.load(llvm.compile_module(source, target, level=0))


_LOOPS = Loops()


def kernel(body: Graph, plan: Plan = _LOOPS, attrs: Mapping[str, Any] = MappingProxyType({})) -> Op:
    """The op of a kernel with this body."""
    return Op("fused", body.inputs, {**KERNEL(plan), **attrs}, body.outputs, (body,))


def text(graph: Graph, target: Machine | None = None) -> str:
    """The LLVM IR of the loops for a body."""
    target = target or host()
    module = llvm.Module(target)
    lower_loops("kernel", kernel(graph), module)
    return module.text()


def opened(
    graph: Graph,
    target: Machine | None = None,
    lower: Callable[..., None] | None = None,
    attrs: Mapping[str, Any] = MappingProxyType({}),
    buffers: Sequence[TensorType] | None = None,
) -> Callable[..., list[np.ndarray]]:
    """`run(sizes, inputs, nthreads, at_end)` of a body with open dimensions: the outputs at these sizes. Operands,
    outputs, and the scratch memory that the loops ask for, are next to inaccessible memory. `buffers`: the types of
    what is in memory, if `attrs` says that operands and outputs are parts of it."""
    target = target or host()
    if lower is None:
        return opened_together([(graph, attrs, buffers)], target)[0]
    module = llvm.Module(target, _open_names([graph]))
    lower("kernel", target, module)
    types = [v.type for v in (*graph.inputs, *graph.outputs)]
    return functools.partial(
        _open_outputs, module.dims, compiled(module.text(), target), "kernel", types, sort_memory(graph)
    )


def opened_together(
    bodies: Sequence[tuple[Graph, Mapping[str, Any], Sequence[TensorType] | None]], target: Machine
) -> list[Callable[..., list[np.ndarray]]]:
    """`opened` for each (graph, attrs, buffers), as one module."""
    module = llvm.Module(target, _open_names([graph for graph, *_ in bodies]))
    found = []
    for k, (graph, attrs, buffers) in enumerate(bodies):
        op = kernel(graph, attrs=attrs)
        memory = scratch(op, module)
        lower_loops(f"kernel{k}", keeping_rows(op, memory) if memory != 0 else op, module)
        found.append((f"kernel{k}", buffers or [v.type for v in (*graph.inputs, *graph.outputs)], memory))
    code = compiled(module.text(), target)
    return [functools.partial(_open_outputs, module.dims, code, *each) for each in found]


def _open_names(graphs: Sequence[Graph]) -> list[str]:
    return sorted({name for graph in graphs for name in graph.open_names})


def _open_outputs(
    dims: Sequence[str],
    code: llvm.Loaded,
    name: str,
    types: Sequence[TensorType],
    memory: Extent,
    sizes: Mapping[str, int],
    inputs: Sequence[np.ndarray],
    nthreads: int = 1,
    at_end: bool = True,
) -> list[np.ndarray]:
    outputs = [np.full(sized(t, sizes).shape, 7, t.dtype.numpy) for t in types[len(inputs) :]]
    work = [np.zeros(at(memory, sizes), np.uint8)] if memory != 0 else []
    arrays = [guarded(np.asarray(x), at_end) for x in (*inputs, *outputs, *work)]
    code.call(name, arrays, nthreads, [sizes.get(name, 0) for name in dims])
    return arrays[len(inputs) : len(types)]


def sort_memory(graph: Graph) -> Extent:
    """Bytes of scratch memory for a graph that is one `sort`, which the pass `select` would annotate."""
    (op, *_) = graph.ops
    if op.name != "sort":
        return 0
    return sort_words.sort_memory(op.operands[0].type, op.attrs["axis"], op.attrs["count"]).all


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy that starts right after (with `at_end`: ends right before) an inaccessible page.

    A plain copy on systems without mprotect.
    """
    if not sys.platform.startswith("linux"):
        return array.copy()
    page = mmap.PAGESIZE
    size = -(-max(array.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, size + 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    for start in (base, base + page + size):
        if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), 0):
            raise OSError("mprotect failed")
    offset = page + (size - array.nbytes if at_end else 0)
    copy = np.frombuffer(memory, np.uint8, array.nbytes, offset).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@functools.lru_cache(maxsize=8)
def loaded(source: str, target: Machine) -> llvm.Loaded:
    """The same kernel is often run again, on more threads or beside other memory."""
    return compiled(source, target)


def run(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    target: Machine | None = None,
    nthreads: int = 1,
    lower: Callable[..., None] | None = None,
    at_end: bool | None = None,
) -> list[np.ndarray]:
    """The outputs of the compiled body. `lower(name, target, module)` replaces `lower_loops` for other kernels.

    Outputs are filled with 7 first, which reveals elements that are not written; unless `at_end` is None, operands,
    outputs and scratch memory are next to inaccessible memory.
    """
    target = target or host()
    if lower is None:
        source = text(graph, target)
    else:
        module = llvm.Module(target)
        lower("kernel", target, module)
        source = module.text()
    work = [] if lower is None else [np.zeros(sort_memory(graph), np.uint8)]
    return _outputs(loaded(source, target), "kernel", graph, inputs, nthreads, at_end, work)


def together(graphs: Sequence[Graph], target: Machine) -> list[Callable[..., list[np.ndarray]]]:
    """`run(inputs, nthreads, at_end)` of each body. A module of them all costs little more than one of each."""
    module = llvm.Module(target)
    for k, graph in enumerate(graphs):
        lower_loops(f"kernel{k}", kernel(graph), module)
    code = compiled(module.text(), target)
    return [functools.partial(_outputs, code, f"kernel{k}", graph) for k, graph in enumerate(graphs)]


def _outputs(
    code: llvm.Loaded,
    name: str,
    graph: Graph,
    inputs: Sequence[np.ndarray],
    nthreads: int = 1,
    at_end: bool | None = None,
    work: Sequence[np.ndarray] = (),
) -> list[np.ndarray]:
    outputs = [np.full(v.shape, 7, v.dtype.numpy) for v in graph.outputs]
    if at_end is not None:
        inputs, outputs, work = ([guarded(np.asarray(x), at_end) for x in arrays] for arrays in (inputs, outputs, work))
    code.call(name, [*inputs, *outputs, *work], nthreads)
    return outputs
