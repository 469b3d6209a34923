"""Asks real MXNet 1.9.1 for the results of `tests/operators/control_flow_cases.py`; keeps them in `tests/data`.

It runs in the venv that `record.py` describes:

    oracle/bin/python tests/oracle/record_control_flow.py
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from operators import control_flow_cases  # noqa: E402


def flat(value: Any) -> list[Any]:
    return [y for part in value for y in flat(part)] if isinstance(value, (list, tuple)) else [value]


def main() -> None:
    found = {}
    for name in control_flow_cases.BUILDERS:
        function, arrays = control_flow_cases.make(name)
        found[f"{name}/inputs"] = np.uint32(zlib.crc32(b"".join(x.tobytes() for x in arrays)))
        results = flat(function(mx.nd, *(mx.nd.array(x, dtype=x.dtype) for x in arrays)))
        found.update({f"{name}/{k}": y.asnumpy() for k, y in enumerate(results)})
    path = TESTS / "data" / "control-flow.npz"
    np.savez_compressed(path, **found)
    print(f"{path}: {len(found)} arrays, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
