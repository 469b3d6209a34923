"""Names of arrays and nodes: which ones every format can hold, and how names from files are shown.

Names from files are untrusted: printed unescaped, they could send control sequences to the terminal or fake lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from gluonjit.base import MXNetError

MAX_BYTES = 60_000
"""The longest name of an array. A zip archive allows 65,535 bytes, `.npy` included."""


def fault(name: str) -> str:
    """Why `name` cannot be in a file, such as "a NUL character"; empty for a valid name.

    MXNet and zip archives end strings at NUL, as C does; lone surrogates cannot be encoded as UTF-8.
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
    r"""`text` with unprintable characters, including line ends, replaced by escapes such as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
