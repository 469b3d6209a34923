"""Tracebacks that nobody caught are printed without this package's frames, between which the user's own would be lost.

Only what is printed when a program ends is shortened: the exception keeps its traceback, so a debugger
(`python -m pdb`, `pdb.pm()`), a logger or a test runner sees all of it. Nothing is done before an exception ends the
program, so calls cost nothing. `GLUONJIT_TRACEBACK=full` prints everything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

TOLD = (ValueError, TypeError, RuntimeError, NotImplementedError, OSError, ImportError, MemoryError, KeyboardInterrupt)
"""What tells a user something, also when it is raised here, as IRError does; MXNetError is a RuntimeError. Others that
are raised here are faults of this package, whose frames somebody must see."""


def install() -> None:
    """Makes `sys.excepthook` leave frames out; it goes on to the function that was there before."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> Any:
        if os.environ.get("GLUONJIT_TRACEBACK") == "full":
            return before(kind, error, tb)
        kept = [(e, e.__traceback__) for e in _chain(error)]
        hidden = 0
        try:
            for e, whole in kept:
                e.__traceback__, count = without_own_frames(e, whole)
                hidden += count
            if hidden and sys.stderr is not None:
                frames = "1 frame" if hidden == 1 else f"{hidden} frames"
                print(f"({frames} of gluonjit left out; GLUONJIT_TRACEBACK=full shows all)", file=sys.stderr)
            return before(kind, error, error.__traceback__)
        finally:
            for e, whole in kept:
                e.__traceback__ = whole

    sys.excepthook = hook


def without_own_frames(error: BaseException, tb: TracebackType | None) -> tuple[TracebackType | None, int]:
    """The traceback without frames of this package, and how many these are; as it is for a fault of this package, and
    where there would be none left."""
    parts = []
    while tb is not None:
        parts.append(tb)
        tb = tb.tb_next
    users = [part for part in parts if not _is_own(part)]
    types = sys.modules.get("gluonjit.ir.types")  # not imported for this: what failed may be an import
    told = TOLD if types is None else (*TOLD, types.IRError)
    if not users or (_is_own(parts[-1]) and not isinstance(error, told)):
        return parts[0] if parts else None, 0
    found = None
    for part in reversed(users):
        found = TracebackType(found, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return found, len(parts) - len(users)


def _is_own(tb: TracebackType) -> bool:
    return tb.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "gluonjit"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that are printed above it."""
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        e = left.pop()
        if e is not None and all(e is not other for other in seen):
            seen.append(e)
            yield e
            left += [e.__cause__, None if e.__suppress_context__ else e.__context__]
