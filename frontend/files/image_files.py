"""Decoding of image files by Pillow, which is imported on first use."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from gluonjit.base import MXNetError

FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM", "GIF", "JPEG2000", "MPO")
"""The formats that are accepted. Pillow has more, some of which start other programs (EPS: Ghostscript)."""


def pillow() -> Any:
    """Pillow's module `Image`; MXNetError that says how to install it."""
    try:
        from PIL import Image
    except ImportError as e:
        raise MXNetError("reading images needs Pillow: pip install pillow") from e
    return Image


def decode(data: bytes, mode: str | None) -> np.ndarray:
    """The image in a file's contents: u8[height, width, 3] for mode 'RGB', 4 channels for 'RGBA', u8[height, width]
    for 'L' (gray).

    With None, gray images stay gray, all others become 'RGB'. The EXIF orientation is applied.
    """
    image_module = pillow()
    from PIL.ImageOps import exif_transpose

    image_module.init()
    formats = [name for name in FORMATS if name in image_module.OPEN]  # Pillow may be built without some
    try:
        image = exif_transpose(image_module.open(io.BytesIO(data), formats=formats))
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as e:
        raise MXNetError(f"Decoding failed. Invalid image file: {e}") from e
    if mode is None:
        mode = "L" if image.mode in ("1", "L", "I;16") else "RGB"
    return np.asarray(image if image.mode == mode else image.convert(mode), np.uint8)
