"""Brings matrix products into the form of their kernel: a [batch…, M, K] · b [batch…, K, N], or b packed.

*Packing* cuts the columns of b into panels of the register tile's width, padded with zeros: b' [batch…, P, K, nr].
Ordinary primitives in front of the kernel pack b, and their inverse in its body unpacks it, so that the graph keeps its
meaning; `packed` in its plan tells the kernel to read b' directly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gluonjit.ir.annotations import KERNEL, SCRATCH
from gluonjit.ir.dims import Dim, Extent, Shape, hint, is_static
from gluonjit.ir.graph import Builder, Op, Value
from gluonjit.ir.kernels.product_plans import Matmul
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.contraction import free_axes
from gluonjit.passes import tiling
from gluonjit.passes.choices import Alternative, Choice, choice_of, tiles
from gluonjit.passes.regroup import Epilogue, regroup
from gluonjit.passes.site import Site, moved, past_caches, view


def select_dot(site: Site) -> Value | None:
    """The kernel for a `dot_general`; None when it is better left to loops."""
    a, w = site.anchor.operands
    (con_a, con_w), (batch_a, batch_w) = site.anchor.attrs["contract"], site.anchor.attrs["batch"]
    free_a, free_w = free_axes(a.ndim, con_a, batch_a), free_axes(w.ndim, con_w, batch_w)
    # Contracted pairs may be in any order: the order of a's axes often avoids transposing a.
    pairs = sorted(zip(con_a, con_w, strict=True))
    con_a, con_w = tuple(p for p, _ in pairs), tuple(q for _, q in pairs)
    batch = tuple(a.shape[k] for k in batch_a)
    m, n, k = (math.prod(v.shape[d] for d in axes) for v, axes in ((a, free_a), (w, free_w), (a, con_a)))
    perm_a, perm_w = (*batch_a, *free_a, *con_a), (*batch_w, *con_w, *free_w)

    # With few columns most lanes would be empty; loops vectorize over the terms if both operands have them contiguous.
    along_terms = is_view(a.shape, perm_a) and is_view(w.shape, (*batch_w, *free_w, *con_w))
    width = site.target.lanes(a.dtype)
    if along_terms and hint(n) * 4 <= width <= hint(k):
        return None

    if _is_better_turned(site, perm_w, m, n, k):
        return site.split(select_dot, turned=True)
    first, last = len(batch), len(batch) + len(free_a)
    groups = [*((d,) for d in range(first)), tuple(range(first, last)), tuple(range(last, last + len(free_w)))]
    epilogue = regroup(site.body, site.anchor, groups)
    if epilogue is None:
        return None
    if site.factors > 1 and not is_static((k, n)):
        return None
    left = view(site.b, arranged(site.b, site.operand(0), perm_a, site.target), (*batch, m, k))
    return emit_product(site, epilogue, left, perm_w, n)


def _is_better_turned(site: Site, perm: Sequence[int], m: Extent, n: Extent, k: Extent) -> bool:
    """Whether a · b is better computed as (bᵀ · aᵀ)ᵀ. Where b is stored as bᵀ and has more columns than a has rows,
    less is transposed: a and the result instead of b. So it is in a layer of a net that learns, with a small batch."""
    right, target = site.anchor.operands[1], site.target
    if site.is_fixed(1) or is_view(right.shape, perm) or not is_static((m, n, k)) or 0 in (m, n, k):
        return False
    item = right.dtype.itemsize

    def cycles(m: int, n: int, moved: int) -> float:
        found = tiling.register_tiles(m, n, k, k * item, right.dtype, target, site.most)  # type: ignore[arg-type]
        return min(tile.cycles for tile in found) + 2 * moved * item / target.loop_near * target.clock

    return cycles(n, m, m * (k + n)) < _WORTH_TURNING * cycles(m, n, k * n)  # type: ignore[arg-type, operator]


_WORTH_TURNING = 0.97
"""The share of the expected time from which on operands stay in their places."""


def emit_product(site: Site, epilogue: Epilogue, left: Value, perm: Sequence[int], n: Any) -> Value:
    """The kernel for `left` [batch…, M, K] times the anchor's second operand, which `perm` transposes to
    [batch…, K…, N…]."""
    b, target, right = site.b, site.target, site.operand(1)
    factors = site.factors
    left = filled_up(b, left, factors)
    *lead, m, k = left.shape
    batch, item = tuple(lead), left.dtype.itemsize
    height, width, terms, most = hint(m), hint(n), hint(k), site.most
    if not is_static((n, k)):
        # Lengths of sequences: a tile for long ones serves short ones as well. Rows that are an open distance apart
        # need pointers, and there is code for each height of a tile and number of vectors.
        height = _LENGTH if isinstance(m, Dim) else height
        width = 2 * target.lanes(left.dtype) if isinstance(n, Dim) else width
        most = min(most, _OPEN_ROWS)
    halved = site.is_fixed(1) and m != 1 and factors == 1 and tiling.is_halved(width, left.dtype, target)
    # A residual that is not cached is prefetched tile by tile, and so are the lines to write: limit their number.
    far = any(side.dims is None for side in epilogue.sides.values()) and height * width * item > target.l2 // 2
    size = tiling.MAX_LINES if far else tiling.MAX_ROWS * tiling.MAX_VECTORS
    is_padded = not site.is_fixed(1) and width <= _FEW_COLUMNS * target.lanes(left.dtype)
    alike = isinstance(m, Dim) or is_padded
    rows, columns = tiling.register_tile(
        height, width, terms, terms * item, left.dtype, target, most, halved, size, alike
    )
    row_tiles = -(-height // rows)
    part, near = 0, target.l2 // 2
    if is_static((n, k)) and row_tiles >= _PART_TILES and factors == 1:
        part = _part(terms, columns * item, target)
    block = _block(row_tiles, rows * (part or terms) * item, near // 4 if part else near, isinstance(m, Dim))
    sums = block * rows * -(-width // columns) * columns * item if part else 0
    if sums > _SUMS * target.l2:
        part, sums, block = 0, 0, _block(row_tiles, rows * terms * item, near, isinstance(m, Dim))
    if isinstance(n, Dim):
        packed = False  # the number of panels would be a quotient
        right = arranged(b, right, perm, target)
    elif halved or factors > 1:
        packed = True
    elif is_view(right.shape, perm):
        # A single panel has the packed layout already. Packing at every call pays if many tiles read the panels.
        pays = row_tiles > 2 and n > columns and isinstance(k, int)
        pays = pays and (row_tiles > _FEW_TILES or not stays_near(k, n * item, columns * item, target))
        packed = n != columns and (site.is_fixed(1) or pays)
    else:
        packed = True  # transposing would cost as much
    if packed:
        half = target.lanes(left.dtype) // 2 if halved else 0
        right = pack(b, right, perm, batch, k, n, columns, half, factors)
    else:
        right = view(b, right, (*batch, k, n))

    def product(body: Builder, x: Value, w: Value) -> Value:
        axes = len(batch)
        paired = tuple(range(axes))
        w = unpack(body, w, batch, k, n, factors) if packed else w
        pairs = {"contract": ((axes + 1,), (axes,)), "batch": (paired, paired)}
        return body.dot_general(x, w, **pairs, dtype=site.anchor.attrs["dtype"])

    moved_bytes = math.prod(map(hint, batch)) * height * (terms + width) * item
    ahead = is_static((n, k)) and moved_bytes > target.l2
    plan = Matmul(rows, columns, block, packed, halved and packed, ahead=ahead, part=part)
    return site.emit(epilogue, [left, right], product, KERNEL(plan) | (SCRATCH(sums) if part else {}))


_LENGTH, _OPEN_ROWS = 64, 8
"""The rows that a product with an open number of columns or terms is taken to have, and the most of its tile."""
_FEW_COLUMNS = 8
"""Vectors of columns of which packing them takes a few hundredths of the time at every call, and half as long again if
the last panel is padded."""
_BLOCKS, _BLOCK = 8, 8
"""The fewest blocks that let threads share rows, and the fewest row tiles of a block that are worth reading its
weights."""
_FEW_TILES = 32
"""The most row tiles that read a panel as it lies, if it stays in the first-level cache. With 13 tiles, packing it took
4 to 20 % more time than it saved, with 26 tiles 3 to 10 %, with 50 about as much."""


_PART = 256
"""Terms of a part, about: a panel of so many stays in the first-level cache of a machine with 16 registers."""
_PARTS = 4
"""The fewest parts that are worth it there. On a Zen 3, 1024 × 1024 results of 1024, 2048 and 4096 terms took 0.95, 0.8
and 0.6 of the time without parts, 1024 × 256 results of 1024 terms 0.96, of 768 terms 1.0."""
_PART_TILES = 8
"""The fewest row tiles that read a panel of a part."""
_SUMS = 4
"""The most memory for the sums of a block, in second-level caches: each part reads and writes it once."""


def _part(terms: int, line: int, target: Machine) -> int:
    """How many of the terms are a part: a divisor near `_PART`. 0: all, as there is none, or caches hold a panel, of
    which each term takes `line` bytes."""
    if terms < _PARTS * _PART if _PART * line <= target.l1 else terms * line <= target.l2 // 2:
        return 0
    near = [n for n in range(_PART * 3 // 4, _PART * 4 // 3 + 1) if terms % n == 0]
    return min(near, key=lambda n: abs(n - _PART), default=0)


def _block(tiles: int, tile_bytes: int, near: int, is_open: bool) -> int:
    """Row tiles per block: all weights are read once per block, whose input should take at most `near` bytes.

    If there are many rows, threads should share rows rather than columns: then the next kernel mostly reads what the
    same core has written. If the number of rows is open (`is_open`), there may be many more than `tiles` of them."""
    if is_open:
        tiles = max(tiles, _BLOCK)
    blocks = 1
    while blocks < _BLOCKS and tiles >= 2 * blocks * _BLOCK:
        blocks *= 2
    most = max(1, min(-(-tiles // blocks), near // max(tile_bytes, 1)))
    return -(-tiles // -(-tiles // most))


def stays_near(k: int, apart: int, width: int, target: Machine) -> bool:
    """Whether the first-level cache holds a panel of k rows as it lies: `width` bytes of each row, `apart` bytes from
    each other."""
    # Rows whose distance has a large divisor in common with a page meet in few sets of the cache.
    return k * max(math.gcd(apart, target.page), width) <= target.l1


def arranged(b: Builder, x: Value, perm: Sequence[int], target: Machine) -> Value:
    """`x` transposed: a view where only axes of 1 move, else a kernel."""
    if is_view(x.shape, perm):
        return view(b, x, tuple(x.shape[p] for p in perm))
    streaming = past_caches([x], [x], target)
    return moved(b, x, lambda body, v: body.transpose(v, perm=tuple(perm)), "transpose", streaming)


def is_view(shape: Sequence[Extent], perm: Sequence[int]) -> bool:
    """Whether transposing moves axes of 1 alone."""
    order = [p for p in perm if shape[p] != 1]
    return order == sorted(order)


def filled_up(b: Builder, x: Value, factors: int, axis: int = -1) -> Value:
    """`x` with zeros at the end of an axis, to a multiple of `factors`."""
    rest = -x.shape[axis] % factors if factors > 1 else 0
    if not rest:
        return x
    low, high = (0,) * x.ndim, [0] * x.ndim
    high[axis] = rest
    return moved(b, x, lambda body, v: body.pad(v, body.constant(0, v.dtype), low=low, high=high), "pad")


def pack(
    b: Builder,
    w: Value,
    perm: Sequence[int],
    batch: Shape,
    k: Extent,
    n: int,
    columns: int,
    half: int = 0,
    factors: int = 1,
) -> Value:
    """[batch…, P, K, columns] in one kernel. If `half` is not 0, it is half the number of a vector's lanes, and the
    last of the n columns, which fill at most half a vector, are stored in both halves of it. If `factors` is not 1,
    [batch…, P, K / factors, columns, factors]; `w` may have fewer than K rows, zeros follow."""
    axes, panels = len(batch), -(-n // columns)
    given = math.prod(w.shape[p] for p in perm[axes:]) // n if factors > 1 else k

    def write(body: Builder, v: Value) -> Value:
        if tuple(perm) != tuple(range(v.ndim)):
            v = body.transpose(v, perm=tuple(perm))
        if v.shape != (*batch, given, n):
            v = body.reshape(v, shape=(*batch, given, n))
        if given != k:
            none = (0,) * axes
            v = body.pad(v, body.constant(0, v.dtype), low=(*none, 0, 0), high=(*none, k - given, 0))

        def padded(v: Value, width: int) -> Value:
            if width == v.shape[-1]:
                return v
            none = (0,) * (axes + 1)
            return body.pad(v, body.constant(0, v.dtype), low=(*none, 0), high=(*none, width - v.shape[-1]))

        if half:
            start = n // (2 * half) * 2 * half
            last = body.slice(v, start=(*(0,) * (axes + 1), start), size=(*batch, k, n - start))
            v = body.concat(padded(v, start + half), last, axis=axes + 1)
        v = padded(v, panels * columns)
        if factors > 1:
            v = body.reshape(v, shape=(*batch, k // factors, factors, panels, columns))
            return body.transpose(v, perm=(*range(axes), axes + 2, axes, axes + 3, axes + 1))
        if panels == 1:
            return body.reshape(v, shape=(*batch, 1, k, columns))
        v = body.reshape(v, shape=(*batch, k, panels, columns))
        return body.transpose(v, perm=(*range(axes), axes + 1, axes, axes + 2))

    return moved(b, w, write, "pack")


def unpack(body: Builder, w: Value, batch: Shape, k: Extent, n: int, factors: int = 1) -> Value:
    """The inverse of `pack`: [batch…, K, N]."""
    axes = len(batch)
    panels, columns = w.shape[axes], w.shape[axes + 2]
    if factors > 1:
        w = body.transpose(w, perm=(*range(axes), axes + 1, axes + 3, axes, axes + 2))
    elif panels > 1:
        w = body.transpose(w, perm=(*range(axes), axes + 1, axes, axes + 2))
    w = body.reshape(w, shape=(*batch, k, panels * columns))
    if n == panels * columns:
        return w
    return body.slice(w, start=(0,) * w.ndim, size=(*batch, k, n))


@choice_of(Matmul)
class _Choice(Choice):
    def alternatives(self, op: Op, target: Machine) -> Iterator[Alternative]:
        yield from tiles(op, Matmul.of(op).halved, target)
