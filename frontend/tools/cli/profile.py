"""`gluonjit profile`: where the time of a model's calls goes, measured."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from gluonjit.base import MXNetError
from gluonjit.files import atomic
from gluonjit.tools.cli.inputs import add_threads, at_least, on_threads
from gluonjit.tools.cli.models import add_model, add_train, calling, load_callable, training_step
from gluonjit.tools.cli.terminal import add_output, printing_to

if TYPE_CHECKING:
    from gluonjit.profiling.measured import Profile


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "profile",
        help="measure where the time of a model's calls goes",
        description="Calls a model, hybridized, and measures inside of the compiled code how long each kernel takes on "
        "each thread. Lists layers by their time, with the rates that they reach, and what the compiler expected.",
        epilog="examples:\n  gluonjit profile examples/lenet.py:net --input 16x1x28x28\n"
        "  gluonjit profile examples/lenet.py:net --input 16x1x28x28 --train --trace trace.json",
    )
    add_model(p, "|FILE.ir", "; the text of a compiler's graph")
    add_train(p)
    add_threads(p)
    p.add_argument("--calls", type=at_least(1), help="how many to measure (default: for a second, at least 5)")
    p.add_argument("--top", type=at_least(1), default=20, help="rows of each table (default: %(default)s)")
    p.add_argument("--kernels", action="store_true", help="list kernels, instead of adding them up by layer")
    p.add_argument("--json", action="store_true", help="print everything as JSON instead")
    add_output(p)
    p.add_argument("--trace", metavar="FILE", help="write a timeline for ui.perfetto.dev or chrome://tracing")
    p.add_argument("--folded", metavar="FILE", help="write stacks for flamegraph.pl or speedscope.app")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.profiling import exports, listing

    block, given = load_callable(arguments)
    profile = measured(arguments, block, given)
    for path, text in (
        (arguments.trace, lambda: json.dumps(exports.trace_events(profile))),
        (arguments.folded, lambda: exports.folded(profile)),
    ):
        if path:
            atomic.write(path, [text().encode()])
    with printing_to(arguments.output):
        print(
            json.dumps(profile.to_json()) if arguments.json else listing.text(profile, arguments.top, arguments.kernels)
        )


def measured(arguments: argparse.Namespace, block: Any, given: list[Any]) -> Profile:
    """A profile of the calls that the arguments ask for; MXNetError if no compiled code ran."""
    from gluonjit.profiling import record
    from gluonjit.runtime.progress import Progress

    with on_threads(arguments.threads):
        if not block._active:
            block.hybridize(dynamic=arguments.dynamic)
        step = training_step(block, given) if arguments.train else lambda: block(*given)
        with record() as profile, calling(arguments.model, given):
            for _ in range(3):  # the first compiles; the second may, too, if it has found out more
                step()
            profile.forget()
            begin = time.perf_counter()
            with Progress(arguments.model, ["calls"] * 100, doing="measuring") as progress:
                while (done := _done(arguments.calls, len(profile.laps), time.perf_counter() - begin)) < 1:
                    progress.part("calls", done)
                    with profile.lap():
                        step()
    if not profile.programs:
        raise MXNetError(f"{arguments.model} runs as Python: there is no compiled code to be measured")
    return profile


def _done(wanted: int | None, count: int, seconds: float) -> float:
    """The part of the calls that has been measured, by their number and the seconds so far; 1 or more: all."""
    return count / wanted if wanted else min(count / 5, seconds)
