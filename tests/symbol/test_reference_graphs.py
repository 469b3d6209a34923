"""Inference on graphs that MXNet exported gives MXNet's names, shapes and types, and the node order of its files."""

import json
from pathlib import Path

import numpy as np
import pytest

from gluonjit import sym
from gluonjit.operators.registry import OPERATORS
from gluonjit.symbol.graph import post_order
from support import reference

CASES = sorted(reference.folder().glob("*/model-symbol.json"))


def read(path):
    """The graph in a file, as Symbol, and the file; skips when an operator is missing."""
    graph = json.loads(path.read_text())
    missing = {row["op"] for row in graph["nodes"]} - {"null", *OPERATORS}
    if missing:
        pytest.skip(f"there is no operator {', '.join(sorted(missing))} yet")
    return sym.load(path), graph


def check_order(symbol, graph):
    """Nodes come in the file's order, with as many outputs (hidden ones included) as `node_row_ptr` says."""
    order = post_order(symbol._heads)
    assert [node.name for node in order] == [row["name"] for row in graph["nodes"]]
    counts = np.diff(graph["node_row_ptr"]).tolist()
    assert [len(node.output_names) for node in order] == counts


def check(path):
    symbol, graph = read(path)
    meta = json.loads((path.parent / "meta.json").read_text())
    assert symbol.list_arguments() == meta["list_arguments"]
    assert symbol.list_auxiliary_states() == meta["list_aux"]
    assert symbol.list_outputs() == meta["list_outputs"]
    check_order(symbol, graph)

    used = [name for name in meta["input_names"] if name in symbol.list_inputs()]
    shapes = {n: tuple(s) for n, s in zip(meta["input_names"], meta["in_shapes"]) if n in used}
    args, outs, aux = symbol.infer_shape(**shapes)
    assert outs == [tuple(s) for s in meta["out_shapes"]]
    found = dict(zip(symbol.list_arguments() + symbol.list_auxiliary_states(), args + aux))
    params = {name: tuple(row[0]) for name, row in meta["params"].items() if name in found}
    assert {name: found[name] for name in params} == params

    dtypes = {n: t for n, t in zip(meta["input_names"], meta["in_dtypes"]) if n in used}
    _, outs, _ = symbol.infer_type(**dtypes)
    assert [np.dtype(t).name for t in outs] == meta["out_dtypes"]


@pytest.mark.parametrize("path", CASES, ids=[path.parent.name for path in CASES])
def test_graph(path):
    check(path)


def test_model_zoo(shared):
    for path in sorted((shared / "mxnet" / "ref" / "zoo").glob("*-symbol.json")):
        symbol, graph = read(path)
        meta = json.loads(Path(str(path).replace("-symbol", "-meta")).read_text())
        check_order(symbol, graph)
        args, outs, aux = symbol.infer_shape(data=tuple(meta["input"]))
        assert outs == [tuple(meta["out_shape"])]
        assert len(graph["nodes"]) == meta["nodes"]
        assert sum(map(np.prod, args[1:] + aux)) == meta["n_params"]
