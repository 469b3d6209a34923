"""What notebooks show: pictures and tables of graphs, blocks, parameters and arrays. Names are untrusted."""

import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.pictures import MAX_BOXES
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import F32, IRError, TensorType


class Balanced(HTMLParser):
    """Fails for tags that are not closed in order; collects text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.tags = [], "", []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def net():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu", in_units=3), nn.BatchNorm(in_channels=4), nn.Dense(2, in_units=4))
    net.initialize()
    return net


def boxes(svg):
    """The two lines of each box."""
    tree = ET.fromstring(svg)
    groups = tree.iter("{http://www.w3.org/2000/svg}g")
    return [[text.text for text in g.iter("{http://www.w3.org/2000/svg}text")] for g in groups]


@pytest.mark.parametrize("stage", ["trace", "expanded", "optimized"])
def test_a_picture_has_what_depends_on_the_input(net, stage):
    graph = net.graph(mx.nd.ones((5, 3)), stage=stage)
    shown = boxes(graph.svg())
    assert shown[0] == ["%data", "f32[5,3]"]
    assert shown[-1][1] == "f32[5,2]"
    if stage == "trace":
        assert [name for name, _ in shown[1:]] == ["FullyConnected", "Activation", "BatchNorm", "FullyConnected"]
    assert not any("weight" in name for name, _ in shown)


def test_a_picture_of_parameters_alone_and_of_nothing():
    assert boxes(parse_graph("graph () { return }").svg()) == []
    graph = parse_graph("graph (%w: f32[2]) {params = (0,)} { %y = neg(%w) return %y }")
    assert boxes(graph.svg()) == [["%w", "f32[2]"], ["neg", "f32[2]"]]


def test_names_cannot_leave_their_place():
    graph = parse_graph('graph @"<script>" (%"</svg><b>": f32[2]) { %y = neg(%"</svg><b>") return %y }')
    assert "</svg><b>" in boxes(graph.svg())[0][0]
    assert "script" not in Balanced(graph._repr_html_()).tags


def test_a_graph_that_is_too_large_to_draw():
    b = Builder("large")
    x = b.input("x", TensorType(F32, ()))
    for _ in range(MAX_BOXES):
        x = b.neg(x)
    graph = b.build([x])
    with pytest.raises(IRError, match=f"@large has {MAX_BOXES} ops; pictures show {MAX_BOXES} at most"):
        graph.svg()
    assert graph._repr_svg_() is None
    assert "lines more" in Balanced(graph._repr_html_()).text


def test_without_igraph_and_pygments(net, monkeypatch):
    monkeypatch.setitem(sys.modules, "igraph", None)
    monkeypatch.setitem(sys.modules, "gluonjit.ir.highlight", None)
    graph = net.graph(mx.nd.ones((5, 3)))
    with pytest.raises(IRError, match=r'pip install "gluonjit\[draw\]"'):
        graph.svg()
    shown = Balanced(graph._repr_html_())
    assert "gluonjit[draw]" in shown.text and "mx.FullyConnected(" in shown.text


@pytest.mark.parametrize("stage", ["trace", "expanded", "optimized"])
def test_op_by_op(net, stage):
    x = mx.nd.random.uniform(shape=(5, 3))
    expected = net(x).asnumpy()
    graph = net.graph(x, stage=stage)
    params = net.collect_params()
    results = {}
    for op, found in graph.steps(x, *(params[v.name].data() for v in graph.inputs[1:])):
        assert [(r.shape, r.dtype) for r in found] == [(v.type.shape, v.dtype.numpy) for v in op.results]
        results.update(zip(op.results, found))
    np.testing.assert_allclose(results[graph.outputs[0]], expected, rtol=1e-5, atol=1e-6)


def test_op_by_op_with_random_numbers():
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5), nn.Dropout(0.25))
    x = mx.nd.ones((100, 10))
    with mx.autograd.train_mode():
        graph = net.graph(x)
    key = np.array([3, 0])
    first, again = ([r[0] for _, r in graph.steps(x, key)] for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert 300 < (first[0] == 0).sum() < 700
    assert np.array_equal(evaluate(graph, [x.asnumpy(), key])[0][0], first[1])


def test_blocks_and_parameters(net):
    table = Balanced(net._repr_html_())
    assert "HybridSequential net, not hybridized, parameters: 42" in table.text
    assert table.tags.count("tr") == 1 + 4 + 1  # the head, the block and its layers, one of which has an activation
    unknown = nn.Dense(3)
    assert "some shapes are not known yet" in Balanced(unknown._repr_html_()).text
    assert "parameters: 0" in Balanced(nn.Flatten()._repr_html_()).text
    parameters = net.collect_params()
    assert Balanced(parameters._repr_html_()).text.count("float32") == len(list(parameters))
    shown = Balanced(parameters["net_dense0_weight"]._repr_html_()).text
    assert "net_dense0_weight(4, 3)float32write" in shown
    assert "1 parametername" in shown


def test_every_layer_is_described_in_its_row(net):
    """Also one with an activation inside; not a container, whose text repeats its layers."""
    table = Balanced(net._repr_html_()).text
    assert [repr(layer) in table for layer in net] == [True] * len(net)
    assert "HybridSequential(" not in table


def test_prompts_show_graphs_in_a_line(net):
    graph = net.graph(mx.nd.ones((2, 3)))
    assert repr(graph).startswith("<graph @net(data: f32[2,3], net_dense0_weight: f32[4,3]")
    assert repr(graph).endswith(f": {len(graph.ops)} ops, level traced>")
    one = parse_graph("graph @g(%x: f32[3]) { %y = exp(%x) return %y }")
    assert repr(one) == "<graph @g(x: f32[3]): 1 op, level expanded>" and "expanded, 1 op<" in one._repr_html_()


def test_shared_parameters_count_once(net):
    twice = nn.HybridSequential()
    twice.add(net, nn.Dense(4, in_units=3, params=net[0].params))
    assert "parameters: 42" in Balanced(twice._repr_html_()).text


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_arrays_show_their_type(dtype):
    assert f"NDArray 2×3 {dtype} @cpu(0)" in Balanced(mx.nd.ones((2, 3), dtype=dtype)._repr_html_()).text


def test_other_arrays():
    assert "NDArray scalar int32" in Balanced(mx.np.array(3, dtype="int32")._repr_html_()).text.replace(
        "ndarray", "NDArray"
    )
    sparse = mx.nd.sparse.csr_matrix((np.ones(2, "float32"), [0, 1], [0, 1, 2]), shape=(2, 1000000))
    assert "CSRNDArray 2×1000000 float32" in Balanced(sparse._repr_html_()).text


def test_traced_symbols_show_shape_and_type(capsys):
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            print(x, F.argmax(x), x.astype("float16")[0])
            return x

    net = Net(prefix="net_")
    net.hybridize()
    net(mx.nd.ones((3, 4)))
    printed = capsys.readouterr().out
    assert "<Symbol data 3x4 float32> <Symbol net_argmax0 " in printed and "4 float16>" in printed
    net(mx.nd.ones((7, 4)))  # printing is no fact about the shape: nothing is traced again
    assert "3x4" in printed and capsys.readouterr().out == ""
