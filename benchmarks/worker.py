"""A process with one engine and one model, which executes commands from standard input.

    python -m benchmarks.worker ENGINE FOLDER CPUS

ENGINE is a function of this package that returns a `peers.Loaded`, such as `peers.litert:load`; FOLDER holds the model;
CPUS are those that the process may use, such as `0,1`, with one thread for each. The process writes a line of JSON when
the model has run once, and one for each line that it reads:

    turn N       calls the model once, then N times: {"wall", "cpu", "waited"} in seconds for those N. `waited` is how
                 long its threads were ready to run but had no core; null if the system does not report it
    outputs PATH  calls it once more and saves the outputs (.npz)

If loading fails, it writes {"failed": why}. This module needs only Python 3.8, NumPy and the engine.
"""

from __future__ import annotations

import glob
import importlib
import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path


def _waited():
    """Seconds that this process's threads have spent in queues for a core, or None."""
    total = 0
    try:
        for path in glob.glob("/proc/self/task/*/schedstat"):
            with open(path) as f:
                total += int(f.read().split()[1])
    except (OSError, IndexError):  # another system, or a thread that has just ended
        return None
    return total / 1e9


def _turn(call, args, count):
    call(*args)  # fills caches, wakes threads
    turns = itertools.repeat(None, count)
    waited, cpu, wall = _waited(), time.process_time(), time.perf_counter()
    for _ in turns:
        call(*args)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = _waited()
    return {"wall": wall, "cpu": cpu, "waited": None if waited is None or after is None else after - waited}


def peak_memory():
    """The most bytes that this process has had in memory."""
    try:
        with open("/proc/self/status") as f:
            return next(1024 * int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        pass  # another system
    # On Linux this would count what the process that started this one had.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _load(engine, folder, threads):
    """(what was loaded, facts about it)"""
    from benchmarks.model import Model

    module, _, function = engine.partition(":")
    start = time.perf_counter()
    loaded = getattr(importlib.import_module(f"benchmarks.{module}"), function)(Model(Path(folder)), threads)
    loaded.call(*loaded.args)
    facts = {"first": time.perf_counter() - start, "memory": peak_memory()}
    return loaded, {**facts, "version": loaded.version, "work": loaded.work}


def main(engine, folder, cpus):
    # The protocol has the old standard output to itself: engines print what they like to the new one.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    chosen = [int(cpu) for cpu in cpus.split(",")]
    # Before anything is imported that counts cores or starts threads.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, chosen)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(len(chosen))

    def reply(facts):
        replies.write(json.dumps(facts) + "\n")

    try:
        loaded, facts = _load(engine, folder, len(chosen))
    except Exception as e:
        reply({"failed": f"{type(e).__name__}: {e}"})
        return
    reply(facts)
    for line in sys.stdin:
        command, _, word = line.strip().partition(" ")
        if command == "turn":
            reply(_turn(loaded.call, loaded.args, int(word)))
        elif command == "outputs":
            import numpy as np

            np.savez(word, *loaded.to_numpy(loaded.call(*loaded.args)))
            reply({})


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # some engines crash in their destructors
