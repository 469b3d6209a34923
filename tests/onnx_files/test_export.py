"""What `mx.onnx.export_model` writes, judged by `onnx.checker` and by onnxruntime."""

import collections
import subprocess
import sys

import numpy as np
import pytest

import gluonjit as mx
from benchmarks.workloads import Encoder
from gluonjit.gluon import HybridBlock, nn, rnn
from gluonjit.gluon.model_zoo import vision

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime, which judges, is not installed")

NEWEST = onnx.defs.onnx_opset_version()


def random(*shape):
    return mx.nd.array(np.random.RandomState(0).uniform(-1, 1, shape))


def exported(net, xs, path, **options):
    """Writes the net to a file and returns the ModelProto; `net` is initialized."""
    net.hybridize(backend="numpy")  # which makes the graph, and compiles nothing
    net(*xs)
    graph, arrays = net._jit_exported()
    shapes, types = [x.shape for x in xs], [x.dtype for x in xs]
    assert mx.onnx.export_model(graph, arrays, shapes, types, str(path), **options) == str(path)
    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)
    return model


def run(path, xs):
    options = onnxruntime.SessionOptions()
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24):
        # These put a Pad into the AveragePool behind it, and then refuse that as too much padding.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail as e:
        if "max supported IR version" in str(e):
            pytest.skip("this onnxruntime is older than the newest opset")
        raise
    return session.run(None, {given.name: x.asnumpy() for given, x in zip(session.get_inputs(), xs, strict=True)})


def outputs(net, xs):
    found = net(*xs)
    return [y.asnumpy() for y in (found if isinstance(found, (list, tuple)) else [found])]


def compare(net, xs, path, allowed=1e-5, more=(), back=True, **options):
    """Exports and runs the net, also for the inputs `more`, and reads it `back`; returns how many nodes there are of
    each kind."""
    net.initialize(mx.init.Xavier())
    wanted = [outputs(net, given) for given in (xs, *more)]
    model = exported(net, xs, path, **options)
    for given, results in zip((xs, *more), wanted, strict=True):
        found = run(path, given)
        assert [y.shape for y in found] == [y.shape for y in results]
        for y, right in zip(found, results, strict=True):
            assert abs(y - right).max() <= allowed * max(abs(right).max(), 1e-6)
    if back:
        again = mx.onnx.import_to_gluon(path)
        again.hybridize(backend="numpy")
        for given, results in zip((xs, *more), wanted, strict=True):
            for y, right in zip(outputs(again, given), results, strict=True):
                assert y.shape == right.shape and y.dtype == right.dtype
                assert abs(y - right).max() <= allowed * max(abs(right).max(), 1e-6)
    return collections.Counter(node.op_type for node in model.graph.node)


FAMILIES = {
    "alexnet": 63,
    "densenet121": 32,
    "inceptionv3": 75,
    "mobilenet0.25": 32,
    "mobilenetv2_0.25": 32,
    "resnet18_v1": 32,
    "resnet18_v2": 32,
    "squeezenet1.1": 48,
    "vgg11_bn": 32,
}
"""By name, the size of an image."""


CHANNELS = [8, 8, 16, 24, 32]
SMALLER = {
    "densenet121": lambda: vision.DenseNet(16, 8, [2, 2, 2, 2]),
    "resnet18_v1": lambda: vision.ResNetV1(vision.BasicBlockV1, [2, 1, 1, 1], CHANNELS),
    "resnet18_v2": lambda: vision.ResNetV2(vision.BasicBlockV2, [2, 1, 1, 1], CHANNELS),
    "vgg11_bn": lambda: vision.VGG([1, 1, 1, 1, 1], CHANNELS, batch_norm=True),
}


