"""`gluonjit opt`: runs passes over graphs' texts, explains what they do, and makes failing graphs smaller."""

from __future__ import annotations

import argparse
import importlib
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gluonjit.files import atomic, formats
from gluonjit.ir.graph import Graph
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError
from gluonjit.passes.pipelines import PIPELINES
from gluonjit.tools.cli.loading import is_python, load_graph, load_python, read_text
from gluonjit.tools.cli.terminal import add_options, add_output, show, unescaped

if TYPE_CHECKING:
    from gluonjit.passes.report import Told

SEPARATOR = "// -----\n"
"""What stands between the graphs of a file that holds several."""


def pipelines() -> dict[str, str]:
    """The passes of the pipelines that have names."""
    return {name: pipeline.steps for name, pipeline in PIPELINES.items()}


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "opt",
        help="run passes over a graph's text",
        description="Runs passes over the graphs in a text and prints the results. Between several graphs in a text "
        "there are lines '// -----'.",
        epilog="examples:\n  echo 'graph @g() { %a = constant() {value = 1.0} %b = add(%a, %a) return %b }' "
        "| gluonjit opt - -p fold,dce\n"
        "  echo 'graph @g(%x: f32[3]) { %y = sin(%x) return %y }' "
        "| gluonjit opt - -p 'legalize-broadcast, differentiate {wrt = (0,)}'\n"
        "  echo 'graph @g(%x: f32[3]) { %y = neg(%x) %z = neg(%y) return %z }' "
        "| gluonjit opt - -p llvm --stop-after cse --explain simplify",
    )
    p.add_argument("graph", metavar="FILE.ir", help="a text of graphs; `-` is standard input")
    p.add_argument(
        "-p",
        "--passes",
        required=True,
        help="names, separated by commas, such as fold,cse,dce; llvm, numpy, gradient and joint are the compiler's own "
        "pipelines; '' only prints the graph",
    )
    p.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="FILE.py|MODULE",
        help="import a program or a module that declares passes, primitives or operators; may be repeated",
    )
    p.add_argument("--stop-after", metavar="PASS|N", help="run up to this pass (its first place), or the first N")
    p.add_argument(
        "--print-before", default="", metavar="PASSES", help="show the graph before these, on standard error"
    )
    p.add_argument("--print-after", default="", metavar="PASSES", help="show the graph after these, on standard error")
    p.add_argument("--print-after-all", action="store_true", help="show the graph after each pass, on standard error")
    p.add_argument("--diff", action="store_true", help="with --print-after and -all: only what each pass changed")
    p.add_argument("--explain", metavar="PASS", help="say what this pass did: its rules, and the ops before and after")
    p.add_argument("--timing", action="store_true", help="show how long each pass took, on standard error")
    p.add_argument("--dump-dir", metavar="D", help="write the graph after each pass to this folder")
    p.add_argument("--target", default="host", help="the machine that passes optimize for (default: %(default)s)")
    p.add_argument("--locs", action="store_true", help="show where in the program each op comes from")
    p.add_argument(
        "--expect-errors", action="store_true", help="a graph with a comment `// error: TEXT` must fail with that text"
    )
    p.add_argument(
        "--reduce",
        metavar="fails|differs|CMD",
        help="print the smallest graph found that still shows a fault: the passes fail in the same way; or their "
        "result computes something else; or the shell command CMD, in which {} is the graph's file, exits with 0",
    )
    add_output(p)
    add_options(p)
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.codegen.target import host, named
    from gluonjit.ir.text import print_graph
    from gluonjit.ir.verify import verify
    from gluonjit.tools.golden import Case

    if is_python(arguments.graph) or arguments.graph.endswith((".json", ".onnx", *formats.ENDINGS)):
        raise IRError(f"{arguments.graph} is not the text of a graph; `gluonjit dump --stage expanded` prints one")
    for place in arguments.load:
        _load(place)
    target = host() if arguments.target == "host" else named(arguments.target)
    steps = _steps(arguments)
    printed = []
    for number, (text, make) in enumerate(_graphs(arguments.graph), 1):
        case = Case("", text if arguments.expect_errors else "", "")
        try:
            graph = make()
            verify(graph)
            result = (
                _reduced(arguments, graph, steps, target)
                if arguments.reduce is not None
                else _result(arguments, graph, steps, target)
            )
        except IRError as e:
            if not case.errors:
                raise
            if missing := case.missing(e):
                raise IRError(f"graph {number}: the error does not say {missing[0]!r}, but: {e}") from e
            continue
        if case.errors:
            raise IRError(f"graph {number}: there is no error that says {case.errors[0]!r}")
        printed.append(print_graph(result, locs=arguments.locs))
    text = f"\n{SEPARATOR}\n".join(printed)
    if arguments.output:
        atomic.write(arguments.output, [text.encode()])
    else:
        show(text, "gluonjit", arguments)


