"""`mx.rnn.rnn`: unrolling, and checkpoints."""

from gluonjit.rnn.checkpoints import do_rnn_checkpoint, load_rnn_checkpoint, rnn_unroll, save_rnn_checkpoint
from gluonjit.rnn.symbolic_cells import BaseRNNCell

__all__ = [
    "BaseRNNCell",
    "do_rnn_checkpoint",
    "load_rnn_checkpoint",
    "rnn_unroll",
    "save_rnn_checkpoint",
]
