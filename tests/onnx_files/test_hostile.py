"""ONNX files that are damaged, or made to do harm: one clear error each, before memory is allocated."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def model(nodes, initializers=(), inputs=(("x", (2, 3)),), outputs=("y",), opset=17):
    described = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "net", described, results, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def add(other="c"):
    return helper.make_node("Add", ["x", other], ["y"], name="sum")


def tensor(dims, data=b"", name="c", kind=TensorProto.FLOAT, **fields):
    made = TensorProto(name=name, data_type=kind, dims=dims, raw_data=data, **fields)
    return made


def external(**facts):
    made = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in facts.items():
        made.external_data.add(key=key, value=str(value))
    return made


def nested(depth):
    flag = numpy_helper.from_array(np.array(True), "flag")
    plain = helper.make_node("Identity", ["x"], ["z"])
    other = body = helper.make_graph([plain], "b", [], [helper.make_empty_tensor_value_info("z")])
    for k in range(depth):
        node = helper.make_node("If", ["flag"], [f"z{k}"], then_branch=body, else_branch=other)
        body = helper.make_graph([node], "b", [], [helper.make_empty_tensor_value_info(f"z{k}")])
    return model([helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=other)], [flag])


def doubling(levels):
    """Functions, each of which calls the one before it twice."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "f0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], imports)]
    for k in range(1, levels):
        calls = [helper.make_node(f"f{k - 1}", [a], [b], domain="own") for a, b in (("a", "m"), ("m", "b"))]
        functions.append(helper.make_function("own", f"f{k}", ["a"], ["b"], calls, imports))
    made = model([helper.make_node(f"f{levels - 1}", ["x"], ["y"], domain="own")])
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.functions.extend(functions)
    return made


HUGE = [1 << 40, 1 << 40]
CASES = {
    "no initializer": (
        model([add()]),
        "node sum reads 'c', which no input, no initializer and no node before it makes",
    ),
    "a cycle": (
        model([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"]), add("b")]),
        "reads 'b', which no input, no initializer and no node before it makes",
    ),
    "made twice": (model([add("x"), add("x")]), "'y' is made twice"),
    "no output": (model([add("x")], outputs=["z"]), "nothing makes the output 'z'"),
    "dims that overflow": (model([add()], [tensor(HUGE)]), "has 0 bytes; its shape"),
    "negative dims": (model([add()], [tensor([-1])]), "has the shape"),
    "too few bytes": (model([add()], [tensor([3], b"123")]), "has 3 bytes; its shape"),
    "too few elements": (
        model([add()], [TensorProto(name="c", data_type=1, dims=[3], float_data=[1.0])]),
        "has 1 elements; its shape",
    ),
    "strings": (model([add()], [tensor([1], b"", kind=TensorProto.STRING)]), "has elements of string"),
    "a huge result": (
        model([helper.make_node("ConstantOfShape", ["s"], ["y"])], [numpy_helper.from_array(np.array(HUGE), "s")]),
        "is too large",
    ),
    "a huge input": (model([add("x")], inputs=[("x", (1 << 40,))]), "has an axis of"),
    "a long range": (
        model(
            [helper.make_node("Range", ["a", "b", "c"], ["y"])],
            [numpy_helper.from_array(np.array(v), n) for n, v in (("a", 0), ("b", 1 << 50), ("c", 1))],
        ),
        "Range of",
    ),
    "outside of the folder": (model([add()], [external(location="../secret")]), "which is not in the folder"),
    "an absolute place": (model([add()], [external(location="/etc/passwd")]), "which is not in the folder"),
    "no such file": (model([add()], [external(location="missing")]), "No such file"),
    "behind the end": (model([add()], [external(location="data", offset=8, length=12)]), "needs 12 bytes from 8 on"),
    "a negative place": (model([add()], [external(location="data", offset=-4, length=12)]), "needs 12 bytes"),
    "no number": (model([add()], [external(location="data", offset="x")]), "must be numbers"),
    "another length": (model([add()], [external(location="data", length=16)]), "it has 16"),
    "deep graphs": (nested(20), "nested more than 16 deep"),
    "deep functions": (doubling(40), "nested more than 16 deep"),
    "of the future": (model([add("x")], opset=9999), "has operators of opset 9999"),
    "bad attributes": (
        model([helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0])]),
        r"node y \(Transpose\): ",
    ),
    "bad operands": (model([add()], [tensor([4], b"\0" * 16)]), r"node sum \(Add\): "),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case, tmp_path):
    made, message = CASES[case]
    (tmp_path / "data").write_bytes(b"\0" * 12)
    (tmp_path / "net.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(mx.MXNetError, match=message) as e:
        mx.onnx.import_model(tmp_path / "net.onnx")
    assert "net.onnx" in str(e.value)


def test_no_file_of_onnx(tmp_path):
    with pytest.raises(mx.MXNetError, match="cannot read .*: No such file"):
        mx.onnx.import_model(tmp_path / "net.onnx")
    for data in (b"", b"\xff" * 100, b"PK\3\4", b"\x08\x08"):
        (tmp_path / "net.onnx").write_bytes(data)
        with pytest.raises(CheckpointError, match=r"net\.onnx is no ONNX file"):
            mx.onnx.import_model(tmp_path / "net.onnx")


def test_links_out_of_the_folder(tmp_path):
    (tmp_path / "secret").write_bytes(b"\0" * 12)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "data").symlink_to(tmp_path / "secret")
    (folder / "net.onnx").write_bytes(model([add()], [external(location="data")]).SerializeToString())
    with pytest.raises(CheckpointError, match="which is not in the folder"):
        mx.onnx.import_model(folder / "net.onnx")


