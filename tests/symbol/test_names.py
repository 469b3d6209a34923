"""Automatic names: managers, prefixes, scopes of attributes, and the names MXNet gives to operator nodes."""

import threading

import pytest

import gluonjit as mx
from gluonjit import sym


@pytest.fixture(autouse=True)
def fresh_names():
    with mx.name.NameManager():
        yield


@pytest.fixture
def x():
    return sym.var("x")


@pytest.fixture
def y():
    return sym.var("y")


# Read off MXNet 1.9.1: expression, then name, operator and attributes of the node it makes.
NODES = [
    ("x + y", "_plus0", "elemwise_add", {}),
    ("x - y", "_minus0", "elemwise_sub", {}),
    ("x * y", "_mul0", "elemwise_mul", {}),
    ("x / y", "_div0", "elemwise_div", {}),
    ("x ** y", "_power0", "_power", {}),
    ("x % y", "_mod0", "_mod", {}),
    ("x + 1", "_plusscalar0", "_plus_scalar", {"scalar": "1"}),
    ("1 + x", "_plusscalar0", "_plus_scalar", {"scalar": "1"}),
    ("x - 1", "_minusscalar0", "_minus_scalar", {"scalar": "1"}),
    ("1 - x", "_rminusscalar0", "_rminus_scalar", {"scalar": "1"}),
    ("x * 2", "_mulscalar0", "_mul_scalar", {"scalar": "2"}),
    ("x / 2", "_divscalar0", "_div_scalar", {"scalar": "2"}),
    ("2 / x", "_rdivscalar0", "_rdiv_scalar", {"scalar": "2"}),
    ("x ** 2", "_powerscalar0", "_power_scalar", {"scalar": "2"}),
    ("2 ** x", "_rpower_scalar0", "_rpower_scalar", {"scalar": "2"}),
    ("x % 2", "_modscalar0", "_mod_scalar", {"scalar": "2"}),
    ("3 % x", "_rmodscalar0", "_rmod_scalar", {"scalar": "3"}),
    ("-x", "_mulscalar0", "_mul_scalar", {"scalar": "-1.0"}),
    ("abs(x)", "abs0", "abs", {}),
    ("x > y", "_greater0", "_greater", {}),
    ("x >= 1", "_greater_equal_scalar0", "_greater_equal_scalar", {"scalar": "1"}),
    ("2 > x", "_lesser_scalar0", "_lesser_scalar", {"scalar": "2"}),
    ("x == y", "_equal0", "_equal", {}),
    ("x != 1", "_not_equal_scalar0", "_not_equal_scalar", {"scalar": "1"}),
    ("F.maximum(x, y)", "_maximum0", "_maximum", {}),
    ("F.maximum(1, x)", "_maximumscalar0", "_maximum_scalar", {"scalar": "1"}),
    ("F.minimum(x, 2)", "_minimumscalar0", "_minimum_scalar", {"scalar": "2"}),
    ("F.relu(x)", "relu0", "relu", {}),
    ("x.reshape((0, -1))", "reshape0", "Reshape", {"shape": "(0, -1)"}),
    ("x.reshape(shape=(0, -1))", "reshape0", "Reshape", {"shape": "(0, -1)"}),
    ("F.dot(x, y)", "dot0", "dot", {}),
    ("F.concat(x, y, dim=1)", "concat0", "Concat", {"dim": "1", "num_args": "2"}),
    ("F.split(x, num_outputs=2)", "split0", "SliceChannel", {"num_outputs": "2"}),
    ("F.FullyConnected(x, num_hidden=3)", "fullyconnected0", "FullyConnected", {"num_hidden": "3"}),
    ("x.transpose()", "transpose0", "transpose", {}),
    ("x.sum(axis=1)", "sum0", "sum", {"axis": "1"}),
    ("x.sum(axis=(0, 1))", "sum0", "sum", {"axis": "(0, 1)"}),
    ("x.flatten()", "flatten0", "Flatten", {}),
    ("F.broadcast_add(x, y)", "broadcast_add0", "broadcast_add", {}),
    ("F.softmax(x)", "softmax0", "softmax", {}),
    (
        "F.slice_axis(x, axis=0, begin=0, end=None)",
        "slice_axis0",
        "slice_axis",
        {"axis": "0", "begin": "0", "end": "None"},
    ),
    ("F.ones((2, 2))", "_ones0", "_ones", {"dtype": "float32", "shape": "(2, 2)"}),
    ("F.expand_dims(x, axis=0)", "expand_dims0", "expand_dims", {"axis": "0"}),
    ("F.identity(x)", "identity0", "_copy", {}),
    ("F.stack(x, y)", "stack0", "stack", {"num_args": "2"}),
    ("F.cast(x, dtype='float16')", "cast0", "Cast", {"dtype": "float16"}),
    ("F.swapaxes(x, 0, 1)", "swapaxes0", "SwapAxis", {"dim1": "0", "dim2": "1"}),
    ("F.flip(x, axis=0)", "flip0", "reverse", {"axis": "0"}),
    ("F.LeakyReLU(x)", "leakyrelu0", "LeakyReLU", {}),
    ("F.Pooling(x, kernel=(2, 2))", "pooling0", "Pooling", {"kernel": "(2, 2)"}),
    (
        "F.arange(3)",
        "_arange0",
        "_arange",
        {"dtype": "float32", "infer_range": "False", "repeat": "1", "start": "3", "step": "1.0", "stop": "None"},
    ),
]


