"""`mx.io`: iterators over batches, as Module and old training loops take them."""

from __future__ import annotations

import queue
import threading
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit import ndarray as nd
from gluonjit.base import MXNetError, mx_real_t
from gluonjit.files import idx
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.sparse_arrays import CSRNDArray

__all__ = [
    "DataBatch",
    "DataDesc",
    "DataIter",
    "MNISTIter",
    "MXDataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
]


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """Name and shape of an array in a batch, with the attributes `dtype` and `layout`.

    >>> desc = mx.io.DataDesc("data", (32, 3, 224, 224))
    >>> desc.name, desc.shape, desc.layout
    ('data', (32, 3, 224, 224), 'NCHW')
    """

    dtype: Any
    layout: str | None

    def __new__(
        cls, name: str, shape: tuple[int, ...], dtype: Any = mx_real_t, layout: str | None = "NCHW"
    ) -> DataDesc:
        desc = super().__new__(cls, name, shape)
        desc.dtype = dtype
        desc.layout = layout
        return desc

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """The index of the batch axis (N) in a layout; -1 if the layout has no N."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(shapes: Sequence[tuple[str, Any]], types: Sequence[tuple[str, Any]] | None) -> list[DataDesc]:
        """Descriptions from (name, shape) and (name, element type) pairs."""
        if types is None:
            return [DataDesc(name, shape) for name, shape in shapes]
        dtypes = dict(types)
        return [DataDesc(name, shape, dtypes[name]) for name, shape in shapes]


class DataBatch:
    """Lists of arrays, data and labels. The last `pad` examples only fill the batch.

    >>> batch = mx.io.DataBatch([mx.nd.ones((4, 3))], pad=1)
    >>> batch.data[0].shape, batch.pad
    ((4, 3), 1)
    """

    def __init__(
        self,
        data: Sequence[NDArray] | None,
        label: Sequence[NDArray] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: Any = None,
        provide_label: Any = None,
    ) -> None:
        for what, value in (("Data", data), ("Label", label)):
            if value is not None and not isinstance(value, (list, tuple)):
                raise AssertionError(f"{what} must be list of NDArrays")
        self.data: Any = data  # programs index it without asking whether it is None
        self.label: Any = label
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    def __str__(self) -> str:
        data = [x.shape for x in self.data or ()]
        label = [x.shape for x in self.label] if self.label else None
        return f"{type(self).__name__}: data shapes: {data} label shapes: {label}"


class DataIter:
    """The base of iterators: a subclass defines `iter_next`, `getdata`, `getlabel` and `getpad`, or `next`.

    >>> class Ones(mx.io.DataIter):
    ...     left = 2
    ...
    ...     def next(self):
    ...         if not self.left:
    ...             raise StopIteration
    ...         self.left -= 1
    ...         return mx.io.DataBatch([mx.nd.ones((self.batch_size, 3))])
    >>> [batch.data[0].shape for batch in Ones(batch_size=4)]
    [(4, 3), (4, 3)]
    """

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> DataIter:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def reset(self) -> None:
        """Goes back to the first batch."""

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def iter_next(self) -> bool:
        """Advances to the next batch; False if there is none."""
        raise NotImplementedError

    def getdata(self) -> Any:
        """The current batch's arrays."""
        raise NotImplementedError

    def getlabel(self) -> Any:
        raise NotImplementedError

    def getindex(self) -> Any:
        return None

    def getpad(self) -> int | None:
        return None


class MXDataIter(DataIter):
    """The base of the iterators over files. Each has one array of data and one of labels, which `getdata` and
    `getlabel` return without a list around them.

    >>> issubclass(mx.io.CSVIter, mx.io.MXDataIter)
    True
    """

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return DataBatch([self.getdata()], [self.getlabel()], self.getpad(), self.getindex())


