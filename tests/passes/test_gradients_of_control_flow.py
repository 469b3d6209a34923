"""Gradients through loops, branches and `with_gradient`: against differences, divided, compiled, and a second time."""

import numpy as np
import pytest

from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import parse_graph
from gluonjit.ir.verify import verify
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import compile_graph
from support.gradients import assert_halves_agree, assert_is_gradient, gradients, joint, legal, random_like

CELL = """
graph @cell(%h: f64[2], %x: f64[{trip},2], %w: f64[2,2]) {{
  %last, %all = loop(%h, %x, %w) {{carried = 1, scanned = 1, trip = {trip}}} (
  (%i: i64[], %h: f64[2], %row: f64[2], %w: f64[2,2]) {{
    %p = dot_general(%w, %h) {{contract = ((1,), (0,))}}
    %s = add(%p, %row)
    %n = tanh(%s)
    %r = mul(%n, %h)
    return %n, %r
  }})
  return %last, %all
}}
"""

STOPPED = """
graph @stopped(%h: f64[2], %x: f64[5,2], %w: f64[2], %most: f64[]) {
  %last, %all = loop(%h, %x, %w, %most) {carried = 1, scanned = 1, trip = 5} (
  (%i: i64[], %h: f64[2], %row: f64[2], %w: f64[2], %most: f64[]) {
    %r = sqrt(%row)
    %a = mul(%h, %w)
    %n = add(%a, %r)
    %d = div(%n, %row)
    return %n, %d
  }, (%i: i64[], %h: f64[2], %w: f64[2], %most: f64[]) {
    %s = reduce(%h) {op = "sum", axes = (0,)}
    %go = lt(%s, %most)
    return %go
  })
  return %last, %all
}
"""

NESTED = """
graph @nested(%h: f64[2], %x: f64[3,2], %w: f64[2]) {
  %last = loop(%h, %x, %w) {carried = 1, scanned = 1, trip = 3} (
  (%i: i64[], %h: f64[2], %row: f64[2], %w: f64[2]) {
    %e = sin(%w)
    %m, %ms = loop(%h, %row, %e) {carried = 1, trip = 2} ((%j: i64[], %g: f64[2], %row: f64[2], %e: f64[2]) {
      %a = mul(%g, %e)
      %b = cos(%a)
      %c = mul(%b, %row)
      return %c, %a
    })
    %t = reduce(%ms) {op = "sum", axes = (0,)}
    %n = add(%m, %t)
    return %n
  })
  return %last
}
"""

IN_BRANCH = """
graph @in_branch(%c: bool[], %h: f64[2], %w: f64[2]) {
  %y, %z = branch(%c, %h, %w) ((%h: f64[2], %w: f64[2]) {
    %last = loop(%h, %w) {carried = 1, trip = 3} ((%i: i64[], %h: f64[2], %w: f64[2]) {
      %n = mul(%h, %w)
      %k = sin(%n)
      return %k
    })
    return %last, %w
  }, (%h: f64[2], %w: f64[2]) {
    %k: f64[] = constant() {value = 2.5}
    %b = broadcast(%k) {shape = (2,)}
    return %h, %b
  })
  return %y, %z
}
"""

BRANCH_IN_LOOP = """
graph @branch_in_loop(%h: f64[], %x: f64[4], %w: f64[]) {
  %last, %all = loop(%h, %x, %w) {carried = 1, scanned = 1, trip = 4} (
  (%i: i64[], %h: f64[], %row: f64[], %w: f64[]) {
    %up = gt(%row, %h)
    %n = branch(%up, %h, %row, %w) ((%h: f64[], %row: f64[], %w: f64[]) {
      %a = mul(%row, %w)
      %e = sin(%a)
      return %e
    }, (%h: f64[], %row: f64[], %w: f64[]) {
      %a = mul(%h, %h)
      return %a
    })
    return %n, %n
  })
  return %last, %all
}
"""

TWO_STATES = """
graph @two_states(%a: f64[], %k: i64[], %b: f64[], %w: f64[]) {
  %x, %n, %y = loop(%a, %k, %b, %w) {carried = 3, trip = 3} (
  (%i: i64[], %a: f64[], %k: i64[], %b: f64[], %w: f64[]) {
    %f = cast(%i) {dtype = f64}
    %p = mul(%b, %w)
    %q = add(%a, %f)
    %r = mul(%q, %a)
    %one = add(%k, %i)
    return %p, %one, %r
  })
  return %x, %n, %y
}
"""

