"""Operators that users write in Python: imperatively, called back by compiled code, in graphs."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.base import MXNetError
from gluonjit.codegen.target import named
from gluonjit.execution.block_compiler import trace_call
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime.compiler import compile_graph


@mx.operator.register("scaled_sum")
class ScaledSumProp(mx.operator.CustomOpProp):
    def __init__(self, scale="1"):
        super().__init__(need_top_grad=False)
        self.scale = float(scale)

    def list_arguments(self):
        return ["a", "b"]

    def list_outputs(self):
        return ["sum", "training"]

    def infer_shape(self, in_shape):
        return [in_shape[0], in_shape[0]], [in_shape[0], [1]], []

    def create_operator(self, ctx, shapes, dtypes):
        scale = self.scale

        class ScaledSum(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], (in_data[0] + in_data[1]) * scale)
                self.assign(out_data[0], "add", 1)
                self.assign(out_data[1], "null", 9)
                self.assign(out_data[1], req[1], is_train)

        return ScaledSum()


@mx.operator.register("counted")
class CountedProp(mx.operator.CustomOpProp):
    """x plus how often it has been computed, which an auxiliary state holds."""

    def list_auxiliary_states(self):
        return ["count"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], [[1]]

    def create_operator(self, ctx, shapes, dtypes):
        class Counted(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                aux[0][:] = aux[0] + 1
                self.assign(out_data[0], req[0], in_data[0].asnumpy() + aux[0].asscalar())

        return Counted()


@mx.operator.register("fails")
class FailsProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        class Fails(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                if in_data[0].sum().asscalar() > 10:
                    raise KeyError("too much")
                self.assign(out_data[0], req[0], in_data[0])

        return Fails()


def net(function, hybridize=True, *children):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, *args):
            return function(F, *args)

    made = Net()
    made.hybridize(hybridize)
    return made


def test_imperative():
    a, b = nd.ones((2, 1)), nd.ones((2, 1)) * 2
    total, training = nd.Custom(a, b, op_type="scaled_sum", scale=3)
    assert total.asnumpy().tolist() == [[10], [10]] and training.asnumpy().tolist() == [0]
    with autograd.train_mode():
        assert nd.Custom(b=b, a=a, op_type="scaled_sum")[1].asscalar() == 1
    out = [nd.zeros((2, 1)), nd.zeros(1)]
    assert nd.Custom(a, b=b, op_type="scaled_sum", out=out) is out and out[0].asnumpy().tolist() == [[4], [4]]
    assert "scaled_sum" in mx.operator.get_all_registered_operators()
    count = nd.zeros(1)
    assert nd.Custom(a, count, op_type="counted").asnumpy().tolist() == [[2], [2]] and count.asscalar() == 1


def test_errors():
    a = nd.ones((2, 1))
    with pytest.raises(MXNetError, match="did you mean 'scaled_sum'"):
        nd.Custom(a, op_type="scaled_sun")
    with pytest.raises(MXNetError, match="takes a, b; got an array"):
        nd.Custom(a, op_type="scaled_sum")
    with pytest.raises(AssertionError, match="subclass of CustomOpProp"):
        mx.operator.register("x")(int)


def test_compiled():
    def function(F, x, y):
        total, training = F.Custom(F.exp(x), b=y, op_type="scaled_sum", scale=0.5)
        return F.broadcast_add(total * 2, training), F.sum(x)

    x, y = nd.random.uniform(shape=(3, 4)), nd.random.uniform(shape=(3, 4))
    for mode in (autograd.predict_mode, autograd.train_mode):
        with mode():
            expected = net(function, False)(x, y)
            compiled = net(function)
            for _ in range(3):
                for got, wanted in zip(compiled(x, y), expected):
                    assert np.allclose(got.asnumpy(), wanted.asnumpy(), rtol=1e-5)


def test_states_are_written_in_both_modes():
    for hybridize in (False, True):
        made = net(lambda F, x, count: F.Custom(x, count, op_type="counted") * 2, hybridize)
        count = nd.zeros(1)
        assert [made(nd.ones(2), count).asnumpy().tolist() for _ in range(3)] == [[4, 4], [6, 6], [8, 8]]
        assert count.asscalar() == 3


def test_in_loops_and_branches():
    def function(F, x):
        rows, last = F.contrib.foreach(
            lambda row, state: (F.Custom(row, state, op_type="scaled_sum")[0], state + row), x, F.zeros(4)
        )
        more = F.contrib.cond(F.sum(x) > 0, lambda: F.Custom(last, last, op_type="scaled_sum")[0], lambda: last)
        return rows, more

    x = nd.random.uniform(shape=(5, 4))
    for got, wanted in zip(net(function)(x), net(function, False)(x)):
        assert np.allclose(got.asnumpy(), wanted.asnumpy(), rtol=1e-5)


def test_exceptions_come_through():
    made = net(lambda F, x: F.Custom(x * 1, op_type="fails") + 1)
    for _ in range(2):
        with pytest.raises(KeyError, match="too much"):
            made(nd.ones(20))
        assert made(nd.ones(20) / 20).asnumpy().tolist() == (nd.ones(20) / 20 + 1).asnumpy().tolist()


def test_a_compiled_block_within():
    inner = net(lambda F, x: F.tanh(F.dot(x, x)))

    @mx.operator.register("calls_a_block")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            class Calls(mx.operator.CustomOp):
                def forward(self, is_train, req, in_data, out_data, aux):
                    self.assign(out_data[0], req[0], inner(in_data[0]))

            return Calls()

    outer = net(lambda F, x: F.dot(F.Custom(F.dot(x, x), op_type="calls_a_block"), x))
    x = nd.random.uniform(-1, 1, shape=(64, 64))
    expected = nd.dot(nd.tanh(nd.dot(nd.dot(x, x), nd.dot(x, x))), x)
    for _ in range(2):
        assert np.allclose(outer(x).asnumpy(), expected.asnumpy(), atol=1e-3)


def test_operands_may_be_kept():
    kept = []

    @mx.operator.register("keeps")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            class Keeps(mx.operator.CustomOp):
                def forward(self, is_train, req, in_data, out_data, aux):
                    kept.append(in_data[0])
                    self.assign(out_data[0], req[0], in_data[0])

            return Keeps()

    made = net(lambda F, x: F.Custom(x + 1, op_type="keeps") * 2)
    made(nd.zeros(3))
    made(nd.ones(3))
    assert [x.asnumpy().tolist() for x in kept] == [[1, 1, 1], [2, 2, 2]]


def test_seen_in_the_dump():
    made = net(lambda F, x: F.Custom(x, x, op_type="scaled_sum", scale=2)[0])
    graph = trace_call(made, [nd.ones(2)])
    planned = run_passes(graph, PIPELINE, target=named("x86-64-v3"))
    text = print_graph(planned)
    assert 'host_call(%data, %data) {function = "custom", arguments = ((".op_type", "scaled_sum")' in text
    assert ".kernel = host" in text
    assert print_graph(parse_graph(text)) == text


def test_symbols():
    a, b = mx.sym.var("a"), mx.sym.var("b")
    both = mx.sym.Custom(a, b, op_type="scaled_sum", scale=3, name="s")
    assert both.list_outputs() == ["s_sum", "s_training"]
    assert both.infer_shape(a=(2, 3))[:2] == ([(2, 3), (2, 3)], [(2, 3), (1,)])
    counted = mx.sym.Custom(both[0], op_type="counted", name="c")
    assert counted.list_arguments() == ["a", "b"] and counted.list_auxiliary_states() == ["c_count"]
    assert counted.infer_shape(a=(2, 3))[2] == [(1,)]
    executor = counted.bind(mx.cpu(), {"a": nd.ones(2), "b": nd.ones(2)}, aux_states={"c_count": nd.zeros(1)})
    assert [executor.forward()[0].asnumpy().tolist() for _ in range(2)] == [[8, 8], [9, 9]]
    assert executor.aux_dict["c_count"].asscalar() == 2


def test_symbol_blocks_write_states():
    x = mx.sym.var("data")
    block = gluon.SymbolBlock(mx.sym.Custom(x, op_type="counted", name="c"), x)
    block.initialize(mx.init.Zero())
    assert [block(nd.ones(2)).asnumpy().tolist() for _ in range(2)] == [[2, 2], [3, 3]]


def test_a_function_that_is_not_there():
    graph = parse_graph(
        'graph @g(%x: f32[2]) { %y = host_call(%x) {function = "nothing", types = (f32[2],)} return %y }'
    )
    with pytest.raises(mx.ir.types.IRError, match="there is no function 'nothing' here to call"):
        compile_graph(graph).run([np.ones(2, np.float32)])


def test_a_graph_runs_without_the_front_end_that_made_it():
    """Here only the program that defines the operator is imported, and the graph is compiled by itself."""
    program = textwrap.dedent(
        """
        import sys
        import numpy as np
        from gluonjit.ir.interpreter import evaluate
        from gluonjit.ir.text import parse_graph
        from gluonjit.ir.types import IRError

        text = '''graph @g(%x: f32[2]) {
          %y: f32[2] = host_call(%x) {function = "custom", types = (f32[2],),
            arguments = ((".op_type", "twice"), (".training", "False"))}
          return %y
        }'''
        graph, x = parse_graph(text), np.ones(2, np.float32)
        try:
            evaluate(graph, [x])
        except IRError as e:
            print(e)

        from gluonjit.operators.control.custom_classes import CustomOp, CustomOpProp, register

        class Twice(CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0] * 2)

        @register("twice")
        class TwiceProp(CustomOpProp):
            def create_operator(self, ctx, shapes, dtypes):
                return Twice()

        from gluonjit.runtime.compiler import compile_graph
        print("gluonjit.ndarray" in sys.modules, evaluate(graph, [x])[0][0], compile_graph(graph).run([x])[0][0])
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said, result = done.stdout.splitlines()
    assert "there is no function 'custom' here to call: import what registers it" in said
    assert result == "False [2. 2.] [2. 2.]"
