"""Who does the work: this process, processes beside it, workers of Ray, or workers of Dask."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.tools.scoring.plan import Part
from gluonjit.tools.scoring.scorer import Job, score

Told = Callable[[int], object]
"""Called with the number of rows that are done."""

RETRIES = 3
"""How often workers may die, one after the other, before that is an error."""


def run(engine: str, job: Job, parts: Sequence[Part], workers: int, address: str | None, told: Told) -> None:
    """Scores all parts, by `workers` processes. The first error ends it; what others are doing is left to them."""
    engines = {"local": _local, "ray": _ray, "dask": _dask}
    for rows in engines[engine](job, parts, workers, address, told):
        told(rows)


def _local(job: Job, parts: Sequence[Part], workers: int, address: str | None, told: Told) -> Iterator[int]:
    if workers == 1:
        for part in parts:
            score(job, part, told)
        return
    left = list(parts)
    deaths = 0
    while left:
        try:
            for part, rows in _pool(job, left, workers):
                left.remove(part)
                deaths = 0
                yield rows
        except BrokenProcessPool:
            deaths += 1
            if deaths > RETRIES:
                raise MXNetError(
                    f"workers have ended {deaths} times, killed or out of memory, without a finished part between; "
                    "fewer --workers or a smaller --batch-size need less memory; the same command goes on"
                ) from None
            print("a worker has ended, killed or out of memory: its part is begun again", file=sys.stderr)


def _pool(job: Job, parts: Sequence[Part], workers: int) -> Iterator[tuple[Part, int]]:
    """Parts as they are finished, and their rows. BrokenProcessPool if a worker has died."""
    # Not forked: a worker's model has threads of its own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_end_with_the_parent) as pool:
        waiting = {pool.submit(score, job, part): part for part in parts}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_the_parent() -> None:
    """Ends this process when the one that started it has died, which leaves it no time to say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="gluonjit parent", daemon=True).start()


def _ray(job: Job, parts: Sequence[Part], workers: int, address: str | None, told: Told) -> Iterator[int]:
    try:
        import ray
    except ImportError as e:
        raise MXNetError("--engine ray needs Ray: pip install ray") from e
    cpus = max(job.predictor.threads or 1, 1)
    ours = not ray.is_initialized()
    if ours:
        local: dict[str, Any] = {"num_cpus": workers * cpus, "include_dashboard": False} if address is None else {}
        ray.init(address=address, log_to_driver=False, **local)
    try:
        remote = ray.remote(num_cpus=cpus, max_retries=3)(score)
        left = list(parts)
        running = [remote.remote(job, left.pop(0)) for _ in range(min(workers, len(left)))]
        while running:
            (done,), running = ray.wait(running)
            try:
                yield ray.get(done)
            except ray.exceptions.RayTaskError as e:
                raise _cause(e.as_instanceof_cause()) from e
            if left:
                running.append(remote.remote(job, left.pop(0)))
    finally:
        if ours:
            ray.shutdown()


def _dask(job: Job, parts: Sequence[Part], workers: int, address: str | None, told: Told) -> Iterator[int]:
    try:
        from dask.distributed import Client, LocalCluster
        from dask.distributed import as_completed as finished
    except ImportError as e:
        raise MXNetError('--engine dask needs Dask: pip install "dask[distributed]"') from e
    local = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    cluster = LocalCluster(**local) if address is None else None
    try:
        with Client(cluster if cluster is not None else address) as client:
            waiting = [client.submit(score, job, part, pure=False, retries=3) for part in parts]
            for done in finished(waiting):
                yield done.result()
    finally:
        if cluster is not None:
            cluster.close()


def _cause(error: Exception) -> Exception:
    """An error of a worker, as it is told here."""
    if isinstance(error, MXNetError):
        return MXNetError(str(error.cause if hasattr(error, "cause") else error))
    return error