SWAPPED = """
graph @swapped(%a: f64[], %b: f64[]) {
  %x, %y, %all = loop(%a, %b) {carried = 2, trip = 3} ((%i: i64[], %a: f64[], %b: f64[]) {
    return %b, %a, %a
  })
  return %x, %y, %all
}
"""

UNUSED = """
graph @unused(%a: f64[], %x: f64[3], %w: f64[]) {
  %last, %all, %dead = loop(%a, %x, %w) {carried = 1, scanned = 1, trip = 3} (
  (%i: i64[], %a: f64[], %row: f64[], %w: f64[]) {
    %p = mul(%a, %w)
    %d = exp(%row)
    %q = mul(%p, %d)
    return %p, %q, %d
  })
  return %all
}
"""


def positive(shape, seed):
    return np.random.default_rng(seed).uniform(0.4, 1.5, shape)


PROGRAMS = {
    "a cell": (CELL.format(trip=4), [positive(2, 0), positive((4, 2), 1), positive((2, 2), 2)]),
    "one iteration": (CELL.format(trip=1), [positive(2, 0), positive((1, 2), 1), positive((2, 2), 2)]),
    "no iteration": (CELL.format(trip=0), [positive(2, 0), positive((0, 2), 1), positive((2, 2), 2)]),
    "a condition": (STOPPED, [positive(2, 0), positive((5, 2), 1), positive(2, 2), np.array(4.0)]),
    "a condition that never holds": (STOPPED, [positive(2, 0), positive((5, 2), 1), positive(2, 2), np.array(0.0)]),
    "a condition that always holds": (STOPPED, [positive(2, 0), positive((5, 2), 1), positive(2, 2), np.array(1e9)]),
    "a loop in a loop": (NESTED, [positive(2, 0), positive((3, 2), 1), positive(2, 2)]),
    "a loop in a branch": (IN_BRANCH, [np.array(True), positive(2, 0), positive(2, 1)]),
    "the other branch": (IN_BRANCH, [np.array(False), positive(2, 0), positive(2, 1)]),
    "a branch in a loop": (BRANCH_IN_LOOP, [np.array(0.9), positive(4, 1), np.array(0.8)]),
    "several states": (TWO_STATES, [np.array(0.7), np.array(3), np.array(0.4), np.array(1.2)]),
    "states that change places": (SWAPPED, [np.array(0.7), np.array(0.4)]),
    "results that nobody reads": (UNUSED, [np.array(0.7), positive(3, 0), np.array(1.1)]),
}
CASES = pytest.mark.parametrize("name", PROGRAMS)


def program(name):
    text, inputs = PROGRAMS[name]
    graph = parse_graph(text)
    verify(graph)
    return graph, inputs


@CASES
def test_gradient(name):
    graph, inputs = program(name)
    assert_is_gradient(graph, inputs, name)


@CASES
def test_second_derivative(name):
    graph, inputs = program(name)
    assert_is_gradient(graph, inputs, name, order=2, tolerance=1e-6)


@CASES
def test_halves_agree(name):
    assert_halves_agree(*program(name), name)


@CASES
def test_compiled(name):
    graph, inputs = program(name)
    both = joint(graph)
    heads = [v for v in graph.outputs if v.dtype.is_float]
    given = random_like(np.random.default_rng(0), [np.empty(v.shape) for v in heads])
    want, _ = evaluate(both, [*inputs, *given])
    got, _ = compile_graph(both).run([np.asarray(x, order="C") for x in (*inputs, *given)])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_rows_that_the_condition_left_out_do_no_harm():
    """Their saved values are 0, at which the body divides by 0."""
    graph, inputs = program("a condition")
    found = gradients(joint(graph), inputs, [np.ones(2), np.ones((5, 2))])
    assert all(np.isfinite(x).all() for x in found)
    _, rows, *_ = found
    assert not rows[-1].any()
    assert rows[0].all()


# Rules of their own ---------------------------------------------------------------------------------------------------

STRAIGHT_THROUGH = """
  {y} = with_gradient({x}) {{to = (0,)}} ((%a: f64[]) {{
    %r = rint(%a)
    return %r
  }}, (%a: f64[], %r: f64[], %g: f64[]) {{
    %k: f64[] = constant() {{value = 10.0}}
    %s = mul(%g, %k)
    return %s
  }})
"""
AROUND = {
    "alone": "graph @g(%x: f64[]) {" + STRAIGHT_THROUGH.format(x="%x", y="%y") + "return %y }",
    "in a loop": "graph @g(%x: f64[]) { %y = loop(%x) {carried = 1, trip = 2} ((%i: i64[], %c: f64[]) {"
    + STRAIGHT_THROUGH.format(x="%c", y="%d")
    + "return %d }) return %y }",
    "in a branch": "graph @g(%x: f64[]) { %z: f64[] = constant() {value = 0.0} %c = gt(%x, %z) "
    "%y = branch(%c, %x) ((%a: f64[]) {"
    + STRAIGHT_THROUGH.format(x="%a", y="%d")
    + "return %d }, (%a: f64[]) { return %a }) return %y }",
    "in one without a rule": "graph @g(%x: f64[]) { %y = with_gradient(%x) ((%b: f64[]) {"
    + STRAIGHT_THROUGH.format(x="%b", y="%d")
    + "return %d }) return %y }",
}


