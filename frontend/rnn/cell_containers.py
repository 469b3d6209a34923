"""Cells made of cells: chains, and both directions of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit import symbol
from gluonjit.ndarray import NDArray
from gluonjit.rnn.symbolic_cells import BaseRNNCell, RNNParams, Weights, as_sequence
from gluonjit.symbol import Symbol


class _Container(BaseRNNCell):
    def __init__(self, params: RNNParams | None) -> None:
        self._cells: list[BaseRNNCell] = []
        super().__init__("", params)
        self._override_cell_params = params is not None

    def _take(self, cell: BaseRNNCell) -> None:
        """Adds a cell; it gets the container's parameters, if they were given."""
        if self._override_cell_params and not cell._own_params:
            raise AssertionError(f"Either specify params for {type(self).__name__} or child cells, not both.")
        if self._override_cell_params:
            cell.params._params.update(self.params._params)
        self.params._params.update(cell.params._params)
        self._cells.append(cell)

    @property
    def state_info(self) -> list[Any]:
        return [info for cell in self._cells for info in cell.state_info]

    def begin_state(self, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        self._check_unmodified()
        return [state for cell in self._cells for state in cell.begin_state(**kwargs)]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        for cell in self._cells:
            args = cell.unpack_weights(args)
        return dict(args)

    def pack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        for cell in self._cells:
            args = cell.pack_weights(args)
        return dict(args)

    def _split_states(self, states: Sequence[Any]) -> list[Sequence[Any]]:
        """The states of each cell."""
        parts, start = [], 0
        for cell in self._cells:
            end = start + len(cell.state_info)
            parts.append(states[start:end])
            start = end
        return parts


class SequentialRNNCell(_Container):
    """A chain of cells; its states are those of all cells."""

    def __init__(self, params: RNNParams | None = None) -> None:
        super().__init__(params)

    def add(self, cell: BaseRNNCell) -> None:
        """Appends a cell."""
        self._take(cell)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        self._counter += 1
        found: list[Any] = []
        for cell, own in zip(self._cells, self._split_states(states)):
            if isinstance(cell, BidirectionalCell):
                raise AssertionError("a BidirectionalCell makes no single steps: use unroll")
            inputs, new = cell(inputs, own)
            found += new
        return inputs, found

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Sequence[Symbol] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        self.reset()
        found: list[Any] = []
        states = self._split_states(self.begin_state() if begin_state is None else begin_state)
        for k, (cell, own) in enumerate(zip(self._cells, states)):
            merge = merge_outputs if k == len(self._cells) - 1 else None
            inputs, new = cell.unroll(length, inputs, own, layout, merge)
            found.extend(new)
        return inputs, found


class BidirectionalCell(_Container):
    """One cell reads a sequence forwards, the other backwards; their outputs are joined. It can only be unrolled."""

    def __init__(
        self,
        l_cell: BaseRNNCell,
        r_cell: BaseRNNCell,
        params: RNNParams | None = None,
        output_prefix: str = "bi_",
    ) -> None:
        super().__init__(params)
        self._output_prefix = output_prefix
        self._take(l_cell)
        self._take(r_cell)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        raise NotImplementedError("Bidirectional cannot be stepped. Please use unroll")

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Sequence[Symbol] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        self.reset()
        steps, axis = as_sequence(length, inputs, layout, False)
        l_begin, r_begin = self._split_states(self.begin_state() if begin_state is None else begin_state)
        l_cell, r_cell = self._cells
        l_out, l_states = l_cell.unroll(length, steps, l_begin, layout, merge_outputs)
        r_out, r_states = r_cell.unroll(length, list(reversed(steps)), r_begin, layout, merge_outputs)
        if merge_outputs is None:
            merge_outputs = isinstance(l_out, Symbol) and isinstance(r_out, Symbol)
            if not merge_outputs:
                l_out, r_out = (
                    list(symbol.SliceChannel(x, axis=axis, num_outputs=length, squeeze_axis=1))
                    if isinstance(x, Symbol)
                    else x
                    for x in (l_out, r_out)
                )
        states = [l_states, r_states]
        if merge_outputs:
            name = f"{self._output_prefix}out"
            return symbol.Concat(l_out, symbol.reverse(r_out, axis=axis), dim=2, name=name), states
        pairs = enumerate(zip(l_out, reversed(r_out)))
        return [symbol.Concat(x, y, dim=1, name=f"{self._output_prefix}t{k}") for k, (x, y) in pairs], states
