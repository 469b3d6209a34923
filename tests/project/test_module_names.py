"""No two packages have modules of one name: `graph.py` in an error or an editor's tab is unambiguous."""

from collections import defaultdict
from pathlib import Path

PARTS = ("frontend", "ir", "passes", "codegen", "runtime")

MXNETS = set(
    "autograd base basic_layers callback conv_layers detection io quantization registry rnn rnn_cell text utils".split()
)
"""MXNet's own import paths."""
OPERATORS_OF_PRIMITIVES = {"convolution", "elementwise", "reduction"}
"""An operator's file, and that of the primitives which it expands into."""
OF_ONE_THING = {"graph", "host", "threads"}
"""The pass `threads` and the threads, a host call's code and what it calls, the graphs of symbols and of the
compiler."""
COMMANDS = {"build", "cache", "report"}
"""A command of `gluonjit`, and what does its work."""


def test_no_two_modules_share_a_name(root: Path):
    places = defaultdict(set)
    for part in PARTS:
        for path in (root / part).rglob("*.py"):
            if not path.stem.startswith("__"):
                places[path.stem].add(path.parent.relative_to(root).as_posix())
    shared = {name: sorted(where) for name, where in places.items() if len(where) > 1}
    allowed = MXNETS | OPERATORS_OF_PRIMITIVES | OF_ONE_THING | COMMANDS
    assert not {name: where for name, where in shared.items() if name not in allowed}
    assert not allowed - shared.keys(), "allowed, but shared no more"


OTHERS = {
    "benchmarks": "the folder of that name",
    "checkpoint": "files of parameters and graphs",
    "cli": "frontend/tools/cli",
    "dropin": "programs that import mxnet",
    "field": "published programs and packages",
    "onnx_files": "frontend/onnx",
    "project": "the project itself",
    "reference": "models that MXNet exported",
    "serving": "frontend/tools/serving and scoring",
}
"""Folders of tests that mirror none of `gluonjit`, and what they are about."""


def test_folders_of_tests_are_those_of_what_they_test(root: Path):
    folders = {path.parent.name for path in (root / "tests").glob("*/test_*.py")}
    packages = {*PARTS} | {path.parent.name for path in (root / "frontend").glob("*/__init__.py")}
    assert folders - packages == OTHERS.keys()
    assert {"execution", "trace", *PARTS} <= folders
