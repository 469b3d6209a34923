"""`trace`: names and places of what it records, facts and the signatures they admit, deferred shapes, refusals."""

from collections import namedtuple

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.base import MXNetError, TraceError
from gluonjit.codegen.target import host
from gluonjit.gluon import nn
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.kernels.product_plans import Conv, Winograd
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import tensor
from gluonjit.ir.work import origin, origins
from gluonjit.operators.registry import Operator
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.trace import parameter_shapes, trace


def block_of(program, **kwargs):
    class Program(gluon.HybridBlock):
        def hybrid_forward(self, F, *args):
            return program(F, *args)

    return Program(**kwargs)


def f32(*shape):
    return tensor("f32", *shape)


class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential(prefix="body_")
            with self.body.name_scope():
                self.body.add(nn.Dense(8, activation="relu"), nn.BatchNorm())
            self.head = nn.Dense(3, use_bias=False)

    def hybrid_forward(self, F, x):
        return self.head(self.body(x)) + 1


# The graph


def test_names_and_attributes_are_mxnets(capsys):
    class Tutorial(Net):
        def hybrid_forward(self, F, x):
            print(F, x)
            return super().hybrid_forward(F, x)

    net = Tutorial(prefix="net_")
    net.initialize()
    found = trace(net, [nd.ones((2, 5))])
    assert capsys.readouterr().out == f"{mx.sym} <Symbol data 2x5 float32>\n"
    assert found.symbol.list_arguments() == [
        "data",
        "net_body_dense0_weight",
        "net_body_dense0_bias",
        "net_body_batchnorm0_gamma",
        "net_body_batchnorm0_beta",
        "net_dense0_weight",
    ]
    assert found.symbol.list_auxiliary_states() == [
        "net_body_batchnorm0_running_mean",
        "net_body_batchnorm0_running_var",
    ]
    assert found.symbol.list_outputs() == ["net__plusscalar0_output"]
    attrs = found.symbol.attr_dict()
    assert attrs["net__plusscalar0"] == {"scalar": "1"}
    assert attrs["net_dense0_weight"]["__shape__"] == "(3, 0)"
    # Composition without types gives the same graph.
    plain = net(mx.sym.var("data"))
    assert plain.list_inputs() == found.symbol.list_inputs()
    assert plain.attr_dict() == attrs


def test_graph_inputs_and_level():
    net = Net(prefix="net_")
    net.initialize()
    table = nd.ones((3,))
    outer = block_of(lambda F, x: net(x) * table)
    found = trace(outer, [nd.ones((2, 5))])
    graph = found.graph([f32(4, 5)], True)
    assert [p.name for p in found.params] == [v.name for v in graph.inputs[1:-1]]
    assert found.captured == [table]
    assert graph.level == "traced" and graph.attrs["training"] is True
    assert [str(v.type) for v in graph.outputs] == ["f32[4,3]"]
    assert {op.name for op in graph.ops} == {
        "mx.FullyConnected",
        "mx.Activation",
        "mx.BatchNorm",
        "mx._plus_scalar",
        "mx.elemwise_mul",
        "mx.broadcast_mul",
    } - {"mx.elemwise_mul"}


def test_parameters_that_nothing_uses_are_no_inputs():
    class Partial(Net):
        def hybrid_forward(self, F, x):
            self.head(x)
            return self.body[0](x)

    net = Partial(prefix="net_")
    net.initialize()
    found = trace(net, [nd.ones((2, 5))])
    assert [p.name for p in found.params] == ["net_body_dense0_weight", "net_body_dense0_bias"]
    assert {op.name for op in found.graph([f32(2, 5)], False).ops} == {"mx.FullyConnected", "mx.Activation"}


def test_places_in_the_users_program():
    net = Net(prefix="net_")
    net.initialize()
    graph = trace(net, [nd.ones((2, 5))]).graph([f32(2, 5)], False)
    first, last = graph.ops[0], graph.ops[-1]
    assert first.loc.file == __file__ and last.loc.file == __file__
    assert open(__file__).read().splitlines()[last.loc.line - 1].strip() == "return self.head(self.body(x)) + 1"
    assert (first.loc.block, last.loc.block) == ("net/body/dense0", "net")


def line_of(loc):
    return open(loc.file).read().splitlines()[loc.line - 1].strip()


