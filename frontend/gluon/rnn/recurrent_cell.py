"""`RecurrentCell`: one time step of a recurrent network, and `unroll`, which runs a whole sequence.

`output, states = cell(input, states)`: states are a list of arrays, as `state_info` describes them. A cell counts its
steps for the names of its operators ("t3_i2h"); `reset()` restarts the count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from gluonjit import ndarray
from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.nn import LeakyReLU
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.gluon.rnn.sequences import _format_sequence, _get_begin_state, _mask_sequence_variable_length

__all__ = ["HybridRecurrentCell", "RecurrentCell"]

States = list[Any]
"""Arrays, in the order of `state_info`."""


class RecurrentCell(Block):
    """The base of all cells; subclasses define `state_info` and the computation.

    `cell(input, states)` is one step: (batch, size) and a list of states to an output and the next states;
    `cell.unroll(length, inputs)` is a sequence; `cell.begin_state(batch_size)` makes states of zeros.

    >>> cell = rnn.RNNCell(4)
    >>> [info["shape"] for info in cell.state_info(batch_size=2)]
    [(2, 4)]
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        """Whether a modifier cell wraps this one."""
        self.reset()

    def reset(self) -> None:
        """Restarts the count of steps, here and in the cells inside."""
        self._init_counter = -1
        self._counter = -1
        for child in self._children.values():
            if isinstance(child, RecurrentCell):  # an activation may be a block, too
                child.reset()

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The 'shape' and '__layout__' of each state; batch size 0 means unknown."""
        raise NotImplementedError

    def begin_state(self, batch_size: int = 0, func: Callable[..., Any] = ndarray.zeros, **kwargs: Any) -> States:
        """New states, created by `func(name=..., shape=..., **kwargs)`: `mx.nd.zeros`, `mx.sym.var`, …"""
        self._refuse_if_modified()
        states = []
        for info in self.state_info(batch_size):
            self._init_counter += 1
            states.append(func(name=f"{self._prefix}begin_state_{self._init_counter}", **{**(info or {}), **kwargs}))
        return states

    def _refuse_if_modified(self) -> None:
        if self._modified:
            raise AssertionError(
                "After applying modifier cells (e.g. ZoneoutCell) the base cell cannot be called directly. "
                "Call the modifier cell instead."
            )

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: States | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, States]:
        """Runs `length` steps: (outputs, states after the last one).

        * `inputs`: one array in `layout`, or a list of `length` arrays (batch, …).
        * `begin_state`: None for zeros.
        * `merge_outputs`: True returns the outputs as one array, False as a list, None whichever needs no conversion.
        * `valid_length` (batch,): the number of valid steps of each sample. The returned states are those after its
          last valid step; outputs after it are 0.
        """
        self.reset()
        inputs, axis, F, batch_size = _format_sequence(length, inputs, layout, False)
        states = _get_begin_state(self, F, begin_state, inputs, batch_size)
        outputs, history = [], []
        for x in inputs[:length]:
            output, states = self(x, states)
            outputs.append(output)
            history.append(states)
        if valid_length is not None:
            states = [
                F.SequenceLast(F.stack(*steps, axis=0), sequence_length=valid_length, use_sequence_length=True, axis=0)
                for steps in zip(*history)
            ]
            outputs = _mask_sequence_variable_length(F, outputs, length, valid_length, axis, True)
        outputs, _, _, _ = _format_sequence(length, outputs, layout, merge_outputs)
        return outputs, states

    def _get_activation(self, F: Any, inputs: Any, activation: Any, **kwargs: Any) -> Any:
        """Applies `activation`, which is a name, a `LeakyReLU` block, or another callable."""
        if isinstance(activation, str):
            if activation in ("tanh", "relu", "sigmoid", "softsign"):
                return getattr(F, activation)(inputs, **kwargs)
            return F.Activation(inputs, act_type=activation, **kwargs)
        if isinstance(activation, LeakyReLU):
            return F.LeakyReLU(inputs, act_type="leaky", slope=activation._alpha, **kwargs)
        return activation(inputs, **kwargs)

    def forward(self, inputs: Any, states: States) -> tuple[Any, States]:
        """One step: (output, new states)."""
        self._counter += 1
        return super().forward(inputs, states)  # type: ignore[safe-super]


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """A hybrid cell; subclasses define `state_info` and `hybrid_forward(F, inputs, states, **params)`.

    >>> class Sum(rnn.HybridRecurrentCell):
    ...     def state_info(self, batch_size=0):
    ...         return [{"shape": (batch_size, 3), "__layout__": "NC"}]
    ...
    ...     def hybrid_forward(self, F, inputs, states):
    ...         total = inputs + states[0]
    ...         return total, [total]
    >>> cell = Sum()
    >>> cell.unroll(4, mx.nd.ones((1, 4, 3)), merge_outputs=True)[0].asnumpy()[0, :, 0]
    array([1., 2., 3., 4.], dtype=float32)
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError
