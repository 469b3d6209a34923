"""What `select` chose among for a kernel: algorithms and register tiles, with the times that it expected.

Nothing is noted while graphs are compiled: the choices are made again, from the kernel's shapes, by the functions that
`select` asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from gluonjit.ir.graph import Op
from gluonjit.ir.machine import Machine
from gluonjit.ir.winograd_tile import WinogradTile
from gluonjit.passes import tiling
from gluonjit.passes.select_winograd import problem_of
from gluonjit.passes.tiling_winograd import direct_cycles, winograd_tiles

PER_MICROSECOND = 3500
"""Cycles."""


class Alternative(NamedTuple):
    """A way to compute a kernel, and the microseconds that it is expected to take on one core."""

    kind: str
    """Alternatives of one kind are compared with each other: "algorithm" or "tile"."""
    what: str
    microseconds: float
    chosen: bool


def product_of(op: Op) -> Op | None:
    """The matrix product or convolution of a kernel: the last one, as those before it only unpack its weights."""
    if op.attrs.get(".kernel") in ("loops", "copy") or not op.regions:
        return None
    found = [o for o in op.regions[0].ops if o.definition.accumulates == "contraction"]
    return found[-1] if found else None


def alternatives(op: Op, target: Machine) -> list[Alternative]:
    """Of a kernel without open sizes; [] where there was no choice by expected times."""
    product, kernel = product_of(op), op.attrs.get(".kernel")
    if product is None or kernel not in ("matmul", "conv", "winograd"):
        return []
    found = [*_algorithms(op, product, target)] if product.name == "conv" else []
    if kernel != "winograd":
        found += _tiles(op, product, target)
    return found


def _algorithms(op: Op, product: Op, target: Machine) -> Iterator[Alternative]:
    x, w = product.operands
    problem = problem_of(x, w, product.attrs, product.result.shape)
    if problem is None:
        return
    chosen = WinogradTile(*op.attrs[".tile"])[:2] if op.attrs[".kernel"] == "winograd" else None
    yield Alternative("algorithm", "directly", direct_cycles(problem, target) / PER_MICROSECOND, chosen is None)
    for tile, cycles in winograd_tiles(problem, target):
        what = f"F({tile.height}×{tile.width})"
        yield Alternative("algorithm", what, cycles / PER_MICROSECOND, tile[:2] == chosen)


def _tiles(op: Op, product: Op, target: Machine) -> Iterator[Alternative]:
    """The chosen tile, and the fastest of each width; the fastest first."""
    x, w = product.operands
    shape, item = product.result.shape, x.dtype.itemsize
    if product.name == "conv":
        *_, width, filters = shape
        groups = product.attrs["groups"]
        m, n, terms = width, filters // groups, math.prod(w.shape[:-1])
        apart, times = product.attrs["stride"][-1] * x.shape[-1] * item, math.prod(shape[:-2]) * groups
    else:
        (contracted, _), (batch, _) = product.attrs["contract"], product.attrs["batch"]
        m, n = math.prod(shape[len(batch) : -1]), shape[-1]
        terms, times = math.prod(x.shape[k] for k in contracted), math.prod(shape[: len(batch)])
        apart = terms * item
    halved = bool(op.attrs.get(".halved"))
    choices = [*tiling.register_tiles(m, n, terms, apart, item, target, halved=halved)]
    chosen = tuple(op.attrs[".tile"][:2])
    widths = {c.columns for c in choices}
    listed = {min(c for c in choices if c.columns == width) for width in widths}
    listed |= {c for c in choices if c[1:] == chosen}
    for cycles, rows, columns in sorted(listed):
        what, time = f"tiles of {rows}×{columns}", times * cycles / PER_MICROSECOND
        yield Alternative("tile", what, time, (rows, columns) == chosen)
