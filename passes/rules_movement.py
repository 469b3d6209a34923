"""Identities of primitives that move elements, for `simplify`, and of reductions over a single element.

Moving does no arithmetic, so a chain of moves equals any other that takes the same element to the same place.
"""

from __future__ import annotations

import numpy as np

from gluonjit.ir.dims import is_at_most, is_less
from gluonjit.ir.graph import Op, Value
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.quiet import quiet
from gluonjit.passes.simplifier import Simplifier, full, made_by, rule, uniform


@rule("reshape")
def reshapes(b: Simplifier, op: Op) -> Value | None:
    """A reshape to x's own shape is x. One of a reshape is one reshape: row-major order survives both."""
    x = op.operands[0]
    if x.type == op.result.type:
        return x
    inner = made_by(b, x, "reshape")
    return b.reshape(inner.operands[0], shape=op.attrs["shape"]) if inner is not None else None


@rule("transpose")
def transposes(b: Simplifier, op: Op) -> Value | None:
    """A transpose by the identity is x. One of a transpose is one by the composition. One that moves axes of 1 alone is
    a reshape, which is free."""
    x, perm = op.operands[0], op.attrs["perm"]
    if perm == tuple(range(len(perm))):
        return x
    inner = made_by(b, x, "transpose")
    if inner is not None:
        return b.transpose(inner.operands[0], perm=tuple(inner.attrs["perm"][p] for p in perm))
    long = [p for p in perm if x.shape[p] != 1]
    return b.reshape(x, shape=op.result.shape) if long == sorted(long) else None


@rule("reverse")
def reverses(b: Simplifier, op: Op) -> Value | None:
    """A reverse of no axis longer than 1 is x. In one of a reverse, axes reversed twice drop out."""
    x = op.operands[0]
    axes = {axis for axis in op.attrs["axes"] if not is_at_most(x.shape[axis], 1)}
    inner = made_by(b, x, "reverse")
    if inner is not None:
        x, axes = inner.operands[0], axes ^ set(inner.attrs["axes"])
    if not axes:
        return x
    if inner is not None or len(axes) < len(op.attrs["axes"]):
        return b.reverse(x, axes=tuple(sorted(axes)))
    return None


@rule("pad")
def no_padding(b: Simplifier, op: Op) -> Value | None:
    """Padding by nothing is x."""
    return op.operands[0] if op.operands[0].type == op.result.type else None


@rule("broadcast")
def broadcasts(b: Simplifier, op: Op) -> Value | None:
    """A broadcast to the operand's own shape → x. Of a broadcast → one broadcast. Of a reshape that only adds or drops
    axes of 1 → without the reshape. One that repeats nothing → a reshape, which is free."""
    x, shape = op.operands[0], op.attrs["shape"]
    if x.type == op.result.type:
        return x
    dims = broadcast_dims(x.ndim, shape, op.attrs["dims"])
    if x.size == op.result.size:
        return b.reshape(x, shape=shape)
    inner = made_by(b, x, "broadcast")
    if inner is not None:
        source = inner.operands[0]
        below = broadcast_dims(source.ndim, inner.attrs["shape"], inner.attrs["dims"])
        return _broadcast(b, source, shape, tuple(dims[d] for d in below))
    inner = made_by(b, x, "reshape")
    if inner is not None:
        source = inner.operands[0]
        through = _dims_through_reshape(source.shape, x.shape, dims, len(shape))
        if through is not None:
            return _broadcast(b, source, shape, through)
    return None


def _broadcast(b: Simplifier, x: Value, shape: tuple[int, ...], dims: tuple[int, ...]) -> Value:
    trailing = dims == broadcast_dims(x.ndim, shape, None)
    return b.broadcast(x, shape=shape, dims=None if trailing else dims)


def _dims_through_reshape(
    old: tuple[int, ...], new: tuple[int, ...], dims: tuple[int, ...], rank: int
) -> tuple[int, ...] | None:
    """Where the axes of shape `old` go when those of `new`, the same but for axes of 1, go to `dims`; None if an axis
    of 1 finds no place."""
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    places = iter([d for n, d in zip(new, dims) if n != 1])
    out: list[int] = []
    at = -1
    for n in old:
        # The first free place for an axis of 1 leaves the most to those after it.
        place = at + 1 if n == 1 else next(places)
        if not at < place < rank:
            return None
        out.append(place)
        at = place
    return tuple(out)


