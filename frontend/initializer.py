"""`mx.init`, `mx.initializer`: how parameters get their first values (`training.initializers`)."""

from gluonjit.language.mxnet_names import forward as _forward
from gluonjit.training import initializers as _initializers
from gluonjit.training.initializers import *  # noqa: F403

__getattr__ = _forward(__name__, _initializers)
