"""`-symbol.json` files with loops and branches: MXNet's, our own, malformed ones."""

import json
from collections import Counter

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError
from gluonjit.gluon import SymbolBlock
from gluonjit.symbol import json_reader, subgraph

from . import control_flow_graph
from .early_graphs import graph, variable

RECORDED = json.loads(control_flow_graph.RECORDED.read_text())
TEXT = "\n".join(RECORDED["symbol"])


def check_outputs(outputs):
    assert len(outputs) == len(RECORDED["outputs"])
    for got, expected in zip(outputs, RECORDED["outputs"]):
        np.testing.assert_allclose(got.asnumpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("hybridize", [False, True])
def test_what_mxnet_wrote(hybridize):
    symbol = mx.sym.load_json(TEXT)
    assert symbol.tojson() == TEXT
    x, state = control_flow_graph.values(mx)
    net = SymbolBlock(symbol, [mx.sym.var("data0"), mx.sym.var("data1")])
    net.initialize(mx.init.One())
    net.params["net_dense0_bias"].set_data(mx.nd.zeros(2))
    net.hybridize(hybridize)
    check_outputs(net(x, state))


def test_executor():
    x, state = control_flow_graph.values(mx)
    shapes = {"data0": x.shape, "data1": state.shape}
    executor = mx.sym.load_json(TEXT).simple_bind(mx.cpu(), grad_req="null", **shapes)
    weights = {"net_dense0_weight": mx.nd.ones((2, 2)), "net_dense0_bias": mx.nd.zeros(2)}
    executor.copy_params_from({"data0": x, "data1": state, **weights})
    check_outputs(executor.forward())


def renamed(text):
    """`text` without what tells that a copy was made by hand."""
    data = json.loads(text)

    def visit(part):
        for node in part["nodes"]:
            if node["op"] == "_copy":
                node["name"] = "copy"
                node.pop("attrs", None)
            for inner in node.get("subgraphs", []):
                visit(inner)

    visit(data)
    return data


def test_export(monkeypatch, tmp_path):
    monkeypatch.setattr(subgraph, "_names", Counter())  # bodies are numbered
    net = control_flow_graph.model(mx)
    arguments = control_flow_graph.values(mx)
    check_outputs(net(*arguments))
    net.export(str(tmp_path / "net"))
    assert renamed((tmp_path / "net-symbol.json").read_text()) == renamed(TEXT)
    again = SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data0", "data1"], str(tmp_path / "net-0000.params")
    )
    check_outputs(again(*arguments))


def test_inputs_that_a_body_does_not_read():
    body = lambda x, states: (x * 2, [states[0], x])  # noqa: E731
    rows, states = mx.sym.contrib.foreach(body, mx.sym.var("x"), [mx.sym.var("s"), mx.sym.var("t")])
    symbol = mx.sym.Group([rows, *states])
    again = mx.sym.load_json(symbol.tojson())
    assert again.tojson() == symbol.tojson()
    assert again.infer_shape(x=(3, 2), s=(4,), t=(2,))[1] == [(3, 2), (4,), (2,)]


def test_summary(tmp_path):
    (tmp_path / "x.json").write_text(TEXT.replace('"op": "FullyConnected"', '"op": "Nonsense"'))
    found = json_reader.summary(tmp_path / "x.json")
    assert found.operators["_foreach"] == 2
    assert found.unknown == {"Nonsense": ["net_dense0_fwd"]}


# Malformed files


def edited(*path, to):
    data = json.loads(TEXT)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return data


def number(name):
    return next(k for k, node in enumerate(json.loads(TEXT)["nodes"]) if node["name"] == name)


FOREACH, WHILE, COND = map(number, ("net__foreach1", "net__while_loop0", "net__cond0"))


def deep(levels):
    node = json.loads(TEXT)["nodes"][FOREACH]
    for _ in range(levels):
        inner = graph([*(variable(f"v{k}") for k in range(len(node["inputs"]))), node], [[len(node["inputs"]), 0, 0]])
        node = {**node, "inputs": [[k, 0, 0] for k in range(len(node["inputs"]))], "subgraphs": [inner]}
    return graph([*(variable(f"v{k}") for k in range(len(node["inputs"]))), node], [[len(node["inputs"]), 0, 0]], 10901)


MALFORMED = {
    "no graphs": (
        edited("nodes", FOREACH, "subgraphs", to=[]),
        r"node \d+ \('net__foreach1'\): 0 subgraphs of _foreach; expected 1",
    ),
    "no list": (edited("nodes", FOREACH, "subgraphs", to={}), "subgraphs: an object of 0; expected a list"),
    "no graph": (
        edited("nodes", FOREACH, "subgraphs", 0, to=5),
        r"\('net__foreach1'\): subgraphs\[0\]: the graph: 5; expected an object",
    ),
    "of another operator": (
        edited("nodes", FOREACH, "op", to="Concat"),
        "1 subgraphs of Concat; expected none",
    ),
    "of a variable": (edited("nodes", 0, "subgraphs", to=[{}]), "a variable with 1 subgraphs; expected none"),
    "of two": (edited("nodes", COND, "op", to="_while_loop"), "3 subgraphs of _while_loop; expected 2"),
    "within": (
        edited("nodes", FOREACH, "subgraphs", 0, "nodes", 1, "inputs", to=[[7, 0, 0]]),
        r"\('net__foreach1'\): subgraphs\[0\]: node 1 \('.*'\): inputs\[0\]: node 7; expected an integer from 0 below",
    ),
    "heads": (edited("nodes", FOREACH, "subgraphs", 0, "heads", to=[]), r"subgraphs\[0\]: heads: none; expected at"),
    "fewer outputs": (
        edited("nodes", FOREACH, "subgraphs", 0, "heads", to=[[1, 0, 0]]),
        "num_outputs = 4, num_out_data = 2 and 2 states do not fit the graphs",
    ),
    "other states": (edited("nodes", FOREACH, "attrs", "num_out_data", to="3"), "num_out_data = 3 and 2 states do not"),
    "a place": (
        edited("nodes", FOREACH, "attrs", "in_data_locs", to="[70]"),
        r"positions \[70, 1, 5, 2, 3, 4\] do not fit the graphs",
    ),
    "a place twice": (edited("nodes", FOREACH, "attrs", "in_data_locs", to="[1]"), "do not fit the graphs"),
    "an operand": (
        edited("nodes", WHILE, "attrs", "cond_input_locs", to="[9]"),
        r"cond_input_locs = \(9,\) do not fit",
    ),
    "a variable": (edited("nodes", WHILE, "attrs", "func_var_locs", to="[0, 0]"), "func_var_locs = .* do not fit"),
    "no place": (edited("nodes", FOREACH, "attrs", "in_data_locs", to="[None]"), "format for in_data_locs"),
    "no operand": (edited("nodes", WHILE, "attrs", "func_input_locs", to="[None]"), "format for func_input_locs"),
    "no variable": (edited("nodes", WHILE, "attrs", "func_var_locs", to="[None, 1]"), "format for func_var_locs"),
    "a branch": (edited("nodes", COND, "attrs", "then_input_locs", to="[]"), "then_input_locs = .* do not fit"),
    "count": (edited("nodes", COND, "attrs", "num_args", to="60000"), "expected 60000, which num_args says"),
    "few": (edited("nodes", COND, "attrs", "num_args", to="2"), "num_args"),
    "deep": (deep(17), "a graph within 17; expected at most 16"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed(what):
    data, message = MALFORMED[what]
    with pytest.raises(CheckpointError, match=f"^<string>: .*{message}"):
        mx.sym.load_json(json.dumps(data))
