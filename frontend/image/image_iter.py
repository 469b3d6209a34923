"""`image.ImageIter`: batches of images from a record file or a list of files, augmented one by one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from gluonjit import ndarray as nd
from gluonjit.base import MXNetError
from gluonjit.data.iterators import DataBatch, DataIter
from gluonjit.data.records import MXIndexedRecordIO, MXRecordIO, unpack
from gluonjit.image.augment import CreateAugmenter
from gluonjit.image.image import imdecode
from gluonjit.language.kinds import as_current
from gluonjit.ndarray import NDArray

_LAST = ("pad", "discard", "roll_over")


class ImageIter(DataIter):
    """Batches f32[batch, 3, height, width] of images, red first, and labels f32[batch] or f32[batch, label_width].

    * `path_imgrec`: a record file; with its index `path_imgidx`, it can be shuffled and divided into parts.
    * `path_imglist`: a file of lines `key<TAB>label<TAB>…<TAB>path`, or `imglist`: a list of [label, path] or
      [labels, path]. Paths are relative to `path_root`. With a record file the list gives the labels, by key.
    * `shuffle` draws a new order (Python's `random`) at each reset. Of `num_parts` equal parts, `part_index` is read.
    * `aug_list`: augmenters, called in order; without it, `CreateAugmenter` makes them of the other settings.
    * `last_batch_handle`: 'pad' fills the last batch from the start (`pad` says how many), 'discard' drops it,
      'roll_over' puts what would be in it before the next pass.
    * `dtype` is the type that labels of a list are read as: int32, float32, int64 or float64.

    Methods that a subclass may override: `next_sample` (label, bytes), `read_image`, `imdecode`, `check_valid_image`,
    `augmentation_transform`, `postprocess_data`. MXNetError for a broken file or list says which, and the line.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Any,
        label_width: int = 1,
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: list[Any] | None = None,
        imglist: list[Any] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size)
        what = type(self).__name__
        if not (path_imgrec or path_imglist or isinstance(imglist, list)):
            raise AssertionError(f"{what} needs path_imgrec, path_imglist or imglist")
        if dtype not in ("int32", "float32", "int64", "float64"):
            raise AssertionError(f"{dtype} label not supported: int32, float32, int64 and float64 are")
        if last_batch_handle not in _LAST:
            raise ValueError(f"last_batch_handle is 'pad', 'discard' or 'roll_over', not {last_batch_handle!r}")
        if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ValueError(f"batch_size is a number of images, 1 or more, got {batch_size!r}")
        if not 0 <= part_index < num_parts:
            raise AssertionError(f"part_index is {part_index}, of {num_parts} parts")
        self.check_data_shape(data_shape)
        data_shape = tuple(data_shape)
        self.imgrec: MXRecordIO | None = None
        self.imgidx: list[Any] | None = None
        if path_imgrec and path_imgidx:
            indexed = MXIndexedRecordIO(path_imgidx, path_imgrec, "r")
            self.imgrec, self.imgidx = indexed, list(indexed.keys)
        elif path_imgrec:
            self.imgrec = MXRecordIO(path_imgrec, "r")
        self.imglist: dict[Any, tuple[NDArray, str]] | None = None
        if path_imglist:
            self.imglist = listed(path_imglist, dtype)
        elif isinstance(imglist, list):
            self.imglist = {str(k): _entry(item, f"imglist[{k - 1}]", dtype) for k, item in enumerate(imglist, 1)}
        self.path_root = path_root
        self.provide_data: Any = [(data_name, (batch_size, *data_shape))]
        self.provide_label: Any = [(label_name, (batch_size, label_width) if label_width > 1 else (batch_size,))]
        self.data_shape, self.label_width = data_shape, label_width
        self.shuffle = shuffle
        self.seq: list[Any] | None = None
        """Keys of the images in the order of a pass; None: as they come."""
        if self.imgrec is None:
            self.seq = list(self.imglist or ())
        elif self.imgidx is not None:
            self.seq = self.imgidx
        elif shuffle or num_parts > 1:
            raise AssertionError(f"{what} needs path_imgidx, the index of {path_imgrec}, for shuffle and num_parts")
        if num_parts > 1 and self.seq is not None:
            each = len(self.seq) // num_parts
            self.seq = self.seq[part_index * each : (part_index + 1) * each]
        self.num_image = None if self.seq is None else len(self.seq)
        if self.num_image == 0:
            raise MXNetError(f"{what}: part {part_index} of {num_parts} of {path_imgrec or path_imglist} has no images")
        self.auglist: list[Any] = CreateAugmenter(data_shape, **kwargs) if aug_list is None else aug_list
        self.last_batch_handle = last_batch_handle
        self._begun: tuple[Any, Any, int] | None = None
        """Images, labels and number of those in a batch that the last pass began, to be rolled over."""
        self.hard_reset()

    def reset(self) -> None:
        """Goes to the start of the next pass, after what was rolled over."""
        if self.seq is not None and self.shuffle:
            random.shuffle(self.seq)
        if self._begun is None:
            self._rewind()

    def hard_reset(self) -> None:
        """Goes to the start of the next pass, with nothing rolled over."""
        self._begun = None
        self.reset()

    def _rewind(self) -> None:
        self.cur = 0
        self._ended = False
        if self.imgrec is not None:
            self.imgrec.reset()

    def next_sample(self) -> tuple[Any, bytes]:
        """(label, contents of the file) of the next image. StopIteration at the end, after which comes the start."""
        if self._ended:
            raise StopIteration
        if self.seq is None:
            assert self.imgrec is not None
            record = self.imgrec.read()
            if record is None:
                self._end()
                raise StopIteration
            self.cur += 1
            header, data = unpack(record)
            return header.label, data
        if self.cur >= len(self.seq):
            self._end()
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if self.imgrec is None:
            assert self.imglist is not None
            label, name = self.imglist[key]
            return label, self.read_image(name)
        assert isinstance(self.imgrec, MXIndexedRecordIO)
        record = self.imgrec.read_idx(key)
        if record is None:
            raise MXNetError(f"{self.imgrec.uri}: there is no record {key}")
        header, data = unpack(record)
        if self.imglist is None:
            return header.label, data
        if key not in self.imglist:
            raise MXNetError(f"{self.imgrec.uri} has a record {key}, which is not in the list of images")
        return self.imglist[key][0], data

    def _end(self) -> None:
        if self.last_batch_handle != "discard":
            self._rewind()

    def next(self) -> DataBatch:
        if self._begun is not None:
            (data, label, count), self._begun = self._begun, None
            rolled = True
        else:
            data, label = self._new_batch()
            count, rolled = self._batchify(data, label), False
        pad = self.batch_size - count
        if pad:
            if self.last_batch_handle == "discard":
                raise StopIteration
            if self.last_batch_handle == "roll_over" and not rolled:
                self._begun = data, label, count
                raise StopIteration
            while count < self.batch_size:
                filled = self._batchify(data, label, count)
                if filled == count:
                    raise MXNetError(f"{type(self).__name__}: there are no valid images to fill the last batch with")
                count = filled
            if self.last_batch_handle == "pad":
                self._ended = True
        return DataBatch([data], [label], pad=pad)

    def _new_batch(self) -> tuple[Any, Any]:
        """Arrays for the images and labels of a batch."""
        shapes = self.provide_data[0][1], self.provide_label[0][1]
        return as_current(nd.zeros(shapes[0])), as_current(nd.zeros(shapes[1]))

    def _batchify(self, batch_data: Any, batch_label: Any, start: int = 0) -> int:
        """Puts the next images and labels into a batch from `start` on; returns where it stopped. StopIteration if
        the images end before the first."""
        at = start
        for label, image in self._samples():
            batch_data[at] = self.postprocess_data(image)
            try:
                batch_label[at] = label
            except ValueError as e:
                raise MXNetError(
                    f"{self._place()}: a label of shape {np.shape(label)}; label_width is {self.label_width}"
                ) from e
            at += 1
            if at == self.batch_size:
                break
        if not at:
            raise StopIteration
        return at

    def _samples(self) -> Iterator[tuple[Any, NDArray]]:
        """Labels and augmented images up to the end of the pass, without invalid ones."""
        while True:
            try:
                label, data = self.next_sample()
            except StopIteration:
                return
            image = self.imdecode(data)
            try:
                self.check_valid_image([image])
            except RuntimeError:
                continue
            yield label, self.augmentation_transform(image)

    def _place(self) -> str:
        """The current image in a message."""
        if self.seq is None:
            assert self.imgrec is not None
            return f"image {self.cur - 1} of {self.imgrec.uri}"
        key = self.seq[self.cur - 1]
        if self.imgrec is None and self.imglist is not None:
            return f"image {self.imglist[key][1]}"
        return f"image {key}"

    def check_data_shape(self, data_shape: Any) -> None:
        if len(data_shape) != 3 or data_shape[0] != 3:
            raise ValueError(f"data_shape is (3, height, width), not {data_shape}")
        if not all(isinstance(n, (int, np.integer)) and n > 0 for n in data_shape):
            raise ValueError(f"data_shape {data_shape} must have positive numbers")

    def check_valid_image(self, data: Any) -> None:
        """RuntimeError for an image (in a list) that is to be left out."""
        if not data[0].shape:
            raise RuntimeError("Data shape is wrong")

    def imdecode(self, s: bytes) -> NDArray:
        try:
            return imdecode(s)
        except MXNetError as e:
            raise MXNetError(f"Broken image: {self._place()}: {e}") from e

    def read_image(self, fname: str) -> bytes:
        """The contents of a file below `path_root`."""
        path = os.path.join(self.path_root or "", fname)
        try:
            if os.path.exists(path) and not os.path.isfile(path):
                raise MXNetError(f"the image {path} is not a file")
            with open(path, "rb") as file:
                return file.read()
        except (OSError, ValueError) as e:
            raise MXNetError(f"cannot read the image {path!r}: {getattr(e, 'strerror', None) or e}") from e

    def augmentation_transform(self, data: Any) -> Any:
        for aug in self.auglist:
            data = aug(data)
        return data

    def postprocess_data(self, datum: Any) -> Any:
        """The image as it is put into the batch: (channels, height, width)."""
        return datum.transpose((2, 0, 1))


