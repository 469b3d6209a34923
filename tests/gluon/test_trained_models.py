"""Whole models, trained imperatively and hybridized: losses and parameters after 20 steps are MXNet's.

What MXNet said is in `tests/data/trained-models.npz`, recorded by `tests/oracle/record_trained_models.py`. A few cases
run by default; all of them take half an hour:

    GLUONJIT_TRAIN=1 pytest tests/gluon/test_trained_models.py
"""

import os
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx

from .trained_models import CASES, FAST, NOT_HYBRIDIZED, STEPS, Run, checksum, off_course

TOLERANCE = {False: 1e-4, True: 1e-6}
"""Of max(1, what MXNet says), and of how far a parameter moved: in single precision, in double."""
ROUNDING = 5
"""Times as much as MXNet's own answers moved with initial values that were off by rounding, ours may be off."""


@pytest.fixture(scope="module")
def recorded():
    with np.load(Path(__file__).parents[1] / "data" / "trained-models.npz") as file:
        return {key: file[key].astype(np.float64) for key in file.files}


def allowed(expected, moves, tolerance):
    """By element. What was moved up to a step may come back by chance, and is still uncertain."""
    return np.maximum(tolerance * np.maximum(1, np.abs(expected)), ROUNDING * moves)


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
    tolerance = TOLERANCE[name.endswith("-float64")]
    losses, parameters = Run(mx, hybridize).train(CASES[name])
    expected = recorded[f"{name}/losses"]
    assert losses.shape == expected.shape == (STEPS,)
    limit = allowed(expected, np.maximum.accumulate(recorded[f"{name}/losses-move"]), tolerance)
    worst = np.argmax(np.abs(losses - expected) / limit)
    assert abs(losses[worst] - expected[worst]) <= limit[worst], f"step {worst}: {losses} is not {expected}"
    sums = dict(zip(parameters, recorded[f"{name}/parameters"], strict=True))
    for (key, found), theirs in zip(parameters.items(), recorded[f"{name}/parameters-move"], strict=True):
        assert (np.abs(found - sums[key]) <= allowed(sums[key], theirs, tolerance)).all(), (
            f"{key}: {found} is not {sums[key]}"
        )
    off = off_course(parameters, sums)
    worst = max(off, key=off.__getitem__)
    furthest = max(tolerance, ROUNDING * recorded[f"{name}/off-course"])
    assert off[worst] <= furthest, f"{worst} is off by {off[worst]:.1e} of its movement"


def test_checksums_see_every_element():
    """Also one that moved by little, in a parameter that is large."""
    before = np.random.RandomState(0).standard_normal((8, 9)).astype(np.float32)
    sums = checksum(before, before)
    for place in np.ndindex(before.shape):
        after = before.copy()
        after[place] += 0.01
        assert abs(checksum(after, before) - sums).max() > 10 * TOLERANCE[False]


def test_a_movement_is_off_course_if_its_direction_is_wrong():
    """However small it is, unless others move by a hundred times as much."""
    before = np.random.RandomState(0).standard_normal((4, 5, 6))
    step = 1e-7 * np.random.RandomState(1).standard_normal((5, 6))

    def sums(second):
        return {
            "a": checksum(before[0] + step, before[0]),
            "b": checksum(before[1] + second * step, before[1]),
            "c_running_mean": checksum(before[2] + second, before[2]),
        }

    off = off_course(sums(-1), sums(1))
    assert off.keys() == {"a", "b"} and off["a"] == 0 and off["b"] > 0.1
    assert off_course(sums(-1e-4), sums(1e-4))["b"] < 0.1
