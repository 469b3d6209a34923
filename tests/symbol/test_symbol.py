"""`mx.sym.Symbol` without types: composition, listing, attributes, and the errors of what only arrays can do."""

import copy
import pickle

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd, sym
from gluonjit.base import MXNetError, NotImplementedForSymbol


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


@pytest.fixture
def fc(x):
    return sym.FullyConnected(x, num_hidden=4, name="fc")


# Printing and listing


def test_printing(x, y):
    assert repr(x) == "<Symbol x>"
    assert repr(x + y) == "<Symbol _plus0>"
    assert repr(sym.Group([x + y, sym.split(x, num_outputs=2)])) == "<Symbol group [_plus1, split0, split0]>"
    assert str(sym).startswith("<module 'gluonjit.symbol' from ")


def test_outputs_by_number_and_name(x, y):
    g = sym.Group([x + y, sym.split(x, num_outputs=2)])
    assert len(g) == 3
    assert g.name is None
    assert g.list_outputs() == ["_plus0_output", "split0_output0", "split0_output1"]
    assert g[2].list_outputs() == ["split0_output1"]
    assert g["split0_output0"].list_outputs() == ["split0_output0"]
    assert g[1:].list_outputs() == ["split0_output0", "split0_output1"]
    assert [s.name for s in g] == ["_plus0", "split0", "split0"]
    a, b = sym.split(x, num_outputs=2)
    assert (a + b).list_arguments() == ["x"]


def test_internals_and_children(x):
    bn = sym.BatchNorm(x + 1, name="bn")
    assert bn.get_internals().list_outputs() == [
        "x",
        "_plusscalar0_output",
        "bn_gamma",
        "bn_beta",
        "bn_moving_mean",
        "bn_moving_var",
        "bn_output",
    ]
    assert bn.get_internals()["_plusscalar0_output"].list_arguments() == ["x"]
    assert bn.get_children()[0].name == "_plusscalar0"
    assert x.get_children() is None


def test_a_deep_graph_is_no_recursion(x):
    for _ in range(5000):
        x = x + 1
    assert x.list_arguments() == ["x"]
    assert copy.copy(x).list_outputs() == x.list_outputs()


# Attributes


def test_variable_attributes():
    w = sym.var(
        "w", attr={"foo": "bar"}, shape=(2, 3), lr_mult=0.5, wd_mult=0, dtype="float16", init=mx.init.Normal(0.1)
    )
    own = {
        "foo": "bar",
        "__shape__": "(2, 3)",
        "__lr_mult__": "0.5",
        "__wd_mult__": "0",
        "__dtype__": "2",
        "__init__": '["normal", {"sigma": 0.1}]',
    }
    assert w._heads[0][0].attrs == own
    assert w.list_attr() == {**own, "lr_mult": "0.5", "wd_mult": "0"}
    assert w.attr("lr_mult") == "0.5"
    assert w.attr("nothing") is None
    assert sym.var("v", __foo__=1).list_attr() == {"__foo__": "1"}
    with pytest.raises(ValueError, match="Attribute name=foo is not supported"):
        sym.var("v", foo=1)
    with pytest.raises(TypeError, match="Expect a string"):
        sym.var(3)


def test_attributes_of_a_scope_and_of_the_variable():
    with mx.AttrScope(lr_mult="3", ctx_group="dev1"):
        given = sym.var("v", lr_mult=2.0, shape=(np.int64(3), 0))
        assert given._heads[0][0].attrs == {"__lr_mult__": "2.0", "__ctx_group__": "dev1", "__shape__": "(3, 0)"}
        assert sym.var("v", attr={"__lr_mult__": "5"}).attr("lr_mult") == "5"
        assert sym.var("v").attr("lr_mult") == "3"
        with pytest.raises(MXNetError, match="w_lr_mult is deprecated"):
            sym.var("v", attr={"w_lr_mult": "2"})
        with pytest.raises(ValueError, match="only accepts string"):
            sym.var("v", attr={"w": 5})


