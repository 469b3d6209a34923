"""`CTCLoss`: the loss of connectionist temporal classification (Graves et al. 2006), and `WarpCTC`.

The states are the labels with a blank before, between and after them (2 L + 1 states). `alpha[s]` is the logarithm of
the probability of all paths up to a time step that end in state s. A path stays in its state, moves to the next one, or
skips a blank between different labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I32, I64, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, enum, integer
from gluonjit.operators.control.looping import loop
from gluonjit.operators.layers.softmax import log_softmax_over, softmax_over
from gluonjit.operators.movement.indexing import as_index
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import narrowed, require_float, require_shape, scalar, shape_text, widened
from gluonjit.operators.vision.boxes import both


def _inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    names = ["data", "label"]
    names += [name for name in ("data_lengths", "label_lengths") if attrs[f"use_{name}"]]
    return tuple(names)


@operator(
    "CTCLoss",
    aliases=("ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss"),
    inputs=_inputs,
    attrs={
        "use_data_lengths": boolean(False, doc="whether there is an input `data_lengths`"),
        "use_label_lengths": boolean(False, doc="otherwise labels end at the first padding"),
        "blank_label": enum(("first", "last"), "first", doc="first: padding is 0; last: padding is -1"),
    },
    outputs=lambda attrs: ("output0", "output1"),
    visible=lambda attrs: 1,
)
def ctc_loss(
    b: Emitter,
    data: Any,
    label: Any,
    data_lengths: Any = None,
    label_lengths: Any = None,
    *,
    use_data_lengths: bool,
    use_label_lengths: bool,
    blank_label: str,
) -> Any:
    """The CTC loss: minus the log probability of each label sequence, summed over its alignments with the data

    Shapes: data (time, batch, alphabet), label (batch, length), data_lengths and label_lengths (batch,) -> (batch,)

    Data are scores before softmax. By Graves et al., 2006. The loss is 0 where the data are too short for any
    alignment. MXNetError if a label sequence has more places than the data have steps.

    >>> scores = mx.nd.zeros((1, 1, 4))  # one step, four symbols alike: the loss is log 4
    >>> mx.nd.CTCLoss(scores, mx.nd.array([[2]])).asnumpy().round(3)
    array([1.386], dtype=float32)
    """
    if use_label_lengths and not use_data_lengths:
        data_lengths, label_lengths = None, data_lengths
    own = require_float(data)
    _check_shapes(data, label)
    time, batch, alphabet = data.shape
    length = label.shape[1]
    labels = b.cast(as_index(b, label), dtype=I32)
    blank = 0 if blank_label == "first" else alphabet - 1
    ends = _label_ends(b, labels, label_lengths, 0 if blank_label == "first" else -1)
    steps = None
    if data_lengths is not None:
        require_shape(data_lengths, (batch,), "data_lengths")
        steps = b.reshape(b.cast(as_index(b, data_lengths), dtype=I64), shape=(batch, 1))
        # Nobody reads the steps after the end; a NaN in them would make the gradient 0 · NaN.
        step = b.iota(shape=(time, 1, 1), axis=0, dtype=I64)
        data = b.select(step < b.reshape(steps, shape=(1, batch, 1)), data, scalar(b, 0, own))

    states = 2 * length + 1
    symbols = _interleaved(b, labels, blank)
    scores = _scores_of_states(b, data, symbols)
    wide = dtype_of(scores)
    begin = b.iota(shape=(1, states), axis=1, dtype=I64)
    least = scalar(b, -math.inf, wide)
    first = b.select(b.eq(begin, b.constant(0, I64)), scalar(b, 0, wide), least)
    first = b.broadcast(first, shape=(batch, states))
    jumps = _jumps(b, symbols)

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        (alpha,), (score,) = state, items
        least = scalar(b, -math.inf, wide)
        ways = [alpha, _shifted(b, alpha, 1, least)]
        ways.append(b.select(captured[0], _shifted(b, alpha, 2, least), least))
        new = _log_sum(b, ways) + score
        if len(captured) > 1:
            new = b.select(index < captured[1], new, alpha)
        return [new], []

    captured = [jumps] if steps is None else [jumps, steps]
    (alpha,), _ = loop(b, body, [first], [scores], captured, trip=time)
    # A path ends in the last label or in the blank after it.
    last = b.reshape(ends, shape=(batch, 1)) * 2
    ending = b.eq(begin, last) | b.eq(begin, last - 1)
    loss = -_log_total(b, b.select(ending, alpha, least))
    available = b.constant(time, I64) if steps is None else b.reshape(steps, shape=(batch,))
    fits = _steps_needed(b, labels, ends) <= available
    return narrowed(b, b.select(fits, loss, scalar(b, 0, wide)), own)


def _check_shapes(data: Any, label: Any) -> None:
    if len(data.shape) != 3 or len(label.shape) != 2:
        raise OperatorError(
            "CTCLoss takes data (time, batch, alphabet) and label (batch, length), got "
            f"{shape_text(data.shape)} and {shape_text(label.shape)}"
        )
    time, batch, alphabet = data.shape
    length = label.shape[1]
    require_shape(label, (batch, length), "label")
    if alphabet < 1 or time < length:
        raise OperatorError(
            "The max number of labels cannot exceed the maximum sequence length of the data, nor may the alphabet be "
            f"empty: data {shape_text(data.shape)}, label {shape_text(label.shape)}"
        )


def _scores_of_states(b: Emitter, data: Any, symbols: Any) -> Any:
    """The log probabilities of the symbols at each step: (time, batch, states)."""
    batch, states = symbols.shape
    x = log_softmax_over(b, widened(b, data), 2)
    # With the alphabet as first axis, the scores of a state are rows.
    entry = b.broadcast(b.iota(shape=(batch, 1), axis=0, dtype=I32), shape=(batch, states))
    index = b.concat(*(b.reshape(v, shape=(1, batch, states)) for v in (entry, symbols)), axis=0)
    return b.transpose(b.gather_nd(b.transpose(x, perm=(1, 2, 0)), index), perm=(2, 0, 1))


def _steps_needed(b: Emitter, labels: Any, ends: Any) -> Any:
    """The fewest time steps: one per label, and one per blank between two equal labels; i64 (batch,)."""
    batch, length = labels.shape
    if length < 2:
        return ends
    before, after = (b.slice(labels, start=(0, k), size=(batch, length - 1)) for k in (0, 1))
    position = b.iota(shape=(1, length - 1), axis=1, dtype=I64)
    within = position + 1 < b.reshape(ends, shape=(batch, 1))
    repeats = b.cast(both(b, within, b.eq(before, after)), dtype=I64)
    return ends + b.reduce(repeats, op="sum", axes=(1,))


def _label_ends(b: Emitter, labels: Any, given: Any, padding: int) -> Any:
    """The number of labels of each sequence: i64 (batch,)."""
    batch, length = labels.shape
    if given is not None:
        require_shape(given, (batch,), "label_lengths")
        return b.minimum(b.cast(as_index(b, given), dtype=I64), b.constant(length, I64))
    ended = b.cast(b.eq(labels, b.constant(padding, I32)), dtype=I64)
    going = b.eq(b.cumsum(ended, axis=1), b.constant(0, I64))
    return b.reduce(b.cast(going, dtype=I64), op="sum", axes=(1,))


def _interleaved(b: Emitter, labels: Any, blank: int) -> Any:
    """The labels with blanks before, between and after them."""
    filler = b.constant(blank, I32)
    if labels.shape[1] == 0:
        return b.broadcast(filler, shape=(labels.shape[0], 1))
    return b.pad(labels, filler, low=(0, 1), high=(0, 1), interior=(0, 1))


def _jumps(b: Emitter, symbols: Any) -> Any:
    """The states that can be reached by skipping a blank: labels that differ from the previous label."""
    batch, states = symbols.shape
    position = b.iota(shape=(1, states), axis=1, dtype=I64)
    odd = b.eq(b.mod(position, b.constant(2, I64)), b.constant(1, I64))
    return both(b, odd, b.ne(symbols, _shifted(b, symbols, 2, b.constant(-1, I32))))


def _shifted(b: Emitter, x: Any, by: int, filler: Any) -> Any:
    """x shifted right along axis 1, with `filler` in front."""
    batch, n = x.shape
    by = min(by, n)
    rest = b.slice(x, start=(0, 0), size=(batch, n - by))
    return b.pad(rest, filler, low=(0, by), high=(0, 0))


def _log_sum(b: Emitter, values: list[Any]) -> Any:
    """log(exp(x) + exp(y) + …); minus infinity if all are minus infinity."""
    peak = values[0]
    for v in values[1:]:
        peak = b.maximum(peak, v)
    none, base = _base(b, peak)
    total = None
    for v in values:
        power = b.exp(v - base)
        total = power if total is None else total + power
    return _log(b, total, none, base)


def _log_total(b: Emitter, x: Any) -> Any:
    """`_log_sum` along axis 1 of a matrix."""
    batch = x.shape[0]
    none, base = _base(b, b.reduce(x, op="max", axes=(1,)))
    powers = b.exp(x - b.reshape(base, shape=(batch, 1)))
    return _log(b, b.reduce(powers, op="sum", axes=(1,)), none, base)


def _base(b: Emitter, peak: Any) -> tuple[Any, Any]:
    """Where there is no path at all; and what to subtract before exp, which is finite there, too."""
    wide = dtype_of(peak)
    none = b.eq(peak, scalar(b, -math.inf, wide))
    return none, b.select(none, scalar(b, 0, wide), peak)


def _log(b: Emitter, total: Any, none: Any, base: Any) -> Any:
    """log(total) + base, minus infinity where there is no path. No log of 0 is taken: its gradient would be 0 · inf."""
    wide = dtype_of(base)
    found = b.log(b.select(none, scalar(b, 1, wide), total)) + base
    return b.select(none, scalar(b, -math.inf, wide), found)


@operator(
    "WarpCTC",
    inputs=("data", "label"),
    attrs={"label_length": integer(0, doc="used by the gradient"), "input_length": integer(0, doc="has no effect")},
    gradient=gradients.refused,
)
def warp_ctc(b: Emitter, data: Any, label: Any, *, label_length: int, input_length: int) -> Any:
    """The softmax of the data (time * batch, alphabet); its gradient is that of the CTC loss

    Shapes: data (time * batch, alphabet), label (batch * label_length,) -> data's shape

    >>> mx.nd.WarpCTC(mx.nd.zeros((1, 4)), mx.nd.array([2]), label_length=1, input_length=1).asnumpy()
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    own = require_float(data)
    if len(data.shape) < 2:
        raise OperatorError(f"WarpCTC takes data (time * batch, alphabet), got {shape_text(data.shape)}")
    x = b.reshape(widened(b, data), shape=(data.shape[0], math.prod(data.shape[1:])))
    return narrowed(b, b.reshape(softmax_over(b, x, 1), shape=tuple(data.shape)), own)