def test_data_beside_the_file(tmp_path):
    (tmp_path / "data").write_bytes(b"\0" * 4 + np.array([1, 2, 3], np.float32).tobytes())
    (tmp_path / "net.onnx").write_bytes(model([add()], [external(location="data", offset=4)]).SerializeToString())
    _, args, _ = mx.onnx.import_model(tmp_path / "net.onnx")
    assert args["c"].asnumpy().tolist() == [1, 2, 3]


def test_damaged_files(tmp_path):
    """Every one of them is read, or is an MXNetError."""
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    shape = numpy_helper.from_array(np.array([0, -1]), "s")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], ceil_mode=1),
        helper.make_node("Reshape", ["b", "s"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"], axis=-1),
    ]
    data = model(nodes, [weight, shape], [("x", ("n", 3, 9, 9))]).SerializeToString()
    path = tmp_path / "net.onnx"
    rng = np.random.RandomState(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            # Most of the bytes are the weights, which may be anything.
            at = rng.randint(min(len(damaged), 330)) if rng.rand() < 0.8 else rng.randint(len(damaged))
            if rng.rand() < 0.7:
                damaged[at] = rng.randint(256)
            else:
                del damaged[at : at + rng.randint(1, 9)]
        path.write_bytes(damaged)
        try:
            mx.onnx.import_model(path)
        except mx.MXNetError:
            refused += 1
    assert 100 < refused < 400


def test_damaged_attributes(tmp_path):
    """Attributes of another type or out of range, and operands of other shapes, are read or are MXNetErrors."""
    weights = [
        numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"),
        numpy_helper.from_array(np.ones(2), "s"),
    ]
    calls = {
        "Conv": (["x", "w"], {"pads": [1, 1, 1, 1], "strides": [2, 2], "dilations": [1, 1], "group": 1}),
        "ConvTranspose": (["x", "w"], {"pads": [1, 1, 1, 1], "output_padding": [0, 0], "group": 1}),
        "AveragePool": (["x"], {"kernel_shape": [2, 2], "pads": [0, 0, 0, 0], "ceil_mode": 0, "count_include_pad": 1}),
        "Concat": (["x", "x"], {"axis": 1}),
        "Transpose": (["x"], {"perm": [0, 2, 3, 1]}),
        "Gather": (["x", "s"], {"axis": 1}),
        "LRN": (["x"], {"size": 3, "alpha": 0.1, "beta": 0.75}),
        "Flatten": (["x"], {"axis": 1}),
        "BatchNormalization": (["x", "s", "s", "s", "s"], {"epsilon": 1e-5}),
        "Softmax": (["x"], {"axis": 1}),
    }
    values = [0, -1, 7, 1 << 40, 0.5, float("nan"), "x", [1], [-1, 0], [1 << 40] * 4, [0.5, 1.5], [0] * 9, ["x", "y"]]
    rng = np.random.RandomState(0)
    refused = 0
    for _ in range(150):
        kind = [*calls][rng.randint(len(calls))]
        inputs, attributes = calls[kind]
        changed = {**attributes, [*attributes][rng.randint(len(attributes))]: values[rng.randint(len(values))]}
        made = model([helper.make_node(kind, inputs, ["y"], **changed)], weights, [("x", (1, 3, 6, 6))])
        (tmp_path / "net.onnx").write_bytes(made.SerializeToString())
        try:
            mx.onnx.import_model(tmp_path / "net.onnx")
        except mx.MXNetError:
            refused += 1
    assert 0 < refused < 150
