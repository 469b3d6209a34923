"""Code for y = M·x, where M is a small constant matrix and the elements of x are vector registers.

Zeros cost nothing; a row of n terms costs n - 1 fused multiply-adds if one of its coefficients is 1 or -1. Common
subexpressions are computed once: while two rows contain the same combination of two terms, up to a factor, that
combination becomes a new term. No row is all zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from gluonjit.codegen.kernels.tiles import Tile
from gluonjit.codegen.text.llvm import float_literal
from gluonjit.common.cook_toom import Matrix

_ONE = Fraction(1)


class Sum(NamedTuple):
    """A sum of coefficient · term. Terms are numbered: the elements of x first, then the sums computed before.

    It starts with a term of coefficient 1, or else -1, which needs no multiplication."""

    terms: tuple[tuple[int, float], ...]

    @staticmethod
    def of(terms: Iterable[tuple[int, Fraction]]) -> Sum:
        return Sum(tuple(sorted([(k, float(c)) for k, c in terms], key=lambda term: (term[1] != 1, term[1] != -1))))


class MapPlan(NamedTuple):
    shared: tuple[Sum, ...]
    rows: tuple[Sum, ...]


@cache
def plan(matrix: Matrix) -> MapPlan:
    """The sums to compute for M·x."""
    rows = [{j: c for j, c in enumerate(row) if c} for row in matrix]
    shared: list[Sum] = []
    while True:
        # a·x_i + b·x_j, as (i, j, b / a).
        found = Counter((i, j, row[j] / row[i]) for row in rows for i in row for j in row if i < j)
        best, count = max(found.items(), key=lambda item: (item[1], *(-n for n in item[0])), default=((0, 0, _ONE), 0))
        if count < 2:
            break
        i, j, ratio = best
        new = len(matrix[0]) + len(shared)
        shared.append(Sum.of([(i, _ONE), (j, ratio)]))
        for row in rows:
            if i in row and j in row and row[j] / row[i] == ratio:
                row[new] = row.pop(i)
                del row[j]
    return MapPlan(tuple(shared), tuple(Sum.of(row.items()) for row in rows))


def linear_map(tile: Tile, matrix: Matrix, x: Sequence[str]) -> list[str]:
    """Emits code for M·x."""
    made, terms = plan(matrix), list(x)
    for s in made.shared:
        terms.append(_sum(tile, s, terms))
    return [_sum(tile, s, terms) for s in made.rows]


def _sum(tile: Tile, s: Sum, terms: Sequence[str]) -> str:
    f, t = tile.f, tile.vector
    (first, c), *rest = s.terms
    acc = terms[first]
    if c == -1:
        acc = f.op(f"fneg {t} {acc}")
    elif c != 1:
        acc = f.op(f"fmul {t} {acc}, {_splat(c, tile.scalar, tile.lanes)}")
    for k, c in rest:
        if abs(c) == 1:
            acc = f.op(f"{'fadd' if c > 0 else 'fsub'} {t} {acc}, {terms[k]}")
        else:
            acc = tile.multiply_add(terms[k], _splat(c, tile.scalar, tile.lanes), acc)
    return acc


@cache
def _splat(value: float, scalar: str, lanes: int) -> str:
    """A number, which is not 0, in all lanes."""
    constant = float_literal(value, scalar)
    return constant if lanes == 1 else f"splat ({scalar} {constant})"
