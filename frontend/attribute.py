"""`AttrScope`: attributes for every symbol made inside a `with` (`ctx_group`, `__lr_mult__`, …)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from gluonjit.language import mxnet_names as _mxnet_names


class _Current(threading.local):
    """The innermost scope of this thread, as `value`."""

    def __init__(self) -> None:
        self.value: AttrScope = AttrScope()


class AttrScope:
    """`with AttrScope(ctx_group='dev1'):` — values are strings; an inner scope adds to the outer one."""

    _current: _Current

    def __init__(self, **attrs: str) -> None:
        if not all(isinstance(value, str) for value in attrs.values()):
            raise ValueError("Attributes need to be string")
        self._attr = attrs
        self._outer: list[tuple[AttrScope, dict[str, str]]] = []

    def get(self, attr: Mapping[str, str] | None) -> dict[str, str]:
        """The scope's attributes, overridden by `attr`; always a new dict."""
        return {**self._attr, **(attr or {})}

    def __enter__(self) -> AttrScope:
        outer = AttrScope._current.value
        self._outer.append((outer, self._attr))
        self._attr = {**outer._attr, **self._attr}
        AttrScope._current.value = self
        return self

    def __exit__(self, *exception: Any) -> None:
        AttrScope._current.value, self._attr = self._outer.pop()


AttrScope._current = _Current()


def current() -> AttrScope:
    """The scope whose attributes this thread's next symbol gets."""
    return AttrScope._current.value


_mxnet_names.explain(__name__)
