"""`FusedRNNCell`: all layers and steps as the one operator `RNN`, whose weights are one vector."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gluonjit import initializer, ndarray, symbol
from gluonjit.ndarray import NDArray
from gluonjit.rnn.cell_containers import BidirectionalCell, SequentialRNNCell
from gluonjit.rnn.symbolic_cells import (
    GROUPS,
    GRU_GATES,
    LSTM_GATES,
    BaseRNNCell,
    DropoutCell,
    GRUCell,
    LSTMCell,
    RNNCell,
    RNNParams,
    Weights,
    as_sequence,
)
from gluonjit.symbol import Symbol

_GATES = {"rnn_relu": ("",), "rnn_tanh": ("",), "lstm": LSTM_GATES, "gru": GRU_GATES}


class FusedRNNCell(BaseRNNCell):
    """Several layers, in one or both directions. It can only be unrolled; `unfuse` returns cells that can be stepped.

    `mode`: `rnn_relu`, `rnn_tanh`, `lstm` or `gru`. States, of shape (layers · directions, batch, hidden), are returned
    if `get_next_state`. The vector holds all weights and then all biases, each ordered by layer, direction, input
    before state, and gate.
    """

    def __init__(
        self,
        num_hidden: int,
        num_layers: int = 1,
        mode: str = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        get_next_state: bool = False,
        forget_bias: float = 1.0,
        prefix: str | None = None,
        params: RNNParams | None = None,
    ) -> None:
        super().__init__(f"{mode}_" if prefix is None else prefix, params)
        self._num_hidden, self._num_layers, self._mode = num_hidden, num_layers, mode
        self._bidirectional, self._dropout, self._get_next_state = bidirectional, dropout, get_next_state
        self._directions = ("l", "r") if bidirectional else ("l",)
        self._gate_names = _GATES[mode]
        init = initializer.FusedRNN(None, num_hidden, num_layers, mode, bidirectional, forget_bias)
        self._parameter = self.params.get("parameters", init=init)

    @property
    def state_info(self) -> list[Any]:
        shape = (len(self._directions) * self._num_layers, 0, self._num_hidden)
        return [{"shape": shape, "__layout__": "LNC"} for _ in range(1 + (self._mode == "lstm"))]

    def _parts(self, features: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the weights in the vector, in order."""
        h = self._num_hidden
        for kind in ("weight", "bias"):
            for layer in range(self._num_layers):
                width = {"i2h": h * len(self._directions) if layer else features, "h2h": h}
                for direction in self._directions:
                    for group in GROUPS:
                        for gate in self._gate_names:
                            name = f"{self._prefix}{direction}{layer}_{group}{gate}_{kind}"
                            yield name, (h, width[group]) if kind == "weight" else (h,)

    def _views(self, vector: NDArray, features: int) -> Weights:
        """The weights in the vector by name, as views of it. AssertionError if its size does not fit."""
        views, start = {}, 0
        for name, shape in self._parts(features):
            end = start + (shape[0] * shape[1] if len(shape) == 2 else shape[0])
            if end > vector.size:
                break
            views[name] = vector[start:end].reshape(shape)
            start = end
        if start != vector.size:
            raise AssertionError(f"Invalid parameters size for FusedRNNCell: {vector.size}")
        return views

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        args = dict(args)
        vector = args.pop(str(self._parameter.name))
        h, b = self._num_hidden, len(self._directions)
        later = (self._num_layers - 1) * (h + b * h + 2)
        features = vector.size // b // h // len(self._gate_names) - later - h - 2
        args.update({name: x.copy() for name, x in self._views(vector, features).items()})
        return args

    def pack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        args = dict(args)
        first = args[f"{self._prefix}l0_i2h{self._gate_names[0]}_weight"]
        features = first.shape[1]
        size = sum(shape[0] * shape[1] if len(shape) == 2 else shape[0] for _, shape in self._parts(features))
        vector = ndarray.zeros((size,), first.context, first.dtype)
        for name, x in self._views(vector, features).items():
            x[:] = args.pop(name)
        args[str(self._parameter.name)] = vector
        return args

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        raise NotImplementedError("FusedRNNCell cannot be stepped. Please use unroll")

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Sequence[Symbol] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        self.reset()
        x, axis = as_sequence(length, inputs, layout, True)
        if axis not in (0, 1):
            raise AssertionError(f"Unsupported layout {layout}")
        if axis == 1:
            warnings.warn("NTC layout detected. Consider using TNC for FusedRNNCell for faster speed", stacklevel=2)
            x = symbol.swapaxes(x, dim1=0, dim2=1)
        states = self.begin_state() if begin_state is None else begin_state
        rnn: Any = symbol.RNN  # no type checker knows how many states there are
        outputs = rnn(
            x,
            self._parameter,
            *states[: len(self.state_info)],
            state_size=self._num_hidden,
            num_layers=self._num_layers,
            bidirectional=self._bidirectional,
            p=self._dropout,
            state_outputs=self._get_next_state,
            mode=self._mode,
            name=f"{self._prefix}rnn",
        )
        found: list[Any] = []
        if self._get_next_state:
            outputs, *found = list(outputs)
            for state in found:
                state._set_attr(__layout__="LNC")
        if axis == 1:
            outputs = symbol.swapaxes(outputs, dim1=0, dim2=1)
        return as_sequence(length, outputs, layout, merge_outputs)[0], found

    def unfuse(self) -> SequentialRNNCell:
        """Equivalent cells, with the weights that `unpack_weights` returns."""
        stack = SequentialRNNCell()
        for layer in range(self._num_layers):
            cells = [self._one(f"{self._prefix}{direction}{layer}_") for direction in self._directions]
            if self._bidirectional:
                stack.add(BidirectionalCell(cells[0], cells[1], output_prefix=f"{self._prefix}bi_l{layer}_"))
            else:
                stack.add(cells[0])
            if self._dropout > 0 and layer != self._num_layers - 1:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{layer}_"))
        return stack

    def _one(self, prefix: str) -> BaseRNNCell:
        if self._mode == "lstm":
            return LSTMCell(self._num_hidden, prefix=prefix)
        if self._mode == "gru":
            return GRUCell(self._num_hidden, prefix=prefix)
        return RNNCell(self._num_hidden, self._mode.removeprefix("rnn_"), prefix)
