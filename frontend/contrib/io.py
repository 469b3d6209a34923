"""`mx.contrib.io`: a Gluon DataLoader, as Module and other old training loops take batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gluonjit import ndarray as nd
from gluonjit.data.iterators import DataBatch, DataDesc, DataIter
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import NDArray

__all__ = ["DataLoaderIter"]


class DataLoaderIter(DataIter):
    """The batches (data, label) of `loader`, a DataLoader, converted to `dtype`; the last one is filled up with zeros.

    The size of batches is that of the first one. `pad` says how many examples of a batch are zeros.
    """

    def __init__(
        self,
        loader: Any,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
    ) -> None:
        self._loader = loader
        self._dtype = dtype
        data, label = next(iter(loader))
        super().__init__(data.shape[0])
        self.provide_data = [DataDesc(data_name, data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, label.shape, dtype)]
        self.reset()

    def reset(self) -> None:
        self._batches: Iterator[Any] = iter(self._loader)

    def next(self) -> DataBatch:
        data, label = next(self._batches)
        pad = self.batch_size - data.shape[0]
        data, label = (self._filled(x.astype(self._dtype), pad) for x in (data, label))
        return DataBatch(data=[data], label=[label], pad=pad, index=None)

    def _filled(self, x: NDArray, pad: int) -> NDArray:
        return nd.concat(x, nd.zeros((pad, *x.shape[1:]), dtype=x.dtype), dim=0) if pad else x


_mxnet_names.explain(__name__)
