"""`mx.io`: iterators over batches of data (`data.iterators`, `data.libsvm`, `data.image_records`)."""

from gluonjit.data import iterators as _iterators
from gluonjit.data.image_records import ImageRecordIter as ImageRecordIter
from gluonjit.data.image_records import ImageRecordUInt8Iter as ImageRecordUInt8Iter
from gluonjit.data.iterators import *  # noqa: F403
from gluonjit.data.libsvm import LibSVMIter as LibSVMIter
from gluonjit.language.mxnet_names import forward as _forward

__getattr__ = _forward(__name__, _iterators)
