"""Graphs and parameters that MXNet exported give MXNet's outputs: operator by operator, and compiled."""

import pytest
from gluon.reference_models import CASES

import gluonjit as mx
from gluonjit.execution.backends import get_backend
from gluonjit.ir.types import type_of
from gluonjit.symbol.graph import post_order, variables
from gluonjit.symbol.lower import lower
from support.compare import assert_close
from support.soak import SOAK

from .cases import NAMES, Case, invoked


def imperatively(symbol, arrays):
    """Every node as a call of `mx.nd`."""
    return [out.asnumpy() for out in invoked(symbol, arrays)]


def evaluated(symbol, arrays):
    """The expanded graph, primitive by primitive."""
    leaves = [node for group in variables(symbol._heads) for node in group]
    values = [arrays[node.name].asnumpy() for node in leaves]
    inputs = [((node, 0), type_of(x)) for node, x in zip(leaves, values)]
    graph = lower("case", inputs, post_order(symbol._heads), symbol._heads, training=False)
    return get_backend("numpy")(graph, {}).run(values)[0]


def compiled(symbol, arrays):
    """Native code."""
    aux = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    args = {name: arrays[name] for name in symbol.list_arguments()}
    return [out.asnumpy() for out in symbol.bind(mx.cpu(), args, aux_states=aux).forward()]


def runs(name):
    """Layers and their exported graph compile to much the same, and test_gluon_models.py compiles the former: where
    there are such, `make soak` alone compiles the latter."""
    return (imperatively, evaluated, compiled) if SOAK > 1 or name not in CASES else (imperatively, evaluated)


@pytest.mark.parametrize(
    ("name", "run"),
    [pytest.param(name, run, id=f"{name}-{run.__name__}") for name in NAMES for run in runs(name)],
)
def test_outputs(name, run):
    case = Case(name)
    results = run(case.symbol, case.arrays)
    assert [list(x.shape) for x in results] == case.meta["out_shapes"]
    assert [x.dtype.name for x in results] == case.meta["out_dtypes"]
    for what, got, expected in zip(case.meta["list_outputs"], results, case.outputs, strict=True):
        assert_close(got, expected, what, case.meta["tol"])


def test_all_cases_are_here():
    assert len(NAMES) == 44
