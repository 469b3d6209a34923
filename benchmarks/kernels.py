"""Matrix products and convolutions, as shares of the machine's peak: `python -m benchmarks.kernels [words …]`.

Words select the rows whose names contain them. Every row is one kernel as the pipeline selects it, with a bias and a
ReLU, on one thread, with weights packed in advance. Operations are counted as in textbooks: 2 · M · N · K, or two per
tap, channels and pixel, where taps on padding count although they are skipped. Times are medians of turns, in which the
peak is measured too.
"""

from __future__ import annotations

import numpy as np

from benchmarks.command_line import parser
from benchmarks.peak import Native, interleaved, peak
from gluonjit.codegen.program import lower_kernel
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.ir.annotations import KERNEL, SCRATCH, WORKSPACE
from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.interpreter import evaluate_op
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32, TensorType
from gluonjit.passes import run_passes
from gluonjit.runtime.arenas import aligned_array


def _finish(b: Builder, y: Value) -> Graph:
    bias = b.input("bias", TensorType(F32, y.shape[-1:]))
    y = b.add(y, b.broadcast(bias, shape=y.shape))
    y = b.maximum(y, b.broadcast(b.constant(0, F32), shape=y.shape))
    return b.build([y], {"params": (1, 2)})


def matmul(m: int, n: int, k: int) -> tuple[Graph, float]:
    b = Builder("matmul", "legal")
    x, w = b.input("x", TensorType(F32, (m, k))), b.input("w", TensorType(F32, (n, k)))
    return _finish(b, b.dot_general(x, w, contract=((1,), (1,)))), 2.0 * m * n * k


