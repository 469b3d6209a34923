"""Cells that change another cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gluonjit import symbol
from gluonjit.ndarray import NDArray
from gluonjit.rnn.cell_containers import BidirectionalCell
from gluonjit.rnn.fused_cell import FusedRNNCell
from gluonjit.rnn.symbolic_cells import BaseRNNCell, RNNParams, Weights, as_sequence
from gluonjit.symbol import Symbol


class ModifierCell(BaseRNNCell):
    """A cell with the parameters and states of `base_cell`, which must not be called directly any more."""

    def __init__(self, base_cell: BaseRNNCell) -> None:
        super().__init__()
        base_cell._modified = True
        self.base_cell = base_cell

    @property
    def params(self) -> RNNParams:
        self._own_params = False
        return self.base_cell.params

    @property
    def state_info(self) -> list[Any]:
        return self.base_cell.state_info

    def begin_state(self, init_sym: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        self._check_unmodified()
        self.base_cell._modified = False
        try:
            return self.base_cell.begin_state(func=init_sym, **kwargs)
        finally:
            self.base_cell._modified = True

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        return self.base_cell.pack_weights(args)


class ZoneoutCell(ModifierCell):
    """In training mode, elements of outputs and states keep their previous values with these probabilities."""

    def __init__(self, base_cell: BaseRNNCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0) -> None:
        for kind, advice in ((FusedRNNCell, "unfuse it"), (BidirectionalCell, "apply it to the cells in it")):
            if isinstance(base_cell, kind):
                raise AssertionError(f"{kind.__name__} doesn't support zoneout, for it makes no single steps: {advice}")
        super().__init__(base_cell)
        self.zoneout_outputs, self.zoneout_states = zoneout_outputs, zoneout_states
        self.prev_output: Symbol | None = None

    def reset(self) -> None:
        super().reset()
        self.prev_output = None

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        output, found = self.base_cell(inputs, states)
        if self.zoneout_outputs:
            before = symbol.zeros((0, 0)) if self.prev_output is None else self.prev_output
            output = _mixed(self.zoneout_outputs, output, before)
        if self.zoneout_states:
            found = [_mixed(self.zoneout_states, new, old) for new, old in zip(found, states)]
        self.prev_output = output
        return output, found


def _mixed(p: float, new: Symbol, old: Symbol) -> Symbol:
    return symbol.where(symbol.Dropout(symbol.ones_like(new), p=p), new, old)


class ResidualCell(ModifierCell):
    """Adds the input to the output."""

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        output, found = self.base_cell(inputs, states)
        return _plus_input(output, inputs), found

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Sequence[Symbol] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        self.reset()
        self.base_cell._modified = False
        try:
            outputs, states = self.base_cell.unroll(length, inputs, begin_state, layout, merge_outputs)
        finally:
            self.base_cell._modified = True
        merged = isinstance(outputs, Symbol) if merge_outputs is None else merge_outputs
        inputs, _ = as_sequence(length, inputs, layout, merged)
        if merged:
            return _plus_input(outputs, inputs), states
        return [_plus_input(y, x) for y, x in zip(outputs, inputs)], states


def _plus_input(output: Symbol, inputs: Symbol) -> Symbol:
    return symbol.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")
