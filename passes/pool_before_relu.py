"""`pool-before-relu`: of a ReLU and a pooling of maxima behind it, the pooling comes first.

    max over a window of max(x, 0)  =  max(max over the window of x, 0)

Both orders give the same bits, but for the sign of a zero, and the same gradient: where an element is the largest of
its window, it is positive if the maximum is. So the gradient's mask is one of the few maxima, which are kept anyway,
rather than of all elements in front of the pooling; and it is applied to as few. For graphs that are differentiated:
else a ReLU costs nothing in the kernel in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.ir.dims import Shape, is_static
from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.passes.dce import dce
from gluonjit.passes.manager import register_pass

_RELU = ("constant", "broadcast", "maximum")
_SLOPE = ("constant", "broadcast", "gt", "broadcast", "select")
"""The primitives of a ReLU, and of its gradient: zeros where its result is not positive."""


@register_pass("pool-before-relu", needs="legal")
def pool_before_relu(graph: Graph) -> Graph:
    """Maxima of windows before the ReLU of what they are taken of."""

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.name != "reduce_window" or op.attrs["op"] != "max" or not _drops_elements(op):
            return None
        relu, made = graph.producers.get(op.operands[0]), b.producer(operands[0])
        if relu is None or made is None or not _is_relu(relu) or not _is_relu(made):
            return None
        if len(graph.uses[relu.result]) != 1 or relu.result in graph.results:
            return None
        y = b.reduce_window(made.operands[0], **op.attrs)
        return b.emit(made.name, [y], made.attrs, [_of_shape(r, y.shape) for r in made.regions], made.loc)

    changed = rewrite(graph, rule, only_with=lambda op: op.name == "reduce_window")
    return changed if changed is graph else dce(changed)


def _is_relu(op: Op) -> bool:
    if op.name != "with_gradient" or len(op.operands) != 1 or len(op.results) != 1:
        return False
    value, slope = op.regions
    if tuple(o.name for o in value.ops) != _RELU or tuple(o.name for o in slope.ops) != _SLOPE:
        return False
    zeros = [o for region in op.regions for o in region.ops if o.name == "constant"]
    (_, y, g), above, chosen = slope.inputs, slope.ops[2], slope.ops[4]
    return (
        all(zero.result.size == 1 and not zero.attrs["value"].any() for zero in zeros)
        and value.inputs[0] in value.ops[2].operands
        and above.operands == (y, slope.ops[1].result)
        and chosen.operands == (above.result, g, slope.ops[3].result)
    )


def _of_shape(region: Graph, shape: Shape) -> Graph:
    """An elementwise region for operands of another shape."""
    b = Builder(region.name, region.level)
    env = {v: b.input(v.name, v.type.with_shape(shape)) for v in region.inputs}
    for op in region.ops:
        attrs = {**op.attrs, "shape": shape} if op.name == "broadcast" else op.attrs
        env.update(zip(op.results, b.emit(op.name, [env[v] for v in op.operands], attrs, (), op.loc), strict=True))
    return b.build([env[v] for v in region.outputs])


def _drops_elements(pool: Op) -> bool:
    """Whether it leaves fewer elements, and each window has one, rather than padding alone."""
    x, y, a = pool.operands[0], pool.result, pool.attrs
    if not x.dtype.is_float or not is_static((*x.shape[1:], *y.shape[1:])) or any(k != 1 for k in a["dilation"] or ()):
        return False
    axes = zip(x.shape[1:], y.shape[1:], *(a[key][1:] for key in ("window", "stride", "low")), strict=True)
    inside = all(low < taps and (out - 1) * step - low < n for n, out, taps, step, low in axes)
    return inside and a["window"][0] == 1 and y.size != x.size
