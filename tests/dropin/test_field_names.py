"""What public code uses: the operators in its graphs, and the names that its blocks look up in `F`."""

import re

import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.operators import registry

NUMPY = {"np.mean", "npx.relu"}
"""Of `mx.np` and `mx.npx`, which there are not (`docs/dropin.md`)."""


def graph_operators(shared):
    for line in (shared / "mxnet" / "op_coverage_curve.txt").read_text().splitlines():
        added = re.search(r"\+(.*)", line)
        if added and not line.startswith("#"):
            yield from (name.strip() for name in added[1].split(","))


def function_names(shared):
    """Those that two repositories use at least."""
    for line in (shared / "mxnet" / "f_ops_ranked.txt").read_text().splitlines():
        words = line.split()
        if not line.startswith("#") and len(words) == 6 and int(words[4]) >= 2:
            yield words[1]


def found(package, name):
    for part in name.split("."):
        package = getattr(package, part)
    return package


def test_operators_in_graphs(shared):
    names = set(graph_operators(shared))
    assert len(names) == 150
    assert [name for name in sorted(names) if registry.get(name).imperative_only] == []


def test_functions(shared):
    """They are there for arrays, and for what a hybridized block gets as `F`, also those that only `mx.nd` has."""
    names = sorted(set(function_names(shared)) - NUMPY)
    assert len(names) > 130
    missing = []

    class Looks(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            for name in names:
                try:
                    found(F, name)
                except AttributeError:
                    missing.append(name)
            return x

    for hybridize in (False, True):
        net = Looks()
        net.hybridize(hybridize)
        net(mx.nd.ones(1))
    assert missing == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("add", 2), ("multiply", 2), ("subtract", 2), ("divide", 2), ("greater", 2), ("lesser_equal", 2), ("array", 1)],
)
def test_what_only_arrays_have_works_in_compiled_blocks(name, arguments):
    class Uses(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return getattr(F, name)(x, y) if arguments == 2 else F.array([1, 2, 3]) + x

    x, y = mx.nd.array([1, 2, 3]), mx.nd.array([2, 2, 2])
    imperative, compiled = Uses(), Uses()
    compiled.hybridize()
    assert compiled(x, y).asnumpy().tolist() == imperative(x, y).asnumpy().tolist()
