"""Cells made of cells: stacks, and two cells that read a sequence in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from gluonjit.gluon.parameter import ParameterDict
from gluonjit.gluon.rnn.recurrent_cell import HybridRecurrentCell, RecurrentCell, States
from gluonjit.gluon.rnn.sequences import (
    _format_sequence,
    _get_begin_state,
    _mask_sequence_variable_length,
    _reverse_sequences,
    tensor_types,
)
from gluonjit.gluon.utils import _indent

__all__ = ["BidirectionalCell", "HybridSequentialRNNCell", "SequentialRNNCell"]


class _CellContainer(RecurrentCell):
    """A cell that contains others; its states are those of all children in order."""

    _children: dict[str, RecurrentCell]  # type: ignore[assignment]

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return [info for cell in self._children.values() for info in cell.state_info(batch_size)]

    def begin_state(self, **kwargs: Any) -> States:  # type: ignore[override]
        self._refuse_if_modified()
        return [state for cell in self._children.values() for state in cell.begin_state(**kwargs)]


class _CellStack(_CellContainer):
    """The base of `SequentialRNNCell` and `HybridSequentialRNNCell`: each cell's output is the next one's input."""

    def add(self, cell: RecurrentCell) -> None:
        """Appends a cell."""
        self.register_child(cell)

    def __repr__(self) -> str:
        lines = "\n".join(f"({key}): {_indent(repr(cell), 2)}" for key, cell in self._children.items())
        return f"{type(self).__name__}(\n{lines}\n)"

    def __getitem__(self, i: int) -> RecurrentCell:
        return self._children[str(i)]

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[RecurrentCell]:
        return iter(list(self._children.values()))

    def _through(
        self, inputs: Any, states: States, run: Callable[[int, RecurrentCell, Any, States], tuple[Any, States]]
    ) -> tuple[Any, States]:
        """Calls `run(number, cell, inputs, states)` for each cell with its own states: (output, all new states)."""
        new: States = []
        first = 0
        for k, cell in enumerate(self._children.values()):
            count = len(cell.state_info())
            inputs, own = run(k, cell, inputs, states[first : first + count])
            new.extend(own)
            first += count
        return inputs, new

    def __call__(self, inputs: Any, states: States) -> tuple[Any, States]:
        self._counter += 1
        if any(isinstance(cell, BidirectionalCell) for cell in self._children.values()):
            raise AssertionError("Bidirectional cells cannot be stepped. Please use unroll")
        return self._through(inputs, states, lambda k, cell, x, own: cell(x, own))

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: States | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, States]:
        """Unrolls cell by cell: see `RecurrentCell.unroll`."""
        self.reset()
        inputs, _, F, batch_size = _format_sequence(length, inputs, layout, None)
        begin_state = _get_begin_state(self, F, begin_state, inputs, batch_size)
        last = len(self._children) - 1

        def run(k: int, cell: RecurrentCell, x: Any, own: States) -> tuple[Any, States]:
            merge = merge_outputs if k == last else None
            return cell.unroll(length, x, own, layout, merge, valid_length)

        return self._through(inputs, begin_state, run)


class SequentialRNNCell(_CellStack):
    """A stack of cells.

    Each cell reads the output of the one before; the states are all cells' states in a row.

    >>> stack = rnn.SequentialRNNCell()
    >>> stack.add(rnn.LSTMCell(5)), stack.add(rnn.GRUCell(4))
    (None, None)
    >>> stack.initialize()
    >>> output, states = stack(mx.nd.ones((2, 3)), stack.begin_state(batch_size=2))
    >>> output.shape, len(states)
    ((2, 4), 3)
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)


class HybridSequentialRNNCell(_CellStack, HybridRecurrentCell):
    """A stack of hybrid cells.

    As `SequentialRNNCell`; compiled into one graph.

    >>> stack = rnn.HybridSequentialRNNCell()
    >>> stack.add(rnn.LSTMCell(5))
    >>> stack.initialize()
    >>> stack.hybridize()
    >>> stack(mx.nd.ones((2, 3)), stack.begin_state(batch_size=2))[0].shape
    (2, 5)
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, inputs: Any, states: States) -> tuple[Any, States]:  # type: ignore[override]
        return self(inputs, states)


class BidirectionalCell(_CellContainer, HybridRecurrentCell):
    """One cell reads the sequence forward, the other backward; their outputs are concatenated step by step.

    It can be unrolled only, not stepped (NotImplementedError). `valid_length` reverses only what is valid.

    >>> cell = rnn.BidirectionalCell(rnn.LSTMCell(5), rnn.LSTMCell(5))
    >>> cell.initialize()
    >>> outputs, states = cell.unroll(4, mx.nd.ones((2, 4, 3)), merge_outputs=True)
    >>> outputs.shape, len(states)
    ((2, 4, 10), 4)
    """

    def __init__(self, l_cell: RecurrentCell, r_cell: RecurrentCell, output_prefix: str = "bi_") -> None:
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def __call__(self, inputs: Any, states: States) -> NoReturn:
        raise NotImplementedError("Bidirectional cannot be stepped. Please use unroll")

    def __repr__(self) -> str:
        left, right = self._children.values()
        return f"{type(self).__name__}(forward={left}, backward={right})"

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: States | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, States]:
        """Unrolls both cells: see `RecurrentCell.unroll`. The states are the left cell's, then the right one's."""
        self.reset()
        inputs, axis, F, batch_size = _format_sequence(length, inputs, layout, False)
        backward = _reverse_sequences(inputs, length, valid_length)
        states = _get_begin_state(self, F, begin_state, inputs, batch_size)
        left, right = self._children.values()
        count = len(left.state_info(batch_size))
        left_out, left_states = left.unroll(length, inputs, states[:count], layout, merge_outputs, valid_length)
        right_out, right_states = right.unroll(length, backward, states[count:], layout, False, valid_length)
        right_out = _reverse_sequences(right_out, length, valid_length)
        if merge_outputs is None:
            merge_outputs = isinstance(left_out, tensor_types)
            left_out, _, _, _ = _format_sequence(None, left_out, layout, merge_outputs)
        if merge_outputs:
            merged = F.stack(*right_out, axis=axis)
            outputs = F.concat(left_out, merged, dim=2, name=f"{self._output_prefix}out")
        else:
            outputs = [
                F.concat(l, r, dim=1, name=f"{self._output_prefix}t{k}")
                for k, (l, r) in enumerate(zip(left_out, right_out))
            ]
        if valid_length is not None:
            outputs = _mask_sequence_variable_length(F, outputs, length, valid_length, axis, merge_outputs)
        return outputs, left_states + right_states
