"""`calibrate_entropy`: where to cut off a histogram that is quantized to 8 bits, by the entropy that this loses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, F64, I64
from gluonjit.operators import gradients
from gluonjit.operators.attributes import integer
from gluonjit.operators.control.looping import loop
from gluonjit.operators.low_precision.quantization import require_type
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import shape_text
from gluonjit.operators.vision.boxes import both

_SMOOTHING = 1e-4
"""What an empty bin gets, at the others' expense."""


@operator(
    "_contrib_calibrate_entropy",
    inputs=("hist", "hist_edges"),
    attrs={"num_quantized_bins": integer(255, doc="how many numbers there are to quantize to, 2 or more")},
    outputs=lambda attrs: ("output0", "output1"),
    gradient=gradients.zero,
)
def calibrate_entropy(b: Emitter, hist: Any, hist_edges: Any, *, num_quantized_bins: int) -> Any:
    """The threshold that loses the least entropy when a symmetric histogram is quantized, and the divergence there

    Shapes: hist (bins,), hist_edges (bins + 1,) -> (1,), (1,)

    Every middle part of the histogram is tried: once with all that is outside counted in its outermost bins, and once
    without, merged into `num_quantized_bins` bins, whose contents go back in equal parts to the bins that were not
    empty. Of the two, both smoothed, the Kullback-Leibler divergence is taken (Migacz: 8-bit inference with TensorRT,
    2017). It is the largest float32 if nothing is left of all parts.

    >>> counts, edges = np.histogram(np.arange(-40, 41) ** 3, bins=21, range=(-64000, 64000))
    >>> found = mx.nd.contrib.calibrate_entropy(mx.nd.array(counts), mx.nd.array(edges), num_quantized_bins=5)
    >>> found[0].shape, found[1].shape
    ((1,), (1,))
    """
    require_type(hist, "the histogram of calibrate_entropy", F32)
    require_type(hist_edges, "the edges of calibrate_entropy", F32)
    bins = math.prod(hist.shape)
    if math.prod(hist_edges.shape) != bins + 1:
        raise OperatorError(f"{bins} bins have {bins + 1} edges, got hist_edges {shape_text(hist_edges.shape)}")
    middle, least = bins // 2, num_quantized_bins // 2
    if not 1 <= least <= middle:
        raise OperatorError(f"num_quantized_bins must be from 2 to {2 * middle + 1} with {bins} bins")
    # A histogram of an even number of bins has an empty one at its end.
    n = 2 * middle + 1
    counts = b.pad(b.reshape(b.cast(hist, dtype=F64), shape=(bins,)), b.constant(0, F64), low=(0,), high=(n - bins,))
    whole = b.floor(counts)
    zero = b.constant(0, I64)

    def sums(x: Any) -> Any:
        """f64[n + 1]: element k is the sum of those before k."""
        return b.pad(b.cumsum(x, axis=0), b.constant(0, F64), low=(1,), high=(0,))

    filled = b.cast(b.ne(whole, b.constant(0, F64)), dtype=F64)
    captured = [counts, sums(counts), sums(whole), sums(filled), b.iota(shape=(n,), axis=0, dtype=I64)]

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        best, at = state
        counts, below, whole, filled, place = captured
        half = index + least
        start, stop = middle - half, half + (middle + 1)
        last = stop - 1
        nothing, all_bins = b.constant(0, F64), b.constant(num_quantized_bins, I64)

        def at_place(table: Any, where: Any) -> Any:
            return b.gather(table, where, axis=0)

        # All that is outside goes to the outermost bins.
        inside = both(b, place >= start, place <= last)
        first_bin, last_bin = (
            at_place(below, start + 1),
            at_place(below, b.constant(n, I64)) - at_place(below, last),
        )
        p = b.select(b.eq(place, start), first_bin, b.select(b.eq(place, last), last_bin, counts))
        p = b.select(inside, p, nothing)

        # The first bin itself is left out of what is merged, as MXNet does.
        width = b.div(stop - start, all_bins)
        group = b.div(b.maximum(place - start, b.constant(0, I64)), width)
        group = b.minimum(group, b.constant(num_quantized_bins - 1, I64))
        begin = start + group * width
        final = b.eq(group, b.constant(num_quantized_bins - 1, I64))
        end = b.select(final, stop, b.minimum(begin + width, stop))
        begin = b.maximum(begin, start + 1)
        content, number = (at_place(t, end) - at_place(t, b.minimum(begin, end)) for t in (whole, filled))
        given = both(b, inside, b.ne(p, nothing), number > nothing)
        q = b.select(given, content / b.maximum(number, b.constant(1, F64)), nothing)

        (p, p_is_fine), (q, q_is_fine) = (_smoothed(b, x, inside) for x in (p, q))
        parts = b.select(inside, p * (b.log(p) - b.log(q)), nothing)
        divergence = b.reduce(parts, op="sum", axes=(0,))
        better = both(b, both(b, p_is_fine, q_is_fine), divergence < best)
        return [b.select(better, divergence, best), b.select(better, index, at)], []

    most = b.constant(float(np.finfo(np.float32).max), F64)
    (best, at), _ = loop(b, body, [most, zero], [], captured, trip=middle + 1 - least)
    place = b.minimum(at + (middle + least + 1), b.constant(bins, I64))
    threshold = b.gather(b.reshape(hist_edges, shape=(bins + 1,)), b.reshape(place, shape=(1,)), axis=0)
    return threshold, b.reshape(b.cast(best, dtype=F32), shape=(1,))


def _smoothed(b: Emitter, x: Any, inside: Any) -> tuple[Any, Any]:
    """The bins of x that are `inside`, as a distribution without empty ones (the others are 1), and whether what these
    get can be taken from the rest."""
    nothing = b.constant(0, F64)
    empty = both(b, inside, b.eq(x, nothing))
    others = both(b, inside, b.ne(x, nothing))
    zeros, rest = (b.reduce(b.cast(v, dtype=F64), op="sum", axes=(0,)) for v in (empty, others))
    taken = _SMOOTHING * zeros / b.maximum(rest, b.constant(1, F64))
    fine = both(b, rest > nothing, taken < 1)
    x = b.select(inside, b.select(empty, b.constant(_SMOOTHING, F64), x - taken), nothing)
    total = b.reduce(x, op="sum", axes=(0,))
    return b.select(inside, x / b.select(fine, total, b.constant(1, F64)), b.constant(1, F64)), fine
