"""MXNet's `gluon.contrib`: more blocks, and the estimator."""

from gluonjit.gluon.contrib import cnn, estimator, nn, rnn

__all__ = ["cnn", "estimator", "nn", "rnn"]
