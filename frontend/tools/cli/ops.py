"""`gluonjit ops`: MXNet's operators."""

from __future__ import annotations

import argparse
from typing import Any

from gluonjit.ir.opdef import REQUIRED
from gluonjit.tools.cli.terminal import listed, wrapped, wrapped_document


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
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
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
            print(listed(name, op.doc, 33, notes))
        return
    op = registry.get(arguments.name)
    print(op.name + (f"  (also {', '.join(op.aliases)})" if op.aliases else ""))
    print(f"\n{wrapped_document(op.doc)}\n" if op.doc else "")
    if op.host:
        print(f"Compiled code calls Python for it: {op.host}\n")
    if op.imperative_only:
        print(f"Not in compiled code: {op.imperative_only}\n")
    inputs = "any number, counted by num_args" if op.variadic else ""
    if not inputs:
        inputs = ", ".join(input_names(op)) or ("those of its class" if op.host else "")
    print(wrapped(f"inputs: {inputs or 'none'}"))
    for key, attr in op.attrs.items():
        default = "required" if attr.default is REQUIRED else f"default {attr.default!r}"
        print(wrapped(f"{key} : {attr.kind}, {default}{'. ' + attr.doc if attr.doc else ''}", "  ", "    "))


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
