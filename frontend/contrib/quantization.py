"""`mx.contrib.quantization`, empty: scripts for evaluation import all of it, and use it for int8 only.

Its functions are missing, and asking for one says what to do instead.
"""

from gluonjit.language import mxnet_names as _mxnet_names

__all__: list[str] = []

_mxnet_names.explain(__name__)
