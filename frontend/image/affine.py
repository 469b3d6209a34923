"""Rotation, shear and scaling of images as OpenCV's `warpAffine` computes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.image.image import MAX_PIXELS
from gluonjit.operators.vision.image_resize import AREA, LINEAR, NEAREST, kernel_taps

_FINE, _STEPS = 1024, 32
"""OpenCV's fixed point: coordinates are multiples of 1/1024, and kernels are tabulated at 32 steps of a pixel."""


@dataclass(frozen=True)
class RandomAffine:
    """Settings of MXNet's `ImageRecordIter` that rotate, shear and scale.

    * The angle in degrees: one of `rotate_list` if there are any, else `rotate` if that is positive, else a whole
      number up to ± `max_rotate_angle`. Positive ones turn counter-clockwise.
    * Rows are moved sideways by up to ± `max_shear_ratio` pixels for each pixel of height.
    * Sizes are multiplied by a number in `scales`, then width and height by 2 r / (1 + r) and 2 / (1 + r) with an
      aspect ratio r in `ratios`, within a frame of the scaled size, which is at least `least` and at most `most` wide
      and high. What is outside of the image becomes `fill`.
    """

    rotate: int = -1
    rotate_list: tuple[int, ...] = ()
    max_rotate_angle: int = 0
    max_shear_ratio: float = 0
    scales: tuple[float, float] = (1, 1)
    ratios: tuple[float, float] = (1, 1)
    least: float = 0
    most: float = 1e10
    fill: int = 255

    def changes(self) -> bool:
        """Whether any of the settings is not at its default."""
        still = RandomAffine(rotate=self.rotate if self.rotate <= 0 else -1, fill=self.fill)
        return self != still

    def draw(self, height: int, width: int, random: np.random.RandomState) -> tuple[np.ndarray, int, int]:
        """(matrix f32[2, 3] from old to new x and y, new height, new width) for an image of this size."""
        shear = random.uniform(-self.max_shear_ratio, self.max_shear_ratio) if self.max_shear_ratio > 0 else 0.0
        angle = random.randint(-self.max_rotate_angle, self.max_rotate_angle + 1) if self.max_rotate_angle > 0 else 0
        angle = self.rotate if self.rotate > 0 else angle
        angle = self.rotate_list[random.randint(len(self.rotate_list))] if self.rotate_list else angle
        scale, ratio = random.uniform(*self.scales), random.uniform(*self.ratios)
        cos, sin = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
        high = 2 * scale / (1 + ratio)
        wide = ratio * high
        new_w, new_h = (max(self.least, min(self.most, scale * n)) for n in (width, height))
        turn = np.array(
            [
                [high * cos - shear * sin * wide, high * sin + shear * cos * wide],
                [-sin * wide, cos * wide],
            ]
        )
        moved = (np.array([new_w, new_h]) - turn @ [width, height]) / 2
        return np.column_stack([turn, moved]).astype(np.float32), int(new_h), int(new_w)


def warp_affine(x: np.ndarray, matrix: np.ndarray, height: int, width: int, method: int, fill: int) -> np.ndarray:
    """u8[height, width, channels]: the image u8[h, w, channels], with `matrix` f32[2, 3] applied to coordinates (x, y).

    `method`: 0 nearest, 1 and 3 bilinear, 2 cubic, 4 Lanczos. Pixels outside of the image have the value `fill`.
    MXNetError if the result has no pixels or too many.
    """
    if min(height, width) < 1 or height * width > MAX_PIXELS:
        raise MXNetError(f"an image of {x.shape[0]} x {x.shape[1]} pixels would become one of {height} x {width}")
    turn, shift = matrix[:, :2].astype(np.float64), matrix[:, 2].astype(np.float64)
    determinant = turn[0, 0] * turn[1, 1] - turn[0, 1] * turn[1, 0]
    if not determinant:
        raise MXNetError("an image cannot be scaled to nothing")
    back = np.array([[turn[1, 1], -turn[0, 1]], [-turn[1, 0], turn[0, 0]]]) / determinant
    start = -back @ shift
    steps = 1 if method == NEAREST else _STEPS
    rounding = _FINE // steps // 2
    columns, rows = np.arange(width), np.arange(height)
    by_column = np.rint(back[:, 0, None] * columns * _FINE).astype(np.int64)
    by_row = np.rint((back[:, 1, None] * rows + start[:, None]) * _FINE).astype(np.int64) + rounding
    if method == NEAREST:
        offsets, kernel = np.zeros(1, np.int64), np.ones((1, 1))
    else:
        offsets, kernel = kernel_taps(np.arange(_STEPS) / _STEPS, LINEAR if method == AREA else method)
    reach = len(offsets)
    framed = np.pad(x, ((reach, reach), (reach, reach), (0, 4 - x.shape[2])), constant_values=fill)
    table = framed.reshape(-1, 4).view(np.uint32)[:, 0]  # a word for each pixel
    (across, part_x), (down, part_y) = (
        _taps((r[:, None] + c) // (_FINE // steps), steps, offsets, n)
        for r, c, n in zip(by_row, by_column, x.shape[1::-1])
    )
    weights = np.ascontiguousarray(kernel.T, np.float32)
    weights_x, weights_y = ([np.take(one, part) for one in weights] for part in (part_x, part_y))
    total = np.zeros((height, width, 4), np.float32)
    for row, weight_y in zip(down, weights_y):
        line = row * framed.shape[1]
        for column, weight_x in zip(across, weights_x):
            pixels = np.take(table, line + column).view(np.uint8).reshape(height, width, 4)
            total += pixels * (weight_y * weight_x)[..., None]
    np.floor(total + np.float32(0.5), out=total)
    return np.clip(total, 0, 255, out=total)[..., : x.shape[2]].astype(np.uint8)


def _taps(places: np.ndarray, steps: int, offsets: np.ndarray, size: int) -> tuple[list[np.ndarray], np.ndarray]:
    """(for each tap, where in a frame of as many pixels around `size` ones it reads; the step of the kernel), for
    coordinates in steps of a pixel. Those far outside read the frame, as those nearby do."""
    corner, part = places >> steps.bit_length() - 1, places & steps - 1
    reach = len(offsets)
    return [np.clip(corner + k, -reach, size + reach - 1) + reach for k in offsets], part
