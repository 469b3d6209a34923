"""`gluonjit doctor`: versions, the machine and settings."""

from __future__ import annotations

import argparse
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gluonjit.ir.machine import Machine


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "doctor",
        help="show versions, CPU features and settings",
        description="Shows versions, CPU features and settings, which a bug report should contain.",
        epilog="example:\n  gluonjit doctor",
    )
    p.set_defaults(run=_run)


def _multiplications(machine: Machine) -> str:
    """How many products of each element type a vector instruction adds up, and for which there is no kernel."""
    ways = []
    for way in machine.multiplications():
        count = machine.lanes(way.sums) * way.terms
        ways.append(f"{way.dtype} {count}" + ("" if way.has_code else " (no kernel)"))
    return ", ".join(ways)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit._version import version
    from gluonjit.codegen.target import host
    from gluonjit.runtime import kernel_files
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
        *(("kernel file", line) for line in kernel_files.described(target)),
        ("threads", str(get_num_threads())),
    ]
    for name, value in rows:
        print(f"{name:18} {value}")
