"""Whether each workload gives the same bits with 1, 2 and 4 threads: `python -m benchmarks.bits [W3 …]`.

4 threads do not need 4 cores for this.
"""

from __future__ import annotations

import sys

import gluonjit as mx
from benchmarks.command_line import parser
from benchmarks.workloads import WORKLOADS, make, results

_THREADS = (1, 2, 4)


def same_bits(key: str, batch: int | None = None) -> bool:
    net, arrays = make(key, batch)
    net.hybridize()
    inputs = [mx.nd.array(x) for x in arrays]
    outputs = set()
    try:
        for threads in _THREADS:
            mx.set_num_threads(threads)
            outputs |= {b"".join(y.asnumpy().tobytes() for y in results(net(*inputs))) for _ in range(2)}
    finally:
        mx.set_num_threads(None)
    return len(outputs) == 1


def main() -> int:
    p = parser("bits", __doc__, "W3 W10")
    p.add_argument("workloads", nargs="*", metavar="W3", help=f"of {', '.join(WORKLOADS)} (default: all)")
    keys = p.parse_args().workloads
    if unknown := [key for key in keys if key not in WORKLOADS]:
        p.error(f"there is no workload {unknown[0]}; there are {', '.join(WORKLOADS)}")
    failed = 0
    for key in keys or WORKLOADS:
        same = same_bits(key)
        failed += not same
        print(f"{key:4} {WORKLOADS[key].title:30} {'same bits' if same else 'DIFFERENT BITS'}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
