"""The command line: `gluonjit COMMAND`, or `python -m gluonjit COMMAND`.

Exit status: 0 success; 1 an error in the user's model, graph or file (one `error:` message on standard error); 2 an
error in the command line; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from gluonjit.base import MXNetError
from gluonjit.files.array_names import shown
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    try:
        try:
            arguments = make_parser().parse_args(argv)
            with warnings.catch_warnings(), _printable(arguments):
                warnings.showwarning = _show_warning
                arguments.run(arguments)
        finally:  # also for --help: at exit, a closed pipe could no more be told from an error
            sys.stdout.flush()
    except (IRError, MXNetError, OSError, UnicodeDecodeError) as e:
        if isinstance(e, BrokenPipeError):
            # The reader (`| head`) has closed the pipe. Flushing buffered output at exit must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        said = f"{e.filename}: {e.strerror}" if isinstance(e, OSError) and e.filename and e.strerror else e
        print(_escaped(f"error: {said}"), file=sys.stderr)
        return 1
    except MemoryError as e:
        print(f"error: not enough memory: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _show_warning(message: Warning | str, *_where: Any, **_how: Any) -> None:
    """Prints warnings without their place in this program, which does not help users of the command line."""
    print(_escaped(f"warning: {message}"), file=sys.stderr)


def _escaped(text: str) -> str:
    """`text` with unprintable characters escaped, so that names from files cannot control the terminal."""
    return "".join(c if c in "\n\t" else shown(c) for c in text) if not text.isprintable() else text


class _Escaping:
    """A wrapper of a stream that escapes the text written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_escaped(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _printable(arguments: argparse.Namespace) -> Iterator[None]:
    """Escapes unprintable characters, and characters that the output's encoding lacks, in everything that is printed.

    Programs run by `exec` print unescaped.
    """
    if getattr(arguments, "raw_output", False):
        yield
        return
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with contextlib.redirect_stdout(_Escaping(sys.stdout)), contextlib.redirect_stderr(_Escaping(sys.stderr)):
        yield


class _Help(argparse.HelpFormatter):
    """Does not wrap examples, so that they can be pasted."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example"):
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """The parser of the command line and of each command."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=_Help, **kwargs)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as e:
            near = did_you_mean(str(value), action.choices or ())
            if "did you mean" in near:
                e.message += near
            raise


def make_parser() -> argparse.ArgumentParser:
    from gluonjit._version import version
    from gluonjit.tools.cli import (
        bench,
        cache,
        check,
        compile,
        convert,
        coverage,
        deploy,
        dump,
        execute,
        html_report,
        inspect,
        opt,
        profile,
        reports,
        run,
        score,
        serve,
    )

    parser = _Parser(
        prog="gluonjit",
        description="Compiles Gluon models and compiler graphs to native code, and shows every step.",
        epilog="example:\n  gluonjit dump examples/lenet.py:net --input 16x1x28x28 --stage optimized",
    )
    parser.add_argument("--version", action="version", version=f"gluonjit {version}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (
        dump,
        opt,
        run,
        compile,
        deploy,
        serve,
        score,
        bench,
        profile,
        html_report,
        check,
        inspect,
        convert,
        execute,
        coverage,
        cache,
        reports,
    ):
        module.add_commands(commands)
    return parser
