"""`CallChain`: calls with arrays that stay the same, made one after the other in a single native call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.codegen.threads.chain import Chain, Link
from gluonjit.runtime import executable, native, threads
from gluonjit.runtime.executable import Bound, address_of


class CallChain:
    """Bound calls, of which the first ones, or all, run in their order.

    Whoever exchanges an array writes its address to `Bound.table`. Two threads must not run a chain at once. None of
    the calls may call Python, and all treat denormals alike.
    """

    def __init__(self, calls: Sequence[Bound]) -> None:
        self._calls = list(calls)
        self._functions = [call.function for call in calls]
        self._words = np.zeros(Chain.FIRST + Link.SIZE * len(calls), np.int64)
        self._words[Chain.TEAM] = address_of(threads.block)
        links = self._words[Chain.FIRST :].reshape(-1, Link.SIZE)
        for link, call in zip(links, self._calls):
            link[Link.FUNCTION], link[Link.TABLE] = call.function.address, address_of(call.table)
            link[Link.ALONE] = call.function.layout.threads == 1
        self._most = [max(f.layout.threads for f in self._functions[: k + 1]) for k in range(len(calls))]
        """How many threads the calls up to each are worth."""
        self._costs = [sum(f.layout.cost for f in self._functions[: k + 1]) for k in range(len(calls))]
        self._table, self._arenas = address_of(self._words), self._functions[0].arenas
        self._sizes: dict[int, int] = {}
        """The bytes of the arena, by the number of threads."""
        self._arena: Callable[[], Any] = lambda: None
        """Gives the arena that the tables name, if it still exists."""
        self._entry = native.entry().chain
        self.runs = 0
        """How many runs have ended, even if a signal's handler has raised an error then."""

    def run(self, count: int) -> None:
        """Runs the first `count` calls, at least one."""
        if executable.watcher is not None:  # it learns of each function
            self._arena = lambda: None
            for call in self._calls[:count]:
                call()
            self.runs += 1
            return
        most = self._most[count - 1]
        if most > 1:
            most = min(most, threads.usable) or threads.start(most)
        size = self._sizes.get(most)
        if size is None:
            size = self._sizes[most] = max(f.scratch_offset + most * f.layout.scratch for f in self._functions)
        arena = self._arenas.take(size)
        try:
            if self._arena() is not arena:
                for call in self._calls:
                    call.function.fill(call.table, arena)
                self._arena = weakref.ref(arena)
            self._words[Chain.COUNT] = count
            try:
                threads.run(self._entry, self._table, most, self._costs[count - 1], self._functions[0].flush)
            finally:
                self.runs += 1
        finally:
            self._arenas.put(arena)
