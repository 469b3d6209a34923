"""`mx.onnx`: models as ONNX files, and ONNX files as models."""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.onnx.exporting import export_model, get_operator_support

__all__ = ["export_model", "get_operator_support"]

_mxnet_names.explain(__name__)
