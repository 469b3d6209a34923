"""`mx.contrib`: operators that MXNet calls experimental, once more, automatic mixed precision, and
`DataLoaderIter`."""

from gluonjit.contrib import amp, io
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import contrib as nd
from gluonjit.symbol import contrib as sym

ndarray = nd
symbol = sym

__all__ = ["amp", "io", "nd", "ndarray", "sym", "symbol"]

_mxnet_names.explain(__name__)
