"""The command-line arguments that select a model and its inputs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError, type_of
from gluonjit.tools.cli import files, graphs, inputs
from gluonjit.tools.cli.loading import is_python, load_block, user_line


def add_model(parser: argparse.ArgumentParser, more: str = "", of: str = "") -> None:
    """Adds MODEL, PARAMS and --input. `more` lists further forms of MODEL, `of` describes them."""
    parser.add_argument(
        "model",
        metavar=f"FILE.py:NAME|model-symbol.json|model.onnx|ZOO-NAME{more}",
        help="a block, or a function that returns one; a graph that MXNet wrote; an ONNX file; a model of the zoo, "
        f"such as resnet50_v1, which is called with one image unless --input says otherwise{of}",
    )
    parser.add_argument(
        "params", nargs="?", help="the parameters' file, for model-symbol.json or a model of the zoo (else random)"
    )
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
    elif graphs.is_graph(arguments.model):
        raise IRError(f"{arguments.model} is the text of a graph, which `gluonjit run`, opt, profile and report take")
    elif is_python(arguments.model) or Path(arguments.model.partition(":")[0]).is_file():
        no_parameters(arguments)
        block, given = load_block(arguments.model), inputs.positional(arguments.input, arguments.seed)
    else:
        block = _of_the_zoo(arguments.model, arguments.params)
        given = inputs.positional(arguments.input or [inputs.parse(_image(arguments.model))], arguments.seed)
    hybrid = hasattr(block, "_argument_names")
    arguments.dynamic = inputs.dynamic(arguments.input, block._argument_names(len(given)) if hybrid else [])
    if arguments.dynamic is not None and block._active:
        block.hybridize(dynamic=arguments.dynamic)
    return block, given


def load_callable(arguments: argparse.Namespace) -> tuple[Any, list[Any]]:
    """`load_model`, which takes the text of a compiler's graph, too. IRError for a gradient (`--train`) of that."""
    from gluonjit.ndarray import NDArray

    if not graphs.is_graph(arguments.model):
        return load_model(arguments)
    no_parameters(arguments)
    if arguments.train:
        raise IRError(f"--train: {arguments.model} is a graph: `gluonjit opt` makes that of its gradient")
    model = graphs.GraphModel(arguments.model)
    return model, [NDArray._wrap(x) for x in graphs.inputs_of(model.graph, arguments.input, arguments.seed)]


def no_parameters(arguments: argparse.Namespace) -> None:
    """IRError if a file of parameters is given."""
    if arguments.params:
        raise IRError(f"{arguments.params}: a parameters' file is for model-symbol.json, or a model of the zoo")


def _of_the_zoo(name: str, params: str | None) -> Any:
    """The model of this name, with the parameters of a file, or random ones."""
    from gluonjit.gluon.model_zoo import vision

    try:
        block = vision.get_model(name)
    except ValueError as e:
        known = did_you_mean(name, vision._MODELS)
        raise IRError(f"there is no file {name!r}, nor a model of that name in the zoo{known}") from e
    if params:
        block.load_parameters(params)
    else:
        block.initialize()
    return block


def _image(name: str) -> str:
    """The shape of the images that a model of the zoo was made for."""
    return "1x3x299x299" if name.lower().startswith("inception") else "1x3x224x224"


@contextlib.contextmanager
def calling(reference: str, given: Sequence[Any]) -> Iterator[None]:
    """Turns an exception of the model `reference` into an IRError.

    Its message has the types of the arguments, and the innermost line of the user's file in the traceback.
    """
    file = reference.partition(":")[0]
    try:
        yield
    except MXNetError as e:
        if user_line(e, file) and "\n  at " not in str(e):
            raise IRError(f"{reference} failed{user_line(e, file)}: {e}") from e
        raise
    except (IRError, OSError, MemoryError):
        raise
    except Exception as e:
        types = ", ".join(f"{type_of(x.asnumpy())}" for x in given)
        raise IRError(f"{reference}, called with ({types}), failed{user_line(e, file)}: {type(e).__name__}: {e}") from e
