"""Automatic mixed precision."""

from gluonjit import mxnet_api as _mxnet_api
from gluonjit.contrib.amp import amp
from gluonjit.contrib.amp.amp import init, init_trainer, scale_loss, unscale

__all__ = ["amp", "init", "init_trainer", "scale_loss", "unscale"]

_mxnet_api.explain(__name__)
