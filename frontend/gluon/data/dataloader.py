"""`DataLoader`: batches of a dataset, made in the calling thread, by other threads, or by other processes.

Worker processes are forked if the system can, so that datasets need not be pickled; they return pickled batches. An
error in a worker, or its death, is raised when the batch is requested.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import sys
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit import context, ndarray, util
from gluonjit.base import MXNetError
from gluonjit.gluon.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language import rng
from gluonjit.language.kinds import as_current
from gluonjit.ndarray import NDArray

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["DataLoader", "default_batchify_fn", "default_mp_batchify_fn"]


def default_batchify_fn(data: Any) -> Any:
    """A batch of examples: arrays are stacked, tuples batched part by part (a list), others converted to an array, of
    `mx.np` after `set_np`."""
    if isinstance(data[0], NDArray):
        try:
            return ndarray.stack(*data)
        except MXNetError as e:
            raise MXNetError(_differing(data, e)) from e
    if isinstance(data[0], tuple):
        return [default_batchify_fn(part) for part in zip(*data)]
    try:
        stacked = np.asarray(data)
    except ValueError as e:
        raise ValueError(_differing(data, e)) from e
    return as_current(ndarray.array(stacked, dtype=stacked.dtype))


def _differing(data: Sequence[Any], error: Exception) -> str:
    """Which two examples cannot form a batch, because their shapes differ; else what the error says."""
    try:
        shapes = [np.shape(x) for x in data]
    except ValueError:  # an example that is no array by itself
        return str(error)
    for k, shape in enumerate(shapes):
        if shape != shapes[0]:
            return (
                f"the examples of a batch differ in shape: number 0 is {shapes[0]}, number {k} is {shape}; "
                "DataLoader(batchify_fn=...) takes a function that makes batches of such"
            )
    return str(error)


default_mp_batchify_fn = default_batchify_fn
"""The default for worker processes. MXNet's puts the batch into shared memory."""


def _as_in_context(data: Any, ctx: context.Context) -> Any:
    """Nested `data` with its arrays on `ctx`; tuples become lists."""
    if isinstance(data, NDArray):
        return data.as_in_context(ctx)
    return [_as_in_context(part, ctx) for part in data] if isinstance(data, (list, tuple)) else data


# Workers

_worker_dataset: Any = None
"""In a worker process, the dataset; it is inherited by the fork."""


def _worker_initializer(dataset: Any, seed: int, started: Any, semantics: tuple[bool, bool]) -> None:
    import signal

    global _worker_dataset
    _worker_dataset = dataset
    util.set_np(*semantics)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C and stops its workers
    with started.get_lock():
        started.value += 1
        own = (seed + started.value) % 2**32
    # Forked processes would otherwise all draw the same random numbers.
    np.random.seed(own)
    random.seed(own)
    rng.seed(own)


def _worker_fn(samples: Any, batchify_fn: Callable[[Any], Any], dataset: Any = None) -> bytes:
    """Makes a batch in a worker process; returns it pickled."""
    return _pickled(batchify_fn([_worker_dataset[k] for k in samples]))


def _pickled(batch: Any) -> bytes:
    from multiprocessing.reduction import ForkingPickler

    buffer = io.BytesIO()
    ForkingPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(batch)
    return buffer.getvalue()


def _thread_worker_fn(samples: Any, batchify_fn: Callable[[Any], Any], dataset: Any) -> Any:
    return batchify_fn([dataset[k] for k in samples])


