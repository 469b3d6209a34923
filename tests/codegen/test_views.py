"""Kernels that write into windows of a concat and read windows: native against NumPy."""

import numpy as np
import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.annotations import STRIDES
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F32, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import threads
from gluonjit.runtime.compiler import compile_graph
from support.compare import close, difference
from support.selected import in_turn, kernel_name, runnable
from support.soak import tries

EVERYTHING = PIPELINE.replace("views", "views {line = 0}")
"""Rows of any length are written apart."""


class Net:
    """A random network of what reads and writes windows: values are [1, channels, h, w]."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.b = Builder("net", "legal")
        self.size = tuple(int(n) for n in self.rng.integers(2, 9, 2))
        x = self.b.input("x", TensorType(F32, (1, int(self.rng.integers(1, 40)), *self.size)))
        self.values = [self.b.exp(self.b.neg(self.b.mul(x, x)))]
        self.params = []

    def any(self):
        return self.values[int(self.rng.integers(len(self.values)))]

    def param(self, *shape):
        w = self.b.input(f"w{len(self.params)}", TensorType(F32, shape))
        self.params.append(w)
        return w

    def spread(self, value, x):
        return self.b.broadcast(self.b.constant(value, F32), shape=x.shape)

    def loops(self, x):
        return self.b.tanh(x)

    def conv(self, x, taps=None, groups=1, filters=None):
        taps = taps or int(self.rng.choice([2, 3]))
        filters = filters or int(self.rng.choice([3, 16, 20, 32]))
        y = self.b.conv(
            x,
            self.param(filters, x.shape[1] // groups, taps, taps),
            stride=(1, 1),
            low=(taps // 2,) * 2,
            high=((taps - 1) // 2,) * 2,
            dilation=(1, 1),
            input_dilation=(1, 1),
            groups=groups,
            layout=("NC01", "OI01", "NC01"),
        )
        y = self.b.mul(y, self.spread(0.2, y))
        # A side input that may be a window itself.
        others = [v for v in self.values if v.shape == y.shape]
        return self.b.add(y, others[0]) if others else self.b.maximum(y, self.b.neg(y))

    def pointwise(self, x):
        return self.conv(x, 1)

    def depthwise(self, x):
        return self.conv(x, 3, x.shape[1], x.shape[1])

    def pool(self, x):
        sizes = {"window": (1, 1, 3, 3), "low": (0, 0, 1, 1), "high": (0, 0, 1, 1)}
        return self.b.reduce_window(x, op="max", stride=(1, 1, 1, 1), dilation=(1, 1, 1, 1), **sizes)

    def norm(self, x):
        total = self.b.reduce(self.b.mul(x, x), op="sum", axes=(1,))
        total = self.b.add(total, self.spread(1, total))
        return self.b.div(x, self.b.broadcast(total, shape=x.shape, dims=(0, 2, 3)))

    def concat(self, x):
        return self.b.concat(x, *(self.any() for _ in range(int(self.rng.integers(1, 3)))), axis=1)

    def slice(self, x):
        begin = int(self.rng.integers(0, x.shape[1]))
        size = int(self.rng.integers(1, x.shape[1] - begin + 1))
        return self.b.slice(x, start=(0, begin, 0, 0), size=(1, size, *x.shape[2:]))

    def rolled(self, x):
        """The first row of pixels, moved to the end."""
        first = self.b.slice(x, start=(0, 0, 0, 0), size=(*x.shape[:2], 1, x.shape[3]))
        rest = self.b.slice(x, start=(0, 0, 1, 0), size=(*x.shape[:2], x.shape[2] - 1, x.shape[3]))
        return self.b.concat(self.b.sin(rest), self.b.cos(first), axis=2)

    def graph(self, ops):
        for _ in range(ops):
            # Concats and slices of what has just been made are the interesting ones.
            x = self.values[-1] if self.rng.random() < 0.6 else self.any()
            y = getattr(self, KINDS[int(self.rng.integers(len(KINDS)))])(x)
            if y.shape[1] <= 96:
                self.values.append(y)
        last = self.b.transpose(self.values[-1], perm=(0, 2, 3, 1))
        rows = self.b.reshape(last, shape=(last.size // last.shape[-1], last.shape[-1]))
        outputs = [self.b.dot_general(rows, self.param(last.shape[-1], 10), contract=((1,), (0,))), self.values[-2]]
        graph = self.b.build(outputs)
        inputs = {v: k for k, v in enumerate(graph.inputs)}
        return graph.with_attrs(params=tuple(inputs[w] for w in self.params))


KINDS = ["loops", "conv", "pointwise", "depthwise", "pool", "norm", "concat", "concat", "slice", "rolled"]


def inputs_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]


@pytest.mark.parametrize(("seed", "target"), in_turn(range(tries(4))))
def test_networks(seed, target):
    graph = Net(seed).graph(12)
    inputs = inputs_of(graph)
    outputs = compile_graph(graph, target=runnable(target), pipeline=EVERYTHING).run(inputs)[0]
    for native, expected in zip(outputs, evaluate(graph, inputs)[0], strict=True):
        assert close(native, expected), difference(native, expected)


def test_the_networks_are_about_windows():
    """Every kernel reads windows in some of them and writes into some."""
    reads, writes = set(), set()
    for seed in range(20):
        for op in run_passes(Net(seed).graph(16), EVERYTHING, target=named("x86-64-v2")).ops:
            strides = STRIDES.of(op)
            n = len(op.operands)
            reads.update(kernel_name(op) for s in strides[:n] if s is not None)
            writes.update(kernel_name(op) for s in strides[n:] if s is not None)
    assert reads >= {"loops", "copy", "conv", "matmul", "depthwise"}
    assert writes >= {"loops", "copy", "conv", "matmul", "depthwise"}


def test_every_number_of_threads_gives_the_same_bits(monkeypatch):
    graph = Net(3).graph(14)
    inputs = inputs_of(graph)
    pipeline = EVERYTHING.replace("threads", "threads {grain = 0, share = 1}")
    run = compile_graph(graph, pipeline=pipeline).run
    before = threads.get_num_threads()
    try:
        results = set()
        for n in (1, 2, 5):
            threads.set_num_threads(n)
            results.add(b"".join(y.tobytes() for y in run(inputs)[0]))
    finally:
        threads.set_num_threads(before)
    assert len(results) == 1


def attention(batch, length, heads, units):
    """Self-attention: x [batch, length, heads · units], whose heads are multiplied apart."""
    b = Builder("attention", "legal")
    width = heads * units
    x = b.input("x", TensorType(F32, (batch, length, width)))
    q, k, v, out = (b.input(name, TensorType(F32, (width, width))) for name in "qkvo")

    def split(weight):
        y = b.dot_general(x, weight, contract=((2,), (1,)))
        return b.transpose(b.reshape(y, shape=(batch, length, heads, units)), perm=(0, 2, 1, 3))

    pairs = ((0, 1), (0, 1))
    scores = b.dot_general(split(q), split(k), contract=((3,), (3,)), batch=pairs)
    largest = b.broadcast(b.reduce(scores, op="max", axes=(3,)), shape=scores.shape, dims=(0, 1, 2))
    raised = b.exp(b.sub(scores, largest))
    sums = b.broadcast(b.reduce(raised, op="sum", axes=(3,)), shape=scores.shape, dims=(0, 1, 2))
    mixed = b.dot_general(b.div(raised, sums), split(v), contract=((3,), (2,)), batch=pairs)
    joined = b.reshape(b.transpose(mixed, perm=(0, 2, 1, 3)), shape=(batch, length, width))
    return b.build([b.dot_general(joined, out, contract=((2,), (1,)))], {"params": (1, 2, 3, 4)})


@pytest.mark.parametrize(("sizes", "target"), in_turn([(1, 12, 2, 32), (2, 7, 3, 16), (3, 1, 1, 17), (1, 40, 4, 24)]))
def test_heads_of_attention_are_not_moved(sizes, target):
    graph = attention(*sizes)
    planned = run_passes(graph, PIPELINE, target=runnable(target))
    kernels = [op for op in planned.ops if op.name == "fused"]
    assert not [op for op in kernels if [o.name for o in op.regions[0].ops] == ["transpose"]]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) * 0.2 for v in graph.inputs]
    got = compile_graph(graph, target=runnable(target)).run(inputs)[0][0]
    wanted = evaluate(graph, inputs)[0][0]
    assert close(got, wanted), difference(got, wanted)
