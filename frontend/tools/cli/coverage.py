"""`gluonjit coverage`: lists the names that programs and graphs use and gluonjit lacks."""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import noun_text
from gluonjit.ir.types import IRError
from gluonjit.language import mxnet_names

SKIPPED_FOLDERS = {"__pycache__", "node_modules"}
SHOWN = 3
"""Places listed for each name, unless --all is given."""


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "coverage",
        help="list the names that programs written for MXNet use and gluonjit lacks",
        description="Reads Python programs and -symbol.json files, without running any, and lists the operators and "
        "names of MXNet's API that they use and gluonjit lacks, with file and line.",
        epilog="example:\n  gluonjit coverage examples/ examples/fire-symbol.json",
    )
    p.add_argument("paths", nargs="+", metavar="PATH", help="files, and folders with *.py and *.json files")
    p.add_argument("--all", action="store_true", help=f"list every place, not only the first {SHOWN} of a name")
    p.set_defaults(run=_run)


Places = dict[str, list[str]]
"""`file:line` of every use, by name."""


def _run(arguments: argparse.Namespace) -> None:
    operators: Places = defaultdict(list)
    names: Places = defaultdict(list)
    foreign: Places = defaultdict(list)
    unknown: Places = defaultdict(list)
    remarks: list[str] = []
    files = uses = 0
    for path in _files(arguments.paths):
        found = _read(path, remarks, unknown)
        if found is None:
            continue
        files += 1
        uses += len(found)
        for name, line in found:
            missing = missing_name(name)
            if missing is not None:
                table = _table(missing, operators, names, foreign)
                table[missing].append(f"{path}:{line}")
    _print("Operators that are missing", operators, arguments.all)
    _print("Names that are missing", names, arguments.all)
    _print(f"Names that are not in MXNet {mxnet_names.VERSION}'s public interface either", foreign, arguments.all)
    _print("Names that are known only when the program runs", unknown, arguments.all)
    for remark in remarks:
        print(remark)
    lacking = f"{noun_text(len(operators), 'operator')} and {noun_text(len(names), 'other name')} are missing"
    print(f"{noun_text(files, 'file uses', 'files use')} names of MXNet in {noun_text(uses, 'place')}: {lacking}")


def _files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if not path.exists():
            raise IRError(f"there is no file or folder {path}")
        if path.is_file():
            yield path
            continue
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in SKIPPED_FOLDERS)
            yield from (Path(folder, file) for file in sorted(files) if file.endswith((".py", ".json")))


def _read(path: Path, remarks: list[str], unknown: Places) -> list[tuple[str, int]] | None:
    """The uses in a file, with names as in `mxnet_usage.Use`; None if the file has nothing to read."""
    from gluonjit.tools import mxnet_usage

    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".py":
            looked_up: list[mxnet_usage.Use] = []
            found_uses = mxnet_usage.in_python(text, str(path), looked_up)
            for use in looked_up:
                unknown[f"getattr({use.name}, …)"].append(f"{path}:{use.line}")
            return [(use.name, use.line) for use in found_uses] or None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        line = f":{e.lineno}" if isinstance(e, SyntaxError) and e.lineno else ""
        remarks.append(
            f"{path}{line}: not read: {e.msg if isinstance(e, SyntaxError) else str(e) or 'nested too deep'}"
        )
        return None
    found = mxnet_usage.in_symbol(text)
    if found is None:
        return None
    if all(missing_name(f"op {use.name}") is None for use in found):
        from gluonjit.symbol import json_reader

        try:
            json_reader.parse(text, str(path))
        except MXNetError as e:
            remarks.append(f"{e}")
    return [(f"op {use.name}", use.line) for use in found]


@cache
def missing_name(name: str) -> str | None:
    """The shortest leading part of a dotted name that gluonjit lacks; None if it has the name.

    `op X` is an operator in a graph; `x._X` an attribute of some object; `F.X` is a function that `mx.nd` or `mx.sym`
    must have.
    """
    if name.startswith("op "):
        from gluonjit.operators import registry

        registry.get("identity")  # declares them all
        return None if name[3:] in registry.OPERATORS else name
    head, _, rest = name.partition(".")
    if head == "x":
        return None if rest in _private_attributes() else name
    if head == "F":
        missing = [_missing_below(package, rest) for package in ("ndarray", "symbol")]
        return f"F.{missing[0]}" if all(missing) else None
    return _missing_below("", name)


@cache
def _private_attributes() -> set[str]:
    """The attributes with an underscore that some class of gluonjit has."""
    pattern = re.compile(r"(?:def |self\.|^    )(_[A-Za-z]\w*)", re.MULTILINE)
    folder = Path(importlib.import_module("gluonjit").__file__ or "").parent
    return {name for file in folder.rglob("*.py") for name in pattern.findall(file.read_text(encoding="utf-8"))}


def _missing_below(package: str, name: str) -> str | None:
    """The shortest leading part of `name` that a module of gluonjit lacks."""
    value: Any = importlib.import_module(f"gluonjit.{package}".rstrip("."))
    parts = name.split(".")
    for k, part in enumerate(parts):
        if not isinstance(value, (ModuleType, type)):
            return None  # an object, whose attributes are only known when the program runs
        try:
            value = getattr(value, part)
            continue
        except AttributeError:
            if not isinstance(value, ModuleType):
                return ".".join(parts[: k + 1])
        try:
            value = importlib.import_module(f"{value.__name__}.{part}")
        except ImportError:
            # Extended as long as it is a name that MXNet has.
            known = k + 1
            while known < len(parts) and mxnet_names.has(".".join(filter(None, (package, *parts[: known + 1])))):
                known += 1
            return ".".join(parts[:known])
    return None


def _table(missing: str, operators: Places, names: Places, foreign: Places) -> Places:
    """The table in which a missing name is listed."""
    if missing.startswith("op "):
        return operators
    if missing.startswith("x."):
        return names
    name = missing.replace("F.", "ndarray.", 1) if missing.startswith("F.") else missing
    if not mxnet_names.has(name) and not mxnet_names.has(name.replace("ndarray.", "symbol.", 1)):
        return foreign
    return operators if mxnet_names.is_operator(name) else names


def _print(title: str, table: Places, every: bool) -> None:
    if not table:
        return
    print(f"{title}:")
    for name, places in sorted(table.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = places if every else places[:SHOWN]
        more = f", and {len(places) - len(shown)} more" if len(shown) < len(places) else ""
        print(f"  {name.removeprefix('op '):44} {len(places):4}  {', '.join(shown)}{more}")
    print()
