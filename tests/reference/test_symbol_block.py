"""Models that MXNet exported, as blocks: they give its outputs, and exporting them again gives its files."""

import json

import pytest
from gluon.reference_models import CASES

import gluonjit as mx
from support.compare import assert_close

from .cases import NAMES, Case


def imported(case):
    case.symbol  # noqa: B018  (skips the test where an operator is missing)
    names = case.meta["input_names"]
    return mx.gluon.SymbolBlock.imports(case.path("model-symbol.json"), names, case.path("model-0000.params"))


@pytest.mark.parametrize("name", NAMES)
def test_import_and_export_again(name, tmp_path):
    case = Case(name)
    block = imported(case)
    block.hybridize(backend="numpy")  # `test_ref.py` compiles the same graphs
    arrays = case.arrays
    results = block(*(arrays[name] for name in case.meta["input_names"]))
    results = results if isinstance(results, list) else [results]
    for what, got, expected in zip(case.meta["list_outputs"], results, case.outputs, strict=True):
        assert_close(got.asnumpy(), expected, what, case.meta["tol"])
    block.export(tmp_path / "again")
    for ours, theirs in (("again-symbol.json", "model-symbol.json"), ("again-0000.params", "model-0000.params")):
        assert (tmp_path / ours).read_bytes() == case.path(theirs).read_bytes()


def nodes(path):
    """Operators, names, attributes, edges; not the versions of edges, which count how often MXNet traced a model."""
    rows = json.loads(path.read_text())["nodes"]
    return [[row["op"], row["name"], row.get("attrs", {}), [edge[:2] for edge in row["inputs"]]] for row in rows]


@pytest.mark.parametrize("name", sorted(CASES))
def test_gluon_models_export_to_mxnets_graphs(name, tmp_path):
    case = Case(name)
    with mx.name.NameManager():
        net = CASES[name]()
    net.initialize()
    net.hybridize(backend="numpy")
    net(*(mx.nd.array(x, dtype=x.dtype) for x in case.inputs))
    if case.meta["params"]:
        net.load_parameters(case.path("structured.params"))
    net.export(tmp_path / "net", epoch=3)
    assert nodes(tmp_path / "net-symbol.json") == nodes(case.path("model-symbol.json"))
    assert (tmp_path / "net-0003.params").read_bytes() == case.path("model-0000.params").read_bytes()
