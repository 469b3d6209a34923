"""Golden tests of passes: the `.ir` files here hold cases, text to text.

    // What the case shows.
    // RUN: fold, dce
    graph @g() { … }
    // -----
    graph @g() { … }          (what the pipeline must print)
    // ERROR: text            (or, instead: what the error must say; several lines are several texts)

A case ends where the comment of the next one begins. `// TARGET: name` after RUN gives the passes that target.
`pytest --update` rewrites the expected graphs, and writes those that are missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import gluonjit.operators  # noqa: F401  (declares the operators that `expand` replaces)
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import IRError
from gluonjit.ir.verify import verify
from gluonjit.passes import run_passes

FOLDER = Path(__file__).parent
SEPARATOR = "// -----\n"


@dataclass
class Case:
    comment: str
    """The lines up to and including RUN and TARGET."""
    graph: str
    expected: str

    @property
    def title(self) -> str:
        return self.comment.split("\n", 1)[0].lstrip("/ ").rstrip(".")

    def header(self, key: str) -> str | None:
        m = re.search(rf"^// {key}: *(.*)$", self.comment, re.M)
        return m[1] if m else None

    @property
    def errors(self) -> list[str]:
        return re.findall(r"^// ERROR: *(.*)$", self.expected, re.M)

    def text(self) -> str:
        return f"{self.comment}\n{self.graph.strip()}\n{SEPARATOR}{self.expected.strip()}\n"


def read_cases(text: str) -> list[Case]:
    cases = []
    # A case begins with the run of comment lines that holds its RUN.
    starts = [m.start() for m in re.finditer(r"(?m)(?:^// (?!-----|ERROR).*\n)*^// RUN:", text)]
    for start, end in zip(starts, [*starts[1:], len(text)]):
        head = re.compile(r"(?:// (?!-----).*\n)+").match(text, start)
        body, _, expected = text[head.end() : end].partition(SEPARATOR)
        cases.append(Case(head[0].rstrip(), body, expected))
    return cases


def run(case: Case) -> str:
    graph = parse_graph(case.graph)
    verify(graph)
    target = None
    if name := case.header("TARGET"):
        from gluonjit.codegen.target import named

        target = named(name)
    result = print_graph(run_passes(graph, case.header("RUN"), target=target), locs=True)
    assert print_graph(parse_graph(result), locs=True) == result
    return result


def all_cases():
    for path in sorted(FOLDER.glob("*.ir")):
        for k, case in enumerate(read_cases(path.read_text())):
            yield pytest.param(path, k, id=f"{path.stem}-{case.title}")


@pytest.mark.parametrize(("path", "k"), list(all_cases()))
def test_golden(path: Path, k: int, update: bool):
    cases = read_cases(path.read_text())
    case = cases[k]
    if case.errors:
        with pytest.raises(IRError) as e:
            run(case)
        for text in case.errors:
            assert text in str(e.value)
        return
    result = run(case)
    if update:
        case.expected = result
        path.write_text("\n".join(c.text() for c in cases))
    assert result == case.expected.strip() + "\n"


def test_every_pass_has_golden_cases():
    from gluonjit.passes import all_passes, parse_pipeline

    run = {
        name
        for path in FOLDER.glob("*.ir")
        for case in read_cases(path.read_text())
        for name, _ in parse_pipeline(case.header("RUN"))
    }
    assert set(all_passes()) - run == set()


def test_a_new_case_may_leave_out_what_is_expected():
    (case,) = read_cases("// New.\n// RUN: fold\ngraph @a() {\n  return\n}\n")
    assert (case.graph, case.expected) == ("graph @a() {\n  return\n}\n", "")
    case.expected = run(case)
    assert case.text().endswith("}\n// -----\ngraph @a() {\n  return\n}\n")


def test_reading_and_writing_cases():
    text = (
        "// One.\n// RUN: fold\ngraph @a() {\n  // inside\n  return\n}\n// -----\ngraph @a() {\n  return\n}\n"
        "\n// Two,\n// longer.\n// RUN: cse\n// TARGET: x\ngraph\n// -----\n// ERROR: no\n// ERROR: never\n"
    )
    one, two = read_cases(text)
    assert (one.title, one.header("RUN"), one.errors) == ("One", "fold", [])
    assert "// inside" in one.graph
    assert (two.title, two.header("RUN"), two.header("TARGET"), two.errors) == ("Two,", "cse", "x", ["no", "never"])
    assert "\n".join(c.text() for c in (one, two)) == text
