"""The command line: `gluonjit COMMAND`, or `python -m gluonjit COMMAND`.

Exit status: 0 success; 1 an error in the user's model, graph or file (one `error:` message on standard error); 2 an
error in the command line; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from gluonjit.base import MXNetError
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError
from gluonjit.tools.cli.terminal import escaped, escaping


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: `gluonjit ... >&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    try:
        try:
            words = sys.argv[1:] if argv is None else argv
            first = words[0] if words else None
            parser = make_parser(first if first in COMMANDS else "" if first == "--version" else None)
            if not words:
                parser.print_help(sys.stderr)
                return 2
            arguments = parser.parse_args(argv)
            with warnings.catch_warnings(), _printing(arguments):
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
        print(escaped(f"error: {said}"), file=sys.stderr)
        return 1
    except MemoryError as e:
        print(f"error: not enough memory: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _show_warning(message: Warning | str, *_where: Any, **_how: Any) -> None:
    """Prints warnings without their place in this program, which does not help users of the command line."""
    print(escaped(f"warning: {message}"), file=sys.stderr)


def _printing(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Programs run by `exec` print unescaped."""
    return contextlib.nullcontext() if getattr(arguments, "raw_output", False) else escaping()


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
        self._mixing = False
        self._given: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Words of the command may stand between its options, and after them. Ends with a suggestion if there is an
        option that it does not have."""
        self._given = [str(word) for word in (sys.argv[1:] if args is None else args)]
        if self._mixing:
            return super().parse_known_args(args, namespace)
        self._mixing = True
        try:
            if self._may_mix():
                found, unknown = self.parse_known_intermixed_args(args, namespace)
            else:
                found, unknown = super().parse_known_args(args, namespace)
        finally:
            self._mixing = False
        if unknown:
            options = [word for action in self._actions for word in action.option_strings]
            near = did_you_mean(unknown[0].partition("=")[0], options) if unknown[0].startswith("-") else ""
            suggestion = near if "did you mean" in near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion}")
        return found, []

    def error(self, message: str) -> NoReturn:
        """A misspelt option in place of the command has a suggestion, too."""
        known = [word for action in self._actions for word in action.option_strings]
        given = next((word for word in self._given if word.startswith("--") and word not in known), None)
        if given is not None and "did you mean" not in message and "arguments are required: COMMAND" in message:
            near = did_you_mean(given.partition("=")[0], known)
            message = f"unrecognized arguments: {given}{near if 'did you mean' in near else ''}"
        super().error(message)

    def _may_mix(self) -> bool:
        """Whether argparse can: not if a word excludes options, nor if all that follows a word belongs to it."""
        exclusive = [action for group in self._mutually_exclusive_groups for action in group._group_actions]
        return not any(
            action in exclusive or action.nargs in (argparse.PARSER, argparse.REMAINDER)
            for action in self._get_positional_actions()
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as e:
            near = did_you_mean(str(value), action.choices or ())
            if "did you mean" in near:
                e.message += near
            raise


COMMANDS = (
    "trace",
    "dump",
    "opt",
    "run",
    "compile",
    "warm",
    "build",
    "serve",
    "score",
    "bench",
    "profile",
    "report",
    "check",
    "inspect",
    "convert",
    "exec",
    "coverage",
    "cache",
    "ops",
    "passes",
    "primitives",
    "doctor",
)
"""In the order of the help; each is the module of its name."""


@functools.cache
def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, of one alone, or, with "", of none: importing the others takes a quarter of a
    second."""
    from gluonjit._version import version

    parser = _Parser(
        prog="gluonjit",
        description="Compiles Gluon models and compiler graphs to native code, and shows every step.",
        epilog="example:\n  gluonjit dump examples/lenet.py:net --input 16x1x28x28 --stage optimized",
    )
    parser.add_argument("--version", action="version", version=f"gluonjit {version}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS if command is None else filter(None, (command,)):
        importlib.import_module(f"{__name__}.{name}").add_commands(commands)
    return parser
