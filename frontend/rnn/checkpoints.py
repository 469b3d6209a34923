"""Checkpoints of networks with recurrent cells: in files, weights are split by gate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.model import load_checkpoint, save_checkpoint
from gluonjit.rnn.symbolic_cells import BaseRNNCell, Weights
from gluonjit.symbol import Symbol

Cells = BaseRNNCell | Sequence[BaseRNNCell]


def _as_cells(cells: Cells) -> Sequence[BaseRNNCell]:
    return [cells] if isinstance(cells, BaseRNNCell) else cells


def rnn_unroll(
    cell: BaseRNNCell,
    length: int,
    inputs: Any = None,
    begin_state: Any = None,
    input_prefix: str = "",
    layout: str = "NTC",
) -> tuple[Any, list[Any]]:
    """Deprecated: `cell.unroll`. `input_prefix` has no effect (with MXNet 1.9.1 the call fails)."""
    warnings.warn("rnn_unroll is deprecated. Please call cell.unroll directly.", stacklevel=2)
    return cell.unroll(length, inputs, begin_state, layout)


def save_rnn_checkpoint(
    cells: Cells, prefix: str, epoch: int, symbol: Symbol, arg_params: Weights, aux_params: Weights
) -> None:
    """`mx.model.save_checkpoint`, with the cells' weights unpacked."""
    for cell in _as_cells(cells):
        arg_params = cell.unpack_weights(arg_params)
    save_checkpoint(prefix, epoch, symbol, arg_params, aux_params)


def load_rnn_checkpoint(cells: Cells, prefix: str, epoch: int) -> tuple[Symbol, Weights, Weights]:
    """`mx.model.load_checkpoint` of what `save_rnn_checkpoint` wrote: (graph, arguments, auxiliary states)."""
    graph, args, aux = load_checkpoint(prefix, epoch)
    for cell in _as_cells(cells):
        args = cell.pack_weights(args)
    return graph, args, aux


def do_rnn_checkpoint(cells: Cells, prefix: str, period: int = 1) -> Callable[..., None]:
    """A callback for the end of an epoch that saves a checkpoint every `period` epochs."""
    period = max(1, int(period))

    def callback(iter_no: int, sym: Any = None, arg: Any = None, aux: Any = None) -> None:
        if (iter_no + 1) % period == 0:
            save_rnn_checkpoint(cells, prefix, iter_no + 1, sym, arg, aux)

    return callback
