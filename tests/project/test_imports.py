"""Imports point one way, and `import gluonjit` stays cheap."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest

# Which other parts a part may import, wherever the import stands.
MAY_IMPORT = {
    "ir": set(),
    "passes": {"ir"},
    "codegen": {"ir"},
    "runtime": {"ir", "passes", "codegen"},
    "frontend": {"ir", "passes", "codegen", "runtime"},
}
COMMON = ("_version", "common")
"""What all parts may import, though it is in the folder frontend/, as it is neither `ir` nor of one of the others."""
FRONTEND = (
    "common",
    "language.mxnet_names",
    "_version _tracebacks attribute base engine libinfo log lr_scheduler name registry util",
    "context deployed",
    "files",
    "language",
    "operators",
    "ndarray",
    "symbol",
    "codes trace",
    "autodiff",
    "execution numpy",
    "c_library",
    "training",
    "distributed",
    "data initializer lr_scheduler metric model optimizer",
    "image profiling",
    "autograd callback io kvstore monitor numpy_extension operator profiler random recordio visualization",
    "executor_manager gluon rnn",
    "horovod",
    "module notebook test_utils",
    "onnx",
    "contrib",
    "tools",
    "__init__ __main__",
)
"""The packages and modules of frontend/, lowest first: each may import those in the rows above its own."""
RANK = {name: k for k, row in enumerate(FRONTEND) for name in row.split()}

ROOMS = {"text": (), "math": ("text",), "loops": ("text", "math"), "threads": ("text",)}
ROOMS["kernels"] = (*ROOMS,)
"""The folders of codegen/, and which others each may use; the files beside them may use all."""
LEAVES = ("interface", "target")
"""Files beside them that every room may use."""

# Each costs more to import than all of gluonjit: only inside the functions that use them.
LATE = {"llvmlite", "networkx"}
EARLY = {"numpy", "ml_dtypes"}
ANYWHERE = {"platformdirs"}
# Optional: imported where they are used, with an error that says how to get them.
EXTRAS = {
    "PIL",
    "bokeh",
    "cv2",
    "dask",
    "graphviz",
    "igraph",
    "mpi4py",
    "mxboard",
    "onnx",
    "pandas",
    "pyarrow",
    "ray",
    "safetensors",
    "tqdm",
    "scipy",
}

SERVER = {
    "starlette",
    "uvicorn",
    "httptools",
    "prometheus_client",
    "grpc",
    "google",
    "mlserver",
    "triton_python_backend_utils",
}
"""What `gluonjit serve` and its adapters need: the modules of tools/serving that import it are themselves imported by
the command, or by MLServer and Triton."""


OF_OTHERS = {"pytest": "frontend/tools/pytest_plugin.py", "pygments": "ir/highlight.py"}
"""Modules that a program which has the package imports, as a plug-in."""

CHECKED = {"typing_extensions"}
"""Modules that the type checker alone reads, and has itself."""


class Import(NamedTuple):
    name: str  # dotted; for `from a import b`, a.b
    line: int
    early: bool  # runs when the module is imported
    inside: bool  # of a function
    checked: bool  # is not for the type checker alone


def imports(tree: ast.AST) -> Iterator[Import]:
    """Every import below `tree`; those for the type checker alone count as late. Expressions hold none."""

    def visit(node: ast.AST, inside: bool, checked: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            # ruff's TID251 has relative imports rejected; an empty name would be one.
            within = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                yield Import(within + alias.name, node.lineno, checked and not inside, inside, checked)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, inside, False)
            for child in node.orelse:
                yield from visit(child, inside, checked)
        else:
            inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, ast.expr):
                    yield from visit(child, inside, checked)

    return visit(tree, False, True)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@functools.cache
def imports_of(path: Path) -> list[Import]:
    return list(imports(parsed(path)))


def complaint(part: str, found: Import, where: str = "") -> str | None:
    """Why a file of `part`, at the path `where`, must not hold this import."""
    top, _, rest = found.name.partition(".")
    if top in OF_OTHERS and (where == OF_OTHERS[top] or not found.early):
        pass
    elif top == "gluonjit":
        first = rest.partition(".")[0]
        other = first if first in MAY_IMPORT else "frontend"
        if other != part and other not in MAY_IMPORT[part] and first not in COMMON:
            return f"{part} must not import {found.name}"
    elif top in LATE | EXTRAS:
        if found.early:
            return f"import {top} inside the function that uses it"
    elif top in SERVER and where.startswith("frontend/tools/serving/"):
        pass
    elif top in sys.stdlib_module_names or top in EARLY or top in CHECKED and not found.early:
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
        for found in imports_of(path):
            if why := complaint(part, found, path.relative_to(root).as_posix()):
                wrong.append(f"{path.relative_to(root)}:{found.line}: {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("part", "source", "right"),
    [
        ("ir", "import numpy as np, ml_dtypes, re", True),
        ("ir", "from gluonjit.ir.types import Type", True),
        ("ir", "from gluonjit.common.signals import is_from_signal", True),
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


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_codegen(room: str, root: Path):
    allowed = {room, *ROOMS[room], *LEAVES}
    for path in sorted((root / "codegen" / room).glob("*.py")):
        for found in imports_of(path):
            if found.early and found.name.startswith("gluonjit.codegen."):
                assert found.name.split(".")[2] in allowed, f"{path.relative_to(root)}:{found.line}: {found.name}"


def loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_gluonjit_is_cheap():
    assert loaded_by("gluonjit").isdisjoint(LATE)


@pytest.mark.parametrize("module", ["gluonjit.ndarray", "gluonjit.gluon"])
def test_importing_layers_imports_no_library_that_few_programs_need(module: str):
    """Each of these takes milliseconds, so the functions that need it import it. NumPy may import some of them. Large
    packages of Gluon come when they are used."""
    rare = {"concurrent.futures", "difflib", "hashlib", "importlib.resources", "json", "logging", "multiprocessing"}
    rare |= {"gzip", "secrets", "tarfile", "tempfile", "traceback", "zipfile"}
    rare |= {f"gluonjit.gluon.{package}" for package in ("contrib", "data", "model_zoo")}
    assert not (loaded_by(module) - loaded_by("numpy")) & rare


def test_importing_modules_compiles_nothing():
    ours = loaded_by("gluonjit.module")
    assert {"gluonjit.passes.manager", "gluonjit.codegen", "gluonjit.runtime.executable"}.isdisjoint(ours)


def test_importing_the_ir_does_not_import_the_frontend():
    """`gluonjit` itself is imported on the way, as the parent, and has to be lazy for this."""
    ours = {name for name in loaded_by("gluonjit.ir") if name.partition(".")[0] == "gluonjit"}
    others = {name for name in ours if not name.startswith(("gluonjit.ir", "gluonjit.common"))}
    assert others <= {"gluonjit", "gluonjit._version", "gluonjit._tracebacks"}


def test_a_warm_start_loads_neither_passes_nor_code_generation():
    """What the object cache holds is to be run without what made it."""
    ours = loaded_by("gluonjit.runtime.compiler")
    made_it = {"gluonjit.codegen.program", "gluonjit.passes.manager", "llvmlite"}
    made_it |= {"gluonjit.codegen.kernels", "gluonjit.ir.kernels.op_plans", "gluonjit.ir.text"}
    assert made_it.isdisjoint(ours)
    made_it |= {"difflib", "gluonjit.ir.verify", "gluonjit.passes.layout", "gluonjit.passes.partition"}
    assert made_it.isdisjoint(loaded_by("gluonjit.autograd"))


INSIDE_FUNCTIONS = {
    "gluonjit.runtime.compiler": {"gluonjit.runtime.build"},
    "gluonjit.runtime": {"gluonjit.runtime.features"},
    "gluonjit.passes": {"gluonjit.passes.manager"},
    # A package that costs nothing until it is used (PEP 562), so that `import gluonjit.ir` is of the IR alone.
    "gluonjit": {
        "gluonjit.language.mxnet_names.no_attribute",
        "gluonjit.language.mxnet_names.check_import",
        "gluonjit.runtime.collector.without_collector",
    },
    # A program that hybridizes nothing needs no compiler.
    "gluonjit.execution.backends": {
        "gluonjit.runtime.compiler.compile_graph",
        "gluonjit.runtime.compiler.get_ready",
        "gluonjit.runtime.compiler.gradient_key",
        "gluonjit.runtime.compiler.kept_code",
        "gluonjit.passes.pipelines.gradient_pipeline",
        "gluonjit.passes.pipelines.pipeline",
    },
    "gluonjit.gluon.block": {"gluonjit.execution.cached_call.CachedCall"},
    "gluonjit.profiling.recording": {"gluonjit.profiling.collecting"},
    # Few programs print graphs, for which `json` and five regular expressions are needed, or show them in notebooks.
    "gluonjit.ir.graph": {
        "gluonjit.ir.pictures.as_html",
        "gluonjit.ir.pictures.svg",
        "gluonjit.ir.printer.print_graph",
    },
    "gluonjit.ir.pictures": {"gluonjit.ir.highlight.as_html"},
    "gluonjit.runtime.graph_log": {"gluonjit.ir.text.save"},
    "gluonjit.gluon.base_block": {"gluonjit.gluon.notebook.of_block"},
    "gluonjit.gluon.parameter": {"gluonjit.gluon.notebook.of_parameters"},
    "gluonjit.gluon.parameter_dict": {"gluonjit.gluon.notebook.of_parameters"},
    # Few programs read `.npz`; `zipfile`, with what it imports, takes as long as a tenth of the operators.
    "gluonjit.files.formats": {"gluonjit.files.npz"},
    # Few programs run in several processes, for which sockets, hashes and `json` are needed.
    "gluonjit.kvstore": {"gluonjit.distributed.early_sums.EarlySums", "gluonjit.distributed.processes.processes"},
    # A library needs neither Gluon nor the compiler.
    "gluonjit.tools.serving.server": {"gluonjit.tools.serving.grpc_server.GrpcServer"},
    "gluonjit.tools.serving.predictor": {
        "gluonjit.symbol.json_reader.summary",
        "gluonjit.tools.serving.block_model.open_block",
    },
}
"""Imports of our own modules inside functions, by the module that has them: each keeps a start cheap."""
LAZY = ("gluonjit.tools.cli", "gluonjit.tools.pytest_plugin")
"""Each command imports what it needs when it runs, and so does pytest, everywhere, for files of cases."""


class Module(NamedTuple):
    name: str  # gluonjit.gluon.block
    path: Path


@pytest.fixture(scope="module")
def modules(root: Path) -> list[Module]:
    """Every module of gluonjit."""
    found = []
    for part in MAY_IMPORT:
        for path in sorted((root / part).rglob("*.py")):
            dotted = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            name = f"gluonjit.{dotted}" if part != "frontend" else f"gluonjit{dotted.removeprefix('frontend')}"
            found.append(Module(name, path))
    return found


def checked_imports(path: Path) -> list[Import]:
    """All imports but those for the type checker."""
    return [found for found in imports_of(path) if found.checked]


def place(name: str) -> str:
    """The part of the frontend in which a module is. Modules of all layers say with `mxnet_names` what they lack."""
    parts = name.split(".")[1:]
    return "language.mxnet_names" if parts[:2] == ["language", "mxnet_names"] else (parts + ["__init__"])[0]


def upwards(module: str, imported: str) -> bool:
    """Whether a module of the frontend must not import this: it is no lower than its own part."""
    here, there = place(module), place(imported)
    return here != there and there not in MAY_IMPORT and RANK.get(there, RANK["__init__"]) >= RANK[here]


def test_the_frontends_layers(modules: list[Module], root: Path):
    """Imports point down only, also those inside of functions."""
    ours = [m for m in modules if m.path.is_relative_to(root / "frontend")]
    parts = {place(m.name) for m in ours}
    assert parts == set(RANK), "a new part needs a place in FRONTEND, one that is gone must leave it"
    wrong = [
        f"{m.path.relative_to(root)}:{found.line}: {place(m.name)} must not import {found.name}"
        for m in ours
        for found in checked_imports(m.path)
        if found.name.startswith("gluonjit") and upwards(m.name, found.name)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "imported", "wrong"),
    [
        ("gluonjit.trace.recorder", "gluonjit.gluon.block.Block", True),
        ("gluonjit.trace.recorder", "gluonjit.symbol.symbol.Symbol", False),
        ("gluonjit.ndarray.ndarray", "gluonjit.symbol", True),
        ("gluonjit.symbol.lower", "gluonjit.ir.graph.Graph", False),
        ("gluonjit.files.params", "gluonjit.ndarray.NDArray", True),
        ("gluonjit.base", "gluonjit", True),
        ("gluonjit.gluon.nn", "gluonjit.gluon.block.HybridBlock", False),
    ],
)
def test_the_layers_themselves(module: str, imported: str, wrong: bool):
    assert upwards(module, imported) == wrong


def test_no_imports_hide_in_functions(modules: list[Module]):
    for module in modules:
        found = [f for f in checked_imports(module.path) if f.inside and f.name.startswith("gluonjit")]
        if not module.name.startswith(LAZY):
            assert {f.name for f in found} == INSIDE_FUNCTIONS.get(module.name, set()), module.name


def test_only_one_module_imports_by_name(modules: list[Module], root: Path):
    """`language.late` says what a higher layer does for a lower one; no other module finds a way around the order."""
    by_name = {
        m.name
        for m in modules
        if m.path.is_relative_to(root / "frontend")
        and "import_module" in m.path.read_text()
        and any(
            "import_module" in (n.id if isinstance(n, ast.Name) else n.attr)
            for n in ast.walk(parsed(m.path))
            if isinstance(n, ast.Name | ast.Attribute)
        )
    }
    facades = {"gluonjit", "gluonjit.operators", "gluonjit.language.mxnet_names"}
    facades.add("gluonjit.common.aside")  # imports what its caller names, on another thread
    assert by_name - facades - {m for m in by_name if m.startswith("gluonjit.tools")} == {"gluonjit.language.late"}


def test_no_circles_of_imports(modules: list[Module]):
    graph = nx.DiGraph()
    names = {m.name for m in modules}
    for module in modules:
        for found in checked_imports(module.path):
            name = found.name
            while name and name not in names:
                name = name.rpartition(".")[0]
            if name and name != module.name:
                graph.add_edge(module.name, name)
    circles = [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert not circles
