"""Golden cases of passes: graphs as text, and what a pipeline makes of them. Files `*.ir` hold any number:

    // What the case shows.
    // RUN: fold, dce
    graph @g() { … }
    // -----
    graph @g() { … }          (what the pipeline must print)
    // ERROR: text            (or, instead: what the error must say; several lines are several texts)

A case ends where the comment of the next one begins. `// TARGET: name` after RUN gives the passes that target. A
comment `// error: text` in the upper graph says the same as ERROR, beside the op that it is about. pytest runs the
files where this package is installed (`gluonjit.tools.pytest_plugin`); `pytest --update-ir` rewrites what they expect.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from gluonjit.codegen.target import named
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import IRError
from gluonjit.ir.verify import verify
from gluonjit.passes.manager import run_passes

SEPARATOR = "// -----\n"


class Mismatch(Exception):
    """A case does not give what it expects; the text shows both."""


@dataclass
class Case:
    comment: str
    """The lines up to and including RUN and TARGET."""
    graph: str
    expected: str
    line: int = 1
    """Where it begins in its file."""

    @property
    def title(self) -> str:
        return self.comment.split("\n", 1)[0].lstrip("/ ").rstrip(".")

    @property
    def pipeline(self) -> str:
        return self.header("RUN") or ""

    def header(self, key: str) -> str | None:
        m = re.search(rf"^// {key}: *(.*)$", self.comment, re.M)
        return m[1] if m else None

    @property
    def errors(self) -> list[str]:
        """What the error must say; empty if there is to be none."""
        return [
            *re.findall(r"^// ERROR: *(.*)$", self.expected, re.M),
            *re.findall(r"// error: *(.*?) *$", self.graph, re.M),
        ]

    def missing(self, error: Exception) -> list[str]:
        """What an error should say and does not. Errors of the parser quote the line, this expectation included."""
        said = re.sub(r"// error:.*", "", str(error))
        return [text for text in self.errors if text not in said]

    def text(self) -> str:
        return f"{self.comment}\n{self.graph.strip()}\n{SEPARATOR}{self.expected.strip()}\n"

    def run(self) -> str:
        """What the pipeline makes of the graph, as text. IRError if the graph or a pass fails."""
        graph = parse_graph(self.graph)
        verify(graph)
        target = None
        if name := self.header("TARGET"):
            target = named(name)
        result = print_graph(run_passes(graph, self.pipeline, target=target), locs=True)
        if print_graph(parse_graph(result), locs=True) != result:
            raise Mismatch("the result prints in another way once it is read again:\n" + result)
        return result

    def check(self) -> None:
        """Raises Mismatch unless the case gives what it expects."""
        if self.errors:
            try:
                result = self.run()
            except IRError as e:
                if missing := self.missing(e):
                    raise Mismatch(f"the error does not say {missing[0]!r}, but:\n{e}") from e
                return
            raise Mismatch(f"there is no error that says {self.errors[0]!r}; the result is\n{result}")
        result = self.run()
        if result != self.expected.strip() + "\n":
            lines = difflib.unified_diff(
                self.expected.strip().splitlines(), result.splitlines(), "expected", "result", lineterm="", n=100
            )
            raise Mismatch("\n".join(lines))


def read_cases(text: str) -> list[Case]:
    """The cases of a file; none if it has no RUN line."""
    cases = []
    # A case begins with the run of comment lines that holds its RUN.
    starts = [m.start() for m in re.finditer(r"(?m)(?:^// (?!-----|ERROR).*\n)*^// RUN:", text)]
    for start, end in zip(starts, [*starts[1:], len(text)]):
        head = re.compile(r"(?:// (?!-----).*\n?)+").match(text, start)
        assert head is not None
        body, _, expected = text[head.end() : end].partition(SEPARATOR)
        cases.append(Case(head[0].rstrip(), body, expected, text.count("\n", 0, start) + 1))
    return cases


def updated(cases: list[Case]) -> str:
    """The text of a file in which every case expects what it gives."""
    for case in cases:
        if not case.errors:
            case.expected = case.run()
    return "\n".join(case.text() for case in cases)
