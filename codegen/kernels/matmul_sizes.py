"""One kernel for matrix products of any size, as nets have dozens, and each takes LLVM some 25 ms.

Rows, terms and columns become open dimensions, and the call passes their sizes and how many register tiles a block has.
Rows are so many that the last tile may begin earlier (`row_tiles`), terms a multiple of a vector that no machine
exceeds, and columns as many panels and what the last one has: so no tile is lower than others, only those of the last
panel may be narrower by whole vectors, and no sum has a remainder. Few terms stay known, as what a tile fetches depends
on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.epilogue import feeding, find_anchor
from gluonjit.codegen.kernels.row_tiles import OVERLAPPING
from gluonjit.codegen.loops.any_size import opened_axis
from gluonjit.codegen.text.kernel_code import AnySize
from gluonjit.ir.annotations import GUARD, STRIDES
from gluonjit.ir.dims import LOWEST, Extent, Shape, named
from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.kernels.product_plans import Matmul
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32

BLOCK, FAR = "block", "far"
"""Open dimensions that are no extents: a block's number of register tiles, where the plan says 0; and how many tiles
ahead rows are prefetched, plus 1."""
SPREAD = 3
"""The fewest row tiles over which prefetching the next panel is spread."""
FEW_TERMS = 64
"""With fewer terms, a tile is done before the lines that it writes have come."""
AHEAD = 2048
"""The least bytes of rows of the first operand between what is read and what is prefetched."""
_SELDOM = 8
"""How many times the tiles that are prefetched ahead a panel has, at least: its first tiles are not prefetched."""


def tiles_ahead(rows: int, terms: int, itemsize: int) -> int:
    """How many tiles of a panel come before the one whose rows a tile of this height prefetches: so many that memory
    delivers them in time."""
    return -(-AHEAD // (rows * terms * itemsize))


def is_worth_it(ahead: int, block: int) -> bool:
    """Whether so many tiles ahead are few of those that a block has."""
    return ahead * _SELDOM <= block


def any_product(op: Op, target: Machine) -> AnySize | None:
    """The op with open sizes; None where one code would not do for others."""
    plan, body = Matmul.of(op), op.regions[0]
    anchor = find_anchor(body)
    a, y = anchor.operands[0], anchor.result
    if STRIDES.of(op) or GUARD.of(op) is not None or not plan.packed or plan.halved or plan.reversed:
        return None
    if y.ndim != 2 or y.dtype is not F32 or plan.block < SPREAD or a not in body.inputs:
        return None
    (m, k), n, sizes = a.shape, y.shape[-1], dict[str, int]()
    least = OVERLAPPING * plan.rows
    rest = n % plan.columns
    if m < least + LOWEST or rest % target.lanes(y.dtype) or n - rest < LOWEST * plan.columns:
        return None
    sizes["m"], sizes[BLOCK] = m - least, plan.block
    unit = target.line // y.dtype.itemsize
    far = tiles_ahead(plan.rows, k, y.dtype.itemsize)
    ahead = plan.ahead and is_worth_it(far, plan.block)
    terms: Extent = k
    if plan.part:
        terms = opened_axis("k", k, plan.part, sizes)
    elif k >= FEW_TERMS and k % unit == 0:
        lowest = FEW_TERMS - LOWEST * unit
        terms = opened_axis("k", k - lowest, unit, sizes) + lowest
        ahead = ahead and k >= n
        if ahead:
            sizes[FAR] = far + 1
    elif k >= n:
        return None
    columns = opened_axis("n", n - rest, plan.columns, sizes) + rest
    opened = _with_sizes(body, anchor, _Sizes(m, k, n), _Sizes(named("m") + least, terms, columns))
    return None if opened is None else AnySize.of(op, opened, sizes, replace(plan, block=0, ahead=ahead))


class _Sizes(NamedTuple):
    rows: Extent
    terms: Extent
    columns: Extent


def _with_sizes(body: Graph, anchor: Op, known: _Sizes, opened: _Sizes) -> Graph | None:
    """The body with open sizes. None if its epilogue knows others, or other vectors than a number for each column."""
    rows, terms, columns = opened
    m, n = known.rows, known.columns
    of_result: Mapping[Shape, Shape] = {(m, n): (rows, columns), (n,): (columns,), (): ()}
    a, w = anchor.operands[0], body.inputs[1]
    before = feeding(body, anchor)
    b = Builder(body.name, body.level)
    env: dict[Value, Value] = {}
    for v in body.inputs:
        if v is a:
            shape: Shape | None = (rows, terms)
        elif v is w:
            panels = -(-columns // v.shape[-1])
            shape = (panels, terms, v.shape[-1])
        else:
            shape = of_result.get(v.shape)
        if shape is None:
            return None
        env[v] = b.input(v.name, v.type.with_shape(shape))
    for op in body.ops:
        attrs: dict[str, Any] = dict(op.attrs)
        if op in before:
            if op.name == "reshape":
                attrs["shape"] = (terms, panels * w.shape[-1])
            elif op.name == "slice":
                attrs["size"] = (terms, columns)
            elif op.name != "transpose":
                return None
        elif op.name == "broadcast":
            if op.result.shape != (m, n) or op.operands[0].ndim == 1 and tuple(op.attrs["dims"]) != (1,):
                return None
            attrs["shape"] = (rows, columns)
        elif op is not anchor and (op.result.shape not in of_result or not _is_plain(op)):
            return None
        env.update(zip(op.results, b.emit(op.name, [env[v] for v in op.operands], attrs), strict=True))
    return b.build([env[v] for v in body.outputs])


def _is_plain(op: Op) -> bool:
    return op.definition.elementwise or (op.name == "constant" and op.result.shape == ())
