"""Asks real MXNet 1.9.1 for the results of every operator sample, and keeps them in `tests/data/operators-*.npz`.

It runs in a venv of its own, because MXNet needs an old NumPy:

    python3.11 -m venv oracle && oracle/bin/pip install "numpy==1.23.5" "mxnet==1.9.1"
    oracle/bin/python tests/oracle/record.py [family …]

`tests/operators/test_oracle.py` replays the recording. A case's results are stored as `<operator>/<number>/<k>`, its
inputs only as a checksum, `<operator>/<number>/inputs`, for they are made anew from the samples.
"""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet._ctypes.ndarray import _imperative_invoke
from mxnet.base import _LIB, check_call

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from operators import samples  # noqa: E402


def ask(case: samples.Case) -> list[np.ndarray]:
    """What MXNet's imperative call gives: all results that a user gets to see."""
    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(case.operator.encode(), ctypes.byref(handle)))
    inputs = [mx.nd.array(x, dtype=x.dtype) for x in case.inputs]
    mode = mx.autograd.train_mode() if case.training else mx.autograd.predict_mode()
    with mode, mx.util.np_shape(case.operator.startswith("_np")):  # operators of mx.np know tensors of rank 0
        keys, values = list(case.attrs), [str(v) for v in case.attrs.values()]
        out = _imperative_invoke(handle.value, inputs, keys, values, None, False, False)
    return [y.asnumpy() for y in (out if isinstance(out, list) else [out])]


def main(families: list[str]) -> None:
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
        path = TESTS / "data" / f"operators-{family}.npz"
        np.savez_compressed(path, **arrays)
        print(f"{path}: {len(arrays)} arrays, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
