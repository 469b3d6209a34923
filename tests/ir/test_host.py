"""What calls Python: `host_call` and `check_index`, evaluated and compiled."""

import numpy as np
import pytest

from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.primitives.host_call import FUNCTIONS
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import IRError
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import compile_graph

CALLS = """graph @calls(%x: f32[3,4]) {
  %y: f32[3,4] = exp(%x)
  %a, %b = host_call(%y) {function = "tests_parts", arguments = (("by", "3"),), types = (f32[3,4], i64[])}
  %z: f32[3,4] = add(%a, %y)
  return %z, %b
}
"""


@pytest.fixture
def calls(monkeypatch):
    """The operands of each call of `tests_parts`, which gives its operand times `by`, and how many elements it has."""
    seen = []

    def parts(operands, arguments):
        seen.append(operands)
        return operands[0] * np.float32(arguments["by"]), np.array(operands[0].size)

    monkeypatch.setitem(FUNCTIONS, "tests_parts", parts)
    return seen


def test_text():
    graph = parse_graph(CALLS)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


def test_evaluated_and_compiled(calls):
    graph = parse_graph(CALLS)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    executable = compile_graph(graph)
    assert executable.calls_host
    for outputs, _ in (evaluate(graph, [x]), executable.run([x]), executable.run([x])):
        assert np.allclose(outputs[0], 4 * np.exp(x), rtol=1e-6) and outputs[1] == 12
    assert len(calls) == 3


def test_calls_are_neither_merged_nor_dropped_nor_computed_beforehand(calls):
    call = 'host_call(%c) {function = "tests_parts", arguments = (("by", "2"),), types = (f32[2], i64[])}'
    graph = parse_graph(
        f"graph @g(%x: f32[2]) {{ %c: f32[2] = constant() {{value = 1}} %a, %b = {call} %d, %e = {call} "
        f"%y = add(%x, %a) return %y }}"
    )
    text = print_graph(run_passes(graph, "expand, simplify, fold, cse, dce"))
    assert text.count("host_call") == 2
    compile_graph(graph).run([np.zeros(2, np.float32)])
    assert len(calls) == 2


def test_what_a_function_gives_must_have_its_types(monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "tests_parts", lambda operands, arguments: [operands[0]])
    graph = parse_graph(CALLS)
    with pytest.raises(IRError, match=r"tests_parts was to give \(f32\[3,4\], i64\[\]\), not \(f32\[3,4\]\)"):
        compile_graph(graph).run([np.zeros((3, 4), np.float32)])


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("host_call(%x) {function = 5, types = (f32[2],)}", "function must be a name"),
        ('host_call(%x) {function = "f", arguments = (("a", 1),), types = (f32[2],)}', "pairs of strings"),
        ('host_call(%x) {function = "f", types = ()}', "types must be those of the results"),
        ('host_call(%x) {function = "f", types = (1,)}', "types must be those of the results"),
        ("check_index(%x) {sizes = (3,)}", "indices"),
        ("check_index(%i) {sizes = (3, 4, 5)}", r"must count 3 axes, of sizes \(3, 4, 5\)"),
        ('check_index(%i) {sizes = (3, 4), error = "Nonsense"}', "error must be one of IndexError"),
    ],
)
def test_refused(op, message):
    with pytest.raises(IRError, match=message):
        parse_graph(f"graph @g(%x: f32[2], %i: i32[2,3]) {{ %y = {op} return %y }}")


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8", "i8"])
@pytest.mark.parametrize("negative", [True, False])
def test_check_index(dtype, negative):
    text = (
        f"graph @g(%i: {dtype}[2,3]) {{ %y = check_index(%i) {{sizes = (3, 100), negative = {negative}}} return %y }}"
    )
    graph = parse_graph(text)
    executable = compile_graph(graph)
    kind = graph.inputs[0].type.dtype.numpy
    signed = negative and dtype != "u8"
    good = np.array([[0, 2, -3 if signed else 1], [99, -100 if signed else 0, 7]], kind)
    expected = [[0, 2, 0 if signed else 1], [99, 0, 7]]
    for (y,), _ in (evaluate(graph, [good]), executable.run([good])):
        assert y.dtype == kind and y.tolist() == expected
    wrong = [([0, 3, 0], [0, 0, 0], 3, 0, 3), ([0, 0, 0], [0, 0, 100], 100, 1, 100)]
    if dtype != "u8":
        low = -4 if negative else -1
        wrong.append(([0, low, 0], [0, 0, 0], low, 0, 3))
    for first, second, index, axis, size in wrong:
        bad = np.array([first, second], kind)
        for run in (lambda bad: evaluate(graph, [bad]), lambda bad: executable.run([bad])):
            with pytest.raises(IndexError, match=f"index {index} is out of bounds for axis {axis} with size {size}"):
                run(bad)


def test_no_indices():
    graph = parse_graph("graph @g(%i: i32[1,0]) { %y = check_index(%i) {sizes = (0,)} return %y }")
    assert compile_graph(graph).run([np.zeros((1, 0), np.int32)])[0][0].shape == (1, 0)


def test_only_the_first_error_counts(monkeypatch):
    def fail(operands, arguments):
        raise ValueError(arguments["name"])

    monkeypatch.setitem(FUNCTIONS, "tests_parts", fail)
    call = 'host_call({}) {{function = "tests_parts", arguments = (("name", "{}"),), types = (f32[2],)}}'
    graph = parse_graph(
        f"graph @g(%x: f32[2]) {{ %a = {call.format('%x', 'first')} %b = {call.format('%a', 'second')} return %b }}"
    )
    executable = compile_graph(graph)
    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            executable.run([np.zeros(2, np.float32)])
