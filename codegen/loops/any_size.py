"""Loops that serve any number of elements: ops that differ in their sizes alone share a kernel.

Most kernels of a net's training are loops, and few of them are different: each layer has the same ones, for its own
number of pixels and channels. Where nothing but trip counts would differ, the code is written for open ones, and the
call passes the sizes, and the number of elements that an average is of. There are four forms:

* [length], where all values have the same shape, or are numbers. Only where a program has several lengths: they are the
  weights that an optimizer steps;
* [p, c, q], where all values have the same shape, or are vectors, one number for each channel, or numbers. Results are
  of one kind; or they are sums of a number of pixels that is not open, unless channels come last and pixels are many.
  If channels come last, pixels are many, or so few that they are added up without a loop;
* what only moves elements: a transpose of the fewest axes, some of them reversed;
* rows that are cut into pieces, [k, n] to [⌈n / piece⌉, k, piece], of which zeros fill the last: panels of weights.

Whatever may be the vector's axis is a multiple of a vector, or static: then no code is for parts of one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gluonjit.codegen.loops.nest import BLOCK
from gluonjit.codegen.loops.reduce_loops import UNROLLED
from gluonjit.codegen.loops.sums_together import TERMS
from gluonjit.codegen.loops.writer import columns_at_a_time
from gluonjit.codegen.text.kernel_code import AnySize
from gluonjit.ir.annotations import GUARD, KERNEL, STRIDES
from gluonjit.ir.dims import LOWEST, Extent, Shape, named
from gluonjit.ir.graph import Builder, Graph, Op, Value, copy_ops
from gluonjit.ir.kernels.element_plans import RUN, Loops
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import F32

_RUN = 64
"""Elements up to which runs that stay together are copied by code for their very number."""
_FEW = 4
"""Elements up to which those that come to lie side by side are interleaved by shuffles."""
_LEAST, _MOST = 16, 2**24
"""Between these numbers are those of elements that an average is of; f32 has all of them."""
_WEIGHTS = 2**20
"""Elements up to which what is moved may be weights, or their gradient, and takes no time to speak of."""


def any_size(op: Op, target: Machine) -> AnySize | None:
    """The op for any size, if it is of one of the forms."""
    if not _may_be_open(op) or any(0 in v.shape for v in (*op.operands, *op.results)):
        return None
    sizes: dict[str, int] = {}
    body = op.regions[0]
    opened = _moving(op, target, sizes) or _packing(body, target, sizes) or _computing(body, target, sizes)
    return None if opened is None or not sizes else AnySize.of(op, opened, sizes)


def _may_be_open(op: Op) -> bool:
    plan = KERNEL.of(op)
    plain = isinstance(plan, Loops) and not plan.rare and not plan.keeps_rows
    return plain and not STRIDES.of(op) and GUARD.of(op) is None


def opened_axis(name: str, n: int, unit: int, sizes: dict[str, int]) -> Extent:
    """`n`, open if it is several times `unit`."""
    if n % unit or n // unit < LOWEST:
        return n
    sizes[name] = n // unit
    return unit * named(name)


# ---- what has one axis

_LENGTH = "length"
_SIZES = 4
"""Different lengths from which on one kernel for all is worth the few instructions more that each takes."""
_SHORTEST = 16
"""Shorter arrays take less time, and less code, with their length known."""


def of_any_length(ops: Iterable[Op], key: Callable[[Op], Hashable] = op_key) -> dict[Op, AnySize]:
    """Those of a program's ops that differ from enough others in their length alone. `key`: `op_key`, or the like."""
    known: dict[Hashable, AnySize | None] = {}
    """By what ops say: many weights have the same size."""
    alike: dict[Hashable, list[tuple[Op, AnySize]]] = {}
    for op in ops:
        if _is_row(op):
            says = key(op)
            if says not in known:
                known[says] = _any_length(op)
            if (found := known[says]) is not None:
                alike.setdefault(key(found.op), []).append((op, found))
    return {
        op: found
        for group in alike.values()
        if len({found.sizes[_LENGTH] for _, found in group}) >= _SIZES
        for op, found in group
    }


def _is_row(op: Op) -> bool:
    """Whether the op is a loop over elements in a row."""
    shape = op.results[0].shape if op.results else ()
    return len(shape) == 1 and isinstance(shape[0], int) and shape[0] >= _SHORTEST and _may_be_open(op)


