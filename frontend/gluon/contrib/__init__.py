"""Blocks that MXNet keeps in `gluon.contrib`."""

from gluonjit.gluon.contrib import cnn, nn, rnn

__all__ = ["cnn", "nn", "rnn"]
