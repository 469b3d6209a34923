"""Writes the type stubs: what `mx.nd`, `mx.sym`, `mx.np` and `mx` itself contain, most of which is made on first use;
and the methods of emitters, one for each primitive.

    python -m gluonjit.tools.stubs            # writes the .pyi files beside the sources
    python -m gluonjit.tools.stubs --check    # exit status 1 if one of them is out of date

Editors complete `mx.nd.Conv…` from them, and type checkers check a model's calls. An operator's parameters have the
types that its attributes are declared with; `**kwargs`, which its function takes, is left out, so that a misspelt
keyword is an error.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import keyword
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.opdef import REGISTRY, REQUIRED, Primitive
from gluonjit.language.array import METHODS, add_methods
from gluonjit.language.mxnet_names import place_of
from gluonjit.language.namespace import SUBMODULES, input_names
from gluonjit.ndarray import array_arithmetic
from gluonjit.operators.attributes import Attr
from gluonjit.operators.registry import OPERATORS, Operator

HEAD = "# Made by `python -m gluonjit.tools.stubs` from what the package contains.\n"
KINDS = {
    "int": "int",
    "float": "float",
    "boolean": "bool | int",
    "string": "str",
    "dtype": "_DType",
    "Shape(tuple)": "int | Sequence[int]",
    "Shape": "int | Sequence[int]",
    "tuple of <float>": "float | Sequence[float]",
    "tuple of <int or None>": "int | None | Sequence[int | None]",
    "tuple of <Shape(tuple)>": "Sequence[Sequence[int]]",
}
"""The types of attributes, by the kind of their declaration without `or None`. Those with choices take any text, too:
models pass on what they were given."""
_KNOWN = {
    "Any",
    "None",
    "int",
    "float",
    "str",
    "bool",
    "tuple",
    "list",
    "dict",
    "Sequence",
    "Callable",
    "NDArray",
    "Symbol",
}
"""The names that annotations may use in a stub; others are written as Any."""


def stubs() -> dict[str, str]:
    """The text of each stub, by its path in the package."""
    found = {"__init__.pyi": _root()}
    for package, array, home in (("ndarray", "NDArray", "ndarray.ndarray"), ("symbol", "Symbol", "symbol.symbol")):
        start = f"from gluonjit.{home} import {array}\n"
        for place in ("", *SUBMODULES):
            module = importlib.import_module(f"gluonjit.{package}{place and '.'}{place}")
            found[f"{package}/{place or '__init__'}.pyi"] = _module(module, place, array, start)
        found[f"{package}/array_methods.pyi"] = _methods(importlib.import_module(f"gluonjit.{package}"), array, start)
    for path in ("numpy/__init__", "numpy/linalg", "numpy/random", "numpy_extension"):
        name = path.removesuffix("/__init__").replace("/", ".")
        found[f"{path}.pyi"] = _of_numpy(importlib.import_module(f"gluonjit.{name}"))
    found["ir/primitives/methods.pyi"] = _of_emitters()
    return found


def _of_emitters() -> str:
    """A method for each primitive without regions, but for what `Emitter` has otherwise: operands by position,
    attributes by keyword."""
    lines = [HEAD, "from typing import Any\n\nclass Methods:\n"]
    for name, primitive in sorted(REGISTRY.items()):
        if not isinstance(primitive, Primitive) or not primitive.infer_types.__module__.startswith("gluonjit."):
            continue
        if primitive.region_count or keyword.iskeyword(name) or name in vars(Emitter):
            continue
        parameters = inspect.signature(primitive.infer_types).parameters.values()
        operands = [p for p in parameters if p.name not in primitive.attr_defaults]
        texts = [f"*{p.name}: Any" if p.kind is p.VAR_POSITIONAL else f"{p.name}: Any" for p in operands]
        if not any(p.kind is p.VAR_POSITIONAL for p in operands):
            texts += (["/"] if operands else []) + (["*"] if primitive.attr_defaults else [])
        texts += [f"{key}: Any{'' if v is REQUIRED else ' = ...'}" for key, v in primitive.attr_defaults.items()]
        lines.append(f"    def {name}({', '.join(['self', *texts])}) -> Any: ...\n")
    return "".join(lines)


def _of_numpy(module: ModuleType) -> str:
    """The stub of `mx.np`, of a part of it, or of `mx.npx`: functions with their parameters, which take anything that
    NumPy's do, and constants."""
    shown = " as ndarray" if hasattr(module, "ndarray") else ""
    imports, rest = ["from typing import Any\n", f"from gluonjit.numpy.multiarray import ndarray{shown}\n"], []
    for name, value in sorted(vars(module).items()):
        home = getattr(value, "__module__", "")
        if name.startswith("_") or name in ("Any", "TYPE_CHECKING", "annotations", "ndarray"):
            continue
        if isinstance(value, ModuleType):
            if value.__name__ == f"gluonjit.numpy.{name}" and name in _PARTS:
                imports.append(f"from gluonjit.numpy import {name} as {name}\n")
            elif name in _PARTS:
                rest.append(f"{name}: Any\n")
        elif inspect.isfunction(value):
            parameters, returns = _by_signature(value, "ndarray")
            if parameters[:1] and parameters[0].split(":")[0] in ("x", "x1"):  # elementwise
                returns = "ndarray"
            anything = [re.sub(r"(?<=: ).+?(?=$| = )", "Any", p) for p in parameters]
            hidden = returns != "ndarray" and hasattr(module, returns)  # `bool` is NumPy's in `mx.np`
            rest.append(_function(name, anything, "Any" if hidden else returns))
        elif isinstance(value, type):
            own = "bool_" if name == "bool" else name  # `numpy.bool` is there since NumPy 2
            imports.append(f"from {home} import {own} as {_shown(own, name)}\n")
            rest += [f"{name} = _{own}\n"] * (own != name)
        else:
            rest.append(f"{name}: {'float' if isinstance(value, float) else 'Any'}\n")
    return HEAD + "".join(imports) + "\n" + "".join(rest)


