"""What NumPy and Python have removed since MXNet's time, for programs that still use it.

`gluonjit exec` restores all of it in the process of the program, `install_as_mxnet(numpy_aliases=True)` NumPy's names.
The first use prints a line that says so.
"""

from __future__ import annotations

import ast
import builtins
import collections
import collections.abc
import contextlib
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import marshal
import operator
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

NUMPY_NAMES = {
    # What NumPy 1.24 removed: Python's own types.
    "int": int,
    "float": float,
    "bool": bool,
    "object": object,
    "complex": complex,
    "str": str,
    "asscalar": lambda a: a.item(),
    # What NumPy 2 removed or renamed.
    "bool8": "bool_",
    "float_": "float64",
    "complex_": "complex128",
    "unicode_": "str_",
    "string_": "bytes_",
    "cfloat": "complex128",
    "longfloat": "longdouble",
    "singlecomplex": "complex64",
    "Inf": "inf",
    "Infinity": "inf",
    "infty": "inf",
    "PINF": "inf",
    "NINF": -np.inf,
    "NaN": "nan",
    "product": "prod",
    "cumproduct": "cumprod",
    "alltrue": "all",
    "sometrue": "any",
    "in1d": "isin",
    "row_stack": "vstack",
    "trapz": "trapezoid",
    "round_": "round",
    "mat": "asmatrix",
    "asfarray": lambda a, dtype=np.float64: np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64),
    "msort": lambda a: np.sort(a, axis=0),
    "find_common_type": lambda arrays, scalars: np.result_type(*arrays, *(np.dtype(s).type(0) for s in scalars)),
    "issubclass_": lambda a, b: isinstance(a, type) and issubclass(a, b),
    "issubsctype": lambda a, b: issubclass(np.dtype(a).type, np.dtype(b).type),
    "obj2sctype": lambda x: np.dtype(x).type,
    "warnings": warnings,
    **{name: getattr(np.exceptions, name) for name in np.exceptions.__all__},
}
"""The object, or its name in today's NumPy."""

