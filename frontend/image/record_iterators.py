"""`io.ImageRecordIter` and `io.ImageDetRecordIter`: batches of images from the record files that `im2rec` packs."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gluonjit import ndarray
from gluonjit.base import MXNetError
from gluonjit.data.iterators import DataDesc, MXDataIter
from gluonjit.data.records import IRHeader, MXIndexedRecordIO, MXRecordIO, unpack
from gluonjit.files.image_files import decode
from gluonjit.image.affine import RandomAffine, warp_affine
from gluonjit.image.augment import EIGVAL, EIGVEC, GRAY, shifted_hls
from gluonjit.image.image import MAX_PIXELS, _get_interp_method, imresize
from gluonjit.image.image_iter import listed
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ndarray import NDArray
from gluonjit.operators.attributes import Attr, OutOfRange, boolean, integer, number, numbers, optional, shape

__all__ = [
    "ImageDetRecordIter",
    "ImageRecordInt8Iter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
]

_METHODS = (0, 1, 2, 3, 4, 9, 10)
"""Methods of interpolation: OpenCV's, by whether the image becomes larger, or at random."""
_NO_EFFECT = "verbose prefetch_buffer ctx device_id shuffle_chunk_size shuffle_chunk_seed".split()
_ONE_SEQUENCE = {"aug_seq": "aug_default"}
"""Settings with the only values that are implemented."""
_TOO_MANY = 1 << 31
"""MXNet's arrays have fewer elements."""


_MOST = 1e10
"""The largest number that a setting takes: MXNet's default of `max_img_size`."""
_SEED = integer(low=0, high=(1 << 32) - 1)
_BY_ANNOTATION = {
    "int": integer(low=-(1 << 31), high=(1 << 31) - 1),
    "float": number(low=-_MOST, high=_MOST),
    "float | None": optional(number(low=-_MOST, high=_MOST)),
    "bool": boolean(),
}
_BY_NAME = {
    "data_shape": shape(),
    "rotate_list": shape(),
    "seed": _SEED,
    "seed_aug": optional(_SEED),
    "batch_size": integer(low=1, high=(1 << 31) - 1),
    "num_parts": integer(low=1, high=(1 << 31) - 1),
    "pad": integer(low=0, high=1 << 15),
    "fill_value": integer(low=0, high=255),
    "pca_noise": number(low=0, high=_MOST),
    "min_random_area": number(low=0, high=_MOST),
    "max_random_area": number(low=0, high=_MOST),
}
"""How settings are parsed: by their names, or else by their annotations."""


