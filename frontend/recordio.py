"""`mx.recordio`: files of records, with an index or without (`data.records`)."""

from gluonjit.data import records as _records
from gluonjit.data.records import *  # noqa: F403
from gluonjit.language.mxnet_names import forward as _forward

__getattr__ = _forward(__name__, _records)