def _any_length(op: Op) -> AnySize | None:
    (body,), shape = op.regions, op.results[0].shape
    shapes = {v.shape for v in (*body.inputs, *(r for o in body.ops for r in o.results))}
    if not shapes <= {shape, ()} or any(o.name == "reduce" or not _treats_all_alike(o) for o in body.ops):
        return None
    sizes = {_LENGTH: shape[0]}
    return AnySize.of(op, _with_shapes(body, {shape: (named(_LENGTH),), (): ()}, 0, sizes), sizes)


# ---- what is computed


def _computing(body: Graph, target: Machine, sizes: dict[str, int]) -> Graph | None:
    body = _of_first_elements(body)
    if not all(map(_treats_all_alike, body.ops)):
        return None
    shapes = {v.shape for v in (*body.inputs, *(r for op in body.ops for r in op.results))}
    whole: tuple[int, ...] = max(shapes, key=lambda shape: (prod(shape), len(shape)))
    axes = {axis for op in body.ops if (axis := _channel_axis(op, whole)) is not None}
    if not axes:
        return None
    axis, *others = axes
    if others or axis < 0 or len(whole) < 2:
        return None
    channels = whole[axis : axis + 1]
    is_sum = any(op.name == "reduce" for op in body.ops)
    if not shapes <= {whole, channels, ()} or {v.shape for v in body.outputs} != {channels if is_sum else whole}:
        return None
    lanes, before, after = target.lanes(F32), prod(whole[:axis]), prod(whole[axis + 1 :])
    unit = 1 if after > 1 else lanes
    few = is_sum and after == 1 and before <= UNROLLED
    if is_sum and after == 1:
        unit *= 1 if few else columns_at_a_time(channels[0], lanes)
        reads_whole = any(v.shape == whole for v in body.inputs)
        if UNROLLED < before <= 2 * RUN or not unit or not reads_whole or not _sums_once(body):
            return None
    open_channels = opened_axis("c", channels[0], unit, sizes)
    shape: list[Extent] = [before, open_channels, after]
    if not is_sum:
        shape[0], shape[2] = opened_axis("p", before, 1, sizes), opened_axis("q", after, lanes, sizes)
    elif after == 1 and not few:
        shape[0] = opened_axis("p", before, TERMS, sizes)
    first, last = int(before == 1), 3 - int(after == 1)
    opened: dict[Shape, Shape] = {whole: tuple(shape[first:last]), channels: (open_channels,), (): ()}
    return _with_shapes(body, opened, 1 - first, None if is_sum else sizes) if sizes else None


def _of_first_elements(body: Graph) -> Graph:
    """The body whose inputs are only what it reads of them, where that is their first elements in memory: of a batch,
    the first image, whose mean BatchNorm's sums are centred on."""
    firsts = {op.operands[0]: op for op in body.ops if op.name == "slice" and _is_beginning(op)}
    firsts = {v: op for v, op in firsts.items() if v in body.inputs and body.uses[v] == (op,)}
    if not firsts:
        return body
    b = Builder(body.name, body.level)
    env = {v: b.input(v.name, firsts[v].result.type if v in firsts else v.type) for v in body.inputs}
    env |= {op.result: env[v] for v, op in firsts.items()}
    copy_ops(b, [op for op in body.ops if op not in firsts.values()], env)
    return b.build([env[v] for v in body.outputs])


def _is_beginning(op: Op) -> bool:
    """Whether a slice is the first elements of its operand."""
    size, shape = op.result.shape, op.operands[0].shape
    cut = next((k for k, n in enumerate(size) if n != 1), len(size)) + 1
    is_dense = all(step == 1 for step in op.attrs["step"] or ())
    return is_dense and not any(op.attrs["start"]) and size[cut:] == shape[cut:]


def _sums_once(body: Graph) -> bool:
    """Whether all sums are of f32, and none is of what another one gave."""
    summed: set[Value] = set()
    for op in body.ops:
        depends = any(v in summed for v in op.operands)
        if op.name == "reduce" and (depends or op.attrs["op"] not in ("sum", "mean") or op.result.dtype is not F32):
            return False
        if depends or op.name == "reduce":
            summed.update(op.results)
    return True


def _treats_all_alike(op: Op) -> bool:
    """Whether the op does the same for all elements of its result, as far as sizes do not matter."""
    if op.name == "constant":
        return op.result.shape == ()
    return op.definition.elementwise or op.name in ("broadcast", "reduce")


