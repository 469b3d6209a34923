"""The variants of `mx.np` and `mx.npx`: `mx.nd.np`, `mx.sym.np` and the packages themselves.

The sub-modules (`np.random`, `np.linalg`, `npx.image`, …) have no files: they are created here, like those of
`gluonjit.language.namespace`.
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
from gluonjit.numpy import composed, functions, matrices, numpy_symbols, random_arrays
from gluonjit.operators.registry import OPERATORS, get

Function = Callable[..., Any]


def flavours(symbolic: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of `np` and of `npx` for arrays or symbols: functions, and sub-modules as dicts."""
    random = random_arrays.functions(symbolic)
    of_npx = ("bernoulli", "uniform_n", "normal_n", "seed")
    np_names: dict[str, Any] = dict(functions.functions(symbolic))
    np_names["random"] = {name: f for name, f in random.items() if name not in of_npx}
    np_names["linalg"] = {"inv": _operator("_npi_inv", "inv", "np.linalg", symbolic), **matrices.FUNCTIONS}
    np_names["_internal"] = _Operators("_npi_", "np._internal", symbolic)
    npx_names: dict[str, Any] = _Operators("_npx_", "npx", symbolic).all()
    npx_names["nonzero"] = _stacked_nonzero
    npx_names["image"] = {
        name[len("_image_") :]: f for name, f in list(npx_names.items()) if name.startswith("_image_")
    }
    npx_names = {name: f for name, f in npx_names.items() if not name.startswith("_")}
    npx_names["random"] = {name: random[name] for name in of_npx}
    return np_names, npx_names


def _stacked_nonzero(a: Any) -> Any:
    """The positions of nonzero elements, as rows of int64. Not in compiled code: the shape depends on values

    >>> mx.npx.nonzero(mx.np.array([[0, 5], [6, 0]])).asnumpy().tolist()
    [[0, 1], [1, 0]]
    """
    return composed.stack(composed.nonzero(a), axis=1)


def _operator(op: str, public: str, place: str, symbolic: bool) -> Function:
    """The operator as a function whose results are arrays or symbols of `mx.np`."""
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
    """The operators with a name prefix, as functions by the rest of the name, created on demand."""

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
    """A module with this full name; dicts in the content become sub-modules."""
    made = types.ModuleType(name, doc)
    sys.modules[name] = made
    equip(made.__dict__, name, content)
    return made


def equip(namespace: dict[str, Any], name: str, content: Mapping[str, Any]) -> None:
    """Gives a module its content; the error for a missing name says whether MXNet has it."""
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
    """`np` and `npx` of the package `mx.nd` or `mx.sym`, by all their names."""
    made = {}
    for full, short, content in zip(("numpy", "numpy_extension"), ("np", "npx"), flavours(symbolic)):
        doc = f"`mx.{'sym' if symbolic else 'nd'}.{short}`"
        made[full] = made[short] = module(f"{package}.{full}", doc, content)
    return made


late.load_numpy.provide(numpy_symbols.declare)
late.numpy_packages.provide(_packages)
