"""Loops and branches against what MXNet recorded, imperatively and compiled, and on other random numbers."""

import zlib

import numpy as np
import pytest

from gluonjit import gluon, nd
from gluonjit.execution.block_compiler import trace_call
from support.compare import difference

from . import control_flow_cases as cases


def flat(value):
    return [y for part in value for y in flat(part)] if isinstance(value, (list, tuple)) else [value]


def block(function):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, *arrays):
            return function(F, *arrays)

    return Net()


def run(net, arrays):
    return [y.asnumpy() for y in flat(net(*(nd.array(x, dtype=x.dtype) for x in arrays)))]


def assert_equal(got, expected, what):
    assert len(got) == len(expected), what
    for k, (a, b) in enumerate(zip(got, expected)):
        assert difference(a, b) <= 1e-5, f"{what}: result {k}\n{a}\n{b}"


@pytest.fixture(scope="module")
def recorded(root):
    return np.load(root / "tests" / "data" / "control-flow.npz")


@pytest.mark.parametrize("name", cases.BUILDERS)
def test_equals_mxnet(name, recorded):
    function, arrays = cases.make(name)
    assert zlib.crc32(b"".join(x.tobytes() for x in arrays)) == recorded[f"{name}/inputs"], "other inputs were recorded"
    expected = [recorded[f"{name}/{k}"] for k in range(sum(n.startswith(f"{name}/") for n in recorded.files) - 1)]
    net = block(function)
    assert_equal(run(net, arrays), expected, "imperative")
    net.hybridize()
    for _ in range(2):
        assert_equal(run(net, arrays), expected, "compiled")


@pytest.mark.parametrize("name", cases.BUILDERS)
def test_modes_agree_on_other_numbers(name):
    function, arrays = cases.make(name)
    imperative, compiled = block(function), block(function)
    compiled.hybridize()
    rng = np.random.RandomState(1)
    for _ in range(5):
        others = [
            (rng.permutation(x.reshape(-1)) + rng.randint(-2, 3)).reshape(x.shape).astype(x.dtype) for x in arrays
        ]
        assert_equal(run(compiled, others), run(imperative, others), name)


@pytest.mark.parametrize("name", cases.BUILDERS)
def test_they_are_not_unrolled(name):
    function, arrays = cases.make(name)
    graph = trace_call(block(function), [nd.array(x, dtype=x.dtype) for x in arrays])
    assert {"loop", "branch"} & {op.name for op in graph.ops}


def test_enough_of_each():
    for kind in ("foreach", "while", "cond"):
        names = [name for name in cases.BUILDERS if name.startswith(kind)]
        values = [x for name in names for x in cases.make(name)[1]]
        assert len(names) >= 5
        assert any(x.dtype.kind == "i" for x in values)
        text = " ".join(names)
        assert "nan" in text and "infini" in text
