"""Finds the names of MXNet that a program uses, by reading its source without running it.

Names are followed from `import mxnet` or `import gluonjit` through aliases (`import mxnet.ndarray as F`, `from
mxnet.gluon import nn`, `relu = mx.nd.relu`). A parameter called `F` is `mx.nd` or `mx.sym`, as in `hybrid_forward(self,
F, x)`; its uses are reported as `F.relu`. Attributes of `self` that are set to them (`self.mx = mx`) are followed in
their class, and `getattr(np, name)` in a loop over names that the file lists, or another one of the program that it
imports. Methods of arrays (`x.asnumpy()`) are not found, as types are only known when a program runs; attributes with
an underscore that MXNet's classes have, and no class of the file defines, are reported as `x._grad`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gluonjit.language import mxnet_names

_ROOT = "mxnet"
_ROOTS = (_ROOT, "gluonjit")
"""The packages that have MXNet's names; those of either are noted as `_ROOT`'s."""


_SELF = "self"
"""What `self` refers to in a method; no name of MXNet's."""


class Use(NamedTuple):
    """`name` without the leading `mxnet.`: `gluon.nn.Dense`, `F.contrib.box_nms`; `x._grad` of any object."""

    name: str
    line: int


def in_python(source: str, file: str, unknown: list[Use] | None = None) -> list[Use]:
    """The uses in a program, in the order of its lines. Raises SyntaxError.

    `unknown` gets the modules in which it looks up names that only a run tells: `nd` for `getattr(mx.nd, x)`.
    """
    reader = _Reader(Path(file))
    tree = ast.parse(source, file)
    reader.visit(tree)
    if unknown is not None:
        unknown += sorted(set(reader.unknown), key=lambda use: (use.line, use.name))
    if reader.uses:
        reader.uses += _private(tree)
    return sorted(set(reader.uses), key=lambda use: (use.line, use.name))


def in_symbol(text: str) -> list[Use] | None:
    """The operators in a `-symbol.json`, as `sym.<operator>`; None if the text is not a graph."""
    try:
        nodes = json.loads(text, strict=False)["nodes"]
        names = [node["op"] for node in nodes]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    lines = _op_lines(text)
    if len(lines) != len(names):  # an "op" that is not a node's: in an attribute or a subgraph
        lines = [1] * len(names)
    return [Use(name, line) for name, line in zip(names, lines) if name != "null"]


def _op_lines(text: str) -> list[int]:
    lines = []
    line, position = 1, 0
    for match in re.finditer(r'"op"\s*:', text):
        line += text.count("\n", position, match.start())
        position = match.start()
        lines.append(line)
    return lines


def _private(tree: ast.AST) -> Iterable[Use]:
    """The attributes with an underscore that objects of MXNet's classes have, and the program's own do not define."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    own = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in attributes:
        if node.attr not in own and node.attr in mxnet_names.private_attributes():
            yield Use(f"x.{node.attr}", node.lineno)


@cache
def _lists(file: Path) -> dict[str, list[str]]:
    """The strings that are listed in a file's variables; none for a file that cannot be read."""
    reader = _Reader(None)
    try:
        reader.visit(ast.parse(file.read_text(encoding="utf-8-sig"), str(file)))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return {name: words for name, words in reader.words.items() if words}


def _module_file(file: Path, module: str, level: int) -> Path | None:
    """The program's own file that `file` imports as `module`: from its folder or one above, or `level` folders up."""
    steps = [part for part in module.split(".") if part]
    above = list(file.absolute().parents)
    for folder in above[level - 1 : level] if level else above[:_MOST_ABOVE]:
        for found in (
            folder.joinpath(*steps).with_suffix(".py") if steps else None,
            folder.joinpath(*steps, "__init__.py"),
        ):
            if found is not None and found.is_file():
                return found
    return None


_MOST_ABOVE = 4


