"""`mx.contrib.text.utils`."""

from gluonjit.data.vocabulary import count_tokens_from_str
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = ["count_tokens_from_str"]

_mxnet_names.explain(__name__)
