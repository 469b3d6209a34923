"""Writes down which operators and which Python names real MXNet 1.9.1 has: `frontend/language/mxnet_names/*.txt`.

It runs in the venv that `record.py` describes:

    oracle/bin/python tests/oracle/names.py
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import pkgutil
import re
import types
import warnings
from collections import defaultdict
from pathlib import Path

import mxnet as mx
from mxnet.base import _LIB, check_call, py_str

FOLDER = Path(__file__).resolve().parents[2] / "frontend" / "language" / "mxnet_names"

# Gradients, operators behind `mx.np` (which `numpy_modules` lists as functions), and what the engine puts into graphs.
INTERNAL = re.compile(
    r"_backward|_contrib_backward|_np|_sg_|.*_backward$|_CachedOp|_CrossDeviceCopy|_NoGradient|_NDArray|_Native"
    r"|_CustomFunction|_imdecode|_copyto|_set_value|_onehot_encode"
)
# Modules without a user: MXNet's own plumbing, generated code, and those of `mx.np`, see `numpy_modules`.
PLUMBING = re.compile(
    r"(^|\.)(_ffi|_ctypes|_cy3|_api_internal|_global_var|_numpy_op_doc|api|numpy|numpy_extension|src|cython|tools"
    r"|include|libmxnet|gen_\w+|register|ndarray_doc|symbol_doc|numpy_\w+|onnx2mx|mx2onnx|executor_manager|space"
    r"|setup|svrg_optimization|_constants)(\.|$)"
)


PLACES = ("contrib", "image", "linalg", "sparse")
"""Modules of `nd` and `sym` for the operators whose names start so."""


def operators() -> dict[str, list[str]]:
    """Every operator's name, with its aliases."""
    count = ctypes.c_uint()
    array = ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(array)))
    names = defaultdict(list)
    for alias in sorted(py_str(array[k]) for k in range(count.value)):
        handle = ctypes.c_void_p()
        check_call(_LIB.NNGetOpHandle(alias.encode(), ctypes.byref(handle)))
        name, text, number = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_uint()
        lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
        out = [ctypes.byref(x) for x in (name, text, number, *lists, ctypes.c_char_p(), ctypes.c_char_p())]
        check_call(_LIB.MXSymbolGetAtomicSymbolInfo(handle, *out))
        if not INTERNAL.match(alias):
            names[py_str(name.value)].append(alias)
    return {name: [a for a in aliases if a != name] for name, aliases in sorted(names.items())}


def modules() -> dict[str, types.ModuleType]:
    """MXNet's modules, by name without `mxnet.`; the top one is ''."""
    found = {"": mx}
    waiting = [mx]
    while waiting:
        package = waiting.pop()
        for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            name = info.name.partition(".")[2]
            if PLUMBING.search(name):
                continue
            found[name] = importlib.import_module(info.name)
            if info.ispkg:
                waiting.append(found[name])
    return found


def numpy_modules() -> dict[str, list[str]]:
    """The names in `mx.np` and `mx.npx`, their sub-modules, and their flavours for arrays and symbols."""
    found = {}
    for package, places in (
        ("numpy", ("", ".random", ".linalg")),
        ("numpy_extension", ("", ".random", ".image")),
    ):
        for prefix in ("", "ndarray.", "symbol."):
            for place in places:
                module = importlib.import_module(f"mxnet.{prefix}{package}{place}")
                names = [name for name, value in vars(module).items() if _is_for_users(name, value)]
                found[f"{prefix}{package}{place}"] = sorted(names)
    found["numpy"] = sorted({*found["numpy"], "ndarray", "random", "linalg", "pi", "e", "inf", "nan", "newaxis"})
    return found


def _is_for_users(name: str, value: object) -> bool:
    plumbing = ("check_call", "classproperty", "with_metaclass", "fallback", "fallback_linalg")
    return not name.startswith("_") and name not in plumbing and not isinstance(value, types.ModuleType)


def public_names(module: types.ModuleType) -> list[str]:
    """What users get from a module: classes and functions of its package, values, and modules of MXNet."""
    is_package = hasattr(module, "__path__")
    package = module.__name__ if is_package else module.__name__.rpartition(".")[0]
    names = []
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, types.ModuleType):
            # An ordinary module's modules are what it imported.
            name_of = value.__name__.partition(".")[2]
            ours = is_package and value.__name__.startswith("mxnet.")
            if not ours or name == name_of.rpartition(".")[2] and PLUMBING.search(name_of) and name != "numpy":
                continue
        else:
            home = getattr(value, "__module__", None) or package
            if not f"{home}.".startswith(f"{package}."):
                continue
            if home == "mxnet.base" and module not in (mx, mx.base):
                continue  # imported for its own use
        names.append(name)
    return sorted(names)


PRIVATE = re.compile(r"(?:def |self\.|^    )(_[A-Za-z]\w*)(?=\(| *=[^=])", re.MULTILINE)


def private_names() -> dict[str, list[str]]:
    """The attributes with an underscore of the classes that users have objects of."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        for value in vars(module).values():
            if (
                not isinstance(value, type)
                or not value.__module__.startswith("mxnet.")
                or value.__name__.startswith("_")
            ):
                continue
            try:
                found[value.__name__] |= set(PRIVATE.findall(inspect.getsource(value)))
            except OSError:
                continue  # made when MXNet is imported, as named tuples are: without attributes of their own
    return {name: sorted(content) for name, content in sorted(found.items()) if content}


def main() -> None:
    warnings.simplefilter("ignore")
    head = f"# MXNet {mx.__version__}, written by tests/oracle/names.py. "
    ops = operators()
    with open(FOLDER / "operators.txt", "w") as file:
        print(head + "One operator a line: its name, then its aliases.", file=file)
        for name, aliases in ops.items():
            print(name, *aliases, file=file)
    with open(FOLDER / "private.txt", "w") as file:
        print(head + "One class a line: its name, then its attributes with an underscore.", file=file)
        for name, content in private_names().items():
            print(name, *content, file=file)
    every = {alias for name, aliases in ops.items() for alias in (name, *aliases)}
    with open(FOLDER / "names.txt", "w") as file:
        print(head + "One module a line: its name, then what is in it, operators aside.", file=file)
        for module, content in sorted(modules().items()):
            names = public_names(content)
            package, _, place = module.partition(".")
            prefixes = {"": "", "op": "", "_internal": ""} | {
                p: f"_{p}_" for p in ("contrib", "image", "linalg", "sparse")
            }
            if package in ("ndarray", "symbol") and place in prefixes:
                names = [name for name in names if prefixes[place] + name not in every]
            print(module or ".", *names, file=file)
        for name, names in sorted(numpy_modules().items()):
            print(name, *names, file=file)


if __name__ == "__main__":
    main()
