"""`mx.notebook`: callbacks that show training in notebooks."""

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.notebook import callback as callback

_mxnet_names.explain(__name__)
