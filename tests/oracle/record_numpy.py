"""Asks real MXNet 1.9.1 for the values of `operators/numpy_expressions.py`, and keeps them in `tests/data/numpy.npz`.

It also exports a network that was written for `mx.np`: `numpy-net-symbol.json`, `.params`, and its results as `net`.

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


class Net(mx.gluon.HybridBlock):
    """A convolution, a layer and operators of `np` behind them."""

    def __init__(self) -> None:
        super().__init__(prefix="net_")
        nn = mx.gluon.nn
        with self.name_scope():
            self.convolution = nn.Conv2D(2, 3, padding=1, in_channels=3)
            self.normalization = nn.BatchNorm(in_channels=2)
            self.dense = nn.Dense(5, in_units=2 * 16)
            self.layer = nn.LayerNorm(in_channels=5)

    def hybrid_forward(self, F, x):  # type: ignore[no-untyped-def]
        x = F.npx.relu(self.normalization(self.convolution(x)))
        x = self.layer(self.dense(x))
        x = F.np.concatenate([x, x * 2 + 1], axis=-1)
        x = F.np.where(x > 0.5, x, F.np.zeros_like(x))
        x = x - F.np.mean(x, axis=-1, keepdims=True) + F.np.max(x)
        pair = F.np.swapaxes(F.np.stack([x, F.np.abs(x)]), 0, 1)
        return F.npx.softmax(pair), F.np.sum(pair), F.np.dot(x, x.T) / 3


def export_net() -> list[np.ndarray]:
    net = Net()
    mx.random.seed(0)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    results = net(mx.np.array(cases.PICTURE))
    net.export(str(TESTS / "data" / "numpy-net"))
    return [y.asnumpy() for y in results]


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
    kept.update({f"net/{k}": y for k, y in enumerate(export_net())})
    names = np.array(list(kept))
    np.savez_compressed(TESTS / "data" / "numpy.npz", names=names, **{str(k): y for k, y in enumerate(kept.values())})


if __name__ == "__main__":
    main()
