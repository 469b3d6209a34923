"""The tutorial's models, imperative and hybridized: same answers, less time. `make demo` runs this."""

import sys
import time

import hybridnet
import lenet
import mlp
import numpy as np

import gluonjit as mx
from gluonjit.codegen.target import host
from gluonjit.execution.cached_call import trace_call
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import PIPELINE

TOLERANCE = 1e-5
CALLS = 1000


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
    title("MLP, as traced")
    graph = trace_call(net, (x,))
    print(graph)
    title("MLP, optimized: what native code is made from")
    print(run_passes(graph, PIPELINE, target=host()))
    title("MLP, answers")
    ok &= compare(net, x)
    title(f"MLP, {CALLS} calls")
    after = clock(net, x)
    print(f"imperative {before:7.1f} ms\nhybridized {after:7.1f} ms, {before / after:.0f} times as fast")

    title("What hybrid_forward sees: every call imperatively, and only the first call hybridized")
    net = hybridnet.net()
    x = mx.nd.random.uniform(shape=(1, 4))
    net(x)
    net.hybridize()
    for call in (1, 2):
        print(f"hybridized call {call}:")
        net(x)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
