"""The command-line arguments that select a model and its inputs."""

from __future__ import annotations

import argparse
import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.files import formats
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError, type_of
from gluonjit.tools.cli import files, graphs, inputs
from gluonjit.tools.cli.loading import is_python, load_block, user_line


def add_model(parser: argparse.ArgumentParser, more: str = "", of: str = "", runs: bool = True) -> None:
    """Adds MODEL, PARAMS and --input. `more` lists further forms of MODEL, `of` describes them. `runs`: the model
    computes something, so that values of inputs and parameters matter."""
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
    if not runs:
        parser.set_defaults(seed=0, zeros=True)
        return
    parser.add_argument(
        "--seed",
        "--random",
        type=inputs.at_least(0),
        default=0,
        metavar="SEED",
        help="of random inputs (default: %(default)s)",
    )
    parser.add_argument("--zeros", action="store_true", help="without a parameters' file, compute with zeros")


def add_no_winograd(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-winograd", action="store_true", help="as with hybridize(winograd=False)")


def add_train(parser: argparse.ArgumentParser) -> None:
    """What is called is a step of training, see `training_step`."""
    parser.add_argument("--train", action="store_true", help="steps of training: the call, recorded, and its gradient")


def add_train_mode(parser: argparse.ArgumentParser) -> None:
    """What is called is called in training mode."""
    parser.add_argument(
        "--train-mode",
        "--train",
        dest="train",
        action="store_true",
        help="in training mode: BatchNorm and Dropout do what they do there, and there is no gradient (--train of "
        "bench, compile, profile and report is a step with its gradient)",
    )


def load_model(arguments: argparse.Namespace) -> tuple[Any, list[Any]]:
    """The block that the arguments name, and the NDArrays to call it with.

    Notes in `arguments.dynamic` which dimensions of these are open; a block that is hybridized already is so with them.
    """
    if files.is_symbol(arguments.model):
        model = files.FileModel(arguments.model, arguments.params)
        block, given = model.prepare(arguments.input, arguments.seed, zeros=arguments.zeros)
    elif graphs.is_graph(arguments.model):
        raise IRError(
            f"{arguments.model} is the text of a graph, which run, dump, inspect, opt, profile and report take"
        )
    elif is_python(arguments.model):
        no_parameters(arguments)
        block, given = load_block(arguments.model), inputs.positional(arguments.input, arguments.seed)
    else:
        no_other_file(arguments.model, arguments.params)
        block = of_the_zoo(arguments.model, arguments.params, arguments.zeros)
        arguments.input = arguments.input or [inputs.parse(image_of_the_zoo(arguments.model))]
        given = inputs.positional(arguments.input, arguments.seed)
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


def no_other_file(model: str, params: str | None) -> None:
    """IRError if `model` is a file: of those that are models, its name has no ending."""
    if not Path(model.partition(":")[0]).is_file():
        return
    no_library(model)
    if not model.endswith(formats.ENDINGS):
        listed = "FILE.py:NAME, model-symbol.json and its parameters, model.onnx"
        raise IRError(f"{model}: its ending is not that of a model: {listed} are models, and names of the zoo")
    if params and files.is_symbol(params):
        raise IRError(f"{model} holds parameters, and {params} is the graph, which comes first: {params} {model}")
    raise IRError(f"{model} holds parameters; a model's graph comes in front of them: model-symbol.json {model}")


def no_library(path: str) -> None:
    """IRError if the file is a library of `gluonjit build`, of which only calls can be made."""
    if path.endswith(".so"):
        raise IRError(f"{path} is a shared library: `gluonjit serve`, `gluonjit score` and gluonjit.load take those")


def of_the_zoo(name: str, params: str | None, zeros: bool = False) -> Any:
    """The model of this name, with the parameters of a file, or random ones, or zeros."""
    from gluonjit.gluon.model_zoo import vision

    try:
        block = vision.get_model(name)
    except ValueError as e:
        file, _, block_name = name.rpartition(":")
        if Path(f"{file}.py").is_file():
            raise IRError(f"there is no file {name!r}; did you mean {file}.py:{block_name}?") from e
        known = did_you_mean(name, vision._MODELS)
        raise IRError(f"there is no file {name!r}, nor a model of that name in the zoo{known}") from e
    if params:
        block.load_parameters(params)
    elif zeros:
        block.initialize("zeros")
    else:
        block.initialize()
        warnings.warn(f"{name}: no parameters' file is given, so they are random", stacklevel=2)
    return block


def image_of_the_zoo(name: str) -> str:
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


def training_step(block: Any, given: list[Any]) -> Callable[[], None]:
    """A recorded call, and the gradient of the sum of its results by the parameters."""
    from gluonjit import autograd

    if all(p.grad_req == "null" for p in block.collect_params().values()):
        raise MXNetError(f"--train: {block.name} has no parameters whose gradient is taken")

    def step() -> None:
        with autograd.record():
            found = block(*given)
        heads = [x for x in (found if isinstance(found, (list, tuple)) else [found]) if hasattr(x, "backward")]
        autograd.backward(heads)

    return step
