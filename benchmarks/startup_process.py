"""The process that `benchmarks.startup` times: key, file of parameters, CPUs, and whether to keep packed parameters;
modules to import on standard input."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time


def main(key: str, parameters: str, cpus: str, keep: str = "") -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, json.loads(cpus))
    for name in json.load(sys.stdin):
        importlib.import_module(name)
    import numpy as np

    import gluonjit as mx
    from benchmarks.worker import peak_memory
    from benchmarks.workloads import WORKLOADS, results

    workload = WORKLOADS[key]
    net = workload.build(1)
    net.load_parameters(parameters)
    x = [mx.nd.array(np.zeros(shape, np.float32)) for shape in workload.shapes(workload.batch, 1)]
    net.hybridize()
    cpu, start = time.process_time(), time.perf_counter()
    if keep:
        net.compile(*x, keep=True)
    for y in results(net(*x)):
        y.asnumpy()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = peak_memory()
    entries = net._jit_cached.store.entries
    callees = [getattr(entry, "session", entry).callee for entry in entries]  # older versions have no session
    packed = sum(r.nbytes for callee in callees for p in callee.prepared for r in p.results)
    weights = packed + sum(p.data().asnumpy().nbytes for p in net.collect_params().values())
    modules = [name for name in sys.modules if name.startswith(("gluonjit", "llvmlite", "networkx", "platformdirs"))]
    facts = {"seconds": seconds, "cpu": cpu / seconds, "above": peak - weights, "weights": weights, "modules": modules}
    print(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
