"""Memory-bound kernels compared with the memory's bandwidth: `python -m benchmarks.bandwidth [words …]`.

Every row is a small graph, compiled by the whole pipeline and run on one thread: once with operands that stay in the
second-level cache, once with operands from memory. The bytes of operands and results are counted once each, although a
kernel may access them several times. `limit` is the time to read and write as many bytes at the rates of two loops that
do nothing else, measured in turns with the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gluonjit.operators  # noqa: F401  (declares the operators that `expand` replaces)
from benchmarks.command_line import parser
from benchmarks.peak import Native, interleaved
from gluonjit.codegen.kernels.tiles import Tile
from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.ir.graph import Builder, Graph, Value
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32, I32, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime.arenas import aligned_array

Make = Callable[..., Value]
_SMALL, _LARGE = 1 << 19, 1 << 26
"""Bytes of operands and results, about: half of a second cache, and several times a third one."""
_STREAMS = 2
"""Places from which the reference reads at once."""


def operator(name: str, **attrs: Any) -> Make:
    return lambda b, *x: b.emit(f"mx.{name}", x, attrs)[0]


def pool(op: str, window: int, stride: int, pad: int = 0) -> Make:
    """Over [N, h, w, C]; an average is a sum that is scaled."""

    def make(b: Builder, x: Value) -> Value:
        def each(n: int, rest: int) -> tuple[int, ...]:
            return (rest, n, n, rest)

        y = b.reduce_window(
            x,
            op=op,
            window=each(window, 1),
            stride=each(stride, 1),
            low=each(pad, 0),
            high=each(pad, 0),
            dilation=each(1, 1),
        )
        return y if op == "max" else b.mul(y, b.broadcast(b.constant(1 / window**2, F32), shape=y.shape))

    return make


def per_channel(b: Builder, x: Value, scale: Value, shift: Value) -> Value:
    y = b.add(b.mul(x, b.broadcast(scale, shape=x.shape)), b.broadcast(shift, shape=x.shape))
    return b.maximum(y, b.broadcast(b.constant(0, F32), shape=x.shape))


def transpose(*perm: int) -> Make:
    return lambda b, x: b.transpose(x, perm=perm)


def reduce(op: str, *axes: int) -> Make:
    return lambda b, x: b.reduce(x, op=op, axes=axes)


def padded(b: Builder, x: Value) -> Value:
    return b.pad(x, b.constant(0, F32), low=(0, 1, 1, 0), high=(0, 1, 1, 0))


def chosen_pixels(b: Builder, x: Value) -> Value:
    """28 × 28 of 14 × 14 pixels, as the first step of resizing."""
    place = b.constant([k * 13 // 27 for k in range(28)], I32)
    return b.gather(b.gather(x, place, axis=1), place, axis=2)


def joined(b: Builder, *x: Value) -> Value:
    return b.concat(*x, axis=x[0].ndim - 1)


# The first axis of the first operand, 0, is as long as it takes; -1 stands for the same length, -2 for a few rows.
CASES: dict[str, tuple[Make, list[tuple[int, ...]]]] = {
    "copy": (lambda b, x: b.neg(x), [(0, 64)]),
    "a + b, ReLU": (lambda b, x, y: operator("relu")(b, b.add(x, y)), [(0, 64), (-1, 64)]),
    "scale, shift, ReLU  C 64": (per_channel, [(0, 64), (64,), (64,)]),
    "scale, shift, ReLU  C 100": (per_channel, [(0, 100), (100,), (100,)]),
    "tanh": (operator("tanh"), [(0, 64)]),
    "GELU": (operator("LeakyReLU", act_type="gelu"), [(0, 64)]),
    "max 2x2/2  C 64": (pool("max", 2, 2), [(0, 28, 28, 64)]),
    "max 3x3/2  C 64": (pool("max", 3, 2, 1), [(0, 28, 28, 64)]),
    "max 3x3/2  C 6": (pool("max", 3, 2, 1), [(0, 28, 28, 6)]),
    "max 3x3/1  C 64": (pool("max", 3, 1, 1), [(0, 28, 28, 64)]),
    "average 2x2/2  C 128": (pool("sum", 2, 2), [(0, 14, 14, 128)]),
    "average 3x3/1  C 192": (pool("sum", 3, 1, 1), [(0, 9, 9, 192)]),
    "average 7x7  C 512": (pool("sum", 7, 1), [(0, 7, 7, 512)]),
    "max 2x2/2  NCHW": (
        operator("Pooling", kernel=(2, 2), stride=(2, 2), pool_type="max"),
        [(0, 8, 28, 28)],
    ),
    "softmax  1000": (operator("softmax"), [(0, 1000)]),
    "softmax  128": (operator("softmax"), [(0, 128)]),
    "softmax  10": (operator("softmax"), [(0, 10)]),
    "softmax  21 channels": (operator("softmax", axis=1), [(0, 21, 32, 32)]),
    "log_softmax  1000": (operator("log_softmax"), [(0, 1000)]),
    "LayerNorm  768": (operator("LayerNorm"), [(0, 768), (768,), (768,)]),
    "LayerNorm  100": (operator("LayerNorm"), [(0, 100), (100,), (100,)]),
    "InstanceNorm  64": (operator("InstanceNorm"), [(0, 64, 28, 28), (64,), (64,)]),
    "L2Normalization  256": (operator("L2Normalization"), [(0, 256)]),
    "sum of rows of 1000": (reduce("sum", 1), [(0, 1000)]),
    "sum of rows of 20": (reduce("sum", 1), [(0, 20)]),
    "sum of columns, 64": (reduce("sum", 0), [(0, 64)]),
    "sum of columns, 1000": (reduce("sum", 0), [(0, 1000)]),
    "sum of all": (reduce("sum", 0, 1), [(0, 64)]),
    "max of all": (reduce("max", 0, 1), [(0, 64)]),
    "sum of pixels, NCHW": (reduce("sum", 2, 3), [(0, 64, 14, 14)]),
    "sum of pixels, NHWC": (reduce("sum", 1, 2), [(0, 14, 14, 64)]),
    "argmax of rows of 1000": (operator("argmax", axis=1), [(0, 1000)]),
    "argmax of rows of 20": (operator("argmax", axis=1), [(0, 20)]),
    "argmax of 21 channels": (operator("argmax", axis=1), [(0, 21, 32, 32)]),
    "NCHW -> NHWC  C 3": (transpose(0, 2, 3, 1), [(0, 3, 112, 112)]),
    "NCHW -> NHWC  C 64": (transpose(0, 2, 3, 1), [(0, 64, 14, 14)]),
    "NHWC -> NCHW  C 64": (transpose(0, 3, 1, 2), [(0, 14, 14, 64)]),
    "matrix, transposed": (transpose(1, 0), [(0, 256)]),
    "heads (0, 2, 1, 3)": (transpose(0, 2, 1, 3), [(0, 32, 12, 64)]),
    "reversed": (lambda b, x: b.reverse(x, axes=(1,)), [(0, 64)]),
    "pad  C 64": (padded, [(0, 28, 28, 64)]),
    "concat  64 + 32": (joined, [(0, 64), (-1, 32)]),
    "concat  10 + 6 + 3": (joined, [(0, 10), (-1, 6), (-1, 3)]),
    "slice  32 of 64": (lambda b, x: b.slice(x, start=(0, 16), size=(x.shape[0], 32)), [(0, 64)]),
    "every other of 64": (lambda b, x: b.slice(x, start=(0, 0), size=(x.shape[0], 32), step=(1, 2)), [(0, 64)]),
    "Embedding  768": (lambda b, w, i: b.gather(w, i, axis=0), [(0, 768), (-2,)]),
    "nearest, twice as large": (operator("UpSampling", scale=2, sample_type="nearest", num_args=1), [(0, 64, 14, 14)]),
    "bilinear, twice as large": (
        operator("_contrib_BilinearResize2D", height=28, width=28),
        [(0, 64, 14, 14)],
    ),
    "bilinear, half as large": (
        operator("_contrib_BilinearResize2D", height=28, width=28),
        [(0, 8, 56, 56)],
    ),
    "pixels by number, NHWC": (chosen_pixels, [(0, 14, 14, 64)]),
}


def graph_of(make: Make, shapes: Sequence[tuple[int, ...]], nbytes: int) -> Graph:
    """The graph over operands of about so many bytes in all."""
    unit = [int(np.prod(s[1:])) for s in shapes if s[0] in (0, -1)]
    rows = max(2, nbytes // (8 * sum(unit)))
    b = Builder("g", "traced")
    operands = []
    for k, (first, *rest) in enumerate(shapes):
        n = {0: rows, -1: rows, -2: max(1, rows // 2)}.get(first, first)
        type = TensorType(I32 if first == -2 else F32, (n, *rest))
        operands.append(b.input(f"x{k}", type))
    return b.build([make(b, *operands)])


def prepare(graph: Graph, target: Machine) -> tuple[Native, int, int]:
    """(the whole program as a kernel, bytes read, bytes written)."""
    planned = run_passes(graph, PIPELINE, target=target)
    program = lower_program(planned.with_attrs(threads=1), target)
    layout = program.interface.main
    f = program.module.function("k")
    f.call("main", "void", ("ptr", "%table"), ("i64", "%thread"), ("i64", "%nthreads"))
    rng = np.random.default_rng(0)
    buffers = []
    for type in layout.input_types:
        x = aligned_array(type.shape, type.dtype.numpy)
        x[...] = rng.integers(0, 100, type.shape) if type.dtype is I32 else rng.standard_normal(type.shape, np.float32)
        buffers.append(x)
    buffers += [aligned_array(t.shape, t.dtype.numpy) for t in layout.result_types]
    for b in buffers[len(layout.input_types) :]:
        b[...] = 0  # its pages exist
    buffers += list(layout.constants)
    buffers += [np.zeros(max(n, 1), np.uint8) for n in (layout.arena, layout.scratch, 8)]
    read = sum(t.nbytes for t in layout.input_types)
    written = sum(t.nbytes for t in layout.result_types)
    return Native(program.module, buffers, 0.0), read, written


def reference(nbytes: int, target: Machine, write: bool) -> Native:
    """A loop that reads an array of so many bytes, or copies it to another one."""
    module = llvm.Module(target)
    f = module.function("k")
    tile = Tile(f, F32, 1)
    part = nbytes // 4 // _STREAMS // tile.lanes * tile.lanes
    with f.for_(0, part, tile.lanes, [(tile.vector, "zeroinitializer")] * _STREAMS) as loop:
        x, y = (f.gep("float", f.table(k), loop.index) for k in range(2))
        loads = [tile.load(f.gep("float", x, k * part)) for k in range(_STREAMS)]
        if write:
            for k, v in enumerate(loads):
                f.store(tile.vector, v, f.gep("float", y, k * part), 64)
        loop.next(*(f.op(f"fadd {tile.vector} {s}, {v}") for s, v in zip(loop.carried, loads)))
    for s in loop.results:
        f.store(tile.vector, s, f.table(2), 4)
    n = part * _STREAMS
    buffers = [aligned_array((k,), np.dtype(np.float32)) for k in (n, n, tile.lanes)]
    for b in buffers:
        b[...] = 1
    return Native(module, buffers, 4.0 * n)


def main() -> None:
    p = parser("bandwidth", __doc__, "softmax")
    p.add_argument("words", nargs="*", help="of which a row's name has one (default: all rows)")
    words = p.parse_args().words
    target = host()
    chosen = {name: case for name, case in CASES.items() if not words or any(w in name for w in words)}
    if not chosen:
        p.error(f"no row's name has one of {' '.join(words)}; there are {', '.join(CASES)}")
    print(f"{target.cpu}, one thread")
    rows: dict[str, list[str]] = {name: [] for name in chosen}
    for nbytes in (_SMALL, _LARGE):
        read, copy = reference(nbytes, target, False), reference(nbytes // 2, target, True)
        prepared = {name: prepare(graph_of(*case, nbytes), target) for name, case in chosen.items()}
        first, second, *times = interleaved([read, copy, *(k for k, _, _ in prepared.values())])
        reading = first / read.work
        writing = second / copy.work - reading
        print(f"{nbytes >> 10:6} KiB: reading {1e-9 / reading:.0f} GB/s, writing {1e-9 / writing:.0f} GB/s")
        for (name, (_, r, w)), seconds in zip(prepared.items(), times):
            limit = r * reading + w * writing
            rows[name].append(f"{seconds * 1e6:10.2f}{(r + w) / seconds / 1e9:8.1f}{limit / seconds:8.0%}")
    heads = "".join(f"{'us':>10}{'GB/s':>8}{'limit':>8}" for _ in (_SMALL, _LARGE))
    print(f"{'':28}{heads}")
    for name, cells in rows.items():
        print(f"{name:28}{''.join(cells)}")


if __name__ == "__main__":
    main()
