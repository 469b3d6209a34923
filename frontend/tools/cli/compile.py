"""`gluonjit compile`: fills the object cache, so that a later process has its code at once."""

from __future__ import annotations

import argparse
import time
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import bytes_text, seconds_text
from gluonjit.gluon import HybridBlock
from gluonjit.tools.cli.models import add_model, add_no_winograd, add_train, calling, load_model, training_step


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "compile",
        help="fill the object cache ahead",
        description="Compiles a model as hybridize() and a first call would, and keeps the code in the object cache, "
        "and the parameters packed for it beside that: a process that calls the model with such inputs later compiles "
        "and packs nothing. In a container's build, set GLUONJIT_CACHE_DIR to a folder of the image, and "
        "`chmod -R a+rX` it if another user will read it. "
        "With --train it takes two steps of training, so that both halves of the gradient are kept; `gluonjit dump "
        "--stage forward` and `--stage backward` print these.",
        epilog="examples:\n  gluonjit compile examples/fire-symbol.json examples/fire-0000.params "
        "--input data=1x3x224x224\n"
        "  gluonjit compile examples/lenet.py:net --input 16x1x28x28 --target x86-64-v3\n"
        "  gluonjit compile examples/lenet.py:net --input 16x1x28x28 --train",
    )
    add_model(p)
    p.add_argument(
        "--target",
        default="host",
        help="the machine to compile for, such as x86-64-v3 or aarch64; a process uses that code if the environment "
        "variable GLUONJIT_TARGET has the same name there (default: %(default)s)",
    )
    p.add_argument(
        "--no-weights",
        action="store_true",
        help="keep the code alone; packed, parameters take about as "
        "much room on disk as in their file, and are kept for this machine only",
    )
    add_train(p)
    add_no_winograd(p)
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.codegen.target import host, named
    from gluonjit.execution.block_compiler import trace_call
    from gluonjit.ir.sizes import with_usual_names
    from gluonjit.language.modes import predict_mode
    from gluonjit.passes.pipelines import pipeline
    from gluonjit.runtime import cache, prepared_files
    from gluonjit.runtime.compiler import artifact_of

    if arguments.train and arguments.target != "host":
        raise MXNetError("--train: steps are compiled where they run; set GLUONJIT_TARGET instead of --target")
    block, given = load_model(arguments)
    if reason := cache.why_unchangeable():
        raise MXNetError(f"nothing can be kept in the object cache: {reason}")
    if arguments.train:
        _compile_step(arguments, block, given)
        return
    with predict_mode(), calling(arguments.model, given):
        graph = trace_call(block, given, arguments.dynamic)
    start = time.perf_counter()
    target = host() if arguments.target == "host" else named(arguments.target)
    made = artifact_of(with_usual_names(graph), target, pipeline=pipeline(not arguments.no_winograd))
    size = bytes_text(sum(map(len, made.artifact.objects)))
    if made.was_there:
        print(f"{graph.name}: was there already, {size}, in {cache.folder()}")
    else:
        print(f"{graph.name}: {size} in {seconds_text(time.perf_counter() - start)}, kept in {cache.folder()}")
    if target == host() and not arguments.no_weights:
        block.hybridize(winograd=not arguments.no_winograd, dynamic=arguments.dynamic)
        with predict_mode(), calling(arguments.model, given):
            kept = HybridBlock.compile(block, *given, keep=True)
        if kept:
            print(f"packed parameters: {bytes_text(kept)}, in {prepared_files.folder()}")


def _compile_step(arguments: argparse.Namespace, block: Any, given: list[Any]) -> None:
    """Takes steps of training, which keep what they compile."""
    from gluonjit.runtime import cache

    block.hybridize(winograd=not arguments.no_winograd, dynamic=arguments.dynamic)
    step = training_step(block, given)
    with calling(arguments.model, given):
        for _ in range(2):  # the first may initialize a large block, which compiles nothing
            step()
    log = block.explain()
    if not log.compiles:
        raise MXNetError(f"{arguments.model} runs as Python: there is nothing to keep")
    made = f"{log.compiles} codes in {seconds_text(log.seconds)}, {log.cache_hits} of them there already"
    print(f"{block.name}: both halves of a step, {made}, kept in {cache.folder()}")
