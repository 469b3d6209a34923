"""`hawkesll`: the log likelihood of Hawkes processes (Bacry, Mastromatteo, Muzy: Hawkes processes in finance, 2015).

Process k has the intensity λ(t) = μ + α Σ β exp(−β (t − t')), over its points t' before t. Its memory s, the sum of the
exponentials alone, decays by exp(−β d) in a time d, and grows by 1 at a point. So the logarithm of λ at each point, and
the integral of λ between two points of a process, μ d + α s (1 − exp(−β d)), follow from the memory at the former.
"""

from __future__ import annotations

from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I32, dtype_of
from gluonjit.operators.control.looping import loop
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import (
    narrowed,
    require_float,
    require_shape,
    scalar,
    shape_text,
    type_name,
    widened,
)
from gluonjit.operators.vision.boxes import both


def _checked(
    lda: Any, alpha: Any, beta: Any, state: Any, lags: Any, marks: Any, valid_length: Any, max_time: Any
) -> Any:
    """The element type. OperatorError unless shapes and types fit together."""
    own = require_float(lda)
    if len(lda.shape) != 2 or len(lags.shape) != 2:
        raise OperatorError(
            "hawkesll takes lda (batch, processes) and lags (batch, points), got "
            f"{shape_text(lda.shape)} and {shape_text(lags.shape)}"
        )
    batch, count = lda.shape
    for x, shape, what in (
        (alpha, (count,), "alpha"),
        (beta, (count,), "beta"),
        (state, (batch, count), "state"),
        (lags, (batch, lags.shape[1]), "lags"),
        (marks, tuple(lags.shape), "marks"),
        (valid_length, (batch,), "valid_length"),
        (max_time, (batch,), "max_time"),
    ):
        require_shape(x, shape, what)
        wanted = I32 if what == "marks" else own
        if dtype_of(x) is not wanted:
            raise OperatorError(f"{what} of hawkesll must be {type_name(wanted)}, got {type_name(dtype_of(x))}")
    return own


