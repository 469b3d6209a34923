"""Where threads meet between kernels."""

import pytest

from gluonjit.codegen.threads.schedule import Span, Step, barriers


def step(reads=(), writes=(), shared=True):
    def span(text):  # "a" is all of a buffer, "a3:5" a part
        buffer, _, part = text.partition("@")
        start, _, stop = part.partition(":")
        return Span(buffer, int(start or 0), int(stop or 100))

    return Step([span(r) for r in reads], [span(w) for w in writes], shared)


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        (step(writes=["a"]), step(reads=["a"]), True),
        (step(reads=["a"]), step(writes=["a"]), True),
        (step(writes=["a"]), step(writes=["a"]), True),
        (step(reads=["a"]), step(reads=["a"]), False),
        (step(writes=["a"]), step(reads=["b"]), False),
        (step(writes=["a@0:64"]), step(reads=["a@64:128"]), False),
        (step(writes=["a@0:64"]), step(reads=["a@63:128"]), True),
        (step(writes=["a@64:64"]), step(reads=["a"]), False),
        (step(writes=["a"], shared=False), step(reads=["a"]), True),
        (step(writes=["a"]), step(reads=["a"], shared=False), True),
        (step(writes=["a"], shared=False), step(reads=["a"], shared=False), False),
    ],
)
def test_two_steps(first, second, meet):
    assert barriers([first, second]) == [False, meet]


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        (Span("a", 0, 160, 64, 96), Span("a", 64, 192, 32, 96), False),  # columns of one array
        (Span("a", 0, 160, 64, 96), Span("a", 60, 188, 32, 96), True),
        (Span("a", 64, 192, 32, 96), Span("a", 0, 160, 64, 96), False),
        (Span("a", 64, 192, 32, 96), Span("a", 96, 164, 4, 96), False),  # in the next row
        (Span("a", 0, 160, 64, 96), Span("a", 64, 96), True),  # who knows
        (Span("a", 0, 160, 64, 96), Span("b", 0, 160, 64, 96), False),
        (Span("a", 0, 160, 64, 96), Span("a", 160, 320, 64, 96), False),
    ],
)
def test_rows_of_pieces(first, second, overlap):
    assert first.overlaps(second) == overlap == second.overlaps(first)


def test_a_barrier_settles_everything_before_it():
    steps = [
        step(writes=["a"]),
        step(writes=["b"]),
        step(reads=["b"], writes=["c"]),
        step(reads=["a"], writes=["d"]),
        step(reads=["c"]),
    ]
    assert barriers(steps) == [False, False, True, False, True]


def test_what_is_not_next_to_it_counts_too():
    steps = [step(writes=["a"]), step(writes=["b"]), step(writes=["c"]), step(reads=["a"])]
    assert barriers(steps) == [False, False, False, True]


def test_small_steps_in_a_row_wait_once():
    small = [step(reads=["x"], writes=["y"], shared=False), step(reads=["y"], writes=["z"], shared=False)]
    assert barriers([step(writes=["x"]), *small, step(reads=["z"])]) == [False, True, False, True]
