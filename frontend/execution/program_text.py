"""What can be seen in the text of `hybrid_forward`: effects that happen only when it is traced, and values that a trace
keeps without anybody noticing."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

CHANGES = {"append", "extend", "insert", "add", "update", "pop", "popitem", "remove", "discard", "clear", "setdefault"}
"""Methods that change a list, a dict or a set."""
CLOCKS = {"time.time", "time.perf_counter", "time.monotonic", "datetime.now", "datetime.datetime.now"}
OUTSIDE = {"open", "input", "os.getenv", "os.environ.get"}
"""Calls that may answer something else the next time."""


_FUNCTIONS = (ast.FunctionDef, ast.Lambda)


class Finding(NamedTuple):
    rule: str
    severity: str
    message: str
    remedy: str
    place: tuple[str, int, int, int]
    """File, line, column, end column; all but the file count from 1."""


def findings(cls: Any, block: Any) -> Iterator[Finding]:
    """What is found in the text of a class of blocks, outside of this package; `block` is one of its blocks."""
    if cls.__module__.partition(".")[0] == "gluonjit":
        return
    function = cls.hybrid_forward
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or ""
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # typed at a prompt, or made by other means
        return
    indent = len(lines[0]) - len(lines[0].lstrip())
    rebound = _rebound_globals(function)
    self_name = next(
        (a.arg for f in ast.walk(tree) if isinstance(f, _FUNCTIONS) for a in [*f.args.posonlyargs, *f.args.args]),
        "self",
    )
    for node in ast.walk(tree):
        found = _finding(node, block, self_name, rebound)
        if found is not None:
            begin = node.col_offset + indent + 1  # type: ignore[attr-defined]
            one_line = node.end_lineno == node.lineno  # type: ignore[attr-defined]
            end = node.end_col_offset + indent + 1 if one_line else 0  # type: ignore[attr-defined]
            yield Finding(*found, (file, first + node.lineno - 1, begin, end))  # type: ignore[attr-defined]


def _finding(node: ast.AST, block: Any, self_name: str, rebound: set[str]) -> tuple[str, str, str, str] | None:
    """(rule, severity, message, remedy)"""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called == "print":
            return (
                "runs-once",
                "note",
                "print() prints when the block is traced, not in every call",
                "net.register_op_hook",
            )
        if called in CLOCKS:
            return "frozen", "warning", f"{called}() is read once, when the block is traced", "pass it as an argument"
        if called in OUTSIDE:
            return "frozen", "warning", f"{called}() is called once, when the block is traced", "call it outside"
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if owner is not None and node.func.attr in CHANGES and _is_container(owner, block, self_name):  # type: ignore[attr-defined]
            return (
                "frozen",
                "warning",
                f"{ast.unparse(owner)} changes when the block is traced, not in every call",
                "return the value, or keep it outside of hybrid_forward",
            )
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and _is_container(node.value, block, self_name)
    ):
        return (
            "frozen",
            "warning",
            f"{ast.unparse(node.value)} changes when the block is traced, not in every call",
            "return the value, or keep it outside of hybrid_forward",
        )
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in rebound:
        return (
            "frozen",
            "warning",
            f"the global variable {node.id} is read when the block is traced, and set elsewhere: later calls keep the "
            "value",
            "an attribute of the block, whose changes are noticed, or an argument",
        )
    return None


def _is_container(node: ast.AST, block: Any, self_name: str) -> bool:
    """Whether it is an attribute of the block, `self.name`, that is a list, a dict or a set."""
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self_name):
        return False
    return isinstance(getattr(block, node.attr, None), (list, dict, set))


def _rebound_globals(function: Any) -> set[str]:
    """Global variables that some function of the module sets."""
    try:
        tree = ast.parse(inspect.getsource(inspect.getmodule(function) or function))
    except (OSError, TypeError, SyntaxError):
        try:
            with open(inspect.getsourcefile(function) or "", encoding="utf-8") as f:
                tree = ast.parse(f.read())
        except (OSError, TypeError, SyntaxError, UnicodeDecodeError):
            return set()
    return {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
