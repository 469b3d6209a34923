"""The command line: `gluonjit COMMAND`, or `python -m gluonjit COMMAND`.

Exit status: 0 done; 1 the user's model, graph or file is at fault (one `error:` message on standard error); 2 the
command line itself is wrong; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.types import IRError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            arguments.run(arguments)
        sys.stdout.flush()
    except (IRError, MXNetError, OSError, UnicodeDecodeError) as e:
        if isinstance(e, BrokenPipeError):
            # The reader (`| head`) has seen enough. What is still buffered must not fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"error: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _show_warning(message: Warning | str, *_where: Any, **_how: Any) -> None:
    """Where in this program a warning comes from is of no use to who types commands."""
    print(f"warning: {message}", file=sys.stderr)


class _Help(argparse.HelpFormatter):
    """Leaves examples as they are: broken into lines they could not be pasted."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example"):
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """For the commands as well."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=_Help, **kwargs)


def make_parser() -> argparse.ArgumentParser:
    from gluonjit._version import version
    from gluonjit.tools.cli import bench, cache, convert, coverage, dump, execute, inspect, opt, reports, run

    parser = _Parser(
        prog="gluonjit",
        description="Compiles Gluon models and compiler graphs to native code, and shows every step.",
        epilog="example:\n  gluonjit dump examples/lenet.py:net --input 16x1x28x28 --stage optimized",
    )
    parser.add_argument("--version", action="version", version=f"gluonjit {version}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (dump, opt, run, bench, inspect, convert, execute, coverage, cache, reports):
        module.add_commands(commands)
    return parser
