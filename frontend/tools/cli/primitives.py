"""`gluonjit primitives`: the primitives of the compiler's graphs, with their examples."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from gluonjit.ir import plugins, primitives
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import IRError
from gluonjit.tools.cli.terminal import listed, wrapped_document

TAKEN_APART = ("loop", "branch", "call", "with_gradient")
"""Ops whose regions the pass `differentiate` differentiates, so that they need no rule."""


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "primitives",
        help="list the primitives of the compiler's graphs, or describe one",
        description="Lists the primitives that passes and code generation know, or describes one, with an example.",
        epilog="example:\n  gluonjit primitives reduce_window",
    )
    p.add_argument("name", nargs="?", metavar="NAME", help="a primitive")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.ir.opdef import NO_GRADIENT, REGISTRY, REQUIRED, Primitive, did_you_mean

    plugins.load()
    known = {name: op for name, op in sorted(REGISTRY.items()) if isinstance(op, Primitive)}
    if arguments.name is None:
        for name, op in known.items():
            print(listed(name, _doc(op), 17))
        return
    if arguments.name not in known:
        raise IRError(f"there is no primitive {arguments.name!r}{did_you_mean(arguments.name, known)}")
    op = known[arguments.name]
    parameters = inspect.signature(op.infer_types).parameters.values()
    operands = [
        str(p).partition(":")[0] for p in parameters if p.kind < p.KEYWORD_ONLY and p.name not in op.attr_defaults
    ]
    print(f"{op.name}({', '.join(operands)})\n\n{wrapped_document(_doc(op))}\n")
    for key, default in op.attr_defaults.items():
        print(f"  attribute {key}, {'required' if default is REQUIRED else f'default {default!r}'}")
    traits = {
        "elementwise": op.elementwise,
        "commutative": op.commutative,
        "a predicate": op.predicate,
        f"moves elements ({op.moves})": bool(op.moves),
        f"a {op.accumulates}": bool(op.accumulates),
        "not pure": not op.pure,
        f"has {op.region_count} region{'s' * (op.region_count != 1)}": bool(op.region_count),
        "has a kernel of its own": op.has_own_kernel,
    }
    gradient = "none" if op.vjp is None else "zero" if op.vjp is NO_GRADIENT else "has a rule"
    if op.name in TAKEN_APART:
        gradient = "by differentiate"
    print(f"traits: {', '.join(trait for trait, has in traits.items() if has) or 'none'}; gradient: {gradient}")
    if (example := primitive_example(op.name)) is not None:
        print(f"\nExample:\n\n{textwrap.indent(example, '  ')}\n\nreturns\n")
        print(textwrap.indent("\n".join(results_of(example)), "  "))


def results_of(example: str) -> list[str]:
    """What a graph without inputs returns."""
    graph = parse_graph(example)
    results, _ = evaluate(graph, [])
    heads = [f"{v.type} " for v in graph.outputs]
    return [head + np.array2string(x, separator=", ", prefix=head) for head, x in zip(heads, results)]


def primitive_example(name: str) -> str | None:
    """The graph in `ir/primitives/examples.ir` that shows a primitive of this name."""
    text = (Path(primitives.__file__).parent / "examples.ir").read_text(encoding="utf-8")
    m = re.search(rf"^graph @{name}\(.*?^}}$", text, re.M | re.S)
    return m[0] if m else None


def _doc(op: Any) -> str:
    """What a primitive says of itself, or its reference."""
    return inspect.cleandoc(op.doc or inspect.getdoc(op.eval) or inspect.getdoc(op.infer_types) or "")
