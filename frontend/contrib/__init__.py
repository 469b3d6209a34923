"""`mx.contrib`: operators that MXNet calls experimental, once more, automatic mixed precision, `DataLoaderIter`,
vocabularies, training with less variance (`svrg_optimization`), and `mx.onnx` under its old name."""

from gluonjit.contrib import amp, io, onnx, svrg_optimization, text
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import contrib as nd
from gluonjit.symbol import contrib as sym

ndarray = nd
symbol = sym

__all__ = ["amp", "io", "nd", "ndarray", "onnx", "svrg_optimization", "sym", "symbol", "text"]

_mxnet_names.explain(__name__)
