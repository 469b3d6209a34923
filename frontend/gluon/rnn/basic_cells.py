"""The basic cells: Elman RNN, LSTM, GRU.

Weights are stacked gate by gate: i2h_weight (gates·hidden, input), h2h_weight (gates·hidden, hidden), and a bias for
each. `input_size=0` is inferred by the first call. Inputs are (batch, input), states (batch, hidden).
"""

from __future__ import annotations

from typing import Any

from gluonjit.gluon.parameter import ParameterDict
from gluonjit.gluon.rnn.recurrent_cell import HybridRecurrentCell, States

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]


class _GatedCell(HybridRecurrentCell):
    """The base of the three: for each of `_gates` gates, a product of the input and one of the hidden state."""

    _gates: int

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any,
        h2h_weight_initializer: Any,
        i2h_bias_initializer: Any,
        h2h_bias_initializer: Any,
        input_size: int,
        prefix: str | None,
        params: ParameterDict | None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._input_size = input_size
        rows = self._gates * hidden_size
        get = self.params.get
        self.i2h_weight = get(
            "i2h_weight", shape=(rows, input_size), init=i2h_weight_initializer, allow_deferred_init=True
        )
        self.h2h_weight = get(
            "h2h_weight", shape=(rows, hidden_size), init=h2h_weight_initializer, allow_deferred_init=True
        )
        self.i2h_bias = get("i2h_bias", shape=(rows,), init=i2h_bias_initializer, allow_deferred_init=True)
        self.h2h_bias = get("h2h_bias", shape=(rows,), init=h2h_bias_initializer, allow_deferred_init=True)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return [{"shape": (batch_size, self._hidden_size), "__layout__": "NC"}]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mapping()})"

    def _mapping(self) -> str:
        rows, columns = self.i2h_weight.shape
        return f"{columns or None} -> {rows}"

    def _product(self, F: Any, data: Any, weight: Any, bias: Any, name: str) -> Any:
        """Weight·data + bias, for all gates: (batch, gates·hidden)."""
        rows = self._gates * self._hidden_size
        return F.FullyConnected(data=data, weight=weight, bias=bias, num_hidden=rows, name=name)


class RNNCell(_GatedCell):
    """h' = act(W_i2h·x + b_i2h + W_h2h·h + b_h2h), which is also the output.

    Input (batch, input_size), state and output (batch, hidden_size). `activation`: 'relu', 'tanh', another name that
    `Activation` takes, or a block. `input_size=0` is inferred by the first call.

    >>> cell = rnn.RNNCell(5)
    >>> cell.initialize()
    >>> output, states = cell(mx.nd.ones((2, 3)), cell.begin_state(batch_size=2))
    >>> output.shape, [s.shape for s in states]
    ((2, 5), [(2, 5)])
    """

    _gates = 1

    def __init__(
        self,
        hidden_size: int,
        activation: Any = "tanh",
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
        )
        self._activation = activation

    def _alias(self) -> str:
        return "rnn"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mapping()}, {self._activation})"

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: States, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, States]:
        step = f"t{self._counter}_"
        i2h = self._product(F, inputs, i2h_weight, i2h_bias, step + "i2h")
        h2h = self._product(F, states[0], h2h_weight, h2h_bias, step + "h2h")
        total = F.elemwise_add(i2h, h2h, name=step + "plus0")
        output = self._get_activation(F, total, self._activation, name=step + "out")
        return output, [output]