def _parsing_settings(init: Callable[..., None]) -> Callable[..., None]:
    """Decorates `__init__`: settings may be the strings that MXNet takes; MXNetError names one that is no such number,
    or out of range."""
    signature = inspect.signature(init)
    kinds = {
        name: _BY_NAME.get(name) or _BY_ANNOTATION[parameter.annotation]
        for name, parameter in signature.parameters.items()
        if name in _BY_NAME or parameter.annotation in _BY_ANNOTATION
    }

    @functools.wraps(init)
    def parsing(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        for name in given.arguments.keys() & kinds:
            given.arguments[name] = _parsed(f"{type(self).__name__}: {name}", kinds[name], given.arguments[name])
        init(*given.args, **given.kwargs)

    return parsing


def _parsed(setting: str, kind: Attr, value: Any) -> Any:
    try:
        parsed = kind.parse(value)
    except OutOfRange:
        raise MXNetError(f"{setting} is {value}, not from {kind.low:g} to {kind.high:g}") from None
    except (ValueError, TypeError):
        raise MXNetError(f"{setting} is {value!r}, not of the type {kind.kind}") from None
    if "float" in kind.kind and parsed is not None and not np.isfinite(parsed).all():
        raise MXNetError(f"{setting} is {value}, which is not finite")
    return parsed


class _RecordIter(MXDataIter):
    """Batches of examples from a record file. A subclass makes an image and its label of a record (`_example`), and
    describes the labels (`_label_shape`)."""

    _dtype: type = np.float32
    _dtypes: tuple[type, ...] = (np.float32,)
    """The element types that the setting `dtype` may name."""
    _channels: tuple[int, ...] = (3, 1)
    _method: int
    """The interpolation of `_resized`."""

    def __init__(
        self,
        path_imgrec: str,
        path_imgidx: str,
        data_shape: tuple[int, ...],
        batch_size: int,
        shuffle: bool,
        seed: int,
        seed_aug: int | None,
        num_parts: int,
        part_index: int,
        round_batch: bool,
        preprocess_threads: int,
        dtype: Any,
        names: tuple[str, str],
        path_imglist: str,
        label_width: int,
    ) -> None:
        super().__init__(batch_size)
        what = type(self).__name__
        if dtype is not None:
            self._dtype = self._known_dtype(dtype)
        self._shape = data_shape
        if len(self._shape) != 3 or self._shape[0] not in self._channels or min(self._shape) < 1:
            shapes = " or ".join(f"({n}, height, width)" for n in self._channels)
            raise MXNetError(f"{what}: data_shape is {data_shape}, not {shapes}")
        if batch_size * math.prod(data_shape) >= _TOO_MANY:
            raise MXNetError(f"{what}: a batch of {batch_size} x {data_shape} has more elements than an array may have")
        if not 0 <= part_index < num_parts:
            raise MXNetError(f"{what}: part_index is {part_index}, not from 0 to {num_parts - 1} (num_parts - 1)")
        self._records, positions = _opened(path_imgrec, path_imgidx)
        each = -(-len(positions) // num_parts)
        self._positions = positions[part_index * each : (part_index + 1) * each]
        if not self._positions:
            raise MXNetError(f"{what}: part {part_index} of {num_parts} of {path_imgrec} has no records")
        self._labels: dict[int, np.ndarray] | None = None
        """Labels from a list, by the records' numbers, in place of the records' own."""
        if path_imglist:
            width = label_width if label_width > 0 else None
            entries = listed(path_imglist, "float32").items()
            self._labels = {key: label._array[:width] for key, (label, _) in entries}
            self._list = path_imglist
        self._threads = preprocess_threads
        self._names = names
        self._shuffles, self._rounds = shuffle, round_batch
        self._order_numbers = np.random.RandomState(seed)
        self._image_numbers = np.random.RandomState(seed if seed_aug is None else seed_aug)
        self._order = self._drawn()
        self._following: list[int] = []
        """The order of the next pass, if a batch has begun with it."""
        self._next = 0
        self._places: list[int] = []
        """Where the records of the current batch begin."""
        self._filled = 0
        self._batch: tuple[np.ndarray, np.ndarray, np.ndarray]

    def _known_dtype(self, dtype: Any) -> type:
        for known in self._dtypes:
            if dtype in (known, np.dtype(known), np.dtype(known).name):
                return known
        names = " or ".join(np.dtype(known).name for known in self._dtypes)
        raise MXNetError(f"{type(self).__name__} gives {names}, not {dtype!r}")

    def _label_shape(self) -> tuple[int, ...]:
        """The shape of an example's label."""
        raise NotImplementedError

    def _example(self, header: IRHeader, data: bytes, random: np.random.RandomState) -> tuple[np.ndarray, Any]:
        """(image, label) of a record. Runs in several threads at once."""
        raise NotImplementedError

    def _record_at(self, place: int) -> tuple[IRHeader, bytes]:
        self._records._handle(writable=False).seek(place)
        record = self._records.read()
        if record is None:
            raise MXNetError(f"{self._records.uri}: there is no record at byte {place}")
        header, data = unpack(record)
        if self._labels is None:
            return header, data
        if header.id not in self._labels:
            raise MXNetError(f"{self._list} has no label for record {header.id} of {self._records.uri}")
        return header._replace(label=self._labels[header.id]), data

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
        return [DataDesc(self._names[1], (self.batch_size, *self._label_shape()), np.float32)]

    def reset(self) -> None:
        """Goes to the start of the next pass."""
        if self._following and self._rounds:
            self._order, self._next = self._following, self._filled % len(self._following)
        else:
            self._order, self._next = self._following or self._drawn(), 0
        self._following, self._places, self._filled = [], [], 0

    def iter_next(self) -> bool:
        if self._next >= len(self._order):
            return False
        places = self._order[self._next : self._next + self.batch_size]
        self._next += self.batch_size
        self._filled = self.batch_size - len(places)
        if self._filled:
            if self._rounds:
                self._following = rest = self._drawn()
            else:
                rest = self._places[len(places) :] or self._order
            places = [*places, *(rest[k % len(rest)] for k in range(self._filled))]
        self._places = places
        self._batch = self._read(places)
        return True

    def _read(self, places: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Images, labels and numbers of the records at these positions."""
        records = [self._record_at(place) for place in places]
        seeds = self._image_numbers.randint(0, 1 << 31, len(records))
        jobs = [(*record, np.random.RandomState(seed)) for record, seed in zip(records, seeds)]
        if self._threads > 1:
            with ThreadPoolExecutor(min(self._threads, len(jobs))) as pool:
                examples = list(pool.map(lambda job: self._example(*job), jobs))
        else:
            examples = [self._example(*job) for job in jobs]
        images, labels = (np.stack(part) for part in zip(*examples))
        return images, labels, np.array([header.id for header, _ in records], np.uint64)

    def _decoded(self, data: bytes) -> np.ndarray:
        channels = self._shape[0]
        x = decode(data, {1: "L", 3: "RGB", 4: "RGBA"}[channels])
        return x.reshape(*x.shape[:2], channels)

    def _shorter_edge(self, x: np.ndarray, size: int, random: np.random.RandomState) -> np.ndarray:
        """The image with its shorter edge of length `size`; unchanged if that is not positive."""
        h, w = x.shape[:2]
        if size <= 0:
            return x
        return self._resized(x, size * h // w if h > w else size, size if h > w else size * w // h, random)

    def _method_for(self, x: np.ndarray, height: int, width: int, random: np.random.RandomState) -> int:
        """The interpolation for an image that gets this size."""
        method = random.randint(5) if self._method == 10 else self._method
        chosen: int = _get_interp_method(method, (*x.shape[:2], height, width))
        return chosen

    def _resized(
        self, x: np.ndarray, height: int, width: int, random: np.random.RandomState, method: int | None = None
    ) -> np.ndarray:
        h, w = x.shape[:2]
        if method is None:
            method = self._method_for(x, height, width, random)
        if (h, w) == (height, width):
            return x
        if height * width > MAX_PIXELS:
            raise MXNetError(
                f"{self._records.uri}: an image of {h} x {w} pixels would become one of {height} x {width}"
            )
        array: np.ndarray = imresize(NDArray._wrap(np.array(x)), width, height, method)._array
        return array

    def getdata(self) -> NDArray:
        return NDArray._wrap(self._batch[0])

    def getlabel(self) -> NDArray:
        return NDArray._wrap(self._batch[1])

    def getindex(self) -> np.ndarray:
        return self._batch[2]

    def getpad(self) -> int:
        return self._filled


class ImageRecordIter(_RecordIter):
    """Batches f32[batch, channels, height, width] of images in a record file, red first, and their labels.

    * `path_imgrec`, `path_imgidx`: the records, and their index; without one, the records are looked through at the
      start. `data_shape`: (3, height, width), or (1, height, width) for gray. `label_width`: numbers of a label.
    * `path_imglist`: a list with other labels, in lines `number of the record<TAB>label<TAB>…<TAB>path`; of longer
      labels, the first `label_width` numbers are taken.
    * `resize`: the length of the shorter edge. Then the image is rotated by `rotate` degrees, or up to
      ± `max_rotate_angle`, or by one of `rotate_list`; sheared by up to ± `max_shear_ratio`; made larger by a factor
      from `min_random_scale` to `max_random_scale`, and wider by an aspect ratio from `min_aspect_ratio` to
      `max_aspect_ratio` (without a minimum: 1 ± `max_aspect_ratio`), in a frame of `min_img_size` to `max_img_size`.
      `fill_value` is where the image is not. `pad`: pixels of `fill_value` around it.
    * Then it is cropped: in the middle, or at random with `rand_crop`; with `min_crop_size` and `max_crop_size`, a
      square of such a size is resized; with `random_resized_crop`, a part is taken at random and resized, with a share
      of the area from `min_random_area` to `max_random_area` and the aspect ratio above, or its inverse. An image
      that is too small is enlarged first.
    * `brightness`, `contrast`, `saturation`: each is multiplied by a factor that differs from 1 by up to the setting,
      in random order; `pca_noise`: the standard deviation of a color that is added to all pixels, along the principal
      components of ImageNet's colors. `random_h`, `random_l`, `random_s`: the most that is added to hue (of 180),
      lightness and saturation (of 255).
    * `inter_method`: 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos; 9: cubic for larger images, area for smaller
      ones; 10: any of them.
    * `mirror`, `rand_mirror`: flips images, or half of them. Pixels become ((x − mean) · c + i) · scale / std, with a
      factor c of 1 ± up to `max_random_contrast`, and i up to ± `max_random_illumination`. `mean_img` is a file with
      an image that takes the place of `mean_…`; if there is no such file, the images' mean is written there.
    * `dtype`: float32, uint8 (pixels as they are) or int8 (see `ImageRecordInt8Iter`).
    * The last batch is filled up from the next pass, which goes on after these (`pad` says how many). Without
      `round_batch`, it is filled up with images of the batch before (of the start, if there is none).
    * `num_parts`, `part_index`: reads one of several equal parts. `shuffle` draws the order of each pass.
    * `preprocess_threads` decode. Results do not depend on their number: `seed` and `seed_aug` determine them.

    MXNetError for a malformed file, and for settings of MXNet that are not implemented.
    """

    _dtypes: tuple[type, ...] = (np.float32, np.uint8, np.int8)
    _channels: tuple[int, ...] = (3, 1, 4)

    @_parsing_settings
    def __init__(
        self,
        path_imgrec: str,
        data_shape: Any,
        batch_size: int,
        path_imgidx: str = "",
        path_imglist: str = "",
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
        rotate: int = -1,
        rotate_list: Any = (),
        max_rotate_angle: int = 0,
        max_shear_ratio: float = 0,
        min_random_scale: float = 1,
        max_random_scale: float = 1,
        min_img_size: float = 0,
        max_img_size: float = 1e10,
        min_crop_size: int = -1,
        max_crop_size: int = -1,
        rand_crop: bool = False,
        random_resized_crop: bool = False,
        min_random_area: float = 1,
        max_random_area: float = 1,
        min_aspect_ratio: float | None = None,
        max_aspect_ratio: float = 0,
        inter_method: int = 1,
        brightness: float = 0,
        contrast: float = 0,
        saturation: float = 0,
        pca_noise: float = 0,
        random_h: int = 0,
        random_s: int = 0,
        random_l: int = 0,
        mirror: bool = False,
        rand_mirror: bool = False,
        mean_r: float = 0,
        mean_g: float = 0,
        mean_b: float = 0,
        mean_a: float = 0,
        std_r: float = 1,
        std_g: float = 1,
        std_b: float = 1,
        std_a: float = 1,
        mean_img: str = "",
        scale: float = 1,
        max_random_contrast: float = 0,
        max_random_illumination: float = 0,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        **others: Any,
    ) -> None:
        what = type(self).__name__
        _check_settings(what, others, _ONE_SEQUENCE, _NO_EFFECT)
        if label_width < 1:
            raise MXNetError(f"{what}: label_width is {label_width}; a label has 1 number or more")
        _check_choice(what, "inter_method", inter_method, _METHODS)
        _check_colors(what, data_shape, random_h, random_s, random_l)
        super().__init__(
            path_imgrec,
            path_imgidx,
            data_shape,
            batch_size,
            shuffle,
            seed,
            seed_aug,
            num_parts,
            part_index,
            round_batch,
            preprocess_threads,
            dtype,
            (data_name, label_name),
            path_imglist,
            label_width,
        )
        self._label_width = label_width
        self._resize, self._pad, self._fill = resize, pad, fill_value
        self._random_crop, self._resized_crop = rand_crop, random_resized_crop
        self._areas = min_random_area, max_random_area
        least = 1 - max_aspect_ratio if min_aspect_ratio is None else min_aspect_ratio
        self._ratios = least, 1 + max_aspect_ratio if min_aspect_ratio is None else max_aspect_ratio
        if min(self._ratios) < 0:
            ratios = f"min_aspect_ratio={min_aspect_ratio} and max_aspect_ratio={max_aspect_ratio}"
            raise MXNetError(f"{what}: {ratios} allow aspect ratios below 0")
        scales = min_random_scale, max_random_scale
        crops = min_crop_size, max_crop_size
        if random_resized_crop and (scales != (1, 1) or crops != (-1, -1) or rand_crop):
            raise MXNetError(
                f"{what}: random_resized_crop cannot be combined with rand_crop, min_random_scale, max_random_scale, "
                "min_crop_size and max_crop_size"
            )
        self._crops = crops if min(crops) > 0 else None
        self._affine = RandomAffine(
            rotate,
            rotate_list,
            max_rotate_angle,
            max_shear_ratio,
            scales,
            (1, 1) if random_resized_crop else self._ratios,
            min_img_size,
            max_img_size,
            fill_value,
        )
        self._method = inter_method
        self._mirror, self._random_mirror = mirror, rand_mirror
        self._jitter, self._pca_noise = (brightness, contrast, saturation), pca_noise
        self._hls = random_h, random_l, random_s
        channels = self._shape[0]
        means, widths = (mean_r, mean_g, mean_b, mean_a), (std_r, std_g, std_b, std_a)
        self._mean, self._width = (np.array(part[:channels], np.float32).reshape(-1, 1, 1) for part in (means, widths))
        self._scale, self._contrast, self._illumination = scale, max_random_contrast, max_random_illumination
        if mean_img:
            self._mean = self._mean_of(mean_img)

    def _mean_of(self, file: str) -> np.ndarray:
        """The mean image in a file; if there is none, that of all images of this iterator, which is written there."""
        if not Path(file).exists():
            total = np.zeros(self._shape, np.float64)
            for place in self._positions:
                total += self._pixels(self._record_at(place)[1], self._image_numbers)
            ndarray.save(file, {"mean_img": NDArray._wrap((total / len(self._positions)).astype(np.float32))})
        arrays = ndarray.load(file)
        mean = arrays.get("mean_img") if isinstance(arrays, dict) else arrays[0]
        if mean is None or mean.shape != self._shape:
            found = "none" if mean is None else f"one of {mean.shape}"
            raise MXNetError(f"{file}: a mean image of {self._shape} is needed, there is {found}")
        array: np.ndarray = mean.asnumpy()
        return array

    def _label_shape(self) -> tuple[int, ...]:
        return () if self._label_width == 1 else (self._label_width,)

    def _example(self, header: IRHeader, data: bytes, random: np.random.RandomState) -> tuple[np.ndarray, Any]:
        return self._image(data, random), self._label(header)

    def _label(self, header: IRHeader) -> Any:
        label = np.atleast_1d(np.asarray(header.label, np.float32))
        if len(label) != self._label_width:
            where = self._records.uri if self._labels is None else self._list
            raise MXNetError(
                f"{where}: a record's label has {len(label)} numbers, but label_width is {self._label_width}"
            )
        return label[0] if self._label_width == 1 else label

    def _image(self, data: bytes, random: np.random.RandomState) -> np.ndarray:
        return self._finished(self._pixels(data, random), random)

    def _pixels(self, data: bytes, random: np.random.RandomState) -> np.ndarray:
        """u8[channels, height, width], before any normalization."""
        x = self._decoded(data)
        height, width = self._shape[1:]
        x = self._shorter_edge(x, self._resize, random)
        if self._affine.changes():
            x = self._warped(x, random)
        if self._pad:
            x = np.pad(x, ((self._pad,) * 2, (self._pad,) * 2, (0, 0)), constant_values=self._fill)
        part = self._any_crop(x, random) if self._resized_crop else None
        if part is not None:
            x = self._resized(part, height, width, random)
        elif self._crops:
            least, most = self._crops
            if not least <= most <= min(x.shape[:2]):
                raise MXNetError(
                    f"{self._records.uri}: from an image of {x.shape[0]} x {x.shape[1]} pixels, squares of "
                    f"min_crop_size={least} to max_crop_size={most} cannot be cut"
                )
            size = random.randint(least, most + 1)
            x = self._resized(self._cut(x, size, size, random), height, width, random)
        else:
            x = self._cut(self._enlarged(x, random), height, width, random)
        if any(self._jitter) or any(self._hls) or self._pca_noise:
            x = self._recolored(x, random)
        if self._mirror or self._random_mirror and random.randint(2):
            x = x[:, ::-1]
        return x.transpose(2, 0, 1)

    def _warped(self, x: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """The image, rotated, sheared and scaled."""
        h, w = x.shape[:2]
        matrix, height, width = self._affine.draw(h, w, random)
        return warp_affine(x, matrix, height, width, self._method_for(x, height, width, random), self._fill)

    def _cut(self, x: np.ndarray, height: int, width: int, random: np.random.RandomState) -> np.ndarray:
        """A part of the image, of this size: the middle, or a random one."""
        h, w = x.shape[:2]
        top, left = (h - height) // 2, (w - width) // 2
        if self._random_crop:
            top, left = random.randint(h - height + 1), random.randint(w - width + 1)
        return x[top : top + height, left : left + width]

    def _recolored(self, x: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """The image with changed colors. Pixels are rounded, and cut off at 0 and 255, after each change, as in
        MXNet."""
        factors = [1 + random.uniform(-most, most) if most else None for most in self._jitter]
        y = x.astype(np.float32)
        for kind in random.permutation(3):
            factor = factors[kind]
            if factor is None:
                continue
            # MXNet's images have blue first, and it takes the weight of red for blue.
            gray = y @ GRAY[::-1] if y.shape[2] == 3 else y[:, :, 0]
            other = (0, gray.mean(), gray[:, :, None])[kind]
            y = np.clip(np.rint(y * np.float32(factor) + np.float32(1 - factor) * other), 0, 255)
        if any(self._hls):
            # Small changes are likelier.
            ways = [(random.uniform(-1, 1) + 4 * random.uniform(-1, 1)) / 5 for _ in self._hls]
            y = shifted_hls(y.astype(np.uint8), *(int(way * most) for way, most in zip(ways, self._hls)))
        if self._pca_noise:
            color = (EIGVEC * EIGVAL) @ random.normal(0, self._pca_noise, 3)
            y = np.clip(np.trunc(y + color[: y.shape[2]].astype(np.float32)), 0, 255)
        return y.astype(np.uint8)

    def _enlarged(self, x: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """The image; larger, if it is lower or narrower than those of a batch."""
        _, height, width = self._shape
        h, w = x.shape[:2]
        # As in MXNet, by what the batch wants of both sides, although only one of them may grow.
        method = self._method_for(x, height, width, random) if h < height or w < width else None
        if h < height:
            x = self._resized(x, height, int(np.float32(height) / np.float32(h) * np.float32(w)), random, method)
            h, w = x.shape[:2]
        if w < width:
            x = self._resized(x, int(np.float32(width) / np.float32(w) * np.float32(h)), width, random, method)
        return x

    def _any_crop(self, x: np.ndarray, random: np.random.RandomState) -> np.ndarray | None:
        """A part of random area and aspect ratio, wide or high; None if ten of them do not fit, or all is wanted."""
        h, w = x.shape[:2]
        if self._areas == self._ratios == (1, 1):
            return None
        for _ in range(10):
            area, ratio = random.uniform(*self._areas) * h * w, random.uniform(*self._ratios)
            new_h, new_w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if random.randint(2):
                new_h, new_w = new_w, new_h
            if 0 < new_h <= h and 0 < new_w <= w:
                top, left = random.randint(h - new_h + 1), random.randint(w - new_w + 1)
                return x[top : top + new_h, left : left + new_w]
        return None

    def _finished(self, x: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        contrast = 1 + random.uniform(-self._contrast, self._contrast) if self._contrast else 1.0
        light = random.uniform(-self._illumination, self._illumination) if self._illumination else 0.0
        if self._dtype is np.uint8:
            return x
        shifted = x - self._mean
        if self._dtype is np.int8:
            return np.clip(np.rint(shifted), -128, 127).astype(np.int8)
        factor = np.float32(contrast * self._scale) / self._width
        bias = np.float32(light * self._scale) / self._width
        return shifted * factor + bias


class ImageRecordUInt8Iter(ImageRecordIter):
    """`ImageRecordIter` whose batches hold the pixels, u8[batch, channels, height, width], as they are."""

    _dtype: type = np.uint8
    _dtypes = (np.uint8,)


class ImageRecordInt8Iter(ImageRecordIter):
    """`ImageRecordIter` whose batches hold pixels minus their means, rounded and cut off, i8[batch, channels, height,
    width]. As in MXNet, they are neither scaled nor divided by `std_…`."""

    _dtype: type = np.int8
    _dtypes = (np.int8,)


ImageRecordIter_v1, ImageRecordUInt8Iter_v1 = ImageRecordIter, ImageRecordUInt8Iter
"""MXNet's older implementations of the same."""


_MISSING_OF_DETECTION: dict[str, Any] = {"aug_seq": "det_aug_default", "mean_img": "", "mean_a": 0, "std_a": 0}
_LEAST_PAD = 1.05
"""The least scale for which a frame is drawn."""
_MAX_LABEL = 1 << 20
"""Numbers of one label: a batch has room for the longest in each example."""


class ImageDetRecordIter(_RecordIter):
    """Batches f32[batch, channels, height, width] of images with boxes in a record file, red first, and their labels.

    A record's label is: width of its head A (2 or more), numbers per object B (5 or more), A − 2 numbers of any
    meaning; then for each object its class, left, top, right, bottom (as parts of the image's width and height), and
    B − 5 others. A label in a batch is: channels, height and width of the image in it, length L of the label, L
    numbers; `label_pad_value` up to the longest label in the file, or to `label_pad_width` numbers if that is positive.

    * `path_imglist`: as in `ImageRecordIter`. `label_width`: the length of all labels in the file; -1 if they differ.
    * `resize`: the length of the shorter edge, first of all. Then colors change: with probability `random_hue_prob`,
      by up to `max_random_hue` of 180 steps; `…_illumination…`, `…_saturation…`, of 255 steps; `…_contrast…` multiplies
      pixels by a factor that differs from 1 by up to the setting. `rand_mirror_prob` flips; `rand_pad_prob` puts the
      image somewhere in one of `fill_value` that is up to `max_pad_scale` times as wide; `rand_crop_prob` crops.
    * `inter_method`: as in `ImageRecordIter`.
    * Crops: of `num_crop_sampler` samplers, in random order, each tries `max_crop_trials` times to find a part of scale
      (root of its area) `min_crop_scales` to `max_crop_scales` and aspect ratio `min_crop_aspect_ratios` to
      `max_crop_aspect_ratios`, in which for one object at least these are within their bounds:
      `…_crop_overlaps` (intersection by union), `…_crop_sample_coverages` (intersection by the part's area),
      `…_crop_object_coverages` (intersection by the object's). Each setting is a number for all samplers, or one for
      each. Objects are dropped if their center is outside (`crop_emit_mode='center'`), or at most a share of
      `emit_overlap_thresh` of them is inside ('overlap'); the rest are clipped. A part without objects is not taken.
    * `resize_mode`: 'force' resizes to `data_shape`; 'fit' keeps the aspect ratio, 'shrink' also the size of what is
      small enough; their images are in the top left corner, beside pixels of 0.
    * `mean_…`, `std_…` (0 stands for 1), `scale`: pixels become (x − mean) · scale / std.

    Parts, order, threads and the last batch are as in `ImageRecordIter`. MXNetError for a malformed file, and for
    settings of MXNet that are not implemented.
    """

    @_parsing_settings
    def __init__(
        self,
        path_imgrec: str,
        data_shape: Any,
        batch_size: int,
        path_imgidx: str = "",
        path_imglist: str = "",
        label_width: int = -1,
        label_pad_width: int = 0,
        label_pad_value: float = -1,
        shuffle: bool = False,
        seed: int = 0,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        preprocess_threads: int = 4,
        resize: int = -1,
        rand_crop_prob: float = 0,
        min_crop_scales: Any = 0,
        max_crop_scales: Any = 1,
        min_crop_aspect_ratios: Any = 1,
        max_crop_aspect_ratios: Any = 1,
        min_crop_overlaps: Any = 0,
        max_crop_overlaps: Any = 1,
        min_crop_sample_coverages: Any = 0,
        max_crop_sample_coverages: Any = 1,
        min_crop_object_coverages: Any = 0,
        max_crop_object_coverages: Any = 1,
        num_crop_sampler: int = 1,
        crop_emit_mode: str = "center",
        emit_overlap_thresh: float = 0.3,
        max_crop_trials: Any = 25,
        rand_pad_prob: float = 0,
        max_pad_scale: float = 1,
        max_random_hue: int = 0,
        random_hue_prob: float = 0,
        max_random_saturation: int = 0,
        random_saturation_prob: float = 0,
        max_random_illumination: int = 0,
        random_illumination_prob: float = 0,
        max_random_contrast: float = 0,
        random_contrast_prob: float = 0,
        rand_mirror_prob: float = 0,
        fill_value: int = 127,
        inter_method: int = 1,
        resize_mode: str = "force",
        mean_r: float = 0,
        mean_g: float = 0,
        mean_b: float = 0,
        std_r: float = 0,
        std_g: float = 0,
        std_b: float = 0,
        scale: float = 1,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        **others: Any,
    ) -> None:
        what = type(self).__name__
        _check_settings(what, others, _MISSING_OF_DETECTION, _NO_EFFECT)
        _check_choice(what, "inter_method", inter_method, _METHODS)
        _check_choice(what, "resize_mode", resize_mode, ("force", "fit", "shrink"))
        _check_choice(what, "crop_emit_mode", crop_emit_mode, ("center", "overlap"))
        _check_colors(
            what, data_shape, random_hue_prob, random_saturation_prob, random_illumination_prob, random_contrast_prob
        )
        super().__init__(
            path_imgrec,
            path_imgidx,
            data_shape,
            batch_size,
            shuffle,
            seed,
            None,
            num_parts,
            part_index,
            round_batch,
            preprocess_threads,
            dtype,
            (data_name, label_name),
            path_imglist,
            label_width,
        )
        self._resize, self._method, self._mode = resize, inter_method, resize_mode
        self._mirror, self._crop = rand_mirror_prob, rand_crop_prob
        self._pad, self._pad_scale, self._fill = rand_pad_prob, max_pad_scale, fill_value
        self._colors = (
            (max_random_hue, random_hue_prob),
            (max_random_illumination, random_illumination_prob),
            (max_random_saturation, random_saturation_prob),
            (max_random_contrast, random_contrast_prob),
        )
        self._emit_centers, self._emit_share = crop_emit_mode == "center", emit_overlap_thresh
        bounds = {
            "min_crop_scales": min_crop_scales,
            "max_crop_scales": max_crop_scales,
            "min_crop_aspect_ratios": min_crop_aspect_ratios,
            "max_crop_aspect_ratios": max_crop_aspect_ratios,
            "min_crop_overlaps": min_crop_overlaps,
            "max_crop_overlaps": max_crop_overlaps,
            "min_crop_sample_coverages": min_crop_sample_coverages,
            "max_crop_sample_coverages": max_crop_sample_coverages,
            "min_crop_object_coverages": min_crop_object_coverages,
            "max_crop_object_coverages": max_crop_object_coverages,
            "max_crop_trials": max_crop_trials,
        }
        each = [_for_each(what, name, value, num_crop_sampler) for name, value in bounds.items()]
        self._samplers = [_Sampler(*values) for values in zip(*each)]
        std = [value or 1 for value in (std_r, std_g, std_b)]
        self._mean, self._factor = _normalization((mean_r, mean_g, mean_b), std, scale, self._shape[0])
        self._fixed_width = label_width
        longest = max(self._parsed(self._record_at(place)[0])[0] for place in self._positions)
        if 0 < label_pad_width < longest:
            raise MXNetError(f"{what}: label_pad_width is {label_pad_width}, but {path_imgrec} has labels of {longest}")
        self._label_length = max(longest, label_pad_width)
        self._label_fill = label_pad_value

    def _label_shape(self) -> tuple[int, ...]:
        return (4 + self._label_length,)

    def _parsed(self, header: IRHeader) -> tuple[int, np.ndarray, np.ndarray]:
        """(length, head, objects f32[count, width]) of a record's label."""
        label = np.atleast_1d(np.asarray(header.label, np.float32))
        fault = ""
        if self._fixed_width > 0 and len(label) != self._fixed_width:
            fault = f"label_width is {self._fixed_width}"
        elif len(label) > _MAX_LABEL:
            fault = f"{_MAX_LABEL} is the most"
        elif len(label) < 2 or not 2 <= label[0] <= len(label) or not 5 <= label[1]:
            fault = "it starts with the width of its head (2 or more) and the numbers of an object (5 or more)"
        elif (len(label) - int(label[0])) % int(min(label[1], _MAX_LABEL + 1)):
            fault = f"after a head of {int(label[0])} there are no objects of {label[1]:g} numbers each"
        if fault:
            raise MXNetError(f"{self._records.uri}: the label of record {header.id} has {len(label)} numbers: {fault}")
        head = int(label[0])
        return len(label), label[:head], label[head:].reshape(-1, int(label[1])).copy()

    def _example(self, header: IRHeader, data: bytes, random: np.random.RandomState) -> tuple[np.ndarray, Any]:
        _, head, objects = self._parsed(header)
        objects = objects[(objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])]
        x = self._recolored(self._shorter_edge(self._decoded(data), self._resize, random), random)
        if random.uniform() < self._mirror:
            x = x[:, ::-1]
            objects[:, [1, 3]] = 1 - objects[:, [3, 1]]
        if random.uniform() < self._pad:
            x, objects = self._padded(x, objects, random)
        if random.uniform() < self._crop:
            x, objects = self._cropped(x, objects, random)
        channels, height, width = self._shape
        h, w = height, width
        if self._mode != "force":
            ratio = min(height / x.shape[0], width / x.shape[1])
            ratio = min(ratio, 1) if self._mode == "shrink" else ratio
            h, w = (max(int(n * ratio), 1) for n in x.shape[:2])
        pixels = np.zeros((channels, height, width), np.float32)
        pixels[:, :h, :w] = self._resized(x, h, w, random).transpose(2, 0, 1)
        label = np.full(self._label_shape(), self._label_fill, np.float32)
        numbers = np.concatenate([head, objects.ravel()])
        label[:4] = channels, h, w, len(numbers)
        label[4 : 4 + len(numbers)] = numbers
        return (pixels - self._mean) * self._factor, label

    def _recolored(self, x: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """Hue, lightness, saturation and contrast changed, each with its probability."""
        *hls, contrast = (
            random.uniform(-most, most) if random.uniform() < share else 0.0 for most, share in self._colors
        )
        shifts = [int(change) for change in hls]
        if any(shifts):
            x = shifted_hls(x, *shifts)
        if abs(contrast) > 1e-3:
            x = np.clip(np.rint(x * np.float32(1 + contrast)), 0, 255).astype(np.uint8)
        return x

    def _padded(self, x: np.ndarray, objects: np.ndarray, random: np.random.RandomState) -> tuple[Any, np.ndarray]:
        """The image in a larger one; the objects' corners as parts of that. Unchanged if it would hardly be larger."""
        h, w, channels = x.shape
        scale = random.uniform(1, max(self._pad_scale, 1))
        if scale < _LEAST_PAD:
            return x, objects
        if scale * h * scale * w > MAX_PIXELS:
            raise MXNetError(f"{self._records.uri}: an image of {h} x {w} pixels would become {scale:g} times as wide")
        left, top = random.uniform(0, scale - 1), random.uniform(0, scale - 1)
        # Each border is a whole number of pixels.
        rows, columns = ((int(before * n), int((scale - before - 1) * n)) for before, n in ((top, h), (left, w)))
        framed = np.pad(x, (rows, columns, (0, 0)), constant_values=self._fill)
        return framed, _moved(objects, -left, -top, scale, scale)

    def _cropped(self, x: np.ndarray, objects: np.ndarray, random: np.random.RandomState) -> tuple[Any, np.ndarray]:
        """A part of the image that one of the samplers finds, and the objects in it; both unchanged if none does."""
        h, w = x.shape[:2]
        for k in random.permutation(len(self._samplers)):
            for _ in range(int(self._samplers[k].trials)):
                box = self._samplers[k].draw(objects, w / h, random)
                if box is None:
                    continue
                left, top, width, height = box
                kept = objects[self._remaining(objects, box)]
                rows, columns = int(height * h), int(width * w)
                if rows and columns and (len(kept) or not len(objects)):
                    y0, x0 = int(top * h), int(left * w)
                    return x[y0 : y0 + rows, x0 : x0 + columns], _moved(kept, left, top, width, height)
        return x, objects

    def _remaining(self, objects: np.ndarray, box: tuple[float, float, float, float]) -> np.ndarray:
        """Which objects a part of the image keeps: bool[count]."""
        left, top, width, height = box
        if self._emit_centers:
            x, y = (objects[:, 1] + objects[:, 3]) / 2, (objects[:, 2] + objects[:, 4]) / 2
            return (x >= left) & (x < left + width) & (y >= top) & (y < top + height)
        inside, areas = _intersections(objects, box)
        return inside > self._emit_share * areas


class _Sampler(NamedTuple):
    """Bounds of a random part of an image."""

    min_scale: float
    max_scale: float
    min_ratio: float
    max_ratio: float
    min_overlap: float
    max_overlap: float
    min_sample_coverage: float
    max_sample_coverage: float
    min_object_coverage: float
    max_object_coverage: float
    trials: float

    def draw(
        self, objects: np.ndarray, aspect: float, random: np.random.RandomState
    ) -> tuple[float, float, float, float] | None:
        """(left, top, width, height) as parts of an image of this aspect ratio; None if it is not within the bounds
        for any of the objects."""
        scale = random.uniform(self.min_scale, self.max_scale)
        if not 0 < scale <= 1:
            return None
        # Neither edge may be longer than the image's, whatever the ratio.
        ratio = random.uniform(max(self.min_ratio / aspect, scale**2), min(self.max_ratio / aspect, scale**-2))
        width, height = min(scale * math.sqrt(ratio), 1.0), min(scale / math.sqrt(ratio), 1.0)
        left, top = random.uniform(0, 1 - width), random.uniform(0, 1 - height)
        box = left, top, width, height
        inside, areas = _intersections(objects, box)
        area = width * height
        fits = np.full(len(objects), True)
        for share, least, most in (
            (inside / (areas + area - inside), self.min_overlap, self.max_overlap),
            (inside / area, self.min_sample_coverage, self.max_sample_coverage),
            (inside / areas, self.min_object_coverage, self.max_object_coverage),
        ):
            if least > 0 or most < 1:
                fits &= (least <= share) & (share <= most)
        return box if fits.any() or not len(objects) else None


def _for_each(what: str, name: str, value: Any, count: int) -> list[float]:
    """A setting of each of `count` samplers, given for all at once or one by one."""
    values = list(_parsed(f"{what}: {name}", numbers(), value))
    if name.endswith("aspect_ratios") and min(values, default=1) <= 0:
        raise MXNetError(f"{what}: {name} is {value}, but must be more than 0")
    if count < 1:
        return []
    if len(values) not in (1, count):
        raise MXNetError(f"{what}: {name} has {len(values)} numbers, but num_crop_sampler is {count}")
    return values * count if len(values) == 1 else values


def _intersections(objects: np.ndarray, box: tuple[float, float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Areas of the objects inside of a box, and of the whole objects: f32[count] each."""
    left, top, width, height = box
    x = np.minimum(objects[:, 3], left + width) - np.maximum(objects[:, 1], left)
    y = np.minimum(objects[:, 4], top + height) - np.maximum(objects[:, 2], top)
    areas = (objects[:, 3] - objects[:, 1]) * (objects[:, 4] - objects[:, 2])
    return np.maximum(x, 0) * np.maximum(y, 0), areas


def _moved(objects: np.ndarray, left: float, top: float, width: float, height: float) -> np.ndarray:
    """Objects, as far as they are inside, with their corners as parts of the box, which has parts of the image."""
    objects = objects.copy()
    objects[:, [1, 3]] = (objects[:, [1, 3]] - left) / width
    objects[:, [2, 4]] = (objects[:, [2, 4]] - top) / height
    objects[:, 1:3] = np.maximum(objects[:, 1:3], 0)
    objects[:, 3:5] = np.minimum(objects[:, 3:5], 1)
    return objects


def _check_settings(what: str, given: Mapping[str, Any], missing: Mapping[str, Any], no_effect: Sequence[str]) -> None:
    """MXNetError for a setting that MXNet does not have, and for one of `missing` which is not at its default."""
    for name, value in given.items():
        if name not in missing and name not in no_effect:
            raise MXNetError(f"{what} has no setting {name!r}{did_you_mean(name, [*missing, *no_effect])}")
        if name in missing and value != missing[name]:
            raise MXNetError(f"{what}: {name}={value!r}: MXNet 1.9.1 has it, gluonjit lacks it")


def _check_choice(what: str, name: str, value: Any, known: Sequence[Any]) -> None:
    if value not in known:
        raise MXNetError(f"{what}: {name} is {value!r}, not one of {', '.join(map(repr, known))}")


def _check_colors(what: str, shape: Sequence[int], *amounts: float) -> None:
    if any(amounts) and shape[0] != 3:
        raise MXNetError(f"{what}: hue, saturation and lightness cannot change in images of {shape[0]} channel")


def _normalization(mean: Sequence[float], std: Sequence[float], scale: float, channels: int) -> Any:
    """(mean, scale / std), each f32[channels, 1, 1]."""
    shift, width = (np.array(part[:channels], np.float32).reshape(-1, 1, 1) for part in (mean, std))
    return shift, scale / width


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
