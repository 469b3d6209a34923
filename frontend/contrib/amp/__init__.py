"""Automatic mixed precision."""

from gluonjit.contrib.amp import amp
from gluonjit.contrib.amp.amp import init, init_trainer, scale_loss, unscale
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = ["amp", "init", "init_trainer", "scale_loss", "unscale"]

_mxnet_names.explain(__name__)