def test_a_layer_in_a_sequential_comes_from_the_line_that_made_it():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4))
        net.add(nn.HybridSequential(prefix=""))
        net[1].add(nn.Dense(3, prefix="head_"), nn.Activation("relu"))
    net.initialize()
    first, second, last = trace(net, [nd.ones((2, 5))]).graph([f32(2, 5)], False).ops
    assert [op.loc.block for op in (first, second, last)] == ["net/dense0", "net/1/head", "net/1/relu0"]
    assert line_of(first.loc) == "net.add(nn.Dense(4))"
    assert line_of(second.loc) == line_of(last.loc)
    assert line_of(last.loc).startswith("net[1].add(")


def test_a_layer_that_the_users_block_calls_comes_from_that_line():
    class Twice(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.layers = [nn.Dense(5), nn.Dense(5)]
            self.register_child(self.layers[0])
            self.last = nn.HybridSequential()
            self.last.add(nn.Dense(2, prefix="out_"))

        def hybrid_forward(self, F, x):
            y = self.layers[0](x)
            y = self.layers[1](F.exp(y))
            return self.last(y)

    net = Twice(prefix="twice_")
    net.layers[1] = net.layers[0]
    net.initialize()
    ops = trace(net, [nd.ones((2, 5))]).graph([f32(2, 5)], False).ops
    step = net.layers[0].name
    assert [op.loc.block for op in ops] == [f"twice/{step}", "twice", f"twice/{step}", "twice/last/out"]
    again = "y = self.layers[1](F.exp(y))"
    made = 'self.last.add(nn.Dense(2, prefix="out_"))'
    assert [line_of(op.loc) for op in ops] == ["y = self.layers[0](x)", again, again, made]


def test_nodes_of_a_graph_from_a_file_have_their_names_for_places():
    x = mx.sym.var("data")
    y = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=3, name="fc1_fwd"), act_type="relu", name="act")
    net = gluon.SymbolBlock(y, x)
    net.initialize()
    graph = trace(net, [nd.ones((2, 5))]).graph([f32(2, 5)], False)
    assert [op.loc.block for op in graph.ops] == [f"{net.name}/fc1", f"{net.name}/act"]


def test_every_value_and_kernel_of_a_compiled_net_names_a_layer():
    net = gluon.model_zoo.vision.mobilenet_v2_0_25(classes=5, prefix="net_")
    net.initialize()
    x = nd.ones((1, 3, 32, 32))
    net(x)
    planned = run_passes(trace(net, [x]).graph([f32(1, 3, 32, 32)], False), PIPELINE, target=host())
    assert all(r.name for op in planned.ops for r in op.results)
    convolutions = [op for op in planned.ops if isinstance(KERNEL.of(op), (Conv, Winograd))]
    assert convolutions
    for op in convolutions:
        assert origin(op).block.startswith("net/features/") and "conv" in origin(op).block
        assert origin(op) == origins(op)[0]
    assert parse_graph(print_graph(planned, locs=True)).ops[-1].loc == planned.ops[-1].loc


