"""Automatic names of symbols and blocks.

`NameManager` counts each hint (`fc0`, `fc1`), `Prefix` also puts a prefix in front.

Managers nest by `with`; each thread has its own stack of them.
"""

from __future__ import annotations

import threading
from typing import Any


class _Current(threading.local):
    """The innermost manager of this thread, as `value`; a thread starts with a manager of its own."""

    def __init__(self) -> None:
        self.value: NameManager = NameManager()


class NameManager:
    """Gives a name made of the hint and a running number to whatever has none."""

    _current: _Current

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}
        self._outer: list[NameManager] = []

    def get(self, name: str | None, hint: str) -> str:
        """`name` when the user gave one, otherwise `hint` and the next number for it."""
        if name:
            return name
        count = self._counter.get(hint, 0)
        self._counter[hint] = count + 1
        return f"{hint}{count}"

    def __enter__(self) -> NameManager:
        self._outer.append(NameManager._current.value)
        NameManager._current.value = self
        return self

    def __exit__(self, *exception: Any) -> None:
        NameManager._current.value = self._outer.pop()


class Prefix(NameManager):
    """Puts `prefix` in front of every name, given ones included; it has counters of its own."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + super().get(name, hint)


NameManager._current = _Current()


def current() -> NameManager:
    """The manager that names what this thread makes next."""
    return NameManager._current.value
