"""`gluonjit compile`: fills the object cache, so that a later process has its code at once."""

from __future__ import annotations

import argparse
import time
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import bytes_text, seconds_text
from gluonjit.gluon import HybridBlock
from gluonjit.tools.cli.models import add_model, add_no_winograd, calling, load_model


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "compile",
        help="fill the object cache ahead",
        description="Compiles a model as hybridize() and a first call would, and keeps the code in the object cache, "
        "and the parameters packed for it beside that: a process that calls the model with such inputs later compiles "
        "and packs nothing. In a container's build, set GLUONJIT_CACHE_DIR to a folder of the image.",
        epilog="examples:\n  gluonjit compile examples/fire-symbol.json examples/fire-0000.params "
        "--input data=1x3x224x224\n"
        "  gluonjit compile examples/lenet.py:net --input 16x1x28x28 --target x86-64-v3",
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

    block, given = load_model(arguments)
    if reason := cache.why_unchangeable():
        raise MXNetError(f"nothing can be kept in the object cache: {reason}")
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
