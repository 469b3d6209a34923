"""Predefined models, and the local folder with their published weights."""

from gluonjit.gluon.model_zoo import model_store, vision
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = ["model_store", "vision"]

_mxnet_names.explain(__name__)
