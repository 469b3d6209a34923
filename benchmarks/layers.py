"""Each matrix product and convolution of a workload alone: `python -m benchmarks.layers W4 [W6 …] [--below 90]`.

Each kernel is the one that the pipeline selects, with its epilogue in the net, on random operands, on one thread, with
warm caches. It is compared with its *roofline*, the larger of two times: of the multiply-adds that it executes (without
taps on padding; for Winograd those of the transformed product) at the measured peak, and of the bytes that it has to
read and write at the measured bandwidth of the cache that holds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.command_line import parser
from benchmarks.kernels import kernel_of
from benchmarks.peak import Native, interleaved, peak, reader
from benchmarks.workloads import WORKLOADS, make
from gluonjit.codegen.kernels.epilogue import find_anchor
from gluonjit.codegen.target import host
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.graph import Builder, Graph, Op
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.machine import Machine
from gluonjit.ir.structure import op_key
from gluonjit.ir.work import multiply_adds
from gluonjit.passes import run_passes


@dataclass
class Layer:
    count: int
    """How often the net has it."""
    graph: Graph
    """Just this op, of level `fused`."""
    op: Op
    """As it was selected."""
    kernel: Native

    @property
    def flop(self) -> float:
        """As executed."""
        return flop(self.op)

    @property
    def nbytes(self) -> int:
        return sum(v.type.nbytes for v in (*self.op.operands, *self.op.results))


def flop(op: Op) -> float:
    """Twice the multiply-adds that the kernel executes, without padding."""
    anchor = find_anchor(op.regions[0])
    w, out = anchor.operands[1], anchor.result.shape
    plan = KERNEL.of(op)
    if isinstance(plan, Winograd):
        outputs = plan.outputs[-(len(out) - 2) :]
        tiles = math.prod(-(-n // m) for n, m in zip(out[1:-1], outputs))
        return 2.0 * out[0] * tiles * math.prod(m + r - 1 for m, r in zip(outputs, w.shape)) * w.shape[-2] * out[-1]
    return 2.0 * multiply_adds(anchor)


def layers(key: str, target: Machine) -> list[Layer]:
    """The distinct ones of a workload, the first first."""
    import gluonjit as mx
    from gluonjit.execution.block_compiler import trace_call
    from gluonjit.passes.pipelines import PIPELINE

    net, inputs = make(key)
    graph = trace_call(net, [mx.nd.array(x) for x in inputs])
    graph = run_passes(graph, PIPELINE.partition(", select")[0], target=target)
    fixed = {graph.inputs[k] for k in graph.attrs["params"]}
    found: dict[object, list[Graph]] = {}
    for op in graph.ops:
        if all(v in fixed for v in op.operands):
            fixed.update(op.results)
        elif op.regions and any(o.definition.accumulates == "contraction" for o in op.regions[0].ops):
            params = tuple(k for k, v in enumerate(op.operands) if v in fixed)
            found.setdefault((op_key(op), params), []).append(_alone(op, params))
    made = []
    for alone, *others in found.values():
        kernel = kernel_of(alone, target)
        if kernel is not None:
            made.append(Layer(1 + len(others), alone, *kernel))
    return made


def _alone(op: Op, params: Sequence[int]) -> Graph:
    b = Builder("layer", "fused")
    operands = [b.input(f"p{k}", v.type) for k, v in enumerate(op.operands)]
    return b.build(list(b.emit(op.name, operands, op.attrs, op.regions)), {"params": tuple(params)})


def describe(op: Op) -> str:
    """`3x3 /2 64 -> 128 @56x56`."""
    anchor = find_anchor(op.regions[0])
    x, w = anchor.operands
    if anchor.name == "dot_general":
        *batch, m, k = x.shape
        return f"{'x'.join(map(str, batch))}{'·' if batch else ''}{m} x {anchor.result.shape[-1]} x {k}"
    taps, stride = "x".join(map(str, w.shape[:-2])), max(anchor.attrs["stride"])
    text = f"{taps}{f' /{stride}' if stride > 1 else ''} {x.shape[-1]} -> {anchor.result.shape[-1]}"
    groups = anchor.attrs["groups"]
    size = "x".join(map(str, x.shape[1:-1]))
    return f"{text}{f' ({groups} groups)' if groups > 1 else ''} @{size}" + (
        f" *{x.shape[0]}" if x.shape[0] > 1 else ""
    )


def main(arguments: Sequence[str] | None = None) -> None:
    p = parser("layers", __doc__, "W3 W4 --below 90")
    p.add_argument("workloads", nargs="+", choices=WORKLOADS, metavar="W3 … W9")
    p.add_argument("--below", type=float, default=1e9, help="only those below so many percent of their roofline")
    p.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    options = p.parse_args(arguments)
    target = host()
    for key in options.workloads:
        made = layers(key, target)
        reference = peak(target)
        # Caches hold other things, too.
        levels = [target.l2 // 2, target.l3 // 4, 2 * target.l3]
        readers = [reader(target, n) for n in levels]
        first, *times = interleaved([reference, *readers, *(layer.kernel for layer in made)], options.rounds, 3e-3)
        best = reference.work / first
        bandwidth = [r.work / t for r, t in zip(readers, times)]
        print(f"\n{key} {WORKLOADS[key].title}: {target.cpu}, one thread, peak {best / 1e9:.0f} GFLOP/s, read", end=" ")
        print(" / ".join(f"{b / 1e9:.0f}" for b in bandwidth), "GB/s from L2 / L3 / memory")
        print(f"{'':44}{'us':>9}{'GFLOP/s':>9}{'of peak':>9}{'of roofline':>12}{'flop/byte':>10}  kernel and tile")
        total = ideal = 0.0
        for layer, seconds in zip(made, times[len(readers) :]):
            level = sum(layer.nbytes > n for n in (target.l2, target.l3))
            floor = max(layer.flop / best, layer.nbytes / bandwidth[level])
            total, ideal = total + layer.count * seconds, ideal + layer.count * floor
            if 100 * floor / seconds >= options.below:
                continue
            name = f"{layer.count:3} x {describe(layer.op)}"
            rate, intensity = layer.flop / seconds, layer.flop / layer.nbytes
            print(f"{name:44}{seconds * 1e6:9.1f}{rate / 1e9:9.1f}{rate / best:9.1%}", end="")
            print(f"{floor / seconds:12.1%}{intensity:10.1f}  {KERNEL.of(layer.op)}")
        print(f"{'together':44}{total * 1e6:9.1f}{'':18}{ideal / total:12.1%}")


if __name__ == "__main__":
    main()
