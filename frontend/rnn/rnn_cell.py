"""`mx.rnn.rnn_cell`: the cells."""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.rnn.cell_containers import BidirectionalCell, SequentialRNNCell
from gluonjit.rnn.convolutional_cells import BaseConvRNNCell, ConvGRUCell, ConvLSTMCell, ConvRNNCell
from gluonjit.rnn.fused_cell import FusedRNNCell
from gluonjit.rnn.modifiers import ModifierCell, ResidualCell, ZoneoutCell
from gluonjit.rnn.symbolic_cells import BaseRNNCell, DropoutCell, GRUCell, LSTMCell, RNNCell, RNNParams

__all__ = [
    "BaseConvRNNCell",
    "BaseRNNCell",
    "BidirectionalCell",
    "ConvGRUCell",
    "ConvLSTMCell",
    "ConvRNNCell",
    "DropoutCell",
    "FusedRNNCell",
    "GRUCell",
    "LSTMCell",
    "ModifierCell",
    "RNNCell",
    "RNNParams",
    "ResidualCell",
    "SequentialRNNCell",
    "ZoneoutCell",
]

_mxnet_names.explain(__name__)
