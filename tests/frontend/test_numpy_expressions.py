"""`mx.np` and `mx.npx` against what real MXNet 1.9.1 said of the same expressions (`tests/oracle/record_numpy.py`)."""

import numpy as np
import pytest
from operators import numpy_expressions as cases

from gluonjit import gluon, npx
from gluonjit import np as mnp
from support.compare import difference

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


class Expressions(gluon.HybridBlock):
    """Several expressions over the arrays."""

    def __init__(self, expressions):
        super().__init__()
        self.expressions = expressions

    def hybrid_forward(self, F, *arrays):
        named = dict(zip(cases.ARRAYS, arrays))
        return [cases.evaluate(expression, named, F.np, F.npx) for expression in self.expressions]


@pytest.fixture(scope="module")
def recorded(root):
    file = np.load(root / "tests" / "data" / "numpy.npz")
    return {str(name): file[str(k)] for k, name in enumerate(file["names"])}


@pytest.fixture(scope="module")
def arrays():
    return {name: mnp.array(x, dtype=x.dtype) for name, x in cases.ARRAYS.items()}


def check(expression, results, recorded):
    count = sum(name.rpartition("/")[0] == expression for name in recorded)
    assert len(results) == count > 0, f"{expression} is not recorded: run tests/oracle/record_numpy.py"
    for k, y in enumerate(results):
        expected, got = recorded[f"{expression}/{k}"], y.asnumpy()
        assert type(y) is mnp.ndarray
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), expression
        error = difference(got, expected)
        assert error <= TOLERANCE.get(expected.dtype.name, 0), f"{expression}: {got}\nMXNet: {expected}"


@pytest.mark.parametrize("expression", cases.expressions())
def test_imperative(expression, recorded, arrays):
    check(expression, cases.evaluate(expression, arrays, mnp, npx), recorded)


@pytest.mark.parametrize("part", range(8))
def test_hybridized(part, recorded, arrays):
    chosen = cases.expressions()[part::8]
    block = Expressions(chosen)
    block.hybridize()
    for expression, results in zip(chosen, block(*arrays.values())):
        check(expression, results, recorded)


def test_network_of_mxnet(root, recorded):
    """A graph and parameters that MXNet exported."""
    data = root / "tests" / "data"
    net = gluon.SymbolBlock.imports(data / "numpy-net-symbol.json", ["data"], data / "numpy-net-0000.params")
    for _ in range(2):
        check("net", net(mnp.array(cases.PICTURE)), recorded)
