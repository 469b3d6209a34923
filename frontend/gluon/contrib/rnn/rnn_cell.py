"""Variational dropout (one mask for all steps), and LSTM with projection."""

from __future__ import annotations

from typing import Any

from gluonjit.gluon.contrib.rnn.dynamic import dynamic_unroll
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.gluon.rnn import BidirectionalCell, HybridRecurrentCell, RecurrentCell
from gluonjit.gluon.rnn.modifier_cells import StepMemoryCell
from gluonjit.gluon.rnn.recurrent_cell import States
from gluonjit.gluon.rnn.sequences import (
    _format_sequence,
    _get_begin_state,
    _mask_sequence_variable_length,
    tensor_types,
)

__all__ = ["LSTMPCell", "VariationalDropoutCell", "dynamic_unroll"]


class VariationalDropoutCell(StepMemoryCell):
    """Dropout of a cell's inputs, first state and outputs, with masks that stay the same until `reset`.

    Shapes are the base cell's (Gal and Ghahramani, 2016).

    >>> cell = gluon.contrib.rnn.VariationalDropoutCell(rnn.LSTMCell(5), drop_inputs=0.5)
    >>> cell.initialize()
    >>> cell.unroll(4, mx.nd.ones((2, 4, 3)), merge_outputs=True)[0].shape
    (2, 4, 5)
    """

    def __init__(
        self,
        base_cell: RecurrentCell,
        drop_inputs: float = 0.0,
        drop_states: float = 0.0,
        drop_outputs: float = 0.0,
    ) -> None:
        if drop_states and isinstance(base_cell, BidirectionalCell):
            raise AssertionError(
                "BidirectionalCell doesn't support variational state dropout. "
                "Please add VariationalDropoutCell to the cells underneath instead."
            )
        super().__init__(base_cell)
        self.drop_inputs = drop_inputs
        self.drop_states = drop_states
        self.drop_outputs = drop_outputs

    def _alias(self) -> str:
        return "vardrop"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p_out = {self.drop_outputs}, p_state = {self.drop_states})"

    def _masked(self, F: Any, x: Any, key: str, p: float) -> Any:
        """`x` times the mask for `key`, which the first step after `reset` draws."""
        if not p:
            return x
        mask = self._recall(F, key)
        if mask is None:
            mask = self._remember(F, key, F.Dropout(F.ones_like(x), p=p))
        return x * mask

    def hybrid_forward(self, F: Any, inputs: Any, states: States) -> tuple[Any, States]:  # type: ignore[override]
        states = [self._masked(F, states[0], "states", self.drop_states), *states[1:]]
        inputs = self._masked(F, inputs, "inputs", self.drop_inputs)
        output, new_states = self.base_cell(inputs, states)
        return self._masked(F, output, "outputs", self.drop_outputs), new_states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: States | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, States]:
        """Unrolls, applying dropout to whole sequences unless states have dropout: see `RecurrentCell.unroll`."""
        if self.drop_states:
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        self.reset()
        inputs, axis, F, batch_size = _format_sequence(length, inputs, layout, True)
        states = _get_begin_state(self, F, begin_state, inputs, batch_size)
        if self.drop_inputs:
            inputs = F.Dropout(inputs, p=self.drop_inputs, axes=(axis,))
        with self._base_released():
            outputs, states = self.base_cell.unroll(length, inputs, states, layout, True, valid_length)
        if self.drop_outputs:
            outputs = F.Dropout(outputs, p=self.drop_outputs, axes=(axis,))
        if merge_outputs is None:
            merge_outputs = isinstance(outputs, tensor_types)
        outputs, _, _, _ = _format_sequence(length, outputs, layout, merge_outputs)
        if valid_length is not None:
            outputs = _mask_sequence_variable_length(F, outputs, length, valid_length, axis, merge_outputs)
        return outputs, states


class LSTMPCell(HybridRecurrentCell):
    """LSTM whose output and fed-back state are projected: r' = W_h2r·h', (batch, projection). States are (r, c).

    Input (batch, input_size), r and output (batch, projection_size), c (batch, hidden_size) (Sak et al., 2014).

    >>> cell = gluon.contrib.rnn.LSTMPCell(5, projection_size=2)
    >>> cell.initialize()
    >>> output, states = cell(mx.nd.ones((2, 3)), cell.begin_state(batch_size=2))
    >>> output.shape, [s.shape for s in states]
    ((2, 2), [(2, 2), (2, 5)])
    """

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        h2r_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._input_size = input_size
        self._projection_size = projection_size

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        self.i2h_weight = get("i2h_weight", (4 * hidden_size, input_size), i2h_weight_initializer)
        self.h2h_weight = get("h2h_weight", (4 * hidden_size, projection_size), h2h_weight_initializer)
        self.h2r_weight = get("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer)
        self.i2h_bias = get("i2h_bias", (4 * hidden_size,), i2h_bias_initializer)
        self.h2h_bias = get("h2h_bias", (4 * hidden_size,), h2h_bias_initializer)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        sizes = self._projection_size, self._hidden_size
        return [{"shape": (batch_size, size), "__layout__": "NC"} for size in sizes]

    def _alias(self) -> str:
        return "lstmp"

    def __repr__(self) -> str:
        rows, columns = self.i2h_weight.shape
        return f"{type(self).__name__}({columns or None} -> {rows} -> {self.h2r_weight.shape[0]})"

    def hybrid_forward(  # type: ignore[override]
        self,
        F: Any,
        inputs: Any,
        states: States,
        i2h_weight: Any,
        h2h_weight: Any,
        h2r_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> tuple[Any, States]:
        step = f"t{self._counter}_"
        rows = 4 * self._hidden_size
        i2h = F.FullyConnected(data=inputs, weight=i2h_weight, bias=i2h_bias, num_hidden=rows, name=step + "i2h")
        h2h = F.FullyConnected(data=states[0], weight=h2h_weight, bias=h2h_bias, num_hidden=rows, name=step + "h2h")
        gates = F.SliceChannel(i2h + h2h, num_outputs=4, name=step + "slice")
        enter, forget, new, leave = (
            F.Activation(gate, act_type="tanh" if name == "c" else "sigmoid", name=step + name)
            for gate, name in zip(gates, "ifco")
        )
        next_c = F.elemwise_add(forget * states[1], enter * new, name=step + "state")
        hidden = F.elemwise_mul(leave, F.Activation(next_c, act_type="tanh"), name=step + "hidden")
        next_r = F.FullyConnected(
            data=hidden, num_hidden=self._projection_size, weight=h2r_weight, no_bias=True, name=step + "out"
        )
        return next_r, [next_r, next_c]
