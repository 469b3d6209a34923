"""`mx.contrib`: operators that MXNet calls experimental, once more, and automatic mixed precision."""

from gluonjit import mxnet_api as _mxnet_api
from gluonjit.contrib import amp
from gluonjit.ndarray import contrib as nd
from gluonjit.symbol import contrib as sym

ndarray = nd
symbol = sym

__all__ = ["amp", "nd", "ndarray", "sym", "symbol"]

_mxnet_api.explain(__name__)
