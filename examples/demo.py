"""The tutorial's models, imperative and hybridized: same answers, less time. `make demo` runs this."""

import contextlib
import io
import re
import sys
import time

import hybridnet
import lenet
import mlp
import numpy as np

import gluonjit as mx
from gluonjit.execution.block_compiler import trace_call

TOLERANCE = 1e-5
CALLS = 1000
WIDTH = 116
"""Characters of a line of a graph that are shown."""


def title(text):
    print(f"\n{text}\n{'-' * len(text)}")


def compare(net, x):
    """Runs `net` imperatively, then hybridized; prints how far apart the results are. Returns whether that is fine."""
    imperative = net(x).asnumpy()
    net.hybridize()
    start = time.perf_counter()
    hybridized = net(x).asnumpy()
    seconds = time.perf_counter() - start
    difference = np.abs(hybridized - imperative).max() / np.abs(imperative).max()
    print(f"input {x.shape}, output {hybridized.shape}; traced, compiled and run in {seconds * 1e3:.0f} ms")
    print(
        f"imperative and hybridized differ by {difference:.1e} of the largest output (at most {TOLERANCE:.0e} is right)"
    )
    return difference <= TOLERANCE


def clock(net, x):
    """Milliseconds for CALLS calls."""
    start = time.perf_counter()
    for _ in range(CALLS):
        net(x)
    mx.nd.waitall()
    return (time.perf_counter() - start) * 1e3


def main():
    mx.random.seed(0)
    title("LeNet")
    ok = compare(lenet.net(), mx.nd.random.uniform(shape=(16, 1, 28, 28)))

    net = mlp.net()
    x = mx.nd.random.uniform(shape=(1, 512))
    net(x)
    before = clock(net, x)
    title("MLP, as traced: what native code is made from")
    for line in str(trace_call(net, (x,))).strip().splitlines():
        print(line if len(line) <= WIDTH else line[: WIDTH - 4] + " ...")
    title("MLP, answers")
    ok &= compare(net, x)
    title(f"MLP, {CALLS} calls")
    after = clock(net, x)
    print(f"imperative {before:7.1f} ms\nhybridized {after:7.1f} ms, {before / after:.0f} times as fast")

    title("A net whose hybrid_forward prints its F")
    net = hybridnet.net()
    x = mx.nd.random.uniform(shape=(1, 4))
    for call in ("imperative", "first hybridized", "second hybridized"):
        if call == "first hybridized":
            net.hybridize()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            net(x)
        first, *_ = printed.getvalue().splitlines() or ["nothing: compiled code ran instead"]
        print(f"{call + ' call:':24} {re.sub(' from .*>', '>', first)}")  # not where the module lies

    title("Verdict")
    if not ok:
        print("WRONG: imperative and hybridized answers differ")
        return 1
    print(f"Same answers, and the MLP takes 1/{before / after:.0f} of the time. Next:")
    print("  .venv/bin/gluonjit dump examples/mlp.py:net --input 1x512 --stage optimized   # then: llvm, asm")
    print(
        "  .venv/bin/gluonjit run examples/fire-symbol.json examples/fire-0000.params --input examples/fire-input.npy"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
