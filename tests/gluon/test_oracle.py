"""Losses, recurrent cells and layers, contrib blocks: names, printed forms, graphs and results are MXNet's.

What MXNet said is in `tests/data`, recorded by `tests/oracle/record_gluon.py`.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.operators.registry import OPERATORS
from support.compare import assert_close
from support.soak import SOAK

from .oracle_cases import CASES, trains, weight
from .truths import TRUTHS

DATA = Path(__file__).parents[1] / "data"

pytestmark = pytest.mark.usefixtures("fresh_names")


def flat(value):
    return [y for item in value for y in flat(item)] if isinstance(value, (list, tuple)) else [value]


@pytest.fixture(scope="module")
def results():
    with np.load(DATA / "gluon-cases.npz") as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(params=CASES)
def case(request):
    found = CASES[request.param]
    missing = [name for name in found.needs if name not in OPERATORS]
    if missing:
        pytest.skip(f"operator {missing[0]} is not declared")
    return found


def built(case):
    """The block with its values, and its inputs."""
    net = case.build(mx)
    net.initialize()
    arrays = [mx.nd.array(x) for x in case.inputs()]
    net(*arrays)
    fill(net)
    return net, arrays


def fill(net):
    for name, p in net._collect_params_with_prefix().items():
        p.set_data(mx.nd.array(weight(name, p.shape)))


def check(case, outputs, results):
    outputs = flat(outputs)
    assert f"{case.name}/{len(outputs)}" not in results
    for k, y in enumerate(outputs):
        assert_close(y.asnumpy(), results[f"{case.name}/{k}"], f"{case.name}, output {k}", 1e-5)


def test_results(case, results):
    net, arrays = built(case)
    truth = TRUTHS["cases"][case.name]
    assert [[n, list(p.shape), p.grad_req] for n, p in net.collect_params().items()] == truth["params"]
    assert list(net._collect_params_with_prefix()) == truth["structured"]
    assert repr(net) == truth["repr"]
    check(case, net(*arrays), results)
    if case.hybrid:
        # Native code where `test_gradients`, which has outputs, too, does not run it as in prediction.
        native = trains(net) or not differentiated(case, results) or not native_gradients(case)
        net.hybridize(backend="llvm" if native else "numpy")
        for _ in range(2):
            check(case, net(*arrays), results)


def differentiated(case, results):
    """MXNet's gradients, by name."""
    start = f"{case.name}/grad/"
    return {key.removeprefix(start): g for key, g in results.items() if key.startswith(start)}


def kind(name):
    """The class, whatever the rank of its images."""
    return re.sub(r"\dD", "", name.partition(" ")[0])


FIRST = {kind(name): name for name in reversed(CASES)}


def native_gradients(case):
    """Whether the gradients of native code are compared: in `make soak` or for the first case of a kind. The graphs of
    the other ones are of the same primitives."""
    return SOAK > 1 or FIRST[kind(case.name)] == case.name


def test_gradients(case, results):
    wanted = differentiated(case, results)
    if not wanted:
        pytest.skip("MXNet has no gradient of it")
    net, arrays = built(case)
    check_gradients(case, net, arrays, wanted, results)
    if case.hybrid:
        fill(net)  # training has changed moving averages
        net.hybridize(backend="llvm" if native_gradients(case) else "numpy")
        check_gradients(case, net, arrays, wanted, results)


def check_gradients(case, net, arrays, wanted, results):
    for k in case.differentiated():
        arrays[k].attach_grad()
    with mx.autograd.record(train_mode=trains(net)):
        outputs = flat(net(*arrays))
        heads = case.cotangents([y.shape for y in outputs])
        total = mx.nd.add_n(*[(y * mx.nd.array(h)).sum() for y, h in zip(outputs, heads)])
    total.backward(train_mode=trains(net))
    if not trains(net):
        check(case, outputs, results)
    found = {str(k): arrays[k].grad for k in case.differentiated()}
    found.update((n, p.grad()) for n, p in net._collect_params_with_prefix().items() if p.grad_req != "null")
    assert found.keys() == wanted.keys()
    for key, g in found.items():
        assert_close(g.asnumpy(), wanted[key], f"{case.name}, gradient by {key}", 1e-5)
        g[:] = np.nan  # so that none is left over


def test_graph(case):
    wanted = TRUTHS["cases"][case.name]["graph"]
    if wanted is None:
        pytest.skip("MXNet has no graph of it")
    inputs = case.inputs()
    names = ["data"] if len(inputs) == 1 else [f"data{k}" for k in range(len(inputs))]
    outputs = flat(case.build(mx)(*map(mx.sym.var, names)))
    out = mx.sym.Group(outputs) if len(outputs) > 1 else outputs[0]
    for node, (op, name, attrs, entries) in zip(json.loads(out.tojson())["nodes"], wanted, strict=True):
        assert (node["op"], node["name"]) == (op, name)
        assert node.get("attrs", {}) == attrs
        assert [i[:2] for i in node["inputs"]] == entries
