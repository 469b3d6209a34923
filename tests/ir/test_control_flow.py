"""`loop`, `branch` and `call`: what they compute, how they print, what they refuse, and passes inside of them."""

import numpy as np
import pytest

from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.structure import graph_key
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import IRError, tensor
from gluonjit.ir.verify import VerifyError, verify
from gluonjit.passes import run_passes

ACCUMULATE = """\
graph @net(%h: f32[2], %xs: f32[3,2], %w: f32[2]) {
  %last: f32[2], %all: f32[3,2] = loop(%h, %xs, %w) {carried = 1, scanned = 1, trip = 3} (@body(%i: i64[], %h: f32[2], \
%x: f32[2], %w: f32[2]) {
    %0: f32[2] = mul(%x, %w)
    %next: f32[2] = add(%h, %0)
    return %next, %0
  })
  return %last, %all
}
"""

# Powers of 2 below a limit: 1, 2, 4, …
POWERS = """\
graph @powers(%limit: i64[]) {
  %one: i64[] = constant() {value = 1}
  %last: i64[], %rows: i64[6] = loop(%one, %limit) {carried = 1, trip = 6} (@body(%i: i64[], %p: i64[], \
%limit: i64[]) {
    %next: i64[] = add(%p, %p)
    return %next, %p
  }, @condition(%i: i64[], %p: i64[], %limit: i64[]) {
    %go: bool[] = lt(%p, %limit)
    return %go
  })
  return %last, %rows
}
"""

BRANCH = """\
graph @net(%c: bool[], %x: f32[2]) {
  %y: f32[2] = branch(%c, %x) (@then(%x: f32[2]) {
    %0: f32[2] = neg(%x)
    return %0
  }, @otherwise(%x: f32[2]) {
    return %x
  })
  return %y
}
"""

CALL = """\
graph @net(%x: f32[2], %w: f32[2]) {
  %y: f32[2] = call(%x, %w) {captured = 1} (@step(%x: f32[2], %w: f32[2]) {
    %0: f32[2] = mul(%x, %w)
    return %0
  })
  return %y
}
"""


def f32(*values):
    return np.array(values, np.float32)


def test_loop():
    graph = parse_graph(ACCUMULATE)
    xs = np.arange(6, dtype=np.float32).reshape(3, 2)
    (last, rows), _ = evaluate(graph, [f32(10, 20), xs, f32(1, -1)])
    np.testing.assert_array_equal(rows, xs * [1, -1])
    np.testing.assert_array_equal(last, [10 + 6, 20 - 9])


def test_loop_from_the_last_row():
    xs = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = parse_graph(ACCUMULATE.replace("trip = 3", "trip = 3, last_first = True").replace("%next, %0", "%next, %h"))
    (last, rows), _ = evaluate(graph, [f32(10, 20), xs, f32(1, -1)])
    np.testing.assert_array_equal(rows, [[10 + 6, 20 - 8], [10 + 4, 20 - 5], [10, 20]])
    np.testing.assert_array_equal(last, [10 + 6, 20 - 9])


@pytest.mark.parametrize(
    ("limit", "last", "rows"), [(5, 8, [1, 2, 4, 0, 0, 0]), (1, 1, [0] * 6), (99, 64, [1, 2, 4, 8, 16, 32])]
)
def test_loop_with_condition(limit, last, rows):
    (got, all_rows), _ = evaluate(parse_graph(POWERS), [np.array(limit)])
    assert got == last and all_rows.tolist() == rows


def test_loop_without_iterations():
    graph = parse_graph(ACCUMULATE.replace("trip = 3", "trip = 0").replace("[3,2]", "[0,2]"))
    (last, rows), _ = evaluate(graph, [f32(1, 2), np.zeros((0, 2), np.float32), f32(1, 1)])
    assert last.tolist() == [1, 2] and rows.shape == (0, 2)


def test_branch():
    graph = parse_graph(BRANCH)
    for condition, want in ((True, [-1, -2]), (False, [1, 2])):
        assert evaluate(graph, [np.array(condition), f32(1, 2)])[0][0].tolist() == want


def test_call():
    assert evaluate(parse_graph(CALL), [f32(1, 2), f32(3, 4)])[0][0].tolist() == [3, 8]


@pytest.mark.parametrize("text", [ACCUMULATE, POWERS, BRANCH, CALL])
def test_text(text):
    graph = parse_graph(text)
    verify(graph)
    assert print_graph(graph) == text


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (ACCUMULATE, "trip = 3", "trip = 4", "must have a row for each of 4 iterations"),
        (ACCUMULATE, "trip = 3", "trip = -1", "trip must be an int >= 0"),
        (ACCUMULATE, "carried = 1", "carried = 4", "carried = 4, but there are 3 operands left"),
        (ACCUMULATE, "trip = 3", "trip = 3, last_first = 1", "last_first must be a bool"),
        (ACCUMULATE, "return %next, %0", "return", "the body must give back what is carried"),
        (ACCUMULATE, "%i: i64[]", "%i: i32[]", "the body takes"),
        (POWERS, "return %go", "return %p", "the condition must give a bool"),
        (
            POWERS,
            "return %next, %p",
            "return %next, %p\n  }, @a() {\n    return",
            "needs a body and optionally a condition",
        ),
        (BRANCH, "    return %x\n", "    return\n", "the regions must give the same types"),
        (BRANCH, "%c: bool[]", "%c: i64[]", "the condition must be a bool"),
        (CALL, "captured = 1", "captured = 3", "captured = 3, but there are 2 operands left"),
        (CALL, "%x: f32[2], %w: f32[2]) {\n    %0", "%x: f32[], %w: f32[2]) {\n    %0", "the function takes"),
        (CALL, "return %0\n  }", "return %0\n  }, @a() {\n    return\n  }", "needs one region, got 2"),
    ],
)
def test_refused(text, old, new, message):
    assert old in text
    with pytest.raises(IRError, match=message):
        verify(parse_graph(text.replace(old, new)))


