"""`-symbol.json` files: early versions, every way to be malformed, and writing."""

import copy
import json
import operator

import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError
from gluonjit.files import json_file
from gluonjit.symbol.graph import post_order

from .early_graphs import GRAPHS, RECORDED, graph, variable


def load(data):
    return mx.sym.load_json(data if isinstance(data, str) else json.dumps(data))


# Reading


@pytest.mark.parametrize("name", GRAPHS)
def test_early_versions_mean_what_mxnet_says(name):
    assert load(GRAPHS[name]).tojson() == json.loads(RECORDED.read_text())[name]


def test_operators_of_gpus():
    data = json.loads(mx.sym.BatchNorm(mx.sym.var("x"), fix_gamma=False, name="bn").tojson())
    expected = json.dumps(data)
    data["nodes"][-1]["op"] = "CuDNNBatchNorm"
    assert load(data).tojson() == load(expected).tojson()


def activation(inputs, attrs=None, **more):
    attrs = {"act_type": "relu"} if attrs is None else attrs
    return {"op": "Activation", "name": "act", "attrs": attrs, "inputs": inputs, **more}


def small():
    """x → Activation"""
    return graph([variable("x"), activation([[0, 0, 0]])], [[1, 0, 0]], 10901)


@pytest.mark.parametrize("value", ["True", "true", "1"])
def test_spellings_of_truth(value):
    fc = {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "3", "no_bias": value}}
    symbol = load(graph([variable("x"), variable("w"), {**fc, "inputs": [[0, 0, 0], [1, 0, 0]]}], [[2, 0, 0]], 10901))
    assert symbol.infer_shape(x=(2, 4))[1] == [(2, 3)]


@pytest.mark.parametrize("value", ["(3, 3)", "(3,3)", "[3,3]", "( 3, 3L)"])
def test_spellings_of_tuples(value):
    pool = {"op": "Pooling", "name": "pool", "attrs": {"kernel": value}, "inputs": [[0, 0, 0]]}
    assert load(graph([variable("x"), pool], [[1, 0, 0]], 10901)).infer_shape(x=(1, 2, 8, 8))[1] == [(1, 2, 6, 6)]


@pytest.mark.parametrize("key", ["attrs", "node_row_ptr"])
def test_what_may_be_missing(key):
    data = json.loads(load(small()).tojson())
    del data[key]
    assert load(data).list_outputs() == ["act_output"]


def test_unreachable_nodes_are_dropped():
    data = graph([variable("x"), variable("y"), activation([[1, 0, 0]])], [[2, 0, 0]], 10901)
    assert load(data).list_inputs() == ["y"]


def test_a_later_version_is_read():
    data = small()
    data["attrs"]["mxnet_version"] = ["int", 20000]
    assert load(data).list_arguments() == ["x"]


def test_what_editors_leave(tmp_path):
    """A byte order mark in front, control characters within, something behind."""
    data = small()
    data["nodes"][0]["name"] = "x\u00e9\x01"
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(data, ensure_ascii=False).encode() + b"\nbye")
    assert mx.sym.load(tmp_path / "x.json").list_inputs() == ["x\u00e9\x01"]


def test_long_chains():
    nodes = [variable("x"), *(activation([[k, 0, 0]]) for k in range(5000))]
    symbol = load(graph(nodes, [[5000, 0, 0]], 10901))
    assert len(post_order(symbol._heads)) == 5001
    assert load(symbol.tojson()).list_outputs() == ["act_output"]


def test_types_of_arguments():
    with pytest.raises(TypeError, match="fname required to be string"):
        mx.sym.load_json(b"{}")
    with pytest.raises(TypeError, match="fname need to be string"):
        mx.sym.load(5)
    with pytest.raises(TypeError, match="fname need to be string"):
        mx.sym.var("x").save(5)


def test_a_file_that_is_not_there():
    with pytest.raises(mx.MXNetError, match=r"cannot read nowhere\.json: No such file or directory"):
        mx.sym.load("nowhere.json")


# Malformed files


def edited(path, edit):
    """A small graph, after `edit(the object or list that holds `path`, the last key)`."""

    def make():
        data = place = small()
        for key in path[:-1]:
            place = place[key]
        edit(place, path[-1])
        return data

    return make