def test_operator_attributes_are_what_was_passed(x):
    assert sym.clip(x, 0, a_max=1.0).list_attr() == {"a_min": "0", "a_max": "1.0"}
    assert x.astype(np.float16).list_attr() == {"dtype": "float16"}
    assert sym.FullyConnected(x, num_hidden=3, name="fc", attr={"lr_mult": "2"}).attr_dict()["fc_bias"] == {
        "num_hidden": "3",
        "__lr_mult__": "2",
        "lr_mult": "2",
    }
    with pytest.raises(MXNetError, match="weight_lr_mult is deprecated"):
        sym.FullyConnected(x, num_hidden=3, attr={"weight_lr_mult": "2"})
    with pytest.raises(DeprecationWarning):
        x.list_attr(recursive=True)


def test_set_attr_changes_the_node(fc):
    fc._set_attr(num_hidden="7", __mood__="so")
    assert fc.list_attr() == {"num_hidden": "7", "__mood__": "so"}
    assert fc.infer_shape(x=(2, 3))[1] == [(2, 7)]
    with pytest.raises(ValueError, match="only accepts string"):
        fc._set_attr(num_hidden=7)


def test_a_scalar_keeps_its_exact_value(x):
    node, _ = (x * np.float32(0.1))._heads[0]
    assert node.parsed["scalar"] == float(np.float32(0.1))
    assert float(node.attrs["scalar"]) == node.parsed["scalar"]


# Composition


def test_call_replaces_variables(x, y, fc):
    g = fc(x=y * 2, fc_bias=sym.var("b"))
    assert g.list_arguments() == ["y", "fc_weight", "b"]
    assert fc.list_arguments() == ["x", "fc_weight", "fc_bias"]  # the original is untouched
    with pytest.raises(MXNetError, match=r"Keyword argument name z not found.\nCandidate arguments:\n\t\[0\]x\n"):
        fc(z=y)
    with pytest.raises(MXNetError, match="General composition only support kwargs"):
        fc(y)
    with pytest.raises(TypeError, match="Compose expect `Symbol`"):
        fc(3)
    with pytest.raises(TypeError, match="either as positional or keyword"):
        fc(y, x=y)


def test_inputs_by_keyword(x, y):
    assert sym.elemwise_add(rhs=x, lhs=y).list_arguments() == ["y", "x"]
    assert sym.elemwise_add(x).list_arguments() == ["x", "elemwise_add1_rhs"]
    assert sym.Concat(arg0=x, arg1=y, dim=0).list_arguments() == ["x", "y"]
    with pytest.raises(MXNetError, match="Keyword argument name a not found"):
        sym.Concat(a=x, b=y, dim=0)


def test_a_symbol_of_several_outputs_is_no_operand(x):
    parts = sym.split(x, num_outputs=2)
    with pytest.raises(MXNetError, match="Keyword Argument data is a tuple, single value is required"):
        sym.relu(parts)
    with pytest.raises(MXNetError, match="is a tuple, single value is required"):
        parts + parts


def test_group_takes_symbols(x):
    for wrong in ([], [x, 1]):
        with pytest.raises(TypeError, match="Expected a list of symbols as input"):
            sym.Group(wrong)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies(fc, duplicate):
    g = sym.Group([fc, sym.split(fc, num_outputs=2, name="s")])
    twin = duplicate(g)
    assert twin.list_outputs() == g.list_outputs()
    assert twin.attr_dict() == g.attr_dict()
    twin[0]._set_attr(num_hidden="9")
    assert g.attr_dict()["fc"] == {"num_hidden": "4"}


def test_debug_str(x):
    lines = (2 * x + sym.sin(x)).debug_str().splitlines()
    assert lines[:5] == [
        "Symbol Outputs:",
        "\toutput[0]=_plus0(0)",
        "Variable:x",
        "-" * 20,
        "Op:_mul_scalar, Name=_mulscalar0",
    ]
    assert "\targ[0]=x(0) version=0" in lines


# What only arrays can do. Read off MXNet 1.9.1: class, and text where Python raised it.