@pytest.mark.parametrize("name", AROUND)
def test_own_rules(name):
    graph = parse_graph(AROUND[name])
    (found,) = gradients(joint(graph), [np.array(2.7)], [np.array(1.0)])
    assert found == (100 if name == "in a loop" else 10)
    assert_halves_agree(graph, [np.array(2.7)])


@pytest.mark.parametrize("name", AROUND)
def test_own_rules_disappear(name):
    """Whether gradients flow there or not: there is no code for `with_gradient`."""
    graph = legal(parse_graph(AROUND[name]))
    for wrt in ((), (0,)):
        both = run_passes(graph, [("differentiate", {"wrt": wrt, "heads": (0,) if wrt else ()})])
        assert "with_gradient" not in str(both)


def test_both_results_of_a_rule_are_an_operand():
    text = """graph @g(%x: f64[]) {
      %e = sin(%x)
      %y, %z = with_gradient(%e) {to = (0,)} ((%a: f64[]) { return %a, %a },
      (%a: f64[], %r: f64[], %s: f64[], %g: f64[], %h: f64[]) {
        %k: f64[] = constant() {value = 10.0}
        %p = mul(%h, %k)
        %q = add(%g, %p)
        return %q
      })
      return %y, %z, %e
    }"""
    (found,) = gradients(joint(parse_graph(text)), [np.array(0.0)], [np.array(v) for v in (1.0, 2.0, 100.0)])
    assert found == 1 + 20 + 100


# States that change late ----------------------------------------------------------------------------------------------

MOVING = """
  {y}, {y}_new = with_gradient({x}, {m}) {{late = ((1, 1),)}} ((%a: f64[], %m: f64[]) {{
    %s = sin(%a)
    %half: f64[] = constant() {{value = 0.5}}
    %h = mul(%m, %half)
    %n = add(%h, %s)
    return %s, %n
  }})
"""


def late_updates(text, *inputs):
    graph = parse_graph(text)
    heads = [v for v in graph.outputs if v.dtype.is_float]
    inputs = [np.asarray(x) for x in inputs]
    both = joint(graph, [k for k, v in enumerate(graph.inputs) if v.name == "x"])
    given = [np.ones(v.shape) for v in heads]
    got = evaluate(both, [*inputs, *given])[1]
    np.testing.assert_allclose(compile_graph(both).run([*inputs, *given])[1], got, rtol=1e-12)
    assert_halves_agree(graph, inputs)
    return got


def test_two_ops_change_one_state():
    """The later one first, as when they are recorded one by one."""
    text = f"""graph @g(%x: f64[], %m: f64[]) {{
      {MOVING.format(x="%x", y="%y", m="%m")}
      {MOVING.format(x="%y", y="%z", m="%m")}
      return %z
    }}"""
    first = np.sin(0.7)
    second = np.sin(first)
    np.testing.assert_allclose(late_updates(text, 0.7, 3.0), [(3.0 / 2 + second) / 2 + first])


@pytest.mark.parametrize("most", [1e9, 0.6, 0.0])
def test_a_state_changes_in_a_loop(most):
    text = f"""graph @g(%x: f64[], %m: f64[], %most: f64[]) {{
      %y = loop(%x, %m, %most) {{carried = 1, trip = 3}} ((%i: i64[], %c: f64[], %m: f64[], %most: f64[]) {{
        {MOVING.format(x="%c", y="%d", m="%m")}
        return %d
      }}, (%i: i64[], %c: f64[], %m: f64[], %most: f64[]) {{
        %lower = neg(%most)
        %low = gt(%c, %lower)
        %index = cast(%i) {{dtype = f64}}
        %high = lt(%index, %most)
        %go = and(%low, %high)
        return %go
      }})
      return %y
    }}"""
    values, c = [], 0.7
    for k in range(3):
        if k < most:
            c = np.sin(c)
            values.append(c)
    want = 3.0
    for c in reversed(values):
        want = want / 2 + c
    np.testing.assert_allclose(late_updates(text, 0.7, 3.0, most), [want])


