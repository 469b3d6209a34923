"""Formulas mean the same over a builder, on ndarrays, and on the arrays of `Exact`, or are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gluonjit.ir.graph import Builder, Value
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.quiet import quiet
from gluonjit.ir.types import BF16, IRError, dtype, tensor, type_of
from gluonjit.runtime import eager
from gluonjit.runtime.eager import Eager, Exact, needs_exact, noting_difference, unwrapped

FORMULAS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sums": lambda b, x, y: 1 + x - y * 3 - (2 - x),
    "signs": lambda b, x, y: -abs(x) + abs(-y),
    "comparisons": lambda b, x, y: ((x < y) | (x >= 2)) & ~((y <= 1) ^ (x > 0)),
    "fractions": lambda b, x, y: 0.1 / x + y * 0.7 - 0.3,
    "reduced": lambda b, x, y: b.reduce(x * y, op="sum", axes=(0,)) * 1.5 + 1,
    "selected": lambda b, x, y: b.select(x > 0.25, b.exp(x) * 0.5, 1 - y),
    "bounds": lambda b, x, y: (x < math.inf) & (y > -math.inf),
}


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64", "i8", "u8", "i32", "i64"])
@pytest.mark.parametrize("shape", [(5,), ()])
@pytest.mark.parametrize("formula", FORMULAS)
def test_the_same_bits_over_each_emitter(formula, shape, element):
    compute, kind = FORMULAS[formula], dtype(element)
    if (
        not kind.is_float
        and formula in ("fractions", "reduced", "selected", "bounds")
        or formula == "reduced"
        and not shape
    ):
        return
    x, y = (np.resize(np.array(v), shape).astype(kind.numpy) for v in ([0, 1, 3, 117, 2], [100, 2, 0, 5, 7]))
    b = Builder()
    values = [b.input("", type_of(v)) for v in (x, y)]
    (expected,), _ = evaluate(b.build([compute(b, *values)]), [x, y])
    emitters = (
        [Exact(False, lambda: None)] if needs_exact(x) else [Exact(False, lambda: None), Eager(False, lambda: None)]
    )
    for emitter in emitters:
        with quiet():
            found = np.asarray(compute(emitter, *emitter.operands([x, y])))
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()


REFUSED: dict[str, Callable[[Value], Any]] = {
    "write b.div": lambda x: x / 2,
    "write b.constant": lambda x: x * 0.5,
    "beside i32": lambda x: x + np.float64(1),
    "promoted in plain calls": lambda x: np.ones(3, np.int32) * x,
    "True beside": lambda x: x + True,
    "use b.select": lambda x: 1 if x > 0 else 0,
    "b.select, & or": lambda x: max(x, x + 1),
    "write x = x": lambda x: x.__iadd__(1),
    "beside bool": lambda x: (x > 0) < 1,
    "one element type": lambda x: x + (x > 0),
    "numeric": lambda x: (x > 0) + (x > 1),
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_numpy_takes_otherwise_is_refused(told):
    b = Builder()
    with pytest.raises(IRError, match=told):
        REFUSED[told](b.input("x", tensor("i32", 3)))


def test_values_of_a_finished_graph_have_no_operators():
    x = Builder().input("x", tensor("f32", 3))
    with pytest.raises(IRError, match="not a value of a graph that is being built"):
        x + 1


def test_numbers_are_constants_in_the_order_of_the_formula():
    b = Builder()
    x = b.input("x", tensor("f32", 3))
    names = [op.name for op in b.build([1 - (x * 2 + x)]).ops]
    assert names == ["constant", "mul", "add", "constant", "sub"]


def test_exact_is_for_what_numpy_promotes(monkeypatch):
    floats, narrow = np.ones(3, np.float32), np.ones(3, BF16.numpy)
    monkeypatch.setattr(eager, "OLD_NUMPY", False)
    assert not needs_exact(floats, 3, "f32") and needs_exact(floats, narrow) and needs_exact(floats, BF16)
    monkeypatch.setattr(eager, "OLD_NUMPY", True)
    assert needs_exact(floats)


@pytest.mark.parametrize(
    "element,shape,formula,differs",
    [
        ("f32", (3,), lambda b, x: x * 2 + 1, False),
        ("f64", (3,), lambda b, x: b.exp(x) * 0.5, False),
        ("f32", (), lambda b, x: x + x, False),
        ("f32", (), lambda b, x: x * 2, True),
        ("f32", (3,), lambda b, x: b.reduce(x, op="sum", axes=(0,)) * 2, True),
        ("i32", (3,), lambda b, x: x * 2, True),  # the number may be a size
        ("bf16", (3,), lambda b, x: x + x, True),
        ("bf16", (3,), lambda b, x: b.exp(x), False),
    ],
)
def test_exact_tells_where_numpys_operators_may_differ(element, shape, formula, differs):
    b = Exact(False, lambda: np.zeros(2, np.int64))
    x = np.ones(shape, dtype(element).numpy)
    with quiet():
        found, noted = noting_difference(lambda: formula(b, *b.operands([x])))
    assert noted is differs
    plain = unwrapped(found)
    assert type(plain) is np.ndarray and plain.dtype == found.dtype and plain.shape == found.shape


def test_numbers_out_of_the_types_range_widen(monkeypatch):
    monkeypatch.setattr(np, "result_type", lambda x, number: np.dtype(np.float64))  # as NumPy 1 says of 3e100
    b = Exact(False, lambda: np.zeros(2, np.int64))
    with quiet():
        assert noting_difference(lambda: b.operands([np.ones(3, np.float32)])[0] * 3e100)[1]