def _result(arguments: argparse.Namespace, graph: Graph, steps: Sequence[Any], target: Any) -> Graph:
    from gluonjit.passes import report, run_passes

    callbacks: list[Any] = []
    if arguments.print_before or arguments.print_after:
        before, after = (_known(names) for names in (arguments.print_before, arguments.print_after))
        callbacks.append(report.PrintAround(sys.stderr, before, after, diff=arguments.diff))
    elif arguments.print_after_all or arguments.diff:
        callbacks.append(report.PrintAfterAll(sys.stderr, diff=arguments.diff))
    if arguments.dump_dir:
        callbacks.append(report.DumpFolder(arguments.dump_dir))
    timing = report.Timing()
    if arguments.timing:
        callbacks.append(timing)
    explained = None
    with report.watching() as told:
        if arguments.explain:
            (name,) = _known(arguments.explain)
            explained = Explained(name, told)
            callbacks.append(explained)
        graph = run_passes(
            graph, steps, target=target, after=report.both(*callbacks), reproducers=arguments.dump_dir, verify_each=True
        )
    if arguments.timing:
        print(timing, file=sys.stderr)
    if explained is not None:
        print(explained, file=sys.stderr)
    return graph


class Explained:
    """What one pass has done, each time it ran: a callback of `run_passes`. `told`: see `report.watching`."""

    def __init__(self, name: str, told: Callable[[str, Graph], Told]) -> None:
        self.name = name
        self._told = told
        self._lines: list[str] = []
        self._runs = 0

    def __call__(self, name: str, before: Graph, graph: Graph, seconds: float) -> None:
        from gluonjit.passes import report

        told = self._told(name, before)
        if name != self.name:
            return
        self._runs += 1
        self._lines.append(
            f"run {self._runs}: {len(before.ops)} ops, {len(graph.ops)} after it, {seconds * 1e3:.1f} ms"
        )
        if graph is before:
            self._lines.append("  nothing to do")
        for rule, count in told.applied.most_common():
            self._lines.append(f"  rule {rule.__name__}, {count}×: {report.first_line(rule)}")
        for rule, count in told.idle.most_common():
            ops = f"{count} op" if count == 1 else f"{count} ops"
            self._lines.append(f"  no use for rule {rule.__name__}, asked about {ops}: {report.first_line(rule)}")
        for remark in told.missed:
            place = f"  [{remark.op.loc}]" if remark.op.loc else ""
            self._lines.append(f"  left alone: {remark.what}, because {remark.why}{place}")
        if graph is before:
            return
        old, new = (Counter(op.name for op in g.ops) for g in (before, graph))
        changes = [f"{kind} {old[kind]} → {new[kind]}" for kind in sorted({*old, *new}) if old[kind] != new[kind]]
        self._lines.append(f"  ops: {', '.join(changes) or 'as many of each as before'}")
        self._lines += [f"  {line}" for line in report.diff(before, graph, context=0)]

    def __str__(self) -> str:
        from gluonjit.passes import find_pass

        head = f"{self.name}: {find_pass(self.name).doc}"
        return "\n".join([head, *self._lines, *([] if self._runs else ["  it is not among the passes that ran"])])


