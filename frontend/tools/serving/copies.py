"""Copies of a model's files in the temporary folder, while the model is being opened: what is mapped then stays
readable when its file is gone, and nobody can overwrite it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_PREFIX = "gluonjit-serve-"
_NEW = 60.0
"""Seconds in which a folder may not be locked yet."""


@contextlib.contextmanager
def copied(files: Sequence[str]) -> Iterator[list[str]]:
    """The copies' paths. Their folder is locked, so that others see that its process is alive: a server that is killed
    while it loads leaves it behind."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
        place = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(place, fcntl.LOCK_EX)
            yield [shutil.copy(f, os.path.join(folder, os.path.basename(f))) for f in files]
        finally:
            os.close(place)


def remove_abandoned() -> None:
    """Removes the folders of processes that have ended; those of other users as far as one may."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process removes it, or it is another user's
            place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if time.time() - os.fstat(place).st_mtime > _NEW:
                    fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(place)
