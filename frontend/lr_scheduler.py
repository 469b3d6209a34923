"""`mx.lr_scheduler`: learning rates that change with the number of updates (`training.schedules`)."""

from gluonjit.language.mxnet_names import forward as _forward
from gluonjit.training import schedules as _schedules
from gluonjit.training.schedules import *  # noqa: F403

__getattr__ = _forward(__name__, _schedules)
