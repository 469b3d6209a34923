"""Requests that are computed together, one after the other, or not at all."""

import threading
import time

import numpy as np
import pytest

from gluonjit.tools.serving.batching import Batcher, Closed, Full


class Model:
    """Counts its calls, and waits in the first one until it may go on."""

    def __init__(self):
        self.calls, self.go, self.entered = [], threading.Event(), threading.Event()

    def __call__(self, arrays):
        x = arrays["x"]
        self.calls.append(x.shape)
        self.entered.set()
        assert self.go.wait(20)
        if (x < 0).any():
            raise ValueError("a number is negative")
        return {"y": x + 1}


def batcher(model, **options):
    return Batcher(model, **{"merges": True, "most_rows": 8, "delay": 0.0, "most_waiting": 100, **options})


def given(count, width=2, value=0.0):
    return {"x": np.full((count, width), value, np.float32)}


def held(model, made, requests):
    """The futures of requests that all wait while the model is busy with another one."""
    first = made.submit(given(1))
    assert model.entered.wait(20)
    futures = [made.submit(x) for x in requests]
    model.go.set()
    assert first.result(20)["y"].shape == (1, 2)
    return futures


def test_what_waits_is_computed_together():
    model = Model()
    made = batcher(model)
    futures = held(model, made, [given(n, value=n) for n in (3, 2, 3, 1)])
    for n, future in zip((3, 2, 3, 1), futures):
        np.testing.assert_array_equal(future.result(20)["y"], np.full((n, 2), n + 1))
    made.join()
    assert model.calls == [(1, 2), (8, 2), (1, 2)]


def test_what_is_answered_does_not_wait():
    model, seen = Model(), []

    def hand_over(task):
        seen.append(made.waiting)
        task()

    made = batcher(model, hand_over=hand_over)
    future = made.submit(given(1))
    assert model.entered.wait(20) and made.waiting == 1
    model.go.set()
    assert future.result(20)["y"].shape == (1, 2) and seen == [0]
    made.join()


def test_what_differs_is_not():
    """In another size than that of rows; and requests without rows."""
    model = Model()
    made = batcher(model)
    futures = held(model, made, [given(1), given(1, 3), given(0), given(2), given(9)])
    assert [f.result(20)["y"].shape for f in futures] == [(1, 2), (1, 3), (0, 2), (2, 2), (9, 2)]
    made.join()
    assert model.calls == [(1, 2), (3, 2), (1, 3), (0, 2), (9, 2)]


def test_a_model_without_rows():
    model = Model()
    made = batcher(model, merges=False)
    assert len(held(model, made, [given(1)] * 3)) == 3
    made.join()
    assert model.calls == [(1, 2)] * 4


def test_a_fault_is_of_its_own_request():
    model = Model()
    made = batcher(model)
    good, bad, other = held(model, made, [given(1), given(1, value=-1), given(2)])
    assert good.result(20)["y"].shape == (1, 2) and other.result(20)["y"].shape == (2, 2)
    with pytest.raises(ValueError, match="negative"):
        bad.result(20)
    made.join()


def test_delay():
    """A batch waits for others, but not when it is full."""
    model = Model()
    model.go.set()
    made = batcher(model, delay=30.0, most_rows=4)
    futures = [made.submit(given(1)) for _ in range(4)]
    assert all(f.result(20) for f in futures)
    last = made.submit(given(1))
    made.join()  # does not wait for the delay
    assert last.result(0) and model.calls == [(4, 2), (1, 2)]


def test_too_late_cancelled_and_too_many():
    model = Model()
    made = batcher(model, most_waiting=3)
    first = made.submit(given(1))
    assert model.entered.wait(20)
    late, cancelled, last = made.submit(given(1), timeout=0.0), made.submit(given(1)), made.submit(given(1))
    with pytest.raises(Full):
        made.submit(given(1))
    assert cancelled.cancel()
    time.sleep(0.01)
    model.go.set()
    with pytest.raises(TimeoutError):
        late.result(20)
    assert first.result(20) and last.result(20)
    made.join()
    assert model.calls == [(1, 2), (1, 2)]
    with pytest.raises(Closed):
        made.submit(given(1))


def test_a_model_whose_outputs_have_no_rows():
    """It is asked for each request alone."""
    model = Model()
    made = batcher(lambda arrays: {"y": model(arrays)["y"].sum(axis=0, keepdims=True)})
    assert [f.result(20)["y"].shape for f in held(model, made, [given(2)] * 3)] == [(1, 2)] * 3
    made.join()
    assert model.calls == [(1, 2), (6, 2), (2, 2), (2, 2), (2, 2)]


def test_results_are_handed_over_together():
    """Faults among them; the thread of the model does not set them itself."""
    model, tasks = Model(), []
    made = batcher(model, hand_over=tasks.append)
    first = made.submit(given(1))
    assert model.entered.wait(20)
    futures = [made.submit(x) for x in (given(1), given(1, value=-1), given(2))]
    model.go.set()
    made.join()
    assert len(tasks) == 2 and not any(f.done() for f in (first, *futures))
    for task in tasks:
        task()
    assert [f.result(0)["y"].shape for f in (first, futures[0], futures[2])] == [(1, 2), (1, 2), (2, 2)]
    assert isinstance(futures[1].exception(0), ValueError)