_LIBRARY_MODULES = (
    "arraypad arraysetops function_base histograms index_tricks nanfunctions polynomial shape_base twodim_base"
    " type_check ufunclike utils"
).split()
"""The modules of `np.lib` that NumPy 2 has made private: `np.lib.arraysetops` is `np.lib._arraysetops_impl`."""

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
    # The new names are looked up only where the old ones are gone: NumPy 1.26 may have neither.
    gone = {name: x for name, x in NUMPY_NAMES.items() if name not in np.__dict__}
    _restore(np, {name: getattr(np, x) if isinstance(x, str) else x for name, x in gone.items()})
    private = [name for name in _LIBRARY_MODULES if name not in np.lib.__dict__]
    _restore(np.lib, {name: importlib.import_module(f"numpy.lib._{name}_impl") for name in private})


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
    """Ragged lists become arrays of objects, integers out of range wrap around, `np.fromstring` reads binary data."""

    def tolerant(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except ValueError as e:
                if "inhomogeneous" not in str(e) or len(args) > 1 or kwargs.get("dtype") is not None:
                    raise
                _say("np.array of lists that differ in length")
                return function(*args, **{**kwargs, "dtype": object})
            except OverflowError as e:
                dtype = args[1] if len(args) > 1 else kwargs.pop("dtype", None)
                found = function(args[0], **kwargs) if "out of bounds" in str(e) else None
                if found is None or found.dtype.kind not in "iu":
                    raise
                _say("np.array of integers out of the type's range")
                return found.astype(dtype)

        call.__name__, call.__doc__ = function.__name__, function.__doc__
        return call

    for name in ("array", "asarray", "asanyarray"):  # NumPy's own functions call the last: np.save, np.percentile
        setattr(np, name, tolerant(getattr(np, name)))
    text = np.fromstring

    def fromstring(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "", **kwargs: Any) -> Any:
        if sep:
            return text(string, dtype, count, sep=sep, **kwargs)
        _say("np.fromstring of binary data")
        data = string.encode("latin1") if isinstance(string, str) else string
        return np.frombuffer(data, dtype, count).copy()

    np.fromstring = fromstring  # type: ignore[assignment]


# Arrays with one element as numbers: `float(x)`, `math.exp(x)`, `"%f" % x`, `numbers[i] = x`, `numbers[i] += x`. No
# function can be replaced to restore these, as the arrays' class is NumPy's and `float` is a class that programs
# compare. So these places in the program's own files are rewritten.

_CONVERT = "_gluonjit_convert"
_STORE = "_gluonjit_store"
_REWRITTEN = re.compile(rb"\b(?:float|int|complex)\(|\bmath\b|['\"]\s*%|\]\s*[-+*/%@&|^<>]*=")
"""What a file has that is rewritten."""


def _number(x: Any) -> Any:
    """The element of an array that has one."""
    return x.item() if isinstance(x, np.ndarray) and x.ndim and x.size == 1 else x


class _Formatted:
    """An array with one element in formatting: `%d` and its like take the element, `%s` shows the array."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __float__(self) -> float:
        return float(self.x.item())

    def __int__(self) -> int:
        return int(self.x.item())

    def __str__(self) -> str:
        return str(self.x)

    def __repr__(self) -> str:
        return repr(self.x)


def _formatted(x: Any) -> Any:
    """The right side of `%`: a value, or a tuple or dict of them."""
    if type(x) is tuple:
        return tuple(map(_formatted, x))
    if type(x) is dict:
        return {key: _formatted(value) for key, value in x.items()}
    return x if _number(x) is x else _Formatted(x)


def _convert(function: Any, *arguments: Any) -> Any:
    """`function(*arguments)`, a function of numbers, which takes arrays with one element, too."""
    try:
        return function(*arguments)
    except TypeError:
        known = function in (float, int, complex, operator.mod) or getattr(function, "__module__", "") == "math"
        if not known:
            raise
        numbers = tuple(map(_formatted if function is operator.mod else _number, arguments))
        if all(a is b for a, b in zip(arguments, numbers)):
            raise
        name = "formatting" if function is operator.mod else f"{function.__name__}()"
        _say(f"{name} of arrays with one element")
    return function(*numbers)


def _store(x: Any, target: Any, index: Any) -> None:
    """`target[index] = x`, where `x` may be an array with one element."""
    try:
        target[index] = x
    except ValueError:
        if not isinstance(target, np.ndarray) or target.dtype == object or _number(x) is x:
            raise
        _say("an array with one element as an element")
        target[index] = _number(x)


class _Place:
    """`target[index] += x` and its like: made before `x` is evaluated, as the old value is read before."""

    def __init__(self, target: Any, index: Any) -> None:
        self.target, self.index, self.value = target, index, target[index]

    def update(self, x: Any, how: str) -> None:
        """`how`: the function of the module `operator`."""
        _store(getattr(operator, how)(self.value, x), self.target, self.index)


class _Numbers(ast.NodeTransformer):
    """Calls `_convert`, `_store` and `_Place` where a program makes a number of what may be an array."""

    def __init__(self) -> None:
        self.functions = {"float", "int", "complex"}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.module == "math":
            self.functions.update(alias.asname or alias.name for alias in node.names)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        f = node.func
        known = isinstance(f, ast.Name) and f.id in self.functions
        known |= isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "math"
        if known and node.args and not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args):
            node.args.insert(0, f)
            node.func = ast.copy_location(ast.Name(_CONVERT, ast.Load()), f)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            remainder = ast.Attribute(ast.Name(_CONVERT, ast.Load()), "remainder", ast.Load())
            new = ast.Call(ast.Name(_CONVERT, ast.Load()), [remainder, node.left, node.right], [])
            return ast.fix_missing_locations(ast.copy_location(new, node))
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript) or isinstance(node.value, _WRITTEN_OUT):
            return node
        index = _as_object(target.slice)
        if index is None:
            return node
        new = ast.Expr(ast.Call(ast.Name(_STORE, ast.Load()), [node.value, target.value, index], []))
        return ast.fix_missing_locations(ast.copy_location(new, node))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        target = node.target
        if not isinstance(target, ast.Subscript) or isinstance(node.value, _WRITTEN_OUT):
            return node
        index = _as_object(target.slice)
        if index is None:
            return node
        place = ast.Call(ast.Attribute(ast.Name(_CONVERT, ast.Load()), "place", ast.Load()), [target.value, index], [])
        how = ast.Constant(_IN_PLACE[type(node.op)])
        new = ast.Expr(ast.Call(ast.Attribute(place, "update", ast.Load()), [node.value, how], []))
        return ast.fix_missing_locations(ast.copy_location(new, node))


_WRITTEN_OUT = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.JoinedStr, ast.Lambda)
"""Values that cannot be an array with one element."""
_IN_PLACE: dict[type[ast.operator], str] = {
    ast.Add: "iadd",
    ast.Sub: "isub",
    ast.Mult: "imul",
    ast.Div: "itruediv",
    ast.FloorDiv: "ifloordiv",
    ast.Mod: "imod",
    ast.Pow: "ipow",
    ast.MatMult: "imatmul",
    ast.LShift: "ilshift",
    ast.RShift: "irshift",
    ast.BitAnd: "iand",
    ast.BitOr: "ior",
    ast.BitXor: "ixor",
}


def _as_object(index: ast.expr) -> ast.expr | None:
    """An index as an expression of its own: `1:n` as `slice(1, n, None)`. None for one with `*names`."""
    if isinstance(index, ast.Slice):
        parts = [part or ast.Constant(None) for part in (index.lower, index.upper, index.step)]
        return ast.Call(ast.Attribute(ast.Name(_CONVERT, ast.Load()), "slice", ast.Load()), parts, [])
    if isinstance(index, ast.Tuple):
        elements = [_as_object(element) for element in index.elts]
        return ast.Tuple([e for e in elements if e], ast.Load()) if all(elements) else None
    return None if isinstance(index, ast.Starred) else index


_convert.slice = slice  # type: ignore[attr-defined]  # a program may have given these names another meaning
_convert.remainder = operator.mod  # type: ignore[attr-defined]
_convert.place = _Place  # type: ignore[attr-defined]


def compiled(source: bytes, path: str) -> CodeType:
    """The code of a program's file, in which arrays with one element are numbers where a number is needed."""
    _provide()
    return compile(_Numbers().visit(ast.parse(source, path)), path, "exec", dont_inherit=True)


def _provide() -> None:
    """Makes the functions that rewritten code calls known everywhere."""
    setattr(builtins, _CONVERT, _convert)
    setattr(builtins, _STORE, _store)


class _Loader(importlib.machinery.SourceFileLoader):
    """Keeps rewritten bytecode in `__pycache__`, as Python keeps its own, under a name that Python does not read."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        if not _REWRITTEN.search(source):
            return super().get_code(fullname)
        kept = importlib.util.cache_from_source(path, optimization=f"gluonjit{sys.flags.optimize}")
        key = hashlib.sha256(b"\0".join([_rewriter(), path.encode(), source])).digest()
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):  # there is none yet, or not all of it
            found = self.get_data(kept)
            if found.startswith(key):
                _provide()
                return cast(CodeType, marshal.loads(found[len(key) :]))
        code = compiled(source, path)
        if not sys.dont_write_bytecode:
            self.set_data(kept, key + marshal.dumps(code))  # does nothing where the folder cannot be written to
        return code


@functools.cache
def _rewriter() -> bytes:
    """What rewritten bytecode depends on besides its source: Python's version, and this file."""
    return importlib.util.MAGIC_NUMBER + Path(__file__).read_bytes()


class ProgramFinder(importlib.abc.MetaPathFinder):
    """Finds the program's modules and compiles them by `compiled`: those below a folder, and installed packages that
    import MXNet."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, "")
        self.packages: dict[str, bool] = {}
        """Whether the modules of an installed package are the program's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find is not None and finder is not self else None
            if spec is not None:
                break
        else:
            return None
        if type(spec.loader) is importlib.machinery.SourceFileLoader and self._is_programs(spec):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec

    def _is_programs(self, spec: importlib.machinery.ModuleSpec) -> bool:
        place = spec.origin or ""
        installed = place.startswith(_LIBRARY) or not _INSTALLED.isdisjoint(place.split(os.sep))
        if place.startswith(self.folder) and not installed:
            return True
        if place.startswith(_LIBRARY) and _INSTALLED.isdisjoint(place.split(os.sep)):
            return False
        package, dot, _ = spec.name.partition(".")
        if package in _WITHOUT_MXNET:
            return False
        if not dot and package != __package__.partition(".")[0]:
            folders = spec.submodule_search_locations
            files = [f for folder in folders for f in Path(folder).rglob("*.py")] if folders else [Path(place)]
            self.packages[package] = any(_imports_mxnet(f.read_bytes()) for f in files)
        return self.packages.get(package, False)


_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")
_INSTALLED = {"site-packages", "dist-packages"}
_WITHOUT_MXNET = {"numpy", "pandas", "scipy", "sklearn", "matplotlib", "torch", "sympy", "llvmlite", "tqdm", "pydantic"}
"""Packages of so many files that looking through them takes longer than importing them."""
_IMPORTS_MXNET = re.compile(rb"^\s*(?:import|from)\s+mxnet\b", re.MULTILINE)


def _imports_mxnet(source: bytes) -> bool:
    return b"mxnet" in source and _IMPORTS_MXNET.search(source) is not None
