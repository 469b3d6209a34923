"""`mx.contrib.text.vocab`."""

from gluonjit.data.vocabulary import Vocabulary
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = ["Vocabulary"]

_mxnet_names.explain(__name__)