REFUSED = [
    ("x.shape", AttributeError, "'Symbol' object has no attribute 'shape'"),
    ("x.dtype", AttributeError, "'Symbol' object has no attribute 'dtype'"),
    ("x.context", AttributeError, "'Symbol' object has no attribute 'context'"),
    ("x.ctx", AttributeError, "'Symbol' object has no attribute 'ctx'"),
    ("x.size", AttributeError, "'Symbol' object has no attribute 'size'"),
    ("x.ndim", AttributeError, "'Symbol' object has no attribute 'ndim'"),
    ("x.T", AttributeError, "'Symbol' object has no attribute 'T'"),
    ("x.stype", AttributeError, "'Symbol' object has no attribute 'stype'"),
    ("x.copyto(x)", AttributeError, "'Symbol' object has no attribute 'copyto'"),
    ("x.attach_grad()", AttributeError, "'Symbol' object has no attribute 'attach_grad'"),
    ("x.nosuch", AttributeError, "'Symbol' object has no attribute 'nosuch'"),
    ("x[0, 0]", TypeError, "Symbol only support integer index to fetch i-th output"),
    ("x[:, 0]", TypeError, "Symbol only support integer index to fetch i-th output"),
    ("x[None]", TypeError, "Symbol only support integer index to fetch i-th output"),
    ("x[x]", TypeError, "Symbol only support integer index to fetch i-th output"),
    ("x[1]", IndexError, ""),
    ("x[-1]", MXNetError, "Symbol only accept nonnegative index"),
    ("x['foo']", ValueError, 'Cannot find output that matches name "foo"'),
    (
        "x.asnumpy()",
        NotImplementedForSymbol,
        "Function asnumpy is not implemented for Symbol and only available in NDArray.",
    ),
    ("x.asscalar()", NotImplementedForSymbol, "Function asscalar is not implemented"),
    ("x.wait_to_read()", NotImplementedForSymbol, "Function wait_to_read is not implemented"),
    ("x.detach()", NotImplementedForSymbol, "Function detach is not implemented"),
    ("x.copy()", NotImplementedForSymbol, "Function copy is not implemented"),
    ("x.backward()", NotImplementedForSymbol, "Function backward is not implemented"),
    ("x.as_in_context(1)", TypeError, "as_in_context() takes 1 positional argument but 2 were given"),
    ("bool(x)", NotImplementedForSymbol, 'Function __bool__ (namely operator "bool") is not implemented'),
    ("not x", NotImplementedForSymbol, 'Function __bool__ (namely operator "bool") is not implemented'),
    ("x and x", NotImplementedForSymbol, 'Function __bool__ (namely operator "bool") is not implemented'),
    (
        "1 if x.sum() > 0 else 2",
        NotImplementedForSymbol,
        'Function __bool__ (namely operator "bool") is not implemented',
    ),
    ("float(x)", TypeError, "float() argument must be a string or a real number, not 'Symbol'"),
    ("int(x)", TypeError, "int() argument must be a string, a bytes-like object or a real number, not 'Symbol'"),
    ("x == None", TypeError, "type <class 'NoneType'> not supported"),
    ("x + None", TypeError, "type <class 'NoneType'> not supported"),
    ("x + 'a'", TypeError, "type <class 'str'> not supported"),
    ("x + np.ones(2)", TypeError, "type <class 'numpy.ndarray'> not supported"),
    ("x + nd.ones(2)", TypeError, "type <class 'gluonjit.ndarray.ndarray.NDArray'> not supported"),
    ("x @ x", TypeError, "unsupported operand type(s) for @: 'Symbol' and 'Symbol'"),
    ("x // 2", TypeError, "unsupported operand type(s) for //: 'Symbol' and 'int'"),
    ("x & 1", TypeError, "unsupported operand type(s) for &: 'Symbol' and 'int'"),
    ("~x", TypeError, "bad operand type for unary ~: 'Symbol'"),
    ("round(x)", TypeError, "type Symbol doesn't define __round__ method"),
    ("divmod(x, 2)", TypeError, "unsupported operand type(s) for divmod(): 'Symbol' and 'int'"),
    ("hash(x)", TypeError, "unhashable type: 'Symbol'"),
    ("F.nosuch", AttributeError, "module 'gluonjit.symbol' has no attribute 'nosuch'"),
    ("F.array([1])", AttributeError, "module 'gluonjit.symbol' has no attribute 'array'"),
    ("F.relu(nd.ones(1))", AssertionError, "Argument data must be Symbol instances, but got"),
    ("F.relu(3)", AssertionError, "Argument data must be Symbol instances, but got 3"),
    (
        "F.concat([x])",
        AssertionError,
        "Positional arguments must be Symbol instances, but got a list of 1 such; write *arrays",
    ),
    ("F.Activation(x, act_type='foo')", MXNetError, "Invalid Input: 'foo', valid values are: "),
    (
        "F.FullyConnected(x)",
        MXNetError,
        "Required parameter num_hidden of int is not presented, in operator FullyConnected",
    ),
    (
        "F.FullyConnected(x, num_hidden='abc')",
        MXNetError,
        "Invalid Parameter format for num_hidden expect int but value='abc', in operator FullyConnected",
    ),
    (
        "x.reshape(-1, 2)",
        MXNetError,
        "Invalid Parameter format for reverse expect boolean but value='2', in operator Reshape",
    ),
]


