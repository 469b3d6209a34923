"""Matrix products: `.kernel = 'matmul'`.

The body multiplies a [batch…, M, K] by b, which is either [batch…, K, N] or *packed*, [batch…, P, K, nr]: its columns
in P panels of nr, padded with zeros, so that one panel is read from front to end.

`.tile` = (rows and columns of a register tile, row tiles per task); `.packed` = which operand is the packed one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.codegen.epilogue import Epilogue, find_anchor
from gluonjit.codegen.llvm import Function, Module
from gluonjit.codegen.target import Target
from gluonjit.codegen.tiles import Tile
from gluonjit.ir.graph import Graph
from gluonjit.ir.windows import strides_of


def lower_matmul(name: str, body: Graph, attrs: Mapping[str, Any], target: Target, module: Module) -> None:
    """Appends the kernel to the module."""
    f = module.function(name)
    anchor = find_anchor(body)
    a = anchor.operands[0]
    packed = attrs.get(".packed")
    b = anchor.operands[1] if packed is None else body.inputs[packed]
    rows, columns, block = attrs[".tile"]
    *batch, m, k = a.shape
    n = anchor.result.shape[-1]
    a_strides, b_strides = (strides_of(v, body.inputs.index(v), attrs) for v in (a, b))
    a_table, b_table = f.table(body.inputs.index(a)), f.table(body.inputs.index(b))
    epilogue = Epilogue(f, body, anchor, attrs)

    scalar = Tile(f, a.dtype, 1).scalar
    panels, row_tiles = -(-n // columns), -(-m // rows)
    blocks = -(-row_tiles // block)
    w_step = b_strides[-2]
    w_panel = columns if packed is None else k * columns

    first, last = share(f, math.prod(batch) * blocks * panels)
    with f.for_(first, last, hint="task") as task:
        panel = f.mod(task.index, panels)
        rest = f.div(task.index, panels)
        which = f.mod(rest, blocks)
        image = f.div(rest, blocks)
        at = unravel(f, image, batch)
        index = [*at, 0, f.mul(panel, columns)]
        w = f.gep(scalar, b_table, f.add(_position(f, at, b_strides), f.mul(panel, w_panel)))
        a_image = f.gep(scalar, a_table, _position(f, at, a_strides))

        def row_tile(tile: Tile, row: Any, count: int) -> None:
            place = [*index[:-2], row, index[-1]]
            epilogue.prefetch(tile, count, place)
            x = f.gep(scalar, a_image, f.mul(row, a_strides[-2]))
            acc = tile.contract(
                tile.zeros(count),
                x,
                [r * a_strides[-2] for r in range(count)],
                w,
                k,
                w_step=w_step,
                aligned=packed is not None,
                ahead=packed is not None and k * columns * a.dtype.itemsize > target.l1,
            )
            epilogue.write(tile, acc, place)

        for tile in panel_variants(f, a.dtype, n, columns, panel):
            start = f.mul(which, block)
            with f.for_(start, f.min(f.add(start, block), m // rows), hint="tile") as loop:
                row_tile(tile, f.mul(loop.index, rows), rows)
            if m % rows:
                with f.if_(f.op(f"icmp eq i64 {which}, {blocks - 1}")):
                    row_tile(tile, m - m % rows, m % rows)


def _position(f: Function, index: Sequence[Any], strides: Sequence[int]) -> Any:
    """Where the element at `index` is, whose further indices are 0."""
    position: Any = 0
    for i, step in zip(index, strides):
        position = f.add(position, f.mul(i, step))
    return position


def share(f: Function, tasks: int) -> tuple[str, str]:
    """[first, last) of the tasks that this thread does."""
    first = f.op(f"udiv i64 {f.mul('%thread', tasks)}, %nthreads")
    last = f.op(f"udiv i64 {f.mul(f.add('%thread', 1), tasks)}, %nthreads")
    return first, last


def unravel(f: Function, flat: Any, shape: list[int]) -> list[Any]:
    """The index of element `flat` of an array of `shape`."""
    index: list[Any] = []
    for n in reversed(shape):
        index.insert(0, f.mod(flat, n) if len(index) < len(shape) - 1 else flat)
        flat = f.div(flat, n)
    return index


def panel_variants(f: Function, dtype: Any, n: int, columns: int, panel: Any) -> Any:
    """The kinds of panel of n columns: for each, opens the code that runs when `panel` is of it, and yields its Tile.

    All are `columns` wide but perhaps the last.
    """
    lanes = f.target.lanes(dtype)
    full, rest = divmod(n, columns)
    if full and rest:
        with f.if_(f.op(f"icmp ult i64 {panel}, {full}")):
            yield Tile(f, dtype, columns // lanes)
        with f.if_(f.op(f"icmp eq i64 {panel}, {full}")):
            yield _narrow(f, dtype, rest, lanes)
    else:
        yield _narrow(f, dtype, rest, lanes) if rest else Tile(f, dtype, columns // lanes)


def _narrow(f: Function, dtype: Any, width: int, lanes: int) -> Tile:
    vectors = -(-width // lanes)
    return Tile(f, dtype, vectors, width - (vectors - 1) * lanes)
