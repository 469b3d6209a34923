"""`Store`: what has been compiled of one program, for what, and why.

Hybridized blocks, bound symbols, operators and steps of optimizers keep their code in one each. A *key* is all that the
code of a call depends on. Calls that differ in sizes alone are a *family*: code with open dimensions serves all of its
keys that it fits.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from gluonjit.codes.compile_log import DROPPED, FIRST, CompileLog, Signature, nearest_difference
from gluonjit.codes.open_shapes import HISTORY, Openings
from gluonjit.runtime import forks

CODES = 64
"""Codes of a program that are kept, unless it says otherwise."""
KEYS = 256
"""Keys that share code and are kept."""
MAX_OPEN = 32
"""Codes for open dimensions that are kept: images whose sizes leave other rests have their own."""

Entry = TypeVar("Entry")

_clock = itertools.count(1)


class _Slot(Generic[Entry]):
    __slots__ = ("entry", "used")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.used = next(_clock)


class Store(Generic[Entry]):
    """Entries by their keys. Those that were used least recently go when there are too many. Thread-safe: `find` takes
    no lock; who looks for an entry and then makes it holds `lock`.

    * `code_of`: the code of an entry. At most `limit` codes are kept, which any number of entries may share. Without
      it, at most `limit` entries are kept.
    * `log`: learns of code that has gone, if it is given.
    * `forget(code)` is called when code has gone.
    """

    def __init__(
        self,
        limit: int = CODES,
        code_of: Callable[[Entry], Any] | None = None,
        log: CompileLog | None = None,
        forget: Callable[[Any], object] = lambda code: None,
    ) -> None:
        self.limit = limit
        self.log = log
        self.lock = forks.renewed()
        self._code_of = code_of
        self._forget = forget
        self._slots: dict[Hashable, _Slot[Entry]] = {}
        self._open: list[tuple[Hashable, _Slot[Entry]]] = []
        self._openings: dict[Hashable, Openings] = {}
        self._made: deque[Signature] = deque(maxlen=HISTORY)
        """What code was last made for."""
        self._gone: deque[Hashable] = deque(maxlen=KEYS)
        """Keys whose code has gone because others were used more recently."""

    # ---- entries

    def find(self, key: Hashable) -> Entry | None:
        slot = self._slots.get(key)
        if slot is None:
            return None
        slot.used = next(_clock)
        return slot.entry

    def keep(self, key: Hashable, entry: Entry) -> None:
        """Adds an entry, or replaces that of its key."""
        with self.lock:
            self._slots[key] = _Slot(entry)
            self._make_room(entry)

    def keep_open(self, family: Hashable, entry: Entry) -> None:
        """Adds an entry whose code has open dimensions, and serves a whole family."""
        with self.lock:
            self._open.append((family, _Slot(entry)))
            del self._open[:-MAX_OPEN]

    def open_of(self, family: Hashable) -> Iterator[Entry]:
        """The entries with open dimensions of a family."""
        return (slot.entry for other, slot in list(self._open) if other == family)

    def discard(self, goes: Callable[[Entry], bool]) -> None:
        """Drops the entries of which `goes` says so."""
        with self.lock:
            self._slots = {key: slot for key, slot in self._slots.items() if not goes(slot.entry)}
            self._open = [(family, slot) for family, slot in self._open if not goes(slot.entry)]

    @property
    def items(self) -> list[tuple[Any, Entry]]:
        """All keys, with their entries."""
        return [(key, slot.entry) for key, slot in list(self._slots.items())]

    @property
    def entries(self) -> list[Entry]:
        """The entries of all keys."""
        return [slot.entry for slot in list(self._slots.values())]

    @property
    def open_entries(self) -> list[Entry]:
        """The entries with open dimensions of all families, the latest last."""
        return [slot.entry for _, slot in list(self._open)]

    @property
    def is_full(self) -> bool:
        """Whether something has to go for the next entry."""
        return len(self) >= self.limit

    def __len__(self) -> int:
        """How many codes are kept."""
        with self.lock:
            return len(self._slots) if self._code_of is None else len(self._last_uses())

    def _last_uses(self) -> dict[int, tuple[int, Any]]:
        """When each code was last used, and the code, by its `id`."""
        assert self._code_of is not None
        found: dict[int, tuple[int, Any]] = {}
        for slot in (*self._slots.values(), *(slot for _, slot in self._open)):
            code = self._code_of(slot.entry)
            used, _ = found.get(id(code), (0, None))
            found[id(code)] = max(used, slot.used), code
        return found

    def _make_room(self, new: Entry) -> None:
        most = self.limit if self._code_of is None else KEYS
        if len(self._slots) > most:  # several at once, as looking for them takes long
            for key in sorted(self._slots, key=lambda key: self._slots[key].used)[: 1 + most // 64]:
                del self._slots[key]
        if self._code_of is None:
            return
        others = self._last_uses()
        others.pop(id(self._code_of(new)), None)
        while len(others) >= self.limit:
            _, oldest = others.pop(min(others, key=lambda k: others[k][0]))
            self._drop(oldest)

    def _drop(self, code: Any) -> None:
        assert self._code_of is not None
        of = self._code_of
        self._gone.extend(key for key, slot in self._slots.items() if of(slot.entry) is code)
        self.discard(lambda entry: of(entry) is code)
        if self.log is not None:
            self.log.add(DROPPED, f"{self.limit} others were used since (cache_size)", code)
        self._forget(code)

    # ---- open dimensions

    def openings(self, family: Hashable) -> Openings:
        """What has been tried with the sizes of a family."""
        return self._openings.setdefault(family, Openings())

    def close(self, of: Callable[[Entry], bool], why: str) -> None:
        """Lets the families of those entries with open dimensions that `of` chooses never be tried again."""
        for family, slot in self._open:
            if of(slot.entry):
                self.openings(family).closed = why

    @property
    def closed(self) -> list[str]:
        """Why families are no longer tried with open dimensions."""
        return [tried.closed for tried in self._openings.values() if tried.closed is not None]

    # ---- reasons

    def note_made(self, signature: Signature) -> None:
        """Notes that code has been made for calls of this signature."""
        self._made.append(signature)

    @property
    def made(self) -> list[Signature]:
        """What code was last made for."""
        return list(self._made)

    def why(self, signature: Signature, key: Hashable) -> str:
        """Why there is no code for this signature."""
        if self.log is not None and (dropped := self.log.taken_reason()):
            return dropped
        if key in self._gone:
            return f"its code was evicted, as {self.limit} others had been used since (cache_size)"
        if not self._made:
            return FIRST
        return nearest_difference(signature, reversed(self._made)) or "the parameters have other shapes or types"
