"""Asks real MXNet 1.9.1 for the value of every expression in `operators/numpy_expressions.py`: `tests/data/numpy.npz`.

It runs in the venv that `record.py` describes. `tests/frontend/test_numpy_expressions.py` replays the recording.
"""

from __future__ import annotations

import sys
from pathlib import Path

import mxnet as mx
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from operators import numpy_expressions as cases  # noqa: E402


def main() -> None:
    mx.npx.set_np()
    arrays = {name: mx.np.array(x, dtype=x.dtype) for name, x in cases.ARRAYS.items()}
    kept: dict[str, np.ndarray] = {}
    refused = []
    for expression in cases.expressions():
        try:
            results = cases.evaluate(expression, arrays, mx.np, mx.npx)
            kept.update({f"{expression}/{k}": y.asnumpy() for k, y in enumerate(results)})
        except Exception as e:
            refused.append(f"{expression}: {type(e).__name__} {str(e).strip().splitlines()[-1][:120]}")
    if refused:
        raise SystemExit("\n".join(refused))
    names = np.array(list(kept))
    np.savez_compressed(TESTS / "data" / "numpy.npz", names=names, **{str(k): y for k, y in enumerate(kept.values())})


if __name__ == "__main__":
    main()
