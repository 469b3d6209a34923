"""What the command line writes to a terminal: nothing that could steer it, in colour, through a pager.

The command line prints through `escaping()`. `show` also goes past it, with text that it has escaped itself.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, TextIO

from gluonjit.base import MXNetError
from gluonjit.files import atomic
from gluonjit.files.array_names import shown


def escaped(text: str) -> str:
    """`text` with unprintable characters escaped, so that names from files cannot control the terminal."""
    return "".join(c if c in "\n\t" else shown(c) for c in text) if not text.isprintable() else text


class _Escaping:
    """A wrapper of a stream that escapes the text written to it. What draws a line again and again, as
    `runtime.progress` does, writes to the stream `unescaped`."""

    def __init__(self, stream: TextIO) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        self.unescaped.write(escaped(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


def unescaped(stream: TextIO) -> TextIO:
    """The stream itself, without the wrapper of `escaping()`: for text that has no names in it."""
    return stream.unescaped if isinstance(stream, _Escaping) else stream


@contextlib.contextmanager
def escaping() -> Iterator[None]:
    """Escapes unprintable characters, and characters that the output's encoding lacks, in all that is printed."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with contextlib.redirect_stdout(_Escaping(sys.stdout)), contextlib.redirect_stderr(_Escaping(sys.stderr)):
        yield


def wrapped(text: str, first: str = "", rest: str = "") -> str:
    """The words of `text`, behind `first`, in lines that fit into the terminal, those after the first behind `rest`. In
    one line, for `grep` and the like, where the output is no terminal and COLUMNS is not set."""
    fits = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if fits else sys.maxsize
    found = textwrap.fill(
        " ".join(text.split()),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return found or first.rstrip()


def wrapped_document(text: str) -> str:
    """The paragraphs and the points (`* …`) of `text`, each `wrapped`; examples (`>>> …`) as they are."""
    parts = re.split(r"(\n\s*\n|\n(?=\* ))", text)
    as_they_are = [not part.strip() or part.startswith(">>>") for part in parts]
    rest = ["  " * part.startswith("* ") for part in parts]
    return "".join(p if keep else wrapped(p, rest=r) for p, keep, r in zip(parts, as_they_are, rest, strict=True))


def listed(name: str, text: str, column: int, notes: str = "") -> str:
    """A line of a list: a name, and what its documentation `text` says first, and notes, from this column on."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    m = re.match(r".*?\.(?=\s|$)", paragraph)
    return wrapped((m[0] if m else paragraph) + notes, f"{name:{column - 1}} ", " " * column)


def add_output(parser: argparse.ArgumentParser) -> None:
    """The option that `printing_to` reads."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file")


@contextlib.contextmanager
def printing_to(path: str | None) -> Iterator[None]:
    """What is printed goes to the file `path`, once all of it is there; None: to the terminal."""
    if path is None:
        yield
        return
    with contextlib.redirect_stdout(io.StringIO()) as text:
        yield
    atomic.write(path, [escaped(text.getvalue()).encode()])


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `show` reads."""
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colour what is printed; auto: on a terminal, if Pygments is installed and NO_COLOR is not set",
    )
    parser.add_argument(
        "--no-pager", action="store_true", help="print at once what is longer than the terminal, without $PAGER or less"
    )


def show(text: str, kind: str, arguments: argparse.Namespace) -> None:
    """Prints a text of a kind in `ir.highlight.KINDS`, or of kind "plain", which has no colours. MXNetError if
    colours are demanded and Pygments is missing."""
    text = escaped(text)
    if kind != "plain" and _in_colour(arguments.color):
        from gluonjit.ir.highlight import for_terminal

        text = for_terminal(text, kind)
    if not arguments.no_pager and sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines:
        if _page(text):
            return
    unescaped(sys.stdout).write(text)


def _in_colour(wish: str) -> bool:
    if wish == "never" or (wish == "auto" and (not sys.stdout.isatty() or os.environ.get("NO_COLOR"))):
        return False
    try:
        import pygments  # noqa: F401
    except ImportError:
        if wish == "always":
            raise MXNetError('--color always needs Pygments: pip install "gluonjit[color]"') from None
        return False
    return True


def _page(text: str) -> bool:
    """Shows `text` by the program in PAGER, or `less`; False if there is none. LESS=FRX, unless it is set: colours, and
    the last page stays on the terminal."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    if not command or shutil.which(command[0]) is None:
        return False
    environment = {"LESS": "FRX", **os.environ}
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, encoding="utf-8", errors="replace")
    assert pager.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the reader has seen enough
        with pager.stdin:
            pager.stdin.write(text)
    while True:
        try:
            pager.wait()
            return True
        except KeyboardInterrupt:  # Ctrl-C is the pager's business while it runs
            continue