def conv(size: int, channels: int, filters: int, taps: int, stride: int = 1, groups: int = 1) -> tuple[Graph, float]:
    b = Builder("conv", "legal")
    x = b.input("x", TensorType(F32, (1, size, size, channels)))
    w = b.input("w", TensorType(F32, (taps, taps, channels // groups, filters)))
    pad = (taps // 2,) * 2
    y = b.conv(
        x,
        w,
        stride=(stride,) * 2,
        low=pad,
        high=pad,
        dilation=(1, 1),
        input_dilation=(1, 1),
        groups=groups,
        layout=("N01C", "01IO", "N01C"),
    )
    return _finish(b, y), 2.0 * y.size * taps * taps * (channels // groups)


CASES = {
    "matmul 256 x 256 x 256": matmul(256, 256, 256),
    "matmul 1024 x 1024 x 1024": matmul(1024, 1024, 1024),
    "matmul 64 x 512 x 512": matmul(64, 512, 512),
    "matmul 100 x 1000 x 300": matmul(100, 1000, 300),
    "matmul 8 x 512 x 512": matmul(8, 512, 512),
    "matmul 1 x 256 x 512": matmul(1, 256, 512),
    "matmul 1 x 128 x 256": matmul(1, 128, 256),
    "conv 7x7 /2   3 -> 64   @224": conv(224, 3, 64, 7, 2),
    "conv 3x3     64 -> 64   @56": conv(56, 64, 64, 3),
    "conv 3x3    128 -> 128  @28": conv(28, 128, 128, 3),
    "conv 3x3    256 -> 256  @14": conv(14, 256, 256, 3),
    "conv 3x3    512 -> 512  @7": conv(7, 512, 512, 3),
    "conv 3x3 /2 128 -> 128  @56": conv(56, 128, 128, 3, 2),
    "conv 3x3 /2 512 -> 512  @14": conv(14, 512, 512, 3, 2),
    "conv 1x1     64 -> 64   @56": conv(56, 64, 64, 1),
    "conv 1x1     64 -> 256  @56": conv(56, 64, 256, 1),
    "conv 1x1    256 -> 64   @56": conv(56, 256, 64, 1),
    "conv 1x1    512 -> 128  @28": conv(28, 512, 128, 1),
    "conv 1x1    256 -> 1024 @14": conv(14, 256, 1024, 1),
    "conv 1x1   1024 -> 256  @14": conv(14, 1024, 256, 1),
    "conv 1x1   2048 -> 512  @7": conv(7, 2048, 512, 1),
    "conv 1x1    512 -> 2048 @7": conv(7, 512, 2048, 1),
    "conv 1x1 /2 256 -> 512  @56": conv(56, 256, 512, 1, 2),
    "conv 1x1 /2 1024 -> 2048 @14": conv(14, 1024, 2048, 1, 2),
    "conv 5x5      1 -> 20   @28": conv(28, 1, 20, 5),
    "depthwise 3x3     32 @112": conv(112, 32, 32, 3, 1, 32),
    "depthwise 3x3    144 @56": conv(56, 144, 144, 3, 1, 144),
    "depthwise 3x3 /2 144 @56": conv(56, 144, 144, 3, 2, 144),
    "depthwise 3x3    960 @7": conv(7, 960, 960, 3, 1, 960),
    "depthwise 5x5    240 @14": conv(14, 240, 240, 5, 1, 240),
    "grouped 3x3 32 x 4 @56": conv(56, 128, 128, 3, 1, 32),
}


def prepare(graph: Graph, flop: float, target: Machine) -> tuple[Op, Native]:
    """The graph's one kernel of interest, over random operands."""
    found = kernel_of(run_passes(graph, "fuse", target=target), target)
    if found is None:
        raise ValueError(f"no product in\n{graph}")
    op, kernel = found
    kernel.work = flop
    return op, kernel


def kernel_of(graph: Graph, target: Machine) -> tuple[Op, Native] | None:
    """The kernel that `select` chooses for the product in a graph of level `fused`, over random operands.

    None where loops compute it."""
    rng = np.random.default_rng(0)
    graph = run_passes(graph, "select", target=target)
    env = {v: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}
    for op in graph.ops:
        if _is_product(op) and op.results[0] in _leaving(graph):
            module = llvm.Module(target)
            lower_kernel("k", op, module)
            buffers = [aligned_array(v.shape, v.dtype.numpy) for v in (*op.operands, *op.results)]
            for buffer, v in zip(buffers, op.operands):
                buffer[...] = env[v]
            memory = [n for n in (SCRATCH.of(op), WORKSPACE.of(op)) if isinstance(n, int) and n]
            buffers += [aligned_array((n,), np.dtype(np.uint8)) for n in (*memory, 8)]
            return op, Native(module, buffers, 0.0)
        env.update(zip(op.results, evaluate_op(op, [env[v] for v in op.operands])))
    return None


def _is_product(op: Op) -> bool:
    plan = KERNEL.of(op)
    return plan is not None and plan.is_product


def _leaving(graph: Graph) -> set[Value]:
    """The graph's results, and those that they are other names of, or computed from by loops."""
    found = set(graph.outputs)
    for op in reversed(graph.ops):
        if found.intersection(op.results) and not _is_product(op):
            found.update(op.operands)
    return found


def main() -> None:
    p = parser("kernels", __doc__, "conv @7")
    p.add_argument("words", nargs="*", help="of which a row's name has one (default: all rows)")
    words = p.parse_args().words
    target = host()
    chosen = {name: case for name, case in CASES.items() if not words or any(w in name for w in words)}
    if not chosen:
        p.error(f"no row's name has one of {' '.join(words)}; there are {', '.join(CASES)}")
    prepared = {name: prepare(*case, target) for name, case in chosen.items()}
    reference = peak(target)
    first, *times = interleaved([reference, *(kernel for _, kernel in prepared.values())])
    best = reference.work / first
    print(f"{target.cpu}, one thread, peak {best / 1e9:.1f} GFLOP/s")
    print(f"{'':32}{'us':>10}{'GFLOP/s':>10}{'of peak':>9}{'compile ms':>12}  kernel and tile")
    for (name, (op, kernel)), seconds in zip(prepared.items(), times):
        rate = kernel.work / seconds
        compile = kernel.compile_seconds * 1e3
        print(f"{name:32}{seconds * 1e6:10.2f}{rate / 1e9:10.1f}{rate / best:9.1%}{compile:12.1f}  {KERNEL.of(op)}")


if __name__ == "__main__":
    main()
