"""Models written for MXNet, with the parameters that it saved, give its outputs here: in every mode of running."""

import numpy as np
import pytest
from gluon.reference_models import CASES

import gluonjit as mx
from support.compare import assert_close

from .cases import Case


@pytest.fixture(params=sorted(CASES))
def case(request):
    return Case(request.param)


@pytest.fixture
def net(case):
    """The model, with its parameters."""
    with mx.name.NameManager():
        net = CASES[case.name]()
    path = case.path("structured.params")
    if case.meta["params"]:
        net.load_parameters(path)
    return net


def run(net, case):
    outputs = net(*(mx.nd.array(x, dtype=x.dtype) for x in case.inputs))
    return [x.asnumpy() for x in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


def check(results, case, expected):
    assert [x.dtype.name for x in results] == case.meta["out_dtypes"]
    for what, got, wanted in zip(case.meta["list_outputs"], results, expected, strict=True):
        assert_close(got, wanted, what, case.meta["tol"])


def test_imperative(net, case):
    check(run(net, case), case, case.outputs)


@pytest.mark.parametrize("backend", ["numpy", "llvm"])
def test_hybridized(net, case, backend):
    net.hybridize(backend=backend)
    check(run(net, case), case, case.outputs)
    check(run(net, case), case, case.outputs)  # what the first call left behind serves the second


def trained(case):
    """MXNet's outputs in train mode; skips the test when they depend on chance."""
    if not case.meta["train"]:
        pytest.skip("draws random numbers in train mode, or was not recorded there")
    recorded = np.load(case.path("train.npz"))
    return [recorded[f"out{k}"] for k in range(len(case.meta["out_shapes"]))]


def test_train_mode(net, case):
    """Hybridized, and while it is recorded: test_gradients.py."""
    expected = trained(case)
    with mx.autograd.train_mode():
        check(run(net, case), case, expected)


def test_lenet_is_mxnets_to_the_last_name():
    case = Case("lenet_seed")
    with mx.name.NameManager():
        net = CASES["lenet_seed"]()
    net.load_parameters(case.path("structured.params"))
    params = net.collect_params()
    assert list(params.keys()) == list(case.meta["params"])
    assert {n: [list(p.shape), np.dtype(p.dtype).name, p.grad_req] for n, p in params.items()} == case.meta["params"]
    for name, array in mx.nd.load(case.path("model-0000.params")).items():
        np.testing.assert_array_equal(params[name.removeprefix("arg:")].data().asnumpy(), array.asnumpy())
    graph = net(mx.sym.var("data"))
    assert graph.list_arguments() == case.meta["list_arguments"]
    assert graph.list_auxiliary_states() == case.meta["list_aux"] == []
    assert graph.list_outputs() == case.meta["list_outputs"]
    assert [x.dtype.name for x in run(net, case)] == case.meta["out_dtypes"]


def test_saved_parameters_are_mxnets_file(net, case, tmp_path):
    if not case.meta["params"]:
        pytest.skip("has no parameters")
    net.save_parameters(tmp_path / "again.params")
    assert (tmp_path / "again.params").read_bytes() == case.path("structured.params").read_bytes()
