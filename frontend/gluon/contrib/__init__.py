"""MXNet's `gluon.contrib`: more blocks, and the estimator."""

import typing as _typing

from gluonjit.language import mxnet_names as _mxnet_names

if _typing.TYPE_CHECKING:
    from gluonjit.gluon.contrib import cnn, data, estimator, nn, rnn

__all__ = ["cnn", "data", "estimator", "nn", "rnn"]

_mxnet_names.explain(__name__, __all__)
