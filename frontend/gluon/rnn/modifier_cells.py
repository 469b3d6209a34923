"""Cells that modify another cell: dropout, zoneout, residual connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from gluonjit import ndarray, symbol
from gluonjit.base import numeric_types
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.gluon.rnn.container_cells import BidirectionalCell
from gluonjit.gluon.rnn.recurrent_cell import HybridRecurrentCell, RecurrentCell, States
from gluonjit.gluon.rnn.sequences import _format_sequence, _mask_sequence_variable_length, tensor_types
from gluonjit.language.running import running
from gluonjit.ndarray import NDArray

__all__ = ["DropoutCell", "ModifierCell", "ResidualCell", "StepMemoryCell", "ZoneoutCell"]


class DropoutCell(HybridRecurrentCell):
    """Dropout of the input, for use between other cells; it has no state. The mask is shared along `axes`.

    (batch, size) in and out.

    >>> cell = rnn.DropoutCell(0.5)
    >>> cell(mx.nd.ones((2, 3)), [])[0].shape
    (2, 3)
    """

    def __init__(
        self,
        rate: float,
        axes: tuple[int, ...] = (),
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix, params)
        if not isinstance(rate, numeric_types):
            raise AssertionError("rate must be a number")
        self._rate = rate
        self._axes = axes

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rate={self._rate}, axes={self._axes})"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return []

    def _alias(self) -> str:
        return "dropout"

    def hybrid_forward(self, F: Any, inputs: Any, states: States) -> tuple[Any, States]:  # type: ignore[override]
        if self._rate > 0:
            inputs = F.Dropout(data=inputs, p=self._rate, axes=self._axes, name=f"t{self._counter}_fwd")
        return inputs, states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: States | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, States]:
        """Applies dropout to the whole sequence at once if it is one array: see `RecurrentCell.unroll`."""
        self.reset()
        inputs, _, F, _ = _format_sequence(length, inputs, layout, merge_outputs)
        if isinstance(inputs, tensor_types):
            return self.hybrid_forward(F, inputs, begin_state or [])
        return super().unroll(length, inputs, begin_state, layout, merge_outputs, None)


class ModifierCell(HybridRecurrentCell):
    """Wraps `base_cell`, which must not be called directly any more; the wrapper has its parameters.

    The base of `ZoneoutCell` and `ResidualCell`. `begin_state`, `reset` and `unroll` are those of the base cell.

    >>> isinstance(rnn.ResidualCell(rnn.GRUCell(3)), rnn.ModifierCell)
    True
    """

    base_cell: RecurrentCell

    def __init__(self, base_cell: RecurrentCell) -> None:
        if base_cell._modified:
            raise AssertionError(f"Cell {base_cell.name} is already modified. One cell cannot be modified twice")
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self) -> ParameterDict:
        return self.base_cell.params

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return self.base_cell.state_info(batch_size)

    def begin_state(self, func: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> States:  # type: ignore[override]
        self._refuse_if_modified()
        with self._base_released():
            return self.base_cell.begin_state(func=func, **kwargs)

    @contextmanager
    def _base_released(self) -> Iterator[None]:
        """Allows the base cell to be called within a `with`."""
        self.base_cell._modified = False
        try:
            yield
        finally:
            self.base_cell._modified = True

    def hybrid_forward(self, F: Any, inputs: Any, states: States) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell})"


class StepMemoryCell(ModifierCell):
    """A modifier that keeps arrays from one step to the next, until `reset`.

    Compiled code cannot do that: it would always use the arrays of the step that was traced. So a step of such a cell
    runs operator by operator even if it is hybridized; its base cell is compiled. Within another hybridized block the
    cell becomes part of that block's graph, provided that the block resets it (as `unroll` does).
    """

    _NOT_COPIED = (*HybridRecurrentCell._NOT_COPIED, "_memory", "_reset_by")

    _memory: dict[str, tuple[Any, Any]] | None = None
    """Kept arrays by key, each with its owner: a trace, or `F`."""
    _reset_by: Any = None
    """The trace that was running when `reset` was called."""

    def reset(self) -> None:
        super().reset()
        self._memory = None
        self._reset_by = running.trace

    def _remember(self, F: Any, key: str, value: Any) -> Any:
        """Keeps `value` for the next step, and returns it."""
        self._memory = {**(self._memory or {}), key: (running.trace or F, value)}
        return value

    def _recall(self, F: Any, key: str) -> Any:
        """The array that the previous step kept; None in the first step after `reset`."""
        trace = running.trace
        if trace is not None and self._reset_by is not trace:
            trace.refuse(
                f"{self.name} remembers its previous step, which compiled code would do only once",
                f"{self.name}.reset() before its first step, or unroll, which does so",
            )
        owner, value = (self._memory or {}).get(key, (None, None))
        return value if owner is (trace or F) else None  # shape inference keeps symbols, which other modes ignore

    def forward(self, inputs: Any, states: States) -> tuple[Any, States]:
        if self._active and running.trace is None and isinstance(inputs, NDArray):
            self._counter += 1
            return self.hybrid_forward(ndarray, inputs, states)
        return super().forward(inputs, states)


class ZoneoutCell(StepMemoryCell):
    """In training mode, elements keep their previous values: of outputs with probability `zoneout_outputs`, of states
    with probability `zoneout_states`.

    Shapes are the base cell's (Krueger et al., 2016). Between sequences, `reset()` forgets the previous output.

    >>> cell = rnn.ZoneoutCell(rnn.RNNCell(5), zoneout_outputs=0.5)
    >>> cell.initialize()
    >>> cell.unroll(4, mx.nd.ones((2, 4, 3)), merge_outputs=True)[0].shape
    (2, 4, 5)
    """

    def __init__(self, base_cell: RecurrentCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0) -> None:
        if isinstance(base_cell, BidirectionalCell):
            raise AssertionError(
                "BidirectionalCell doesn't support zoneout since it doesn't support step. "
                "Please add ZoneoutCell to the cells underneath instead."
            )
        super().__init__(base_cell)
        self.zoneout_outputs = zoneout_outputs
        self.zoneout_states = zoneout_states

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p_out={self.zoneout_outputs}, p_state={self.zoneout_states}, {self.base_cell})"

    def _alias(self) -> str:
        return "zoneout"

    def hybrid_forward(self, F: Any, inputs: Any, states: States) -> tuple[Any, States]:  # type: ignore[override]
        output, new_states = self.base_cell(inputs, states)
        if self.zoneout_outputs != 0.0:
            before = self._recall(F, "output")
            before = F.zeros_like(output) if before is None else before
            output = self._remember(F, "output", _zone_out(F, self.zoneout_outputs, output, before))
        if self.zoneout_states != 0.0:
            new_states = [_zone_out(F, self.zoneout_states, new, old) for new, old in zip(new_states, states)]
        return output, new_states


def _zone_out(F: Any, p: float, new: Any, old: Any) -> Any:
    """Each element is `old` with probability `p`, else `new`; the mask is made by dropout of ones."""
    return F.where(F.Dropout(F.ones_like(new), p=p), new, old)


class ResidualCell(ModifierCell):
    """Adds the input to the base cell's output.

    So the base cell's hidden size is the input's size (He et al., 2015; Wu et al., 2016).

    >>> cell = rnn.ResidualCell(rnn.GRUCell(3))
    >>> cell.initialize()
    >>> cell.unroll(4, mx.nd.ones((2, 4, 3)), merge_outputs=True)[0].shape
    (2, 4, 3)
    """

    def __init__(self, base_cell: RecurrentCell) -> None:
        super().__init__(base_cell)

    def hybrid_forward(self, F: Any, inputs: Any, states: States) -> tuple[Any, States]:  # type: ignore[override]
        output, states = self.base_cell(inputs, states)
        return F.elemwise_add(output, inputs, name=f"t{self._counter}_fwd"), states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: States | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, States]:
        """Unrolls the base cell and adds the inputs, masked like its outputs: see `RecurrentCell.unroll`."""
        self.reset()
        with self._base_released():
            outputs, states = self.base_cell.unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        if merge_outputs is None:
            merge_outputs = isinstance(outputs, tensor_types)
        inputs, axis, F, _ = _format_sequence(length, inputs, layout, merge_outputs)
        if valid_length is not None:
            inputs = _mask_sequence_variable_length(F, inputs, length, valid_length, axis, merge_outputs)
        if merge_outputs:
            return F.elemwise_add(outputs, inputs), states
        return [F.elemwise_add(y, x) for y, x in zip(outputs, inputs)], states
