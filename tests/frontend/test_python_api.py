"""Metrics, schedules, iterators, images, records …: what real MXNet answered, gluonjit answers."""

import json

import pytest

import gluonjit as mx
from support import python_api

QUESTIONS = ("metrics", "schedules", "optimizers", "iterators", "samplers", "images", "records", "summaries")


@pytest.fixture(scope="module")
def recorded(root):
    return json.loads((root / "tests" / "data" / "python_api.json").read_text())


@pytest.fixture(scope="module")
def answered():
    return json.loads(json.dumps(python_api.answers(mx)))


def differences(got, want, where=""):
    """Where two plain values differ; numbers may by 1e-4 of their size."""
    if isinstance(got, dict) and isinstance(want, dict) and got.keys() == want.keys():
        return [d for key in want for d in differences(got[key], want[key], f"{where}/{key}")]
    if isinstance(got, list) and isinstance(want, list) and len(got) == len(want):
        return [d for k, pair in enumerate(zip(got, want)) for d in differences(*pair, f"{where}/{k}")]
    numbers = [isinstance(x, (int, float)) and not isinstance(x, bool) for x in (got, want)]
    same = abs(got - want) <= 1e-4 * max(1, abs(want)) if all(numbers) else got == want
    return [] if same else [f"{where}: {got!r}, MXNet: {want!r}"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_as_mxnet_answered(question, recorded, answered):
    assert differences(answered[question], recorded[question]) == []


def test_all_questions_are_compared(recorded):
    assert sorted(recorded) == sorted(QUESTIONS)
