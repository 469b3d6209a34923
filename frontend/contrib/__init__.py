"""`mx.contrib`: operators that MXNet calls experimental, once more, automatic mixed precision, `DataLoaderIter`,
vocabularies, training with less variance (`svrg_optimization`), TensorBoard, `mx.autograd` as it once was, and
`mx.onnx` under its old name."""

from gluonjit.contrib import amp, autograd, io, onnx, quantization, svrg_optimization, tensorboard, text
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import contrib as nd
from gluonjit.symbol import contrib as sym

ndarray = nd
symbol = sym

__all__ = [
    "amp",
    "autograd",
    "io",
    "nd",
    "ndarray",
    "onnx",
    "quantization",
    "svrg_optimization",
    "sym",
    "symbol",
    "tensorboard",
    "text",
]

_mxnet_names.explain(__name__)
