"""Whether a graph computes every row of a batch from that row alone, so that calls of several may share one.

A value is either the same for all batches, or it has one *row axis*, of extent m·batch: its elements that belong to row
b of the batch are m·b to m·b + m - 1 of that axis, and depend on nothing else that differs between batches. What cannot
be shown to be so is refused, among it everything that is the same for all batches, but depends on their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gluonjit.ir.dims import Dim, Extent, names_of
from gluonjit.ir.graph import Graph, Op, Value

Axis = int | None
"""A value's row axis; None: it is the same for all batches."""


class _Mixes(Exception):
    """An op whose results may mix rows."""


def why_rows_mix(graph: Graph, batch: str) -> str | None:
    """None if rows are independent along the open dimension `batch`: it is the first axis of all inputs that have it
    and of all outputs. Otherwise what stands in the way. The graph's level is `expanded` or a later one."""
    axes: dict[Value, Axis] = {}
    try:
        if graph.updates:
            raise _Mixes(f"the call changes {graph.updates[0][0].name}")
        for v in graph.inputs:
            axes[v] = 0 if names_of(v.shape) & {batch} else None
            _check(v, axes[v], batch)
            if axes[v] == 0 and not _is_named(v.shape[0], batch):
                raise _Mixes(f"the input {v.name} is {v.type}")
        _walk(graph, axes, batch)
        for v in graph.outputs:
            if axes[v] != 0 or not _is_named(v.shape[0], batch):
                raise _Mixes(f"the output {v.name or v.type} has no row for each of the batch")
    except _Mixes as e:
        return str(e)
    return None


def independent_rows(graph: Graph, arguments: int) -> tuple[str | None, str]:
    """(the open dimension along which rows are independent, ""), or (None, what stands in the way). It is the first one
    of all of a call's `arguments`, which are the graph's first inputs. The graph's level is as for `why_rows_mix`."""
    given = graph.inputs[:arguments]
    first = {v.shape[0] if v.shape else None for v in given}
    n = first.pop() if len(first) == 1 else None
    if not isinstance(n, Dim):
        return None, "not all inputs begin with the same open dimension"
    why = why_rows_mix(graph, str(n))
    return (str(n), "") if why is None else (None, why)


def _is_named(n: Extent, batch: str) -> bool:
    return isinstance(n, Dim) and n.terms == {(batch,): 1}


def _walk(graph: Graph, axes: dict[Value, Axis], batch: str) -> None:
    for op in graph.ops:
        found = _results(op, [axes[v] for v in op.operands], batch)
        for v, axis in zip(op.results, found, strict=True):
            try:
                _check(v, axis, batch)
            except _Mixes as e:
                raise _Mixes(f"{op.name} {e}") from None
            axes[v] = axis


def _check(v: Value, axis: Axis, batch: str) -> None:
    """Checks that `batch` is in the row axis alone, as a factor."""
    for k, n in enumerate(v.shape):
        if k == axis:
            if not isinstance(n, Dim) or not _is_multiple(n, batch):
                raise _Mixes(f"gives {v.type}, whose axis {k} has no rows")
        elif names_of((n,)) & {batch}:
            raise _Mixes(f"gives {v.type}, whose axis {k} depends on {batch}")


def _is_multiple(n: Dim, batch: str) -> bool:
    return all(batch in names and names.count(batch) == 1 for names in n.terms)