def small(name):
    """A net of the zoo for small images, without layers of many parameters or with a large window at its end."""
    net = SMALLER[name]() if name in SMALLER else vision.get_model(name)
    pools = (nn.AvgPool2D, nn.GlobalAvgPool2D)
    kept = [x for x in net.features if not isinstance(x, (nn.Dense, nn.Flatten, nn.Dropout, *pools))]
    found = nn.HybridSequential()
    if name == "inceptionv3":
        kept = kept[:8] + kept[10:12]  # one block of each of the first kinds
    found.add(*kept, nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(5))
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_families_of_the_zoo(name, tmp_path):
    net = small(name)
    kinds = compare(net, [random(2, 3, FAMILIES[name], FAMILIES[name])], tmp_path / "net.onnx", 1e-4)
    assert set(kinds) <= {
        *("Conv", "BatchNormalization", "Relu", "MaxPool", "AveragePool", "GlobalAveragePool", "Add", "Concat", "Clip"),
        *("Flatten", "Gemm"),
    }


@pytest.mark.parametrize("opset", [13, 17, 18, 20, NEWEST])
def test_attention_of_any_batch_and_length(opset, tmp_path):
    net = nn.HybridSequential()
    net.add(Encoder(16, 2))
    kinds = compare(
        net, [random(2, 5, 16)], tmp_path / "net.onnx", more=[[random(3, 9, 16)]], opset_version=opset, dynamic=True
    )
    assert kinds["LayerNormalization"] == (2 if opset >= 17 else 0)
    assert kinds["Gelu"] == (1 if opset >= 20 else 0)
    assert onnx.load(str(tmp_path / "net.onnx")).opset_import[0].version == opset


@pytest.mark.parametrize("kind", [rnn.LSTM, rnn.GRU, rnn.RNN])
@pytest.mark.parametrize("both", [False, True])
def test_recurrent_layers(kind, both, tmp_path):
    net = nn.HybridSequential()
    net.add(kind(4, num_layers=2, bidirectional=both, layout="NTC" if both else "TNC"))
    kinds = compare(net, [random(5, 3, 6)], tmp_path / "net.onnx", more=[[random(4, 2, 6)]], dynamic=True)
    assert kinds[kind.__name__] == 2


