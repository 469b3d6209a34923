"""Keys of graphs and ops: what must differ, and what must not."""

import numpy as np
import pytest

from gluonjit.ir.graph import Builder
from gluonjit.ir.structure import graph_key, op_key
from gluonjit.ir.types import F32, F64, TensorType


def net(shape=(4, 4), dtype=F32, name="net", swapped=False, value=1.0, axis=0):
    b = Builder(name)
    x, y = b.input("x", TensorType(dtype, shape)), b.input("y", TensorType(dtype, shape))
    found = b.add(b.sub(y, x) if swapped else b.sub(x, y), b.constant(np.full(shape, value), dtype))
    return b.build([b.reduce(found, op="sum", axes=(axis,))])


OTHERS = [{"shape": (4, 5)}, {"dtype": F64}, {"swapped": True}, {"value": -1.0}, {"axis": 1}]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: next(iter(other)))
def test_graphs_that_differ(other):
    assert graph_key(net()) != graph_key(net(**other))
    assert repr(graph_key(net())) != repr(graph_key(net(**other))), "the object cache looks at the text"


def test_names_do_not_matter():
    assert graph_key(net()) == graph_key(net(name="other"))
    assert hash(graph_key(net())) == hash(graph_key(net(name="other")))


def test_types_of_inputs_matter_though_results_are_the_same():
    keys = set()
    for shape in ((2, 6), (3, 4)):
        b = Builder()
        graph = b.build([b.reshape(b.input("x", TensorType(F32, shape)), shape=(12,))])
        keys |= {graph_key(graph), op_key(graph.ops[0])}
    assert len(keys) == 4
