"""`keeps_rows`: which graphs treat the rows of an open dimension independently of each other."""

from __future__ import annotations

import pytest

from gluonjit.ir.independent_rows import keeps_rows
from gluonjit.ir.text import parse_graph


def _keeps(text: str, results: str = "%0", inputs: str = "%x: f32[n,4], %y: f32[n,4], %w: f32[4,6]") -> bool:
    return keeps_rows(parse_graph(f"graph @g({inputs}) {{\n{text}\nreturn {results}\n}}"), "n")


@pytest.mark.parametrize(
    "text",
    [
        "%0: f32[n,4] = add(%x, %y)",
        "%0: f32[n,6] = dot_general(%x, %w) {contract = ((1,), (0,))}",
        "%1: f32[n,2] = slice(%x) {start = (0, 1), size = (n, 2)}\n%0: f32[n,2,1] = reshape(%1) {shape = (n, 2, 1)}",
        "%1: f32[n,2,2] = reshape(%x) {shape = (n, 2, 2)}\n%0: f32[n,2,2] = transpose(%1) {perm = (0, 2, 1)}",
        "%0: f32[n] = reduce(%x) {op = 'sum', axes = (1,)}",
        "%0: f32[n,8] = concat(%x, %y) {axis = 1}",
        "%1: f32[6] = reduce(%w) {op = 'sum', axes = (0,)}\n%0: f32[n,6] = broadcast(%1) {shape = (n, 6), dims = (1,)}",
        "%1: f32[n] = reduce(%x) {op = 'max', axes = (1,)}\n%0: f32[n,7] = broadcast(%1) {shape = (n, 7), dims = (0,)}",
        "%0: f32[n,4] = fused(%x) (@body(%a: f32[n,4]) level fused {\n%b: f32[n,4] = exp(%a)\nreturn %b\n})",
    ],
)
def test_independent(text):
    assert _keeps(text.replace("'", '"'))


@pytest.mark.parametrize(
    "text",
    [
        "%0: f32[4] = reduce(%x) {op = 'sum', axes = (0,)}",
        "%1: f32[4] = reduce(%x) {op = 'sum', axes = (0,)}\n%0: f32[n,4] = broadcast(%1) {shape = (n, 4), dims = (1,)}",
        "%0: f32[n,4] = reverse(%x) {axes = (0,)}",
        "%0: f32[n,n] = dot_general(%x, %y) {contract = ((1,), (1,))}",
        "%0: f32[4,4] = dot_general(%x, %y) {contract = ((0,), (0,))}",
        "%0: f32[4,n] = transpose(%x) {perm = (1, 0)}",
        "%0: f32[2*n,4] = concat(%x, %y) {axis = 0}",
        "%0: f32[n,4] = iota() {shape = (n, 4), axis = 0, dtype = 'f32'}",
        "%0: f32[2*n,2] = reshape(%x) {shape = (2*n, 2)}",
        "%1: i64[] = extent() {of = n}\n%2: f32[] = cast(%1) {dtype = 'f32'}\n"
        "%3: f32[n,4] = broadcast(%2) {shape = (n, 4)}\n%0: f32[n,4] = mul(%x, %3)",
        "%0: f32[n,4] = fused(%x) (@body(%a: f32[n,4]) level fused {\n"
        "%b: f32[n,4] = reverse(%a) {axes = (0,)}\nreturn %b\n})",
    ],
)
def test_dependent(text):
    assert not _keeps(text.replace("'", '"'))


def test_results_and_inputs():
    """Each result must have rows, and each input have them in its first axis or not depend on the dimension."""
    assert not _keeps("%0: f32[n,4] = add(%x, %y)", "%0, %w")
    assert not _keeps("%0: f32[n,4] = exp(%x)", inputs="%x: f32[n,4], %z: f32[4,n]")
