"""Decoding of image files, by Pillow, which is not required until then."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from gluonjit.base import MXNetError

FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM", "GIF", "JPEG2000", "MPO")
"""Pillow knows more, of which some start other programs (EPS: Ghostscript)."""


def pillow() -> Any:
    """Pillow's module `Image`; MXNetError that says how to get it."""
    try:
        from PIL import Image
    except ImportError as e:
        raise MXNetError("reading images needs Pillow: pip install pillow") from e
    return Image


def decode(data: bytes, mode: str | None) -> np.ndarray:
    """The image in a file's contents: u8[height, width, 3] for mode 'RGB', u8[height, width] for 'L' (gray).

    None decides by what is stored: gray stays gray, everything else becomes 'RGB'. A camera's note on how it was held
    is followed.
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
