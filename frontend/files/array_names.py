"""Names of arrays and nodes: what every format can hold, and how names from files are shown.

A name comes from whoever made the file. Printed as it is, it could rewrite the user's terminal or feign other lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from gluonjit.base import MXNetError

MAX_BYTES = 60_000
"""Of an array's name; 65,535 is the most that a zip archive has, with `.npy` at the end."""


def fault(name: str) -> str:
    """What keeps `name` out of files, as "a NUL character"; empty for a good name.

    C ends its strings at NUL, and so do MXNet and zip archives; halves of surrogate pairs have no form in UTF-8.
    """
    if "\0" in name:
        return "a NUL character"
    return "a surrogate without its pair" if any("\ud800" <= c <= "\udfff" for c in name) else ""


def check(names: Iterable[str]) -> None:
    """MXNetError for names that cannot be written."""
    for name in names:
        found = fault(name)
        if found:
            raise MXNetError(f"the name {name!r} has {found}, which files of arrays cannot hold")
        if len(name.encode()) > MAX_BYTES:
            raise MXNetError(f"the name {name[:30]!r}... has {len(name.encode())} bytes; {MAX_BYTES} are the most")


def shown(text: str) -> str:
    r"""`text` with what does not print, line ends included, as escapes such as `\x1b`; else unchanged."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
