"""Packs the models of `reference/cases.py` into `tests/data/ref.tar.xz`, or unpacks them.

    python tests/oracle/pack.py FOLDER            packs what is in FOLDER/<case>/
    python tests/oracle/pack.py --unpack FOLDER   unpacks the archive there, to look at it or to change a case

The same files give the same archive. Large ones belong into the folder `shared` beside the project.
"""

from __future__ import annotations

import argparse
import io
import lzma
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[1] / "data" / "ref.tar.xz"
MOST = 256 << 10
"""Bytes of a file."""


def packed(folder: Path) -> bytes:
    """All `<case>/<file>` in the folder as tar: sorted by name, without times, owners and modes of their own."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.glob("*/*")):
            data = path.read_bytes()
            if len(data) > MOST:
                raise SystemExit(f"{path} has {len(data)} bytes, of which {MOST} are the most for the archive")
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--unpack", action="store_true")
    args = parser.parse_args()
    if args.unpack:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(args.folder)
    else:
        ARCHIVE.write_bytes(lzma.compress(packed(args.folder), preset=9 | lzma.PRESET_EXTREME))
        print(f"{ARCHIVE}: {ARCHIVE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