class _Ticket:
    """A batch that is being made; `get(timeout)` is as in `multiprocessing.pool.AsyncResult`."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def get(self, timeout: float | None = None) -> Any:
        from concurrent.futures import TimeoutError as FutureTimeout
        from multiprocessing import TimeoutError as PoolTimeout

        try:
            return self._future.result(timeout)
        except FutureTimeout as e:
            if self._future.done():
                raise  # the TimeoutError was raised in the worker
            raise PoolTimeout from e

    def __del__(self) -> None:
        self._future.cancel()  # the batch can no longer be requested


class _WorkerPool:
    """Threads or processes that make batches; it has the methods of `multiprocessing.Pool` that are used here."""

    def __init__(self, workers: int, dataset: Any, threads: bool) -> None:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

        self.stopped = False
        self._executor: Executor
        semantics = util.is_np_shape() or util.is_np_array(), util.is_np_array()  # each thread has its own
        if threads:
            self._executor = ThreadPoolExecutor(workers, "DataLoader", util.set_np, semantics)
            return
        fork = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
        start = multiprocessing.get_context("fork" if fork else None)
        state: Any = np.random.get_state()
        seed = zlib.crc32(state[1].tobytes() + bytes(str(state[2]), "ascii"))  # follows np.random.seed, draws nothing
        self._executor = ProcessPoolExecutor(
            workers, start, initializer=_worker_initializer, initargs=(dataset, seed, start.Value("i", -1), semantics)
        )
        with warnings.catch_warnings():
            # Python warns that threads do not survive a fork; gluonjit's runtime starts new ones in the child.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            self._executor.submit(os.getpid).result()

    def apply_async(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> _Ticket:
        return _Ticket(self._executor.submit(function, *arguments))

    def terminate(self) -> None:
        """Stops everything without waiting."""
        self.stopped = True
        processes = dict(getattr(self._executor, "_processes", None) or {})
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes.values():
            process.terminate()


class _MultiWorkerIter:
    """The batches of a pool, in order, `prefetch` ahead. `dataset` None: workers are processes, which have inherited it
    and return pickled batches."""

    def __init__(
        self,
        worker_pool: Any,
        batchify_fn: Callable[[Any], Any],
        batch_sampler: Sampler,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        worker_fn: Callable[..., Any] = _worker_fn,
        prefetch: int = 0,
        dataset: Any = None,
        data_loader: Any = None,
        timeout: float = 120,
    ) -> None:
        self._worker_pool = worker_pool
        self._batchify_fn = batchify_fn
        self._batch_sampler = batch_sampler
        self._pin_memory = pin_memory
        self._pin_device_id = pin_device_id
        self._worker_fn = worker_fn
        self._dataset = dataset
        self._data_loader = data_loader  # keeps the loader, which owns the pool, alive
        self._timeout = timeout
        self._data_buffer: dict[int, Any] = {}
        self._rcvd_idx = 0
        self._sent_idx = 0
        self._iter = iter(self._batch_sampler)
        for _ in range(prefetch):
            self._push_next()

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def _push_next(self) -> None:
        samples = next(self._iter, None)
        if samples is None:
            return
        arguments = (samples, self._batchify_fn, self._dataset)
        self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(self._worker_fn, arguments)
        self._sent_idx += 1

    def __next__(self) -> Any:
        from concurrent.futures import BrokenExecutor
        from multiprocessing import TimeoutError as PoolTimeout

        self._push_next()
        if self._rcvd_idx == self._sent_idx:
            raise StopIteration
        ticket = self._data_buffer.pop(self._rcvd_idx)
        try:
            batch = ticket.get(self._timeout)
        except PoolTimeout as e:
            self._worker_pool.terminate()
            raise MXNetError(
                f"no batch came for {self._timeout} seconds: a worker hangs, or is slow; "
                "DataLoader(timeout=…) gives it more time"
            ) from e
        except BrokenExecutor as e:
            self._worker_pool.terminate()
            raise MXNetError("a DataLoader worker died: it crashed, or the system killed it for lack of memory") from e
        self._rcvd_idx += 1
        if self._dataset is None:
            batch = pickle.loads(batch)
        return _as_in_context(batch, context.cpu_pinned(self._pin_device_id)) if self._pin_memory else batch

    next = __next__

    def __iter__(self) -> _MultiWorkerIter:
        return self


class DataLoader:
    """Batches of a dataset; each iteration draws a new order from the sampler.

    * `batch_size` with `shuffle` or `sampler`, and `last_batch` ('keep', 'discard', 'rollover'); or a `batch_sampler`
      that yields lists of indices.
    * `batchify_fn(examples)` makes a batch from a list of examples.
    * `num_workers`: the number of processes (`thread_pool`: threads) that make batches ahead; with 0, batches are made
      when they are requested. Processes see the dataset as it was when the loader was created. `prefetch` is the
      number of batches made ahead, by default twice `num_workers`; MXNetError if a batch takes over `timeout` seconds.
    * `pin_memory` sets the batches' context to `cpu_pinned(pin_device_id)`.
    * `auto_reload` starts making the next epoch's batches before they are requested.

    >>> dataset = gluon.data.ArrayDataset(mx.nd.ones((5, 3)), [0, 1, 2, 3, 4])
    >>> [(x.shape, y.asnumpy().tolist()) for x, y in gluon.data.DataLoader(dataset, batch_size=2)]
    [((2, 3), [0, 1]), ((2, 3), [2, 3]), ((1, 3), [4])]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Sampler | None = None,
        last_batch: str | None = None,
        batch_sampler: Sampler | None = None,
        batchify_fn: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float = 120,
        auto_reload: bool = False,
    ) -> None:
        if timeout <= 0:
            raise AssertionError(f"timeout must be positive, given {timeout}")
        if batch_sampler is None:
            if batch_size is None:
                raise ValueError("batch_size must be specified unless batch_sampler is specified")
            if sampler is not None and shuffle:
                raise ValueError("shuffle must not be specified if sampler is specified")
            if sampler is None:
                sampler = (RandomSampler if shuffle else SequentialSampler)(len(dataset))
            batch_sampler = BatchSampler(sampler, batch_size, last_batch or "keep")
        elif batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError(
                "batch_size, shuffle, sampler and last_batch must not be specified if batch_sampler is specified."
            )
        self._dataset = dataset
        self._batch_sampler = batch_sampler
        self._pin_memory = pin_memory
        self._pin_device_id = pin_device_id
        self._thread_pool = thread_pool
        self._timeout = timeout
        self._num_workers = max(0, num_workers)
        self._prefetch = max(0, 2 * self._num_workers if prefetch is None else int(prefetch))
        if batchify_fn is None:
            batchify_fn = default_mp_batchify_fn if self._num_workers else default_batchify_fn
        self._batchify_fn = batchify_fn
        self._worker_pool: Any = None
        self._start_workers()
        self.auto_reload = auto_reload
        self._iter: Iterator[Any] | None = None
        if auto_reload:
            self.refresh()

    def _start_workers(self) -> None:
        """Starts workers, if `num_workers` is not 0 and none are running."""
        if self._num_workers and (self._worker_pool is None or self._worker_pool.stopped):
            self._worker_pool = _WorkerPool(self._num_workers, self._dataset, self._thread_pool)
            # Not __del__, which the interpreter may call when it has taken modules apart that terminate() needs.
            weakref.finalize(self, self._worker_pool.terminate)

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if self._iter is None:
            self.refresh()
        batches, self._iter = self._iter, None
        assert batches is not None
        yield from batches
        if self._iter is None and self.auto_reload:
            self.refresh()

    def refresh(self) -> None:
        """Starts making the batches of the next iteration."""
        self._iter = self._prefetch_iter()

    def clean(self) -> None:
        """Drops the batches that `refresh` or `auto_reload` started."""
        self._iter = None

    def _prefetch_iter(self) -> Iterator[Any]:
        if not self._num_workers:
            return self._here()
        self._start_workers()
        return _MultiWorkerIter(
            self._worker_pool,
            self._batchify_fn,
            self._batch_sampler,
            self._pin_memory,
            self._pin_device_id,
            _thread_worker_fn if self._thread_pool else _worker_fn,
            self._prefetch,
            self._dataset if self._thread_pool else None,
            timeout=self._timeout,
        )

    def _here(self) -> Iterator[Any]:
        for samples in self._batch_sampler:
            batch = self._batchify_fn([self._dataset[k] for k in samples])
            yield _as_in_context(batch, context.cpu_pinned(self._pin_device_id)) if self._pin_memory else batch


_mxnet_names.explain(__name__)
_of_mxnet = globals()["__getattr__"]


def __getattr__(name: str) -> Any:
    """Imports `ForkingPickler` on first use: programs take it from here, and `multiprocessing` takes long to import."""
    if name == "ForkingPickler":
        from multiprocessing.reduction import ForkingPickler

        return ForkingPickler
    return _of_mxnet(name)
