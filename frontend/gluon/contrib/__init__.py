"""The blocks of MXNet's `gluon.contrib`."""

from gluonjit.gluon.contrib import cnn, nn, rnn

__all__ = ["cnn", "nn", "rnn"]
