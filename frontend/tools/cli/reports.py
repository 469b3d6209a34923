"""`gluonjit ops`, `passes` and `doctor`: the operators, the compiler's passes, and the machine and settings."""

from __future__ import annotations

import argparse
import inspect
import platform
import re
import sys
import textwrap
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit import passes
from gluonjit.ir import plugins, primitives
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.opdef import REQUIRED
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import IRError

if TYPE_CHECKING:
    from gluonjit.ir.machine import Machine
    from gluonjit.passes import Pass
    from gluonjit.tools.golden import Case


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "ops",
        help="list MXNet's operators, or describe one",
        description="Lists the operators of MXNet that gluonjit has, or describes one of them.",
        epilog="example:\n  gluonjit ops Convolution",
    )
    which = p.add_mutually_exclusive_group()
    which.add_argument("name", nargs="?", metavar="NAME", help="an operator's name or alias")
    which.add_argument("--missing", action="store_true", help="list those that MXNet has and gluonjit lacks")
    p.set_defaults(run=_ops)
    p = commands.add_parser(
        "passes",
        help="list the compiler's passes, or describe one",
        description="Lists the passes and the pipelines made of them, or describes one pass, with an example.",
        epilog="example:\n  gluonjit passes cse",
    )
    p.add_argument("name", nargs="?", metavar="NAME", help="a pass")
    p.set_defaults(run=_passes)
    p = commands.add_parser(
        "primitives",
        help="list the primitives of the compiler's graphs, or describe one",
        description="Lists the primitives that passes and code generation know, or describes one, with an example.",
        epilog="example:\n  gluonjit primitives reduce_window",
    )
    p.add_argument("name", nargs="?", metavar="NAME", help="a primitive")
    p.set_defaults(run=_primitives)
    p = commands.add_parser(
        "doctor",
        help="show versions, CPU features and settings",
        description="Shows versions, CPU features and settings, which a bug report should contain.",
        epilog="example:\n  gluonjit doctor",
    )
    p.set_defaults(run=_doctor)


def _ops(arguments: argparse.Namespace) -> None:
    from gluonjit.language.namespace import input_names
    from gluonjit.operators import registry

    if arguments.missing:
        _missing_ops()
        return
    if arguments.name is None:
        registry.get("identity")  # declares them all
        for name in sorted({op.name for op in registry.OPERATORS.values()}):
            op = registry.OPERATORS[name]
            notes = " (compiled code calls Python)" if op.host else ""
            notes += " (not in compiled code)" if op.imperative_only else ""
            print(f"{name:32} {op.doc.splitlines()[0] if op.doc else ''}{notes}")
        return
    op = registry.get(arguments.name)
    print(op.name + (f"  (also {', '.join(op.aliases)})" if op.aliases else ""))
    print(f"\n{op.doc}\n" if op.doc else "")
    if op.host:
        print(f"Compiled code calls Python for it: {op.host}\n")
    if op.imperative_only:
        print(f"Not in compiled code: {op.imperative_only}\n")
    inputs = "any number, counted by num_args" if op.variadic else ""
    if not inputs:
        inputs = ", ".join(input_names(op)) or ("those of its class" if op.host else "")
    print(f"inputs: {inputs or 'none'}")
    for key, attr in op.attrs.items():
        default = "required" if attr.default is REQUIRED else f"default {attr.default!r}"
        print(f"  {key} : {attr.kind}, {default}{'. ' + attr.doc if attr.doc else ''}")


def _missing_ops() -> None:
    """Prints MXNet's operators that gluonjit lacks, then the missing aliases of those that it has."""
    from gluonjit.language import mxnet_names
    from gluonjit.operators import registry

    registry.get("identity")  # declares them all
    theirs = mxnet_names.operators()
    present, absent = [], []
    for name, aliases in theirs.items():
        known = [n for n in (name, *aliases) if n in registry.OPERATORS]
        if not known:
            absent.append(name)
            print(name + (f"  (also {', '.join(aliases)})" if aliases else ""))
        else:
            present.append((known[0], [n for n in (name, *aliases) if n not in registry.OPERATORS]))
    for name, lacking in present:
        if lacking:
            print(f"{name}: without its alias {', '.join(lacking)}")
    print(f"{len(absent)} of {len(theirs)} operators of MXNet {mxnet_names.VERSION} are missing")


