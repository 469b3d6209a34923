"""What an operator refuses: one error, with its name, all operands' types and the user's own line, in both modes."""

import traceback

import pytest

import gluonjit as mx
from gluonjit.base import MXNetError
from gluonjit.gluon import nn

HERE = __file__
PAIRS = {
    "broadcast_add": lambda F, a, b: a + b,  # here
    "elemwise_mul": lambda F, a, b: F.elemwise_mul(a, b),  # here
    "Concat": lambda F, a, b: F.concat(a, b, dim=0),  # here
    "dot": lambda F, a, b: F.dot(a, b),  # here
    "FullyConnected": lambda F, a, b: F.FullyConnected(a, b, no_bias=True, num_hidden=4),  # here
    "Convolution": lambda F, a, b: F.Convolution(a, b, no_bias=True, num_filter=4, kernel=(3,)),  # here
    "batch_dot": lambda F, a, b: F.batch_dot(a, b),  # here
    "where": lambda F, a, b: F.where(a, a, b),  # here
}


def message(function, *args, hybridize):
    """That of the error, which is the only one in its traceback."""
    if hybridize:
        block = nn.HybridLambda(function)
        block.hybridize()
    with pytest.raises(MXNetError) as e:
        block(*args) if hybridize else function(mx.nd, *args)
    text = "".join(traceback.format_exception(e.type, e.value, e.tb))
    assert text.count("Traceback (most recent call last)") == 1, text
    return str(e.value)


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("shape", "dtype", "type"), [((4, 5), "float32", "f32[4,5]"), ((2, 3), "float64", "f64[2,3]")])
def test_operands_that_do_not_fit(name, shape, dtype, type, hybridize):
    said = message(PAIRS[name], mx.nd.ones((2, 3)), mx.nd.ones(shape, dtype=dtype), hybridize=hybridize)
    assert f"f32[2,3], {type})" in said.splitlines()[0]
    assert "Error in operator " in said and f"{HERE}:" in said and "# here" in said


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("F", ["nd", "np"])
@pytest.mark.parametrize("stop", [float("inf"), float("-inf"), float("nan"), 1e300])
def test_ranges_without_end(stop, F, hybridize):
    def arange(_, x):
        return x + getattr(mx, F).arange(0, stop)

    x = getattr(mx, F).ones((1,))
    assert "Invalid range (start, stop, step) = (0," in message(arange, x, hybridize=hybridize)
    with pytest.raises(MXNetError, match="Invalid range"):
        mx.sym.arange(0, stop).infer_shape()


def test_shapes_that_no_memory_holds():
    large = 10**9
    x = mx.sym.Variable("x")
    for y in (
        mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, pad=(large, large)),
        mx.sym.Convolution(x, kernel=(large, large), num_filter=4, pad=(large, large)),
        mx.sym.Deconvolution(x, kernel=(3, 3), num_filter=4, stride=(large, large)),
        mx.sym.pad(x, mode="edge", pad_width=(0, 0, 0, 0, large, large, large, large)),
        mx.sym.tile(x, reps=(large, large)),
    ):
        with pytest.raises(RuntimeError, match="is too large: it has [0-9]* elements"):
            y.simple_bind(mx.cpu(), x=(1, 3, 8, 8))


class Failing(mx.operator.CustomOpProp):
    def __init__(self, where):
        super().__init__()
        self.where = where

    def infer_shape(self, in_shape):
        assert self.where != "infer_shape", "not this shape"
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        class Operator(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                assert where != "forward", "not today"

        where = self.where
        return Operator()


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(("where", "why"), [("forward", "not today"), ("infer_shape", "not this shape")])
def test_assertions_of_custom_operators(where, why, hybridize):
    mx.operator.register("test_failing")(Failing)
    call = lambda F, x: F.Custom(x, op_type="test_failing", where=where)  # noqa: E731
    said = message(call, mx.nd.ones((2,)), hybridize=hybridize)
    assert "Error in operator " in said and f"Custom('test_failing'): AssertionError: {why}" in said
    assert f"{HERE}:" in said and f"assert {'self.' * (where != 'forward')}where != " in said


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("in_units", [0, 3])
def test_who_forgot_to_initialize(in_units, hybridize):
    net = nn.Dense(2, in_units=in_units)
    if hybridize:
        net.hybridize()
    with pytest.raises(RuntimeError, match=r"has not been initialized.*net\.initialize\(\)"):
        net(mx.nd.ones((1, 3)))
    net.initialize()
    if not in_units and not hybridize:  # a trace has found the shape
        with pytest.raises(MXNetError, match=r"initialization was deferred.*net\(x\) does it"):
            net.weight.data()
