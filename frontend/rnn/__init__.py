"""`mx.rnn`: the recurrent cells over symbols that preceded Gluon, their checkpoints, and sentences in buckets."""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.rnn import io, rnn, rnn_cell
from gluonjit.rnn.cell_containers import BidirectionalCell, SequentialRNNCell
from gluonjit.rnn.checkpoints import do_rnn_checkpoint, load_rnn_checkpoint, rnn_unroll, save_rnn_checkpoint
from gluonjit.rnn.convolutional_cells import BaseConvRNNCell, ConvGRUCell, ConvLSTMCell, ConvRNNCell
from gluonjit.rnn.fused_cell import FusedRNNCell
from gluonjit.rnn.modifiers import ModifierCell, ResidualCell, ZoneoutCell
from gluonjit.rnn.sentences import BucketSentenceIter, encode_sentences
from gluonjit.rnn.symbolic_cells import BaseRNNCell, DropoutCell, GRUCell, LSTMCell, RNNCell, RNNParams

__all__ = [
    "BaseConvRNNCell",
    "BaseRNNCell",
    "BidirectionalCell",
    "BucketSentenceIter",
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
    "do_rnn_checkpoint",
    "encode_sentences",
    "io",
    "load_rnn_checkpoint",
    "rnn",
    "rnn_cell",
    "rnn_unroll",
    "save_rnn_checkpoint",
]

_mxnet_names.explain(__name__)
