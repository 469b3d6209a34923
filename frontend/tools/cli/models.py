"""The arguments that say which model a command is for, and what it is called with."""

from __future__ import annotations

import argparse
from typing import Any

from gluonjit.ir.types import IRError
from gluonjit.tools.cli import files, inputs
from gluonjit.tools.cli.loading import load_block


def add_model(parser: argparse.ArgumentParser, more: str = "", of: str = "") -> None:
    """MODEL, PARAMS and --input; `more` and `of` are further forms of MODEL, and what they are."""
    parser.add_argument(
        "model",
        metavar=f"FILE.py:NAME|model-symbol.json{more}",
        help=f"a block, or a function that returns one; a graph that MXNet wrote{of}",
    )
    parser.add_argument("params", nargs="?", metavar="PARAMS", help="the parameters' file, for model-symbol.json")
    inputs.add_option(parser)
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (default: %(default)s)")


def load_model(arguments: argparse.Namespace) -> tuple[Any, list[Any]]:
    """The block that the arguments name, and the NDArrays to call it with."""
    if files.is_symbol(arguments.model):
        return files.FileModel(arguments.model, arguments.params).prepare(arguments.input, arguments.seed)
    if arguments.params:
        raise IRError(f"{arguments.params}: a parameters' file is for a graph in a file, model-symbol.json")
    return load_block(arguments.model), inputs.positional(arguments.input, arguments.seed)