_PARTS = ("linalg", "random")


def _root() -> str:
    lines = ["from typing import Any", ""]
    package: Any = sys.modules["gluonjit"]
    for name, module in sorted(package._MODULES.items()):
        parent, _, last = f"gluonjit.{module}".rpartition(".")
        lines.append(f"from {parent} import {last} as {name}")
    for name, module in sorted(package._OBJECTS.items()):
        lines.append(f"from gluonjit.{module} import {name} as {name}")
    lines += ["from gluonjit._version import version as version", "", "__version__: str", "gluonjit_version: str"]
    lines += ["_MODULES: dict[str, str]", "_OBJECTS: dict[str, str]"]
    return HEAD + "\n".join(lines) + "\n"


def _module(module: ModuleType, place: str, array: str, start: str) -> str:
    """The stub of a package (`place` "") or of one of its sub-modules, whose arrays are of class `array`."""
    imports, rest = [start], []
    if not place:
        imports += [f"from {module.__name__} import {name} as {name}\n" for name in SUBMODULES]
    for name in _public(module):
        value = getattr(module, name)
        home = _home(value, module)
        if (op := _operator(place or "op", name, value, module)) is not None:
            if place:
                rest.append(_function(name, _of_operator(op, array), _result(op, array)))
            else:
                imports.append(f"from {module.__name__}.op import {name} as {name}\n")
        elif home is not None:
            own = value.__name__
            imports.append(f"from {home} import {own} as {_shown(own, name)}\n")
            rest += [f"{name} = _{own}\n"] * (own != name)
            if imports[-1] == start.replace("\n", f" as {array}\n"):
                imports.remove(start)
        elif callable(value) and not isinstance(value, type):
            rest.append(_function(name, *_by_signature(value, array)))
        else:
            rest.append(f"{name}: Any\n")
    return HEAD + _TOP + "".join(dict.fromkeys(imports)) + "\n" + "".join(rest)


def _public(module: ModuleType) -> list[str]:
    """The names for users: everything in `_internal`, and nothing that only the sources need."""
    names = [name for name in dir(module) if not name.startswith("__")]
    if not module.__name__.endswith("._internal"):
        names = [name for name in names if not name.startswith("_")]
    late = ("CachedOp", "np", "npx") if hasattr(module, "__file__") else ()
    found = {name: getattr(module, name) for name in (*names, *(name for name in late if hasattr(module, name)))}
    if hasattr(module, "__file__"):
        found["FLAVOUR"] = None  # for `mx.np`
    helpers = ("typing", "gluonjit.language.namespace", "gluonjit.language.kinds", "gluonjit.language.running")
    return sorted(
        name
        for name, value in found.items()
        if (name in late or not isinstance(value, ModuleType) and value is not OPERATORS)
        and getattr(value, "__module__", "") not in helpers
        and getattr(type(value), "__module__", "") not in helpers
    )


_TOP = """\
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as _numpy

_DType = str | type[Any] | _numpy.dtype[Any]
"""


def _operator(place: str, name: str, value: Any, module: ModuleType) -> Operator | None:
    """The operator that this function runs; None if it is none that was made from the registry."""
    full = name if place in ("op", "_internal") else f"_{place}_{name}"
    op = OPERATORS.get(full)
    made = inspect.isfunction(value) and "__signature__" in value.__dict__ and value.__qualname__ == name
    owners = (module.__name__, f"{module.__name__.partition('.op')[0]}", f"{module.__name__}.op")
    return op if op is not None and made and place_of(full) == (place, name) and value.__module__ in owners else None


def _shown(own: str, name: str) -> str:
    """What a stub calls something that it imports: type checkers take `own as own` for public, `own as name` not."""
    return own if own == name else f"_{own}"


def _home(value: Any, module: ModuleType) -> str | None:
    """The module from which `value` can be imported under its own name, other than `module`."""
    home, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(home, str) or not isinstance(name, str) or home == module.__name__:
        return None
    source = sys.modules.get(home)
    return home if getattr(source, "__file__", None) and getattr(source, name, None) is value else None