def _points(
    b: Emitter, lda: Any, alpha: Any, beta: Any, state: Any, lags: Any, marks: Any, valid: Any, slopes: bool
) -> Any:
    """Goes through the points. All results are (batch, processes): log likelihood, memory and time after the last
    point of each process; with `slopes`, also the likelihood's derivatives by lda, alpha and beta, and the memory's by
    beta."""
    batch, count = lda.shape
    dtype = dtype_of(lda)
    zeros = b.broadcast(scalar(b, 0, dtype), shape=(batch, count))
    steps, process = b.transpose(lags, perm=(1, 0)), b.iota(shape=(1, count), axis=1, dtype=I32)

    def body(b: Emitter, index: Any, carried: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        time, likelihood, memory, last, *more = carried
        lag, mark = (b.reshape(x, shape=(batch, 1)) for x in items)
        lda, alpha, beta, valid, process = captured
        one = scalar(b, 1, dtype)
        time = time + lag
        here = both(b, b.cast(index, dtype=dtype) < valid, b.eq(mark, process))
        gap = time - last
        decay = b.exp(-(beta * gap))
        kept = memory * decay
        intensity = lda + alpha * beta * kept
        integral = lda * gap + alpha * (memory - kept)
        # Elsewhere the intensity is not that of a point: no logarithm of what may be 0.
        intensity = b.select(here, intensity, one)
        new = [
            likelihood + (b.log(intensity) - integral),
            one + kept,
            b.broadcast(time, shape=(batch, count)),
        ]
        if slopes:
            by_lda, by_alpha, by_beta, drift = more
            kept_drift = decay * (drift - gap * memory)
            new.append(by_lda + (one / intensity - gap))
            grown = beta * kept / intensity
            new.append(by_alpha + (grown - (memory - kept)))
            grown = (kept + beta * kept_drift) / intensity
            new.append(by_beta + alpha * (grown - (drift - kept_drift)))
            new.append(kept_drift)
        return [time, *(b.select(here, x, old) for x, old in zip(new, carried[1:]))], []

    start = [b.broadcast(scalar(b, 0, dtype), shape=(batch, 1)), zeros, state, zeros, *[zeros] * (4 if slopes else 0)]
    captured = [lda, alpha, beta, b.reshape(valid, shape=(batch, 1)), process]
    marks = b.transpose(marks, perm=(1, 0))
    (_, *found), _ = loop(b, body, start, [steps, marks], captured, trip=lags.shape[1])
    return found


def _prepared(b: Emitter, lda: Any, alpha: Any, beta: Any, *others: Any) -> list[Any]:
    rows = [b.reshape(x, shape=(1, lda.shape[1])) for x in (alpha, beta)]
    return [widened(b, x) for x in (lda, *rows, *others)]


def _gradient(b: Emitter, g: Any, y: Any, x: Any) -> Any:
    """The gradient of the log likelihood alone by lda, alpha and beta alone, as in MXNet."""
    own = dtype_of(x[0])
    marks = x[5]
    lda, alpha, beta, state, lags, valid, end = _prepared(b, *x[:5], *x[6:])
    _, memory, last, by_lda, by_alpha, by_beta, drift = _points(b, lda, alpha, beta, state, lags, marks, valid, True)
    batch, count = lda.shape
    gap = b.reshape(end, shape=(batch, 1)) - last
    decay = b.exp(-(beta * gap))
    kept = memory * decay
    kept_drift = decay * (drift - gap * memory)
    head = b.reshape(widened(b, g[0]), shape=(batch, 1))
    by_lda = head * (by_lda - gap)
    by_alpha = head * (by_alpha - (memory - kept))
    by_beta = head * (by_beta - alpha * (drift - kept_drift))
    sums = (b.reduce(v, op="sum", axes=(0,)) for v in (by_alpha, by_beta))
    return (*(narrowed(b, v, own) for v in (by_lda, *sums)), None, None, None, None, None)


@operator(
    "_contrib_hawkesll",
    inputs=("lda", "alpha", "beta", "state", "lags", "marks", "valid_length", "max_time"),
    outputs=lambda attrs: ("output0", "output1"),
    gradient=_gradient,
)
def hawkesll(
    b: Emitter, lda: Any, alpha: Any, beta: Any, state: Any, lags: Any, marks: Any, valid_length: Any, max_time: Any
) -> Any:
    """The log likelihood of points of several Hawkes processes, and the processes' memory at the end

    Shapes: lda and state (batch, processes), alpha and beta (processes,), lags and marks (batch, points), valid_length
    and max_time (batch,) -> (batch,), (batch, processes)

    `lda` are the background intensities, `alpha` the branching ratios, `beta` the rates of decay. `lags` are the times
    since the point before, `marks` (int32) the processes that points belong to; the first `valid_length` points count.
    `state` is the memory at time 0, Σ exp(−beta t) over the times t since earlier points; `max_time` is the end. As in
    MXNet, gradients flow from the log likelihood to `lda`, `alpha` and `beta` alone. Bacry et al., 2015.

    >>> intensity, none = mx.nd.array([[2]]), mx.nd.zeros((1, 1))  # no point in a time of 3: −2 · 3
    >>> points = none, mx.nd.zeros((1, 1), dtype="int32"), mx.nd.array([0]), mx.nd.array([3])
    >>> mx.nd.contrib.hawkesll(intensity, mx.nd.array([0.5]), mx.nd.array([1]), none, *points)[0].asnumpy()
    array([-6.], dtype=float32)
    """
    own = _checked(lda, alpha, beta, state, lags, marks, valid_length, max_time)
    mu, alpha, beta, state, lags, valid, end = _prepared(b, lda, alpha, beta, state, lags, valid_length, max_time)
    likelihood, memory, last = _points(b, mu, alpha, beta, state, lags, marks, valid, False)
    gap = b.reshape(end, shape=(mu.shape[0], 1)) - last
    kept = memory * b.exp(-(beta * gap))
    rest = mu * gap + alpha * (memory - kept)
    total = b.reduce(likelihood - rest, op="sum", axes=(1,))
    return narrowed(b, total, own), narrowed(b, kept, own)
