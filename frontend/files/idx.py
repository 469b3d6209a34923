"""The files of MNIST: two zeros, type, number of axes, sizes (big-endian i32), elements."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.files import packed


def read(path: str | os.PathLike[str], ndim: int) -> np.ndarray:
    """The u8 array of `ndim` axes in a file, which may end in `.gz`; MXNetError if the file is another."""
    file = Path(path)
    with packed.opened(file) if file.suffix == ".gz" else open(file, "rb") as opened:
        data = opened.read()
    if data[:4] != bytes((0, 0, 8, ndim)) or len(data) < 4 + 4 * ndim:
        raise MXNetError(f"{file} is not an MNIST file of {ndim} axes")
    shape = struct.unpack(f">{ndim}I", data[4 : 4 + 4 * ndim])
    elements = np.frombuffer(data, np.uint8, offset=4 + 4 * ndim)
    if elements.size != math.prod(shape):
        raise MXNetError(f"{file} has {elements.size} numbers; its header says {' x '.join(map(str, shape))}")
    return elements.reshape(shape)
