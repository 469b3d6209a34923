"""Files that MXNet wrote come back byte for byte when they are read and written."""

import json
import lzma
from runpy import run_path

import pytest

import gluonjit as mx
from gluonjit.operators.registry import OPERATORS
from support import reference

from .cases import NAMES, Case

ZOO = ["alexnet", "densenet121", "inceptionv3", "mobilenetv2_1.0", "resnet18_v1", "resnet18_v2", "resnet50_v1"]
ZOO += ["squeezenet1.0", "vgg11", "vgg16"]


def test_unpacked_and_packed_again(root):
    pack = run_path(root / "tests" / "oracle" / "pack.py")
    assert pack["packed"](reference.folder()) == lzma.decompress(reference.ARCHIVE.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_graph(name, tmp_path):
    case = Case(name)
    case.symbol.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == case.path("model-symbol.json").read_bytes()


@pytest.mark.parametrize("file", ["model-0000.params", "structured.params"])
@pytest.mark.parametrize("name", NAMES)
def test_parameters(name, file, tmp_path):
    path = Case(name).path(file)
    mx.nd.save(tmp_path / "again.params", mx.nd.load(path))
    assert (tmp_path / "again.params").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ZOO)
def test_graph_of_the_model_zoo(name, shared):
    path = shared / "mxnet" / "ref" / "zoo" / f"{name}-symbol.json"
    text = path.read_text()
    assert {row["op"] for row in json.loads(text)["nodes"]} <= {"null", *OPERATORS}
    assert mx.sym.load(path).tojson() == text
