"""What NumPy and Python have removed since MXNet's time, for programs that still use it.

`gluonjit exec` restores all of it in the process of the program, `install_as_mxnet(numpy_aliases=True)` NumPy's names.
The first use prints a line that says so.
"""

from __future__ import annotations

import ast
import builtins
import collections
import collections.abc
import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import numpy as np

NUMPY_NAMES = {
    # What NumPy 1.24 removed: Python's own types.
    "int": int,
    "float": float,
    "bool": bool,
    "object": object,
    "complex": complex,
    "str": str,
    # What NumPy 2 removed or renamed.
    "float_": "float64",
    "complex_": "complex128",
    "unicode_": "str_",
    "string_": "bytes_",
    "Inf": "inf",
    "NaN": "nan",
    "product": "prod",
    "cumproduct": "cumprod",
    "alltrue": "all",
    "sometrue": "any",
    "in1d": "isin",
    "row_stack": "vstack",
    "trapz": "trapezoid",
}
"""The object, or its name in today's NumPy."""

_said: list[str] = []


def _say(what: str) -> None:
    if not _said:
        print(f"gluonjit: {what} and more that NumPy or Python have removed is restored here", file=sys.stderr)
    _said.append(what)


def _restore(module: ModuleType, found: dict[str, Any]) -> None:
    """Adds those of these names that a module lacks, when they are used first."""
    before: Callable[[str], Any] | None = module.__dict__.get("__getattr__")

    def __getattr__(name: str) -> Any:
        if name in found:
            _say(f"{module.__name__}.{name}")
            setattr(module, name, found[name])
            return found[name]
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__getattr__ = __getattr__  # type: ignore[method-assign]


def restore_numpy_names() -> None:
    """`np.int`, `np.float_`, `np.product`, …"""
    found = {name: getattr(np, x) if isinstance(x, str) else x for name, x in NUMPY_NAMES.items()}
    _restore(np, {name: x for name, x in found.items() if name not in np.__dict__})


class ArgSpec(NamedTuple):
    """The result of `inspect.getargspec`."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def _getargspec(function: Any) -> ArgSpec:
    found = inspect.getfullargspec(function)
    if found.kwonlyargs or found.annotations:
        raise ValueError("Function has keyword-only parameters or annotations, use inspect.signature()")
    return ArgSpec(*found[:4])


def restore_python_names() -> None:
    """`collections.Iterable` and its like, `inspect.getargspec`."""
    _restore(collections, {name: getattr(collections.abc, name) for name in collections.abc.__all__})
    if not hasattr(inspect, "getargspec"):
        _restore(inspect, {"getargspec": _getargspec})


def restore_numpy_behaviour() -> None:
    """Ragged lists become arrays of objects, and `np.fromstring` reads binary data."""

    def ragged(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except ValueError as e:
                if "inhomogeneous" not in str(e) or len(args) > 1 or kwargs.get("dtype") is not None:
                    raise
                _say("np.array of lists that differ in length")
                return function(*args, **{**kwargs, "dtype": object})

        call.__name__, call.__doc__ = function.__name__, function.__doc__
        return call

    for name in ("array", "asarray"):
        setattr(np, name, ragged(getattr(np, name)))
    text = np.fromstring

    def fromstring(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "", **kwargs: Any) -> Any:
        if sep:
            return text(string, dtype, count, sep=sep, **kwargs)
        _say("np.fromstring of binary data")
        data = string.encode("latin1") if isinstance(string, str) else string
        return np.frombuffer(data, dtype, count).copy()

    np.fromstring = fromstring  # type: ignore[assignment]


# `float(x)` and `int(x)` of arrays with one element: no function can be replaced to restore these, as the arrays' class
# is NumPy's and `float` is a class that programs compare. So the calls in the program's own files are rewritten.

_CONVERT = "_gluonjit_convert"


def _convert(kind: Any, x: Any) -> Any:
    if isinstance(x, np.ndarray) and x.ndim and x.size == 1 and (kind is float or kind is int):
        _say(f"{kind.__name__}() of arrays with one element")
        x = x.item()
    return kind(x)


class _Calls(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        named = isinstance(node.func, ast.Name) and node.func.id in ("float", "int")
        if named and len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred):
            node.args.insert(0, node.func)
            node.func = ast.copy_location(ast.Name(_CONVERT, ast.Load()), node.func)
        return node


def compiled(source: bytes, path: str) -> CodeType:
    """The code of a program's file, in which `float(x)` and `int(x)` take arrays with one element."""
    setattr(builtins, _CONVERT, _convert)
    return compile(_Calls().visit(ast.parse(source, path)), path, "exec", dont_inherit=True)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path)


class ProgramFinder(importlib.abc.MetaPathFinder):
    """Finds the modules below a folder, the program's, and compiles them by `compiled`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        place = spec.origin or "" if spec is not None else ""
        if spec is None or not place.endswith(".py") or not place.startswith(self.folder):
            return None
        spec.loader = _Loader(fullname, place)
        return spec
