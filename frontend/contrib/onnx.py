"""`mx.contrib.onnx`: the functions of `mx.onnx` where MXNet 1.2 to 1.9 has them."""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.onnx import export_model, get_model_metadata, import_model, import_to_gluon

__all__ = ["export_model", "get_model_metadata", "import_model", "import_to_gluon"]

_mxnet_names.explain(__name__)
