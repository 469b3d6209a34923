"""`gluonjit opt`: runs passes over a graph's text."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gluonjit.tools.cli.loading import load_graph


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "opt",
        help="run passes over a graph's text",
        description="Runs passes over a graph's text and prints the result.",
        epilog="example:\n  echo 'graph @g() { %a = constant() {value = 1.0} %b = add(%a, %a) return %b }' "
        "| gluonjit opt - -p fold,dce\n"
        "  echo 'graph @g(%x: f32[3]) { %y = sin(%x) return %y }' "
        "| gluonjit opt - -p 'legalize-broadcast, differentiate {wrt = (0,)}'",
    )
    p.add_argument("graph", metavar="FILE.ir", help="a graph's text; `-` is standard input")
    p.add_argument(
        "-p",
        "--passes",
        required=True,
        help="names with commas between, such as fold,cse,dce; '' only prints the graph",
    )
    p.add_argument("--print-after-all", action="store_true", help="show the graph after each pass, on standard error")
    p.add_argument("--diff", action="store_true", help="with --print-after-all: only what each pass changed")
    p.add_argument("--timing", action="store_true", help="show how long each pass took, on standard error")
    p.add_argument("--dump-dir", metavar="D", help="write the graph after each pass to this folder")
    p.add_argument("--target", default="host", help="the machine that passes optimize for (default: %(default)s)")
    p.add_argument("--locs", action="store_true", help="show where in the program each op comes from")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.codegen.target import host, named
    from gluonjit.ir.text import print_graph
    from gluonjit.ir.verify import verify
    from gluonjit.passes import parse_pipeline, report, run_passes

    target = host() if arguments.target == "host" else named(arguments.target)
    graph = load_graph(arguments.graph)
    verify(graph)
    steps = parse_pipeline(arguments.passes)
    callbacks: list[Any] = []
    if arguments.print_after_all or arguments.diff:
        callbacks.append(report.PrintAfterAll(sys.stderr, diff=arguments.diff))
    if arguments.dump_dir:
        callbacks.append(report.DumpFolder(arguments.dump_dir))
    timing = report.Timing()
    if arguments.timing:
        callbacks.append(timing)
    graph = run_passes(
        graph, steps, target=target, after=report.both(*callbacks), reproducers=arguments.dump_dir, verify_each=True
    )
    print(print_graph(graph, locs=arguments.locs), end="")
    if arguments.timing:
        print(timing, file=sys.stderr)
