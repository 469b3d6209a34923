"""The memory of a graph's values: the buffer, the offset, and the strides of each.

Most values have a buffer of their own, row-major. The result of an op annotated `.kernel = view` is never computed:

* a `reshape` renames its operand;
* a `slice` without steps is a *window* of its operand: some of its elements, with the same strides;
* a `concat` is a buffer in which its operands lie side by side. Each operand is a window of it, which the operand's
  kernel writes. A concat may be a window of another one;
* a `transpose` is a window of its operand, with permuted strides. Or, with `view(into = True)`, it is a buffer that
  the kernel of its operand writes, like a concat.

A buffer is identified by its *root*: the value that fills all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gluonjit.ir.annotations import KERNEL, STRIDES
from gluonjit.ir.buffers import is_view, runs_kernel
from gluonjit.ir.dims import Undecided, right_either_way
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.kernels.element_plans import View
from gluonjit.ir.types import IRError

Strides = tuple[Any, ...]
"""Extents, which may be open."""


class Window(NamedTuple):
    root: Value
    offset: Any
    """Elements between the root's first one and this value's."""
    strides: Strides
    """Elements from one index to the next, along each axis."""


def row_major(shape: Iterable[Any]) -> Strides:
    """The strides of an array without gaps."""
    return _row_major(tuple(shape))


@lru_cache(1024)
def _row_major(shape: tuple[Any, ...]) -> Strides:
    strides: list[Any] = []
    step: Any = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * n
    return tuple(reversed(strides))


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an array of these strides has no gaps. The stride of an axis of 1 is ignored."""
    dense = row_major(shape)
    if dense == strides or 0 in shape:
        return True
    return all(n == 1 or s == r for n, s, r in zip(shape, strides, dense, strict=True))


def restrided(shape: Sequence[int], strides: Sequence[int], new: Sequence[int]) -> Strides | None:
    """The strides of the same elements, in the same order, in the shape `new`; None if no strides express that."""
    if 0 in shape or is_row_major(shape, strides):
        return row_major(new)
    axes = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    out: list[Any] = []
    left, step = 1, 1  # what is left of the old axis that is being split into new ones, innermost first; its stride
    for n in reversed(new):
        if n != 1 and left == 1:
            left, step = axes.pop()
        while (rest := _quotient(left, n)) is None:
            if not axes or axes[-1][1] != left * step:
                return None
            left *= axes.pop()[0]
        out.append(step)
        left, step = rest, step * n
    return tuple(reversed(out))


def _quotient(n: Any, by: Any) -> Any:
    """n / by, or None if that is not known to be whole."""
    if n == by:
        return 1
    try:
        with right_either_way():  # 49 / (49 * n) is whole if n is 1, but need not be known to be
            quotient, rest = divmod(n, by)
    except Undecided:
        return None
    return None if rest != 0 else quotient


def windows(graph: Graph) -> Mapping[Value, Window]:
    """The window of every value of the graph. Raises IRError if an operand of a concat cannot be a window of it."""
    source = reshaped(graph)
    found: dict[Value, Window] = {}
    for op in reversed(graph.ops):
        if is_filled(op):
            whole = found.setdefault(op.result, Window(op.result, 0, row_major(op.result.shape)))
            for v, window in zip(op.operands, parts(op, whole), strict=True):
                made = source.get(v, v)
                found[made] = _written_inside(graph, op.name, window, v, made, found)
    for v in graph.inputs:
        found[v] = Window(v, 0, row_major(v.shape))
    for op in graph.ops:
        if is_view(op) and op.name == "slice":
            found[op.result] = sliced(op, found[op.operands[0]])
            continue
        if is_view(op) and op.name == "transpose" and not is_filled(op):
            found[op.result] = transposed(op, found[op.operands[0]])
            continue
        for r in op.results:
            if r in source:
                root, offset, strides = found[op.operands[0]]
                own = restrided(op.operands[0].shape, strides, r.shape)
                if own is None:
                    raise IRError(f"%{r.name} is a reshape of a window whose elements have no strides in its shape")
                found[r] = Window(root, offset, own)
            elif r not in found:
                found[r] = Window(r, 0, row_major(r.shape))
    return found


def reshaped(graph: Graph) -> Mapping[Value, Value]:
    """Result of each reshape that is a view → the value that it renames, which is not itself such a reshape."""
    source: dict[Value, Value] = {}
    for op in graph.ops:
        if is_view(op) and op.name == "reshape":
            v = op.operands[0]
            source[op.result] = source.get(v, v)
    return source


def parts(op: Op, whole: Window) -> list[Window]:
    """The windows of the operands of a concat, or of a transpose, whose result has the window `whole`."""
    if op.name == "transpose":
        axes = sorted(range(len(whole.strides)), key=lambda k: op.attrs["perm"][k])
        return [whole._replace(strides=tuple(whole.strides[k] for k in axes))]
    found, at = [], whole.offset
    for v in op.operands:
        found.append(whole._replace(offset=at))
        at += v.shape[op.attrs["axis"]] * whole.strides[op.attrs["axis"]]
    return found


def transposed(op: Op, whole: Window) -> Window:
    """The window of the result of a transpose whose operand has the window `whole`."""
    return whole._replace(strides=tuple(whole.strides[k] for k in op.attrs["perm"]))


def sliced(op: Op, whole: Window) -> Window:
    """The window of the result of a slice whose operand has the window `whole`."""
    if any(step != 1 for step in op.attrs["step"] or ()):
        raise IRError(f"%{op.result.name} is a slice with steps, which is not a view")
    skipped = sum(k * s for k, s in zip(op.attrs["start"], whole.strides, strict=True))
    return whole._replace(offset=whole.offset + skipped)


