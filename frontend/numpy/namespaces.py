"""`mx.np` and `mx.npx` in their flavours: `mx.nd.np`, `mx.sym.np` and the packages themselves.

The sub-modules (`np.random`, `np.linalg`, `npx.image`, …) are modules made here, not files, as those of
`gluonjit.language.namespace` are.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from gluonjit import ndarray, symbol
from gluonjit.language import late
from gluonjit.language.kinds import as_np
from gluonjit.language.mxnet_names import no_attribute
from gluonjit.language.namespace import make_function
from gluonjit.numpy import composed, filled_arrays, functions, numpy_symbols
from gluonjit.operators.registry import OPERATORS, get

Function = Callable[..., Any]


def flavours(symbolic: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `np` and `npx` have in a flavour: functions, and sub-modules as dicts."""
    random = filled_arrays.random_functions(symbolic)
    of_npx = ("bernoulli", "uniform_n", "normal_n", "seed")
    np_names: dict[str, Any] = dict(functions.functions(symbolic))
    np_names["random"] = {name: f for name, f in random.items() if name not in of_npx}
    linalg = {name: _operator(op, name, "np.linalg", symbolic) for name, op in _LINALG.items()}
    np_names["linalg"] = {**linalg, **composed.LINALG}
    np_names["_internal"] = _Operators("_npi_", "np._internal", symbolic)
    npx_names: dict[str, Any] = _Operators("_npx_", "npx", symbolic).all()
    npx_names["nonzero"] = _stacked_nonzero
    npx_names["image"] = {
        name[len("_image_") :]: f for name, f in list(npx_names.items()) if name.startswith("_image_")
    }
    npx_names = {name: f for name, f in npx_names.items() if not name.startswith("_")}
    npx_names["random"] = {name: random[name] for name in of_npx}
    return np_names, npx_names


_LINALG = {"inv": "_npi_inv"}


def _stacked_nonzero(a: Any) -> Any:
    """The positions of what is not 0, as rows of an int64 matrix. Not in compiled code: values say how many"""
    return composed.stack(composed.nonzero(a), axis=1)


def _operator(op: str, public: str, place: str, symbolic: bool) -> Function:
    """The operator as a function whose results are of the new kind."""
    flavour: Any = symbol.FLAVOUR if symbolic else ndarray.FLAVOUR
    legacy = make_function(get(op), public, f"{flavour.package}.{place}", flavour)

    def function(*args: Any, **kwargs: Any) -> Any:
        out = legacy(*args, **kwargs)
        return out if kwargs.get("out") is not None else as_np(out)

    function.__name__ = function.__qualname__ = public
    function.__doc__, function.__module__ = legacy.__doc__, legacy.__module__
    function.__signature__ = legacy.__signature__  # type: ignore[attr-defined]
    return function


class _Operators(Mapping[str, Any]):
    """The operators whose names begin so, as functions by the rest of the name; made when asked for."""

    def __init__(self, prefix: str, place: str, symbolic: bool) -> None:
        self.prefix, self.place, self.symbolic = prefix, place, symbolic

    def __getitem__(self, name: str) -> Function:
        if f"{self.prefix}{name}" not in OPERATORS:
            raise KeyError(name)
        return _operator(f"{self.prefix}{name}", name, self.place, self.symbolic)

    def __iter__(self) -> Any:
        return (name[len(self.prefix) :] for name in OPERATORS if name.startswith(self.prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def all(self) -> dict[str, Function]:
        return dict(self)


def module(name: str, doc: str, content: Mapping[str, Any]) -> types.ModuleType:
    """A module of that full name, with sub-modules where the content has dicts."""
    made = types.ModuleType(name, doc)
    sys.modules[name] = made
    equip(made.__dict__, name, content)
    return made


def equip(namespace: dict[str, Any], name: str, content: Mapping[str, Any]) -> None:
    """Gives a module its content; a name that it lacks is an error that says whether MXNet has it."""
    if isinstance(content, _Operators):
        lazily: Mapping[str, Any] = content
    else:
        lazily = {}
        for key, value in content.items():
            namespace[key] = module(f"{name}.{key}", f"`{name}.{key}`", value) if isinstance(value, Mapping) else value

    def __getattr__(key: str) -> Any:
        if not key.startswith("__") and key in lazily:
            namespace[key] = lazily[key]
            return namespace[key]
        raise no_attribute(name, key, __dir__())

    def __dir__() -> list[str]:
        return sorted({*namespace, *lazily})

    namespace["__getattr__"], namespace["__dir__"] = __getattr__, __dir__
    namespace.setdefault("__path__", [])


def _packages(package: str, symbolic: bool) -> dict[str, Any]:
    """`np` and `npx` of `mx.nd` or `mx.sym`, a package of that full name, by all their names."""
    made = {}
    for full, short, content in zip(("numpy", "numpy_extension"), ("np", "npx"), flavours(symbolic)):
        doc = f"`mx.{'sym' if symbolic else 'nd'}.{short}`"
        made[full] = made[short] = module(f"{package}.{full}", doc, content)
    return made


late.load_numpy.provide(numpy_symbols.declare)
late.numpy_packages.provide(_packages)
