"""Files that are mapped to be read."""

from __future__ import annotations

import contextlib
import mmap


def map_readonly(handle: int, size: int = 0) -> mmap.mmap:
    """A file (its first `size` bytes; 0: all), mapped and read-only."""
    content = mmap.mmap(handle, size, access=mmap.ACCESS_READ)
    # The system then reads it in large pieces that are mapped at once. By default it reads pieces of 128 KiB and maps
    # 64 KiB at each page fault: a process that maps 170 MB spent 16 ms on that, and 2 ms so.
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            content.madvise(advice)
    return content
