"""The two kinds of arrays, MXNet's old ones and those of `mx.np`: two classes each, on the same memory.

What `mx.np` and `mx.npx` return is always of the new kind. An operator of `mx.nd` gives that if some operand is
one, so layers made of such operators work with both (MXNet refuses a mixture).

The package `numpy` declares which classes are each other's counterparts (`declare_pairs`). They have the same layout,
so a new object is turned into the other kind by changing its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.language import late

_NEW: dict[type, type] = {}
"""The class of `mx.np` by the old one."""
_OLD: dict[type, type] = {}


def declare_pairs(new: Mapping[type, type]) -> None:
    """Declares the classes of `mx.np`, by the old classes that they are beside."""
    _OLD.update((kind, old) for old, kind in new.items())
    _NEW.update(new)


def as_np(value: Any) -> Any:
    """Turns arrays and symbols, or lists of them, into those of `mx.np`. Only the caller may refer to them."""
    if isinstance(value, (list, tuple)):
        return [as_np(x) for x in value]
    if not _NEW:
        late.load_numpy()
    kind = _NEW.get(value.__class__)
    if kind is not None:
        value.__class__ = kind
    return value


def as_nd(value: Any) -> Any:
    """Turns an array or symbol of `mx.np` into the old kind. Only the caller may refer to it."""
    kind = _OLD.get(value.__class__)
    if kind is not None:
        value.__class__ = kind
    return value


def lazy_packages(package: str, symbolic: bool) -> Callable[[str], Any]:
    """A function that gives `np`, `numpy`, `npx` or `numpy_extension` of `mx.nd` or `mx.sym`; None for other names.

    They are made when the first of them is asked for, for few programs use any.
    """
    made: dict[str, Any] = {}

    def find(name: str) -> Any:
        if name not in ("np", "numpy", "npx", "numpy_extension"):
            return None
        if not made:
            made.update(late.numpy_packages(package, symbolic))
        return made[name]

    return find
