"""`RNN`: layers of recurrent cells over whole sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I32, dtype_of
from gluonjit.operators.attributes import boolean, enum, integer, number, optional
from gluonjit.operators.control.looping import loop
from gluonjit.operators.layers.dropout import dropout
from gluonjit.operators.movement.indexing import as_index
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    Shapes,
    merge,
    narrowed,
    require_float,
    require_same_dtype,
    require_shape,
    shape_text,
    widened,
)

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}


def _inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    names = ["data", "parameters", "state"]
    if attrs["mode"] == "lstm":
        names.append("state_cell")
    if attrs["use_sequence_length"]:
        names.append("sequence_length")
    return tuple(names)


def _outputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    if not attrs["state_outputs"]:
        return ("output",)
    return ("output", "state_output", "statecell_output") if attrs["mode"] == "lstm" else ("output", "state_output")


class _Sizes(NamedTuple):
    """Sizes that follow from the attributes. `hidden` is the size of a cell's state, `out` that of a layer's output."""

    gates: int
    layers: int
    directions: int
    hidden: int
    out: int
    projected: bool

    @staticmethod
    def of(attrs: Mapping[str, Any]) -> _Sizes:
        hidden, projection = attrs["state_size"], attrs["projection_size"]
        return _Sizes(
            _GATES[attrs["mode"]],
            attrs["num_layers"],
            2 if attrs["bidirectional"] else 1,
            hidden,
            projection or hidden,
            bool(projection),
        )

    def layout(self, inputs: int) -> list[dict[str, Shape]]:
        """The shapes of the weights of each layer and direction, by name, in the order in which they are stored."""
        rows = self.gates * self.hidden
        cells = []
        for layer in range(self.layers):
            columns = inputs if layer == 0 else self.out * self.directions
            weights: dict[str, Shape] = {"i2h": (rows, columns), "h2h": (rows, self.out)}
            if self.projected:
                weights["h2r"] = (self.out, self.hidden)
            cells += [weights] * self.directions
        return cells

    def parameters(self, inputs: int) -> int:
        """Length of the parameter vector."""
        weights = sum(m * n for cell in self.layout(inputs) for m, n in cell.values())
        return weights + self.layers * self.directions * 2 * self.gates * self.hidden


def _complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    data, *rest = shapes
    if data is None or len(data) != 3:
        return shapes
    sizes = _Sizes.of(attrs)
    cells = sizes.layers * sizes.directions
    wanted: list[Shape] = [(sizes.parameters(data[2]) if data[2] else 0,), (cells, data[1], sizes.out)]
    if attrs["mode"] == "lstm":
        wanted.append((cells, data[1], sizes.hidden))
    if attrs["use_sequence_length"]:
        wanted.append((data[1],))
    return [data, *(merge(s, w) for s, w in zip(rest, wanted))]


def _infer_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    data, out = inputs[0], outputs[0]
    if out is None or len(out) != 3:
        return inputs
    return [merge(data, (out[0], out[1], 0)), *inputs[1:]]


def _streams(attrs: Mapping[str, Any], training: bool) -> int:
    return attrs["num_layers"] - 1 if training and attrs["p"] > 0 else 0


@operator(
    "RNN",
    inputs=_inputs,
    attrs={
        "state_size": integer(low=0, doc="size of each cell's state"),
        "num_layers": integer(low=0, high=4096, doc="how many layers there are"),
        "bidirectional": boolean(False, doc="whether each layer also has cells that run backwards"),
        "mode": enum(("gru", "lstm", "rnn_relu", "rnn_tanh"), doc="the kind of cell"),
        "p": number(
            0.0, low=0, high=1, doc="dropout probability on the output of each layer but the last, in training"
        ),
        "state_outputs": boolean(False, doc="whether the last states are results, too"),
        "projection_size": optional(
            integer(low=0, doc="length of an LSTM's projected state; None: no projection"), None
        ),
        "lstm_state_clip_min": optional(number(doc="the least state of an LSTM's cell; None: no bound"), None),
        "lstm_state_clip_max": optional(number(doc="the largest state of an LSTM's cell; None: no bound"), None),
        "lstm_state_clip_nan": boolean(False, doc="whether clipping turns NaN into lstm_state_clip_min"),
        "use_sequence_length": boolean(False, doc="whether there is an input `sequence_length`"),
    },
    outputs=_outputs,
    complete=_complete,
    infer_inputs=_infer_inputs,
    streams=_streams,
)
def rnn(
    b: Emitter,
    data: Any,
    parameters: Any,
    state: Any,
    state_cell: Any = None,
    sequence_length: Any = None,
    **attrs: Any,
) -> Any:
    """Layers of recurrent cells (LSTM, GRU, or plain with tanh or relu), each run over the whole sequence

    Shapes: data (time, batch, channels), parameters (n,), state and an LSTM's state_cell (layers * directions, batch,
    state_size), sequence_length (batch,) -> (time, batch, directions * state_size), then with `state_outputs` the last
    states

    `parameters` holds, layer by layer and within a layer direction by direction, the weights i2h (gates * state_size,
    channels), h2h (gates * state_size, state_size) and h2r (projection_size, state_size), then the biases of i2h and
    h2h in the same order. Gates: an LSTM's are input, forget, cell, output (Hochreiter and Schmidhuber, 1997;
    projection by Sak et al., 2014); a GRU's reset, update, new (Cho et al., 2014; the reset gate applies to the result
    of h2h, as in cuDNN).

    With `sequence_length`, steps past the end give 0 and leave the state as it is; cells that run backwards start at
    the end of each sequence.

    >>> data, state = mx.nd.array([[[1]], [[2]]]), mx.nd.zeros((1, 1, 1))
    >>> parameters = mx.nd.array([1, 1, 0, 0])  # the state is relu(x + state)
    >>> mx.nd.RNN(data, parameters, state, state_size=1, num_layers=1, mode="rnn_relu").asnumpy().ravel()
    array([1., 3.], dtype=float32)
    """
    mode = attrs["mode"]
    if mode != "lstm" and attrs["use_sequence_length"]:
        state_cell, sequence_length = None, state_cell
    own = require_float(data)
    given = [x for x in (data, parameters, state, state_cell) if x is not None]
    require_same_dtype(*given)
    if len(data.shape) != 3:
        raise OperatorError(
            "Input data should be rank-3 tensor of dim [sequence length, batch size, input size], got "
            f"{shape_text(data.shape)}"
        )
    sizes = _Sizes.of(attrs)
    if sizes.projected and mode != "lstm":
        raise OperatorError(f"projection_size is only for mode='lstm', not {mode!r}")
    time, batch, channels = data.shape
    cells = sizes.layers * sizes.directions
    require_shape(parameters, (sizes.parameters(channels),), "parameters")
    require_shape(state, (cells, batch, sizes.out), "state")
    if mode == "lstm":
        require_shape(state_cell, (cells, batch, sizes.hidden), "state_cell")
    running = None
    if sequence_length is not None:
        require_shape(sequence_length, (batch,), "sequence_length")
        step = b.iota(shape=(time, 1), axis=0, dtype=I32)
        ends = b.reshape(b.cast(as_index(b, sequence_length), dtype=I32), shape=(1, batch))
        running = b.reshape(step < ends, shape=(time, batch, 1))

    weights = _unpack(b, widened(b, parameters), sizes, channels)
    states = [x if x is None else widened(b, x) for x in (state, state_cell)]
    x = widened(b, data)
    finals: list[list[Any]] = []
    for layer in range(sizes.layers):
        if layer and attrs["p"] > 0:
            x = dropout.expand(b, x, p=attrs["p"], mode="training", axes=(), cudnn_off=False)
        outs = []
        for direction in range(sizes.directions):
            k = layer * sizes.directions + direction
            begin = [_row(b, s, k) for s in states if s is not None]
            out, final = _run(b, x, weights[k], begin, running, direction == 1, attrs)
            outs.append(out)
            finals.append(final)
        x = b.concat(*outs, axis=2) if len(outs) > 1 else outs[0]
    results = [narrowed(b, x, own)]
    if attrs["state_outputs"]:
        for parts in zip(*finals):
            rows = [b.reshape(p, shape=(1, *p.shape)) for p in parts]
            results.append(narrowed(b, b.concat(*rows, axis=0) if cells > 1 else rows[0], own))
    return tuple(results)


def _row(b: Emitter, x: Any, k: int) -> Any:
    """x[k]"""
    rest = tuple(x.shape[1:])
    return b.reshape(b.slice(x, start=(k, *(0 for _ in rest)), size=(1, *rest)), shape=rest)


def _unpack(b: Emitter, vector: Any, sizes: _Sizes, channels: int) -> list[dict[str, Any]]:
    """The weights (`i2h`, `h2h`, `h2r`) and biases (`i2h_bias`, `h2h_bias`) of each layer and direction."""
    at = 0

    def take(shape: Shape) -> Any:
        nonlocal at
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        part = b.slice(vector, start=(at,), size=(count,))
        at += count
        return b.reshape(part, shape=shape) if len(shape) > 1 else part

    cells = [{name: take(shape) for name, shape in cell.items()} for cell in sizes.layout(channels)]
    for cell in cells:
        for name in ("i2h_bias", "h2h_bias"):
            cell[name] = take((sizes.gates * sizes.hidden,))
    return cells


def _run(
    b: Emitter,
    x: Any,
    weights: Mapping[str, Any],
    begin: list[Any],
    running: Any,
    backwards: bool,
    attrs: Mapping[str, Any],
) -> tuple[Any, list[Any]]:
    """Runs one layer in one direction; returns its output at each step, (time, batch, out), and the last states.

    The inputs of all steps are multiplied with i2h at once; only the product with h2h remains in the loop.
    """
    mode = attrs["mode"]
    gates = b.dot_general(x, weights["i2h"], contract=((2,), (1,)))
    bias = weights["i2h_bias"]
    if mode != "gru":  # the new gate of a GRU needs the bias of h2h separately
        bias = bias + weights["h2h_bias"]
    gates = gates + bias
    scanned = [gates] if running is None else [gates, running]
    captured = [weights["h2h"]]
    if mode == "gru":
        captured.append(weights["h2h_bias"])
    if "h2r" in weights:
        captured.append(weights["h2r"])

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        new = _CELLS[mode](b, items[0], state, captured, attrs)
        out = new[0]
        if running is not None:
            going = items[1]
            out = b.select(going, out, b.constant(0, dtype_of(out)))
            new = [b.select(going, after, before) for after, before in zip(new, state)]
        return new, [out]

    final, (out,) = loop(b, body, begin, scanned, captured, trip=x.shape[0], last_first=backwards)
    return out, final


# One step of each kind of cell: (b, gates of the input, state, captured, attributes) → new state


def _product(b: Emitter, h: Any, weight: Any) -> Any:
    return b.dot_general(h, weight, contract=((1,), (1,)))


def _split(b: Emitter, gates: Any, count: int) -> list[Any]:
    batch, width = gates.shape
    each = width // count
    return [b.slice(gates, start=(0, k * each), size=(batch, each)) for k in range(count)]


def _plain(b: Emitter, gates: Any, state: Any, captured: Any, attrs: Mapping[str, Any]) -> list[Any]:
    total = gates + _product(b, state[0], captured[0])
    if attrs["mode"] == "rnn_tanh":
        return [b.tanh(total)]
    return [b.maximum(b.constant(0, dtype_of(total)), total)]  # in this order the gradient at 0 is 0, as in MXNet


def _gru(b: Emitter, gates: Any, state: Any, captured: Any, attrs: Mapping[str, Any]) -> list[Any]:
    (h,) = state
    recurrent = _product(b, h, captured[0]) + captured[1]
    (reset, update, new), (h_reset, h_update, h_new) = _split(b, gates, 3), _split(b, recurrent, 3)
    reset = b.sigmoid(reset + h_reset)
    update = b.sigmoid(update + h_update)
    new = b.tanh(new + reset * h_new)
    one = b.constant(1, dtype_of(h))
    return [(one - update) * new + update * h]


def _lstm(b: Emitter, gates: Any, state: Any, captured: Any, attrs: Mapping[str, Any]) -> list[Any]:
    h, c = state
    enter, forget, cell, out = _split(b, gates + _product(b, h, captured[0]), 4)
    c = b.sigmoid(forget) * c + b.sigmoid(enter) * b.tanh(cell)
    c = _clipped(b, c, attrs)
    h = b.sigmoid(out) * b.tanh(c)
    if len(captured) > 1:
        h = _product(b, h, captured[1])
    return [h, c]


def _clipped(b: Emitter, c: Any, attrs: Mapping[str, Any]) -> Any:
    low, high = attrs["lstm_state_clip_min"], attrs["lstm_state_clip_max"]
    if low is None or high is None:
        if low is not None or high is not None:
            raise OperatorError("lstm_state_clip_min and lstm_state_clip_max must be given together")
        return c
    dtype = dtype_of(c)
    least = b.constant(low, dtype)
    if attrs["lstm_state_clip_nan"]:
        c = b.select(b.isnan(c), least, c)
    return b.maximum(b.minimum(c, b.constant(high, dtype)), least)


_CELLS = {"rnn_relu": _plain, "rnn_tanh": _plain, "gru": _gru, "lstm": _lstm}
