"""Where values lie: strides under other shapes, windows of concats and slices."""

import itertools

import numpy as np
import pytest

from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import IRError
from gluonjit.ir.windows import is_row_major, restrided, row_major, windows


def elements(shape, strides):
    """The numbers that an array of these strides in a large row of numbers consists of."""
    memory = np.arange(10_000)
    return np.lib.stride_tricks.as_strided(memory, shape, [8 * s for s in strides])


SHAPES = [(6, 4), (24,), (2, 3, 4), (3, 8), (1, 6, 1, 4), (2, 3, 2, 2), (4, 6), (2, 12), (6, 2, 2), (24, 1), ()]


@pytest.mark.parametrize("strides", [(4, 1), (10, 1), (10, 2), (1, 6), (4, 0)])
def test_restrided(strides):
    """As NumPy's reshape, which copies when there are no strides."""
    old = elements((6, 4), strides)
    for new in SHAPES:
        if new == ():
            continue
        view = old.reshape(new)
        found = restrided((6, 4), strides, new)
        if np.shares_memory(view, old):
            assert found is not None
            assert (elements(new, found) == view).all()
        else:
            assert found is None


def test_restrided_there_and_back():
    for a, b in itertools.product(SHAPES[:-1], repeat=2):
        strides = row_major(a)
        assert restrided(b, restrided(a, strides, b), a) is not None
        assert is_row_major(b, restrided(a, strides, b))
    assert restrided((0, 3), (7, 1), (3, 0)) == row_major((3, 0))
    assert restrided((1,), (5,), ()) == ()


def test_axes_of_one_have_any_stride():
    assert is_row_major((1, 3, 1), (100, 1, 77))
    assert not is_row_major((2, 3), (4, 1))
    assert is_row_major((2, 0), (4, 1))


def graph(*lines, returned="%c", inputs="%x: f32[2,3], %y: f32[2,4]"):
    body = "\n".join(lines)
    return parse_graph(f"graph @g({inputs}) level fused {{\n{body}\nreturn {returned}\n}}")


KERNEL = "{.kernel = loops} (@body(%x: f32[2,3]) { %y = neg(%x) return %y })"
A = f"%a = fused(%x) {KERNEL}"
B = f"%b = fused(%x) {KERNEL}"
VIEW = ".kernel = view"


def where(g):
    names = {v.name: w for v, w in windows(g).items()}
    return {name: (w.root.name, w.offset, w.strides) for name, w in names.items()}


def test_operands_of_a_concat_are_windows_of_it():
    places = where(graph(A, B, f"%c = concat(%a, %b) {{axis = 1, {VIEW}}}"))
    assert places["c"] == ("c", 0, (6, 1))
    assert places["a"] == ("c", 0, (6, 1))
    assert places["b"] == ("c", 3, (6, 1))
    assert places["x"] == ("x", 0, (3, 1))


def test_a_concat_that_is_a_kernel_leaves_them_alone():
    places = where(graph(A, B, "%c = concat(%a, %b) {axis = 1}"))
    assert places["a"] == ("a", 0, (3, 1))


def test_chains_reshapes_and_slices():
    g = graph(
        A,
        B,
        f"%c = concat(%a, %b) {{axis = 1, {VIEW}}}",
        f"%r = reshape(%c) {{shape = (2, 2, 3), {VIEW}}}",
        "%d = fused(%r) {.kernel = loops} (@body(%x: f32[2,2,3]) { %y = neg(%x) return %y })",
        f"%e = concat(%d, %r) {{axis = 1, {VIEW}}}",
        f"%s = slice(%e) {{start = (1, 1, 0), size = (1, 2, 3), {VIEW}}}",
        f"%t = reshape(%s) {{shape = (6,), {VIEW}}}",
        returned="%e",
    )
    places = where(g)
    assert places["e"] == ("e", 0, (12, 3, 1))
    assert places["d"] == ("e", 0, (12, 3, 1))
    assert places["r"] == ("e", 6, (12, 3, 1))
    assert places["c"] == ("e", 6, (12, 1))
    assert places["a"] == ("e", 6, (12, 1))
    assert places["b"] == ("e", 9, (12, 1))
    assert places["s"] == ("e", 15, (12, 3, 1))
    assert places["t"] == ("e", 15, (1,))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([A, f"%c = concat(%a, %y) {{axis = 1, {VIEW}}}"], "%y is an operand of a concat.*no kernel writes it"),
        ([A, f"%c = concat(%a, %a) {{axis = 1, {VIEW}}}"], "%a is an operand.*already lies elsewhere"),
        (
            [A, B, f"%d = concat(%b, %a) {{axis = 1, {VIEW}}}", f"%c = concat(%a) {{axis = 1, {VIEW}}}"],
            "%a is an operand.*already lies elsewhere",
        ),
        (
            [
                f"%r = reshape(%x) {{shape = (3, 2)}} {A}",
                f"%d = reshape(%a) {{shape = (3, 2), {VIEW}}}",
                f"%c = concat(%d, %d) {{axis = 1, {VIEW}}}",
            ],
            "%d is an operand.*its kernel cannot write it there",
        ),
        (
            [
                A,
                B,
                f"%c = concat(%a, %b) {{axis = 1, {VIEW}}}",
                f"%d = reshape(%b) {{shape = (6,), {VIEW}}}",
            ],
            "%d is a reshape of a window whose elements have no strides",
        ),
        ([A, f"%c = slice(%a) {{start = (0, 0), size = (2, 2), step = (1, 2), {VIEW}}}"], "%c is a slice with steps"),
    ],
)
def test_what_cannot_be_a_window(lines, message):
    with pytest.raises(IRError, match=message):
        windows(graph(*lines))