class WithStates(HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.layer = rnn.LSTM(4, num_layers=2, input_size=3)

    def hybrid_forward(self, F, x, h, c):
        y, states = self.layer(x, [h, c])
        return [y, *states]


def test_states_of_recurrent_layers(tmp_path):
    compare(WithStates(), [random(5, 2, 3), random(2, 2, 4), random(2, 2, 4)], tmp_path / "net.onnx")


class Detections(HybridBlock):
    """Of boxes of two scales, like SSD."""

    def __init__(self):
        super().__init__()
        self.stages, self.classes, self.offsets = (nn.HybridSequential() for _ in range(3))
        for channels in (8, 16):
            self.stages.add(nn.Conv2D(channels, 3, strides=4, padding=1, activation="relu"))
            self.classes.add(nn.Conv2D(4 * 4, 3, padding=1))
            self.offsets.add(nn.Conv2D(4 * 4, 3, padding=1))

    def hybrid_forward(self, F, x):
        classes, offsets, anchors = [], [], []
        for stage, classify, move in zip(self.stages, self.classes, self.offsets):
            x = stage(x)
            classes.append(F.reshape(F.flatten(F.transpose(classify(x), axes=(0, 2, 3, 1))), shape=(0, -1, 4)))
            offsets.append(F.flatten(F.transpose(move(x), axes=(0, 2, 3, 1))))
            anchors.append(F.contrib.MultiBoxPrior(x, sizes=(0.3, 0.4), ratios=(1, 2, 0.5)))
        scores = F.softmax(F.transpose(F.concat(*classes, dim=1), axes=(0, 2, 1)), axis=1)
        boxes = F.concat(*offsets, dim=1), F.concat(*anchors, dim=1)
        return F.contrib.MultiBoxDetection(scores, *boxes, nms_threshold=0.5, threshold=0.2)


def test_detections(tmp_path):
    kinds = compare(Detections(), [random(2, 3, 24, 24)], tmp_path / "net.onnx", 1e-4)
    assert kinds["Loop"] == 1  # suppression


class Loops(HybridBlock):
    def hybrid_forward(self, F, x, state):
        rows, last = F.contrib.foreach(lambda row, s: (row + s, row * s), x, state)
        counted, _ = F.contrib.while_loop(
            lambda i, s: F.sum(s) < 60,
            lambda i, s: (s * 1, (i + 1, s + i)),
            (F.ones((1,)), last),
            max_iterations=7,
        )
        return [rows, last, counted, F.contrib.cond(F.sum(last) < 3, lambda: last * 2, lambda: last - 1)]


def test_loops_and_branches(tmp_path):
    kinds = compare(Loops(), [random(5, 3), random(3)], tmp_path / "net.onnx", back=False)
    assert (kinds["Loop"], kinds["If"]) == (2, 1)


class Various(HybridBlock):
    """Operators that are written as their primitives."""

    def hybrid_forward(self, F, x):
        image = F.expand_dims(x, 0)
        border = (0, 0, 0, 0, 1, 1, 2, 2)
        return [
            F.slice_axis(x, axis=1, begin=1, end=3),
            F.reverse(x, axis=1),
            F.tile(x, (2, 1, 3)),
            F.repeat(x, 2, axis=1),
            F.one_hot(F.argmax(x, axis=1), 5),
            F.topk(x, k=2, ret_typ="value"),
            F.sum(x, axis=(0, 2)),
            F.mean(x, axis=1, keepdims=True),
            F.split(x, 2, axis=2)[1],
            F.where(x > 0.5, x, x * 2),
            F.broadcast_add(x, F.sum(x, axis=0, keepdims=True)),
            F.L2Normalization(x),
            F.argsort(x),
            F.SequenceMask(x, F.ones((3,)), use_sequence_length=True, value=-1),
            F.dot(x, F.transpose(F.sum(x, axis=0))),
            F.gather_nd(x, F.zeros((2, 3))),
            F.broadcast_mod(x, F.ones((1, 1, 1)) * 0.3),
            F.cbrt(x),
            F.pad(image, mode="edge", pad_width=border),
            F.pad(image, mode="reflect", pad_width=border),
            F.UpSampling(image, scale=2, sample_type="nearest"),
            F.contrib.BilinearResize2D(image, height=6, width=9),
            F.contrib.AdaptiveAvgPooling2D(image, output_size=2),
            F.Pooling(image, kernel=(2, 2), stride=(2, 2), pooling_convention="full", pool_type="avg", pad=(1, 1)),
            F.Pooling(image, kernel=(2, 2), pool_type="lp", p_value=2),
        ]


@pytest.mark.parametrize("opset", [13, 20])
def test_operators_without_an_equal(opset, tmp_path):
    compare(Various(), [random(2, 3, 4)], tmp_path / "net.onnx", opset_version=opset)


def test_an_operator_that_is_used_twice_with_the_same_types(tmp_path):
    """The graph of its primitives is one object for both."""

    class Twice(HybridBlock):
        def hybrid_forward(self, F, x):
            y = F.broadcast_add(F.ones((1, 3)), F.zeros((2, 3)))
            return F.broadcast_add(F.ones((1, 3)), x) + F.smooth_l1(y) + F.smooth_l1(x)

    compare(Twice(), [random(2, 3)], tmp_path / "net.onnx")


def dense():
    data = mx.sym.var("data")
    net = mx.sym.FullyConnected(data, num_hidden=3, name="fc")
    return net, {"fc_weight": random(3, 4), "fc_bias": random(3)}


class Outer(HybridBlock):
    """Sums whose operands stretch in different axes; one is a constant whose elements are equal."""

    def hybrid_forward(self, F, x):
        zeros = F.zeros_like(F.contrib.arange_like(x, axis=0))
        y = F.broadcast_add(F.reshape(F.slice_axis(x, axis=0, begin=0, end=1), (-1, 1)), F.reshape(zeros, (1, -1)))
        return y, F.broadcast_add(F.reshape(zeros, (-1, 1)), F.reshape(zeros, (1, -1))) + F.sum(x)


def test_constants_that_stretch_others(tmp_path):
    compare(Outer(), [random(4, 3)], tmp_path / "net.onnx")


def test_names_and_forms_of_the_arguments(tmp_path):
    net, params = dense()
    out = mx.sym.SoftmaxOutput(net, name="softmax")
    path = str(tmp_path / "net.onnx")
    net_file, params_file = str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params")
    out.save(net_file)
    mx.nd.save(params_file, {f"arg:{name}": x for name, x in params.items()})
    for sym, given in ((out, params), (out, [params, {}]), (net_file, params_file)):
        mx.onnx.export_model(sym, given, [(2, 4)], np.float32, path)
        graph = onnx.load(path).graph
        assert [x.name for x in graph.input] == ["data"]
        assert [x.name for x in graph.output] == ["softmax_output"]
        assert {x.name for x in graph.initializer} == set(params)
        assert [(node.op_type, node.name) for node in graph.node] == [("Gemm", "fc"), ("Softmax", "softmax_output")]
    y = run(path, [random(2, 4)])[0]
    assert np.allclose(y, out.eval(data=random(2, 4), softmax_label=mx.nd.zeros(2), **params)[0].asnumpy(), atol=1e-6)


def test_sizes_that_are_left_open(tmp_path):
    net, params = dense()
    path = str(tmp_path / "net.onnx")
    for wanted, shape in ((None, ["batch", 4]), ([(None, 4)], ["batch", 4]), ([("N", 4)], ["n", 4])):
        mx.onnx.export_model(net, params, [(2, 4)], np.float32, path, dynamic=True, dynamic_input_shapes=wanted)
        session = onnxruntime.InferenceSession(path)
        assert session.get_inputs()[0].shape == shape
        assert session.get_outputs()[0].shape == [shape[0], 3]
    with pytest.raises(mx.MXNetError, match="Shape inconsistent"):
        mx.onnx.export_model(net, params, [(2, 4)], np.float32, path, dynamic=True, dynamic_input_shapes=[(2, None)])


def test_all_unsupported_operators_are_listed():
    x = mx.sym.var("data")
    y = mx.sym.gammaln(x, name="first")
    y = mx.sym.random.normal_like(y, name="second") + mx.sym.erfinv(y, name="third")
    with pytest.raises(mx.MXNetError) as e:
        mx.onnx.export_model(y, {}, [(2, 3)])
    assert str(e.value) == (
        "ONNX (opset 20) has no operators for\n  first: gammaln: needs lgamma\n"
        "  second: _random_normal_like: draws random numbers\n  third: erfinv: needs erfinv"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"opset_version": 12}, f"opset_version=12: it must be from 13 to {NEWEST}"),
        ({"in_shapes": []}, "in_shapes needs a shape for each of the inputs data; it has 0"),
        ({"in_types": [np.float32] * 2}, "in_types has 2 types for 1 shapes"),
        ({"dynamic": True, "dynamic_input_shapes": [(None,)]}, "data has 2 dimensions"),
        ({"dynamic": True, "dynamic_input_shapes": [(3, 4)]}, "dimension 0 of data is 2 in in_shapes, and 3 here"),
    ],
)
def test_refusals(change, message, tmp_path):
    net, params = dense()
    with pytest.raises(mx.MXNetError, match=message):
        arguments = {"in_shapes": [(2, 4)], "onnx_file_path": str(tmp_path / "net.onnx"), **change}
        mx.onnx.export_model(net, params, **arguments)
    assert not list(tmp_path.iterdir())


def test_without_the_package():
    code = (
        "import sys; sys.modules['onnx'] = None\nimport gluonjit as mx\n"
        "try: mx.onnx.export_model(mx.sym.var('x'), {}, [(1,)])\nexcept ImportError as e: print(e)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == 'ONNX files need the package onnx: pip install "gluonjit[onnx]"\n'


def test_inputs_and_outputs_that_are_returned(tmp_path):
    """ONNX wants another name for each: an input that is an output, and an output for the second time."""
    x = mx.sym.var("x")
    y = mx.sym.relu(x, name="y")
    file = mx.onnx.export_model(mx.sym.Group([x, y, y]), {}, [(2, 3)], np.float32, str(tmp_path / "net.onnx"))
    symbol, _, _ = mx.onnx.import_model(file)
    assert [y.name for y in onnx.load(file).graph.output] == ["x_output", "y_output", "y_output_output"]
    given = mx.nd.array([[-1, 0, 1], [2, -3, 4]])
    found = symbol.eval(x=given)
    for got, expected in zip(found, [given, given.relu(), given.relu()], strict=True):
        np.testing.assert_array_equal(got.asnumpy(), expected.asnumpy())
