"""Code for y = M·x and Y = L·X·Rᵀ, where M, L and R are small constant matrices and elements are vector registers.

Zeros cost nothing; a row of n terms costs n - 1 fused multiply-adds if one of its coefficients is 1 or -1. Common
subexpressions are computed once: while two rows contain the same combination of two terms, up to a factor, that
combination becomes a new term. No row is all zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.tiles import Tile, steps
from gluonjit.codegen.text.llvm import float_literal
from gluonjit.common.cook_toom import Matrix
from gluonjit.ir.dims import Extent

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


class Walk(NamedTuple):
    """Places at equal distances: pointers, whose distance is in bytes, or numbers of type i64."""

    first: Any
    step: Extent
    type: str = "ptr"


def map_both_ways(
    tile: Tile,
    left: Matrix,
    right: Matrix,
    columns: Walk,
    load: Callable[[Any], Sequence[str]],
    rows: Walk,
    store: Callable[[Any, Any, list[str]], None],
    count: Any = None,
) -> None:
    """Emits code for Y = L·X·Rᵀ. `load(place)` gives a column of X, `store(i, place, y)` takes row i of Y, of which
    there are `count` if not all are wanted.

    In two loops, with L·X on the stack in between: it is more than the registers hold anyhow, and LLVM takes half as
    long as for all columns and rows one after the other. Where X has one row or column there is nothing to loop over.
    """
    f, high, wide = tile.f, len(left), len(right[0])
    if len(left[0]) == 1 or wide == 1:
        found = [linear_map(tile, left, load(at)) for at in steps(f, *columns[:2], wide, columns.type)]
        places = steps(f, *rows[:2], high, rows.type)
        for k, (place, row) in enumerate(zip(places, zip(*found, strict=True), strict=True)):
            y = linear_map(tile, right, row)
            if count is None or not k:
                store(k, place, y)
            else:
                with f.if_(f.op(f"icmp slt i64 {k}, {count}")):
                    store(k, place, y)
        return
    between = f.shared_alloca(tile.vector, high * wide, tile.lanes * tile.bytes)
    with _along(tile, columns, wide, "column") as (j, at):
        below = f.gep(tile.vector, between, f.mul(j, high))
        for k, v in enumerate(linear_map(tile, left, load(at))):
            f.store(tile.vector, v, f.gep(tile.vector, below, k))
    with _along(tile, rows, high if count is None else count, "row") as (i, at):
        beside = f.gep(tile.vector, between, i)
        x = [f.load(tile.vector, f.gep(tile.vector, beside, j * high)) for j in range(wide)]
        store(i, at, linear_map(tile, right, x))


@contextmanager
def _along(tile: Tile, walk: Walk, count: Any, hint: str) -> Iterator[tuple[str, str]]:
    """A loop over places, with their numbers."""
    f = tile.f
    with f.for_(0, count, 1, [(walk.type, walk.first)], hint) as loop:
        (at,) = loop.carried
        yield loop.index, at
        loop.next(f.gep("i8", at, walk.step) if walk.type == "ptr" else f.add(at, walk.step))


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
