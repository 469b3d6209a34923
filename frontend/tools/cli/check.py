"""`gluonjit check`: lists everything that keeps a model from being compiled, or makes it mean something unexpected."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gluonjit._version import version
from gluonjit.common.quantities import noun_text
from gluonjit.ir.types import IRError
from gluonjit.tools.cli import files
from gluonjit.tools.cli.models import add_model, add_train_mode, load_model
from gluonjit.tools.cli.terminal import add_output, printing_to

RULES = {
    "needs-value": "The program needs the value of an array while it is traced.",
    "needs-python": "A block can run only as Python.",
    "fails": "The program raises an error.",
    "state": "The program changes attributes that a compiled call does not change in the same way.",
    "random-numbers": "The program draws from Python's or NumPy's generators.",
    "frozen": "A trace keeps a value, or has an effect once, that every call should have.",
    "runs-once": "Something happens when the block is traced, not in every call.",
    "unsupported-operator": "The graph has operators that are not supported.",
    "unused-parameter": "A parameter is not used.",
    "nan": "Parameters or results are not finite.",
    "denormals": "Parameters have denormal elements, which are slow.",
    "differs-from-mxnet": "MXNet, once hybridized, silently does something else.",
    "no-hybrid-block": "A Block is not compiled.",
}
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "check",
        help="list everything in a model that cannot be compiled, or means something unexpected",
        description="Runs a model's program once as Python and once on symbols, and lists all problems at once, each "
        "with its line and what to write instead: values that are needed while tracing, operators that are not "
        "supported, state that a trace would freeze, unused parameters, nan and denormals. Exit status 1 if there is "
        "an error.",
        epilog="example:\n  gluonjit check examples/lenet.py:net --input 16x1x28x28",
    )
    add_model(p)
    add_train_mode(p)
    form = p.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list")
    form.add_argument("--sarif", action="store_true", help="print SARIF 2.1.0, for code hosts and editors")
    add_output(p)
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    with contextlib.redirect_stdout(sys.stderr):  # what the program prints is no part of the list
        problems = _problems(arguments)
    if arguments.json:
        text = json.dumps([p.as_dict() for p in problems], indent=2, ensure_ascii=False)
    elif arguments.sarif:
        text = json.dumps(sarif(problems), indent=2, ensure_ascii=False)
    else:
        text = "\n".join(map(str, problems)) or "no problems"
    with printing_to(arguments.output):
        print(text)
    if any(p.severity == "error" for p in problems):
        sys.stdout.flush()
        raise IRError(f"{arguments.model}: {_summary(problems)}")
    if problems:
        print(_summary(problems), file=sys.stderr)


def _problems(arguments: argparse.Namespace) -> Sequence[Any]:
    from gluonjit.execution.checking import ERROR, Problem, check
    from gluonjit.language.modes import Scope

    if files.is_symbol(arguments.model) and not files.is_onnx(arguments.model):
        from gluonjit.symbol import json_reader

        unknown = json_reader.summary(arguments.model).unknown
        if unknown:
            remedy = "gluonjit coverage lists them by name; mx.operator.CustomOp can compute one in Python"
            return [
                Problem(
                    "unsupported-operator",
                    ERROR,
                    f"operator {name} is not supported: {', '.join(nodes[:3])}{', …' if len(nodes) > 3 else ''}",
                    remedy,
                    arguments.model,
                    1,
                )
                for name, nodes in unknown.items()
            ]
    block, given = load_model(arguments)
    with Scope(None, arguments.train):
        return check(block, given)


def _summary(problems: Sequence[Any]) -> str:
    counts = Counter(p.severity for p in problems)
    parts = [noun_text(n, kind) for kind in _LEVELS if (n := counts[kind])]
    return ", ".join(parts)


def sarif(problems: Sequence[Any]) -> dict[str, Any]:
    """The log that SARIF 2.1.0 (OASIS, section 3.13) describes."""
    results = []
    for p in problems:
        result: dict[str, Any] = {
            "ruleId": p.rule,
            "level": _LEVELS[p.severity],
            "message": {"text": p.message + (f"\nInstead: {p.remedy}" if p.remedy else "")},
        }
        if p.file:
            region = {"startLine": max(p.line, 1)}
            if p.column:
                region["startColumn"] = p.column
            if p.end_column > p.column:
                region["endColumn"] = p.end_column
            uri = Path(os.path.relpath(p.file)).as_posix()
            result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}]
        if p.block:
            result.setdefault("locations", [{}])[0]["logicalLocations"] = [{"fullyQualifiedName": p.block}]
        results.append(result)
    driver = {
        "name": "gluonjit",
        "version": version,
        "rules": [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
