"""Every operator as users call it: the functions of `mx.nd` and `mx.sym`, with inputs by position."""

import pytest

import gluonjit as mx
from gluonjit.language.namespace import place_of
from gluonjit.operators import registry

from . import samples
from .running import run_case

BY_NAME = {"_contrib_quantized_conv", "_contrib_quantized_fully_connected"}
"""Without bias, their other inputs have to be named, as in MXNet."""

UNTYPED = {"_contrib_requantize", "reset_arrays", "_contrib_hawkesll", "_npx_constraint_check"}
"""Operators whose element type does not follow from shapes alone, or which have no results."""


def function(package, operator):
    place, name = place_of(operator)
    return getattr(getattr(package, place), name)


@pytest.mark.parametrize("operator", samples.operators())
def test_of_arrays_and_of_symbols(operator):
    case = next(case for case in samples.cases(operator) if not case.training)
    expected = [(y.shape, y.dtype) for y in run_case(case)]
    if operator != "_sparse_retain":  # of sparse arrays alone, by another function
        arrays = [mx.nd.array(x, dtype=x.dtype) for x in case.inputs]
        found = function(mx.nd, operator)(*arrays, **case.attrs)
        found = found if isinstance(found, list) else [found]
        assert [(y.shape, y.dtype) for y in found] == expected[: len(found)]
    if not registry.get(operator).imperative_only and operator not in BY_NAME | UNTYPED:
        names = [f"v{k}" for k in range(len(case.inputs))]
        symbol = function(mx.sym, operator)(*map(mx.sym.var, names), **case.attrs)
        _, shapes, _ = symbol.infer_shape(**{name: x.shape for name, x in zip(names, case.inputs)})
        assert shapes is None or list(shapes) == [shape for shape, _ in expected[: len(shapes)]]
