"""Golden cases in `*.ir` files: `gluonjit.tools.pytest_plugin` collects them, `gluonjit.tools.golden` runs them."""

from pathlib import Path

import pytest

import gluonjit.operators  # noqa: F401  (declares the operators that `expand` replaces)
from gluonjit import passes
from gluonjit.ir.types import IRError
from gluonjit.passes import all_passes, parse_pipeline
from gluonjit.tools.golden import Case, Mismatch, read_cases

FOLDER = Path(__file__).parent
EXAMPLES = read_cases((Path(passes.__file__).parent / "examples.ir").read_text())

pytest_plugins = ["pytester"]


OURS = {name for name, step in all_passes().items() if step.run.__module__.startswith("gluonjit.")}
"""Without those that tests declare."""


def names(case: Case) -> set[str]:
    return {name for name, _ in parse_pipeline(case.pipeline)}


@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case.pipeline)
def test_examples_of_passes(case: Case):
    case.check()


def test_every_pass_has_an_example():
    assert OURS == set().union(*map(names, EXAMPLES))


def test_every_pass_has_golden_cases():
    cases = [case for path in FOLDER.glob("*.ir") for case in read_cases(path.read_text())]
    assert OURS - set().union(*map(names, cases)) == set()


def test_a_new_case_may_leave_out_what_is_expected():
    (case,) = read_cases("// New.\n// RUN: fold\ngraph @a() {\n  return\n}\n")
    assert (case.graph, case.expected) == ("graph @a() {\n  return\n}\n", "")
    case.expected = case.run()
    assert case.text().endswith("}\n// -----\ngraph @a() {\n  return\n}\n")


def test_reading_and_writing_cases():
    text = (
        "// One.\n// RUN: fold\ngraph @a() {\n  // inside\n  return\n}\n// -----\ngraph @a() {\n  return\n}\n"
        "\n// Two,\n// longer.\n// RUN: cse\n// TARGET: x\ngraph\n// -----\n// ERROR: no\n// ERROR: never\n"
    )
    one, two = read_cases(text)
    assert (one.title, one.header("RUN"), one.errors, one.line) == ("One", "fold", [], 1)
    assert "// inside" in one.graph
    assert (two.title, two.header("RUN"), two.header("TARGET"), two.errors) == ("Two,", "cse", "x", ["no", "never"])
    assert two.line == 12
    assert "\n".join(c.text() for c in (one, two)) == text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("graph @a(%x: f32[2]) {\n  return %x\n}\n// -----\ngraph @b(%x: f32[2]) {\n  return %x\n}\n", "+graph @a"),
        ("graph @a() {\n  return\n}\n// -----\n// ERROR: something\n", "there is no error that says 'something'"),
        ("graph @a() {\n  %y = tang() // error: else\n  return\n}\n", "does not say 'else'"),
    ],
)
def test_a_case_that_fails(body: str, says: str):
    (case,) = read_cases(f"// RUN: dce\n{body}")
    with pytest.raises(Mismatch) as e:
        case.check()
    assert says in str(e.value)


def test_an_error_may_be_expected_beside_its_op():
    (case,) = read_cases(
        "// RUN: dce\ngraph @a(%x: f32[2]) {\n  %y = tang(%x) // error: unknown operator 'tang'\n  return\n}"
    )
    case.check()
    with pytest.raises(IRError):
        case.run()


FILE = """\
// Sums of constants.
// RUN: fold, dce
graph @g() {
  %a: f32[] = constant() {value = 1}
  %b = add(%a, %a)
  return %b
}
// -----
graph @g() {
  %b: f32[] = constant() {value = %s}
  return %b
}
"""


def test_pytest_runs_files_of_cases(pytester: pytest.Pytester):
    pytester.path.joinpath("right.ir").write_text(FILE.replace("%s", "2.0"))
    pytester.path.joinpath("wrong.ir").write_text(FILE.replace("%s", "3.0"))
    pytester.path.joinpath("other.ir").write_text("intermediate representation of something else\n")
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*wrong.ir:1: fold, dce", "*-*value = 3.0*", "*+*value = 2.0*"])


def test_pytest_rewrites_what_they_expect(pytester: pytest.Pytester):
    path = pytester.path / "wrong.ir"
    path.write_text(FILE.replace("%s", "3.0"))
    pytester.runpytest_inprocess("--update-ir", "-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert path.read_text() == FILE.replace("%s", "2.0")
