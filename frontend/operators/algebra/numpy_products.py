"""Products of `mx.np`: `dot`, `matmul`, `tensordot` and `einsum`. All of them are `dot_general`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.operators.attributes import counted, integer, shape, string
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import axis_in, require_float, require_same_dtype, shape_text


def _check(a: Any, b: Any) -> None:
    require_same_dtype(a, b)
    require_float(a)


def _tensordot(builder: Emitter, a: Any, b: Any, over_a: Sequence[int], over_b: Sequence[int]) -> Any:
    _check(a, b)
    if [a.shape[k] for k in over_a] != [b.shape[k] for k in over_b]:
        raise OperatorError(f"shapes {shape_text(a.shape)} and {shape_text(b.shape)} not aligned")
    return builder.dot_general(a, b, contract=(tuple(over_a), tuple(over_b)))


@operator("_np_dot", inputs=("a", "b"))
def dot(builder: Emitter, a: Any, b: Any) -> Any:
    """The sum of products over the last axis of a and the second to last of b; the product if one has rank 0

    Shapes: a (*s, k), b (*t, k, m) -> (*s, *t, m); b (k,) gives (*s), and a number the other's shape

    MXNetError if the two axes differ in length.

    >>> mx.np.dot(mx.np.array([[1, 2], [3, 4]]), mx.np.array([1, 10])).asnumpy()
    array([21., 43.], dtype=float32)
    """
    ranks = len(a.shape), len(b.shape)
    if 0 in ranks:
        _check(a, b)
        return builder.mul(a, b)
    return _tensordot(builder, a, b, [ranks[0] - 1], [max(ranks[1] - 2, 0)])


@operator("_npi_matmul", inputs=("a", "b"), outputs=lambda attrs: ("out",))
def matmul(builder: Emitter, a: Any, b: Any) -> Any:
    """Products of the matrices in the last two axes; other axes broadcast, and a vector is a row (a) or a column (b)

    Shapes: a (…, n, k), b (…, k, m) -> (…, n, m)

    MXNetError for numbers, and if the two axes differ in length.

    >>> mx.np.matmul(mx.np.array([[1, 2]]), mx.np.array([[3], [4]])).asnumpy()
    array([[11.]], dtype=float32)
    """
    if not a.shape or not b.shape:
        raise OperatorError("matmul: Multiplication by scalars is not allowed.")
    if len(b.shape) <= 2:
        return dot.expand(builder, a, b)
    if len(a.shape) == 1:
        y = matmul.expand(builder, builder.reshape(a, shape=(1, *a.shape)), b)
        return builder.reshape(y, shape=(*y.shape[:-2], y.shape[-1]))
    _check(a, b)
    if a.shape[-1] != b.shape[-2]:
        raise OperatorError(f"shapes {shape_text(a.shape)} and {shape_text(b.shape)} not aligned")
    lead = _broadcast(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    a, b = (builder.broadcast(x, shape=(*lead, *x.shape[-2:])) if x.shape[:-2] != lead else x for x in (a, b))
    n = len(lead)
    return builder.dot_general(a, b, contract=((n + 1,), (n,)), batch=(tuple(range(n)), tuple(range(n))))


def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b))
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise OperatorError(f"operands could not be broadcast together with shapes {shape_text(a)} {shape_text(b)}")
    return tuple(n if m == 1 else m for m, n in pairs)


@operator(
    "_npi_tensordot",
    inputs=("a", "b"),
    attrs={"a_axes_summed": shape(doc="axes of a"), "b_axes_summed": shape(doc="axes of b, in the same order")},
)
def tensordot(builder: Emitter, a: Any, b: Any, *, a_axes_summed: Shape, b_axes_summed: Shape) -> Any:
    """The sum of products over the given axes of both tensors

    Shapes: a (any), b (any) -> a's other axes, then b's

    >>> mx.np.tensordot(mx.np.array([[1, 2], [3, 4]]), mx.np.array([1, 10]), axes=([0], [0])).asnumpy()
    array([31., 42.], dtype=float32)
    """
    over_a = [axis_in(k, len(a.shape)) for k in a_axes_summed]
    return _tensordot(builder, a, b, over_a, [axis_in(k, len(b.shape)) for k in b_axes_summed])


@operator("_npi_tensordot_int_axes", inputs=("a", "b"), attrs={"axes": integer(doc="how many axes are summed")})
def tensordot_int_axes(builder: Emitter, a: Any, b: Any, *, axes: int) -> Any:
    """The sum of products over the last `axes` axes of a and the first `axes` axes of b

    Shapes: a (*s, *k), b (*k, *t) -> (*s, *t)

    >>> mx.np.tensordot(mx.np.array([[1, 2], [3, 4]]), mx.np.array([1, 10]), axes=1).asnumpy()
    array([21., 43.], dtype=float32)
    """
    if not 0 <= axes <= min(len(a.shape), len(b.shape)):
        raise OperatorError(f"{axes} axes cannot be summed of {shape_text(a.shape)} and {shape_text(b.shape)}")
    return _tensordot(builder, a, b, range(len(a.shape) - axes, len(a.shape)), range(axes))


# einsum

Term = tuple[Any, str]
"""A tensor, and a letter for each of its axes."""


def _letters(subscripts: str, shapes: Sequence[Shape]) -> tuple[list[str], str]:
    """The subscripts of each operand and of the result, with ellipses and an omitted result written out."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise OperatorError(f"einsum {subscripts!r} takes {len(terms)} operands, got {len(shapes)}")
    free = [chr(c) for c in range(0x3B1, 0x3B1 + 32)]
    spread = max((len(s) - len(t) + 3 for t, s in zip(terms, shapes) if "..." in t), default=0)
    named = []
    for term, s in zip(terms, shapes):
        if "..." in term:
            count = len(s) - len(term) + 3
            term = term.replace("...", "".join(free[spread - count : spread]))
        if len(term) != len(s):
            raise OperatorError(f"einsum {subscripts!r} does not fit an operand of shape {shape_text(s)}")
        named.append(term)
    every = "".join(named)
    if arrow:
        out = right.replace("...", "".join(free[:spread]))
    else:
        alone = sorted(c for c in set(every) if every.count(c) == 1 and c not in free)
        out = "".join(free[:spread]) + "".join(alone)
    if len(set(out)) < len(out) or not set(out) <= set(every):
        raise OperatorError(f"einsum {subscripts!r} has a result that does not follow from its operands")
    return named, out


