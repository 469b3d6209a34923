"""`gluonjit report`: a model's compilation and measured calls as one HTML file."""

from __future__ import annotations

import argparse
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import bytes_text
from gluonjit.files import atomic
from gluonjit.tools.cli.inputs import add_threads, at_least
from gluonjit.tools.cli.models import add_model, add_train, calling, load_callable


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "report",
        help="write an HTML file that shows where a model's time goes, and why",
        description="Calls a model, measures it, and writes one HTML file, which needs no network: layers and kernels "
        "by their time, each kernel's source line, op, LLVM IR, assembly and place on the roofline, what each pass "
        "changed, the threads over time, the arena, the optimized graph.",
        epilog="example:\n  gluonjit report examples/lenet.py:net --input 16x1x28x28 -o report.html",
    )
    add_model(p, "|FILE.ir", "; the text of a compiler's graph")
    p.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the file (default: %(default)s)")
    p.add_argument("--against", metavar="OLD.html", help="an earlier report, which the page compares this one with")
    add_train(p)
    add_threads(p)
    p.add_argument("--calls", type=at_least(1), help="how many to measure (default: for a second, at least 5)")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.execution.block_compiler import trace_call
    from gluonjit.execution.inspecting import without_gradient
    from gluonjit.gluon import HybridBlock
    from gluonjit.language import modes
    from gluonjit.runtime.progress import Progress
    from gluonjit.tools.cli.profile import measured
    from gluonjit.tools.reporting.gathered import gathered, recorded
    from gluonjit.tools.reporting.page import earlier, page

    if not arguments.output.endswith((".html", ".htm")):
        raise MXNetError(f"--output {arguments.output}: a report is an HTML file; its name must end in .html")
    old = earlier(arguments.against) if arguments.against else None
    block, given = load_callable(arguments)
    profile = measured(arguments, block, given)
    training = None
    if arguments.train and isinstance(block, HybridBlock):
        with modes.train_mode(), calling(arguments.model, given):
            training = recorded(trace_call(block, given), without_gradient(block))
    with Progress(arguments.model, ["stages and code", "page"], doing="describing") as progress:
        data = gathered(arguments.model, profile, training)
        progress.done("stages and code")
        text = page({**data, "old": old} if old is not None else data)
    atomic.write(arguments.output, [text.encode()])
    print(f"{arguments.output}: {bytes_text(len(text.encode()))}")