class _Reader(ast.NodeVisitor):
    """Visits a program in the order of its text. A scope maps names to dotted MXNet names, or to None."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        """None: what it imports is not read."""
        self.uses: list[Use] = []
        self.unknown: list[Use] = []
        self.scopes: list[dict[str, str | None]] = [{}]
        self.starred: set[str] = set()
        """The dotted names that `from mxnet.gluon.nn import *` has imported; reading one counts as a use."""
        self.members: list[dict[str, str | None]] = []
        """What the attributes of `self` refer to, of the classes around."""
        self.words: dict[str, list[str]] = {}
        """The strings that a variable may be, or has in a list."""

    def meaning(self, node: ast.AST) -> str | None:
        """The dotted name that an expression refers to, `mxnet.nd.relu` or `F.relu`; None for others."""
        if isinstance(node, ast.Name):
            for scope in reversed(self.scopes):
                if node.id in scope:
                    return None if scope[node.id] == _SELF else scope[node.id]
            return None
        if isinstance(node, ast.Attribute):
            if self.is_self(node.value):
                return self.members[-1].get(node.attr)
            base = self.meaning(node.value)
            return None if base is None else f"{base}.{node.attr}"
        if isinstance(node, ast.IfExp):
            both = {self.meaning(node.body), self.meaning(node.orelse)}
            namespaces = {f"{_ROOT}.{name}" for name in ("nd", "sym", "ndarray", "symbol")}
            return "F" if None not in both and both <= namespaces else None
        return None

    def strings(self, node: ast.AST) -> list[str]:
        """The strings that an expression is known to be, or to have in a list."""
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [word for part in node.elts for word in self.strings(part)]
        if isinstance(node, ast.Dict):
            return [word for part in node.keys if part is not None for word in self.strings(part)]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self.words.get(f"{node.value.id}.{node.attr}", [])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.strings(node.left) + self.strings(node.right)
        return self.words.get(node.id, []) if isinstance(node, ast.Name) else []

    def is_self(self, node: ast.AST) -> bool:
        """Whether an expression is the object that a method belongs to."""
        found = (scope[node.id] for scope in reversed(self.scopes) if isinstance(node, ast.Name) and node.id in scope)
        return next(found, None) == _SELF

    def use(self, name: str, node: ast.AST) -> None:
        self.uses.append(Use(name.removeprefix(f"{_ROOT}."), node.lineno))  # type: ignore[attr-defined]

    # Bindings

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root, dot, rest = alias.name.partition(".")
            if root not in _ROOTS:
                self.scopes[-1][alias.asname or root] = None
                for name, words in self.listed(alias.name, 0).items():
                    self.words[f"{alias.asname or alias.name}.{name}"] = words
                continue
            if dot:
                self.use(rest, node)
            self.scopes[-1][alias.asname or root] = f"{_ROOT}{dot}{rest}" if alias.asname else _ROOT

    def listed(self, module: str, level: int) -> dict[str, list[str]]:
        """The strings listed in a module of the program itself."""
        found = _module_file(self.file, module, level) if self.file is not None else None
        return _lists(found) if found is not None else {}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        root, dot, rest = module.partition(".")
        ours = not node.level and root in _ROOTS
        if ours:
            module = f"{_ROOT}{dot}{rest}"
        listed = {} if ours else self.listed(module, node.level)
        for alias in node.names:
            if not ours and alias.name == "*":
                self.words.update(listed)
            elif alias.name in listed:
                self.words[alias.asname or alias.name] = listed[alias.name]
            if alias.name == "*":
                if ours:
                    inside = module.partition(".")[2]
                    for name in mxnet_names.modules().get(mxnet_names.full_name(inside) or ".", ()):
                        self.scopes[-1][name] = f"{module}.{name}"
                        self.starred.add(f"{module}.{name}")
                continue
            if ours:
                self.use(f"{module}.{alias.name}", node)
            self.scopes[-1][alias.asname or alias.name] = f"{module}.{alias.name}" if ours else None

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        meaning, words = self.meaning(node.value), self.strings(node.value)
        for target in node.targets:
            self.bind(target, meaning)
            if isinstance(target, ast.Name):
                self.words[target.id] = words

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.bind(node.target, self.meaning(node.value))

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.bind(node.target, None)
        if isinstance(node.target, ast.Name):
            self.words[node.target.id] = self.strings(node.iter)
        for part in (*node.body, *node.orelse):
            self.visit(part)

    def comprehension(self, node: Any) -> None:
        for part in node.generators:
            self.visit(part.iter)
            self.bind(part.target, None)
            if isinstance(part.target, ast.Name):
                self.words[part.target.id] = self.strings(part.iter)
            for condition in part.ifs:
                self.visit(condition)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = comprehension

    def bind(self, target: ast.AST, meaning: str | None) -> None:
        if isinstance(target, ast.Name):
            self.scopes[-1][target.id] = meaning
            self.words[target.id] = []
        elif isinstance(target, ast.Attribute) and self.is_self(target.value):
            self.members[-1][target.attr] = meaning
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.bind(part, None)
        else:
            self.visit(target)

    # Scopes

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, *([node.returns] if node.returns else [])):
            self.visit(part)
        self.function(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.function(node)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.visit(node.args)  # defaults and annotations
        a = node.args
        parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
        known = {"F": "F", **({"self": _SELF} if self.members else {})}
        self.scopes.append({p.arg: known.get(p.arg) for p in parameters})
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.scopes.append({})
        for part in node.body:
            if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.visit(part)
        self.scopes.pop()
        methods = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
        self.members.append({})
        found = len(self.uses)
        for _ in range(2):  # the first time for the attributes that methods set
            del self.uses[found:]
            for part in methods:  # they do not see the class's names
                self.visit(part)
        self.members.pop()

    # Uses

    def visit_Name(self, node: ast.Name) -> None:
        meaning = self.meaning(node)
        if meaning in self.starred:
            self.use(meaning, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        meaning = self.meaning(node)
        if meaning is None:
            self.generic_visit(node)
        else:
            self.use(meaning, node)

    def visit_Call(self, node: ast.Call) -> None:
        """`getattr(F, 'relu')` is a use, too."""
        named = isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) == 2
        base = self.meaning(node.args[0]) if named else None
        if base is not None:
            words = self.strings(node.args[1])
            for word in words:
                self.use(f"{base}.{word}", node)
            if not words:
                self.unknown.append(Use(base.removeprefix(f"{_ROOT}."), node.lineno))
        self.generic_visit(node)
