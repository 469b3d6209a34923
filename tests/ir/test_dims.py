"""Open extents: arithmetic, what is decided and what is not, and graphs with open dimensions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gluonjit.ir import dims
from gluonjit.ir.dims import Undecided, named
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate, evaluate_op
from gluonjit.ir.lexer import ParseError
from gluonjit.ir.primitives.movement import reshape_groups
from gluonjit.ir.sizes import dimensions, sizes_of, untold, with_sizes, with_some_sizes
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import IRError, tensor
from gluonjit.ir.verify import verify

N, L = named("n"), named("l")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (lambda: N * 2 + 1 - N, "n+1"),
        (lambda: N - N + 3, "3"),
        (lambda: 3 - N, "-n+3"),
        (lambda: math.prod((N, 3, L, 4)), "12*l*n"),
        (lambda: N * 6 // 3, "2*n"),
        (lambda: N * L * 6 // (L * 2), "3*n"),
        (lambda: (N * 4 + 3) // 4, "n"),
        (lambda: (N * 4 + 3) % 4, "3"),
        (lambda: (N * L + 1) // L, "n"),
        (lambda: 1 // N, "0"),
        (lambda: -1 // N, "-1"),
        (lambda: -1 % (3 * N), "3*n-1"),
        (lambda: N**2, "n*n"),
        (lambda: np.int64(2) * N, "2*n"),
    ],
)
def test_arithmetic(expression, text):
    assert str(expression()) == text
    assert dims.parse(text) == expression()


def test_arithmetic_is_that_of_values():
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = {"n": int(rng.integers(2, 9)), "l": int(rng.integers(2, 9))}
        pool = [N, L, *map(int, rng.integers(-3, 9, 3))]
        for _ in range(6):
            a, b = (pool[int(k)] for k in rng.integers(0, len(pool), 2))
            name = str(rng.choice(["__add__", "__sub__", "__mul__", "__floordiv__", "__mod__"]))
            x, y = dims.at(a, sizes), dims.at(b, sizes)
            try:
                operation = {
                    "__add__": lambda p, q: p + q,
                    "__sub__": lambda p, q: p - q,
                    "__mul__": lambda p, q: p * q,
                    "__floordiv__": lambda p, q: p // q,
                    "__mod__": lambda p, q: p % q,
                }[name]
                found = operation(a, b)
                assert dims.at(found, sizes) == operation(x, y)
                assert dims.parse(str(found)) == found
                less = a < b
                assert less == (x < y)
            except (Undecided, ZeroDivisionError):
                continue
            if isinstance(found, int) or len(found.terms) < 4:
                pool.append(found)


def test_what_is_decided():
    assert N > 1 and N * L >= 2 * N and L * N - L >= 2 and 1 <= N and not N < 2
    assert N != 1 and N != L and (N, 3) == (named("n"), 3) and N * L == L * N
    assert bool(N)
    for question in (
        lambda: N < 64,
        lambda: N < L,
        lambda: range(N),
        lambda: 1 / N,
        lambda: float(N),
        lambda: N // 2,
        lambda: N % L,
        lambda: max(N, 7),
        lambda: bool(N - 2),
        lambda: np.zeros(N),
    ):
        with pytest.raises(Undecided, match=r"\bn\b"):
            question()


def test_what_relies_on_sizes_that_are_not_1():
    def relies(question):
        with dims.relying() as relies:
            assert question()
        return relies.noted

    for question in (
        lambda: N > 1,
        lambda: dims.is_at_most(2, N),
        lambda: N * L >= 2 * N,
        lambda: bool(N - 1),
        lambda: 1 // N == 0,
        lambda: dims.least(N) == 2,
        lambda: max(1, N) is N,
        lambda: not dims.are_equal((N,), (1,)),
    ):
        assert relies(question)
    for question in (
        lambda: N >= 1,
        lambda: bool(N),
        lambda: N * L >= N,
        lambda: not N < 1,
        lambda: (2 * N + 1) // 2 == N,
        lambda: dims.least_usual(N) == 2 and dims.least_of_all(N - 1) == 1,
        lambda: not dims.is_less(N, L),
    ):
        assert not relies(question)
    with dims.relying() as outer:
        with dims.right_either_way():
            assert N > 1
        assert not relies(lambda: N > 0)
    assert not outer.noted
    with dims.relying() as outer:
        assert relies(lambda: N > 1)
    assert outer.noted


def test_some_sizes():
    graph = parse_graph(TEXT)
    some = with_some_sizes(graph, {"n": 1})
    assert dimensions(some) == ("l",) and str(some.outputs[0].type) == "f32[4*l]"
    assert str(with_some_sizes(some, {"l": 7})) == str(with_sizes(graph, {"n": 1, "l": 7}, lowest=1))
    with pytest.raises(IRError, match="n = 1: an open dimension is at least 2"):
        with_sizes(graph, {"n": 1, "l": 7})


TEXT = """graph @net(%x: f32[n,l,3], %w: f32[4,3]) {
  %y: f32[n,l,4] = dot_general(%x, %w) {contract = ((2,), (1,))}
  %z: f32[4*l*n] = reshape(%y) {shape = (4*l*n,)}
  %c: f32[] = constant() {value = 1.0}
  %u: f32[n,l+1] = broadcast(%c) {shape = (n, l+1)}
  %s: f32[n,l] = slice(%u) {start = (0, 1), size = (n, l)}
  %r: f32[n] = reduce(%s) {op = "sum", axes = (1,)}
  return %z, %r
}
"""


def test_a_graph_with_open_dimensions():
    graph = parse_graph(TEXT)
    verify(graph)
    assert str(graph) == TEXT
    assert dimensions(graph) == ("n", "l")
    sizes = sizes_of([v.type for v in graph.inputs], [(5, 7, 3), (4, 3)])
    assert sizes == {"n": 5, "l": 7}
    static = with_sizes(graph, sizes)
    verify(static)
    x, w = np.ones((5, 7, 3), np.float32), np.ones((4, 3), np.float32)
    (z, r), _ = evaluate(static, [x, w])
    assert z.shape == (140,) and (z == 3).all() and (r == 7).all()


def test_sizes_of_what_is_known_but_for_a_multiple():
    image = tensor("f32", N, 8 * L + 3, 8 * L + 3)
    assert sizes_of([image], [(5, 27, 27)]) == {"n": 5, "l": 3}
    for shape in ((5, 28, 28), (5, 11, 11), (5, 27, 35), (5, 3, 3), (5, 2, 2)):
        with pytest.raises(IRError):
            sizes_of([image], [shape])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(5, 7, 3), (4, 2)], "not \\(4, 2\\)"),
        ([(1, 7, 3), (4, 3)], "at least 2"),
        ([(5, 7), (4, 3)], "cannot have the shape"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    graph = parse_graph(TEXT)
    with pytest.raises(IRError, match=message):
        sizes_of([v.type for v in graph.inputs], shapes)


def test_sizes_behind_products_and_sums():
    types = [tensor("f32", 2 * N * L + 1), tensor("f32", 3 * L - 1)]
    assert sizes_of(types, [(41,), (11,)]) == {"n": 5, "l": 4}
    graph = parse_graph("graph @g(%x: f32[2*n*l+1], %y: f32[3*l-1]) { return %x, %y }")
    assert not untold(graph)
    assert untold(parse_graph("graph @g(%x: f32[n*l], %y: f32[k]) { return %x, %y }")) == ["l", "n"]
    assert untold(parse_graph("graph @g(%x: f32[n*n+n]) { return %x }")) == ["n"]
    with pytest.raises(IRError, match="needs a size for n"):
        sizes_of(types, [(42,), (11,)])


def test_one_name_is_one_size():
    with pytest.raises(IRError, match="n cannot be both 3 and 4"):
        sizes_of([tensor("f32", N), tensor("f32", N)], [(3,), (4,)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph (%x: f32[n]) { %y = broadcast(%x) {shape = (m, n)} return %y }", "expected a literal, found 'm'"),
        (
            "graph (%x: f32[n]) { %y = broadcast(%x) {shape = (2*m, n)} return %y }",
            "no type so far has a dimension 'm'",
        ),
        ("graph (%x: f32[3-n]) { return %x }", "may be negative"),
        ("graph (%x: f32[n/2]) { return %x }", "integers >= 0 or names"),
        ("graph (%x: f32[n*n*n*n*n*n*n*n*n]) { return %x }", "is not an extent"),
        ("graph (%x: f32[n]) { %c: f32[n] = constant() {value = 1.0} return %c }", "open type"),
        ("graph (%x: f32[n], %y: f32[m]) { %z = add(%x, %y) return %z }", "could not be broadcast"),
    ],
)
def test_errors_in_texts(text, message):
    with pytest.raises(ParseError, match=message):
        parse_graph(text)


def test_equality_is_decided_or_an_error():
    assert dims.is_equal(N, N + L - L) and not dims.is_equal(N, 1) and not dims.is_equal(N + 1, N)
    assert dims.are_equal((N, 3), (N, 3)) and not dims.are_equal((N, 3), (L, 4)) and not dims.are_equal((N,), (N, N))
    for a, b in ((N, 3), (N, L), (N - 1, 1)):
        assert a != b
        with pytest.raises(Undecided, match=f"whether {a} is {b} depends on"):
            dims.is_equal(a, b)
        with pytest.raises(Undecided):
            dims.are_equal((N, a), (N, b))


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ((N, 4, L), (4 * N, L), [((0, 1), (0,)), ((2,), (1,))]),
        ((L, N, 3), (N, L, 3), [((0, 1), (0, 1)), ((2,), (2,))]),
        ((L, 3, N), (N, L, 3), [((0, 1, 2), (0, 1, 2))]),
        ((N, 6, 5), (2, 3 * N, 5), [((0, 1), (0, 1)), ((2,), (2,))]),
        ((N - 1, 2), (2 * N - 2,), [((0, 1), (0,))]),
        ((N, L, 12), (L * N, 3, 4), [((0, 1), (0,)), ((2,), (1, 2))]),
    ],
)
def test_runs_of_equal_sizes(old, new, groups):
    assert [(tuple(a), tuple(b)) for a, b in reshape_groups(old, new)] == groups


def test_an_extent_as_a_number():
    graph = parse_graph(
        'graph(%x: f32[n,l]) { %s = reduce(%x) {op = "sum", axes = (0, 1)} %n: i64[] = extent() {of = 3*l*n} '
        "%k = cast(%n) {dtype = f32} %y = div(%s, %k) return %y, %n }"
    )
    x = np.ones((4, 5), np.float32)
    mean, number = evaluate(with_sizes(graph, {"n": 4, "l": 5}), [x])[0]
    assert mean == np.float32(1 / 3) and number == 60 and number.dtype == np.int64
    with pytest.raises(Undecided, match="not a number before l, n"):
        evaluate_op(graph.ops[1], [])


def test_a_text_may_declare_names_that_no_type_has():
    text = 'graph @g() {open = ("l", "n")} {\n  %n: i64[] = extent() {of = 3*l*n}\n  return %n\n}\n'
    graph = parse_graph(text)
    assert print_graph(graph) == text
    assert evaluate(with_sizes(graph, {"n": 4, "l": 5}), [])[0] == [60]


def test_builders_make_constants_of_extents():
    b = Builder()
    x = b.input("x", tensor("f32", N, 3))
    graph = b.build([b.div(b.reduce(x, op="sum", axes=(0, 1)), b.constant(3 * N, "f32")), b.constant(N)])
    mean, number = evaluate(with_sizes(graph, {"n": 4}), [np.full((4, 3), 2.5, np.float32)])[0]
    assert mean == 2.5 and number == 4


def test_what_is_undecided_in_inference_stays_so():
    b = Builder()
    with pytest.raises(Undecided, match="slice.*depends on n"):
        b.slice(b.input("x", tensor("f32", N, 3)), start=(2, 0), size=(5, 3))


def test_digits_of_other_scripts_are_no_numbers():
    with pytest.raises(IRError, match="not an extent"):
        dims.parse("²*h")