@pytest.mark.parametrize(("text", "error", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_only_arrays_can_do(x, text, error, message):
    with pytest.raises(error) as caught:
        eval(text, {"F": sym, "x": x, "np": np, "nd": nd})
    assert caught.type is error or issubclass(caught.type, MXNetError)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("x += 1", NotImplementedForSymbol, 'Function __iadd__ (namely operator "+=") with arguments '),
        (
            "x -= 1",
            NotImplementedForSymbol,
            "Function __isub__ (namely operator \"-=\") with arguments (<class 'int'>) ",
        ),
        (
            "x *= 2",
            NotImplementedForSymbol,
            "Function __imul__ (namely operator \"*=\") with arguments (<class 'int'>) ",
        ),
        ("x /= 2", NotImplementedForSymbol, 'Function __itruediv__ (namely operator "/=") with arguments '),
        ("x[0] = 2", TypeError, "'Symbol' object does not support item assignment"),
        ("x.foo = 3", AttributeError, "'Symbol' object has no attribute 'foo'"),
    ],
)
def test_statements_that_only_arrays_have(x, statement, error, message):
    with pytest.raises(error) as caught:
        exec(statement, {"x": x})
    assert message in str(caught.value)


def test_what_works_on_symbols_as_on_arrays(x):
    assert len(x) == 1
    assert x[0].name == x[0:1].name == "x"
    assert [s.name for s in x] == ["x"]
    assert x in [x]
    assert np.sum(x).name == "sum0"
    assert (np.float32(2) * x).name == "_mulscalar0"
    x %= 2  # no in-place operator of its own: a new symbol
    x **= 2
    assert x.name == "_powerscalar0"


def test_numbers_of_numpy_are_written_as_pythons():
    """NumPy 2 prints np.int64(1) within a tuple, which no reader of graphs takes for a number."""
    one = np.int64(1)
    x = sym.var("x", shape=(one, 3))
    assert x.attr("__shape__") == "(1, 3)"
    assert sym.transpose(x, axes=(one, 0), name="t").attr_dict()["t"]["axes"] == "(1, 0)"
    assert sym.sum(x, axis=[one], keepdims=np.True_, name="s").attr_dict()["s"] == {"axis": "[1]", "keepdims": "True"}
    anchors = sym.contrib.MultiBoxPrior(x, sizes=(np.float64(0.5),), name="m")
    assert anchors.attr_dict()["m"]["sizes"] == "(0.5,)"
    parts = sym.split_v2(sym.var("y"), (one, np.int64(2)))
    assert [y.shape for y in sym.load_json(parts.tojson()).eval(y=mx.nd.ones((4,)))] == [(1,), (1,), (2,)]
