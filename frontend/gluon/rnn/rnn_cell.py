"""Every cell, under the module name that MXNet has, with the helpers that code for MXNet imports from there."""

from gluonjit.gluon.rnn.basic_cells import GRUCell, LSTMCell, RNNCell
from gluonjit.gluon.rnn.container_cells import BidirectionalCell, HybridSequentialRNNCell, SequentialRNNCell
from gluonjit.gluon.rnn.modifier_cells import DropoutCell, ModifierCell, ResidualCell, ZoneoutCell
from gluonjit.gluon.rnn.recurrent_cell import HybridRecurrentCell, RecurrentCell
from gluonjit.gluon.rnn.sequences import (
    _format_sequence,
    _get_begin_state,
    _mask_sequence_variable_length,
    _reverse_sequences,
)

__all__ = [
    "BidirectionalCell",
    "DropoutCell",
    "GRUCell",
    "HybridRecurrentCell",
    "HybridSequentialRNNCell",
    "LSTMCell",
    "ModifierCell",
    "RNNCell",
    "RecurrentCell",
    "ResidualCell",
    "SequentialRNNCell",
    "ZoneoutCell",
    "_format_sequence",
    "_get_begin_state",
    "_mask_sequence_variable_length",
    "_reverse_sequences",
]
