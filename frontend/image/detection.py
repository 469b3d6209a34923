"""`image.detection`: augmenters for images with boxes, and `ImageDetIter`.

A label is f32[objects, 5 or more]: class, left, top, right, bottom (as parts of the image's width and height), others.
Random numbers are drawn from Python's `random` in MXNet's order, so a seed gives the same boxes.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit import ndarray as nd
from gluonjit.base import MXNetError
from gluonjit.files.image_files import pillow
from gluonjit.image.augment import (
    EIGVAL,
    EIGVEC,
    Augmenter,
    CastAug,
    ColorJitterAug,
    ColorNormalizeAug,
    ForceResizeAug,
    HueJitterAug,
    LightingAug,
    RandomGrayAug,
    ResizeAug,
    as_json,
    channel_statistics,
    plain,
)
from gluonjit.image.image import copyMakeBorder, fixed_crop
from gluonjit.image.image_iter import ImageIter
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.kinds import as_current
from gluonjit.ndarray import NDArray

__all__ = [
    "CreateDetAugmenter",
    "CreateMultiRandCropAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "DetRandomSelectAug",
    "ImageDetIter",
]


class DetAugmenter:
    """A function of an image and its label, which returns both. `dumps` returns its settings as JSON."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {key: plain(value) for key, value in kwargs.items()}

    def dumps(self) -> Any:
        return as_json(self, self._kwargs)

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        raise NotImplementedError("Must override implementation.")


class DetBorrowAug(DetAugmenter):
    """Applies an augmenter that moves nothing in the image, so that the label stays as it is."""

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise TypeError(f"Borrowing from invalid Augmenter: got {type(augmenter)}")
        super().__init__(augmenter=augmenter.dumps())
        self.augmenter = augmenter

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """Applies one of several augmenters, drawn for each image; none, with probability `skip_prob`."""

    def __init__(self, aug_list: Any, skip_prob: float = 0) -> None:
        super().__init__(skip_prob=skip_prob)
        self.aug_list = list(aug_list) if isinstance(aug_list, (list, tuple)) else [aug_list]
        for aug in self.aug_list:
            if not isinstance(aug, DetAugmenter):
                raise ValueError(f"Allow DetAugmenter in list only, got {type(aug)}")
        self.skip_prob = skip_prob if self.aug_list else 1

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [aug.dumps() for aug in self.aug_list]]

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        if random.random() < self.skip_prob:
            return src, label
        random.shuffle(self.aug_list)
        return self.aug_list[0](src, label)