def _reduced(arguments: argparse.Namespace, graph: Graph, steps: Sequence[Any], target: Any) -> Graph:
    from gluonjit.passes import delta_debugging

    shows: Callable[[Graph], bool]
    if arguments.reduce == "fails":
        shows = delta_debugging.fails(steps, target=target)
    elif arguments.reduce == "differs":
        shows = delta_debugging.differs(steps, target=target)
    else:
        shows = _by_command(arguments.reduce)

    def progress(ops: int, tried: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{ops} ops, {tried} graphs tried ", end="", file=unescaped(sys.stderr))

    found = delta_debugging.reduced(graph, shows, progress)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=unescaped(sys.stderr))
    print(f"{len(graph.ops)} ops reduced to {len(found.ops)}", file=sys.stderr)
    return found


def _by_command(command: str) -> Callable[[Graph], bool]:
    """Whether a shell command exits with 0 for the graph's file."""
    from gluonjit.ir.text import save

    if "{}" not in command:
        raise IRError(f"--reduce {command!r}: give 'fails', 'differs', or a command in which {{}} is the graph's file")

    def shows(graph: Graph) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.ir"
            save(graph, path)
            done = subprocess.run(
                command.replace("{}", shlex.quote(str(path))), shell=True, capture_output=True, check=False
            )
            if done.returncode in (126, 127):  # the shell's own
                problem = done.stderr.decode(errors="replace").strip()
                raise IRError(f"--reduce {command!r} cannot be run: {problem}")
            return done.returncode == 0

    return shows


def _load(place: str) -> None:
    if place.partition(":")[0].endswith(".py"):
        if ":" in place:
            raise IRError(f"--load {place}: the name of a file, without {place.partition(':')[2]!r}")
        load_python(f"{place}:__name__")
        return
    try:
        importlib.import_module(place)
    except Exception as e:
        kind = "" if isinstance(e, (ImportError, ValueError)) else f"{type(e).__name__}: "
        raise IRError(f"--load {place}: {kind}{e}; a file ends in .py") from e


def _graphs(path: str) -> Iterator[tuple[str, Callable[[], Graph]]]:
    """The text of each graph, and what makes it."""
    from gluonjit.ir.text import parse_graph
    from gluonjit.tools.golden import read_cases

    text = read_text(path) if path == "-" or Path(path).is_file() else ""
    pieces = [piece for piece in text.split(SEPARATOR) if piece.strip()]
    if "// RUN:" in text and len(pieces) > 1:  # a file of golden cases, of which the upper graphs are meant
        pieces = [case.graph for case in read_cases(text)]
    elif path != "-" and len(pieces) < 2:
        yield text, lambda: load_graph(path)
        return
    import gluonjit.operators  # noqa: F401  (a graph of level `traced` names MXNet's operators)

    source = "<stdin>" if path == "-" else path
    for piece in pieces or [text]:
        yield piece, lambda piece=piece: parse_graph(piece, source=source)  # type: ignore[misc]


def _steps(arguments: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    """The passes to run, with their options."""
    from gluonjit.passes import find_pass, parse_pipeline

    named = pipelines()
    steps: list[tuple[str, dict[str, Any]]] = []
    for name, options in parse_pipeline(arguments.passes):
        if name in named and not options:
            steps += parse_pipeline(named[name])
        else:
            steps.append((find_pass(name, named).name, options))
    stop = arguments.stop_after
    if stop is None:
        return steps
    names = [name for name, _ in steps]
    if stop.isdecimal():
        if int(stop) > len(steps):
            raise IRError(f"--stop-after {stop}: there are {len(steps)} passes")
        return steps[: int(stop)]
    if stop not in names:
        raise IRError(f"--stop-after {stop}: that is not one of the passes of -p{did_you_mean(stop, names)}")
    return steps[: names.index(stop) + 1]


def _known(names: str) -> list[str]:
    """The passes in a list with commas; IRError for one that there is not."""
    from gluonjit.passes import find_pass, parse_pipeline

    return [find_pass(name).name for name, _ in parse_pipeline(names)]