@rule("transpose", "reverse")
def before_broadcast(b: Simplifier, op: Op) -> Value | None:
    """A move of a broadcast moves the operand, which is smaller: repeated elements need no order."""
    inner = made_by(b, op.operands[0], "broadcast")
    if inner is None:
        return None
    x = inner.operands[0]
    dims = broadcast_dims(x.ndim, inner.attrs["shape"], inner.attrs["dims"])
    if op.name == "reverse":
        axes = tuple(k for k, d in enumerate(dims) if d in op.attrs["axes"] and x.shape[k] != 1)
        return _broadcast(b, b.settle(b.reverse(x, axes=axes)) if axes else x, op.result.shape, dims)
    places = [op.attrs["perm"].index(d) for d in dims]
    order = sorted(range(x.ndim), key=places.__getitem__)
    moved = b.settle(b.transpose(x, perm=tuple(order)))
    return _broadcast(b, moved, op.result.shape, tuple(sorted(places)))


@rule("reshape")
def reshape_of_one_element(b: Simplifier, op: Op) -> Value | None:
    """A reshape of one element that is broadcast broadcasts it to the new shape."""
    inner = made_by(b, op.operands[0], "broadcast")
    if inner is None or inner.operands[0].size != 1:
        return None
    x = inner.operands[0]
    return b.broadcast(b.settle(b.reshape(x, shape=())), shape=op.attrs["shape"])


@rule("slice")
def slices(b: Simplifier, op: Op) -> Value | None:
    """A slice of full size → x. Of a slice → one slice. Inside one operand of a concat → a slice of that operand. Of a
    broadcast → a slice of its operand. Of an update_slice → a slice of the update or of the part that it keeps."""
    x = op.operands[0]
    start, size, step = op.attrs["start"], op.attrs["size"], _step(op)
    if x.type == op.result.type:
        return x
    inner = b.producer(x)
    if inner is None:
        return None
    if inner.name == "slice":
        outer_step = _step(inner)
        at = tuple(0 if not n else a + s * k for a, s, k, n in zip(inner.attrs["start"], start, outer_step, size))
        return _slice(b, inner.operands[0], at, size, tuple(i * k for i, k in zip(step, outer_step)))
    if inner.name == "concat":
        return _slice_of_concat(b, inner, start, size, step)
    if inner.name == "broadcast":
        source = inner.operands[0]
        dims = broadcast_dims(source.ndim, inner.attrs["shape"], inner.attrs["dims"])
        own = [(start[d], size[d], step[d]) if n != 1 else (0, 1, 1) for n, d in zip(source.shape, dims)]
        return _broadcast(b, b.settle(_slice(b, source, *zip(*own))) if own else source, size, dims)
    if inner.name == "update_slice":
        return _slice_of_update(b, inner, start, size, step)
    return None


def _step(op: Op) -> tuple[int, ...]:
    return op.attrs["step"] or (1,) * len(op.attrs["start"])


def _slice(b: Simplifier, x: Value, start: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...]) -> Value:
    if tuple(size) == x.shape:
        return x
    return b.slice(x, start=start, size=size, step=None if all(k == 1 for k in step) else step)


def _slice_of_concat(
    b: Simplifier, concat: Op, start: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...]
) -> Value | None:
    axis = concat.attrs["axis"]
    first, last = start[axis], start[axis] + (size[axis] - 1) * step[axis]
    begin = 0
    for part in concat.operands:
        end = begin + part.shape[axis]
        if is_at_most(begin, first) and is_at_most(first, last) and is_less(last, end):
            return _slice(b, part, (*start[:axis], first - begin, *start[axis + 1 :]), size, step)
        begin = end
    return None


def _slice_of_update(
    b: Simplifier, update: Op, start: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...]
) -> Value | None:
    x, u = update.operands
    at, by = update.attrs["start"], _step(update)
    if (at, u.shape) == (start, size) and all(i == k or n == 1 for i, k, n in zip(by, step, size)):
        return u
    for a, m, i, s, n, k in zip(at, u.shape, by, start, size, step):
        if is_less(a + (m - 1) * i, s) or is_less(s + (n - 1) * k, a):  # apart along this axis
            return _slice(b, x, start, size, step)
    return None


@rule("concat")
def concats(b: Simplifier, op: Op) -> Value | None:
    """A concat of one operand → that operand. Empty operands are dropped. Adjacent slices of a value → one slice, or
    all of it."""
    axis = op.attrs["axis"]
    parts: list[Value] = []
    for x in op.operands:
        if x.shape[axis] == 0:
            continue
        joined = _join(b, parts[-1], x, axis) if parts else None
        if joined is None:
            parts.append(x)
        else:
            parts[-1] = b.settle(joined)
    if len(parts) == len(op.operands) and len(parts) > 1:
        return None
    if not parts:
        return op.operands[0]
    return parts[0] if len(parts) == 1 else b.concat(*parts, axis=axis)


@rule("concat")
def concat_of_one_number(b: Simplifier, op: Op) -> Value | None:
    """A concat whose elements are all the same number is a broadcast of it."""
    first = uniform(b, op.operands[0])
    if first is None:
        return None
    for x in op.operands[1:]:
        element = uniform(b, x)
        if element is None or element.tobytes() != first.tobytes():
            return None
    return full(b, op.result, first.item())


