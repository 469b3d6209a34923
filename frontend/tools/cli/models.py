"""The command-line arguments that select a model and its inputs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.types import IRError, type_of
from gluonjit.tools.cli import files, inputs
from gluonjit.tools.cli.loading import load_block, user_line


def add_model(parser: argparse.ArgumentParser, more: str = "", of: str = "") -> None:
    """Adds MODEL, PARAMS and --input. `more` lists further forms of MODEL, `of` describes them."""
    parser.add_argument(
        "model",
        metavar=f"FILE.py:NAME|model-symbol.json|model.onnx{more}",
        help=f"a block, or a function that returns one; a graph that MXNet wrote; an ONNX file{of}",
    )
    parser.add_argument("params", nargs="?", metavar="PARAMS", help="the parameters' file, for model-symbol.json")
    inputs.add_option(parser)
    parser.add_argument("--seed", type=inputs.at_least(0), default=0, help="of random inputs (default: %(default)s)")


def load_model(arguments: argparse.Namespace, zeros: bool = True) -> tuple[Any, list[Any]]:
    """The block that the arguments name, and the NDArrays to call it with.

    Notes in `arguments.dynamic` which dimensions of these are open; a block that is hybridized already is so with them.
    `zeros`: parameters of a graph for which no file is given are 0, instead of an error.
    """
    if files.is_symbol(arguments.model):
        model = files.FileModel(arguments.model, arguments.params)
        block, given = model.prepare(arguments.input, arguments.seed, zeros=zeros)
    else:
        if arguments.params:
            raise IRError(f"{arguments.params}: a parameters' file is for a graph in a file, model-symbol.json")
        block, given = load_block(arguments.model), inputs.positional(arguments.input, arguments.seed)
    hybrid = hasattr(block, "_argument_names")
    arguments.dynamic = inputs.dynamic(arguments.input, block._argument_names(len(given)) if hybrid else [])
    if arguments.dynamic is not None and block._active:
        block.hybridize(dynamic=arguments.dynamic)
    return block, given


@contextlib.contextmanager
def calling(reference: str, given: Sequence[Any]) -> Iterator[None]:
    """Turns an exception of the model `reference` into an IRError.

    Its message has the types of the arguments, and the innermost line of the user's file in the traceback.
    """
    try:
        yield
    except (IRError, MXNetError, OSError, MemoryError):
        raise
    except Exception as e:
        types = ", ".join(f"{type_of(x.asnumpy())}" for x in given)
        file = reference.partition(":")[0]
        raise IRError(f"{reference}, called with ({types}), failed{user_line(e, file)}: {type(e).__name__}: {e}") from e
