"""Models written for MXNet have MXNet's names, shapes, printed form and graph here."""

import json

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.symbol.graph import post_order
from support import reference
from support.compare import assert_close

from .reference_models import CASES

pytestmark = pytest.mark.usefixtures("fresh_names")


@pytest.fixture(params=sorted(CASES))
def case(request):
    return request.param


@pytest.fixture
def built(case):
    meta = json.loads((reference.folder() / case / "meta.json").read_text())
    return CASES[case](), meta


def test_names_shapes_and_repr(built):
    net, meta = built
    net.initialize()
    net(*(mx.nd.zeros(shape, dtype=dtype) for shape, dtype in zip(meta["in_shapes"], meta["in_dtypes"])))
    params = net.collect_params()
    assert {n: [list(p.shape), np.dtype(p.dtype).name, p.grad_req] for n, p in params.items()} == meta["params"]
    assert list(params.keys()) == list(meta["params"])
    assert list(net._collect_params_with_prefix()) == meta["structured"]
    assert repr(net) == meta["repr"]


def test_graph(case, built):
    net, meta = built
    out = net(*map(mx.sym.var, meta["input_names"]))
    out = mx.sym.Group(out) if isinstance(out, list) else out
    assert out.list_arguments() == meta["list_arguments"]
    assert out.list_auxiliary_states() == meta["list_aux"]
    assert out.list_outputs() == meta["list_outputs"]
    expected = json.loads((reference.folder() / case / "model-symbol.json").read_text())["nodes"]
    nodes = post_order(out._heads)
    position = {node: k for k, node in enumerate(nodes)}
    for node, wanted in zip(nodes, expected, strict=True):
        assert node.name == wanted["name"]
        assert (node.op.name if node.op else "null") == wanted["op"]
        assert node.attrs == wanted.get("attrs", {})
        assert [[position[n], k] for n, k in node.inputs] == [i[:2] for i in wanted["inputs"]]


def test_infer_shape_completes_parameters_without_running(built):
    net, meta = built
    net.infer_shape(*(mx.nd.zeros(shape, dtype=dtype) for shape, dtype in zip(meta["in_shapes"], meta["in_dtypes"])))
    assert {n: list(p.shape) for n, p in net.collect_params().items()} == {
        n: shape for n, (shape, _, _) in meta["params"].items()
    }


def test_hybridized_gives_the_imperative_answer(built):
    net, meta = built
    mx.random.seed(9)
    net.initialize(mx.init.Uniform(0.5))
    for param in net.collect_params(".*(running_mean|beta)").values():
        param.initialize("uniform", force_reinit=True)
    inputs = [
        mx.nd.random.uniform(-3, 10, shape=shape).astype(dtype)
        for shape, dtype in zip(meta["in_shapes"], meta["in_dtypes"])
    ]
    expected = net(*inputs)
    net.hybridize()
    result = net(*inputs)
    both = [(result, expected)] if not isinstance(expected, list) else list(zip(result, expected, strict=True))
    for out, wanted in both:
        assert_close(out.asnumpy(), wanted.asnumpy(), tol=meta["tol"])