def _channel_axis(op: Op, whole: Shape) -> int | None:
    """The axis of the channels, as far as the op tells; -1 if it knows no such axis."""
    if op.name == "broadcast" and op.operands[0].ndim:
        dims = broadcast_dims(op.operands[0].ndim, op.result.shape, op.attrs["dims"])
        return dims[0] if len(dims) == 1 and op.result.shape == whole else -1
    if op.name == "reduce":
        left = set(range(len(whole))) - set(op.attrs["axes"])
        return left.pop() if len(left) == 1 and op.operands[0].shape == whole else -1
    return None


def _with_shapes(body: Graph, shapes: Mapping[Shape, Shape], axis: int, sizes: dict[str, int] | None) -> Graph:
    """The body with other shapes, in which channels are an axis of another number. `sizes` gets those of open counts;
    None: counts stay known."""
    b = Builder(body.name, body.level)
    env = {v: b.input(v.name, v.type.with_shape(shapes[v.shape])) for v in body.inputs}
    for op in body.ops:
        if sizes is not None and op.name == "constant" and (count := _count(op.attrs["value"])):
            env[op.result] = _opened_count(b, *count, sizes)
            continue
        attrs: dict[str, Any] = dict(op.attrs)
        if op.name == "broadcast":
            attrs["shape"] = shapes[op.result.shape]
            attrs["dims"] = (axis,) if op.operands[0].ndim else ()
        elif op.name == "reduce":
            rank = len(shapes[op.operands[0].shape])
            attrs["axes"] = tuple(k for k in range(rank) if k != axis)
        env.update(zip(op.results, b.emit(op.name, [env[v] for v in op.operands], attrs), strict=True))
    return b.build([env[v] for v in body.outputs])


def _count(value: np.ndarray) -> tuple[int, bool] | None:
    """(n, whether the number is 1/n), if the f32 number may tell how many elements an average is of. LLVM divides by
    powers of two faster when it knows them."""
    number = float(value) if value.dtype == np.float32 and np.isfinite(value) else 0.0
    is_part = 0 < number < 1
    n = round(1 / number if is_part else min(number, _MOST))
    if not _LEAST < n < _MOST or n & (n - 1) == 0:
        return None
    return (n, is_part) if value == (np.float32(1) / np.float32(n) if is_part else n) else None


def _opened_count(b: Builder, n: int, is_part: bool, sizes: dict[str, int]) -> Value:
    """The number that is n, or 1/n, as each call says."""
    name = f"count{sum(name.startswith('count') for name in sizes)}"
    sizes[name] = n
    number = b.constant(named(name), F32)
    return b.div(b.constant(1, F32), number) if is_part else number


# ---- what is moved


@dataclass(eq=False)
class _Atom:
    """A part of an axis that is moved as a whole."""

    size: int
    reversed: bool = False


def _moving(op: Op, target: Machine, sizes: dict[str, int]) -> Graph | None:
    """A transpose of as few axes as possible, if that is what the op is."""
    plan, (body,) = KERNEL.of(op), op.regions
    if len(body.inputs) != 1 or not body.ops or body.outputs != (body.ops[-1].result,):
        return None
    if any(op.name not in ("transpose", "reshape", "reverse") for op in body.ops):
        return None
    before = [_Atom(n) for n in body.inputs[0].shape]
    axes = [[atom] for atom in before]
    for op, v in zip(body.ops, (body.inputs[0], *(op.result for op in body.ops)), strict=False):
        if op.operands != (v,):
            return None
        if op.name == "transpose":
            axes = [axes[k] for k in op.attrs["perm"]]
        elif op.name == "reverse":
            for k in op.attrs["axes"]:
                for atom in axes[k]:
                    atom.reversed = not atom.reversed
        else:
            cut = _cut([atom for axis in axes for atom in axis], op.result.shape, before)
            if cut is None:
                return None
            axes = cut
    after = [atom for axis in axes for atom in axis if atom.size > 1]
    before = _merged([atom for atom in before if atom.size > 1], after)
    if len(before) < 2 or before == after:
        return None
    extents: dict[_Atom, Extent] = {}
    lanes, last = target.lanes(F32), before[-1]
    is_run = last is after[-1] and last.size <= _RUN
    fixed = {last} if is_run else set()
    if after[-1].size % lanes and not is_run:
        # Those that come to lie side by side have code for their very number; that of few is much faster with all sizes
        # known, and that of more by a third, which weights are too small for to show.
        if not _FEW < after[-1].size <= _RUN or prod(atom.size for atom in before) > _WEIGHTS:
            return None
        fixed = {after[-1]}
    unit = 1 if is_run and last.size % lanes == 0 else lanes
    # What lies side by side is read by whole lines where it consists of such, and written so past the caches
    # (`NestWriter._squares`), and rows are cut into pieces in blocks (`nest._in_blocks`).
    line = target.line // F32.itemsize
    wanted = {last: line}
    if isinstance(plan, Loops) and plan.streaming:
        wanted[after[-1]] = line
    if is_run and before[-2:-1] == after[-3:-2]:
        wanted = {after[-2]: BLOCK}
    for k, atom in enumerate(before):
        own = wanted.get(atom, unit)
        own = own if atom.size % own == 0 and atom.size >= LOWEST * own else unit
        extents[atom] = atom.size if atom in fixed else opened_axis(f"n{k}", atom.size, own, sizes)
    b = Builder(body.name, body.level)
    v = b.input(body.inputs[0].name, body.inputs[0].type.with_shape(tuple(extents[atom] for atom in before)))
    if turned := tuple(k for k, atom in enumerate(before) if atom.reversed):
        v = b.reverse(v, axes=turned)
    return b.build([b.transpose(v, perm=tuple(before.index(atom) for atom in after))])