@rule("add")
def sum_of_concats(b: Simplifier, op: Op) -> Value | None:
    """The sum of two concats of parts of the same shapes, some of which are numbers, is a concat of sums, also where
    both are reshaped. Gradients of strided convolutions are such: phases and zeros, side by side on one axis after the
    other."""
    x, y = op.operands
    if _put_together(b, x) is None and _put_together(b, y) is None:  # most are not
        return None
    if uniform(b, x) is not None or uniform(b, y) is not None:
        return None
    numbers = False
    waiting: list[tuple[_Part, _Part]] = [(x, y)]
    for _ in range(_MOST_PARTS):
        if not waiting:
            return _sum_of_parts(b, x, y) if numbers else None
        u, v = waiting.pop()
        numbers = numbers or _number(b, u) is not None or _number(b, v) is not None
        inner = _parts(b, u, v)
        if inner is None and u is x:
            return None
        waiting += inner[1] if inner is not None else ()
    return None


_MOST_PARTS = 32
"""Parts that are looked at, and parts of these: three axes of phases have fewer."""
_Part = Value | np.generic
"""A value, or the number that all elements of one are."""


def _number(b: Simplifier, part: _Part) -> np.generic | None:
    return uniform(b, part) if isinstance(part, Value) else part


def _parts(b: Simplifier, u: _Part, v: _Part) -> tuple[Op, list[tuple[_Part, _Part]]] | None:
    """The concat or reshape that both are, and what of, or that one is, to which a number is added; None for others."""
    a, c = _number(b, u), _number(b, v)
    p, q = (_put_together(b, x) if n is None else None for x, n in ((u, a), (v, c)))
    if p is not None and q is not None:
        alike = p.name == q.name and [x.type for x in p.operands] == [x.type for x in q.operands]
        if not alike or p.name == "concat" and p.attrs["axis"] != q.attrs["axis"]:
            return None
        return p, list(zip(p.operands, q.operands, strict=True))
    if p is not None and c is not None:
        return p, [(x, c) for x in p.operands]
    if q is not None and a is not None:
        return q, [(a, x) for x in q.operands]
    return None


def _put_together(b: Simplifier, x: _Part) -> Op | None:
    op = b.producer(x) if isinstance(x, Value) else None
    return op if op is not None and op.name in ("concat", "reshape") else None


def _sum_of_parts(b: Simplifier, u: _Part, v: _Part) -> Value:
    """The sum, part by part; not both are numbers that stand for no value."""
    inner = _parts(b, u, v)
    if inner is not None:
        op, pairs = inner
        sums = [_sum_of_parts(b, *pair) for pair in pairs]
        return b.emit(op.name, sums, op.attrs)[0]
    like = u if isinstance(u, Value) else v
    assert isinstance(like, Value)
    a, c = _number(b, u), _number(b, v)
    if a is not None and c is not None:
        with quiet():
            return full(b, like, np.add(a, c).item())
    x, y = (part if isinstance(part, Value) else full(b, like, part.item()) for part in (u, v))
    return b.settle(b.add(x, y))


def _join(b: Simplifier, left: Value, right: Value, axis: int) -> Value | None:
    """The slice of which two neighbouring ones are the halves."""
    p, q = made_by(b, left, "slice"), made_by(b, right, "slice")
    if p is None or q is None or p.operands[0] is not q.operands[0] or _step(p) != _step(q) or _step(p)[axis] != 1:
        return None
    start, size = p.attrs["start"], p.attrs["size"]
    if q.attrs["start"] != (*start[:axis], start[axis] + size[axis], *start[axis + 1 :]):
        return None
    both = (*size[:axis], size[axis] + right.shape[axis], *size[axis + 1 :])
    return _slice(b, p.operands[0], start, both, _step(p))


@rule("update_slice")
def updates(b: Simplifier, op: Op) -> Value | None:
    """An update of full size → u; an empty one → x."""
    x, u = op.operands
    if u.type == x.type:
        return u
    return x if u.size == 0 else None


@rule("reduce")
def nothing_to_reduce(b: Simplifier, op: Op) -> Value | None:
    """A reduction over axes of 1 is the one element, reshaped."""
    x = op.operands[0]
    if all(x.shape[axis] == 1 for axis in op.attrs["axes"]):
        return b.reshape(x, shape=op.result.shape)
    return None


@rule("cumsum", "reduce_window")
def windows_of_one(b: Simplifier, op: Op) -> Value | None:
    """Running sums along an axis of 1, and windows of one element at every place, give that element."""
    x = op.operands[0]
    if op.name == "cumsum":
        return x if x.shape[op.attrs["axis"]] == 1 else None
    ones = (1,) * x.ndim
    return x if op.attrs["window"] == ones and x.type == op.result.type and op.attrs["stride"] == ones else None
