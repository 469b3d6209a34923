"""Identities of primitives that read or add one element of each line, for `simplify`: those of `pick`, and of losses.

The lines are the rows of an array [rows, n]. Its element of each is read at the tuples (0, i₀), (1, i₁), …, and the
gradient is added there, to zeros.
"""

from __future__ import annotations

import numpy as np

from gluonjit.ir.dims import is_static
from gluonjit.ir.graph import Op, Value
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.types import I32
from gluonjit.passes.simplifier import Simplifier, full, is_number, made_by, rule, uniform

_FEW = 4
"""How many times as large as what is read an array must be, for work on its elements to be done on those read."""
_DEEPEST = 8
"""Ops, one after the other, that are done on what is read."""


@rule("gather_nd")
def work_on_what_is_read(b: Simplifier, op: Op) -> Value | None:
    """Elements that are read of elementwise work on an array → the work on the elements that are read of its operands:
    of x - log Σ exp x a loss needs one element of each line."""
    x, where = op.operands
    if _by_rows(b, where, x) is None or x.size < _FEW * op.result.size:
        return None
    inner = b.producer(_renamed(b, x))
    if inner is None or not inner.definition.elementwise:
        return None
    return _read(b, x, x, where, _DEEPEST)


def _renamed(b: Simplifier, v: Value) -> Value:
    """What `v` is a reshape of."""
    op = made_by(b, v, "reshape")
    return op.operands[0] if op is not None else v


def _read(b: Simplifier, v: Value, x: Value, where: Value, depth: int) -> Value:
    """The elements at `where` of `v`, which has as many as `x` [rows, n]."""
    rows = x.shape[:1]
    element = uniform(b, v)
    if element is not None:
        scalar = b.constant(element)
        return b.settle(b.broadcast(scalar, shape=rows))
    v = _renamed(b, v)
    op = b.producer(v)
    if op is not None and op.definition.elementwise and depth:
        read = [_read(b, operand, x, where, depth - 1) for operand in op.operands]
        return b.settle(b.emit(op.name, read, op.attrs)[0])
    of_rows = _of_rows(b, v) if v.shape[-1:] == x.shape[-1:] else None
    if of_rows is not None:
        return b.settle(b.reshape(of_rows, shape=rows))
    return b.settle(b.gather_nd(b.settle(b.reshape(v, shape=x.shape)), where))


def _by_rows(b: Simplifier, where: Value, x: Value) -> Value | None:
    """The places in the rows of `x` [rows, n], of tuples that name each row once, in order: [1, rows]."""
    concat = made_by(b, where, "concat")
    if x.ndim != 2 or not is_static(x.shape) or where.shape != (2, x.shape[0]) or concat is None:
        return None
    if len(concat.operands) != 2 or concat.attrs["axis"] != 0:
        return None
    first, places = concat.operands
    iota = made_by(b, first, "iota")
    return places if iota is not None and iota.attrs["axis"] == 1 and first.shape == (1, x.shape[0]) else None


@rule("scatter_add")
def added_to_rows_of_zeros(b: Simplifier, op: Op) -> Value | None:
    """A number that is added to one element of each row of zeros → a choice for each element, which is part of the
    kernel that reads it."""
    table, where, numbers = op.operands
    if table.ndim != 2 or not is_static(table.shape) or not table.size or not is_number(uniform(b, table), 0):
        return None
    within = _clipped(b, where)
    if within is None or table.shape[1] > np.iinfo(np.int32).max:
        return None
    inner, last = within
    wide = made_by(b, inner, "cast")
    places = _by_rows(b, wide.operands[0] if wide is not None else inner, table)
    wanted = np.array(table.shape).reshape(2, 1) - 1
    if places is None or not np.array_equal(last, np.broadcast_to(wanted, where.shape)):
        return None
    places = b.settle(b.reshape(places, shape=numbers.shape))
    places = b.maximum(b.minimum(places, full(b, places, table.shape[1] - 1)), full(b, places, 0))
    return _choice(b, places, _plus_zero(b, numbers), table.shape)


