"""Measured choices, with a clock that says what the test wants."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.codegen.target import host
from gluonjit.gluon import nn
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import HINT, named
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import F32, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.select import VARIANTS, Variant, has_variants
from gluonjit.runtime import tuning
from gluonjit.runtime.compiler import compile_graph
from support.compare import close
from support.convolutions import conv
from support.selected import kernel_name

CONV = conv((28, 28), 32, 32, 3, low=1, high=1)


def product(m, n, k):
    b = Builder("product", "legal")
    x, w = b.input("x", TensorType(F32, (m, k))), b.input("w", TensorType(F32, (k, n)))
    return b.build([b.dot_general(x, w, contract=((1,), (0,)))], {"params": (1,)})


@pytest.fixture
def clock(monkeypatch):
    """Replaces the time that a kernel takes by `clock.says(op)`, and notes what is asked for."""

    class Clock:
        asked = []
        graphs = []

        @staticmethod
        def says(op):
            return 1.0

    def timed(op, operands, target):
        Clock.asked.append(op)
        return lambda: Clock.says(op)

    def timed_graph(executable):
        Clock.graphs.append(executable)
        return lambda: 1.0 if executable.main.layout.threads > 1 else Clock.alone

    Clock.asked, Clock.graphs, Clock.alone = [], [], 1.0
    monkeypatch.setattr(tuning, "_timed", timed)
    monkeypatch.setattr(tuning, "timed_graph", timed_graph)
    return Clock


def variants(graph, winograd=True):
    return tuning.measured_variants(run_passes(graph, "fuse", target=host()), host(), winograd)


def test_without_a_clear_winner_the_estimate_stays(clock):
    assert variants(CONV) == {}
    assert {kernel_name(op) for op in clock.asked} == {"winograd", "conv"}
    assert len({op_key(op) for op in clock.asked}) == len(clock.asked) > 2


def test_the_faster_kernel_is_taken(clock):
    clock.says = lambda op: 0.5 if kernel_name(op) == "conv" and KERNEL.of(op).pixels <= 6 else 1.0
    fused = run_passes(CONV, "fuse", target=host())
    (op,) = (op for op in fused.ops if has_variants(op))
    found = variants(CONV)
    assert set(found) == {op_key(op)} and not found[op_key(op)].winograd
    selected = run_passes(fused, [("select", {"variants": found})], target=host())
    assert [KERNEL.of(o).pixels <= 6 for o in selected.ops if kernel_name(o) == "conv"] == [True]


def test_open_dimensions_are_measured_as_if_they_were_hints(clock):
    clock.says = lambda op: 0.5 if KERNEL.of(op).rows <= 4 else 1.0
    fused = run_passes(product(named("n"), 32, 64), "fuse", target=host())
    (op,) = fused.ops
    found = tuning.measured_variants(fused, host(), True)
    assert set(found) == {op_key(op)} and found[op_key(op)].most <= 6
    assert {o.results[0].shape for o in clock.asked} == {(HINT, 32)}
    x, w = np.ones((5, 64), np.float32), np.ones((64, 32), np.float32)
    (y,), _ = compile_graph(product(named("n"), 32, 64), pipeline=_LEGAL, tune=True).run([x, w])
    np.testing.assert_allclose(y, 64)
    assert clock.graphs == []


def test_without_winograd_it_is_not_measured(clock):
    variants(CONV, winograd=False)
    assert {kernel_name(op) for op in clock.asked} == {"conv"}


def test_equal_products_are_measured_once(clock):
    b = Builder("twice", "legal")
    x, w, v = (b.input(name, TensorType(F32, (64, 64))) for name in "xwv")
    y = b.dot_general(b.dot_general(x, w, contract=((1,), (0,))), v, contract=((1,), (0,)))
    once, twice = product(64, 64, 64), b.build([y], {"params": (1, 2)})
    variants(once)
    count = len(clock.asked)
    variants(twice)
    assert count > 1 and len(clock.asked) == 2 * count


def test_real_measurements_keep_the_answer():
    rng = np.random.default_rng(0)
    for graph in (CONV, product(40, 50, 60)):
        inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
        (y,), _ = compile_graph(graph, pipeline=_LEGAL, tune=True).run(inputs)
        assert close(y, evaluate(graph, inputs)[0][0])


_LEGAL = "fuse, select, hoist, views, threads {grain = 0, share = 1}, plan-memory"


@pytest.mark.parametrize(("alone", "threads"), [(0.5, 1), (1.0, 2)])
def test_one_thread_or_several(clock, alone, threads):
    clock.alone = alone
    layout = compile_graph(product(256, 256, 256), pipeline=_LEGAL, tune=True).main.layout
    assert min(layout.threads, 2) == threads and len(clock.graphs) == 2


def test_graphs_without_products_and_the_first_variant(clock):
    b = Builder("exp", "legal")
    graph = b.build([b.exp(b.input("x", TensorType(F32, (8,))))])
    assert variants(graph) == {} and clock.asked == []
    assert VARIANTS[0] == Variant()
    plain = run_passes(CONV, "fuse, select", target=host())
    (op,) = (op for op in run_passes(CONV, "fuse", target=host()).ops if has_variants(op))
    same = run_passes(CONV, ["fuse", ("select", {"variants": {op_key(op): VARIANTS[0]}})], target=host())
    assert [op_key(o) for o in plain.ops] == [op_key(o) for o in same.ops]


def test_hybridize_and_what_the_cache_remembers(clock, monkeypatch, tmp_path):
    monkeypatch.delenv("GLUONJIT_CACHE", raising=False)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(tmp_path))
    x = mx.nd.ones((64, 64))
    for expected in (True, False):
        net = nn.Dense(64)
        net.initialize(mx.init.One())
        net.hybridize(tune=True)
        clock.asked.clear()
        np.testing.assert_allclose(net(x).asnumpy(), np.full((64, 64), 64.0))
        assert bool(clock.asked) == expected