class _CurrentBatchIter(DataIter):
    """An iterator that keeps its current batch."""

    current_batch: Any = None

    def getdata(self) -> list[NDArray]:
        return self.current_batch.data

    def getlabel(self) -> list[NDArray]:
        return self.current_batch.label

    def getindex(self) -> Any:
        return self.current_batch.index

    def getpad(self) -> int | None:
        return self.current_batch.pad


class ResizeIter(_CurrentBatchIter):
    """`size` batches of another iterator, which is reset if it ends too early.

    >>> short = mx.io.NDArrayIter(np.ones((4, 3)), batch_size=2)
    >>> len(list(mx.io.ResizeIter(short, size=5)))
    5
    """

    def __init__(self, data_iter: Any, size: int, reset_internal: bool = True) -> None:
        super().__init__(data_iter.batch_size)
        self.data_iter = data_iter
        self.size = size
        self.reset_internal = reset_internal
        self.cur = 0
        self.provide_data = self.data_iter.provide_data
        self.provide_label = self.data_iter.provide_label
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key

    def reset(self) -> None:
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def iter_next(self) -> bool:
        if self.cur == self.size:
            return False
        try:
            self.current_batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            self.current_batch = self.data_iter.next()
        self.cur += 1
        return True


class PrefetchingIter(_CurrentBatchIter):
    """Combines the batches of several iterators, each of which runs one batch ahead in its own thread.

    `rename_data`, `rename_label`: for each iterator, a dict of new names.

    >>> inner = mx.io.NDArrayIter(np.ones((4, 3)), batch_size=2)
    >>> len(list(mx.io.PrefetchingIter(inner)))
    2
    """

    def __init__(self, iters: Any, rename_data: Any = None, rename_label: Any = None) -> None:
        self.iters = iters if isinstance(iters, list) else [iters]
        if not self.iters:
            raise AssertionError("PrefetchingIter needs an iterator")
        self.n_iter = len(self.iters)
        self.rename_data = rename_data
        self.rename_label = rename_label
        super().__init__(self.provide_data[0][1][0])
        self._start()

    def _start(self) -> None:
        self._stop = threading.Event()
        self._queues: list[queue.Queue[Any]] = [queue.Queue(1) for _ in self.iters]
        self._threads = [
            threading.Thread(target=_fetch, args=(it, q, self._stop), daemon=True)
            for it, q in zip(self.iters, self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def _finish(self) -> None:
        self._stop.set()
        for q, thread in zip(self._queues, self._threads):
            while thread.is_alive():
                try:
                    q.get(timeout=0.05)  # makes room for a batch that the thread still wants to put
                except queue.Empty:
                    continue
            thread.join()

    def __del__(self) -> None:
        if hasattr(self, "_stop"):
            self._stop.set()

    def _described(self, kind: str, rename: Any) -> list[DataDesc]:
        result = []
        for k, it in enumerate(self.iters):
            for desc in getattr(it, kind):
                desc = desc if isinstance(desc, DataDesc) else DataDesc(*desc)
                result.append(DataDesc(rename[k][desc.name], desc.shape, desc.dtype) if rename else desc)
        return result

    @property
    def provide_data(self) -> list[DataDesc]:
        return self._described("provide_data", self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        return self._described("provide_label", self.rename_label)

    def reset(self) -> None:
        self._finish()
        for it in self.iters:
            it.reset()
        self._start()

    def iter_next(self) -> bool:
        batches = []
        for q in self._queues:
            batch = q.get()
            if isinstance(batch, BaseException):
                raise batch
            if batch is None:
                q.put(None)  # and so it stays until reset
            batches.append(batch)
        ended = [batch is None for batch in batches]
        if any(ended):
            if not all(ended):
                raise AssertionError("Number of entry mismatches between iterators")
            return False
        if any(batch.pad != batches[0].pad for batch in batches):
            raise AssertionError("Number of entry mismatches between iterators")
        self.current_batch = DataBatch(
            [x for batch in batches for x in batch.data],
            [x for batch in batches for x in batch.label],
            batches[0].pad,
            batches[0].index,
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        return True

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return self.current_batch


def _fetch(source: DataIter, out: queue.Queue[Any], stop: threading.Event) -> None:
    """Puts all batches of `source` into `out`, then None or an error. Holds no reference to the PrefetchingIter."""
    done = False
    while not done and not stop.is_set():
        item: Any
        try:
            item = source.next()
        except StopIteration:
            item, done = None, True
        except BaseException as e:
            item, done = e, True
        while not stop.is_set():
            try:
                out.put(item, timeout=0.05)
                break
            except queue.Full:
                continue


class NDArrayIter(DataIter):
    """Batches from arrays: an array, a list of them or a dict of them by name, for data and for labels.

    `last_batch_handle`: what happens to examples that do not fill a batch. 'pad' fills it up from the start, 'discard'
    drops them, 'roll_over' keeps them for the next epoch. The batch axis is the N in `layout`.

    >>> iterator = mx.io.NDArrayIter(np.arange(5), np.arange(5), batch_size=2)
    >>> [(batch.data[0].asnumpy().tolist(), batch.pad) for batch in iterator]
    [([0.0, 1.0], 0), ([2.0, 3.0], 0), ([4.0, 0.0], 1)]
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str = "NCHW",
    ) -> None:
        super().__init__(batch_size)
        if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ValueError(f"batch_size is a number of examples, 1 or more, got {batch_size!r}")
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ValueError(f"last_batch_handle is 'pad', 'discard' or 'roll_over', not {last_batch_handle!r}")
        self.data = _named(data, data_name)
        if not self.data:
            raise AssertionError("NDArrayIter needs data")
        self.label = [] if label is None else _named(label, label_name)
        if last_batch_handle != "discard" and any(isinstance(x, CSRNDArray) for _, x in [*self.data, *self.label]):
            raise NotImplementedError(
                "`NDArrayIter` only supports ``CSRNDArray`` with `last_batch_handle` set to `discard`."
            )
        self.layout = layout
        self._axis = max(layout.find("N"), 0)
        self.num_data = self.data[0][1].shape[self._axis]
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.idx = np.arange(self.num_data)
        self._shuffled = np.arange(self.num_data)
        """The examples in the order of this pass. MXNet moves them about, so that each pass permutes the last one's."""
        self._left: np.ndarray = self.idx[:0]
        """Examples left over from the previous epoch, which come first."""
        self.hard_reset()

    @property
    def provide_data(self) -> list[DataDesc]:
        return [self._describe(name, x) for name, x in self.data]

    @property
    def provide_label(self) -> list[DataDesc]:
        return [self._describe(name, x) for name, x in self.label]

    def _describe(self, name: str, x: NDArray) -> DataDesc:
        shape = (*x.shape[: self._axis], self.batch_size, *x.shape[self._axis + 1 :])
        return DataDesc(name, shape, x.dtype, self.layout)

    def hard_reset(self) -> None:
        """Goes back to the first batch, with nothing left over."""
        self._left = self.idx[:0]
        self.reset()

    def reset(self) -> None:
        if self.shuffle:
            np.random.shuffle(self.idx)
            self._shuffled = self._shuffled[self.idx]
        self._order = np.concatenate([self._left, self._shuffled])
        self._rolled_over = len(self._left)
        self._left = self.idx[:0]
        self.cursor = -self.batch_size

    def iter_next(self) -> bool:
        self.cursor += self.batch_size
        rest = len(self._order) - self.cursor
        if rest >= self.batch_size:
            return True
        if rest <= 0 or self.last_batch_handle == "discard":
            return False
        if self.last_batch_handle == "roll_over":
            self._left = self._order[self.cursor :].copy()
            return False
        return True

    def _picked(self, arrays: list[tuple[str, NDArray]]) -> list[NDArray]:
        """The current batch's slice of each array, which wraps around after the last example."""
        positions = np.arange(self.cursor, self.cursor + self.batch_size)
        picked = self._order[positions % len(self._order)]
        batch = [
            x.take_rows(picked)._densified()  # dense as MXNet's batches, but not all rows at once
            if isinstance(x, CSRNDArray) and self._axis == 0
            else np.ascontiguousarray(x._array.take(picked, self._axis))
            for _, x in arrays
        ]
        return [NDArray._wrap(x) for x in batch]

    def getdata(self) -> list[NDArray]:
        return self._picked(self.data)

    def getlabel(self) -> list[NDArray]:
        return self._picked(self.label)

    def getpad(self) -> int:
        if self.cursor == 0 and self._rolled_over:  # MXNet counts these, too
            return self._rolled_over
        return max(self.cursor + self.batch_size - len(self._order), 0)


def _named(data: Any, default: str) -> list[tuple[str, NDArray]]:
    """Arrays by name, in the order of the names. Lists become float32, as everywhere."""
    if isinstance(data, (np.ndarray, NDArray)):
        data = [data]
    if isinstance(data, list):
        names = [default] if len(data) == 1 else [f"_{k}_{default}" for k in range(len(data))]
        data = dict(zip(names, data))
    if not isinstance(data, dict):
        raise TypeError("Input must be NDArray, numpy.ndarray, a list of them or dict with them as values")
    arrays = {}
    for name, value in data.items():
        try:
            arrays[name] = value if isinstance(value, NDArray) else nd.array(value)
        except TypeError as e:
            raise TypeError(f"Invalid type '{type(value)}' for {name}, should be NDArray or numpy.ndarray") from e
    return sorted(arrays.items())


class MNISTIter(MXDataIter, NDArrayIter):
    """Batches from a file of images and one of labels in MNIST's format: images are f32[batch, 1, height, width] with
    values below 1 (`flat`: [batch, height * width]), labels f32[batch].

    Examples that do not fill a batch are dropped. The order is shuffled once, with `seed`, not for each epoch; MXNet
    draws other numbers. Of `num_parts` equal parts of the files, `part_index` is read. `silent`, `prefetch_buffer` and
    `ctx` have no effect; nor have `data_shape` and `input_shape`, which scripts give and MXNet passes over, too.
    """

    def __init__(
        self,
        image: str = "./train-images-idx3-ubyte",
        label: str = "./train-labels-idx1-ubyte",
        batch_size: int = 128,
        shuffle: bool = True,
        flat: bool = False,
        seed: int = 0,
        silent: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
        prefetch_buffer: int = 4,
        data_name: str = "data",
        label_name: str = "softmax_label",
        ctx: Any = None,
        data_shape: Any = None,
        input_shape: Any = None,
    ) -> None:
        images, labels = idx.read(image, 3), idx.read(label, 1)
        if len(images) != len(labels):
            raise MXNetError(f"{image} has {len(images)} images, {label} {len(labels)} labels")
        if not 0 <= part_index < num_parts:
            raise MXNetError(f"MNISTIter: part_index is {part_index}, of {num_parts} parts")
        size = len(images) // num_parts
        part = slice(part_index * size, (part_index + 1) * size)
        images, labels = images[part].astype(np.float32) / 256, labels[part].astype(np.float32)
        if isinstance(batch_size, int) and size < batch_size:
            raise MXNetError(f"MNISTIter: a batch of {batch_size}, but {size} images")
        if shuffle:
            order = np.random.RandomState(seed).permutation(size)
            images, labels = images[order], labels[order]
        images = images.reshape(size, -1) if flat else images[:, None]
        NDArrayIter.__init__(self, images, labels, batch_size, False, "discard", data_name, label_name)

    def getdata(self) -> Any:
        return super().getdata()[0]

    def getlabel(self) -> Any:
        return super().getlabel()[0]
