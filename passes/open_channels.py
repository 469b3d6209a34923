"""Which convolutions there are only loops for: those whose channels are open."""

from __future__ import annotations

from gluonjit.ir.dims import is_static
from gluonjit.ir.graph import Graph, Op
from gluonjit.passes.layout import is_weight_gradient


def has_open_channels(graph: Graph) -> bool:
    """Whether a convolution, or a gradient of one, leaves channels or taps open, for which there are loops alone: some
    thirty times slower than a kernel. `graph` is of level `expanded` or `legal`."""
    return any(_has_open_channels(op) or any(map(has_open_channels, op.regions)) for op in graph.ops)


def _has_open_channels(op: Op) -> bool:
    if op.name != "conv":
        return False
    of_x, _, of_y = op.attrs["layout"]
    if of_x.startswith("CN") and is_weight_gradient(op):  # pixels are its terms, and may be open
        return not is_static(op.result.shape)
    x, w = op.operands
    return not is_static((*w.shape, x.shape[of_x.index("C")], op.result.shape[of_y.index("C")]))
