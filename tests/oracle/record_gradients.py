"""Asks real MXNet 1.9.1 for the gradients of every operator sample, and keeps them in `tests/data/gradients.npz`.

It runs like `record.py`: `oracle/bin/python tests/oracle/record_gradients.py [operator …]`.

`operators/gradient_cases.py` says which cases there are, and what head gradients each has. Of every case there is
`<case>/inputs` (a checksum) and, for input k of a float type, `<case>/d<k>`; also `<case>/after<k>` if backward changed
the input itself. Or there is `<case>/refused`: MXNet's error.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet._ctypes.ndarray import _imperative_invoke
from mxnet.base import _LIB, check_call

sys.path.insert(0, str(Path(__file__).resolve().parent))
from record import TESTS, answers

sys.path.insert(0, str(TESTS))
from operators import gradient_cases, samples, samples_custom, variants

PATH = TESTS / "data" / "gradients.npz"


def ask(case: samples.Case) -> dict[str, np.ndarray]:
    """The gradients by the float inputs, and what backward changed. Some operators refuse those by some inputs."""
    floats = [k for k, x in enumerate(case.inputs) if x.dtype.kind == "f"]
    try:
        return _gradients(case, floats)
    except (mx.MXNetError, ValueError):
        if len(floats) == 1 or "FGradient" in str(sys.exc_info()[1]):
            raise
        found, refused = {}, None
        for k in floats:
            try:
                found |= _gradients(case, [k])
            except (mx.MXNetError, ValueError) as e:
                refused = e
        if refused is not None and not found:
            raise refused from None
        return found


def _gradients(case: samples.Case, by: list[int]) -> dict[str, np.ndarray]:
    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(case.operator.encode(), ctypes.byref(handle)))
    with mx.util.np_shape(case.operator.startswith("_np")):  # operators of mx.np know tensors of rank 0
        inputs = [mx.nd.array(x, dtype=x.dtype) for x in case.inputs]
        for k in by:
            inputs[k].attach_grad()
        keys, values = list(case.attrs), [str(v) for v in case.attrs.values()]
        with mx.autograd.record(train_mode=case.training):
            out = _imperative_invoke(handle.value, inputs, keys, values, None, False, False)
        out = out if isinstance(out, list) else [out]
        results = [y.asnumpy() for y in out]
        heads = [mx.nd.array(g, dtype=g.dtype) for g in gradient_cases.heads(case, results)]
        mx.autograd.backward(out, heads, train_mode=case.training)
        found = {f"d{k}": inputs[k].grad.asnumpy() for k in by}
        after = {k: x.asnumpy() for k, x in enumerate(inputs)}
    changed = [k for k, x in after.items() if x.tobytes() != case.inputs[k].tobytes()]
    return found | {f"after{k}": after[k] for k in changed}


def main(operators: list[str]) -> None:
    samples_custom.define(mx)
    kept = variants.unpack(np.load(PATH)) if operators else {}
    found = {}
    jobs = []
    for operator in operators or samples.operators():
        jobs += [(gradient_cases.name(case), case) for case in gradient_cases.cases(operator)]
        kept = {name: x for name, x in kept.items() if not name.startswith(f"{operator}/")}
    start = 0
    while start < len(jobs):
        for at, results in answers(jobs, start, {}, ask):
            start = at + 1
            if results is None:
                break
            where, case = jobs[at]
            found[where] = results if isinstance(results, dict) else {"refused": np.array(results.encode()[:200])}
            found[where]["inputs"] = np.uint32(case.checksum())
    arrays = kept | {f"{where}/{name}": np.asarray(x) for where in found for name, x in found[where].items()}
    np.savez_compressed(PATH, **variants.pack(arrays))
    print(f"{PATH}: {len(arrays)} arrays, {PATH.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
