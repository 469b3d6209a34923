"""Gluon 1.x models as native CPU code.

    import gluonjit as mx
    from gluonjit import nd, gluon

Everything is imported when it is first used (PEP 562): importing this package costs nothing, and `import gluonjit.ir`
does not execute the front end.
"""

from __future__ import annotations

import importlib
from typing import Any

from gluonjit._version import version

__version__ = "1.9.1"
"""The MXNet whose interface this is; programs compare it. The package's own version is `version`."""

_MODULES = {
    # name: module
    "attribute": "attribute",
    "autograd": "autograd",
    "base": "base",
    "context": "context",
    "gluon": "gluon",
    "init": "initializer",
    "initializer": "initializer",
    "name": "name",
    "nd": "ndarray",
    "ndarray": "ndarray",
    "operators": "operators",
    "random": "random",
    "rnd": "random",
    "runtime": "runtime",
    "sym": "symbol",
    "symbol": "symbol",
    "util": "util",
}
_OBJECTS = {
    # name: module that defines it
    "AttrScope": "attribute",
    "Context": "context",
    "MXNetError": "base",
    "cpu": "context",
    "cpu_pinned": "context",
    "current_context": "context",
    "gpu": "context",
    "register_backend": "backends",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(f"gluonjit.{_MODULES[name]}")
    elif name in _OBJECTS:
        value = getattr(importlib.import_module(f"gluonjit.{_OBJECTS[name]}"), name)
    else:
        hint = ""
        if not name.startswith("__"):
            import difflib

            near = difflib.get_close_matches(name, __dir__(), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_OBJECTS})


__all__ = ["__version__", "version", *_MODULES, *_OBJECTS]
