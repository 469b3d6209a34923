"""Tracebacks that nobody caught are printed without this package's frames, between which the user's own would be lost.

Only what is printed when a program, or a cell of a notebook, ends is shortened: the exception keeps its traceback, so a
debugger (`python -m pdb`, `pdb.pm()`, `%debug`), a logger or a test runner sees all of it. Nothing is done before an
exception ends the program, so calls cost nothing. `GLUONJIT_TRACEBACK=full` prints everything.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

TOLD = (ValueError, TypeError, RuntimeError, NotImplementedError, OSError, ImportError, MemoryError, KeyboardInterrupt)
"""What tells a user something, also when it is raised here, as IRError does; MXNetError is a RuntimeError. So do others
that a `raise` with a text raises, such as MXNet's AssertionErrors. All others that are raised here are faults of this
package, whose frames somebody must see."""


def install() -> None:
    """Makes `sys.excepthook` leave frames out; it goes on to the function that was there before. So does IPython, and
    with it Jupyter, which does not use that, if one runs this program."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> Any:
        with _shortened(error):
            return before(kind, error, error.__traceback__)

    sys.excepthook = hook
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception, KeyboardInterrupt), _show_in_ipython)


def _show_in_ipython(
    shell: Any, kind: type[BaseException], error: BaseException, tb: TracebackType | None, tb_offset: int | None = None
) -> None:
    """Shows what a cell has raised, as IPython does."""
    with _shortened(error):
        shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
    shell.InteractiveTB.tb = sys.last_traceback = tb  # for %debug


@contextlib.contextmanager
def _shortened(error: BaseException) -> Iterator[None]:
    """Inside of it, the exception and those printed above it have tracebacks without this package's frames. Prints how
    many these are."""
    kept = [(e, e.__traceback__) for e in _chain(error)]
    hidden = 0
    try:
        for e, whole in kept if os.environ.get("GLUONJIT_TRACEBACK") != "full" else ():
            e.__traceback__, count = without_own_frames(e, whole, e is error)
            hidden += count
        if hidden and sys.stderr is not None:
            frames = "1 frame" if hidden == 1 else f"{hidden} frames"
            print(f"({frames} of gluonjit left out; GLUONJIT_TRACEBACK=full shows all)", file=sys.stderr)
        yield
    finally:
        for e, whole in kept:
            e.__traceback__ = whole


def without_own_frames(
    error: BaseException, tb: TracebackType | None, last: bool = True
) -> tuple[TracebackType | None, int]:
    """The traceback without frames of this package, and how many these are; as it is for a fault of this package, and
    for the `last` exception where there would be none left."""
    parts = []
    while tb is not None:
        parts.append(tb)
        tb = tb.tb_next
    users, own = [], False
    for part in parts:
        # Modules are imported when they are first used, so frames of importlib lie between those of this package.
        own = _is_own(part) or (own and _package(part) == "importlib")
        users += [part] * (not own)
    types = sys.modules.get("gluonjit.ir.types")  # not imported for this: what failed may be an import
    told = TOLD if types is None else (*TOLD, types.IRError)
    fault = parts and _is_own(parts[-1]) and not isinstance(error, told) and not _raised_with_a_text(error, parts[-1])
    if (last and not users) or fault:
        return parts[0] if parts else None, 0
    found = None
    for part in reversed(users):
        found = TracebackType(found, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return found, len(parts) - len(users)


def _raised_with_a_text(error: BaseException, tb: TracebackType) -> bool:
    """Whether a `raise` in the frame raised it; an `assert` is one without a text."""
    import opcode

    return tb.tb_frame.f_code.co_code[tb.tb_lasti] == opcode.opmap["RAISE_VARARGS"] and bool(error.args)


def _is_own(tb: TracebackType) -> bool:
    return _package(tb) == "gluonjit"


def _package(tb: TracebackType) -> str:
    return tb.tb_frame.f_globals.get("__name__", "").partition(".")[0]


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