def test_passes_run_inside():
    wasteful = ACCUMULATE.replace(
        "%next: f32[2] = add(%h, %0)",
        "%one: f32[] = constant() {value = 1}\n %1: f32[2] = mul(%0, %one)\n %2: f32[2] = mul(%x, %w)\n"
        "%dead: f32[2] = exp(%x)\n %next: f32[2] = add(%h, %2)",
    )
    graph = parse_graph(wasteful)
    optimised = run_passes(graph, "legalize-broadcast, simplify, cse, dce")
    (loop,) = optimised.ops
    assert optimised.level == "legal" and loop.regions[0].level == "legal"
    assert [op.name for op in loop.regions[0].ops] == ["mul", "add"]
    assert run_passes(optimised, "simplify, cse, dce") is optimised


@pytest.mark.parametrize("level", ["traced", "fused", "planned"])
def test_a_body_of_another_level_is_invalid(level):
    other = ACCUMULATE.replace("{\n    %0", f"level {level} {{\n    %0")
    with pytest.raises(VerifyError, match=f"a region of level '{level}' in a graph of level 'expanded'"):
        verify(parse_graph(other))


def test_random_numbers_in_a_body():
    """The value %rng_key of a body is what operators draw on; here it moves on by one with each iteration."""
    import gluonjit.operators  # noqa: F401

    body = Builder("body", "traced")
    index, x, seed = (
        body.input("i", tensor("i64")),
        body.input("x", tensor("f32", 1000)),
        body.input("s", tensor("i64", 2)),
    )
    step = body.mul(body.broadcast(index, shape=(2,)), body.constant([0, 1], "i64"))
    body.emit("add", (seed, step), result_names=["rng_key"])
    (y,) = body.emit("mx.Dropout", (x,), {"p": 0.5, "mode": "always"})
    b = Builder("net", "traced")
    ones, seed = b.input("x", tensor("f32", 1000)), b.input("rng_key", tensor("i64", 2))
    rows = b.emit("loop", (ones, seed), {"trip": 2}, [body.build([y])])
    graph = run_passes(b.build(rows), "expand, dce")
    (rows,), _ = evaluate(graph, [np.ones(1000, np.float32), np.array([3, 0])])
    assert 300 < rows[0].astype(bool).sum() < 700 and (rows[0] != rows[1]).any()
    (again,), _ = evaluate(graph, [np.ones(1000, np.float32), np.array([3, 1])])
    np.testing.assert_array_equal(again[0], rows[1])


def test_functions_of_functions_are_bounded():
    """Each function calls the one in it twice: sixty of them would be 2^60 ops."""
    text = "%y = neg(%x) return %y"
    for k in range(60):
        text = f"%y = call(%x) (@f{k}(%x: f32[]) {{ {text} }}) %z = call(%y) (@f{k}) return %z"
    with pytest.raises(IRError, match="functions counted at each call"):
        parse_graph(f"graph @g(%x: f32[]) {{ {text} }}")


def test_functions_are_nested_no_deeper_than_text():
    """Functions that call the one before them nest without braces."""
    text = "%y0 = call(%x) (@f0(%x: f32[]) { %y = neg(%x) return %y })"
    for k in range(1, 100):
        text += f" %y{k} = call(%x) (@f{k}(%x: f32[]) {{ %y = call(%x) (@f{k - 1}) return %y }})"
    with pytest.raises(IRError, match="nested deeper than 64 levels") as failure:
        parse_graph(f"graph @g(%x: f32[]) {{ {text} return %x }}")
    assert "@f62" in str(failure.value)


def calling(name, *functions):
    """A graph that calls functions one after the other."""
    b = Builder(name)
    values = [b.input("x", tensor("f32", 2))]
    for function in functions:
        values += b.emit("call", values[-1:], {}, [function])
    return b.build(values[1:] or [b.tanh(values[0])])


def test_a_function_in_one_of_its_name_is_told_from_it():
    inner = calling("f")
    outer = calling("f", inner, inner)
    graph = calling("g", calling("f", calling("f")), inner, outer, inner, outer, outer)
    back = parse_graph(print_graph(graph))
    assert graph_key(back) == graph_key(graph)
    assert print_graph(back) == print_graph(graph)


def test_functions_of_the_section_prepare_are_written_in_it():
    """The section is read before the body, after which it is written."""
    function = calling("f")
    b = Builder("g")
    w, x = b.input("w", tensor("f32", 2)), b.input("x", tensor("f32", 2))
    (packed,) = b.emit("prepare", [w], {}, [calling("prepare", function)])
    graph = b.build(b.emit("call", [b.mul(packed, x)], {}, [function]))
    text = print_graph(graph)
    assert "} prepare {" in text
    assert graph_key(parse_graph(text)) == graph_key(graph)
