"""`gluonjit convert`: converts arrays from one file format to another."""

from __future__ import annotations

import argparse
from typing import Any

from gluonjit.base import MXNetError


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "convert",
        help="convert a file of parameters to another format",
        description="Reads arrays and writes them in the format that the second name's ending selects: .npz, "
        ".safetensors, or MXNet's .params for any other ending. MXNet's files of every version are read.",
        epilog="examples:\n  gluonjit convert examples/fire-0000.params fire.safetensors\n"
        "  gluonjit convert fire.safetensors fire.npz --strip",
    )
    p.add_argument("source", metavar="FROM", help="a file of arrays")
    p.add_argument("target", metavar="TO", help="the file to write; replaced if it exists")
    p.add_argument("--strip", action="store_true", help="remove arg: and aux: from the start of names")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.files import formats

    arrays = formats.read(arguments.source, copy=False)
    if arguments.strip and isinstance(arrays, dict):
        stripped = {name[4:] if name.startswith(("arg:", "aux:")) else name: x for name, x in arrays.items()}
        if len(stripped) != len(arrays):
            raise MXNetError(f"{arguments.source}: without arg: and aux:, some names are the same")
        arrays = stripped
    formats.write(arguments.target, arrays)
    values = list(arrays.values() if isinstance(arrays, dict) else arrays)
    print(f"{arguments.target}: {len(values)} arrays, {sum(x.nbytes for x in values) / 1e6:,.2f} MB")
