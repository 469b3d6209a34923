"""Several threads that do something at the same time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def at_once(work: Callable[[int], object], count: int) -> None:
    """Runs `work(0)`, `work(1)`, … on a thread each, begun together; raises what any of them raises."""
    start = Barrier(count)

    def run(k: int) -> None:
        start.wait()
        work(k)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(run, k) for k in range(count)]:
            done.result()
