"""Pages of the modules that programs use: each public class and function, by the name under which it is used."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from types import ModuleType
from typing import Any

from docstrings import markdown
from pages import contents, directive, links_to, page

from gluonjit.language import mxnet_names
from gluonjit.operators.registry import OPERATORS

GROUPS = {
    "Models": {
        "gluon": "mx.gluon",
        "gluon.nn": "mx.gluon.nn",
        "gluon.rnn": "mx.gluon.rnn",
        "gluon.loss": "mx.gluon.loss",
        "gluon.data": "mx.gluon.data",
        "gluon.data.vision": "mx.gluon.data.vision",
        "gluon.data.vision.transforms": "mx.gluon.data.vision.transforms",
        "gluon.model_zoo.vision": "mx.gluon.model_zoo.vision",
        "gluon.utils": "mx.gluon.utils",
        "gluon.contrib.nn": "mx.gluon.contrib.nn",
        "gluon.contrib.rnn": "mx.gluon.contrib.rnn",
        "gluon.contrib.cnn": "mx.gluon.contrib.cnn",
        "gluon.contrib.data": "mx.gluon.contrib.data",
        "gluon.contrib.estimator": "mx.gluon.contrib.estimator",
    },
    "Arrays and graphs": {
        "ndarray": "mx.nd",
        "symbol": "mx.sym",
        "numpy": "mx.np",
        "numpy_extension": "mx.npx",
        "random": "mx.random",
        "autograd": "mx.autograd",
        "operator": "mx.operator",
        "execution.executor": "mx.executor",
    },
    "Training": {
        "optimizer": "mx.optimizer",
        "lr_scheduler": "mx.lr_scheduler",
        "metric": "mx.metric",
        "initializer": "mx.init",
        "kvstore": "mx.kv",
        "callback": "mx.callback",
        "monitor": "mx.mon",
        "module": "mx.mod",
        "model": "mx.model",
        "rnn": "mx.rnn",
        "contrib.amp": "mx.contrib.amp",
        "horovod.mxnet": "gluonjit.horovod.mxnet",
    },
    "Data and files": {
        "io": "mx.io",
        "image": "mx.image",
        "recordio": "mx.recordio",
        "contrib.text.vocab": "mx.contrib.text.vocab",
        "contrib.text.embedding": "mx.contrib.text.embedding",
        "contrib.text.utils": "mx.contrib.text.utils",
        "onnx": "mx.onnx",
    },
    "Looking inside": {
        "profiler": "mx.profiler",
        "profiling": "gluonjit.profiling",
        "profiling.exports": "gluonjit.profiling.exports",
        "execution.inspecting": "gluonjit.execution.inspecting",
        "codes.compile_log": "gluonjit.codes.compile_log",
        "execution.checking": "gluonjit.execution.checking",
        "visualization": "mx.viz",
        "test_utils": "mx.test_utils",
    },
    "Settings": {
        "context": "mx.context",
        "util": "mx.util",
        "engine": "mx.engine",
        "name": "mx.name",
        "attribute": "mx.attribute",
    },
    "The compiler": {
        "ir.graph": "gluonjit.ir.graph",
        "ir.types": "gluonjit.ir.types",
        "ir.dims": "gluonjit.ir.dims",
        "ir.text": "gluonjit.ir.text",
        "ir.verify": "gluonjit.ir.verify",
        "ir.opdef": "gluonjit.ir.opdef",
        "ir.machine": "gluonjit.ir.machine",
        "passes": "gluonjit.passes",
        "passes.simplifier": "gluonjit.passes.simplifier",
        "codegen.target": "gluonjit.codegen.target",
        "runtime.compiler": "gluonjit.runtime.compiler",
        "operators.registry": "gluonjit.operators.registry",
        "operators.attributes": "gluonjit.operators.attributes",
        "tools.golden": "gluonjit.tools.golden",
    },
}
"""The modules, and the names under which programs reach them."""


def modules() -> dict[str, str]:
    """A page for each module, one for what `gluonjit` itself has, and a list of them."""
    import gluonjit

    seen: set[int] = set()
    pages: dict[str, str] = {}
    text = [
        "# Python API",
        "`mx` stands for gluonjit: `import gluonjit as mx`. Operators have [pages of their own](operators.md).",
    ]
    top = {name: getattr(gluonjit, name) for name in gluonjit._OBJECTS}
    rows = ["| [`mx`](api/mx.md) | What `gluonjit` itself has. |"]
    pages["api/mx.md"] = page(["# mx", *described("mx", top, seen)])
    for group, members in GROUPS.items():
        rows.append(f"| **{group}** | |")
        for name, path in members.items():
            module = importlib.import_module(f"gluonjit.{name}")
            summary, _, about = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
            found = described(path, public(module), seen)
            if not found:
                raise SystemExit(f"{name} has nothing that is documented")
            pages[f"api/{path}.md"] = page([f"# {path}", markdown(summary), markdown(about), *found])
            rows.append(f"| [`{path}`](api/{path}.md) | {markdown(summary).replace(chr(10), ' ')} |")
    text += ["| module | |\n|---|---|\n" + "\n".join(rows), contents(name.removesuffix(".md") for name in pages)]
    return {"api.md": page(text), **pages}


def public(module: ModuleType) -> dict[str, Any]:
    """The classes and functions of a module that are for others: not the operators, not what it only imports."""
    listed = module.__dict__.get("__all__")
    name = module.__name__.partition(".")[2]
    out = {}
    for key in listed or dir(module):
        value = getattr(module, key)
        own = getattr(value, "__module__", "")
        if (
            key.startswith("_")
            or not (inspect.isclass(value) or inspect.isroutine(value))
            or not own.startswith("gluonjit.")
        ):
            continue
        if (
            name in ("ndarray", "symbol")
            and key in OPERATORS
            or name == "numpy_extension"
            and own == "gluonjit.ndarray"
        ):
            continue
        if listed is None and own != module.__name__ and not mxnet_names.has(f"{name}.{key}"):
            continue
        out[key] = value
    return out


def described(path: str, members: dict[str, Any], seen: set[int]) -> list[str]:
    """Descriptions of the members that have documentation, classes first, below a line with links to them.

    Each object is described once on all pages.
    """
    out, names = [], []
    for key, value in sorted(members.items(), key=lambda member: (not inspect.isclass(member[1]), member[0].lower())):
        if id(value) in seen:
            continue
        seen.add(id(value))
        if inspect.isclass(value):
            out.append(_class(f"{path}.{key}", value))
        elif documentation(value):
            out.append(directive("function", f"{path}.{key}{signature(value)}", documentation(value)))
        else:
            continue
        names.append(key)
    return [links_to(path, names), *out] if out else []


def _class(path: str, cls: type) -> str:
    base = next(base for base in cls.__mro__[1:] if not base.__name__.startswith("_"))
    body = [f"Derived from `{base.__name__}`." if base is not object else "", documentation(cls)]
    notes = attribute_notes(cls)
    for key, value in cls.__dict__.items():
        if key.startswith("_"):
            continue
        plain = inspect.unwrap(value.__func__) if isinstance(value, (staticmethod, classmethod)) else value
        if isinstance(value, property):
            kind, shown, text = "property", key, markdown(inspect.getdoc(value.fget) if value.fget else "")
        elif inspect.isroutine(plain):
            kind, shown, text = (
                "method",
                f"{key}{signature(plain, bound=not isinstance(value, staticmethod))}",
                documentation(plain),
            )
        else:
            kind, shown, text = "attribute", key, notes.pop(key, "")
        if text:
            body.append(directive(kind, shown, text))
    body += [directive("attribute", key, text) for key, text in notes.items() if not key.startswith("_")]
    return directive("class", f"{path}{signature(cls)}", "\n\n".join(part for part in body if part), depth=1)


def attribute_notes(cls: type) -> dict[str, str]:
    """The attributes below which a text stands, in the source of a class."""
    notes = {}
    body = classes_of(cls.__module__).get(cls.__qualname__, [])
    for statement, after in zip(body, body[1:]):
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        else:
            continue
        text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and after.value.value
        if isinstance(target, ast.Name) and isinstance(text, str):
            notes[target.id] = markdown(text)
    return notes


@functools.cache
def classes_of(module: str) -> dict[str, list[ast.stmt]]:
    """The bodies of the classes that a module defines, by qualified name. Programs make others, which are not there."""
    found = {}

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found[inside + child.name] = child.body
                visit(child, f"{inside}{child.name}.")
            elif isinstance(child, (ast.If, ast.Try)):
                visit(child, inside)

    visit(ast.parse(inspect.getsource(sys.modules[module])), "")
    return found


def documentation(value: Any) -> str:
    """Its own docstring, not one that is inherited."""
    text = value.__doc__ if isinstance(value.__doc__, str) else ""
    if inspect.isclass(value) and re.match(rf"{re.escape(value.__name__)}\(.*\)$", text):
        return ""  # what `dataclass` and `NamedTuple` make
    return markdown(text)


def signature(value: Any, bound: bool = False) -> str:
    """The parameters, with annotations as they are written; "()" if Python does not know them."""
    try:
        found = inspect.signature(value)
    except (ValueError, TypeError):
        return "(...)"
    parameters = [_plain(p) for p in list(found.parameters.values())[bound:]]
    result = found.empty if inspect.isclass(value) else _written(found.return_annotation)
    return str(found.replace(parameters=parameters, return_annotation=result))


class _Written:
    """Something that `str(signature)` shows as this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _written(annotation: Any) -> Any:
    if annotation in ("Any", Any):
        return inspect.Signature.empty
    return _Written(annotation) if isinstance(annotation, str) else annotation


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if default is not parameter.empty and re.search(r"<.* at 0x|^<", repr(default)):
        default = _Written(getattr(default, "__name__", "..."))
    return parameter.replace(annotation=_written(parameter.annotation), default=default)
