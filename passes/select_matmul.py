"""Matrix products in the form of their kernel: a [batch…, M, K] · b [batch…, K, N], or b packed.

*Packing* cuts the columns of b into panels of the register tile's width, padded with zeros: b' [batch…, P, K, nr]. It
is written as ordinary primitives in front of the kernel, and undone by their inverse in its body, so that the graph
keeps its meaning; the annotation `.packed` tells the kernel to read b' as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.primitives.contraction import free_axes
from gluonjit.ir.types import F32, F64
from gluonjit.passes import tiling
from gluonjit.passes.regroup import Epilogue, regroup, side_operands, view, write_epilogue

FLOATS = (F32, F64)


def moved(b: Builder, x: Value, write: Callable[[Builder, Value], Value], name: str) -> Value:
    """A kernel of its own that moves `x`'s elements: `write` emits its body."""
    body = Builder(name, "fused")
    body.loc = b.loc
    out = write(body, body.input("x", x.type))
    return b.emit("fused", [x], {".kernel": "loops"}, [body.build([out])])[0]


def arranged(b: Builder, x: Value, perm: Sequence[int]) -> Value:
    """`x` transposed: a view where only axes of 1 move, else a kernel."""
    shape = tuple(x.shape[p] for p in perm)
    if is_view(x.shape, perm):
        return view(b, x, shape)
    return moved(b, x, lambda body, v: body.transpose(v, perm=tuple(perm)), "transpose")


