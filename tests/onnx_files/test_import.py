"""What `mx.onnx.import_model` makes of ONNX's nodes."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.symbol.graph import post_order

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from .symbols import computed  # noqa: E402


def imported(path, nodes, inputs, outputs=("y",), opset=17, **arrays):
    described = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    initializers = [numpy_helper.from_array(x, name) for name, x in arrays.items()]
    graph = helper.make_graph(nodes, "net", described, results, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    symbol, args, aux = mx.onnx.import_model(path)
    return symbol, {**args, **aux}, aux


def operators(symbol):
    return [node.op.name for node in post_order(symbol._heads) if node.op is not None]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.onnx"


def test_names(path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["y_output"]),
    ]
    ones = {name: np.ones(2, np.float32) for name in ("s", "b", "mean", "var")}
    symbol, arrays, aux = imported(
        path, nodes, {"x": (1, (1, 3, 4, 4))}, ["y_output"], w=np.ones((2, 3, 3, 3), np.float32), **ones
    )
    assert symbol.list_arguments() == ["x", "w", "s", "b"]
    assert symbol.list_auxiliary_states() == ["mean", "var"] == list(aux)
    assert symbol.list_outputs() == ["y_output"]
    assert symbol.list_inputs() == ["x", *arrays]
    assert operators(symbol) == ["Convolution", "BatchNorm", "relu"]


def test_sizes_leave_no_operators(path):
    """As PyTorch writes x.view(x.size(0), x.size(1), 2, -1)."""
    nodes = [helper.make_node("Shape", ["x"], ["s"])]
    for k in range(2):
        nodes += [
            helper.make_node("Gather", ["s", f"k{k}"], [f"n{k}"]),
            helper.make_node("Unsqueeze", [f"n{k}", "zero"], [f"v{k}"]),
        ]
    nodes += [
        helper.make_node("Concat", ["v0", "v1", "two", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"k0": np.array(0), "k1": np.array(1)}
    constants |= {"zero": np.array([0]), "two": np.array([2]), "rest": np.array([-1])}
    symbol, arrays, _ = imported(path, nodes, {"x": (1, ("N", "length", 6))}, **constants)
    assert operators(symbol) == ["Reshape"] and not arrays
    for shape in ((1, 4, 6), (3, 1, 6), (2, 5, 6)):
        x = np.random.rand(*shape).astype(np.float32)
        assert (computed(symbol, {"x": x})[0] == x.reshape(*shape[:2], 2, 3)).all()


def test_sizes_that_are_results(path):
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Mul", ["s", "two"], ["y"])]
    symbol, arrays, _ = imported(path, nodes, {"x": (1, ("N", 3))}, two=np.array([2]))
    (found,) = computed(symbol, {"x": np.zeros((5, 3), np.float32), **arrays})
    assert found.tolist() == [10, 6] and found.dtype == np.int64


def test_sizes_of_32_bits(path):
    """They meet other values of that type, and may become a shape again."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["i"], to=onnx.TensorProto.INT32),
        helper.make_node("Min", ["i", "k"], ["y"]),
        helper.make_node("Mul", ["i", "one"], ["j"]),
        helper.make_node("Cast", ["j"], ["shape"], to=onnx.TensorProto.INT64),
        helper.make_node("Reshape", ["x", "shape"], ["z"]),
    ]
    given = {"x": (1, ("N", 3)), "k": (onnx.TensorProto.INT32, (2,))}
    symbol, arrays, _ = imported(path, nodes, given, ("y", "z"), one=np.array([1], np.int32))
    k, x = np.array([4, 4], np.int32), np.zeros((5, 3), np.float32)
    found, same = computed(symbol, {"x": x, "k": k, **arrays})
    assert found.tolist() == [4, 3] and found.dtype == np.int32 and same.shape == x.shape


def test_expand_to_an_open_size(path):
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["c", "s"], ["y"])]
    symbol, arrays, _ = imported(path, nodes, {"x": (1, ("N", 3))}, c=np.array([[1, 2, 3]], np.float32))
    arrays = {name: x.asnumpy() for name, x in arrays.items()}
    (found,) = computed(symbol, {"x": np.zeros((4, 3), np.float32), **arrays})
    assert (found == np.tile([1, 2, 3], (4, 1))).all()


