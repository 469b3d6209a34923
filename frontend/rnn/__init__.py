"""`mx.rnn`: the recurrent cells over symbols that preceded Gluon, their checkpoints, and sentences in buckets."""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.rnn import io, rnn, rnn_cell
from gluonjit.rnn.io import *  # noqa: F403
from gluonjit.rnn.rnn import *  # noqa: F403
from gluonjit.rnn.rnn_cell import *  # noqa: F403

__all__ = ["io", "rnn", "rnn_cell", *io.__all__, *rnn.__all__, *rnn_cell.__all__]

_mxnet_names.explain(__name__)
