"""`mx.io`: iterators over batches of data (`data.iterators`, `data.comma_separated`, `data.libsvm`,
`image.record_iterators`)."""

import sys as _sys

from gluonjit.data import iterators as _iterators
from gluonjit.data.comma_separated import CSVIter as CSVIter
from gluonjit.data.iterators import *  # noqa: F403
from gluonjit.data.libsvm import LibSVMIter as LibSVMIter
from gluonjit.image.record_iterators import *  # noqa: F403
from gluonjit.language.mxnet_names import forward as _forward

__getattr__ = _forward(__name__, _iterators)

io = utils = _sys.modules[__name__]
"""MXNet's files, which programs import."""
