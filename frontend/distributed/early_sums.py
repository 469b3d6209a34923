"""Sums of gradients that begin while backward runs.

A program may read or change its gradients between backward and the step, run backward twice, or not at all, and each
rank may do so differently; the sums of a step are those of what the gradients are when it is taken. So what backward
computes is sent ahead of time on trial:

- Every bucket is sent by every rank exactly once for each step: early, if backward has computed it, or else in the
  step, as it is then. So messages of ranks always match, whatever each has done before the step.
- When the step is taken, each rank looks whether the arrays that it has sent early have since been written to
  (`Storage.version`). If any rank finds one, all ranks sum that bucket once more, from what the gradients are now, and
  do without sending it early for a while.

Sums have the same bits in either case, for they add the ranks' elements in order. Nothing of a user's is written
before the step: sums are kept in buffers of their own.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.distributed.processes import BUCKET, Bucket, Processes, grouped
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.gradient_listeners import listeners
from gluonjit.runtime import forks
from gluonjit.runtime.storage import Storage
from gluonjit.runtime.watching import Progress

__all__ = ["EarlySums"]

_BUCKETS, _LEAST = 8, 1 << 16
"""The fewest buckets that gradients are divided into, so that most are summed before backward ends, unless they would
have fewer bytes than this."""
_NAP = 5e-4
"""Seconds between two looks at what backward and the messages have come to: much longer than the microseconds that a
look takes, much shorter than backward."""


_MOST_RESTS = 10
"""A bucket whose sum was of no use rests for 1, 2, 4, … steps, up to 2 to this power."""


_CHANGED, _OTHER_ARRAYS = 1, 2
"""Flags: gradients have changed since they were sent; they are not those arrays that the plan was made for."""


def _wanted() -> bool:
    text = os.environ.get("GLUONJIT_DIST_OVERLAP", "1")
    if text not in ("0", "1"):
        raise MXNetError(f"GLUONJIT_DIST_OVERLAP is 0 or 1, got {text!r}")
    return text == "1"


class EarlySums:
    """The sums of one store. After the first call of `sum` it looks in which order backward computes gradients; after
    the second they begin early, as long as calls are alike."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._wanted = _wanted() and processes.size > 1 and processes.takes_threads
        self._last: Any = None
        self._alike = 0
        """How many calls were like the one before. All ranks count alike."""
        self._order = _Order()
        self._plan: _Plan | None = None
        self._plans: list[_Plan] = []
        finalize(self, _retire, self._plans).atexit = False

    def prepare(self, arrays: Sequence[NDArray]) -> tuple[list[tuple[Any, ...]], int]:
        """The items and flags on which ranks are to `agree`; to be called before that, in a step."""
        if self._plan is None:
            return [], 0
        return [("sums begun in backward", self._plan.number, self._plan.steps)], self._plan.stop(arrays)

    def sum(self, items: Any, arrays: Sequence[NDArray], into: Sequence[np.ndarray], flags: int) -> None:
        """`Processes.sum`. `items`: what ranks have agreed about the arrays; `flags`: what they have agreed about sums
        that were begun."""
        plan, values = self._plan, [x._array for x in arrays]
        if plan is not None:
            if plan.items == items and not flags & _OTHER_ARRAYS:
                plan.finish(values, bool(flags & _CHANGED))
                return
            plan.drain()
            _retire(self._plans)
            self._plan = self._last = None
        self._processes.sum(values, into)
        self._alike = self._alike + 1 if items == self._last else 0
        self._last = items
        if self._alike == 0 and self._wanted:
            self._order.watch(arrays)
        elif self._alike == 1:
            self._make_plan(items, arrays, into)

    def _make_plan(self, items: Any, arrays: Sequence[NDArray], into: Sequence[np.ndarray]) -> None:
        own = self._order.found(arrays) if self._wanted else []
        order, *others = (json.loads(x) for x in self._processes.gather(json.dumps(own).encode()))
        if not order or not all(others):
            return
        limit = max(_LEAST, min(BUCKET, sum(x.nbytes for x in into) // _BUCKETS))
        rest = [k for k in range(len(into)) if k not in {*order}]
        groups = grouped(into, order, limit) + grouped(into, rest, limit)
        tag = self._processes.new_tags(2 * len(groups))
        if tag is not None:
            self._plan = _Plan(self._processes, tag, items, groups, arrays, into)
            self._plans.append(self._plan)


def _retire(plans: list[_Plan]) -> None:
    for plan in plans:
        plan.retire()
    plans.clear()


class _Order:
    """Listens to in which order backward computes gradients."""

    def __init__(self) -> None:
        self._when: WeakKeyDictionary[Storage, tuple[int, int]] = WeakKeyDictionary()
        self._run: Progress | None = None
        self._runs = 0

    def watch(self, arrays: Sequence[NDArray]) -> None:
        self._when.clear()
        for x in arrays:
            listeners[x.storage()] = self

    def computing(self, storage: Storage, gradient: np.ndarray, progress: Progress | None, ready: int) -> None:
        if storage in self._when:
            return
        if progress is None or progress is not self._run:
            self._run = progress
            self._runs += 1
        self._when[storage] = self._runs, ready

    def stored(self, storage: Storage, gradient: np.ndarray) -> None:
        self._run = None

    def found(self, arrays: Sequence[NDArray]) -> list[int]:
        """The numbers of those arrays whose gradients backward has announced, in that order."""
        when = {k: self._when[x.storage()] for k, x in enumerate(arrays) if x.storage() in self._when}
        return sorted(when, key=when.__getitem__)


class _Early:
    """A bucket, and what backward has said of its arrays since the last step. `members`: their numbers."""

    def __init__(self, bucket: Bucket, members: Sequence[int]) -> None:
        self.bucket, self.members = bucket, members
        self.rests = self.repeated = 0
        """Steps in which it is not sent early, and how often its sum was of no use."""
        self.renew()

    def renew(self) -> None:
        count = len(self.members)
        self.stage = 0
        """1: parts are under way; 2: sums are under way; 3: done."""
        self.is_early = False
        self.values: list[np.ndarray | None] = [None] * count
        """What is to be sent."""
        self.gradients: list[np.ndarray | None] = [None] * count
        """The arrays that backward has announced, and not stored yet."""
        self.ends: list[tuple[Progress, int] | None] = [None] * count
        self.versions: list[int | None] = [None] * count
        """The versions of the storages, after the gradients that were announced last were stored."""

    def start(self, values: Sequence[np.ndarray]) -> None:
        self.bucket.start(values)
        self.stage = 1
        if len(values) > 1:
            self.values = [None] * len(values)

    def add(self) -> None:
        self.bucket.add()
        self.stage = 2

    def advance(self, processes: Processes) -> bool:
        """Does what can be done without waiting; returns whether there will be more to do before the step."""
        if self.stage == 0:
            values = [x for x in self.values if x is not None]
            if len(values) < len(self.values):
                return False
            if all(end is None or end[0].steps() >= end[1] for end in self.ends):
                self.is_early = True
                self.start(values)
        elif self.stage < 3 and processes.arrived(self.bucket.requests):
            if self.stage == 1:
                self.add()
            else:
                self.stage = 3
        return self.stage < 3

    @property
    def is_under_way(self) -> bool:
        return self.stage in (1, 2)


class _Plan:
    """Which buckets there are, in the order of backward, and a thread that sends them.

    `number` is the same on all ranks, and the first of the tags; `groups` has the arrays of each bucket, by number."""

    def __init__(
        self,
        processes: Processes,
        number: int,
        items: Any,
        groups: Sequence[Sequence[int]],
        arrays: Sequence[NDArray],
        into: Sequence[np.ndarray],
    ) -> None:
        self.number, self.items = number, items
        self.steps = 0
        self._processes, self._into = processes, into
        self._storages = [x.storage() for x in arrays]
        self._buckets: list[_Early] = []
        for tag, members in zip(itertools.count(number, 2), groups):
            bucket = Bucket(processes, _own_memory, [into[k] for k in members], (tag, tag + 1))
            self._buckets.append(_Early(bucket, members))
        self._places = {
            self._storages[k]: (bucket, place) for bucket in self._buckets for place, k in enumerate(bucket.members)
        }
        self._wake = threading.Condition(forks.renewed())
        self._runs = True
        """Asked between steps: whether buckets are sent as backward computes them."""
        self._retired = self._ended = False
        self._failed: Exception | None = None
        for storage in self._places:
            listeners[storage] = self
        self._thread = threading.Thread(target=self._send, name="gluonjit-sums", daemon=True)
        self._thread.start()
        processes.threads.add(self)

    # On the threads that run backward.

    def computing(self, storage: Storage, gradient: np.ndarray, progress: Progress | None, ready: int) -> None:
        bucket, k = self._places[storage]
        with self._wake:
            if not self._runs or bucket.rests or bucket.stage or bucket.gradients[k] is gradient:
                return
            bucket.gradients[k] = gradient
            bucket.values[k] = gradient.copy() if progress is None else gradient
            bucket.ends[k] = None if progress is None else (progress, ready)
            bucket.versions[k] = None
            if all(x is not None for x in bucket.values):
                self._wake.notify()

    def stored(self, storage: Storage, gradient: np.ndarray) -> None:
        bucket, k = self._places[storage]
        with self._wake:
            bucket.versions[k] = storage.version if bucket.gradients[k] is gradient else None
            bucket.gradients[k] = None

    # On the thread that sends.

    def _send(self) -> None:
        while True:
            with self._wake:
                try:
                    while not (self._ended or self._advance()):
                        if self._retired:
                            return
                        self._wake.wait()
                except Exception as e:  # raised by the next step
                    self._failed = e
                    self._runs = False
                    return
                if self._ended:
                    return
            time.sleep(_NAP)

    def _advance(self) -> bool:
        """Whether there will be more to do before the step."""
        if not self._runs and not self._retired:
            return False
        more = [b.advance(self._processes) for b in self._buckets if b.is_under_way or not self._retired]
        return any(more)

    # On the thread that takes the step.

    def stop(self, arrays: Sequence[NDArray]) -> int:
        """Leaves what is under way to this thread; returns flags."""
        with self._wake:
            self._runs = False
        if self._failed is not None:
            self._processes.check_others("gradients")
            raise self._failed
        self._changed = [bucket.is_early and self._has_changed(bucket) for bucket in self._buckets]
        same = [x.storage() for x in arrays] == self._storages
        return (_CHANGED if any(self._changed) else 0) | (0 if same else _OTHER_ARRAYS)

    def _has_changed(self, bucket: _Early) -> bool:
        storages = [self._storages[k] for k in bucket.members]
        return any(x.exposed or x.version != version for x, version in zip(storages, bucket.versions))

    def finish(self, values: Sequence[np.ndarray], repeats: bool) -> None:
        """The sums of all arrays, of which `values` are the elements."""
        self._complete(values)
        again = [False] * len(self._buckets)
        if repeats:
            again = [any(x) for x in zip(*self._processes.gather(bytes(self._changed)))]
        members: list[int] = []
        for bucket, useless in zip(self._buckets, again):
            if useless:
                members += bucket.members
                bucket.rests = 1 + 2 ** min(bucket.repeated, _MOST_RESTS)
                bucket.repeated += 1
            else:
                bucket.bucket.take()
        if members:
            self._processes.sum([values[k] for k in members], [self._into[k] for k in members])
        with self._wake:
            for bucket in self._buckets:
                bucket.renew()
                bucket.rests = max(0, bucket.rests - 1)
            self.steps += 1
            self._runs = not self._ended

    def drain(self) -> None:
        """Has every rank receive what others have sent, where the next sums are of other arrays."""
        self._complete(self._into)

    def _complete(self, values: Sequence[np.ndarray]) -> None:
        for bucket in self._buckets:
            if bucket.stage == 0:
                bucket.start([values[k] for k in bucket.members])
        for bucket in self._buckets:
            if bucket.stage == 1:
                bucket.bucket.wait("gradients")
                bucket.add()
        for bucket in self._buckets:
            if bucket.stage == 2:
                bucket.bucket.wait("sums of gradients")
                bucket.stage = 3

    # Ends.

    def retire(self) -> None:
        """Sends nothing more. The thread ends, and memory is freed, when what is under way has arrived."""
        for storage in self._places:
            if listeners.get(storage) is self:
                del listeners[storage]
        with self._wake:
            self._retired = True
            self._wake.notify()

    def end(self) -> None:
        """Ends the thread, whatever is under way: MPI is about to end."""
        with self._wake:
            self._ended, self._runs = True, False
            self._wake.notify()
        self._thread.join(5)


def _own_memory(what: str, elements: int, dtype: np.dtype) -> np.ndarray:
    return np.empty(elements, dtype)
