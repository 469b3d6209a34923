"""MXNet's `gluon.contrib`: more blocks, and the estimator."""

from gluonjit.gluon.contrib import cnn, data, estimator, nn, rnn

__all__ = ["cnn", "data", "estimator", "nn", "rnn"]
