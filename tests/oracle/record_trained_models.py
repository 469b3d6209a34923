"""Trains the models of `tests/gluon/trained_models.py` with real MXNet 1.9.1.

    oracle/bin/python tests/oracle/record_trained_models.py [name …]

in the venv that `record.py` describes. By case, `tests/data/trained-models.npz` gets: the losses; checksums of the
parameters after the last step, in the order of their names; and how far losses, checksums and the learned changes move
if initial values do by 1e-6 of themselves (1e-12 in float64), which says what may be asked of another program that
rounds otherwise. Cases that are not named keep what they had.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
FILE = TESTS / "data" / "trained-models.npz"


def load_cases() -> Any:
    spec = importlib.util.spec_from_file_location("trained_models", TESTS / "gluon" / "trained_models.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["trained_models"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def main() -> None:
    cases = load_cases()
    arrays: dict[str, np.ndarray] = {}
    if FILE.exists():
        with np.load(FILE) as file:
            arrays = {key: file[key] for key in file.files if key.partition("/")[0] in cases.CASES}
    for name in sys.argv[1:] or cases.CASES:
        started = time.perf_counter()
        train = cases.CASES[name]
        losses, sums = cases.Run(mx).train(train)
        stacked = np.stack(list(sums.values()))
        loss_moves, sum_moves, off_course = 0.0, np.zeros_like(stacked), 0.0
        for off in (1, -1):
            other, other_sums = cases.Run(mx, off=off).train(train)
            off_course = max(off_course, *cases.off_course(other_sums, sums).values())
            loss_moves = np.maximum(loss_moves, np.abs(other - losses))
            sum_moves = np.maximum(sum_moves, np.abs(np.stack(list(other_sums.values())) - stacked))
        arrays |= {
            f"{name}/losses": losses.astype(np.float32),
            f"{name}/parameters": stacked.astype(np.float32),
            f"{name}/losses-move": loss_moves.astype(np.float32),
            f"{name}/parameters-move": sum_moves.max(axis=1, keepdims=True).astype(np.float32),
            f"{name}/off-course": np.float32(off_course),
        }
        seconds = (time.perf_counter() - started) / 3
        print(
            f"{name:23} {losses[0]:.4f} → {losses[-1]:.4f}, {len(sums)} parameters; moved by rounding: losses"
            f" {np.max(loss_moves / np.maximum(losses, 1)):.1e}, checksums {sum_moves.max():.1e}, learned changes by"
            f" {off_course:.1e} of themselves; {seconds:.1f} s",
            flush=True,
        )
        np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
