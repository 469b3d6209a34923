"""`io.ImageRecordIter`: batches of images from the record files that `im2rec` packs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.data.iterators import DataDesc, DataIter
from gluonjit.data.records import IRHeader, MXIndexedRecordIO, MXRecordIO, unpack
from gluonjit.image.codec import decode
from gluonjit.image.image import imresize
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ndarray import NDArray

__all__ = ["ImageRecordIter", "ImageRecordUInt8Iter"]

_NO_EFFECT = "verbose prefetch_buffer ctx device_id shuffle_chunk_size shuffle_chunk_seed".split()
_MISSING: dict[str, Any] = {
    "path_imglist": "",
    "aug_seq": "aug_default",
    "max_rotate_angle": 0,
    "rotate": -1,
    "max_shear_ratio": 0,
    "max_crop_size": -1,
    "min_crop_size": -1,
    "max_random_scale": 1,
    "min_random_scale": 1,
    "max_img_size": 1e10,
    "min_img_size": 0,
    "brightness": 0,
    "contrast": 0,
    "saturation": 0,
    "pca_noise": 0,
    "random_h": 0,
    "random_s": 0,
    "random_l": 0,
    "mean_img": "",
    "mean_a": 0,
    "std_a": 1,
    "max_random_contrast": 0,
    "max_random_illumination": 0,
}
"""Settings that are not implemented, with the values at which they do nothing."""


_MAX_PIXELS = 1 << 27
"""Of a resized image: one that is very long and narrow in a file must not take all memory."""


class ImageRecordIter(DataIter):
    """Batches f32[batch, channels, height, width] of images in a record file, red first, and their labels.

    * `path_imgrec`, `path_imgidx`: the records, and their index; without one, the records are looked through at the
      start. `data_shape`: (3, height, width), or (1, height, width) for gray. `label_width`: numbers of a label.
    * `resize`: the length of the shorter edge; `pad`: pixels of `fill_value` around the image. Then it is cropped:
      in the middle, at random with `rand_crop`, or with `random_resized_crop` at random with a share of the area from
      `min_random_area` to `max_random_area` and an aspect ratio from `min_aspect_ratio` to `max_aspect_ratio` (without
      a minimum: 1 ± `max_aspect_ratio`), and resized. An image that is too small is enlarged first.
    * `mirror`, `rand_mirror`: flips images, or half of them. Pixels become (x − mean) · scale / std.
    * The last batch is filled up from the next pass, which goes on behind these (`pad` says how many). Without
      `round_batch`, it is filled up from this pass again.
    * `num_parts`, `part_index`: reads one of several equal parts. `shuffle` draws the order of each pass.
    * `preprocess_threads` decode. Results do not depend on their number: `seed` and `seed_aug` determine them.

    MXNetError for a malformed file, and for settings of MXNet that are not implemented.
    """

    _dtype: type = np.float32

    def __init__(
        self,
        path_imgrec: str,
        data_shape: Any,
        batch_size: int,
        path_imgidx: str = "",
        label_width: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        seed_aug: int | None = None,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        preprocess_threads: int = 4,
        resize: int = -1,
        pad: int = 0,
        fill_value: int = 255,
        rand_crop: bool = False,
        random_resized_crop: bool = False,
        min_random_area: float = 1,
        max_random_area: float = 1,
        min_aspect_ratio: float | None = None,
        max_aspect_ratio: float = 0,
        inter_method: int = 1,
        mirror: bool = False,
        rand_mirror: bool = False,
        mean_r: float = 0,
        mean_g: float = 0,
        mean_b: float = 0,
        std_r: float = 1,
        std_g: float = 1,
        std_b: float = 1,
        scale: float = 1,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        **others: Any,
    ) -> None:
        super().__init__(int(batch_size))
        what = type(self).__name__
        for name, value in others.items():
            if name not in _MISSING and name not in _NO_EFFECT:
                raise MXNetError(f"{what} has no setting {name!r}{did_you_mean(name, [*_MISSING, *_NO_EFFECT])}")
            if name in _MISSING and value != _MISSING[name]:
                raise MXNetError(f"{what}: {name}={value!r}: MXNet 1.9.1 has it, gluonjit lacks it")
        if dtype not in (None, np.dtype(self._dtype).name, self._dtype):
            raise MXNetError(f"{what} gives {np.dtype(self._dtype).name}, not {dtype!r}")
        self._shape = tuple(int(n) for n in data_shape)
        if len(self._shape) != 3 or self._shape[0] not in (1, 3) or min(self._shape) < 1:
            raise MXNetError(f"{what}: data_shape is {data_shape}, not (3, height, width) or (1, height, width)")
        if self.batch_size < 1 or label_width < 1 or not 0 <= part_index < num_parts:
            raise MXNetError(
                f"{what}: batch_size={batch_size}, label_width={label_width}, part {part_index} of {num_parts} is not "
                "possible"
            )
        if inter_method not in range(5):
            raise MXNetError(f"{what}: inter_method is {inter_method}; 0 to 4 are methods")
        self._records, positions = _opened(path_imgrec, path_imgidx)
        each = -(-len(positions) // num_parts)
        self._positions = positions[part_index * each : (part_index + 1) * each]
        if not self._positions:
            raise MXNetError(f"{what}: part {part_index} of {num_parts} of {path_imgrec} has no records")
        self._label_width = label_width
        self._resize, self._pad, self._fill = resize, pad, fill_value
        self._random_crop, self._resized_crop = rand_crop, random_resized_crop
        self._areas = min_random_area, max_random_area
        least = 1 - max_aspect_ratio if min_aspect_ratio is None else min_aspect_ratio
        self._ratios = least, 1 + max_aspect_ratio if min_aspect_ratio is None else max_aspect_ratio
        self._method = inter_method
        self._mirror, self._random_mirror = mirror, rand_mirror
        channels = slice(0, self._shape[0])
        self._mean = np.array([mean_r, mean_g, mean_b][channels], np.float32).reshape(-1, 1, 1)
        self._factor = (scale / np.array([std_r, std_g, std_b][channels], np.float32)).reshape(-1, 1, 1)
        self._threads = int(preprocess_threads)
        self._names = data_name, label_name
        self._shuffles, self._rounds = shuffle, round_batch
        self._order_numbers = np.random.RandomState(seed)
        self._image_numbers = np.random.RandomState(seed if seed_aug is None else seed_aug)
        self._order = self._drawn()
        self._following: list[int] = []
        """The order of the next pass, if a batch has begun with it."""
        self._next = 0
        self._filled = 0
        self._batch: tuple[np.ndarray, np.ndarray, np.ndarray]

    def _drawn(self) -> list[int]:
        """The positions of the records in the order of a pass."""
        count = len(self._positions)
        order = self._order_numbers.permutation(count) if self._shuffles else range(count)
        return [self._positions[k] for k in order]

    @property
    def provide_data(self) -> list[DataDesc]:
        return [DataDesc(self._names[0], (self.batch_size, *self._shape), self._dtype)]

    @property
    def provide_label(self) -> list[DataDesc]:
        shape = (self.batch_size,) if self._label_width == 1 else (self.batch_size, self._label_width)
        return [DataDesc(self._names[1], shape, np.float32)]

    def reset(self) -> None:
        """To the start of the next pass."""
        if self._following and self._rounds:
            self._order, self._next = self._following, self._filled % len(self._following)
        else:
            self._order, self._next = self._following or self._drawn(), 0
        self._following, self._filled = [], 0

    def iter_next(self) -> bool:
        if self._next >= len(self._order):
            return False
        places = self._order[self._next : self._next + self.batch_size]
        self._next += self.batch_size
        self._filled = self.batch_size - len(places)
        if self._filled:
            self._following = self._drawn() if self._rounds else []
            rest = self._following or self._order
            places = [*places, *(rest[k % len(rest)] for k in range(self._filled))]
        self._batch = self._read(places)
        return True

    def _read(self, places: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Images, labels and numbers of the records at these positions."""
        records = []
        for place in places:
            self._records._handle(writable=False).seek(place)
            record = self._records.read()
            if record is None:
                raise MXNetError(f"{self._records.uri}: there is no record at byte {place}")
            records.append(unpack(record))
        labels = np.stack([self._label(header) for header, _ in records])
        seeds = self._image_numbers.randint(0, 1 << 31, len(records))
        jobs = [(data, np.random.RandomState(seed)) for (_, data), seed in zip(records, seeds)]
        if self._threads > 1:
            with ThreadPoolExecutor(min(self._threads, len(jobs))) as pool:
                images = list(pool.map(lambda job: self._image(*job), jobs))
        else:
            images = [self._image(*job) for job in jobs]
        return np.stack(images), labels, np.array([header.id for header, _ in records], np.uint64)

    def _label(self, header: IRHeader) -> Any:
        label = np.atleast_1d(np.asarray(header.label, np.float32))
        if len(label) != self._label_width:
            raise MXNetError(
                f"{self._records.uri}: a record's label has {len(label)} numbers, but label_width is "
                f"{self._label_width}"
            )
        return label[0] if self._label_width == 1 else label

    def _image(self, data: bytes, random: np.random.RandomState) -> np.ndarray:
        x = decode(data, "RGB" if self._shape[0] == 3 else "L")
        x = x.reshape(*x.shape[:2], self._shape[0])
        height, width = self._shape[1:]
        h, w = x.shape[:2]
        if self._resize > 0:
            size = self._resize
            x = self._resized(x, size * h // w if h > w else size, size if h > w else size * w // h)
        if self._pad:
            x = np.pad(x, ((self._pad,) * 2, (self._pad,) * 2, (0, 0)), constant_values=self._fill)
        if self._resized_crop:
            x = self._resized(self._any_crop(x, random), height, width)
        else:
            h, w = x.shape[:2]
            enlarged = max(height / h, width / w)
            if enlarged > 1:
                h, w = max(height, round(h * enlarged)), max(width, round(w * enlarged))
                x = self._resized(x, h, w)
            top, left = (h - height) // 2, (w - width) // 2
            if self._random_crop:
                top, left = random.randint(h - height + 1), random.randint(w - width + 1)
            x = x[top : top + height, left : left + width]
        if self._mirror or self._random_mirror and random.randint(2):
            x = x[:, ::-1]
        return self._finished(x.transpose(2, 0, 1))

    def _any_crop(self, x: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """A part of random area and aspect ratio; the largest square in the middle, if ten such do not fit."""
        h, w = x.shape[:2]
        for _ in range(10):
            area, ratio = random.uniform(*self._areas) * h * w, random.uniform(*self._ratios)
            new_h, new_w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < new_h <= h and 0 < new_w <= w:
                top, left = random.randint(h - new_h + 1), random.randint(w - new_w + 1)
                return x[top : top + new_h, left : left + new_w]
        size = min(h, w)
        top, left = (h - size) // 2, (w - size) // 2
        return x[top : top + size, left : left + size]

    def _resized(self, x: np.ndarray, height: int, width: int) -> np.ndarray:
        h, w = x.shape[:2]
        if (h, w) == (height, width):
            return x
        if height * width > _MAX_PIXELS:
            raise MXNetError(
                f"{self._records.uri}: an image of {h} x {w} pixels would become one of {height} x {width}"
            )
        array: np.ndarray = imresize(NDArray._wrap(np.array(x)), width, height, self._method)._array
        return array

    def _finished(self, x: np.ndarray) -> np.ndarray:
        return (x - self._mean) * self._factor

    def getdata(self) -> list[NDArray]:
        return [NDArray._wrap(self._batch[0])]

    def getlabel(self) -> list[NDArray]:
        return [NDArray._wrap(self._batch[1])]

    def getindex(self) -> np.ndarray:
        return self._batch[2]

    def getpad(self) -> int:
        return self._filled


class ImageRecordUInt8Iter(ImageRecordIter):
    """`ImageRecordIter` whose batches hold the pixels, u8[batch, channels, height, width], as they are."""

    _dtype = np.uint8

    def _finished(self, x: np.ndarray) -> np.ndarray:
        return x


def _opened(path: str, index: str) -> tuple[MXRecordIO, list[int]]:
    """The file of records, and where each begins."""
    if index:
        indexed = MXIndexedRecordIO(index, path, "r")
        return indexed, [indexed.idx[key] for key in indexed.keys]
    records = MXRecordIO(path, "r")
    return records, [*_starts(records)]


def _starts(records: MXRecordIO) -> Iterator[int]:
    file = records._handle(writable=False)
    while True:
        start = file.tell()
        if records.read() is None:
            return
        yield start