def _written_inside(
    graph: Graph, kind: str, window: Window, v: Value, made: Value, found: Mapping[Value, Window]
) -> Window:
    """The window of `made`, a kernel's result, where `v`, an operand of a concat or transpose that is a buffer, has the
    window `window`. `v` is `made` or a reshape of it."""
    maker = graph.producers.get(made)
    if maker is None or not (runs_kernel(maker) or is_filled(maker)):
        raise IRError(f"%{v.name} is an operand of a {kind} that is a view, but no kernel writes it")
    if made in found:
        raise IRError(f"%{v.name} is an operand of a {kind} that is a view, but it already lies elsewhere")
    strides = restrided(v.shape, window.strides, made.shape)
    if strides is None:
        raise IRError(f"%{v.name} is an operand of a {kind} that is a view, but its kernel cannot write it there")
    return window._replace(strides=strides)


def is_filled(op: Op) -> bool:
    """Whether the op's result is a buffer that the kernels of its operands write."""
    plan = KERNEL.of(op)
    return isinstance(plan, View) and (op.name == "concat" or plan.into)


def fills_buffer(v: Value, window: Window) -> bool:
    """Whether the value covers all of its buffer, row-major."""
    return v is window.root or (v.size == window.root.size and is_row_major(v.shape, window.strides))


def result_buffers(graph: Graph, places: Mapping[Value, Window]) -> dict[Value, int]:
    """Root → index of the graph result (outputs, then updates) into whose buffer kernels write it.

    The first result that covers a root which kernels write gets it directly. Other results of the same root, windows,
    inputs, constants and prepared values are not in the table, and need a copy.
    """
    owners: dict[Value, int] = {}
    for k, v in enumerate(graph.results):
        root = places[v].root
        producer = graph.producers.get(root)
        written = producer is not None and (runs_kernel(producer) or is_filled(producer))
        if written and fills_buffer(v, places[v]) and root not in owners:
            owners[root] = k
    return owners


def in_place_pairs(op: Op, places: Mapping[Value, Window]) -> list[tuple[Value, Value]]:
    """(root of a result, root of an operand) pairs where the result may overwrite the operand.

    The kernel must read each element of the operand only at the index at which it writes the results: its body consists
    of elementwise primitives, the results have one shape (they are then written in one loop, at each index after all
    have been computed), the operand has it too, and no other operand is in the same buffer, which might be read at
    other indices. Both cover their buffers.
    """
    plan = KERNEL.of(op)
    if plan is None or not plan.may_overwrite or op.name != "fused":
        return []
    body = op.regions[0]
    shape = body.outputs[0].shape
    if any(v.shape != shape for v in body.outputs):
        return []
    for o in body.ops:
        if not o.definition.elementwise and o.name not in ("constant", "broadcast"):
            return []
    moved = {v for o in body.ops if o.name == "broadcast" for v in o.operands}
    read = [places[v].root for v in op.operands]
    free = [
        (root, v.dtype.itemsize)
        for v, inner, root in zip(op.operands, body.inputs, read, strict=True)
        if inner not in moved and inner.shape == shape and read.count(root) == 1 and fills_buffer(v, places[v])
    ]
    written = [r for r in op.results if free and fills_buffer(r, places[r])]
    return [(places[r].root, root) for r in written for root, itemsize in free if itemsize == r.dtype.itemsize]


def updates_in_place(graph: Graph, places: Mapping[Value, Window]) -> list[bool]:
    """For each update, whether its new value may be written over the state: the kernel that writes it is the last that
    reads the state, and reads each element only where it writes."""
    owned = result_buffers(graph, places)
    kernels = [op for op in graph.ops if not is_view(op) and op.name != "prepare"]
    written: dict[Value, int] = {}
    read: dict[Value, int] = {}
    for t, op in enumerate(kernels):
        for r in op.results:
            written.setdefault(places[r].root, t)
        read.update((places[v].root, t) for v in op.operands)
    found = []
    pairs: dict[int, list[tuple[Value, Value]]] = {}
    """Of kernels, by their number: an optimizer's has several states."""
    for k, (state, new) in enumerate(graph.updates, len(graph.outputs)):
        root = places[new].root
        first, last = written.get(root, -1), read.get(state, -1)
        while_writing = last == first >= 0
        if while_writing:
            if first not in pairs:
                pairs[first] = in_place_pairs(kernels[first], places)
            while_writing = (root, state) in pairs[first]
        found.append(owned.get(root) == k and (last < first or while_writing))
    return found


# ---- the strides that kernels know


def takes_strides(op: Op, k: int, strides: Sequence[int]) -> bool:
    """Whether the op's kernel can read operand k, or write result k - len(operands), with these strides."""
    plan = KERNEL.of(op)
    return plan is not None and plan.takes_strides(op, k, strides)


def kernel_strides(op: Op, places: Mapping[Value, Window]) -> tuple[Strides | None, ...]:
    """The annotation `.strides` of an op with a kernel: the strides of each operand, then of each result, or None for
    row-major.

    Empty when all of them are."""
    values = (*op.operands, *op.results)
    all = tuple(None if is_row_major(v.shape, places[v].strides) else places[v].strides for v in values)
    return all if any(s is not None for s in all) else ()


def strides_of(op: Op, k: int) -> Strides:
    """The strides with which the op's kernel reads operand k, or writes result k - len(operands)."""
    strides = STRIDES.of(op)
    own = strides[k] if strides else None
    return row_major((*op.operands, *op.results)[k].shape) if own is None else own
