"""What an operator refuses: one error, with its name, all operands' types and the user's own line, in both modes."""

import traceback

import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.base import MXNetError
from gluonjit.gluon import nn
from gluonjit.operators import registry

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


LARGE = 10**9
FAR = {
    "Pooling": {"kernel": (2 * LARGE, 2), "stride": (LARGE, 1), "pad": (LARGE + LARGE // 2, 1)},
    "SliceChannel": {"num_outputs": LARGE},
    "Concat": {"num_args": LARGE},
    "amp_multicast": {"num_outputs": LARGE},
    "UpSampling": {"scale": 1, "sample_type": "nearest", "num_args": LARGE},
    "_split_v2": {"indices": (), "sections": LARGE},
    "_npi_column_stack": {"num_args": LARGE},
}


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", FAR)
def test_attributes_that_ask_for_any_number_of_steps(name, hybridize):
    call = lambda F, x: (getattr(F, name, None) or getattr(F._internal, name))(x, **FAR[name])  # noqa: E731
    said = message(call, mx.nd.ones((1, 2, 4, 4)), hybridize=hybridize)
    assert name in said and ("too large" in said or "exceed bound" in said)


@pytest.mark.parametrize(
    ("name", "attr"),
    [
        ("_contrib_ROIAlign", "sample_ratio"),
        ("_contrib_RROIAlign", "sampling_ratio"),
        ("_contrib_DeformablePSROIPooling", "sample_per_part"),
    ],
)
def test_samples_of_regions_are_few(name, attr):
    given = {"pooled_size": 2, "spatial_scale": 1, "output_dim": 1, "group_size": 1, "trans_std": 0, attr: LARGE}
    operator = registry.get(name)
    with pytest.raises(MXNetError, match=f"Parameter {attr} exceed bound"):
        operator.parse({k: v for k, v in given.items() if k in operator.attrs})


@pytest.mark.parametrize("hybridize", [False, True])
def test_windows_that_lie_in_padding(hybridize):
    """What no window finds an element with is not looked at, however many taps that are."""
    x = mx.nd.array([[[1.0, 2, 3]]])
    for kind, expected in (("max", 3), ("sum", 6), ("avg", 6 / LARGE)):
        call = lambda F, x: F.Pooling(x, kernel=(LARGE,), pad=(LARGE // 2,), pool_type=kind)  # noqa: B023, E731
        block = nn.HybridLambda(call)
        if hybridize:
            block.hybridize()
        y = block(x).asnumpy().ravel()
        # LARGE + 3 - LARGE + 1 windows, each of which has all three elements.
        assert y.tolist() == pytest.approx([expected] * 4, rel=1e-6)


@pytest.mark.parametrize("hybridize", [False, True])
def test_repetitions_that_are_cut_off(hybridize):
    for repeat in (3, 4, 2**31, 2**63 - 1):
        block = nn.HybridLambda(lambda F, x: F.contrib.arange_like(x, start=5, repeat=repeat))  # noqa: B023
        if hybridize:
            block.hybridize()
        assert block(mx.nd.ones((2, 2))).asnumpy().tolist() == [[5, 5], [5, 6 if repeat == 3 else 5]]


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax"])
def test_probabilities_are_floats(name, hybridize):
    call = lambda F, x: getattr(F, name)(x, dtype="int64")  # noqa: E731
    assert "Invalid Input: 'int64'" in message(call, mx.nd.ones((2, 2)), hybridize=hybridize)


@pytest.mark.parametrize("hybridize", [False, True])
def test_results_that_this_memory_does_not_hold(hybridize):
    for call in (
        lambda F, x: F.broadcast_add(F.tile(x, reps=(2**20, 1)), F.tile(x, reps=(1, 2**20))),  # here
        lambda F, x: F.broadcast_to(x, shape=(2**24, 2**24)),  # here
    ):
        said = message(call, mx.nd.ones((1, 1)), hybridize=hybridize)
        assert "Error in operator broadcast_" in said and "emory" in said and "# here" in said


@pytest.mark.parametrize("hybridize", [False, True])
def test_empty_results_whose_strides_no_address_holds(hybridize):
    for call in (
        lambda F, x: F.tile(x, reps=(2**31, 2**31)),  # here
        lambda F, x: F.zeros((0, 2**62)),  # here
    ):
        said = message(call, mx.nd.ones((0, 3)), hybridize=hybridize)
        assert "Error in operator " in said and "is too large: without its zeros" in said and "# here" in said


def test_arguments_that_this_memory_does_not_hold():
    y = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2**50, name="fc")
    for dtype, why in (("float32", "there is not enough memory for f32"), ("float64", "f64.* is too large")):
        with pytest.raises(RuntimeError, match=f"(?s)Error in argument fc_weight of fc: FullyConnected: {why}"):
            y.simple_bind(mx.cpu(), x=(1, 2**10), type_dict={"x": dtype})


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda F, x: F.zeros((-1, 3)),  # here
        lambda F, x: F.random.uniform(shape=(2, -1)),  # here
        lambda F, x: F._internal._npi_ones(shape=(0, -1)),  # here
    ],
)
def test_dimensions_that_nothing_determines(call, hybridize):
    said = message(call, mx.nd.ones((1,)), hybridize=hybridize)
    assert "Error in operator" in said and "-1" in said and "# here" in said


def test_dimensions_that_nothing_determines_in_a_graph():
    for make in (mx.sym.zeros, mx.sym.random.uniform):
        with pytest.raises(MXNetError, match="-1"):
            make(shape=(-1, 3), name="z").eval()
        with pytest.raises(MXNetError, match="-1"):
            (make(shape=(-1, 3)) * 2).eval()


LINE = r"\n  at .*test_operator_errors\.py:\d+\n    "


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: x.reshape((4, 2)),
            mx.MXNetError,
            r"NDArray.reshape\(f32\[2,3\]\): Cannot reshape .* is larger",
        ),
        (lambda x: x.reshape(5), ValueError, r"NDArray.reshape\(f32\[2,3\]\): Cannot .* \(5,\), which is smaller"),
        (lambda x: x.reshape((-5,)), mx.MXNetError, r"NDArray.reshape\(f32\[2,3\]\): shape dim size must be >= -1"),
        (lambda x: x.reshape((2, "a")), TypeError, r"NDArray.reshape\(f32\[2,3\]\): a shape has integers"),
        (lambda x: x.reshape_like(nd.ones((5,))), mx.MXNetError, r"reshape_like\(f32\[2,3\], f32\[5\]\)"),
        (lambda x: x.broadcast_to((3, 3)), ValueError, r"NDArray.broadcast_to\(f32\[2,3\]\): .* only axes of length 1"),
        (lambda x: x.broadcast_like(nd.ones((5, 3))), ValueError, r"NDArray.broadcast_to\(f32\[2,3\]\)"),
        (lambda x: x.slice((0, 0, 0), (1, 1, 1)), mx.MXNetError, r"slice\(f32\[2,3\]\): Slicing axis exceeds"),
        (
            lambda x: x.slice_assign(x, (0,), (1,), None),
            ValueError,
            r"NDArray.slice_assign\(f32\[2,3\]\): rhs has shape",
        ),
        (lambda x: x.copyto(nd.ones((5,))), mx.MXNetError, r"NDArray.copyto\(f32\[2,3\]\): .* the same shape"),
        (lambda x: x.asscalar(), ValueError, r"NDArray.asscalar\(f32\[2,3\]\): The current array is not a scalar"),
        (lambda x: bool(x), ValueError, r"NDArray.__bool__\(f32\[2,3\]\): The truth value"),
        (lambda x: x.__setitem__(0, nd.ones((5,))), ValueError, r"__setitem__\(f32\[2,3\]\): .* part that is assigned"),
        (lambda x: x.swapaxes("a", 1), mx.MXNetError, "Invalid Parameter format for dim1 .*, in operator SwapAxis"),
        (lambda x: gluon.loss.L2Loss()(x, nd.ones((5,))), mx.MXNetError, r"NDArray.reshape\(f32\[5\]\): .* \(2, 3\)"),
        (
            lambda x: mx.metric.MSE().update([x], [nd.ones((4, 5))]),
            ValueError,
            r"MSE.update\(labels: \[\(2, 3\)\], preds: ",
        ),
        (lambda x: mx.metric.CrossEntropy().update([x], [x]), AssertionError, r"6 labels for 2 predictions"),
        (lambda x: mx.metric.Accuracy().update(x, 3), TypeError, r"Accuracy.update\(labels: \(2, 3\), preds: 3\)"),
    ],
)
def test_errors_of_methods_and_metrics_name_shapes_and_the_users_line(call, error, message):
    with pytest.raises(error, match="(?s)" + message + ".*" + LINE) as caught:
        call(nd.ones((2, 3)))
    assert caught.type.__name__ in (error.__name__, "OperatorError")


def test_a_traced_reshape_that_fails_names_the_users_line():
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x.reshape((4, 2))

    net = Net()
    net.hybridize()
    with pytest.raises(ValueError, match=r"NDArray.reshape\(f32\[2,3\]\): Cannot reshape array of size 6 .*" + LINE):
        net(nd.ones((2, 3)))
