"""`passes.delta_debugging`: graphs that show a fault become small."""

import random

import numpy as np
import pytest

from gluonjit.ir.dims import named
from gluonjit.ir.graph import Builder, rewrite
from gluonjit.ir.types import IRError, tensor
from gluonjit.passes import register_pass
from gluonjit.passes.dce import dce
from gluonjit.passes.delta_debugging import differs, fails, reduced


def _replaces(name, rule):
    @register_pass(name)
    def run(graph):
        """Wrong on purpose."""
        return rewrite(graph, rule)


def _drops_a_term(b, op, operands):
    """a * sin(x) + y becomes a * sin(x)."""
    product = b.producer(operands[0]) if op.name == "add" else None
    if product is None or product.name != "mul":
        return None
    factor = b.producer(product.operands[1])
    return operands[:1] if factor is not None and factor.name == "sin" else None


def _raises(b, op, operands):
    if op.name == "sub" and (p := b.producer(operands[1])) is not None and p.name == "cos":
        raise KeyError("cos")


def _shifts_constants(b, op, operands):
    return (b.constant(op.attrs["value"] + 1),) if op.name == "constant" else None


_replaces("drops-a-term", _drops_a_term)
_replaces("raises", _raises)
_replaces("shifts-constants", _shifts_constants)


def _large(seed, bug, others=80):
    """A graph of at least `others` live ops, random but for the op that `bug(b, x)` emits in the middle."""
    rng = random.Random(seed)
    b = Builder("large", "legal")
    values = [b.input(f"x{k}", tensor("f32", 4, 3)) for k in range(4)]
    for k in range(others):
        if k == others // 2:
            values.append(bug(b, values[-1]))
        x, y = rng.choice(values[-8:]), values[-1]
        values.append(b.emit(rng.choice(["tanh", "neg", "abs"]), (b.emit("maximum", (x, y))[0],))[0])
    return dce(b.build(values[-3:]))


def test_a_wrong_rewrite_of_open_dimensions():
    b = Builder("open", "legal")
    x = b.input("x", tensor("f32", named("n"), 3))
    y = b.tanh(b.add(b.mul(x, b.sin(x)), b.exp(x)))
    graph = b.build((y, b.neg(x)))
    found = reduced(graph, differs("drops-a-term"))
    assert [op.name for op in found.ops] == ["sin", "mul", "add"]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_wrong_rewrite(seed):
    graph = _large(seed, lambda b, x: b.add(b.mul(x, b.sin(x)), b.constant(np.full((4, 3), 1e3, np.float32))))
    assert len(graph.ops) > 80
    small = reduced(graph, differs("drops-a-term"))
    assert sorted(op.name for op in small.ops) == ["add", "mul", "sin"]
    assert len(small.outputs) == 1


@pytest.mark.parametrize("seed", range(2))
def test_a_failing_pass(seed):
    graph = _large(seed, lambda b, x: b.sub(x, b.cos(x)))
    small = reduced(graph, fails("simplify, raises"))
    assert [op.name for op in small.ops] == ["cos", "sub"]


def test_another_failure_is_not_the_same():
    shows = fails("raises")

    def difference(of):
        b = Builder("one", "legal")
        x = b.input("x", tensor("f32", 2))
        return b.build([b.sub(x, of(b, x))])

    assert shows(difference(lambda b, x: b.cos(x)))
    assert not shows(difference(lambda b, x: b.sin(x)))


def test_updates_and_constants():
    b = Builder("stateful", "legal")
    state, x = b.input("state", tensor("f32", 2)), b.input("x", tensor("f32", 2))
    y = b.add(x, b.constant(np.ones(2, np.float32)))
    b.update(state, b.mul(state, y))
    small = reduced(b.build([b.tanh(y), b.sin(x)]), differs("shifts-constants"))
    assert [op.name for op in small.ops] == ["constant"]


def test_nothing_to_reduce():
    b = Builder("fine", "legal")
    x = b.input("x", tensor("f32", 2))
    with pytest.raises(IRError, match="does not show the fault"):
        reduced(b.build([b.neg(x)]), differs("simplify"))
