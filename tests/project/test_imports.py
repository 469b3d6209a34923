"""Imports point one way, and `import gluonjit` stays cheap."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

# Which other parts a part may import, wherever the import stands.
MAY_IMPORT = {
    "ir": set(),
    "passes": {"ir"},
    "codegen": {"ir"},
    "runtime": {"ir", "passes", "codegen"},
    "frontend": {"ir", "passes", "codegen", "runtime"},
}
# Each costs more to import than all of gluonjit: only inside the functions that use them.
LATE = {"llvmlite", "networkx"}
EARLY = {"numpy", "ml_dtypes"}
ANYWHERE = {"platformdirs"}
# Optional: imported where they are used, with an error that says how to get them.
EXTRAS = {"PIL", "graphviz", "safetensors"}


class Import(NamedTuple):
    name: str  # dotted; for `from a import b`, a.b
    line: int
    early: bool  # runs when the module is imported


def imports(tree: ast.AST) -> Iterator[Import]:
    """Every import below `tree`; those for the type checker alone count as late."""

    def visit(node: ast.AST, early: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, early)
        elif isinstance(node, ast.ImportFrom):
            # ruff's TID251 has relative imports rejected; an empty name would be one.
            for alias in node.names:
                yield Import(f"{node.module or ''}.{alias.name}", node.lineno, early)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, False)
            for child in node.orelse:
                yield from visit(child, early)
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, early and not function)

    return visit(tree, True)


def complaint(part: str, found: Import) -> str | None:
    """Why a file of `part` must not hold this import."""
    top, _, rest = found.name.partition(".")
    if top == "gluonjit":
        first = rest.partition(".")[0]
        other = first if first in MAY_IMPORT else "frontend"
        if other != part and other not in MAY_IMPORT[part] and first != "_version":
            return f"{part} must not import {found.name}"
    elif top in LATE | EXTRAS:
        if found.early:
            return f"import {top} inside the function that uses it"
    elif top in sys.stdlib_module_names or top in EARLY:
        pass
    elif top in ANYWHERE:
        if part == "ir" and found.early:
            return f"ir must not import {top}"
    else:
        return f"{found.name or 'a relative import'} is neither a dependency nor written in full"
    return None


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_direction(part: str, root: Path):
    wrong = []
    for path in sorted((root / part).rglob("*.py")):
        for found in imports(ast.parse(path.read_text(), str(path))):
            if why := complaint(part, found):
                wrong.append(f"{path.relative_to(root)}:{found.line}: {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("part", "source", "right"),
    [
        ("ir", "import numpy as np, ml_dtypes, re", True),
        ("ir", "from gluonjit.ir.types import Type", True),
        ("ir", "from gluonjit import passes", False),
        ("ir", "def f():\n    import gluonjit.gluon", False),
        ("ir", "import platformdirs", False),
        ("passes", "def f():\n    import networkx", True),
        ("passes", "class A:\n    import networkx", False),
        ("passes", "try:\n    import networkx\nexcept ImportError:\n    pass", False),
        ("passes", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import networkx", True),
        ("passes", "from gluonjit.codegen import target", False),
        ("runtime", "from gluonjit import codegen\nfrom gluonjit._version import version", True),
        ("runtime", "from gluonjit.ndarray import NDArray", False),
        ("runtime", "import gluonjit", False),
        ("frontend", "from gluonjit.runtime import cache\nfrom gluonjit.ir import graph", True),
        ("frontend", "import ir", False),
        ("frontend", "from . import symbol", False),
    ],
)
def test_the_rule_itself(part: str, source: str, right: bool):
    wrong = [why for found in imports(ast.parse(source)) if (why := complaint(part, found))]
    assert (not wrong) == right, wrong


def loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_gluonjit_is_cheap():
    assert loaded_by("gluonjit").isdisjoint(LATE)


def test_importing_the_ir_does_not_import_the_frontend():
    """`gluonjit` itself is imported on the way, as the parent, and has to be lazy for this."""
    ours = {name for name in loaded_by("gluonjit.ir") if name.partition(".")[0] == "gluonjit"}
    others = {name for name in ours if not name.startswith("gluonjit.ir")}
    assert others <= {"gluonjit", "gluonjit._version"}


def test_a_warm_start_loads_neither_passes_nor_code_generation():
    """What the object cache holds is to be run without what made it."""
    ours = loaded_by("gluonjit.runtime.compiler")
    assert {"gluonjit.codegen.program", "gluonjit.passes", "llvmlite"}.isdisjoint(ours)


INSIDE_FUNCTIONS = {
    "gluonjit.runtime.compiler": {"gluonjit.runtime.build"},
    "gluonjit.runtime": {"gluonjit.runtime.features"},
}
"""Imports of the compiler's own modules inside functions, by the module that has them: each keeps a start cheap."""


@pytest.mark.parametrize("part", sorted(set(MAY_IMPORT) - {"frontend"}))
def test_the_compiler_hides_no_imports(part: str, root: Path):
    for path in (root / part).rglob("*.py"):
        module = ".".join(["gluonjit", *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
        tree = ast.parse(path.read_text(), str(path))
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        hidden = {found.name for f in functions for found in imports(f) if found.name.startswith("gluonjit.")}
        assert hidden == INSIDE_FUNCTIONS.get(module, set()), module