class DetHorizontalFlipAug(DetAugmenter):
    """Mirrors image and boxes left to right, with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        if random.random() < self.p:
            src = nd.flip(src, axis=1)
            label[:, [1, 3]] = 1.0 - label[:, [3, 1]]
        return src, label


class DetRandomCropAug(DetAugmenter):
    """Crops a random part of the image, of an area in `area_range` (as a share of the image's) and an aspect ratio
    (width / height) in `aspect_ratio_range`.

    Of each object that the part touches, it must contain more than `min_object_covered`. Objects of which no more than
    `min_eject_coverage` remains are dropped. After `max_attempts` parts that do not suit, the image stays as it is.
    """

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        aspect_ratio_range, area_range = _range(aspect_ratio_range), _range(area_range)
        super().__init__(
            min_object_covered=min_object_covered,
            aspect_ratio_range=aspect_ratio_range,
            area_range=area_range,
            min_eject_coverage=min_eject_coverage,
            max_attempts=max_attempts,
        )
        self.min_object_covered = min_object_covered
        self.min_eject_coverage = min_eject_coverage
        self.max_attempts = max_attempts
        self.aspect_ratio_range = aspect_ratio_range
        self.area_range = area_range
        self.enabled = _is_possible(self, area_range[1] > 0)

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        height, width = src.shape[:2]
        if not self.enabled:
            return src, label
        least, most = (share * height * width for share in self.area_range)
        for _ in range(self.max_attempts):
            ratio = random.uniform(*self.aspect_ratio_range)
            h, highest = round(math.sqrt(least / ratio)), round(math.sqrt(most / ratio))
            if round(highest * ratio) > width:
                highest = int((width + 0.4999999) / ratio)
            highest = min(highest, height)
            h = random.randint(h, highest) if h < highest else highest
            if h * round(h * ratio) < least:
                h += 1
            if h * round(h * ratio) > most:
                h -= 1
            w = round(h * ratio)
            if not (least <= h * w <= most and 0 <= w <= width and 0 <= h <= height):
                continue
            y, x = random.randint(0, height - h), random.randint(0, width - w)
            kept = self._kept(label, (x / width, y / height, w / width, h / height), height * width)
            if h * w >= 2 and kept is not None:
                return fixed_crop(src, x, y, w, h), kept
        return src, label

    def _kept(self, label: np.ndarray, box: tuple[float, float, float, float], pixels: int) -> np.ndarray | None:
        """The label of a part of the image, if it covers enough of the objects; None otherwise."""
        left, top, width, height = box
        areas = _areas(label)
        inside = label.copy()
        inside[:, 1:3] = np.maximum(label[:, 1:3], (left, top))
        inside[:, 3:5] = np.minimum(label[:, 3:5], (left + width, top + height))
        with np.errstate(divide="ignore", invalid="ignore"):
            covered = _areas(inside) / areas
        met = covered[(areas * pixels > 2) & (covered > 0)]
        if not met.size or met.min() <= self.min_object_covered:
            return None
        moved = label.copy()
        moved[:, [1, 3]] = (label[:, [1, 3]] - left) / width
        moved[:, [2, 4]] = (label[:, [2, 4]] - top) / height
        moved[:, 1:5] = np.clip(moved[:, 1:5], 0, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            remains = _areas(moved) * width * height / areas
        valid = (moved[:, 3] > moved[:, 1]) & (moved[:, 4] > moved[:, 2]) & (remains > self.min_eject_coverage)
        return moved[valid] if valid.any() else None


class DetRandomPadAug(DetAugmenter):
    """Puts the image at a random place into a larger one of color `pad_val`, of an area in `area_range` (in units of
    the image's) and an aspect ratio (width / height) in `aspect_ratio_range`.

    After `max_attempts` sizes that are not larger by 2 pixels in both directions, the image stays as it is.
    """

    def __init__(
        self,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: Any = (128, 128, 128),
    ) -> None:
        pad_val = pad_val if isinstance(pad_val, (list, tuple)) else (pad_val,)
        aspect_ratio_range, area_range = _range(aspect_ratio_range), _range(area_range)
        super().__init__(
            aspect_ratio_range=aspect_ratio_range, area_range=area_range, max_attempts=max_attempts, pad_val=pad_val
        )
        self.pad_val = pad_val
        self.aspect_ratio_range = aspect_ratio_range
        self.area_range = area_range
        self.max_attempts = max_attempts
        self.enabled = _is_possible(self, area_range[1] > 1)

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        height, width = src.shape[:2]
        if not self.enabled:
            return src, label
        least, most = (share * height * width for share in self.area_range)
        for _ in range(self.max_attempts):
            ratio = random.uniform(*self.aspect_ratio_range)
            h, highest = round(math.sqrt(least / ratio)), round(math.sqrt(most / ratio))
            if round(h * ratio) < width:
                h = int((width + 0.499999) / ratio)
            h = min(max(h, height), highest)
            if h < highest:
                h = random.randint(h, highest)
            w = round(h * ratio)
            if h - height < 2 or w - width < 2:
                continue
            y, x = random.randint(0, h - height), random.randint(0, w - width)
            moved = label.copy()
            moved[:, [1, 3]] = (label[:, [1, 3]] * width + x) / w
            moved[:, [2, 4]] = (label[:, [2, 4]] * height + y) / h
            return copyMakeBorder(src, y, h - y - height, x, w - x - width, values=self.pad_val), moved
        return src, label


def _range(value: Any) -> tuple[float, float]:
    """(least, most) of a range, which may be one number."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def _is_possible(aug: Any, enough: bool) -> bool:
    """Whether the ranges of a cropping or padding augmenter hold anything; warns if not."""
    (least, most), (narrow, wide) = aug.area_range, aug.aspect_ratio_range
    for name, fits in (("area_range", enough and least <= most), ("aspect_ratio_range", 0 < narrow <= wide)):
        if not fits:
            warnings.warn(f"{type(aug).__name__} does nothing: {name} is {getattr(aug, name)}", stacklevel=3)
            return False
    return True


def _areas(label: np.ndarray) -> np.ndarray:
    return np.maximum(0, label[:, 3] - label[:, 1]) * np.maximum(0, label[:, 4] - label[:, 2])


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """One of several `DetRandomCropAug`s, drawn for each image. Settings may be lists, with one for each of them."""
    given = [min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts]
    each = [value if isinstance(value, list) else [value] for value in given]
    count = max(map(len, each))
    if any(len(values) not in (1, count) for values in each):
        lengths = ", ".join(str(len(values)) for values in each)
        raise AssertionError(f"lists of settings must have one length, got {lengths}")
    augs = [DetRandomCropAug(*values) for values in zip(*(v * count if len(v) == 1 else v for v in each))]
    return DetRandomSelectAug(augs, skip_prob=skip_prob)


def CreateDetAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """The list of augmenters that the settings select, for images of `data_shape` (channels, height, width).

    `rand_crop` and `rand_pad` are probabilities; `area_range[1]` is the largest area of a padded image. `mean=True` and
    `std=True` are ImageNet's.
    """
    augs: list[DetAugmenter] = []
    if resize > 0:
        augs.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        crops = (min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts)
        augs.append(CreateMultiRandCropAugmenter(*crops, skip_prob=1 - rand_crop))
    if rand_mirror > 0:
        augs.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        pad = DetRandomPadAug(aspect_ratio_range, (1.0, area_range[1]), max_attempts, pad_val)
        augs.append(DetRandomSelectAug([pad], 1 - rand_pad))
    colors: list[Augmenter] = [ForceResizeAug((data_shape[2], data_shape[1]), inter_method), CastAug()]
    if brightness or contrast or saturation:
        colors.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        colors.append(HueJitterAug(hue))
    if pca_noise > 0:
        colors.append(LightingAug(pca_noise, EIGVAL, EIGVEC))
    if rand_gray > 0:
        colors.append(RandomGrayAug(rand_gray))
    mean, std = channel_statistics(mean, std)
    if mean is not None or std is not None:
        colors.append(ColorNormalizeAug(mean, std))
    return [*augs, *map(DetBorrowAug, colors)]


class ImageDetIter(ImageIter):
    """Batches f32[batch, 3, height, width] of images with boxes, and labels f32[batch, objects, numbers], filled up
    with rows of -1 to the largest number of objects in the file.

    Labels in files are: width of the head A (2 or more), numbers per object B (5 or more), A − 2 numbers of any
    meaning; then for each object class, left, top, right, bottom and B − 5 others. Objects without area are left out,
    and so are images of which the augmenters leave none. `aug_list` has `DetAugmenter`s; without it,
    `CreateDetAugmenter` makes them of the other settings. Otherwise as `ImageIter`.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Any,
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
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            batch_size,
            data_shape,
            path_imgrec=path_imgrec,
            path_imglist=path_imglist,
            path_root=path_root,
            path_imgidx=path_imgidx,
            shuffle=shuffle,
            part_index=part_index,
            num_parts=num_parts,
            aug_list=[],
            imglist=imglist,
            data_name=data_name,
            label_name=label_name,
            last_batch_handle=last_batch_handle,
        )
        self.auglist = CreateDetAugmenter(data_shape, **kwargs) if aug_list is None else aug_list
        self.label_shape = self._estimate_label_shape()
        self.provide_label = [(label_name, (batch_size, *self.label_shape))]

    def _estimate_label_shape(self) -> tuple[int, int]:
        """(the largest number of objects, numbers per object) of the labels."""
        self.reset()
        objects, width = 0, 0
        while True:
            try:
                label = self._parse_label(self.next_sample()[0])
            except StopIteration:
                break
            if width not in (0, label.shape[1]):
                raise MXNetError(f"{self._place()}: objects have {label.shape[1]} numbers, those before {width}")
            objects, width = max(objects, label.shape[0]), label.shape[1]
        if not width:
            raise MXNetError(f"{type(self).__name__}: there are no images")
        if objects * width > _MAX_LABEL:
            raise MXNetError(
                f"{type(self).__name__}: labels of {objects} objects of {width} numbers are too large: {_MAX_LABEL} "
                "numbers are the most"
            )
        self.hard_reset()
        return objects, width

    def _parse_label(self, label: Any) -> np.ndarray:
        """The objects of a label in a file: f32[objects, numbers]; RuntimeError if it is none."""
        raw = label.asnumpy().ravel() if isinstance(label, NDArray) else np.ravel(label)
        if raw.size < 7:
            raise MXNetError(f"{self._place()}: Label shape is invalid: {raw.shape}; a label has 7 numbers at least")
        if not (2 <= raw[0] <= raw.size and 5 <= raw[1] <= raw.size) or (raw.size - int(raw[0])) % int(raw[1]):
            raise MXNetError(
                f"{self._place()}: Label shape {raw.shape} inconsistent with a head of {raw[0]:g} numbers and "
                f"annotation width {raw[1]:g}"
            )
        objects = raw[int(raw[0]) :].reshape(-1, int(raw[1])).astype(np.float32)
        valid = (objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])
        if not valid.any():
            raise MXNetError(f"{self._place()}: Encounter sample with no valid label.")
        return objects[valid]

    def _new_batch(self) -> tuple[Any, Any]:
        data, _ = super()._new_batch()
        return data, as_current(nd.full(self.provide_label[0][1], -1))

    def _samples(self) -> Any:
        while True:
            try:
                raw, data = self.next_sample()
            except StopIteration:
                return
            image = self.imdecode(data)
            try:
                self.check_valid_image([image])
                image, label = self.augmentation_transform(image, self._parse_label(raw))
                self._check_valid_label(label)
            except RuntimeError:
                continue
            rows = np.full(self.label_shape, -1, np.float32)
            if len(label) > len(rows) or label.shape[1] != rows.shape[1]:
                raise MXNetError(f"{self._place()}: a label of shape {label.shape}; label_shape is {self.label_shape}")
            rows[: len(label)] = label
            yield rows, image

    def _check_valid_label(self, label: Any) -> None:
        if len(label.shape) != 2 or label.shape[1] < 5:
            raise RuntimeError(f"Label with shape (1+, 5+) required, {label} received.")
        if not ((label[:, 0] >= 0) & (label[:, 3] > label[:, 1]) & (label[:, 4] > label[:, 2])).any():
            raise RuntimeError("Invalid label occurs.")

    def augmentation_transform(self, data: Any, label: Any = None) -> Any:
        for aug in self.auglist:
            data, label = aug(data, label)
        return data, label

    def reshape(self, data_shape: Any = None, label_shape: Any = None) -> None:
        """Changes the shapes of the batches to come. Labels may only get more rows."""
        if data_shape is not None:
            self.check_data_shape(data_shape)
            self.data_shape = tuple(data_shape)
            self.provide_data = [(self.provide_data[0][0], (self.batch_size, *data_shape))]
        if label_shape is not None:
            self.check_label_shape(label_shape)
            self.label_shape = tuple(label_shape)
            self.provide_label = [(self.provide_label[0][0], (self.batch_size, *label_shape))]

    def check_label_shape(self, label_shape: Sequence[int]) -> None:
        if len(label_shape) != 2:
            raise ValueError(f"label_shape should have length 2, got {label_shape}")
        objects, width = self.label_shape
        if label_shape[0] < objects:
            raise ValueError(f"Attempts to reduce label count from {objects} to {label_shape[0]}, not allowed.")
        if label_shape[1] != width:
            raise ValueError(f"label_shape object width inconsistent: {width} vs {label_shape[1]}.")

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Gives both iterators the larger of their numbers of rows; returns the other. `verbose` has no effect."""
        if not isinstance(it, ImageDetIter):
            raise AssertionError("Synchronize with invalid iterator.")
        if self.label_shape[1] != it.label_shape[1]:
            raise AssertionError(f"object width mismatch: {self.label_shape[1]} and {it.label_shape[1]}")
        shape = (max(self.label_shape[0], it.label_shape[0]), self.label_shape[1])
        self.reshape(label_shape=shape)
        it.reshape(label_shape=shape)
        return it

    def draw_next(
        self,
        color: Sequence[float] | None = None,
        thickness: int = 2,
        mean: Any = None,
        std: Any = None,
        clip: bool = True,
        waitKey: int | None = None,
        window_name: str = "draw_next",
        id2labels: Mapping[int, str] | None = None,
    ) -> Iterator[np.ndarray]:
        """The augmented images of the rest of the pass, with their boxes: u8[height, width, 3], blue first.

        * `color`: red, green and blue of the boxes (None: a random one for each, from NumPy); `thickness`: of their
          edges, in pixels; negative ones fill the box. `id2labels`: names of classes, written into the boxes.
        * `mean`, `std`: f64[1 or 3] to undo a normalization with; True stands for ImageNet's. `clip`: to 0 … 255.
        * `waitKey`: shows each image in a window for this many milliseconds (0: until a key is pressed), with OpenCV.
        """
        shift, scale = (x.asnumpy() if isinstance(x, NDArray) else x for x in channel_statistics(mean, std))
        cv2 = None if waitKey is None else _opencv()
        while True:
            try:
                raw, data = self.next_sample()
            except StopIteration:
                return
            decoded = self.imdecode(data)
            try:
                self.check_valid_image([decoded])
                label = self._parse_label(raw)
            except RuntimeError:
                continue
            augmented, label = self.augmentation_transform(decoded, label)
            image = augmented.asnumpy().astype(np.float32)
            if scale is not None:
                image *= scale
            if shift is not None:
                image += shift
            image = (np.clip(image, 0, 255) if clip else image)[:, :, ::-1].astype(np.uint8, order="C")
            for numbers in np.asarray(label, np.float64):
                if int(numbers[1] * image.shape[1]) >= 0:
                    own = np.random.rand(3) * 255 if color is None else color[::-1]
                    image = _with_box(image, numbers, own, thickness, (id2labels or {}).get(int(numbers[0])))
            if cv2 is not None:
                cv2.imshow(window_name, image)
                cv2.waitKey(waitKey)
            yield image


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as e:
        raise MXNetError("waitKey shows windows with OpenCV: pip install opencv-python, or leave it None") from e
    return cv2


def _with_box(image: np.ndarray, numbers: Any, color: Any, thickness: int, name: str | None) -> np.ndarray:
    """The image with the box of an object. Edges are centered on its sides."""
    height, width = image.shape[:2]
    left, right = (int(numbers[k] * width) for k in (1, 3))
    top, bottom = (int(numbers[k] * height) for k in (2, 4))
    rows, columns = np.arange(height)[:, None], np.arange(width)
    outer, inner = (thickness // 2, thickness - thickness // 2) if thickness > 0 else (0, 0)

    def within(margin: int) -> np.ndarray:
        x = (columns >= left - margin) & (columns <= right + margin)
        return x & (rows >= top - margin) & (rows <= bottom + margin)

    image[within(outer) & ~within(-inner) if thickness > 0 else within(0)] = np.rint(color)
    if name is None:
        return image
    from PIL import ImageDraw

    canvas = pillow().fromarray(image)
    ImageDraw.Draw(canvas).text((left + 5, top + 5), str(name), fill=(255, 255, 255))
    return np.array(canvas)


_MAX_LABEL = 1 << 20
"""The most numbers in a label: a batch has room for the longest one in each example."""

_mxnet_names.explain(__name__)
