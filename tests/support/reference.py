"""The models that real MXNet 1.9.1 exported and ran: `tests/data/ref.tar.xz`, a folder of small files for each.

`tests/reference/cases.py` tells what the files are, `tests/oracle/pack.py` writes the archive.
"""

import functools
import tarfile
import tempfile
import weakref
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[1] / "data" / "ref.tar.xz"


@functools.cache
def folder() -> Path:
    """The archive, unpacked for as long as this process lives."""
    unpacked = tempfile.TemporaryDirectory(prefix="gluonjit-ref-")
    weakref.finalize(folder, unpacked.cleanup)
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            path = Path(unpacked.name, member.name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(archive.extractfile(member).read())
    return Path(unpacked.name)


def names() -> list[str]:
    """The names of all models."""
    return sorted(path.name for path in folder().iterdir())
