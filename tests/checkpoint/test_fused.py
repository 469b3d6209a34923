"""Graphs that MXNet's oneDNN backend fused and quantized give its results, node for node."""

import json
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError
from gluonjit.files import params
from gluonjit.symbol.graph import post_order
from support.compare import assert_close

RECORDED = np.load(Path(__file__).resolve().parents[1] / "data" / "checkpoint" / "fused.npz")
CASES = dict.fromkeys(name.partition("/")[0] for name in RECORDED.files)


def graph(case):
    return RECORDED[f"{case}/graph"].tobytes().decode()


def arrays(case):
    return {
        name: mx.nd.NDArray._wrap(x) for name, x in params.parse(RECORDED[f"{case}/params"].tobytes(), case).items()
    }


def inside(case):
    """A block whose outputs are those of every node recorded, and their names."""
    symbol = mx.sym.load_json(graph(case)).get_internals()
    names = [name.partition("/")[2] for name in RECORDED.files if name.startswith(f"{case}/")]
    names = [name for name in names if name not in ("x", "graph", "params")]
    block = mx.gluon.SymbolBlock([symbol[name] for name in names], mx.sym.var("data"))
    block.params.load_dict(arrays(case), ignore_extra=True, cast_dtype=True, dtype_source="saved")
    return block, names


AS_MODULE = ("floats", "calibrated", "attention")


@pytest.mark.parametrize(
    ("case", "backend"), [(c, "numpy") for c in CASES] + [(c, "llvm") for c in CASES if c not in AS_MODULE]
)
def test_every_node(case, backend):
    """Native code of the others gives the last node in `test_as_a_module`."""
    block, names = inside(case)
    block.hybridize(backend=backend)
    outputs = block(mx.nd.array(RECORDED[f"{case}/x"]))
    for name, got in zip(names, outputs if isinstance(outputs, list) else [outputs], strict=True):
        expected = RECORDED[f"{case}/{name}"]
        got = got.asnumpy()
        if expected.dtype.kind == "f":
            assert_close(got, expected, name)
        else:  # exactly, but for what lies between two integers
            assert got.dtype == expected.dtype and got.shape == expected.shape
            apart = np.abs(got.astype(np.int64) - expected)
            assert apart.max() <= 1 and np.mean(apart > 0) <= 0.01, name


@pytest.mark.parametrize("case", CASES)
def test_written_as_read(case):
    assert mx.sym.load_json(graph(case)).tojson() == graph(case)


@pytest.mark.parametrize("case", AS_MODULE)
def test_as_a_module(case):
    """Which finds the types of all variables itself: some are int8."""
    x = RECORDED[f"{case}/x"]
    loaded = arrays(case)
    module = mx.mod.Module(mx.sym.load_json(graph(case)), label_names=None)
    module.bind([("data", x.shape)], for_training=False)
    states = {name[4:]: value for name, value in loaded.items() if name.startswith("aux:")}
    args = {name[4:]: value for name, value in loaded.items() if name.startswith("arg:")}
    module.set_params(args, states)
    (output,) = module.output_names
    assert_close(module.predict(x).asnumpy(), RECORDED[f"{case}/{output}"])


def test_statistics_are_states():
    symbol = mx.sym.load_json(graph("floats"))
    assert symbol.list_auxiliary_states() == ["bn1_moving_mean", "bn1_moving_var", "bn2_moving_mean", "bn2_moving_var"]


def test_export(tmp_path):
    block = mx.gluon.SymbolBlock(mx.sym.load_json(graph("calibrated")), mx.sym.var("data"))
    block.params.load_dict(arrays("calibrated"), cast_dtype=True, dtype_source="saved")
    x = mx.nd.array(RECORDED["calibrated/x"])
    net = mx.gluon.nn.HybridSequential()
    net.add(block)
    net.hybridize()
    expected = net(x).asnumpy()
    net.export(tmp_path / "net")
    again = mx.gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", "data", tmp_path / "net-0000.params")
    assert_close(again(x).asnumpy(), expected)


def test_early_names_of_attributes():
    """MXNet 1.5's: the node tells that an activation follows by `with_relu`, after a sum by `with_postsum_relu`."""
    today = mx.sym.load_json(graph("calibrated"))
    assert '"with_act"' in today.tojson() and '"with_postsum_act"' in today.tojson()
    early = today.tojson().replace('"with_act"', '"with_relu"').replace('"with_postsum_act"', '"with_postsum_relu"')
    assert mx.sym.load_json(early).tojson() == today.tojson()


def altered(change):
    """The graph `floats`, with a change to the first node that holds a graph."""
    data = json.loads(graph("floats"))
    node = next(n for n in data["nodes"] if "subgraphs" in n)
    change(node, node["subgraphs"][0])
    return json.dumps(data)


def drop_graph(node, held):
    del node["subgraphs"]


def another_layer(node, held):
    node["op"] = "_sg_mkldnn_fully_connected"
    node["attrs"] = {}


def another_operator(node, held):
    next(n for n in held["nodes"] if n["op"] == "Activation").update(op="softmax", attrs={})


def fewer_inputs(node, held):
    del node["inputs"][-1]


def more_ranges(node, held):
    node["attrs"]["quantized"] = "true"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_graph, "0 subgraphs of _sg_mkldnn_conv; expected 1"),
        (another_layer, "holds Convolution, BatchNorm; expected FullyConnected"),
        (another_operator, "holds Convolution, BatchNorm, softmax of .*; expected one layer and what may follow it"),
        (fewer_inputs, "6 inputs of _sg_mkldnn_conv; expected 7 .data, weight, bias, gamma, beta, mean, var"),
        (more_ranges, "7 inputs of _sg_mkldnn_conv; expected 9 .*, data_min, data_max"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_malformed(change, message):
    with pytest.raises(CheckpointError, match=message):
        mx.sym.load_json(altered(change))


def test_they_come_from_files_only():
    with pytest.raises(mx.MXNetError, match="_sg_mkldnn_conv"):
        mx.nd.invoke(mx.operators.registry.get("_sg_mkldnn_conv"), [mx.nd.ones((1, 1, 3, 3))], {})


def test_all_operators_are_known():
    for case in CASES:
        assert all(node.op for node in post_order(mx.sym.load_json(graph(case))._heads) if node.inputs)
