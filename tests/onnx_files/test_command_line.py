"""ONNX files on the command line: as a checkpoint, and converted from and to one."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.tools.cli import main

pytest.importorskip("onnx", reason="the extra onnx is not installed")


@pytest.fixture
def folder(root, tmp_path, monkeypatch):
    """A folder with fire.onnx, made of the example, for images of any number."""
    monkeypatch.chdir(tmp_path)
    files = [str(root / "examples" / name) for name in ("fire-symbol.json", "fire-0000.params")]
    assert main(["convert", *files, "fire.onnx", "--input", "data=batchx3x24x24"]) == 0
    return tmp_path


@pytest.fixture
def wanted(root):
    net = mx.gluon.SymbolBlock.imports(
        str(root / "examples/fire-symbol.json"), "data", str(root / "examples/fire-0000.params")
    )
    net.hybridize(backend="numpy")
    return lambda x: net(mx.nd.array(x)).asnumpy()


def test_run(folder, wanted):
    x = np.random.RandomState(0).uniform(-1, 1, (2, 3, 24, 24)).astype(np.float32)
    np.save("x.npy", x)
    assert main(["run", "fire.onnx", "--input", "data=x.npy", "--output", "y.npy"]) == 0
    assert abs(np.load("y.npy") - wanted(x)).max() < 1e-5


def test_back_to_mxnets_files(folder, wanted, capsys):
    assert main(["convert", "fire.onnx", "again-symbol.json", "again-0000.params"]) == 0
    x = np.random.RandomState(1).uniform(-1, 1, (3, 3, 24, 24)).astype(np.float32)
    net = mx.gluon.SymbolBlock.imports("again-symbol.json", "data", "again-0000.params")
    net.hybridize(backend="numpy")
    assert abs(net(mx.nd.array(x)).asnumpy() - wanted(x)).max() < 1e-5
    assert "again-0000.params: 12 arrays" in capsys.readouterr().out
    assert json.loads((folder / "again-symbol.json").read_text())["nodes"]


def test_inspect(folder, capsys):
    assert main(["inspect", "fire.onnx"]) == 0
    said = capsys.readouterr().out
    assert "fire.onnx: an ONNX file" in said and "Convolution" in said and "unsupported: nothing" in said


def test_inputs_that_the_file_describes(root, folder, capsys):
    files = [str(root / "examples" / name) for name in ("fire-symbol.json", "fire-0000.params")]
    assert main(["convert", *files, "one.onnx", "--input", "data=1x3x24x24", "--opset", "13"]) == 0
    assert main(["run", "one.onnx", "--check"]) == 0
    assert "f32[1,10," in capsys.readouterr().out
    assert main(["run", "fire.onnx"]) == 1
    assert "say what data is: --input data=1x3x224x224" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "missing.onnx"], "error: cannot read missing.onnx: No such file"),
        (["run", "fire.onnx", "x.params"], "x.params: fire.onnx has its parameters in it"),
        (["run", "fire.onnx", "--input", "dat=1x3x24x24"], "the graph has no input 'dat'; did you mean 'data'?"),
        (["convert", "a-symbol.json", "a.onnx", "b"], "convert takes FROM and TO"),
        (["convert", "fire.onnx", "b.params"], "convert takes FROM and TO"),
    ],
)
def test_errors(folder, words, message, capsys):
    try:
        status = main(words)
    except SystemExit as e:
        status = e.code
    assert status in (1, 2)
    assert message in capsys.readouterr().err


def test_without_the_package(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["run", "fire.onnx"]) == 1
    assert capsys.readouterr().err == 'error: ONNX files need the package onnx: pip install "gluonjit[onnx]"\n'


@pytest.mark.parametrize(
    "shapes", ["3x7 3x7 3 3x2", "batchx7 batchx7 batch batchx2", "batchxlength batchxlength batch batchxmasked"]
)
@pytest.mark.parametrize("opset", [13, 20])
def test_a_checkpoint_of_bert(root, tmp_path, shapes, opset):
    """That MXNet exported, and ran: `tests/oracle/record_bert.py`."""
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime, which judges, is not installed")
    files = [str(tmp_path / name) for name in ("bert-symbol.json", "bert-0000.params", "bert.onnx")]
    with np.load(root / "tests" / "data" / "checkpoint" / "bert.npz") as recorded:
        for file, name in zip(files, ("graph", "params")):
            Path(file).write_bytes(recorded[name].tobytes())
        inputs = {f"data{k}": recorded[f"data{k}"] for k in range(4)}
        wanted = [recorded[f"output{k}"] for k in range(4)]
    given = [f"--input=data{k}={shape}" for k, shape in enumerate(shapes.split())]
    assert main(["convert", *files, *given, "--opset", str(opset)]) == 0
    onnx.checker.check_model(files[-1], full_check=True)
    session = onnxruntime.InferenceSession(files[-1], providers=["CPUExecutionProvider"])
    for rows in (slice(None), slice(0, 2)) if "batch" in shapes else (slice(None),):
        for found, y in zip(session.run(None, {n: x[rows] for n, x in inputs.items()}), wanted, strict=True):
            assert found.shape == y[rows].shape and abs(found - y[rows]).max() < 1e-5 * abs(y).max()
    if "batch" not in shapes:
        again = mx.onnx.import_to_gluon(files[-1])
        again.hybridize(backend="numpy")
        for found, y in zip(again(*map(mx.nd.array, inputs.values())), wanted, strict=True):
            assert found.shape == y.shape and abs(found.asnumpy() - y).max() < 1e-5 * abs(y).max()
