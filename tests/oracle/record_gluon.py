"""Asks real MXNet 1.9.1 about Gluon: the cases of `tests/gluon/oracle_cases.py` and every vision model.

    oracle/bin/python tests/oracle/record_gluon.py

in the venv that `record.py` describes. Results of the cases go to `tests/data/gluon-cases.npz` (`<case>/<k>`),
gradients by inputs and parameters, too (`<case>/grad/<k>`, `<case>/grad/<name>`). Names, shapes, printed forms, graphs
and signatures go to `tests/data/gluon-graphs.json.xz`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import lzma
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np

TESTS = Path(__file__).resolve().parents[1]


def load_cases() -> Any:
    import sys

    spec = importlib.util.spec_from_file_location("oracle_cases", TESTS / "gluon" / "oracle_cases.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["oracle_cases"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def flat(value: Any) -> list[Any]:
    return [y for item in value for y in flat(item)] if isinstance(value, (list, tuple)) else [value]


def graph(result: Any) -> list[Any]:
    """Nodes as [operator, name, attributes, inputs]."""
    results = flat(result)
    nodes = json.loads((mx.sym.Group(results) if len(results) > 1 else results[0]).tojson())["nodes"]
    return [[n["op"], n["name"], n.get("attrs", {}), [i[:2] for i in n["inputs"]]] for n in nodes]


def facts(net: Any) -> dict[str, Any]:
    return {
        "params": [[name, list(p.shape), p.grad_req] for name, p in net.collect_params().items()],
        "structured": list(net._collect_params_with_prefix()),
        "repr": repr(net),
    }


def names(count: int) -> list[str]:
    return ["data"] if count == 1 else [f"data{k}" for k in range(count)]


def gradients(case: Any, net: Any, arrays: list[Any], training: bool) -> dict[str, np.ndarray]:
    """Gradients by inputs, numbered, and by parameters, by structured names; none where MXNet cannot."""
    params = {n: p for n, p in net._collect_params_with_prefix().items() if p.grad_req != "null"}
    for k in case.differentiated():
        arrays[k].attach_grad()
    try:
        with mx.autograd.record(train_mode=training):
            outputs = flat(net(*arrays))
            # A sum: of an array that is among the heads twice, MXNet takes the last head gradient alone.
            heads = case.cotangents([y.shape for y in outputs])
            total = mx.nd.add_n(*[(y * mx.nd.array(h)).sum() for y, h in zip(outputs, heads)])
        total.backward(train_mode=training)
        found = {str(k): arrays[k].grad.asnumpy() for k in case.differentiated()}
        return {**found, **{n: p.grad().asnumpy() for n, p in params.items()}}
    except mx.MXNetError as e:
        print(f"{case.name}: no gradient: {str(e).splitlines()[-1]}")
        return {}


def run_case(case: Any, cases: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with mx.name.NameManager():
        net = case.build(mx)
        try:
            nodes = graph(net(*map(mx.sym.var, names(len(case.inputs())))))
        except Exception as e:  # not every block of MXNet works with symbols
            print(f"{case.name}: no graph: {type(e).__name__}")
            nodes = None
    arrays = [mx.nd.array(x) for x in case.inputs()]
    # Shapes first, values before the first call: it may bring weights into a layout that MXNet cannot write to.
    if nodes is not None:
        net.infer_shape(*arrays)
    net.initialize()
    for name, p in net._collect_params_with_prefix().items():
        p.set_data(mx.nd.array(cases.weight(name, p.shape)))
    results = {str(k): y.asnumpy() for k, y in enumerate(flat(net(*arrays)))}
    found = gradients(case, net, arrays, cases.trains(net))
    return {**facts(net), "graph": nodes}, {**results, **{f"grad/{key}": g for key, g in found.items()}}


def vision_model(name: str) -> dict[str, Any]:
    with mx.name.NameManager():
        net = mx.gluon.model_zoo.vision.get_model(name)
        nodes = graph(net(mx.sym.var("data")))
    size = 299 if name == "inceptionv3" else 224
    net.infer_shape(mx.nd.zeros((1, 3, size, size)))
    return {**facts(net), "graph": nodes}


MODULES = ("loss", "rnn", "contrib.nn", "contrib.rnn", "contrib.cnn", "model_zoo.vision", "model_zoo.model_store")


def signatures() -> dict[str, dict[str, str]]:
    """Of all public classes and functions: parameters with their defaults, but for folders and contexts."""
    found = {}
    for path in MODULES:
        module = importlib.import_module(f"mxnet.gluon.{path}")
        names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
        members = {n: getattr(module, n) for n in names}
        found[path] = {n: shown(x) for n, x in members.items() if callable(x) and "mxnet.gluon" in x.__module__}
    return found


def shown(function: Any) -> str:
    return ", ".join(
        p.name if p.name in ("ctx", "root") else str(p) for p in inspect.signature(function).parameters.values()
    )


def main() -> None:
    cases = load_cases()
    arrays, truths = {}, {"cases": {}, "zoo": {}, "signatures": signatures()}
    for name, case in cases.CASES.items():
        truths["cases"][name], results = run_case(case, cases)
        arrays.update({f"{name}/{key}": y for key, y in results.items()})
    try:
        mx.gluon.model_zoo.vision.get_model("")
    except ValueError as e:
        listed = str(e).split("\n\t")[1:]
    for name in listed:
        truths["zoo"][name] = vision_model(name)
    np.savez_compressed(TESTS / "data" / "gluon-cases.npz", **arrays)
    text = json.dumps(truths, separators=(",", ":"))
    (TESTS / "data" / "gluon-graphs.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{len(cases.CASES)} cases, {len(listed)} models")


if __name__ == "__main__":
    main()
