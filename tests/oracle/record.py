"""Asks real MXNet 1.9.1 for the results of every operator sample, and keeps them in `tests/data/operators-*.npz`.

It runs in a venv of its own, because MXNet needs an old NumPy:

    python3.11 -m venv oracle && oracle/bin/pip install "numpy==1.23.5" "mxnet==1.9.1"
    oracle/bin/python tests/oracle/record.py [family … variants]

`tests/operators/test_oracle.py` replays the recording. A case's results are stored as `<operator>/<number>/<k>`, its
inputs only as a checksum, `<operator>/<number>/inputs`, for they are made anew from the samples. Of the variants
(`operators/variants.py`), there is one of each kind, `<operator>/<kind>/<k>`, of case `<operator>/<kind>/number`, or
`<operator>/<kind>/refused`: why there is none.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet._ctypes.ndarray import _imperative_invoke
from mxnet.base import _LIB, check_call

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from operators import samples, samples_custom, variants  # noqa: E402


def ask(case: samples.Case) -> list[np.ndarray]:
    """What MXNet's imperative call gives: all results that a user gets to see."""
    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(case.operator.encode(), ctypes.byref(handle)))
    inputs = [mx.nd.array(x, dtype=x.dtype) for x in case.inputs]
    mode = mx.autograd.train_mode() if case.training else mx.autograd.predict_mode()
    with mode, mx.util.np_shape(case.operator.startswith("_np")):  # operators of mx.np know tensors of rank 0
        keys, values = list(case.attrs), [str(v) for v in case.attrs.values()]
        place: Any = inputs[0] if case.operator == "_scatter_set_nd" else None  # which works in place alone
        if "multi_" in case.operator and case.operator.endswith("_update"):  # so do these, on the weights
            count = case.attrs.get("num_weights") or case.attrs["num_tensors"]
            place = inputs[:: len(inputs) // count][:count]
        out = _imperative_invoke(handle.value, inputs, keys, values, place, False, False)
    return [y.asnumpy() for y in (out if isinstance(out, list) else [out])]


def record_variants() -> None:
    """Asks about what has changed: a child process, and another one where it left off when MXNet makes it die."""
    path = TESTS / "data" / "operators-variants.npz"
    before: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
    for name, y in variants.unpack(np.load(path)).items() if path.exists() else ():
        where, _, last = name.rpartition("/")
        before[where][last] = y
    found: dict[str, dict[str, np.ndarray]] = {}
    jobs, sums = [], {}
    for operator in samples.operators():
        for kind in variants.KINDS:
            where, cases = f"{operator}/{kind}", list(variants.of_kind(operator, kind))
            sums[where] = np.uint32(zlib.crc32(repr([(c.checksum(), c.attrs) for c in cases]).encode()))
            if before[where].get("asked") == sums[where]:
                found[where] = before[where]
            else:
                jobs += [(where, case) for case in cases]
    start = 0
    while start < len(jobs):
        for at, results in answers(jobs, start, found):
            start = at + 1
            if results is None:
                break
            where, case = jobs[at]
            if isinstance(results, list):
                about = {"number": np.int64(case.number), "inputs": np.uint32(case.checksum())}
                found[where] = about | {str(k): y for k, y in enumerate(results)}
            else:
                found.setdefault(where, {"refused": np.array(results)})
    for where, kept in found.items():
        kept["asked"] = sums[where]
    arrays = {f"{where}/{name}": found[where][name] for where in sums if where in found for name in found[where]}
    _save("variants", variants.pack(arrays))


def answers(jobs: list, start: int, found: dict, ask: Callable[[samples.Case], Any] = ask) -> Iterator[tuple[int, Any]]:
    """(job, what `ask` gives or why there is nothing) from `start` on, until the process that computes them dies.

    Jobs for which there are results already are left out. None as results: that was all.
    """
    end, begin = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(begin, "wb") as file:
            done = {where for where, kept in found.items() if "refused" not in kept}
            for at, (where, case) in enumerate(jobs[start:], start):
                if where in done:
                    continue
                pickle.dump((at, ...), file)
                file.flush()
                signal.alarm(5)  # a process that has written where it should not may hang as well
                try:
                    results = ask(case)
                    done.add(where)
                except (mx.MXNetError, ValueError) as e:
                    results = str(e).strip().splitlines()[-1]
                pickle.dump((at, results), file)
                file.flush()
            pickle.dump((len(jobs), None), file)
        os._exit(0)
    os.close(begin)
    at = start
    with os.fdopen(end, "rb") as file:
        try:
            while at < len(jobs):
                at, results = pickle.load(file)
                if results is not ...:
                    yield at, results
        except (EOFError, pickle.UnpicklingError):
            yield at, "MXNet's process dies"
    os.waitpid(child, 0)


def _save(name: str, arrays: dict[str, np.ndarray]) -> None:
    path = TESTS / "data" / f"operators-{name}.npz"
    np.savez_compressed(path, **arrays)
    print(f"{path}: {len(arrays)} arrays, {path.stat().st_size / 1000:.0f} kB")


def main(families: list[str]) -> None:
    samples_custom.define(mx)
    recorded: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
    refused = []
    for operator in samples.operators():
        for case in samples.cases(operator):
            if not case.oracle or families and case.sample.family not in families:
                continue
            try:
                results = ask(case)
            except mx.MXNetError as e:
                refused.append(f"MXNet refuses {case} {case.attrs}: {str(e).strip().splitlines()[-1]}")
                continue
            file = recorded[case.sample.family]
            file[f"{operator}/{case.number}/inputs"] = np.uint32(case.checksum())
            for k, y in enumerate(results):
                file[f"{operator}/{case.number}/{k}"] = y
    if refused:
        raise SystemExit("\n".join(refused))
    for family, arrays in recorded.items():
        _save(family, arrays)
    if not families or "variants" in families:
        record_variants()


if __name__ == "__main__":
    main(sys.argv[1:])