def test_a_parameter_is_one_variable():
    class Twice(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(5, in_units=5)

        def hybrid_forward(self, F, x):
            return F.dot(self.dense(self.dense(x)), self.dense.weight.var()) + self.dense.bias.data()

    block = Twice()
    block.initialize()
    found = trace(block, [nd.ones((2, 5))])
    assert found.params == [block.dense.weight, block.dense.bias] and not found.captured


def test_children_take_any_arguments():
    class Scale(gluon.HybridBlock):
        def hybrid_forward(self, F, x, factor, options=None, array=None):
            options["seen"] = True
            return x * factor + array

    scale, options = Scale(), {}
    found = trace(block_of(lambda F, x: scale(x, 3, options, nd.ones((1,)))), [nd.ones((2,))])
    assert options == {"seen": True}
    assert [op.name for op in found.graph([f32(2)], False).ops] == ["mx._ones", "mx._mul_scalar", "mx.broadcast_add"]


def test_foreign_symbols():
    with pytest.raises(MXNetError, match="Unknown input to HybridBlock: w"):
        trace(block_of(lambda F, x: x + F.var("w")), [nd.ones((2,))])
    # A graph of its own may be made on the side.
    trace(block_of(lambda F, x: x * len((F.var("w") + 1).list_arguments())), [nd.ones((2,))])


def test_a_block_used_twice_prints_and_parses():
    dense = nn.Dense(3, in_units=3, prefix="dense_")
    dense.initialize()
    graph = trace(block_of(lambda F, x: dense(x) + dense(x)), [nd.ones((2, 3))]).graph([f32(2, 3)], False)
    assert str(parse_graph(str(graph))) == str(graph)


def test_named_tuples_come_back():
    Pair = namedtuple("Pair", "a b")
    found = trace(block_of(lambda F, x: Pair(x, [x + 1, None])), [nd.ones((2,))])
    assert found.rebuild([1, 2]) == Pair(1, [2, None]) and type(found.rebuild([1, 2])) is Pair


# Facts


def test_no_facts_serve_every_signature():
    calls = []
    net = Net()
    net.initialize()
    found = trace(block_of(lambda F, x: calls.append(x) or F.relu(net(x)) * 2 - x.sum()), [nd.ones((2, 5))])
    found = trace(block_of(lambda F, x: calls.append(x) or F.relu(x) * 2), [nd.ones((2, 5))])
    assert not found.facts
    assert found.holds([f32(7, 5)], True) and found.holds([tensor("f64", 3)], False)
    assert str(found.graph([f32(7, 1)], False).outputs[0].type) == "f32[7,1]"
    assert len(calls) == 2


@pytest.mark.parametrize("key", [-2, slice(-2, -1), (-2, slice(None, 1))])
def test_views_that_begin_where_an_input_does_may_not_in_another_shape(key):
    net, plain = block_of(lambda F, x: x[key]), block_of(lambda F, x: x[key])
    net.hybridize()
    for rows in (2, 3, 2, 5):
        x, y = nd.arange(rows * 3).reshape((rows, 3)), nd.arange(rows * 3).reshape((rows, 3))
        part, wanted = net(x), plain(y)
        assert part.asnumpy().tolist() == wanted.asnumpy().tolist()
        if part.size:
            part[:] += 100
            wanted[:] += 100
        assert x.asnumpy().tolist() == y.asnumpy().tolist()


def test_results_that_are_views_of_inputs_lie_where_the_shape_says():
    net = block_of(lambda F, x: x[1])
    net.hybridize()
    for shape in ((3, 2), (3, 5), (4, 2)):
        x = nd.arange(shape[0] * shape[1]).reshape(shape)
        row = net(x)
        row[:] += 100
        assert x[1].asnumpy().tolist() == [100 + shape[1] + k for k in range(shape[1])]


@pytest.mark.parametrize(
    ("program", "good", "bad"),
    [
        (lambda F, x: x * x.shape[0], (2, 3), (4, 3)),
        (lambda F, x: x * x.ndim, (7, 8), (7,)),
        (lambda F, x: x * len(x), (2, 9, 9), (3, 3)),
        (lambda F, x: x * x.size, (3, 2), (2, 2)),
        (lambda F, x: x + x.sum(axis=1, keepdims=True).broadcast_like(x), (5, 6), (5,)),
        (lambda F, x: x + F.ones((2, 3)), (2, 3), (1, 3)),
        (lambda F, x: x[1] * 2, (3, 4), (1, 3)),
        (lambda F, x: x[:, 0], (5, 2), (1, 3)),
        (lambda F, x: x[1:, None] * 2, (4, 1), (1, 3)),
        (lambda F, x: x[::-1], (2, 3), (3, 3)),
        (lambda F, x: list(x), (2, 3), (4, 3)),
        (lambda F, x: F.relu(x).reshape((-1, 3)).shape[0] * x, (2, 3), (3, 3)),
    ],
    ids=[
        "shape",
        "ndim",
        "len",
        "size",
        "same shape",
        "same shape as a constant",
        "index",
        "copy",
        "slice",
        "step",
        "loop",
        "of a result",
    ],
)
def test_facts_guard_signatures(program, good, bad):
    found = trace(block_of(program), [nd.ones((2, 3))])
    assert found.holds([f32(*good)], False)
    assert not found.holds([f32(*bad)], False)


def test_element_types_are_facts_when_asked_for():
    found = trace(block_of(lambda F, x: x.astype("float32") if x.dtype == np.float32 else x), [nd.ones((2, 3))])
    assert found.holds([f32(9)], False) and not found.holds([tensor("f64", 2, 3)], False)


def test_broadcasting_admits_equal_shapes():
    found = trace(block_of(lambda F, x, y: x + y), [nd.ones((2, 3)), nd.ones((1, 3))])
    assert found.holds([f32(2, 3), f32(2, 3)], False)
    assert not trace(block_of(lambda F, x, y: x + y), [nd.ones((2, 3))] * 2).holds([f32(2, 3), f32(1, 3)], False)


def test_the_mode_is_a_fact_when_asked_for():
    def program(F, x):
        return x * 2 if mx.autograd.is_training() else x

    found = trace(block_of(program), [nd.ones((2, 3))])
    assert found.holds([f32(2, 3)], False) and not found.holds([f32(2, 3)], True)


def test_setting_the_mode_is_a_fact_too():
    def program(F, x):
        with mx.autograd.predict_mode():
            return F.Dropout(x, p=0.5)

    assert not trace(block_of(program), [nd.ones((2, 3))]).holds([f32(2, 3)], True)


def test_a_signature_that_does_not_fit_is_traced_anew_to_say_why():
    found = trace(block_of(lambda F, x: F.dot(x, F.ones((3, 2))) * x.shape[0]), [nd.ones((2, 3))])
    assert not found.holds([f32(2, 4)], False)
    with pytest.raises(MXNetError, match=r"Error in operator program\d+_dot0: dot\(f32\[2,4\], f32\[3,2\]\)"):
        found.graph([f32(2, 4)], False)


# Deferred initialization


def test_shapes_of_deferred_parameters_are_found():
    net = Net()
    net.initialize()
    found = trace(net, [nd.ones((2, 5))])
    assert net.body[0].weight.data().shape == (8, 5)
    assert net.body[1].gamma.data().shape == (8,)
    assert [str(t) for t in found.input_types([f32(2, 5)])][1] == "f32[8,5]"


def test_shapes_are_found_through_operators_on_the_parameter():
    class Normed(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = self.params.get("weight", shape=(4, 0), allow_deferred_init=True)

        def hybrid_forward(self, F, x, weight):
            unit = F.L2Normalization(weight) * 2
            return F.FullyConnected(x, unit, num_hidden=4, no_bias=True), unit * x.shape[0]

    block = Normed()
    block.initialize()
    trace(block, [nd.ones((2, 5))])
    assert block.weight.data().shape == (4, 5)


def test_a_shape_that_cannot_be_found():
    class Lost(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = self.params.get("weight", shape=(4, 0), allow_deferred_init=True)

        def hybrid_forward(self, F, x, weight):
            return x, F.relu(weight)

    block = Lost()
    block.initialize()
    with pytest.raises(MXNetError, match=r"The shape of parameter lost\d+_weight cannot be inferred: \(4, 0\)"):
        trace(block, [nd.ones((2, 5))])


def test_parameter_shapes_initializes_nothing():
    net = Net()
    net.initialize()
    shapes = {p.name.split("_", 1)[1]: s for p, s in parameter_shapes(net, [nd.ones((2, 5))]).items()}
    assert shapes["body_dense0_weight"] == (8, 5) and shapes["dense0_weight"] == (3, 8)
    assert net.head.weight._data is None


# Refusals


REFUSED = [
    ("x if x.sum() > 0 else -x", "on the value of an array cannot be compiled", "F.where(condition, a, b)"),
    ("x * float(x.sum())", "float(x) cannot be compiled", "operators of F on the array itself"),
    ("x * int(x[0, 0])", "int(x) cannot be compiled", "operators of F"),
    ("x * x.asnumpy()", "asnumpy() cannot be compiled", "outside the hybridized block"),
    ("x * x[0, 0].asscalar()", "asscalar() cannot be compiled", "outside the hybridized block"),
    ("np.asarray(x)", "the conversion to a NumPy array cannot be compiled", "operators of F"),
    ("x * table.asscalar()", "asscalar() cannot be compiled", "operators of F"),
    ("[1, 2][x[0, 0].astype('int32')]", "an array as index of a Python sequence", "operators of F"),
    ("nd.histogram(x, bins=2)", "cannot be compiled", "operators of F"),
]


@pytest.mark.parametrize(("text", "what", "instead"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_cannot_be_traced(text, what, instead):
    code = compile(text, "<expression>", "eval")
    table = nd.ones((1,))
    with pytest.raises(TraceError) as caught:
        trace(
            block_of(lambda F, x: eval(code, {"F": F, "x": x, "nd": nd, "np": np, "table": table})), [nd.ones((2, 3))]
        )
    assert what in str(caught.value)
    assert f"write instead: {instead}" in str(caught.value) or instead in str(caught.value)


def test_operators_that_only_run_imperatively():
    op = Operator("compress", lambda b, x: x, imperative_only="its result's shape depends on values")
    with pytest.raises(TraceError, match="compress cannot be compiled: its result's shape depends on values"):
        trace(block_of(lambda F, x: F.invoke(op, [x], {})), [nd.ones((2, 3))])


def test_a_refusal_shows_the_users_line():
    def program(F, x):
        if x.sum() > 0:  # this line
            return x
        return -x

    with pytest.raises(
        TraceError, match=r"test_trace\.py:\d+ \(fancy\)\n    if x\.sum\(\) > 0:  # this line\n  write instead"
    ):
        trace(block_of(program, prefix="fancy_"), [nd.ones((2, 3))])


def test_an_operator_error_shows_types_and_line():
    def program(F, x):
        return F.dot(x, F.ones((4, 2)))  # no fit

    with pytest.raises(MXNetError) as caught:
        trace(block_of(program, prefix="net_"), [nd.ones((2, 3))])
    text = str(caught.value)
    assert "Error in operator net_dot0: dot(f32[2,3], f32[4,2]): " in text
    assert "return F.dot(x, F.ones((4, 2)))  # no fit" in text
    assert "test_trace.py:" in text


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (lambda x: None, TypeError, "Expected a list of symbols as input"),
        (lambda x: [], TypeError, "Expected a list of symbols as input"),
        (lambda x: 3, ValueError, "output must be (nested) list of Symbol or NDArray, but got 3 of type <class 'int'>"),
        (
            lambda x: (x, 1),
            ValueError,
            "output must be (nested) list of Symbol or NDArray, but got 1 of type <class 'int'>",
        ),
    ],
)
def test_results_that_are_no_arrays(result, error, message):
    with pytest.raises(error) as caught:
        trace(block_of(lambda F, x: result(x)), [nd.ones((2, 3))])
    assert message in str(caught.value)


def test_arguments_that_are_no_arrays():
    block = block_of(lambda F, x: x)
    with pytest.raises(ValueError, match="input must be"):
        trace(block, [nd.ones((1,)), 3])
    with pytest.raises(ValueError, match="All args are None"):
        trace(block, [None])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("bool(x)", ValueError, "The truth value of an NDArray with multiple elements is ambiguous."),
        ("x[2]", IndexError, "out of bounds"),
        ("x[0, 0, 0]", IndexError, "too many indices"),
        ("x['foo']", ValueError, "does not support slicing with key"),
        ("x + None", TypeError, "type <class 'NoneType'> not supported"),
        ("x + np.ones(3)", TypeError, "type <class 'numpy.ndarray'> not supported"),
        ("x == 'a'", TypeError, "type <class 'str'> not supported"),
        ("x.reshape((4, 2))", ValueError, "Cannot reshape array of size 6 into shape (4, 2)"),
        ("x.reshape(2, 3, order='C')", TypeError, "Got unknown keywords in reshape: order"),
        ("x.nosuch", AttributeError, "has no attribute 'nosuch'"),
        ("F.nosuch(x)", AttributeError, "has no attribute 'nosuch'"),
        ("F.relu(3)", AssertionError, "Argument data must be Symbol instances"),
        ("F.contrib.div_sqrt_dim(x, x)", MXNetError, "takes data; its name is a string, not a TracedSymbol"),
        ("F.FullyConnected(x, num_hidden=3)", MXNetError, "expects 3 inputs, but got 1"),
        ("x + F.ones((2, 4))", MXNetError, "broadcast"),
        ("x + F.ones((2, 3), dtype='float64')", MXNetError, "float64"),
        ("x.copyto(F.ones((3, 3)))", MXNetError, "expected [2, 3], got [3, 3]"),
        ("F.exp(x, out=F.ones((3, 2)))", MXNetError, "out= is f32[3,2]"),
    ],
)
def test_errors_are_those_of_arrays(text, error, message):
    code = compile(text, "<expression>", "eval")
    with pytest.raises(error) as caught:
        trace(block_of(lambda F, x: eval(code, {"F": F, "x": x, "np": np})), [nd.ones((2, 3))])
    assert message in str(caught.value)


def test_after_an_error_nothing_is_being_traced():
    with pytest.raises(TraceError):
        trace(block_of(lambda F, x: x.asnumpy()), [nd.ones((2, 3))])
    assert mx.trace.current_trace() is None
    assert nd.ones((2,)).asnumpy().tolist() == [1, 1]


# The hybridized call


def test_hybridized_blocks_trace_again_only_when_a_fact_changes():
    calls = []

    def program(F, x):
        calls.append(F)
        return x * x.shape[1]

    block = block_of(program)
    block.hybridize(backend="numpy")
    for rows in (2, 2, 3):
        assert block(nd.ones((rows, 3))).asnumpy().tolist() == [[3.0] * 3] * rows
    assert len(calls) == 2  # x.shape is one fact, whichever part of it was used
    block(nd.ones((2, 3)))
    assert len(calls) == 2


def test_a_block_inside_a_trace_does_not_run_compiled():
    inner = nn.Dense(3, in_units=3)
    inner.initialize()
    inner.hybridize(backend="numpy")
    inner(nd.ones((1, 3)))
    rows = nd.ones((1, 3))
    outer = gluon.nn.HybridSequential()
    outer.add(inner)
    found = trace(block_of(lambda F, x: inner(rows) + outer(x)), [nd.ones((1, 3))])
    assert found.params == [inner.weight, inner.bias] and found.captured == [rows]
