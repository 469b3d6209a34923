"""`sort`, `argsort` and `topk` beside NumPy, plainly and hybridized, on one thread: `python -m benchmarks.sorting`.

Times are those that the thread computes, medians of turns, so that all see the same machine. Plain calls are native
from the one on that pays for compiling; "before" compares those before it, without the first, with NumPy's calls of the
same numbers. NumPy's way to the first ten is `argpartition`, then `argsort` of what it found. Memory that is freed
stays with the process: whether the system takes it back, and clears it again for the next result, is chance, and may
cost more than sorting.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.command_line import parser
from benchmarks.peak import interleaved

SHAPES = ((4096, 8), (4096, 32), (1024, 128), (264, 1024), (264, 4096), (8, 65536), (1, 1000000))
_FIRST = 10
_EARLY = range(1, 4)
"""Plain calls that are not native yet, if they sort less than a million elements."""
_NATIVE = 32
"""The number of calls after which plain ones are native, and go straight there."""


def _first_ten(x: np.ndarray) -> np.ndarray:
    found = np.argpartition(-x, _FIRST - 1, axis=-1)[..., :_FIRST]
    return np.take_along_axis(found, np.argsort(-np.take_along_axis(x, found, -1), axis=-1), -1)


OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "sort": (lambda F, x: F.sort(x), np.sort),
    "argsort": (lambda F, x: F.argsort(x, dtype="int64"), np.argsort),
    "topk": (lambda F, x: F.topk(x, k=_FIRST, dtype="int64"), _first_ten),
}


def _timed(call: Callable[..., Any], *operands: Any) -> Callable[[int], float]:
    def seconds(times: int) -> float:
        start = time.thread_time()
        for _ in range(times):
            y = call(*operands)
            if hasattr(y, "wait_to_read"):
                y.wait_to_read()
        return time.thread_time() - start

    return seconds


def _keep_memory() -> None:
    """Makes glibc keep what is freed."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        for parameter in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            libc.mallopt(parameter, 1 << 30)


def main() -> None:
    p = parser("sorting", __doc__, "sort topk --dtype float64")
    p.add_argument("operators", nargs="*", default=list(OPERATORS), help=f"of {', '.join(OPERATORS)} (default: all)")
    p.add_argument("--dtype", default="float32", help="(default: %(default)s)")
    args = p.parse_args()
    _keep_memory()
    import gluonjit as mx

    class Net(mx.gluon.HybridBlock):
        def __init__(self, call: Callable[[Any, Any], Any]) -> None:
            super().__init__()
            self.call = call

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return self.call(F, x)

    mx.set_num_threads(1)
    rng = np.random.default_rng(0)
    print("by NumPy's time:")
    print(f"{'':8} {'shape':>14} {'NumPy, ns an element':>21} {'plain':>6} {'before':>7} {'hybridized':>11}")
    for name in args.operators:
        call, reference = OPERATORS[name]
        for shape in SHAPES:
            if name == "topk" and shape[1] < _FIRST:
                continue
            data = (1000 * rng.standard_normal(shape)).astype(args.dtype)
            x, net = mx.nd.array(data, dtype=args.dtype), Net(call)
            net.hybridize()
            calls = _timed(reference, data), _timed(call, mx.nd, x), _timed(net, x)
            first = [[call(1) for _ in range(_NATIVE)] for call in calls[:2]]
            numpy, plain, ours = interleaved(calls)
            early = statistics.median(first[1][k] for k in _EARLY) / statistics.median(first[0][k] for k in _EARLY)
            each = 1e9 * numpy / data.size
            ratios = f"{plain / numpy:6.2f} {early:7.2f} {ours / numpy:11.2f}"
            print(f"{name:8} {shape!s:>14} {each:21.2f} {ratios}", flush=True)


if __name__ == "__main__":
    main()
