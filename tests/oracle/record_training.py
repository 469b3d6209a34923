"""Asks real MXNet 1.9.1 for weights after steps of every optimizer, and trains a small LeNet.

    oracle/bin/python tests/oracle/record_training.py

in the venv that `record.py` describes; the cases are in `support/optimizer_cases.py`. In `tests/data/training.npz`:
`steps/<case>/<weight>`; `<training>/before/<parameter>`, `<training>/losses`, `<training>/after/<parameter>`; and
`<training>/states`, the bytes of the file that `Trainer.save_states` wrote after half of the steps.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import mxnet as mx
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from support import optimizer_cases as cases  # noqa: E402


def main() -> None:
    found: dict[str, np.ndarray] = {}
    for name in cases.CASES:
        found.update({f"steps/{name}/{k}": v for k, v in cases.steps(mx, name).items()})
    for name in cases.TRAININGS:
        mx.random.seed(1)
        net = cases.lenet(mx)
        net.initialize(mx.init.Xavier())
        net(mx.nd.array(cases.batch(0)[0]))
        found.update({f"{name}/before/{k}": v for k, v in cases.values(net).items()})
        own = cases.trainer(mx, net, name)
        half = cases.LOSSES // 2
        losses = cases.train(mx, net, own, range(half))
        found.update({f"{name}/half/{k}": v for k, v in cases.values(net).items()})
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "states"
            own.save_states(str(file))
            found[f"{name}/states"] = np.frombuffer(file.read_bytes(), np.uint8)
        losses += cases.train(mx, net, own, range(half, cases.LOSSES))
        found[f"{name}/losses"] = np.array(losses)
        found.update({f"{name}/after/{k}": v for k, v in cases.values(net).items()})
    np.savez_compressed(TESTS / "data" / "training.npz", **found)
    print(len(found), "arrays")


main()
