"""`net.graph(x)` and `gluonjit.compile(graph)`."""

import re

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import IRError


@pytest.fixture
def net():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(5, activation="relu", in_units=4), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    return net


def test_stages(net):
    x = mx.nd.ones((2, 4))
    levels = [net.graph(x, stage=stage).level for stage in ("trace", "expanded", "optimized")]
    assert levels == ["traced", "expanded", "planned"]
    assert [op.name for op in net.graph(x).ops][0] == "mx.FullyConnected"
    with pytest.raises(IRError, match="did you mean 'expanded'"):
        net.graph(x, stage="expaned")


def test_a_compiled_graph_computes_and_shows_its_code(net):
    x = mx.nd.array(np.random.default_rng(0).standard_normal((2, 4)))
    expected = net(x).asnumpy()
    graph = net.graph(x)
    compiled = mx.compile(graph)
    params = net.collect_params()
    arrays = [x if v.name == "data" else params[v.name].data() for v in graph.inputs]
    (y,) = compiled(*arrays)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert parse_graph(compiled.ir).level == "planned"
    assert "define void @main(" in compiled.llvm and "main:" in compiled.asm
    assert all(row.why for row in compiled.kernels)
    assert all(t.first <= t.last for t in compiled.memory_plan)
    assert repr(compiled).startswith("<compiled @net(")


def test_code_for_another_machine(net):
    compiled = mx.compile(net.graph(mx.nd.ones((2, 4))), target="aarch64")
    assert "fmla" in compiled.asm
    with pytest.raises(IRError, match="does not run"):
        compiled(*(np.ones(v.shape, np.float32) for v in compiled.source.inputs))


def test_a_graph_of_ones_own():
    compiled = mx.compile(parse_graph("graph @g(%x: f32[3]) { %y = neg(%x) %z = exp(%y) return %z }"))
    (z,) = compiled(np.array([0, 1, 2], np.float32))
    np.testing.assert_allclose(z, np.exp(-np.arange(3)), rtol=1e-6)


def test_a_graph_does_not_decide_how_it_is_computed():
    """As it may be a stranger's text: this sort would write to memory that it has not asked for."""
    sort = "graph @g(%x: f32[4,1000]) level {} {{ %s, %k = sort(%x) {{axis = 1, .kernel = sorting}} return %s }}"
    with pytest.raises(IRError, match="sort has .kernel, which passes decide"):
        mx.compile(parse_graph(sort.format("fused")))(np.zeros((4, 1000), np.float32))
    with pytest.raises(IRError, match=".kernel belongs to graphs of level 'fused'"):
        mx.compile(parse_graph(sort.format("legal")))


def test_what_is_no_graph(net):
    with pytest.raises(TypeError, match=r"such as net\.graph\(x\) .* got HybridSequential"):
        mx.compile(net)
    with pytest.raises(ValueError, match=r"as a call has: graph\(x\)"):
        net.graph()


def test_the_document(root):
    text = (root / "docs" / "inspecting.md").read_text()
    names = {}
    for program in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        exec(compile(program, "docs/inspecting.md", "exec"), names)
    assert str(names["graph"].inputs[1].type) == "f32[64,32]"
    assert names["y"].shape == (8, 10)
