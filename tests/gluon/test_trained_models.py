"""Whole models, trained imperatively and hybridized: losses and parameters after 20 steps are MXNet's.

What MXNet said is in `tests/data/trained-models.npz`, recorded by `tests/oracle/record_trained_models.py`. A few cases
run by default; all of them take a quarter of an hour:

    GLUONJIT_TRAIN=1 pytest tests/gluon/test_trained_models.py
"""

import os
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx

from .trained_models import CASES, FAST, NOT_HYBRIDIZED, STEPS, Run, checksum

TOLERANCE = 1e-4
"""Of max(1, what MXNet says)."""
ROUNDING = 5
"""Times as much as MXNet's own answers moved with initial values that were off by 1e-6, ours may be off."""


@pytest.fixture(scope="module")
def recorded():
    with np.load(Path(__file__).parents[1] / "data" / "trained-models.npz") as file:
        return {key: file[key].astype(np.float64) for key in file.files}


def allowed(expected, moves):
    """By element. What was moved up to a step may come back by chance, and is still uncertain."""
    return np.maximum(TOLERANCE * np.maximum(1, np.abs(expected)), ROUNDING * moves)


ALL = [
    pytest.param(
        name,
        hybridize,
        id=f"{name}-{'hybridized' if hybridize else 'imperative'}",
        marks=[] if name in FAST else pytest.mark.skipif("GLUONJIT_TRAIN" not in os.environ, reason="long"),
    )
    for name in CASES
    for hybridize in ((False,) if name in NOT_HYBRIDIZED else (False, True))
]


@pytest.mark.parametrize(("name", "hybridize"), ALL)
def test_training(name, hybridize, recorded):
    losses, parameters = Run(mx, hybridize).train(CASES[name])
    expected = recorded[f"{name}/losses"]
    assert losses.shape == expected.shape == (STEPS,)
    limit = allowed(expected, np.maximum.accumulate(recorded[f"{name}/losses-move"]))
    worst = np.argmax(np.abs(losses - expected) / limit)
    assert abs(losses[worst] - expected[worst]) <= limit[worst], f"step {worst}: {losses} is not {expected}"
    for sums, theirs, (key, found) in zip(
        recorded[f"{name}/parameters"], recorded[f"{name}/parameters-move"], parameters.items(), strict=True
    ):
        assert (np.abs(found - sums) <= allowed(sums, theirs)).all(), f"{key}: {found} is not {sums}"


def test_checksums_see_every_element():
    """Also one that moved by little, in a parameter that is large."""
    before = np.random.RandomState(0).standard_normal((8, 9)).astype(np.float32)
    sums = checksum(before, before)
    for place in np.ndindex(before.shape):
        after = before.copy()
        after[place] += 0.01
        assert abs(checksum(after, before) - sums).max() > 10 * TOLERANCE