@pytest.mark.parametrize(
    ("kind", "pads", "more", "wanted"),
    [
        ("MaxPool", [0, 0, 1, 1], {}, ["Pooling"]),
        ("MaxPool", [0, 0, 0, 0], {"ceil_mode": 1}, ["Pooling"]),
        ("AveragePool", [0, 0, 1, 1], {}, ["Pooling"]),
        ("AveragePool", [1, 1, 1, 1], {"count_include_pad": 1}, ["Pooling"]),
        ("AveragePool", [0, 0, 1, 1], {"count_include_pad": 1}, ["_npi_pad", "Pooling", "broadcast_div"]),
    ],
)
def test_windows(kind, pads, more, wanted, path):
    node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=pads, **more)
    symbol, arrays, _ = imported(path, [node], {"x": (1, (1, 2, 6, 6))})
    assert operators(symbol) == wanted
    x = np.random.RandomState(0).uniform(-1, 1, (1, 2, 6, 6)).astype(np.float32)
    from onnx.reference import ReferenceEvaluator

    (right,) = ReferenceEvaluator(str(path)).run(None, {"x": x})
    (found,) = computed(symbol, {"x": x, **{name: a.asnumpy() for name, a in arrays.items()}})
    assert found.shape == right.shape and abs(found - right).max() < 1e-6


def test_types_that_are_held_in_wider_ones(path):
    inputs = {"a": (TensorProto.UINT16, (2,)), "b": (TensorProto.UINT16, (2,))}
    symbol, _, _ = imported(path, [helper.make_node("Less", ["a", "b"], ["y"])], inputs)
    given = {"a": np.array([1, 60000], np.int32), "b": np.array([2, 3], np.int32)}
    assert computed(symbol, given)[0].tolist() == [True, False]
    with pytest.raises(mx.MXNetError, match="y: Add of uint16"):
        imported(path, [helper.make_node("Add", ["a", "b"], ["y"])], inputs)


def test_all_that_is_missing_is_listed(path):
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Unique", ["x"], ["b"], name="second"),
        helper.make_node("Nonsense", ["b"], ["c"], name="third"),
        helper.make_node("Frob", ["x"], ["y"], name="fourth", domain="own"),
    ]
    with pytest.raises(mx.MXNetError) as e:
        imported(path, nodes, {"x": (1, (2, 3))})
    assert str(e.value).splitlines()[1:] == [
        "  first: NonZero whose operand is computed",
        "  second: Unique",
        "  third: Nonsense",
        "  fourth: own.Frob",
    ]


def test_a_shape_that_is_an_input(path):
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    with pytest.raises(mx.MXNetError, match="y: Reshape whose shape is computed"):
        imported(path, [node], {"x": (1, (2, 3)), "s": (TensorProto.INT64, (1,))})


def test_a_condition_that_is_computed(path):
    def branch(op):
        node = helper.make_node(op, ["x"], ["z"])
        return helper.make_graph([node], op, [], [helper.make_empty_tensor_value_info("z")])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "c"], ["t"]),
        helper.make_node("If", ["t"], ["y"], then_branch=branch("Neg"), else_branch=branch("Exp")),
    ]
    symbol, arrays, _ = imported(path, nodes, {"x": (1, (3,))}, c=np.array(1, np.float32))
    arrays = {name: x.asnumpy() for name, x in arrays.items()}
    for x in (np.ones(3, np.float32), np.zeros(3, np.float32)):
        right = -x if x.sum() > 1 else np.exp(x)
        assert abs(computed(symbol, {"x": x, **arrays})[0] - right).max() < 1e-6


@pytest.mark.parametrize(
    ("direction", "lengths"), [("forward", True), ("reverse", False), ("bidirectional", False), ("forward", False)]
)
def test_grus_that_reset_before_the_product(path, direction, lengths):
    """MXNet's reset behind it; onnxruntime judges."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime, which judges, is not installed")
    rng, d = np.random.default_rng(0), 2 if direction == "bidirectional" else 1

    def numbers(*shape):
        return rng.uniform(-1, 1, shape).astype(np.float32)

    arrays = {"w": numbers(d, 12, 3), "r": numbers(d, 12, 4), "b": numbers(d, 24), "h": numbers(d, 2, 4)}
    if lengths:
        arrays["lengths"] = np.array([2, 5], np.int32)
    inputs = ["x", "w", "r", "b", "lengths" if lengths else "", "h"]
    nodes = [helper.make_node("GRU", inputs, ["y", "end"], hidden_size=4, direction=direction)]
    symbol, args, _ = imported(path, nodes, {"x": (1, (5, 2, 3))}, ("y", "end"), **arrays)
    x = numbers(5, 2, 3)
    wanted = onnxruntime.InferenceSession(path.read_bytes()).run(None, {"x": x})
    for found, right in zip(computed(symbol, {"x": x, **args}), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