def listed(path: str, dtype: str) -> dict[Any, tuple[NDArray, str]]:
    """(label, path) of each image in a list that `im2rec` made, by its key."""
    found: dict[Any, tuple[NDArray, str]] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                where = f"{path}: line {number}"
                if not line.strip():
                    continue
                key, *rest = line.strip().split("\t")
                if not (key.isascii() and key.isdigit() and len(key) < 20) or len(rest) < 2:
                    raise MXNetError(f"{where}: {line.strip()[:100]!r} is not key<TAB>label<TAB>…<TAB>path")
                found[int(key)] = _entry(rest, where, dtype)
    except OSError as e:
        raise MXNetError(f"cannot read the list {path}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise MXNetError(f"{path} is not text: {e}") from e
    return found


def _entry(item: Any, where: str, dtype: str) -> tuple[NDArray, str]:
    """(label, path) of [label, …, path] or [labels, path]."""
    try:
        *labels, name = item
        if not labels:
            raise ValueError("there is no label")
        numbers = np.array(labels[0] if len(labels) == 1 else labels, np.float64 if dtype[0] == "f" else np.int64)
    except (TypeError, ValueError) as e:
        raise MXNetError(f"{where}: {str(item)[:100]} is not labels and a path: {e}") from e
    return as_current(nd.array(np.atleast_1d(numbers), dtype=dtype)), os.fspath(name)
