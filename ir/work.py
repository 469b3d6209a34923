"""What an op of a planned graph is there for: its arithmetic, the bytes that it moves, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import gcd, prod
from typing import Any

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.buffers import is_view
from gluonjit.ir.dims import Extent, Shape, is_static, most
from gluonjit.ir.graph import Loc, Op
from gluonjit.ir.primitives.convolution_layout import Layout

PRODUCTS = ("dot_general", "conv", "depthwise_gradient")
"""The ops that `multiply_adds` counts."""


def flops(op: Op) -> Extent:
    """Floating-point operations by the definition of what the op computes; a kernel may get by with fewer (Winograd).

    A multiply-add counts as two, any other function of an element as one; moving and integers count as none.
    """
    if op.definition.level == "control":
        inside = [sum(flops(o) for o in region.ops) for region in op.regions]
        return op.attrs["trip"] * sum(inside) if op.name == "loop" else most(inside)
    if op.name == "prepare":
        return 0
    if op.regions:
        return sum(_flops(o) for o in own_ops(op))
    return _flops(op)


def own_ops(op: Op) -> Iterator[Op]:
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
    if op.name in PRODUCTS:
        return 2 * multiply_adds(op)
    if op.name in ("reduce", "arg_reduce"):
        return op.operands[0].size
    if op.name == "reduce_window":
        return op.results[0].size * prod(op.attrs["window"])
    return op.results[0].size


def multiply_adds(op: Op) -> Extent:
    """Those of a matrix product, a convolution or a gradient of one: terms that exist. Taps on padding, and between the
    elements of a dilated input, are none, as no kernel computes them."""
    if op.name == "dot_general":
        return op.result.size * prod(op.operands[0].shape[k] for k in op.attrs["contract"][0])
    a, (x, w) = op.attrs, op.operands
    if op.name == "depthwise_gradient":
        spatial = range(1, x.ndim - 1)
        sizes, taps, outs = (tuple(v[k] for k in spatial) for v in (x.shape, (1, *a["taps"]), w.shape))
        return w.shape[0] * w.shape[-1] * _terms(sizes, outs, taps, a)
    axes = Layout.parse(tuple(a["layout"]))
    of = zip((x, w, op.result), axes, strict=True)
    sizes, taps, outs = (tuple(v.shape[k] for k in places[2:]) for v, places in of)
    batch, filters = (op.result.shape[k] for k in axes.result[:2])
    return batch * filters * w.shape[axes.weight[1]] * _terms(sizes, outs, taps, a)


def _terms(sizes: Shape, outs: Shape, taps: Shape, a: Mapping[str, Any]) -> Extent:
    """Terms of a window of `taps` elements at `outs` places of an image of `sizes`, for one channel."""
    none, ones = (0,) * len(sizes), (1,) * len(sizes)
    total: Extent = 1
    for size, out, n, stride, low, dilation, inner, *blank in zip(
        sizes,
        outs,
        taps,
        *(a[key] for key in ("stride", "low", "dilation")),
        a.get("input_dilation") or ones,
        a.get("blank_low") or none,
        a.get("blank_high") or none,
        strict=True,
    ):
        if is_static((size, out, n)):
            first, last = (max(k, 0) for k in blank)  # zeros at either end that are written out
            total = total * taps_inside(size - first - last, out, n, low + first, stride, dilation, inner)
        else:
            total = total * out * n // inner
    return total


@lru_cache(1024)
def taps_inside(
    size: int, out: int, taps: int, low: int, stride: int = 1, dilation: int = 1, input_dilation: int = 1
) -> int:
    """How many pairs (output position o, tap t) along an axis read one of its `size` elements: those where
    o·stride + t·dilation - low is a multiple of `input_dilation` and inside.

    Only the shorter of outputs and taps is walked along, since a program may ask for padding of any width."""
    if taps > out:
        out, taps, stride, dilation = taps, out, dilation, stride
    common = gcd(stride, input_dilation)
    step = input_dilation // common  # between outputs that read an element
    count = 0
    for at in range(-low, taps * dilation - low, dilation):  # where the first output's tap reads
        if at % common:
            continue
        first = -at // common * pow(stride // common, -1, step) % step
        begin = max(0, -(at // stride))
        end = max(begin, min(out, ((size - 1) * input_dilation - at) // stride + 1))
        count += (end - first + step - 1) // step - (begin - first + step - 1) // step
    return count


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
        products = [o for o in own_ops(op) if o.definition.accumulates == "contraction" and o.loc is not None]
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