def _passes(arguments: argparse.Namespace) -> None:
    from gluonjit.passes import all_passes, find_pass
    from gluonjit.tools.cli.opt import pipelines

    if arguments.name is not None:
        _pass(find_pass(arguments.name))
        return
    for step in map(find_pass, all_passes()):
        options = "".join(f" {{{k} = {v!r}}}" for k, v in step.options.items())
        print(f"{step.name + options:28} {step.doc.splitlines()[0] if step.doc else ''}")
    print("\npipelines, for `opt -p NAME`:")
    for name, steps in pipelines().items():
        print(textwrap.fill(f"{name}: {steps}", 118, initial_indent="  ", subsequent_indent="    "))


def _pass(step: Pass) -> None:
    """Describes a pass: what it does, its options, the rules that it has, and an example."""
    print(f"{step.name}: {step.doc}\n")
    print(f"  level: {step.needs} or later" + (f", then {step.gives}" if step.gives else ""))
    for name, default in step.options.items():
        print(f"  option {name}, default {default!r}")
    for rule, names, doc in rules_of(step):
        print(f"  rule {rule} ({', '.join(names)}): {doc}")
    if (case := example_of(step)) is not None:
        print(f"\nExample: {case.title}. `{case.pipeline}` makes\n")
        print(textwrap.indent(case.graph.strip(), "  "), "\ninto\n", sep="\n")
        print(textwrap.indent(case.run().strip(), "  "))


def rules_of(step: Pass) -> list[tuple[str, list[str], str]]:
    """Of `simplify`, each rule: its name, the ops that it replaces, and what it says of itself. Others have none."""
    from gluonjit.passes.simplifier import RULES

    if step.name != "simplify":
        return []
    found = []
    for rule in dict.fromkeys(rule for rules in RULES.values() for rule in rules):
        names = [name for name, rules in RULES.items() if rule in rules]
        found.append((rule.__name__, names, (inspect.getdoc(rule) or "").partition("\n")[0]))
    return found


def example_of(step: Pass) -> Case | None:
    """The case of `passes/examples.ir` that shows a pass: the one that runs it with the fewest other passes."""
    from gluonjit.passes.manager import parse_pipeline
    from gluonjit.tools.golden import read_cases

    examples = read_cases((Path(passes.__file__).parent / "examples.ir").read_text(encoding="utf-8"))
    own = [case for case in examples if step.name in (name for name, _ in parse_pipeline(case.pipeline))]
    return min(own, key=lambda case: len(parse_pipeline(case.pipeline)), default=None)


def _primitives(arguments: argparse.Namespace) -> None:
    from gluonjit.ir.opdef import NO_GRADIENT, REGISTRY, Primitive, did_you_mean

    plugins.load()
    known = {name: op for name, op in sorted(REGISTRY.items()) if isinstance(op, Primitive)}
    if arguments.name is None:
        for name, op in known.items():
            print(f"{name:16} {_doc(op).partition(chr(10))[0]}")
        return
    if arguments.name not in known:
        raise IRError(f"there is no primitive {arguments.name!r}{did_you_mean(arguments.name, known)}")
    op = known[arguments.name]
    parameters = inspect.signature(op.infer_types).parameters.values()
    operands = [
        str(p).partition(":")[0] for p in parameters if p.kind < p.KEYWORD_ONLY and p.name not in op.attr_defaults
    ]
    print(f"{op.name}({', '.join(operands)})\n\n{_doc(op)}\n")
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


def _multiplications(machine: Machine) -> str:
    """How many products of each element type a vector instruction adds up, and for which there is no kernel."""
    ways = []
    for way in machine.multiplications():
        count = machine.lanes(way.sums) * way.terms
        ways.append(f"{way.dtype} {count}" + ("" if way.has_code else " (no kernel)"))
    return ", ".join(ways)


def _doctor(arguments: argparse.Namespace) -> None:
    from gluonjit._version import version
    from gluonjit.codegen.target import host
    from gluonjit.runtime.threads import get_num_threads
    from gluonjit.tools.cli.cache import summary

    rows = [("gluonjit", version), ("Python", sys.version.split()[0])]
    for package in ("numpy", "llvmlite", "networkx", "ml_dtypes"):
        rows.append((package, metadata.version(package)))
    from llvmlite import binding

    rows.append(("LLVM", ".".join(map(str, binding.llvm_version_info))))
    rows.append(("system", platform.platform()))
    target = host()
    rows += [
        ("CPU", target.cpu),
        ("vector registers", f"{target.num_vector_registers} of {target.vector_bits} bits"),
        ("caches", ", ".join(f"{n >> 10} KiB" for n in (target.l1, target.l2, target.l3))),
        ("multiplies", _multiplications(target)),
        ("features", " ".join(f[1:] for f in target.features.split(",") if f.startswith("+"))),
        ("object cache", summary()),
        ("threads", str(get_num_threads())),
    ]
    for name, value in rows:
        print(f"{name:18} {value}")