@pytest.mark.parametrize(("text", "name", "op", "attrs"), NODES, ids=[n[0] for n in NODES])
def test_automatic_names(x, y, text, name, op, attrs):
    result = eval(text, {"F": sym, "x": x, "y": y})
    node, _ = result._heads[0]
    assert (node.name, node.op.name, node.attrs) == (name, op, attrs)
    suffixes = ["_output"] if len(result) == 1 else [f"_output{k}" for k in range(len(result))]
    assert result.list_outputs() == [name + suffix for suffix in suffixes]


def test_numbers_count_per_hint(x):
    assert [(x + 1).name, (x + 2).name, F_name(x * 2), (x + 3).name] == [
        "_plusscalar0",
        "_plusscalar1",
        "_mulscalar0",
        "_plusscalar2",
    ]


def F_name(s):
    return s.name


def test_prefix_goes_before_given_names_too(x):
    with mx.name.Prefix("net_"):
        fc = sym.FullyConnected(x, num_hidden=10, name="fc1")
        assert (x + 1).name == "net__plusscalar0"
    assert fc.list_arguments() == ["x", "net_fc1_weight", "net_fc1_bias"]
    assert (x + 1).name == "_plusscalar0"  # the outer manager goes on with its own numbers


def test_managers_nest_and_belong_to_a_thread():
    with mx.name.Prefix("a_"), mx.name.Prefix("b_"):
        assert mx.name.current().get(None, "h") == "b_h0"
        seen = []
        thread = threading.Thread(target=lambda: seen.append(mx.name.current().get(None, "h")))
        thread.start()
        thread.join()
        assert seen == ["h0"]


def test_a_manager_can_be_entered_again():
    manager = mx.name.Prefix("p_")
    with manager:
        mx.name.current().get(None, "h")
        with manager:
            assert mx.name.current().get(None, "h") == "p_h1"
    with manager:
        assert mx.name.current().get(None, "h") == "p_h2"


def test_missing_inputs_become_variables(x):
    bn = sym.BatchNorm(x, name="bn")
    assert bn.list_arguments() == ["x", "bn_gamma", "bn_beta"]
    assert bn.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert bn.list_inputs() == ["x", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"]
    assert sym.relu().list_arguments() == ["relu0_data"]
    assert sym.FullyConnected(x, num_hidden=2, no_bias=True, name="fc").list_arguments() == ["x", "fc_weight"]


def test_attribute_scope():
    with mx.AttrScope(ctx_group="dev1", __mood__="x"):
        q = sym.var("q")
        with mx.AttrScope(__mood__="y"):
            fc = sym.FullyConnected(q, num_hidden=2, name="fc", attr={"__a_b__": "c"})
    assert q.list_attr() == {"__mood__": "x", "__ctx_group__": "dev1", "ctx_group": "dev1"}
    shared = {"num_hidden": "2", "__a_b__": "c", "__mood__": "y", "__ctx_group__": "dev1", "ctx_group": "dev1"}
    assert {k: v for k, v in fc.attr_dict().items() if k != "q"} == dict.fromkeys(
        ("fc", "fc_weight", "fc_bias"), shared
    )
    assert sym.var("r").list_attr() == {}
    with pytest.raises(ValueError, match="Attributes need to be string"):
        mx.AttrScope(a=1)
