"""Conversion between the two kinds of arrays and symbols: those of `mx.nd` and `mx.sym`, and those of `mx.np`.

Functions of `mx.np` and `mx.npx` always return the `mx.np` kind. An operator of `mx.nd` does so if any operand is of
that kind, so layers made of such operators work with both (MXNet refuses a mixture).

The package `numpy` declares which classes are counterparts (`declare_pairs`). They have the same layout, so a new
object is converted by assigning its `__class__`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.language import late
from gluonjit.util import is_np_array

_NEW: dict[type, type] = {}
"""The class of `mx.np`, by its counterpart of `mx.nd` or `mx.sym`."""
_OLD: dict[type, type] = {}
"""The inverse of `_NEW`."""


def declare_pairs(new: Mapping[type, type]) -> None:
    """Declares classes of `mx.np`, by their counterparts of `mx.nd` or `mx.sym`."""
    _OLD.update((kind, old) for old, kind in new.items())
    _NEW.update(new)


def as_np(value: Any) -> Any:
    """Turns new arrays and symbols, or lists of them, into the `mx.np` kind. They must have no other references."""
    if isinstance(value, (list, tuple)):
        return [as_np(x) for x in value]
    if not _NEW:
        late.load_numpy()
    kind = _NEW.get(value.__class__)
    if kind is not None:
        value.__class__ = kind
    return value


def as_current(value: Any) -> Any:
    """`as_np`, if this thread uses `mx.np` arrays (`set_np`)."""
    return as_np(value) if is_np_array() else value


def as_nd(value: Any) -> Any:
    """Turns a new array or symbol into the `mx.nd` or `mx.sym` kind. It must have no other references."""
    kind = _OLD.get(value.__class__)
    if kind is not None:
        value.__class__ = kind
    return value


def lazy_packages(package: str, symbolic: bool) -> Callable[[str], Any]:
    """A function that returns `np`, `numpy`, `npx` or `numpy_extension` of `mx.nd` or `mx.sym`; None for other names.

    The modules are made on first use, as few programs need them.
    """
    made: dict[str, Any] = {}

    def find(name: str) -> Any:
        if name not in ("np", "numpy", "npx", "numpy_extension"):
            return None
        if not made:
            made.update(late.numpy_packages(package, symbolic))
        return made[name]

    return find
