"""`gluon.contrib.data`: a sampler and texts for language models."""

from gluonjit.gluon.contrib.data import text
from gluonjit.gluon.data.sampler import IntervalSampler
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = ["IntervalSampler", "text"]

_mxnet_names.explain(__name__)