def _diagonal(b: Emitter, x: Any, term: str) -> Term:
    """Merges axes with the same letter into one, their diagonal."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            first, second = term.index(c), term.rindex(c)
            if x.shape[first] != x.shape[second]:
                raise OperatorError(f"einsum: the axes {c!r} of one operand have lengths {x.shape}")
            rest = [k for k in range(len(term)) if k not in (first, second)]
            n = x.shape[first]
            flat = b.transpose(x, perm=(*rest, first, second))
            lead = tuple(flat.shape[:-2])
            flat = b.reshape(flat, shape=(*lead, n * n))
            x = b.slice(flat, start=(0,) * (len(lead) + 1), size=(*lead, n), step=(*(1,) * len(lead), n + 1))
            term = "".join(term[k] for k in rest) + c
    return x, term


def _product(b: Emitter, left: Term, right: Term, keep: set[str]) -> Term:
    """The sum of products over the letters that both terms have and that are not in `keep`."""
    (x, p), (y, q) = left, right
    lengths: dict[str, int] = {}
    for z, term in (left, right):
        for c, n in zip(term, z.shape):
            if lengths.get(c, 1) != 1 and n not in (1, lengths[c]):
                raise OperatorError(f"einsum: axis {c!r} has lengths {lengths[c]} and {n}")
            lengths[c] = max(lengths.get(c, 1), n) if lengths.get(c, 1) and n else 0
    both = [c for c in p if c in q]
    x, y = (
        b.broadcast(z, shape=tuple(lengths[c] if c in both else n for c, n in zip(t, z.shape)))
        for z, t in (left, right)
    )
    summed, batch = [c for c in both if c not in keep], [c for c in both if c in keep]
    pairs = [(tuple(p.index(c) for c in cs), tuple(q.index(c) for c in cs)) for cs in (summed, batch)]
    out = [*batch, *(c for c in p if c not in both), *(c for c in q if c not in both)]
    return b.dot_general(x, y, contract=pairs[0], batch=pairs[1]), "".join(out)


def _summed(b: Emitter, x: Any, term: str, keep: set[str]) -> Term:
    """Sums over the axes whose letters are not in `keep`."""
    gone = tuple(k for k, c in enumerate(term) if c not in keep)
    return (b.reduce(x, op="sum", axes=gone) if gone else x), "".join(c for c in term if c in keep)


@operator(
    "_npi_einsum",
    variadic=True,
    attrs={
        "num_args": counted(doc="how many inputs there are"),
        "subscripts": string("", doc="a letter for each axis"),
        "optimize": integer(0, doc="has no effect"),
    },
)
def einsum(b: Emitter, *data: Any, num_args: int, subscripts: str, optimize: int) -> Any:
    """Sums of products by Einstein's convention: `ij,jk->ik` is a matrix product

    Shapes: arrays with an axis for each letter -> an axis for each letter after the arrow

    >>> mx.np.einsum("ij,jk->ik", mx.np.array([[1, 2]]), mx.np.array([[3], [4]])).asnumpy()
    array([[11.]], dtype=float32)
    """
    require_same_dtype(*data)
    named, out = _letters(subscripts, [tuple(x.shape) for x in data])
    terms = [_diagonal(b, x, term) for x, term in zip(data, named)]
    current: Term | None = None
    for k, (x, term) in enumerate(terms):
        later = set(out).union(*(t for _, t in terms[k + 1 :]))
        before = set(current[1]) if current else set()
        y, left = _summed(b, x, term, later | before)
        current = (y, left) if current is None else _product(b, current, (y, left), later)
        current = _summed(b, *current, later)
    assert current is not None
    y, term = current
    if math.prod(y.shape) and term != out or term != out:
        y = b.transpose(y, perm=tuple(term.index(c) for c in out))
    return y