def _results(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    if op.definition.elementwise:
        return [_aligned(op, axes)]
    rule = _RULES.get(op.name)
    if rule is None:
        if all(axis is None for axis in axes) and op.name not in _POSITIONS and not op.regions:
            return [None] * len(op.results)
        raise _Mixes(f"{op.name} may mix rows")
    return rule(op, axes, batch)


def _aligned(op: Op, axes: Sequence[Axis]) -> Axis:
    rank = len(op.results[0].shape)
    return _same(op, [None if k is None else k + rank - len(v.shape) for v, k in zip(op.operands, axes)])


def _same(op: Op, axes: Sequence[Axis]) -> Axis:
    """The row axis of operands that must have the same, if any."""
    found = {k for k in axes if k is not None}
    if len(found) > 1:
        raise _Mixes(f"{op.name} combines different axes")
    return found.pop() if found else None


def _untouched(*names: str) -> Callable[..., Sequence[Axis]]:
    """The rule of ops that leave axes other than those in these attributes alone."""

    def rule(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
        k = _same(op, axes)
        for name in names:
            value = op.attrs[name]
            if k in (value if isinstance(value, tuple) else (value,)) and k is not None:
                raise _Mixes(f"{op.name} runs along the batch")
        return [k] * len(op.results)

    return rule


def _reduced(name: str) -> Callable[..., Sequence[Axis]]:
    along = _untouched(name)

    def rule(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
        (k,) = along(op, axes, batch)
        value = op.attrs[name]
        gone = value if isinstance(value, tuple) else (value,)
        return [None if k is None else k - sum(axis < k for axis in gone)]

    return rule


def _slice(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    k, x = axes[0], op.operands[0]
    if k is not None:
        step = op.attrs.get("step")
        if op.attrs["start"][k] != 0 or op.attrs["size"][k] != x.shape[k] or (step and step[k] != 1):
            raise _Mixes("slice takes some rows of the batch")
    return [k]


def _pad(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    k = axes[0]
    if axes[1] is not None:
        raise _Mixes("pad with values of a batch")
    for name in ("low", "high", "interior"):
        value = op.attrs.get(name)
        if k is not None and value and value[k] != 0:
            raise _Mixes("pad adds rows to the batch")
    return [k]


def _update_slice(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    k, step = _same(op, axes), op.attrs.get("step")
    if k is not None:
        x, u = op.operands
        if op.attrs["start"][k] != 0 or u.shape[k] != x.shape[k] or (step and step[k] != 1):
            raise _Mixes("update_slice writes to some rows of the batch")
    return [k]


def _broadcast(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    (x,), (k,) = op.operands, axes
    shape, dims = op.result.shape, op.attrs.get("dims")
    if dims is None:
        dims = range(len(shape) - len(x.shape), len(shape))
    if k is not None:
        return [dims[k]]
    return [next((axis for axis, n in enumerate(shape) if names_of((n,)) & {batch}), None)]


def _reshape(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    (x,), (k,) = op.operands, axes
    if k is None:
        return [None]
    shape = op.result.shape
    j = next((axis for axis, n in enumerate(shape) if names_of((n,)) & {batch}), None)
    if j is None or math.prod(x.shape[:k]) != math.prod(shape[:j]):
        raise _Mixes("reshape joins the batch with an axis in front of it")
    return [j]


def _transpose(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    return [None if axes[0] is None else tuple(op.attrs["perm"]).index(axes[0])]


def _dot(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    contract, pairs = op.attrs["contract"], op.attrs.get("batch", ((), ()))
    results: list[Axis] = []
    free = [
        [k for k in range(len(v.shape)) if k not in contract[side] and k not in pairs[side]]
        for side, v in enumerate(op.operands)
    ]
    for side, k in enumerate(axes):
        if k is None:
            continue
        if k in contract[side]:
            raise _Mixes("dot_general sums over the batch")
        if k in pairs[side]:
            results.append(tuple(pairs[side]).index(k))
        else:
            results.append(len(pairs[0]) + (len(free[0]) if side else 0) + free[side].index(k))
    return [_same(op, results)]


def _conv(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    images, _, result = op.attrs["layout"]
    if axes[0] not in (None, images.index("N")) or any(k is not None for k in axes[1:]):
        raise _Mixes("conv has weights, or channels, of a batch")
    return [None if axes[0] is None else result.index("N")]


def _window(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    k = _same(op, axes)
    if k is not None:
        still = {"window": 1, "stride": 1, "low": 0, "high": 0}
        if any(op.attrs[name][k] != value for name, value in still.items()):
            raise _Mixes("reduce_window runs along the batch")
    return [k]


def _gather(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    (x, index), axis = axes, op.attrs["axis"]
    if x is None:
        return [None if index is None else axis + index]
    if index is not None or x == axis:
        raise _Mixes("gather takes rows of the batch")
    return [x if x < axis else x + len(op.operands[1].shape) - 1]


def _iota(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    k = next((axis for axis, n in enumerate(op.result.shape) if names_of((n,)) & {batch}), None)
    if k is not None and k == op.attrs["axis"]:
        raise _Mixes("iota numbers the rows of the batch")
    return [k]


def _region(region: Graph, given: Sequence[Axis], batch: str) -> list[Axis]:
    axes: dict[Value, Axis] = dict(zip(region.inputs, given, strict=True))
    for v in region.inputs:
        _check(v, axes[v], batch)
    _walk(region, axes, batch)
    return [axes[v] for v in region.outputs]


def _loop(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    carried = op.attrs["carried"]
    end = carried + op.attrs["scanned"]
    if names_of((op.attrs["trip"],)) & {batch} or 0 in axes[carried:end]:
        raise _Mixes("loop runs over the batch")
    rows = [None if k is None else k - 1 for k in axes[carried:end]]
    found = _region(op.regions[0], [None, *axes[:carried], *rows, *axes[end:]], batch)
    if found[:carried] != list(axes[:carried]):
        raise _Mixes("loop gives its state another row axis")
    for condition in op.regions[1:]:
        _region(condition, [None, *axes[:carried], *axes[end:]], batch)
    return [*axes[:carried], *(None if k is None else k + 1 for k in found[carried:])]


def _branch(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    first, second = (_region(region, axes[1:], batch) for region in op.regions)
    if first != second:
        raise _Mixes("branch gives different row axes")
    return first


def _one_region(op: Op, axes: Sequence[Axis], batch: str) -> Sequence[Axis]:
    return _region(op.regions[0], axes, batch)


_POSITIONS = {"extent", "random_bits", "host_call"}
"""What has no operands of a batch, and may yet depend on its size, or on the call."""
_RULES: Mapping[str, Callable[[Op, Sequence[Axis], str], Sequence[Any]]] = {
    "reduce": _reduced("axes"),
    "arg_reduce": _reduced("axis"),
    "cumsum": _untouched("axis"),
    "sort": _untouched("axis"),
    "reverse": _untouched("axes"),
    "concat": _untouched("axis"),
    "slice": _slice,
    "pad": _pad,
    "update_slice": _update_slice,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "dot_general": _dot,
    "conv": _conv,
    "reduce_window": _window,
    "gather": _gather,
    "iota": _iota,
    "loop": _loop,
    "branch": _branch,
    "call": _one_region,
    "with_gradient": _one_region,
    "fused": _one_region,
}
