"""Finds the user's line: the innermost frame outside this package."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Mapping
from types import CodeType, FrameType, MappingProxyType
from typing import Any, NamedTuple

from gluonjit.ir.graph import Loc


def user_frame(
    known: Mapping[int, FrameType | None] = MappingProxyType({}), in_models: bool = False
) -> FrameType | None:
    """The innermost frame outside gluonjit; None if there is none, or if only the caller of the command line is.

    `known`: the result for some of the frames below, by their ids, which spares the walk from there on. `in_models`:
    the programs of the model zoo count as the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if known and id(frame) in known:
            return known[id(frame)]
        whose = _whose[frame.f_globals.get("__name__", "")]
        if whose is not _OURS:
            if whose is _USER or (whose is _MODELS and in_models):
                return frame
            if whose is _COMMAND_LINE:
                return None
        frame = frame.f_back
    return None


_OURS, _MODELS, _COMMAND_LINE, _USER = "ours", "model zoo", "command line", "user"


class _Owners(dict[str, str]):
    """Who a module belongs to, by its name. A trace, and a tape, ask for thousands of frames, of few modules."""

    def __missing__(self, module: str) -> str:
        owner = _USER
        if is_ours(module):
            models = module.startswith("gluon.model_zoo.", 9)
            owner = _MODELS if models else _COMMAND_LINE if module.startswith("tools.cli", 9) else _OURS
        self[module] = owner
        return owner


_whose = _Owners()


def is_ours(module: str) -> bool:
    """Whether a module of this name is one of this package."""
    return module.startswith("gluonjit") and module[8:9] in ("", ".")


class Place(NamedTuple):
    """A place in a program, whose line is looked up when it is asked for."""

    code: CodeType | None
    offset: int
    """Of an instruction, in bytes."""

    @property
    def loc(self) -> Loc:
        if self.code is None:
            return Loc()
        lines = (line for start, end, line in self.code.co_lines() if start <= self.offset < end)
        return Loc(self.code.co_filename, next(lines, None) or self.code.co_firstlineno)


def user_place(own: int) -> tuple[CodeType | None, int]:
    """Where the user's program is, as the parts of a `Place`: a program may ask for thousands, and show none. The
    innermost `own` callers of this function are known to be this package's."""
    frame: FrameType | None = sys._getframe(own + 1)
    while frame is not None and _whose[frame.f_globals.get("__name__", "")] is _OURS:
        frame = frame.f_back
    if frame is not None and _whose[frame.f_globals.get("__name__", "")] is not _USER:
        frame = user_frame()
    return (None, 0) if frame is None else (frame.f_code, frame.f_lasti)


def user_loc(block: str = "", known: Mapping[int, FrameType | None] = MappingProxyType({})) -> Loc:
    """The user's current line; `block` names the block that is running. `known`: see `user_frame`."""
    frame = user_frame(known)
    return Loc(frame.f_code.co_filename, frame.f_lineno, block) if frame else Loc(block=block)


def layer_loc() -> Loc | None:
    """Where the layer that runs was made, if another block of this package calls it, as a Sequential does: then the
    user's line, which calls that, does not tell which layer it is."""
    frame: FrameType | None = sys._getframe(1)
    layers: list[Any] = []
    until = user_frame()
    while frame is not None and frame is not until:
        block = frame.f_locals.get("self")
        if getattr(block, "_made_at", None) is not None and not any(block is other for other in layers):
            layers.append(block)
        frame = frame.f_back
    if len(layers) < 2:
        return None
    file, line = layers[0]._made_at
    return Loc(file, line, layers[0].name)


def quote(loc: Loc | None, at: str = "at") -> str:
    """The end of an error message, as far as known: `\\n  at file:line (block)\\n    source text`; `at` may be another
    word."""
    if loc is None or not str(loc):
        return ""
    text = linecache.getline(loc.file, loc.line).strip() if loc.file else ""
    return f"\n  {at} {shown(loc)}" + (f"\n    {text}" if text else "")


def shown(loc: Loc) -> str:
    """A place for users: in IPython, whose cells are files of names that say nothing, `In [3], line 2`."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)() if loc.file else None
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {})
    if loc.file not in cells:
        return str(loc)
    return f"In [{cells[loc.file]}], line {loc.line}" + (f" ({loc.block})" if loc.block else "")


def stacklevel() -> int:
    """The `stacklevel` with which `warnings.warn`, in the caller, points to the user's line."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gluonjit":
        level, frame = level + 1, frame.f_back
    return level


def refusal(kind: type[Exception], call: str, why: object) -> Exception:
    """An error of a call, with its arguments as text, in which the user's line is quoted as in those of operators."""
    return kind(f"Error in {call}: {why}{quote(user_loc())}")
