"""`gluonjit passes`: the compiler's passes, with their examples."""

from __future__ import annotations

import argparse
import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gluonjit import passes
from gluonjit.tools.cli.terminal import listed, wrapped, wrapped_document

if TYPE_CHECKING:
    from gluonjit.passes import Pass
    from gluonjit.tools.golden import Case


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "passes",
        help="list the compiler's passes, or describe one",
        description="Lists the passes and the pipelines made of them, or describes one pass, with an example.",
        epilog="example:\n  gluonjit passes cse",
    )
    p.add_argument("name", nargs="?", metavar="NAME", help="a pass")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.passes import all_passes, find_pass
    from gluonjit.tools.cli.opt import pipelines

    if arguments.name is not None:
        _pass(find_pass(arguments.name))
        return
    for step in map(find_pass, all_passes()):
        options = "".join(f" {{{k} = {v!r}}}" for k, v in step.options.items())
        print(listed(step.name + options, step.doc, 29))
    print("\npipelines, for `opt -p NAME`:")
    for name, steps in pipelines().items():
        print(wrapped(f"{name}: {steps}", "  ", "    "))


def _pass(step: Pass) -> None:
    """Describes a pass: what it does, its options, the rules that it has, and an example."""
    print(wrapped_document(f"{step.name}: {step.doc}") + "\n")
    print(f"  level: {step.needs} or later" + (f", then {step.gives}" if step.gives else ""))
    for name, default in step.options.items():
        print(f"  option {name}, default {default!r}")
    for rule, names, doc in rules_of(step):
        print(wrapped(f"rule {rule} ({', '.join(names)}): {doc}", "  ", "    "))
    if (case := example_of(step)) is not None:
        import gluonjit.operators  # noqa: F401  (an example of level `traced` names MXNet's operators)

        print(f"\nExample: {case.title}. `{case.pipeline}` makes\n")
        print(textwrap.indent(case.graph.strip(), "  "), "\ninto\n", sep="\n")
        print(textwrap.indent(case.run().strip(), "  "))


def rules_of(step: Pass) -> list[tuple[str, list[str], str]]:
    """Each rule of `simplify`: its name, the ops that it replaces, and what it says of itself. Others have none."""
    from gluonjit.passes.simplifier import RULES

    if step.name != "simplify":
        return []
    found = []
    for rule in dict.fromkeys(rule for rules in RULES.values() for rule in rules):
        names = [name for name, rules in RULES.items() if rule in rules]
        found.append((rule.__name__, names, " ".join((inspect.getdoc(rule) or "").partition("\n\n")[0].split())))
    return found


def example_of(step: Pass) -> Case | None:
    """The case of `passes/examples.ir` that shows a pass: the one that runs it with the fewest other passes."""
    from gluonjit.passes.manager import parse_pipeline
    from gluonjit.tools.golden import read_cases

    examples = read_cases((Path(passes.__file__).parent / "examples.ir").read_text(encoding="utf-8"))
    own = [case for case in examples if step.name in (name for name, _ in parse_pipeline(case.pipeline))]
    return min(own, key=lambda case: len(parse_pipeline(case.pipeline)), default=None)