@rule("reshape")
def choices_of_rows(b: Simplifier, op: Op) -> Value | None:
    """A reshape of such choices that keeps the rows → choices in the new shape."""
    x, shape = op.operands[0], op.attrs["shape"]
    found = _chosen(b, x) if shape[-1:] == x.shape[-1:] else None
    if found is None:
        return None
    places, numbers = (b.settle(b.reshape(v, shape=shape[:-1])) for v in found)
    return _choice(b, places, numbers, shape)


@rule("reduce")
def sums_of_choices(b: Simplifier, op: Op) -> Value | None:
    """The sum of each row of such choices is the number, if its place exists."""
    x = op.operands[0]
    found = _chosen(b, x) if op.attrs["op"] == "sum" and op.attrs["axes"] == (x.ndim - 1,) else None
    if found is None:
        return None
    places, numbers = found
    while (moved := b.producer(places)) is not None and moved.name in ("reshape", "cast"):
        places = moved.operands[0]
    within = _clipped(b, places)
    if within is None or not places.size or within[1].max() >= x.shape[-1]:
        return None
    return _plus_zero(b, numbers)


def _plus_zero(b: Simplifier, numbers: Value) -> Value:
    """What a sum of zeros and a number is: -0 becomes 0."""
    return b.settle(b.add(numbers, full(b, numbers, 0)))


def _clipped(b: Simplifier, v: Value) -> tuple[Value, np.ndarray] | None:
    """(x, most) if `v` is max(min(x, most), 0), of integers."""
    outer = made_by(b, v, "maximum")
    if outer is None or v.dtype.is_float or not is_number(uniform(b, outer.operands[1]), 0):
        return None
    inner = made_by(b, outer.operands[0], "minimum")
    most = _known(b, inner.operands[1]) if inner is not None else None
    return None if inner is None or most is None or most.min() < 0 else (inner.operands[0], most)


def _known(b: Simplifier, v: Value) -> np.ndarray | None:
    """The elements of a constant, or of a broadcast of one; None of what is empty, too."""
    op = b.producer(v)
    if op is None or not v.size:
        return None
    if op.name == "constant":
        return np.asarray(op.attrs["value"])
    inner = _known(b, op.operands[0]) if op.name == "broadcast" and is_static(v.shape) else None
    if inner is None:
        return None
    dims = broadcast_dims(inner.ndim, v.shape, op.attrs["dims"])
    axes = [inner.shape[dims.index(d)] if d in dims else 1 for d in range(v.ndim)]
    return np.broadcast_to(inner.reshape(axes), v.shape)


def _choice(b: Simplifier, places: Value, numbers: Value, shape: tuple[int, ...]) -> Value:
    """The array of this shape whose lines along the last axis are zeros but for a number at a place."""
    rows = tuple(range(len(shape) - 1))
    places = b.settle(b.cast(places, dtype=I32))
    places, numbers = (b.settle(b.broadcast(v, shape=shape, dims=rows)) for v in (places, numbers))
    is_there = b.eq(b.iota(shape=shape, axis=len(rows), dtype=I32), places)
    return b.select(is_there, numbers, full(b, numbers, 0))


def _chosen(b: Simplifier, v: Value) -> tuple[Value, Value] | None:
    """The (places, numbers) of which `v` is a `_choice`."""
    choice = made_by(b, v, "select")
    if choice is None or not is_number(uniform(b, choice.operands[2]), 0):
        return None
    is_there = made_by(b, choice.operands[0], "eq")
    iota = made_by(b, is_there.operands[0], "iota") if is_there is not None else None
    if is_there is None or iota is None or iota.attrs["axis"] != v.ndim - 1:
        return None
    found = [_of_rows(b, w) for w in (is_there.operands[1], choice.operands[1])]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _of_rows(b: Simplifier, v: Value) -> Value | None:
    """What `v` repeats along its last axis, if it does so with a value for each line."""
    op = made_by(b, v, "broadcast")
    if op is None:
        return None
    source, dims = op.operands[0], broadcast_dims(op.operands[0].ndim, v.shape, op.attrs["dims"])
    return source if source.shape == v.shape[:-1] and dims == tuple(range(v.ndim - 1)) else None