def _of_operator(op: Operator, array: str, skip: int = 0) -> list[str]:
    """The parameters of an operator's function without the first `skip` inputs."""
    tail = ["out: Any = ...", "name: str | None = ...", "attr: dict[str, str] | None = ..."]
    if array == "Symbol":
        tail = [*tail[1:], tail[0]]
    attrs = [f"{_name(key)}: {_type(attr)} = ..." for key, attr in op.attrs.items()]
    if op.variadic:
        return [f"*data: {array}" if skip == 0 else f"*more: {array}", *attrs, *tail]
    inputs = [f"{_name(name)}: {array} | None = ..." for name in input_names(op)[skip:]]
    return [*inputs, *attrs, *tail]


def _name(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{name!r} is not a name of a parameter")
    return name


def _type(attr: Attr) -> str:
    kind = attr.kind
    optional = kind.endswith(" or None")
    kind = kind.removesuffix(" or None")
    text = f"Literal[{', '.join(map(repr, attr.choices))}] | str" if kind.startswith("{") else KINDS[kind]
    return f"{text} | None" if optional or (attr.default is None and attr.default is not REQUIRED) else text


def _result(op: Operator, array: str) -> str:
    """An array, or Any where the attributes decide whether it is a list."""
    if array == "Symbol" or op.visible is None and len(_outputs(op, {})) == 1:
        return array
    counts = set()
    flags = [key for key, attr in op.attrs.items() if attr.kind.startswith("boolean")]
    for values in itertools.product((False, True), repeat=min(len(flags), 6)):
        attrs = {**op.attr_defaults, **dict(zip(flags, values))}
        try:
            counts.add(op.visible(attrs) if op.visible else len(op.outputs(attrs)))
        except Exception:  # it depends on an attribute without a default
            return "Any"
    return array if counts == {1} else "Any"


def _outputs(op: Operator, attrs: dict[str, Any]) -> tuple[str, ...]:
    try:
        return op.outputs({**op.attr_defaults, **attrs})
    except Exception:  # it depends on an attribute without a default
        return ("", "")


def _by_signature(value: Callable[..., Any], array: str) -> tuple[list[str], str]:
    """The parameters and the result of a function that is no operator's."""
    signature = inspect.signature(value)
    parameters, kinds = [], inspect.Parameter
    starred = False
    for p in signature.parameters.values():
        text = f"{p.name}: {_annotation(p.annotation)}" + ("" if p.default is kinds.empty else " = ...")
        if p.kind is kinds.KEYWORD_ONLY and not starred:
            parameters.append("*")
            starred = True
        if p.kind is kinds.VAR_POSITIONAL:
            text, starred = f"*{text}", True
        parameters.append(f"**{text}" if p.kind is kinds.VAR_KEYWORD else text)
    returns = signature.return_annotation
    return parameters, array if returns is inspect.Signature.empty else _annotation(returns)


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")
    return text if set(re.findall(r"[A-Za-z_.]+", text)) <= _KNOWN else "Any"


def _function(name: str, parameters: list[str], returns: str, indent: str = "", comment: str = "") -> str:
    return f"{indent}def {name}({', '.join(parameters)}) -> {returns}: ...{comment}\n"


def _methods(package: ModuleType, array: str, start: str) -> str:
    """The class that NDArray or Symbol has as its base for type checkers: the methods that are made from operators, and
    those that `array_arithmetic` adds to NDArray."""
    cls = getattr(package, array)
    lines = [f"class {array}Methods(Array):\n"]
    for name in METHODS:
        if getattr(cls, name).__code__.co_filename != add_methods.__code__.co_filename:
            continue  # the class defines it itself
        op = _operator("op", name, getattr(package, name), package)
        parameters = ["*args: Any", "**kwargs: Any"] if op is None else _of_operator(op, array, skip=1)
        returns = array if op is None else _result(op, array)
        lines.append(_function(name, ["self", *parameters], returns, "    "))
    for name in array_arithmetic.METHODS if array == "NDArray" else ():
        parameters = ["self"] if name in ("__neg__", "__abs__") else ["self", "other: Any"]
        comment = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        lines.append(_function(name, parameters, array, "    ", comment))
    if array == "NDArray":  # Python iterates by `__getitem__`, which type checkers do not accept
        lines.append(_function("__iter__", ["self"], "Iterator[NDArray]", "    "))
    return HEAD + _TOP + "from gluonjit.language.array import Array\n" + start + "\n" + "".join(lines)


def outdated() -> Iterator[tuple[Path, str]]:
    """The files that differ from what would be written, and what would be."""
    for path, text in stubs().items():
        folder, _, name = path.rpartition("/")
        package = importlib.import_module(".".join(["gluonjit", *folder.split("/")]).rstrip("."))
        file = Path(str(package.__file__)).parent / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            yield file, text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gluonjit.tools.stubs", description="Writes the type stubs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a stub is out of date")
    arguments = parser.parse_args()
    old = list(outdated())
    if arguments.check:
        for file, _ in old:
            print(f"{file} is out of date: run python -m gluonjit.tools.stubs", file=sys.stderr)
        return 1 if old else 0
    for file, text in old:
        file.write_text(text, encoding="utf-8")
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
