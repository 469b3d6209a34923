"""What an op of a planned graph is there for: its arithmetic, the bytes that it moves, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.buffers import is_view
from gluonjit.ir.dims import Extent, most
from gluonjit.ir.graph import Loc, Op


def flops(op: Op) -> Extent:
    """Floating-point operations by the definition of what the op computes; a kernel may get by with fewer (Winograd).

    A multiply-add counts as two, any other function of an element as one; moving and integers count as none, nor do the
    zeros between the elements of a dilated input.
    """
    if op.definition.level == "control":
        inside = [sum(flops(o) for o in region.ops) for region in op.regions]
        return op.attrs["trip"] * sum(inside) if op.name == "loop" else most(inside)
    if op.name == "prepare":
        return 0
    if op.regions:
        return sum(_flops(o) for o in _own(op))
    return _flops(op)


def _own(op: Op) -> Iterator[Op]:
    """The ops in the body of a fused op, but for products that only undo the transform of its weights."""
    body = op.regions[0].ops
    products = [o for o in body if o.definition.accumulates == "contraction"]
    plan = KERNEL.of(op)
    restoring = products[:-1] if plan is not None and plan.restores_weights else []
    for o in body:
        if o not in restoring:
            yield o


def _flops(op: Op) -> Extent:
    if not op.results or not op.results[0].dtype.is_float or op.definition.moves or op.name == "constant":
        return 0
    if op.name == "dot_general":
        return 2 * op.result.size * prod(op.operands[0].shape[k] for k in op.attrs["contract"][0])
    if op.name == "conv":
        filters = op.attrs["layout"][1].index("O")
        taps = op.operands[1].size // max(op.operands[1].shape[filters], 1)
        return 2 * op.result.size * taps // prod(op.attrs["input_dilation"])
    if op.name == "depthwise_gradient":
        return 2 * op.operands[1].size * prod(op.attrs["taps"])
    if op.name in ("reduce", "arg_reduce"):
        return op.operands[0].size
    if op.name == "reduce_window":
        return op.results[0].size * prod(op.attrs["window"])
    return op.results[0].size


def bytes_read(op: Op) -> Extent:
    """Bytes of its operands, as far as it reads them: a part counts where that is all it takes."""
    if not op.regions:
        return sum(v.type.nbytes for v in op.operands)
    total: Extent = 0
    body = op.regions[0]
    for v in body.inputs:
        users = body.uses.get(v, ())
        read = v.type.nbytes
        if all(o.definition.moves for o in users):  # a slice, a few rows of a table
            read = min(read, sum(o.results[0].type.nbytes for o in users))
        total += read
    return total


def bytes_moved(op: Op) -> Extent:
    """Bytes of operands and results, each counted once, as if everything between them stayed in registers. Those of a
    loop are what its iterations move."""
    if op.definition.level == "control":
        inside = [sum(bytes_moved(o) for o in region.ops) for region in op.regions]
        return op.attrs["trip"] * sum(inside) if op.name == "loop" else most(inside)
    if op.name in ("constant", "prepare") or is_view(op):
        return 0
    return sum((v.type.nbytes for v in op.results), bytes_read(op))


def origin(op: Op) -> Loc | None:
    """Where the main part of an op comes from: of a fused one, the product or convolution with the most arithmetic, as
    its last op may be no more than the next layer's ReLU."""
    if op.regions and op.definition.level != "control":
        products = [o for o in _own(op) if o.definition.accumulates == "contraction" and o.loc is not None]
        if products:
            sizes = [flops(o) for o in products]
            known = [n if isinstance(n, int) else 0 for n in sizes]
            return products[known.index(max(known))].loc
    return op.loc


def origins(op: Op) -> tuple[Loc, ...]:
    """Where all parts of an op come from, the main one first."""
    return tuple(dict.fromkeys(loc for loc in (origin(op), op.loc, *_inside(op)) if loc is not None))


def _inside(op: Op) -> Iterator[Loc | None]:
    for region in op.regions:
        for o in region.ops:
            yield o.loc
            yield from _inside(o)