class LSTMCell(_GatedCell):
    """States (h, c): c' = f·c + i·g and h' = o·act(c'), which is also the output.

    The gates' order in the weights is i, f, g, o; g has `activation`, the others `recurrent_activation`.

    Input (batch, input_size), states and output (batch, hidden_size); weights (4·hidden_size, input_size) and
    (4·hidden_size, hidden_size) (Hochreiter and Schmidhuber, 1997; with forget gates, Gers et al., 2000).

    >>> cell = rnn.LSTMCell(5)
    >>> cell.initialize()
    >>> output, states = cell(mx.nd.ones((2, 3)), cell.begin_state(batch_size=2))
    >>> output.shape, [s.shape for s in states]
    ((2, 5), [(2, 5), (2, 5)])
    """

    _gates = 4

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
    ) -> None:
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
        )
        self._activation = activation
        self._recurrent_activation = recurrent_activation

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return super().state_info(batch_size) + super().state_info(batch_size)

    def _alias(self) -> str:
        return "lstm"

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: States, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, States]:
        step = f"t{self._counter}_"
        i2h = self._product(F, inputs, i2h_weight, i2h_bias, step + "i2h")
        h2h = self._product(F, states[0], h2h_weight, h2h_bias, step + "h2h")
        gates = F.SliceChannel(F.elemwise_add(i2h, h2h, name=step + "plus0"), num_outputs=4, name=step + "slice")
        outer, inner = self._recurrent_activation, self._activation
        enter, forget, new, leave = (
            self._get_activation(F, gate, activation, name=step + name)
            for gate, activation, name in zip(gates, (outer, outer, inner, outer), "ifco")
        )
        next_c = F.elemwise_add(
            F.elemwise_mul(forget, states[1], name=step + "mul0"),
            F.elemwise_mul(enter, new, name=step + "mul1"),
            name=step + "state",
        )
        shown = F.Activation(next_c, act_type=self._activation, name=step + "activation0")
        next_h = F.elemwise_mul(leave, shown, name=step + "out")
        return next_h, [next_h, next_c]


class GRUCell(_GatedCell):
    """h' = (1 − z)·n + z·h, which is also the output; the reset gate r acts after the product with h, as in cuDNN.

    The gates' order in the weights is r, z, n: r and z are sigmoids of the products' sum, n = tanh(n_i2h + r·n_h2h).

    Input (batch, input_size), state and output (batch, hidden_size); weights (3·hidden_size, input_size) and
    (3·hidden_size, hidden_size) (Cho et al., 2014).

    >>> cell = rnn.GRUCell(5)
    >>> cell.initialize()
    >>> outputs, states = cell.unroll(4, mx.nd.ones((2, 4, 3)), merge_outputs=True)
    >>> outputs.shape, [s.shape for s in states]
    ((2, 4, 5), [(2, 5)])
    """

    _gates = 3

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
        )

    def _alias(self) -> str:
        return "gru"

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: States, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, States]:
        step = f"t{self._counter}_"
        hidden = states[0]
        i2h = self._product(F, inputs, i2h_weight, i2h_bias, step + "i2h")
        h2h = self._product(F, hidden, h2h_weight, h2h_bias, step + "h2h")
        i2h_r, i2h_z, i2h_n = F.SliceChannel(i2h, num_outputs=3, name=step + "i2h_slice")
        h2h_r, h2h_z, h2h_n = F.SliceChannel(h2h, num_outputs=3, name=step + "h2h_slice")
        reset = F.Activation(F.elemwise_add(i2h_r, h2h_r, name=step + "plus0"), act_type="sigmoid", name=step + "r_act")
        update = F.Activation(
            F.elemwise_add(i2h_z, h2h_z, name=step + "plus1"), act_type="sigmoid", name=step + "z_act"
        )
        kept = F.elemwise_mul(reset, h2h_n, name=step + "mul0")
        new = F.Activation(F.elemwise_add(i2h_n, kept, name=step + "plus2"), act_type="tanh", name=step + "h_act")
        ones = F.ones_like(update, name=step + "ones_like0")
        next_h = F.elemwise_add(
            F.elemwise_mul(F.elemwise_sub(ones, update, name=step + "minus0"), new, name=step + "mul1"),
            F.elemwise_mul(update, hidden, name=step + "mul20"),
            name=step + "out",
        )
        return next_h, [next_h]
