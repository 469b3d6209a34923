"""What can watch a pipeline: callbacks for `run_passes(…, after=…)`. `both(a, b)` joins them."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from gluonjit.ir.graph import Graph
from gluonjit.ir.text import print_graph, save
from gluonjit.passes.manager import After
from gluonjit.passes.remarks import Remark, listening
from gluonjit.passes.simplifier import RULES, Rule, counting

ELIDE = 64
"""Elements of a constant beyond which it is not shown to people."""


def both(*callbacks: After) -> After:
    """One callback that calls all of them in order."""

    def after(name: str, before: Graph, graph: Graph, seconds: float) -> None:
        for callback in callbacks:
            callback(name, before, graph, seconds)

    return after


class PrintAfterAll:
    """Prints the graph after each pass; with `diff`, only what the pass has changed."""

    def __init__(self, stream: TextIO, diff: bool = False) -> None:
        self.stream = stream
        self.diff = diff

    def __call__(self, name: str, before: Graph, graph: Graph, seconds: float) -> None:
        print(f"// After {name}", end="", file=self.stream)
        if graph is before:
            print(": nothing changed\n", file=self.stream)
        elif self.diff:
            print(file=self.stream)
            print(*diff(before, graph), "", sep="\n", file=self.stream)
        else:
            print(file=self.stream)
            print(print_graph(graph, elide=ELIDE), file=self.stream)


class PrintAround:
    """Prints the graph before and after the passes of these names; with `diff`, only what such a pass has changed."""

    def __init__(self, stream: TextIO, before: Collection[str], after: Collection[str], diff: bool = False) -> None:
        self.stream = stream
        self.before = before
        self._after = PrintAfterAll(stream, diff)
        self.after = after

    def __call__(self, name: str, before: Graph, graph: Graph, seconds: float) -> None:
        if name in self.before:
            print(f"// Before {name}", file=self.stream)
            print(print_graph(before, elide=ELIDE), file=self.stream)
        if name in self.after:
            self._after(name, before, graph, seconds)


def diff(before: Graph, after: Graph, context: int = 2) -> Iterator[str]:
    """The lines of a unified diff. Lines that differ in the numbers of unnamed values alone count as equal."""
    old, new = (print_graph(graph, elide=ELIDE).splitlines() for graph in (before, after))
    return diff_of_texts(old, new, context)


def diff_of_texts(old: Sequence[str], new: Sequence[str], context: int = 2) -> Iterator[str]:
    """`diff` of the lines of two graphs."""
    masked_old, masked_new = ([re.sub(r"%\d+", "%", line) for line in lines] for lines in (old, new))
    # `autojunk` keeps long graphs from taking seconds, at the price of diffs that may be larger than need be.
    matcher = difflib.SequenceMatcher(None, masked_old, masked_new, autojunk=len(new) > 1000)
    for group in matcher.get_grouped_opcodes(context):
        yield "@@"
        for tag, a, b, c, d in group:
            if tag == "equal":
                yield from (f"  {line}" for line in new[c:d])
            else:
                yield from (f"- {line}" for line in old[a:b])
                yield from (f"+ {line}" for line in new[c:d])


class Told(NamedTuple):
    """What one run of a pass tells of its decisions."""

    applied: Counter[Rule]
    """How often each rule of `simplify` found something to do."""
    idle: Counter[Rule]
    """Rules of `simplify` that found nothing to do, and how many ops they were asked about."""
    missed: list[Remark]


@contextmanager
def watching() -> Iterator[Callable[[str, Graph], Told]]:
    """A context whose function, called after each pass with its name and the graph that it was given, returns what the
    pass told."""
    with counting() as fired, listening() as heard:
        before = fired.copy()

        def told(name: str, graph: Graph) -> Told:
            nonlocal before
            applied, before, missed = fired - before, fired.copy(), heard.copy()
            heard.clear()
            asked: Counter[Rule] = Counter()
            for op in graph.ops if name == "simplify" else ():
                asked.update(rule for rule in RULES.get(op.name, ()) if rule not in applied)
            return Told(applied, asked, missed)

        yield told


def first_line(rule: Rule) -> str:
    """The first line of its documentation."""
    return (rule.__doc__ or "").strip().partition("\n")[0]


class Timing:
    """Collects how long each pass took and what it did to the number of ops; `str` is the table."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, float]] = []

    def __call__(self, name: str, before: Graph, graph: Graph, seconds: float) -> None:
        self.rows.append((name, len(before.ops), len(graph.ops), seconds))

    def __str__(self) -> str:
        total = sum(row[3] for row in self.rows)
        width = max((len(row[0]) for row in self.rows), default=0)
        width = max(width, len("total"))
        lines = [f"{'pass':<{width}}  {'ops':>13}  {'ms':>8}"]
        for name, before, after, seconds in self.rows:
            lines.append(f"{name:<{width}}  {before:>5} -> {after:>4}  {seconds * 1e3:>8.2f}")
        return "\n".join([*lines, f"{'total':<{width}}  {'':>13}  {total * 1e3:>8.2f}"])


class DumpFolder:
    """Writes the graph after each pass to `NN-name.ir`, the first one's input to `00-input.ir`; big constants go to an
    `.npz` beside it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.count = 0

    def __call__(self, name: str, before: Graph, graph: Graph, seconds: float) -> None:
        if self.count == 0:
            save(before, self.folder / "00-input.ir")
        self.count += 1
        save(graph, self.folder / f"{self.count:02}-{name}.ir")
