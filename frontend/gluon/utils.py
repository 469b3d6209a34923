"""Small things that blocks and parameters share."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Iterable
from typing import Any


class HookHandle:
    """What `register_forward_hook` returns: `detach()` removes the hook, as does leaving it as a context manager."""

    def __init__(self) -> None:
        self._hooks: Callable[[], Any] | None = None
        self._id: int | None = None

    def attach(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        if self._hooks is not None:
            raise AssertionError("The same handle cannot be attached twice.")
        self._id = id(hook)
        hooks[self._id] = hook
        self._hooks = weakref.ref(hooks)

    def detach(self) -> None:
        """Removes the hook. Doing it again, or after the block is gone, does nothing."""
        hooks = self._hooks() if self._hooks is not None else None
        if hooks is not None:
            hooks.pop(self._id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.detach()

    # A weak reference cannot be pickled; the dictionary it points to can.
    def __getstate__(self) -> tuple[Any, int | None]:
        return (self._hooks() if self._hooks is not None else None, self._id)

    def __setstate__(self, state: tuple[Any, int | None]) -> None:
        hooks, self._id = state
        self._hooks = weakref.ref(hooks if hooks is not None else collections.OrderedDict())


def shape_is_known(shape: tuple[int, ...] | None) -> bool:
    """Whether no dimension is missing: 0 stands for one that is not known yet, and `()` for a shape that is not."""
    if not shape:
        return False
    if min(shape) < 0:
        raise AssertionError(f"shape dimension size cannot be less than 0, while received {min(shape)}")
    return 0 not in shape


def _indent(text: str, spaces: int) -> str:
    """Indents every line but the first."""
    return text.replace("\n", "\n" + " " * spaces)


def _brief_print_list(items: Iterable[Any], limit: int = 7) -> str:
    """At most about `limit` items, quoted, with an ellipsis in the middle."""
    names = [f"'{item}'" for item in items]
    if len(names) > limit:
        names = names[: limit // 2] + ["..."] + names[-(limit // 2) - limit % 2 :]
    return ", ".join(names)
