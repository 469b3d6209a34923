"""Calls of a model on a thread of its own, several requests at once where rows of a batch are independent."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


class Full(Exception):
    """Too many requests are waiting: no more are taken."""


class Closed(Exception):
    """The model has been taken out, or exchanged for a newer one."""


@dataclass
class _Waiting:
    arrays: Arrays
    rows: int
    """How many rows it has; 0 if it is not to be merged."""
    key: Any
    """Requests of equal keys can be merged."""
    arrived: float
    latest: float
    """The time after which an answer is of no use, in seconds of `time.monotonic`, as is `arrived`."""
    result: Future[Arrays] = field(default_factory=Future)


class Batcher:
    """Runs `run` on a thread of its own, with up to `most_rows` rows of several requests at once.

    The first request of a batch waits up to `delay` seconds for others; what has come while the model was busy goes
    together at once. `merges`: whether the arrays' first axis is that of rows which do not depend on each other.
    `observe(requests, rows, seconds)` is called after each call of the model. One task sets all results of a call, and
    `hand_over` runs it: if on another thread, the model's goes on at once.
    """

    def __init__(
        self,
        run: Callable[[Arrays], Arrays],
        *,
        merges: bool,
        most_rows: int,
        delay: float,
        most_waiting: int,
        observe: Callable[[int, int, float], None] = lambda requests, rows, seconds: None,
        hand_over: Callable[[Callable[[], None]], object] = lambda task: task(),
        name: str = "model",
    ) -> None:
        self._run, self._observe, self._hand_over = run, observe, hand_over
        self.merges, self.most_rows, self.delay, self.most_waiting = merges, most_rows, delay, most_waiting
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._busy = 0
        self._thread = threading.Thread(target=self._work, name=f"gluonjit {name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait or run."""
        return len(self._queue) + self._busy

    def submit(self, arrays: Arrays, timeout: float = math.inf) -> Future[Arrays]:
        """The results, some time later; TimeoutError if the call did not begin within `timeout` seconds.

        Raises Full and Closed. A future that is cancelled before its call begins is not computed.
        """
        now = time.monotonic()
        counts = {x.shape[0] if x.ndim else 0 for x in arrays.values()} if self.merges else set()
        rows = counts.pop() if len(counts) == 1 else 0
        key = tuple((name, x.dtype, x.shape[1:]) for name, x in arrays.items()) if rows else None
        request = _Waiting(arrays, rows, key, now, now + timeout)
        with self._changed:
            if self._closing:
                raise Closed
            if len(self._queue) >= self.most_waiting:
                raise Full
            self._queue.append(request)
            self._changed.notify()
        return request.result

    def close(self) -> None:
        """Ends the thread when all requests that were taken have been answered."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self) -> None:
        self.close()
        self._thread.join()

    # ---- the thread

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    return
                requests = self._next()
                self._busy = len(requests)
            try:
                answers = self._answers(requests)
            finally:
                self._busy = 0  # before the answers are given: who has one must not find it still running
            self._hand_over(functools.partial(_set, answers))

    def _next(self) -> list[_Waiting]:
        """The requests of the next call; waits for more of them. The lock is held."""
        first = self._queue.popleft()
        requests, rows = [first], first.rows
        if not first.rows:
            return requests
        while True:
            rows = self._gather(requests, rows)
            left = first.arrived + self.delay - time.monotonic()
            if rows >= self.most_rows or left <= 0 or self._closing or self._queue:
                # What is still there does not fit: it must not wait for this batch to fill.
                return requests
            self._changed.wait(left)

    def _gather(self, requests: list[_Waiting], rows: int) -> int:
        """Moves requests that fit from the queue to `requests`; returns how many rows these have."""
        kept: deque[_Waiting] = deque()
        while self._queue and rows < self.most_rows:
            x = self._queue.popleft()
            if x.key == requests[0].key and rows + x.rows <= self.most_rows:
                requests.append(x)
                rows += x.rows
            else:
                kept.append(x)
        self._queue.extendleft(reversed(kept))
        return rows

    def _answers(self, requests: list[_Waiting]) -> list[tuple[_Waiting, Arrays | Exception]]:
        now = time.monotonic()
        running = [x for x in requests if x.result.set_running_or_notify_cancel()]
        late: list[tuple[_Waiting, Arrays | Exception]] = [(x, TimeoutError()) for x in running if now > x.latest]
        live = [x for x in running if now <= x.latest]
        if not live:
            return late
        try:
            results = self._run(joined([x.arrays for x in live]))
            parts = parted(results, [x.rows for x in live])
        except BaseException as e:
            if len(live) > 1 and isinstance(e, Exception):  # one request's fault must not be that of the others
                return late + [(x, self._alone(x)) for x in live]
            error = e if isinstance(e, Exception) else RuntimeError(f"{type(e).__name__}: {e}")
            return late + [(x, error) for x in live]
        self._observe(len(live), sum(x.rows for x in live), time.monotonic() - now)
        return late + list(zip(live, parts, strict=True))

    def _alone(self, x: _Waiting) -> Arrays | Exception:
        try:
            return self._run(x.arrays)
        except Exception as e:
            return e


def _set(answers: list[tuple[_Waiting, Arrays | Exception]]) -> None:
    for x, answer in answers:
        if isinstance(answer, Exception):
            x.result.set_exception(answer)
        else:
            x.result.set_result(answer)


def joined(all_arrays: list[Arrays]) -> Arrays:
    """The arrays of several requests, one after the other."""
    if len(all_arrays) == 1:
        return all_arrays[0]
    return {name: np.concatenate([arrays[name] for arrays in all_arrays]) for name in all_arrays[0]}


def parted(results: Mapping[str, np.ndarray], rows: list[int]) -> list[Arrays]:
    """The results of each request, by the number of its rows. ValueError if the results have no such rows."""
    if len(rows) == 1:
        return [dict(results)]
    ends = np.cumsum(rows)
    for name, y in results.items():
        if y.ndim == 0 or len(y) != ends[-1]:
            raise ValueError(f"output {name} is of shape {y.shape} for {ends[-1]} rows: the model has no rows")
    return [{name: y[end - n : end] for name, y in results.items()} for n, end in zip(rows, ends)]