def is_view(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether transposing moves axes of 1 alone."""
    order = [p for p in perm if shape[p] != 1]
    return order == sorted(order)


def select_dot(
    b: Builder, op: Op, operands: Sequence[Value], hoistable: Callable[[Value], bool], target: Any
) -> Value | None:
    """Emits the kernel for a body around a `dot_general`; None when it must be left to other kernels."""
    body = op.regions[0]
    anchor = next(o for o in body.ops if o.name == "dot_general")
    a, w = anchor.operands
    (con_a, con_w), (batch_a, batch_w) = anchor.attrs["contract"], anchor.attrs["batch"]
    if a.dtype not in FLOATS or 0 in a.shape or 0 in w.shape:
        return None
    if a not in body.inputs or w not in body.inputs:
        return None
    free_a, free_w = free_axes(a.ndim, con_a, batch_a), free_axes(w.ndim, con_w, batch_w)
    # In which order the pairs are summed is free: a's own order often spares it a transposition.
    pairs = sorted(zip(con_a, con_w, strict=True))
    con_a, con_w = tuple(p for p, _ in pairs), tuple(q for _, q in pairs)
    first, last = len(batch_a), len(batch_a) + len(free_a)
    groups = [
        *((k,) for k in range(first)),
        tuple(range(first, last)),
        tuple(range(last, last + len(free_w))),
    ]
    epilogue = regroup(body, anchor, groups)
    if epilogue is None:
        return None
    batch = tuple(a.shape[k] for k in batch_a)
    m, n, k = (math.prod(v.shape[d] for d in axes) for v, axes in ((a, free_a), (w, free_w), (a, con_a)))

    outer_a, outer_w = (operands[body.inputs.index(v)] for v in (a, w))
    left = view(b, arranged(b, outer_a, (*batch_a, *free_a, *con_a)), (*batch, m, k))
    perm_w = (*batch_w, *con_w, *free_w)
    fixed = hoistable(op.operands[body.inputs.index(w)])
    return emit_product(b, op, anchor, epilogue, left, outer_w, perm_w, n, fixed, operands, target)


def emit_product(
    b: Builder,
    op: Op,
    anchor: Op,
    epilogue: Epilogue,
    left: Value,
    right: Value,
    perm: Sequence[int],
    n: int,
    fixed: bool,
    operands: Sequence[Value],
    target: Any,
) -> Value:
    """The kernel for left [batch…, M, K] times `right`, which transposed by `perm` is batch…, K…, N….

    `fixed`: `right` changes rarely, so that packing it costs nothing.
    """
    *lead, m, k = left.shape
    batch = tuple(lead)
    rows, columns = tiling.register_tile(m, n, k, k * left.dtype.itemsize, left.dtype.itemsize, target)
    panels, row_tiles = -(-n // columns), -(-m // rows)
    tile_bytes = rows * k * left.dtype.itemsize
    block = tiling.tasks_block(row_tiles, tile_bytes, math.prod(batch) * panels, target)
    if is_view(right.shape, perm):
        # A single panel is packed as it is. Panels that many tiles read are worth putting together at every call.
        packed = n != columns and (fixed or (row_tiles > 2 and n > columns))
    else:
        packed = True  # a transposition would cost as much

    inner = Builder("body", "fused")
    inner.loc = anchor.loc
    x = inner.input("a", left.type)
    if packed:
        right = pack(b, right, perm, batch, k, n, columns)
        w = inner.input("b", right.type)
        unpacked = unpack(inner, w, batch, k, n)
    else:
        right = view(b, right, (*batch, k, n))
        unpacked = w = inner.input("b", right.type)
    axes = len(batch)
    paired = tuple(range(axes))
    product = inner.dot_general(x, unpacked, contract=((axes + 1,), (axes,)), batch=(paired, paired))
    names = [op.regions[0].inputs[side.index].name for side in epilogue.sides.values()]
    out = write_epilogue(inner, epilogue, anchor, product, names)
    attrs: dict[str, Any] = {".kernel": "matmul", ".tile": (rows, columns, block)}
    if packed:
        attrs[".packed"] = 1
    sides = side_operands(b, epilogue, operands)
    y = b.emit("fused", [left, right, *sides], attrs, [inner.build([out])], op.loc)[0]
    return view(b, y, op.results[0].shape)


def pack(b: Builder, w: Value, perm: Sequence[int], batch: tuple[int, ...], k: int, n: int, columns: int) -> Value:
    """[batch…, P, K, columns] in one kernel."""
    axes, panels = len(batch), -(-n // columns)

    def write(body: Builder, v: Value) -> Value:
        if tuple(perm) != tuple(range(v.ndim)):
            v = body.transpose(v, perm=tuple(perm))
        if v.shape != (*batch, k, n):
            v = body.reshape(v, shape=(*batch, k, n))
        if n % columns:
            none = (0,) * (axes + 1)
            zero = body.constant(0, v.dtype)
            v = body.pad(v, zero, low=(*none, 0), high=(*none, panels * columns - n))
        if panels == 1:
            return body.reshape(v, shape=(*batch, 1, k, columns))
        v = body.reshape(v, shape=(*batch, k, panels, columns))
        return body.transpose(v, perm=(*range(axes), axes + 1, axes, axes + 2))

    return moved(b, w, write, "pack")


def unpack(body: Builder, w: Value, batch: tuple[int, ...], k: int, n: int) -> Value:
    """The inverse of `pack`: [batch…, K, N]."""
    axes = len(batch)
    panels, columns = w.shape[axes], w.shape[-1]
    if panels > 1:
        w = body.transpose(w, perm=(*range(axes), axes + 1, axes, axes + 2))
    w = body.reshape(w, shape=(*batch, k, panels * columns))
    if n == panels * columns:
        return w
    return body.slice(w, start=(0,) * w.ndim, size=(*batch, k, n))


def split(
    b: Builder, op: Op, operands: Sequence[Value], anchor: Op, kernel: Callable[[Op], Value | None]
) -> Value | None:
    """The anchor in a kernel of its own and what follows it in another, for epilogues that no kernel can compute."""
    body = op.regions[0]
    alone = Builder("body", body.level)
    env = {v: alone.input(v.name, v.type) for v in body.inputs}
    result = alone.emit(anchor.name, [env[v] for v in anchor.operands], anchor.attrs, (), anchor.loc)[0]
    made = kernel(Op(op.name, op.operands, op.attrs, (anchor.result,), (alone.build([result]),), op.loc))
    if made is None:
        return None
    following = [o for o in body.ops if o is not anchor]
    read = {v for o in following for v in o.operands}
    rest = Builder("body", body.level)
    inner = {v: rest.input(v.name, v.type) for v in body.inputs if v in read}
    inner[anchor.result] = rest.input("product", anchor.result.type)
    for o in following:
        rest.loc = o.loc
        inner.update(zip(o.results, rest.emit(o.name, [inner[v] for v in o.operands], o.attrs), strict=True))
    region: Graph = rest.build([inner[v] for v in body.outputs])
    sides = [x for v, x in zip(body.inputs, operands, strict=True) if v in read]
    return b.emit("fused", [*sides, made], {".kernel": "loops"}, [region], op.loc)[0]
