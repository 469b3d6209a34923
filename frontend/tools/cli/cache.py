"""`gluonjit cache`: lists the compiled code that is kept on disk, or deletes it."""

from __future__ import annotations

import argparse
import time
from typing import Any

from gluonjit.common.quantities import bytes_text


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "cache",
        help="show or clear the object cache",
        description="Shows or clears the object cache, which keeps compiled code on disk for later processes. The "
        "environment variable GLUONJIT_CACHE_DIR sets its folder; GLUONJIT_CACHE=0 turns it off.",
        epilog="example:\n  gluonjit cache show",
    )
    p.add_argument(
        "action", choices=("show", "clear"), metavar="show|clear", help="list its entries, or remove them all"
    )
    p.set_defaults(run=_run)


def summary() -> str:
    """The cache's folder, number of entries and size, or why there is no cache."""
    from gluonjit.runtime import cache, prepared_files

    if reason := cache.why_off():
        return f"none ({reason})"
    found = cache.entries()
    size = sum(e.size for e in found)
    count = "1 entry" if len(found) == 1 else f"{len(found)} entries"
    packed = sum(e.size for e in prepared_files.files())
    also = f"; packed parameters {bytes_text(packed)} of {bytes_text(prepared_files.LIMIT)}" if packed else ""
    return f"{cache.folder()} ({count}, {bytes_text(size)} of {bytes_text(cache.LIMIT)}{also})"


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.runtime import cache, prepared_files

    if arguments.action == "clear":
        if reason := cache.why_unchangeable():
            print(f"nothing is removed: {reason}")
            return
        count = cache.clear() + prepared_files.evict(0)
        print(f"removed {count} {'entry' if count == 1 else 'entries'} from {cache.folder()}")
        return
    print(summary())
    if cache.why_off():
        return
    for entry in cache.entries():
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        print(f"{used}  {bytes_text(entry.size):>11}  {entry.name}")