def _packing(body: Graph, target: Machine, sizes: dict[str, int]) -> Graph | None:
    """Rows cut into pieces of some vectors, of which the last one lacks some, if that is what the op does."""
    blank = next((op for op in body.ops if op.name == "constant"), None)
    moves = [op for op in body.ops if op is not blank]
    if moves and moves[0].name == "reshape":
        moves = moves[1:]
    if blank is None or [op.name for op in moves] != ["pad", "reshape", "transpose"]:
        return None
    if body.outputs != moves[-1].results or len(body.inputs) != 1 or moves[0].operands[1] is not blank.result:
        return None
    (pad, cut, turn), (x,) = moves, body.inputs
    (*before, n), (*_, panels, piece), axes = pad.operands[0].shape, cut.result.shape, range(cut.result.ndim)
    lanes, rest = target.lanes(F32), n % piece
    is_last = pad.attrs["interior"] is None and not any(pad.attrs["low"]) and not any(pad.attrs["high"][:-1])
    is_cut = cut.result.shape == (*before, n // piece + 1, piece) and pad.result.shape[-1] == panels * piece
    panel = len(axes) - 2
    if not is_last or not is_cut or x.shape[-1] != n or x.dtype is not F32 or piece % lanes or rest % lanes:
        return None
    if turn.attrs["perm"] != (panel, *(k for k in axes if k != panel)):
        return None
    rows = opened_axis("n0", prod(before), BLOCK, sizes)
    columns = opened_axis("n1", n - rest, piece, sizes) + rest
    b = Builder(body.name, body.level)
    v = b.input(x.name, x.type.with_shape((rows, columns)))
    v = b.pad(v, b.constant(blank.attrs["value"]), low=(0, 0), high=(0, piece - rest))
    v = b.reshape(v, shape=(rows, (columns - rest) // piece + 1, piece))
    return b.build([b.transpose(v, perm=(1, 0, 2))])


def _cut(atoms: Sequence[_Atom], shape: Sequence[Any], before: list[_Atom]) -> list[list[_Atom]] | None:
    """The atoms as axes of these sizes. Some may have to be cut, in `before`, too; None if they cannot."""
    left, axes = list(atoms), []
    for n in shape:
        axis: list[_Atom] = []
        while (size := prod(atom.size for atom in axis)) < n:
            atom = left.pop(0)
            outer = n // size
            if atom.size > outer:
                if n % size or atom.size % outer:
                    return None
                inner = _Atom(atom.size // outer, atom.reversed)
                atom.size = outer
                left.insert(0, inner)
                before.insert(before.index(atom) + 1, inner)
            axis.append(atom)
        if size != n:
            return None
        axes.append(axis)
    return axes  # what is left has size 1


def _merged(before: list[_Atom], after: list[_Atom]) -> list[_Atom]:
    """Neighbours that stay neighbours become one, in both lists; returns the first."""
    k = 0
    while k + 1 < len(before):
        a, b = before[k : k + 2]
        at = after.index(a)
        if after[at + 1 : at + 2] == [b] and a.reversed == b.reversed:
            a.size *= b.size
            before.remove(b)
            after.remove(b)
        else:
            k += 1
    return before