@pytest.mark.parametrize("taken", [True, False])
def test_a_state_changes_in_a_branch(taken):
    text = f"""graph @g(%c: bool[], %x: f64[], %m: f64[]) {{
      %y = branch(%c, %x, %m) ((%a: f64[], %m: f64[]) {{
        {MOVING.format(x="%a", y="%d", m="%m")}
        return %d
      }}, (%a: f64[], %m: f64[]) {{
        return %a
      }})
      return %y
    }}"""
    np.testing.assert_allclose(late_updates(text, taken, 0.7, 3.0), [1.5 + np.sin(0.7) if taken else 3.0])


# Random numbers -------------------------------------------------------------------------------------------------------

NOISE = """
graph @noise(%h: f64[3], %w: f64[3], %rng_key: i64[2]) {
  %last, %key, %all = loop(%h, %rng_key, %w) {carried = 2, trip = 3} (
  (%i: i64[], %h: f64[3], %rng_key: i64[2], %w: f64[3]) {
    %bits = random_bits(%rng_key) {shape = (3,), dtype = "i32", stream = 1}
    %f = cast(%bits) {dtype = f64}
    %scale: f64[] = constant() {value = 1e-9}
    %noise = mul(%f, %scale)
    %a = mul(%h, %w)
    %s = sin(%a)
    %n = mul(%s, %noise)
    %other = random_bits(%rng_key) {shape = (3,), dtype = "i32", stream = 3}
    %of = cast(%other) {dtype = f64}
    %o = mul(%of, %scale)
    %m = mul(%n, %o)
    %step: i64[2] = constant() {value = [0, 4]}
    %next = add(%rng_key, %step)
    return %m, %next, %n
  })
  return %last, %all
}
"""


def test_random_numbers_in_a_loop():
    """The backward loop draws what the forward loop drew."""
    graph, inputs = parse_graph(NOISE), [positive(3, 0), positive(3, 1), np.array([17, 5])]
    assert_is_gradient(graph, inputs, order=2)
    assert_halves_agree(graph, inputs)
    both = joint(graph)
    given = [np.ones(3), np.ones((3, 3))]
    want, _ = evaluate(both, [*inputs, *given])
    got, _ = compile_graph(both).run([*inputs, *given])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_a_function_that_captures_an_operand_twice():
    """The cotangent of w is the sum over both places and both calls."""
    text = """
    graph @g(%x: f64[2], %w: f64[2]) level legal {
      %y = call(%x, %w, %w) {captured = 2} (@f(%x: f64[2], %a: f64[2], %b: f64[2]) {
        %p = mul(%x, %a)
        %q = sin(%b)
        %r = add(%p, %q)
        return %r
      })
      %z = call(%y, %w, %w) {captured = 2} (@f)
      return %z
    }
    """
    graph = run_passes(parse_graph(text), "differentiate")
    x, w = np.array([0.5, 2.0]), np.array([0.25, -1.5])
    _, dx, dw = evaluate(graph, [x, w, np.ones(2)])[0]
    np.testing.assert_allclose(dx, w * w)
    np.testing.assert_allclose(dw, 2 * x * w + np.sin(w) + w * np.cos(w) + np.cos(w))


def test_products_that_a_loop_adds_up_become_one():
    """With three samples, the gradient of the weights is larger than what each step multiplies for it."""
    text = (
        "graph @net(%h: f64[3,4], %x: f64[5,3,4], %w: f64[4,4]) { %last = loop(%h, %x, %w) "
        "{carried = 1, scanned = 1, trip = 5} ((%i: i64[], %h: f64[3,4], %row: f64[3,4], %w: f64[4,4]) { "
        "%p = dot_general(%h, %w) {contract = ((1,), (0,))} %s = add(%p, %row) %n = tanh(%s) return %n }) "
        "return %last }"
    )
    graph, rng = parse_graph(text), np.random.default_rng(0)
    inputs = random_like(rng, [np.empty(v.shape) for v in graph.inputs])
    before = run_passes(joint(graph), "legalize-broadcast, simplify, cse, dce")
    after = run_passes(before, "distribute-sums, dce")
    carried = [[op.attrs["carried"] for op in g.ops if op.name == "loop"] for g in (before, after)]
    assert carried == [[1, 2], [1, 1]]
    given = random_like(rng, [np.empty((3, 4))])
    for want, got in zip(*(evaluate(g, [*inputs, *given])[0] for g in (before, after)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)
