"""`gluonjit warm`: compiles kernels before a program needs them."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import bytes_text, seconds_text
from gluonjit.files import formats
from gluonjit.ir.graph import Graph
from gluonjit.ir.types import IRError
from gluonjit.tools.cli import inputs
from gluonjit.tools.cli.files import is_symbol
from gluonjit.tools.cli.loading import is_python, load_graph
from gluonjit.tools.cli.models import add_no_winograd, add_train, calling, image_of_the_zoo, load_model

FAMILIES = (
    *("alexnet", "densenet121", "inceptionv3", "mobilenet1.0", "mobilenetv2_1.0", "resnet18_v1", "resnet50_v1"),
    *("resnet18_v2", "resnet50_v2", "squeezenet1.0", "squeezenet1.1", "vgg16", "vgg16_bn"),
)
"""A model of each family of the zoo, whose kernels the others share for the most part."""


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "warm",
        help="compile kernels before they are needed",
        description="Compiles models, or what a program was seen to compile, and keeps the code in the object cache: "
        "kernels one by one, so that other models with such layers find theirs, too, and start several times as fast, "
        "though they were never compiled. With --output, the kernels go to a file, which a wheel or an image can hold, "
        "for all users of a machine; processes read the files that the environment variable GLUONJIT_KERNELS lists "
        "(`gluonjit doctor` says which are of use). Another version of gluonjit needs a new file. No model is run.",
        epilog="examples:\n  gluonjit warm\n  gluonjit warm --train --batch 16 --batch 32 resnet18_v1 resnet50_v1\n"
        "  gluonjit warm examples/lenet.py:net --input 16x1x28x28 --output lenet.kernels\n"
        "  gluonjit warm --target znver4 --output znver4.kernels\n"
        "  GLUONJIT_GRAPHS=$PWD/seen python program.py; gluonjit warm --from-log seen",
    )
    p.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="models, FILE.py:NAME, model-symbol.json, model.onnx or ZOO-NAME; those that are not of the zoo need "
        f"--input (default, without --from-log: one of each family of the zoo, {', '.join(FAMILIES)})",
    )
    inputs.add_option(p)
    p.add_argument(
        "--batch",
        type=inputs.at_least(1),
        action="append",
        metavar="N",
        help="how many images a model of the zoo is called with, of the size that it was made for, if there is no "
        "--input (default: 1); repeat for several",
    )
    p.add_argument(
        "--from-log",
        metavar="FOLDER",
        help="compile the graphs in FOLDER: those that programs compiled while the environment variable "
        "GLUONJIT_GRAPHS named it, for training and steps of optimizers as well; one that cannot be compiled is left "
        "out, and the exit status is 1",
    )
    p.add_argument(
        "--target",
        default="host",
        help="the machine to compile for, such as znver4; a process on a machine that is no such one uses the code if "
        "the environment variable GLUONJIT_TARGET has the same name there, as for x86-64-v3 (default: this one)",
    )
    p.add_argument("-o", "--output", metavar="FILE", help="write the kernels to FILE, not to the object cache")
    add_train(p)
    add_no_winograd(p)
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.codegen.target import host, named
    from gluonjit.files import atomic
    from gluonjit.runtime import cache, kernel_files, kernel_library
    from gluonjit.runtime.compiler import artifact_of

    if arguments.from_log is not None:
        if not Path(arguments.from_log).is_dir():
            raise IRError(f"--from-log: there is no folder {arguments.from_log}")
        if (arguments.train or arguments.batch or arguments.input or arguments.no_winograd) and not arguments.models:
            raise IRError("--input, --batch, --train and --no-winograd are for models; a log has graphs as they are")
    target = host() if arguments.target == "host" else named(arguments.target)
    output, left_out = arguments.output, 0
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise IRError(f"--output: there is no folder for {output!r}")
    with _folder(output):
        if reason := cache.why_unchangeable():
            raise MXNetError(f"nothing can be kept in the object cache: {reason}")
        begin = time.perf_counter()
        for name, made, pipeline in _graphs(arguments):
            start = time.perf_counter()
            try:
                artifact_of(made(), target, pipeline=pipeline, keeps_all=True)
            except (IRError, MXNetError) as e:
                if arguments.from_log is None:
                    raise
                warnings.warn(f"{name} is left out: {e}", stacklevel=1)
                left_out += 1
                continue
            print(f"{name}: {seconds_text(time.perf_counter() - start)}", flush=True)
        if output is not None:
            kernels = kernel_library.kept()
            atomic.write(output, kernel_files.packed(target, kernels))
            if os.path.isfile(output):
                os.chmod(output, 0o644)  # what others may write to is not executed
            size = bytes_text(sum(map(len, kernels.values())))
            print(f"{len(kernels)} kernels for {target.cpu}, {size}, in {output}")
        else:
            print(f"all in {seconds_text(time.perf_counter() - begin)}, kept in {cache.folder()}")
    if left_out:
        raise MXNetError(f"{left_out} of the graphs in {arguments.from_log} were left out")


@contextlib.contextmanager
def _folder(output: str | None) -> Iterator[None]:
    """An object cache of its own, if kernels go to a file: it has what was compiled for it alone."""
    if output is None:
        yield
        return
    before = {name: os.environ.pop(name, None) for name in ("GLUONJIT_CACHE", "GLUONJIT_CACHE_DIR")}
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["GLUONJIT_CACHE_DIR"] = folder
            yield
    finally:
        del os.environ["GLUONJIT_CACHE_DIR"]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _graphs(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Graph], str]]:
    """What is to be compiled: a name, what gives the graph, and the passes."""
    from gluonjit.passes.pipelines import pipeline
    from gluonjit.runtime import graph_log

    steps = pipeline(not arguments.no_winograd)
    if arguments.from_log is not None:
        found = sorted(path for path in Path(arguments.from_log).glob("*.ir") if path.is_file())
        if not found:
            raise IRError(f"--from-log: there is no graph in {arguments.from_log}")
        for path in found:
            yield path.stem, partial(load_graph, str(path)), graph_log.pipeline_of(path, steps)
    for name in arguments.models or ([] if arguments.from_log is not None else FAMILIES):
        for shapes in _inputs(name, arguments):
            for half, graph in _of_model(name, shapes, arguments.train):
                yield f"{name}{half}", partial(_given, graph), steps


def _given(graph: Graph) -> Graph:
    return graph


def _inputs(name: str, arguments: argparse.Namespace) -> list[list[inputs.Input]]:
    """The inputs of each call of a model."""
    if arguments.input:
        return [arguments.input]
    if is_python(name) or is_symbol(name) or name.endswith(formats.ENDINGS):
        raise IRError(f"{name} is no model of the zoo: --input says for which inputs it is compiled")
    image = image_of_the_zoo(name).removeprefix("1x")
    return [[inputs.parse(f"{n}x{image}")] for n in arguments.batch or [1]]


def _of_model(name: str, shapes: Sequence[inputs.Input], training: bool) -> Iterator[tuple[str, Graph]]:
    """What is compiled of a model for such inputs, and what its name is followed by."""
    from gluonjit.execution.block_compiler import trace_call
    from gluonjit.execution.inspecting import without_gradient
    from gluonjit.ir.sizes import with_usual_names
    from gluonjit.language.modes import predict_mode, train_mode
    from gluonjit.tools.cli.dump import with_gradient

    model = argparse.Namespace(model=name, params=None, input=[*shapes], seed=0, zeros=True)
    block, given = load_model(model)
    with train_mode() if training else predict_mode(), calling(name, given):
        graph = trace_call(block, given, model.dynamic)
    if not training:
        yield "", with_usual_names(graph)
        return
    for half in ("forward", "backward"):
        yield f", {half}", with_usual_names(with_gradient(graph, half, without_gradient(block)))
