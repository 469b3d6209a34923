"""Kernels that one graph has compiled serve others, with the same bits."""

import numpy as np
import pytest

from gluonjit.codegen.target import host, named
from gluonjit.codegen.text import compile_parts
from gluonjit.ir import dims
from gluonjit.ir.graph import Builder
from gluonjit.ir.opdef import REGISTRY, primitive
from gluonjit.ir.types import F32, TensorType
from gluonjit.runtime import cache
from gluonjit.runtime.compiler import compile_graph
from support.programs import random_program


@pytest.fixture(autouse=True)
def small_kernels_too(object_cache, monkeypatch):
    for name in ("_ALONE", "_ALONE_FOR_ANY"):
        monkeypatch.setattr(compile_parts, name, 1)


def net(head=3, middle="exp", batch=4, params=(1, 2)):
    """middle(x[batch,16] · w[16,8]) · v[8,head]."""
    b = Builder("net", "traced")
    x, w = b.input("x", TensorType(F32, (batch, 16))), b.input("w", TensorType(F32, (16, 8)))
    v = b.input("v", TensorType(F32, (8, head)))
    y = getattr(b, middle)(b.dot_general(x, w, contract=((1,), (0,))))
    return b.build([b.sort(b.dot_general(y, v, contract=((1,), (0,))), axis=1)[0]], {"params": params})


def kernels():
    return [e.name for e in cache.entries() if e.name.startswith("kernel ")]


def run(graph):
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs]
    return compile_graph(graph).run(inputs)[0][0]


def test_what_graphs_have_in_common_is_compiled_once(lowered):
    run(net())
    first, there = len(lowered), set(kernels())
    assert first >= 4 and len(there) >= 4
    lowered.clear()
    want = run(net(head=5))
    assert 1 <= len(lowered) < first and there < set(kernels())
    cache.clear()
    np.testing.assert_array_equal(run(net(head=5)), want)


def test_equal_layers_share_the_function_that_prepares_their_weights():
    b = Builder("net", "traced")
    x, v, w = (b.input(name, TensorType(F32, (16, 16))) for name in "xvw")
    y = b.dot_general(
        b.sort(b.dot_general(x, b.exp(v), contract=((1,), (0,))), axis=1)[0], b.exp(w), contract=((1,), (0,))
    )
    program = compile_graph(b.build([y], {"params": (1, 2)}))
    first, second = program.prepared
    assert first.name == second.name and {first.inputs, second.inputs} == {(1,), (2,)}
    assert {first.function.prepare, second.function.prepare} == {0, 1}
    x, v, w = np.random.default_rng(1).standard_normal((3, 16, 16), dtype=np.float32)
    (got,), _ = program.run([x, v, w])
    np.testing.assert_allclose(got, np.sort(x @ np.exp(v), axis=1) @ np.exp(w), rtol=1e-5, atol=1e-4)


def test_other_code_is_not_taken(lowered):
    """Neither what computes something else, nor what another machine runs, nor what is compiled quickly."""
    run(net(middle="exp"))
    lowered.clear()
    np.testing.assert_array_equal(run(net(middle="tanh")), _alone(net(middle="tanh")))
    assert lowered
    lowered.clear()
    np.testing.assert_allclose(run(net(params=())), run(net()), rtol=1e-5, atol=1e-6)
    assert lowered
    narrow = named("x86-64-v2") if host().triple.startswith("x86") else named("aarch64")
    lowered.clear()
    compile_graph(net(), target=narrow if narrow.triple == host().triple else host())
    assert lowered or narrow.triple != host().triple


def test_code_for_any_size_takes_what_depends_on_none(lowered):
    """Packing weights is the same for all sizes."""
    compile_graph(net())
    static = sorted(lowered)
    assert "loops" in static, "how many weights are packed depends on the width of vectors"
    lowered.clear()
    compile_graph(net(batch=dims.named("n")))
    assert sorted(lowered) == [kind for kind in static if kind != "loops"] == ["matmul", "matmul", "sorting"]


def _alone(graph):
    there = {e.path: e.path.read_bytes() for e in cache.entries()}
    cache.clear()
    result = run(graph)
    for path, data in there.items():
        path.write_bytes(data)
    return result


def test_damaged_kernels_are_compiled_again(lowered):
    want = run(net())
    for entry in cache.entries():
        data = entry.path.read_bytes()
        if entry.name.startswith("kernel "):
            entry.path.write_bytes(data[:-1])
        elif entry.name == "net":
            entry.path.unlink()
    lowered.clear()
    np.testing.assert_array_equal(run(net()), want)
    assert len(lowered) >= 4


def test_random_programs():
    """Whatever was found, results are those of a graph that is compiled alone."""
    shared = 0
    for seed in range(6):
        made = random_program(seed)
        graph = made.graph.with_attrs(params=tuple(range(0, len(made.graph.inputs), 2)))
        results = []
        for _ in range(2):
            outputs, updates = compile_graph(graph).run(made.inputs)
            results.append([a.tobytes() for a in (*outputs, *updates)])
            for entry in cache.entries():
                if not entry.name.startswith("kernel "):
                    entry.path.unlink()
        assert results[0] == results[1]
        shared += len(kernels())
    assert shared > 6


@pytest.fixture
def no_trace_of_scaled():
    yield
    REGISTRY.pop("test_scaled", None)


def test_code_of_others_is_not_shared(no_trace_of_scaled):
    """The meaning of a primitive that this package does not define may change without a change of any key."""
    for factor in (2.0, 3.0):
        REGISTRY.pop("test_scaled", None)

        def element(s, i, x, factor=factor):
            return s.mul(x(i), s.constant(factor, F32))

        primitive(
            "test_scaled", infer=lambda x: x, eval=lambda x, factor=factor: x * np.float32(factor), element=element
        )
        b = Builder("net")
        x = b.input("x", TensorType(F32, (64,)))
        assert cache.graph_cache_key(b.build([b.test_scaled(x)]), "", host()) is None
        compile_graph(b.build([b.test_scaled(x)]))
        assert not kernels()