def change(*path, to):
    return edited(path, lambda place, key: operator.setitem(place, key, to))


def without(*path):
    return edited(path, operator.delitem)


EDGE = ("nodes", 1, "inputs", 0)

MALFORMED = {
    "no graph": (lambda: [], "the graph: \\[\\]; expected an object"),
    "no nodes": (without("nodes"), 'the graph: Missing field "nodes"; expected nodes, arg_nodes, heads'),
    "no arg_nodes": (without("arg_nodes"), 'Missing field "arg_nodes"'),
    "no heads": (without("heads"), 'Missing field "heads"'),
    "empty heads": (change("heads", to=[]), "heads: none; expected at least one"),
    "head": (change("heads", 0, to=[2, 0, 0]), r"heads\[0\]: node 2; expected an integer from 0 below 2"),
    "head output": (
        change("heads", 0, 1, to=1),
        r"heads\[0\]: node 1 \('act'\), output 1; expected an integer",
    ),
    "nodes": (change("nodes", to={}), "nodes: an object of 0; expected a list"),
    "node": (change("nodes", 1, to=3), "node 1: 3; expected an object"),
    "unknown key": (change("nodes", 1, "zzz", to=3), "node 1: unknown key 'zzz'; expected op, name, inputs, attrs"),
    "unknown key on top": (change("zzz", to=3), "the graph: unknown key 'zzz'; expected nodes, arg_nodes, heads"),
    "no op": (without("nodes", 1, "op"), 'node 1: Missing field "op"'),
    "op": (change("nodes", 1, "op", to=5), "node 1: op: 5; expected a string"),
    "name": (change("nodes", 1, "name", to=None), "node 1: name: None; expected a string"),
    "unknown op": (
        change("nodes", 1, "op", to="Activatoin"),
        r"node 1 \('act'\): Failed loading Op act of type Activatoin: Operator Activatoin is not registered",
    ),
    "attrs": (change("nodes", 1, "attrs", to=[]), r"node 1 \('act'\): attrs: \[\]; expected an object"),
    "attr": (
        change("nodes", 1, "attrs", "act_type", to=5),
        r"node 1 \('act'\): attrs: act_type is 5; expected a str",
    ),
    "attr value": (
        change("nodes", 1, "attrs", "act_type", to="x"),
        r"node 1 \('act'\): Invalid Input: 'x', valid",
    ),
    "unknown attr": (
        change("nodes", 1, "attrs", "bogus", to="x"),
        r"node 1 \('act'\): Cannot find argument 'bogus'",
    ),
    "missing attr": (without("nodes", 1, "attrs"), r"node 1 \('act'\): Required parameter act_type"),
    "inputs": (change("nodes", 1, "inputs", to="x"), r"node 1 \('act'\): inputs: 'x'; expected a list"),
    "edge": (change(*EDGE, to=[0]), r"node 1 \('act'\): inputs\[0\]: \[0\]; expected \[node, output\] or"),
    "edge to itself": (change(*EDGE, 0, to=1), r"inputs\[0\]: node 1; expected an integer from 0 below 1"),
    "edge to nothing": (change(*EDGE, 0, to=-1), r"inputs\[0\]: node -1; expected an integer from 0"),
    "edge by truth": (change(*EDGE, 0, to=True), r"inputs\[0\]: node True; expected an integer"),
    "edge by fraction": (change(*EDGE, 0, to=0.0), r"inputs\[0\]: node 0.0; expected an integer"),
    "edge output": (
        change(*EDGE, 1, to=1),
        r"inputs\[0\]: node 0 \('x'\), output 1; expected an integer",
    ),
    "edge version": (change(*EDGE, 2, to="0"), r"inputs\[0\]: version '0'; expected an integer from 0"),
    "too few inputs": (change("nodes", 1, "inputs", to=[]), "0 inputs of Activation; expected 1 .data."),
    "too many inputs": (change("nodes", 1, "inputs", to=[[0, 0, 0]] * 3), "3 inputs of Activation; expected 1 .data."),
    "variable with inputs": (change("nodes", 1, "op", to="null"), "a variable with 1 inputs; expected none"),
    "subgraphs": (change("nodes", 1, "subgraphs", to=[{}]), "1 subgraphs of Activation; expected none"),
    "arg_nodes": (change("arg_nodes", to=[1]), r"arg_nodes\[0\]: node 1 \('act'\); expected a variable"),
    "arg_nodes range": (change("arg_nodes", to=[2]), r"arg_nodes\[0\]: node 2; expected an integer from 0 below 2"),
    "node_row_ptr": (change("node_row_ptr", to=[0, "x"]), r"node_row_ptr\[1\]: position 'x'; expected an integer"),
    "version": (change("attrs", "mxnet_version", to=["str", "1"]), "attrs: mxnet_version .'str', '1'.; expected ..int"),
    "graph attrs": (change("attrs", to=5), "attrs: 5; expected an object"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed(what):
    make, message = MALFORMED[what]
    with pytest.raises(CheckpointError, match=f"^<string>: .*{message}"):
        load(make())


@pytest.mark.parametrize("op", ["Custom", "_Native", "_NDArray"])
def test_operators_written_in_python_never_run(op):
    """Not even if there is one of that name."""

    class Sneaky(mx.operator.CustomOpProp):
        def __init__(self, **attrs):
            raise AssertionError("it has run")

    mx.operator.register("sneaky")(Sneaky)
    node = {"op": op, "name": "n", "attrs": {"op_type": "sneaky", "info": "0"}, "inputs": [[0, 0, 0]]}
    with pytest.raises(CheckpointError, match=rf"node 1 \('n'\): Failed loading Op n of type {op}: it was written in "):
        load(graph([variable("x"), node], [[1, 0, 0]], 10901))


def counted(op, **attrs):
    node = {"op": op, "name": "n", "attrs": attrs, "inputs": [[0, 0, 0]]}
    return json.dumps(graph([variable("x"), node], [[1, 0, 0]], 800))


ODD = {"shape": ["9" * 5000, "(" * 1000, "1e400", "nan", "((1,),)", "__import__('os')", "x" * 100_000, "\0", "{}"]}
ODD["dtype"] = [*ODD["shape"][:7], "(,)", "(1,2", "(1,)f4,f4", "(99999999999999,)f4"]  # NumPy's own language


@pytest.mark.parametrize(("attr", "value"), [(a, v) for a, values in ODD.items() for v in values], ids=lambda x: x[:9])
def test_odd_values_of_attributes(attr, value):
    node = {"op": "_zeros", "name": "n", "attrs": {"shape": "(1,)", attr: value}, "inputs": []}
    data = graph([node], [[0, 0, 0]], 10901)
    with pytest.raises(CheckpointError, match="^<string>: node 0 "):
        load(data)


BROKEN_TEXT = {
    "nothing": ("", "line 1, column 1: not JSON .Expecting value.; expected a graph"),
    "cut": (json.dumps(small(), indent=1)[:40], "line 5, column 4: not JSON .Unterminated string"),
    "deep": ("[" * 1000000, "the file: nested too deep"),
    "deep, but read": ("[" * 900 + "]" * 900, "the graph: a list of 1; expected an object"),
    "deep within": (json.dumps(small()).replace("[0, 0, 0]", "[" * 50000), "the file: nested too deep"),
    "number": ('{"nodes": ' + "9" * 5000 + "}", "the file: not JSON|nodes: "),
    "outputs": (
        counted("SliceChannel", num_outputs="1000000000"),
        r"node 1 \('n'\): value 1000000000 for Parameter num_outputs exceed bound \[1,65536\]",
    ),
    "inputs": (
        counted("Concat", num_args="60000"),
        r"node 1 \('n'\): 1 inputs of Concat; expected 60000, which num_args says",
    ),
    "no count": (counted("Concat", num_args="-5"), "num_args"),
}


@pytest.mark.parametrize("what", BROKEN_TEXT)
def test_broken_text(what):
    text, message = BROKEN_TEXT[what]
    with pytest.raises(CheckpointError, match=f"^<string>: .*({message})"):
        load(text)


def test_not_text(tmp_path):
    (tmp_path / "x.json").write_bytes(json.dumps(small()).encode().replace(b"act", b"a\xfft", 1))
    with pytest.raises(CheckpointError, match=r"x\.json: byte \d+: not UTF-8 .invalid start byte.; expected text"):
        mx.sym.load(tmp_path / "x.json")


def test_size(monkeypatch, tmp_path):
    monkeypatch.setattr(json_file, "MAX_BYTES", 100)
    mx.sym.var("x").save(tmp_path / "x.json")
    with pytest.raises(CheckpointError, match=r"x\.json: the file: more than 100 bytes; expected a graph"):
        mx.sym.load(tmp_path / "x.json")


def test_number_of_values():
    """`[[],[],…` would become twenty times as long in memory."""
    with pytest.raises(CheckpointError, match="^<string>: the file: 5000001 values; expected a graph of at most"):
        load("[" + "[]," * 2_500_000)


# Writing


def heads(text):
    return json.loads(text)["heads"]


def edges(symbol):
    """{node: versions of its inputs' edges} of what is written."""
    return {row["name"]: [edge[2] for edge in row["inputs"]] for row in json.loads(symbol.tojson())["nodes"]}


def test_layout():
    x = mx.sym.var("a", shape=(2, 3))
    text = """{
  "nodes": [
    {
      "op": "null", 
      "name": "a", 
      "attrs": {"__shape__": "(2, 3)"}, 
      "inputs": []
    }, 
    {
      "op": "clip", 
      "name": "c", 
      "attrs": {
        "a_max": "1", 
        "a_min": "0"
      }, 
      "inputs": [[0, 0, 0]]
    }
  ], 
  "arg_nodes": [0], 
  "node_row_ptr": [0, 1, 2], 
  "heads": [[1, 0, 0]], 
  "attrs": {"mxnet_version": ["int", 10901]}
}"""  # noqa: W291 (MXNet's spaces)
    assert mx.sym.clip(x, 0, 1, name="c").tojson() == text


def test_long_lists_have_lines():
    inputs = [mx.sym.var(f"v{k}") for k in range(11)]
    assert '"heads": [[0, 0, 0], [1, 0, 0]], ' in mx.sym.Group(inputs[:2]).tojson()
    text = mx.sym.Concat(*inputs).tojson()
    assert '      "inputs": [\n        [0, 0, 0], \n        [1, 0, 0], \n' in text
    assert '  "arg_nodes": [\n    0, \n    1, \n' in text
    assert '"node_row_ptr": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]' in mx.sym.Group(inputs[:9]).tojson()
    assert '"arg_nodes": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]' in mx.sym.Group(inputs[:10]).tojson()
    assert '"node_row_ptr": [\n    0, \n' in mx.sym.Group(inputs[:10]).tojson()


def test_strings():
    symbol = mx.sym.var('a"b\\c\té', attr={'k"': "\n\r/", "\uffff": "1", "\U0001f600": "2", "Z": "3"})
    text = symbol.tojson()
    assert r'"name": "a\"b\\c\té"' in text
    assert list(json.loads(text)["nodes"][0]["attrs"]) == ["Z", 'k"', "\uffff", "\U0001f600"]  # by their bytes
    assert load(text).tojson() == text


def test_versions_count_the_writers_of_a_state():
    x, state = mx.sym.var("x"), mx.sym.var("m")
    one = mx.sym.BatchNorm(x, moving_mean=state, name="one")
    two = mx.sym.BatchNorm(one, moving_mean=state, name="two")
    symbol = mx.sym.elemwise_add(two, state, name="sum")
    assert edges(symbol)["one"] == [0, 0, 0, 1, 1]
    assert edges(symbol)["two"] == [0, 0, 0, 2, 1]
    assert edges(symbol)["sum"] == [0, 2]


def test_versions_of_a_file_are_kept():
    data = json.loads(mx.sym.BatchNorm(mx.sym.var("x"), name="bn").tojson())
    data["nodes"][-1]["inputs"][3][2] = 7
    symbol = load(data)
    assert edges(symbol)["bn"] == [0, 0, 0, 7, 1]
    assert edges(copy.deepcopy(symbol))["bn"] == [0, 0, 0, 7, 1]


def test_states_say_how_to_begin():
    table = mx.sym.BatchNorm(mx.sym.var("x"), moving_var=mx.sym.var("v", init=mx.init.Zero()), name="bn").attr_dict()
    assert table == {"bn_moving_mean": {"__init__": '["zero", {}]'}, "v": {"__init__": '["zero", {}]'}}
    leaky = mx.sym.LeakyReLU(mx.sym.var("x"), act_type="prelu", name="leaky")
    assert leaky.attr_dict()["leaky_gamma"]["__init__"] == '["Constant", {"value": 0.25}]'


def test_amp_casts():
    x = mx.sym.var("x")
    cast = mx.sym.amp_cast(x, dtype="float16")
    symbol = mx.sym.relu(mx.sym.relu(cast, name="inner"), name="y")
    assert "amp_cast" in symbol.tojson(remove_amp_cast=False)
    assert symbol.tojson() == mx.sym.relu(mx.sym.relu(x, name="inner"), name="y").tojson()
    # One that is an output itself stays.
    both = mx.sym.Group([symbol, cast]).tojson()
    assert both.count('"op": "amp_cast"') == 1
    assert heads(both) == [[2, 0, 0], [3, 0, 0]]


def test_round_trip(tmp_path):
    x = mx.sym.var("x")
    left, right = mx.sym.split(mx.sym.Dropout(mx.sym.Convolution(x, kernel=(3, 3), num_filter=4)), num_outputs=2)
    symbol = mx.sym.Group([mx.sym.Concat(right, left), left + 1, x])
    symbol.save(tmp_path / "x.json")
    again = mx.sym.load(str(tmp_path / "x.json"))
    assert again.list_outputs() == symbol.list_outputs()
    assert again.list_arguments() == symbol.list_arguments()
    assert again.tojson() == symbol.tojson() == (tmp_path / "x.json").read_text()
    assert again.infer_shape(x=(1, 3, 8, 8)) == symbol.infer_shape(x=(1, 3, 8, 8))


# NumPy's semantics of shapes


def test_np_shape_is_written_and_read():
    """What MXNet 1.9.1 writes under `np_shape`, and what it says of that there."""
    with mx.util.np_shape(True):
        written = (mx.sym.var("x", shape=(0, 3)) * 2).tojson()
        single = (mx.sym.var("x", shape=()) * 2).tojson()
        made = mx.sym.zeros((0, 2), name="z").tojson()
        assert load(written).infer_shape() == ([(0, 3)], [(0, 3)], [])
        assert load(single).infer_shape() == ([()], [()], [])
        assert load(made).infer_shape() == ([], [(0, 2)], [])
        assert load(written).tojson() == written
    tail = '  "attrs": {\n    "is_np_shape": ["int", 1], \n    "mxnet_version": ["int", 10901]\n  }\n}'
    assert written.endswith(tail) and single.endswith(tail)
    assert json.loads(load(written).tojson())["attrs"] == {"mxnet_version": ["int", 10901]}
    with pytest.warns(UserWarning, match="Cannot decide shape"):
        assert load(written).infer_shape() == (None, None, None)


def test_graphs_without_np_shape_keep_their_unknown_dimensions():
    plain = (mx.sym.var("x", shape=(0, 3)) * 2).tojson()
    with mx.util.np_shape(True):
        graph = load(plain)
        assert graph.attr_dict()["x"]["__shape__"] == "(-1, 3)"
        with pytest.warns(UserWarning, match="Cannot decide shape"):
            assert graph.infer_shape() == (None, None, None)
        assert graph.infer_shape(x=(2, 3)) == ([(2, 3)], [(2, 3)], [])
        assert json.loads(graph.tojson())["attrs"]["is_np_shape"] == ["int", 1]


def test_a_malformed_np_shape_is_refused():
    data = small()
    data["attrs"]["is_np_shape"] = "yes"
    with mx.util.np_shape(True), pytest.raises(CheckpointError, match="attrs: is_np_shape 'yes'; expected"):
        load(data)
