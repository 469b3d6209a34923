"""`mx.onnx`: models as ONNX files, and ONNX files as models."""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.onnx.exporting.onnx_export import export_model, get_operator_support
from gluonjit.onnx.importing.onnx_import import get_model_metadata, import_model, import_to_gluon

__all__ = ["export_model", "get_model_metadata", "get_operator_support", "import_model", "import_to_gluon"]

_mxnet_names.explain(__name__)
