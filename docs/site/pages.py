"""Pages about passes, primitives, operators and commands, from what the code says of itself.

Each function returns Markdown by file name, relative to the folder `reference`.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import re
import sys
from collections import defaultdict
from typing import Any
from unittest import mock

from docstrings import escaped, markdown

from gluonjit.ir.opdef import REQUIRED
from gluonjit.language.mxnet_names import place_of
from gluonjit.operators import registry
from gluonjit.passes import all_passes, find_pass
from gluonjit.tools.cli import main, make_parser
from gluonjit.tools.cli.opt import pipelines
from gluonjit.tools.cli.passes import example_of, rules_of
from gluonjit.tools.cli.primitives import primitive_example, results_of


def passes() -> dict[str, str]:
    """A page for each pass, with a graph before and after it, and a list of them."""
    steps = [find_pass(name) for name in all_passes()]
    rows = [f"| [`{step.name}`](passes/{step.name}.md) | {escaped(step.doc.splitlines()[0])} |" for step in steps]
    text = [
        "# Passes, before and after",
        "[Passes](../docs/passes.md) tells why they are there and in which order they run. Here is one page for each, "
        "made of what `gluonjit passes NAME` prints.",
        "| pass | |\n|---|---|\n" + "\n".join(rows),
        "## Pipelines",
        "\n".join(f"* `{name}`: {linked(steps_, 'passes/')}" for name, steps_ in pipelines().items()),
        contents(f"passes/{step.name}" for step in steps),
    ]
    return {"passes.md": page(text)} | {f"passes/{step.name}.md": _pass(step) for step in steps}


def linked(pipeline: str, folder: str = "") -> str:
    """A pipeline with a link for each pass."""
    known = set(all_passes())
    parts = re.split(r"([\w-]+)(?=[,\s]|$)", pipeline)
    return "".join(f"[`{part}`]({folder}{part}.md)" if part in known else escaped(part) for part in parts)


def _pass(step: Any) -> str:
    text = [f"# {step.name}", markdown(step.doc)]
    if step.options:
        text += [
            "| option | default |\n|---|---|\n" + "\n".join(f"| `{k}` | `{v!r}` |" for k, v in step.options.items())
        ]
    case = example_of(step)
    target = case.header("TARGET")
    with_target = f", for the target `{target}`" if target else ""
    text += [
        "## Example",
        f"{escaped(case.title)}. The pipeline is {linked(case.pipeline)}{with_target}.",
        "Before:",
        code("ir", case.graph.strip()),
        "After:",
        code("ir", case.run().strip()),
    ]
    if rules := rules_of(step):
        text += ["## Rules", "\n".join(f"* `{name}` ({', '.join(ops)}): {escaped(doc)}" for name, ops, doc in rules)]
    return page(text)


def primitives() -> dict[str, str]:
    """One page: what `gluonjit primitives NAME` prints of each."""
    names = [line.split(maxsplit=1)[0] for line in printed("primitives").splitlines()]
    text = [
        "# Primitives",
        "What graphs are made of once operators are expanded ([IR](../docs/ir.md)), as `gluonjit primitives NAME` "
        "describes each. `gradient: none` cannot be differentiated; `zero` ends gradients; `by differentiate`: that "
        "pass differentiates the regions.",
    ]
    for name in names:
        signature, *rest = printed("primitives", name).splitlines()
        facts = next(k for k, line in enumerate(rest) if re.match(r"  attribute |traits: ", line))
        traits = next(k for k, line in enumerate(rest) if line.startswith("traits: "))
        attributes = [line.split(maxsplit=1)[1] for line in rest[facts:traits]]
        text += [f"## {name}", f"`{signature}`", markdown("\n".join(rest[:facts]))]
        text += ["\n".join(f"* attribute {escaped(line)}" for line in attributes)] if attributes else []
        text += [f"*{escaped(rest[traits])}*"]
        if (example := primitive_example(name)) is not None:
            text += [code("ir", example), "returns", code("text", "\n".join(results_of(example)))]
    return {"primitives.md": page(text)}


@mock.patch.dict(os.environ, COLUMNS="100")  # where argparse wraps lines
def commands() -> dict[str, str]:
    """One page: `--help` of every command."""
    text = ["# Command line", code("", make_parser().format_help().strip())]
    (group,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    for name, parser in group.choices.items():
        text += [f"## gluonjit {name}", code("", parser.format_help().strip())]
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner, its in action.choices.items():
                    text += [f"### gluonjit {name} {inner}", code("", its.format_help().strip())]
    return {"commands.md": page(text)}


def operators() -> dict[str, str]:
    """A page for each module of operators, and a table of all their names."""
    registry.get("identity")  # declares them all
    families: dict[str, list[Any]] = defaultdict(list)
    for op in dict.fromkeys(registry.OPERATORS.values()):
        families[inspect.unwrap(op.expand).__module__].append(op)
    pages, rows = {}, []
    for module, ops in sorted(families.items()):
        file = module.rpartition(".")[2]
        title, _, about = inspect.cleandoc(sys.modules[module].__doc__ or file).partition("\n\n")
        text = [f"# {file.replace('_', ' ').capitalize()}", markdown(title), markdown(about)]
        ops.sort(key=lambda op: op.name.lower())
        text.append(links_to("mx.nd", [path_of(op.name) for op in ops]))
        for op in ops:
            text.append(_operator(op))
            line = escaped(op.doc.splitlines()[0]) if op.doc else ""
            # A bar would end the cell, also in code.
            line = line.replace("|", r"\|")
            rows += [
                (path_of(name), f"| {{py:obj}}`{path_of(name)} <mx.nd.{path_of(op.name)}>` | {line} |")
                for name in (op.name, *op.aliases)
            ]
        pages[f"operators/{file}.md"] = page(text)
    rows.sort(key=lambda row: (row[0].startswith("_internal"), row[0].lower()))
    index = [
        "# Operators",
        "All operators of MXNet that are here, from the registry, under every name that they have. Each is a function "
        "of `mx.nd`, which computes, and of `mx.sym`, which appends a node to a graph, under the same name; in "
        "`hybrid_forward`, `F` is either. Names in `_internal` are those that graphs in files have. "
        "What `help(mx.nd.NAME)` prints is on their pages.",
        ":::{container} filtered\n\n| operator | |\n|---|---|\n" + "\n".join(row for _, row in rows) + "\n\n:::",
        contents(name.removesuffix(".md") for name in sorted(pages)),
    ]
    return {"operators.md": page(index), **pages}


def path_of(name: str) -> str:
    """Where the function of an operator is: `contrib.box_nms`."""
    place, short = place_of(name)
    return short if place == "op" else f"{place}.{short}"


def _operator(op: Any) -> str:
    import gluonjit as mx

    place, short = place_of(op.name)
    function = getattr(mx.nd if place == "op" else getattr(mx.nd, place), short)
    parameters = [f"{p.name}" if p.kind is not p.VAR_POSITIONAL else f"*{p.name}" for p in _parameters(function)]
    needed = [name for name, attr in op.attrs.items() if attr.default is REQUIRED]
    shown = [
        f"{name}={op.attrs[name].default!r}" if name in op.attrs and name not in needed else name for name in parameters
    ]
    notes = []
    if op.aliases:
        notes.append("Also " + ", ".join(f"`{path_of(alias)}`" for alias in op.aliases) + ".")
    if op.host:
        notes.append(f"Compiled code calls Python for it: {escaped(op.host)}.")
    if op.imperative_only:
        notes.append(f"Not in compiled code: {escaped(op.imperative_only)}.")
    body = [markdown(function.__doc__), *notes]
    return directive("function", f"mx.nd.{path_of(op.name)}({', '.join(shown)})", "\n\n".join(body))


def _parameters(function: Any) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]


def directive(kind: str, signature: str, body: str, depth: int = 0) -> str:
    """A description of an object of Python. `depth`: how deep descriptions are nested in the body."""
    fence = ":" * (3 + depth)
    return f"{fence}{{py:{kind}}} {signature}\n\n{body}\n\n{fence}"


def links_to(path: str, names: list[str]) -> str:
    """A line with a link to the description of each of these."""
    return " · ".join(f"{{py:obj}}`{name} <{path}.{name}>`" for name in names)


def code(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def contents(names: Any) -> str:
    """Places pages below this one in the navigation."""
    return "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```"


def page(parts: list[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def printed(*words: str) -> str:
    """What the command prints where its output is no terminal."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), mock.patch.dict(os.environ):
        os.environ.pop("COLUMNS", None)
        status = main(words)
    if status:
        raise SystemExit(f"`gluonjit {' '.join(words)}` failed")
    return out.getvalue()
