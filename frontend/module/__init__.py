"""`mx.mod`: a model as a graph, its parameters and the names of its inputs, the interface of MXNet 0.x.

`bind`, then `init_params`, `set_params` or `load`; then `forward`, `predict` or `score`; or `fit`, which does it all.
"""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.module.base_module import BaseModule
from gluonjit.module.bucketing_module import BucketingModule
from gluonjit.module.module import Module
from gluonjit.module.python_module import PythonLossModule, PythonModule
from gluonjit.module.sequential_module import SequentialModule

__all__ = ["BaseModule", "BucketingModule", "Module", "PythonLossModule", "PythonModule", "SequentialModule"]

_mxnet_names.explain(__name__)
