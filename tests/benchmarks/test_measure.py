"""Which of two engines' turns are counted."""

import pytest

from benchmarks.engine import Turn
from benchmarks.measure import calls_for, compare, summarize


class Scripted:
    """An engine whose turns last as told; `log` is shared, so that it shows the order."""

    def __init__(self, name, turns, log, call=1.0):
        self.name, self.turns, self.log, self.call = name, turns, log, call

    def turn(self, calls):
        self.log.append((self.name, calls))
        return self.turns.pop(0) if self.turns else Turn(self.call, 1.0, False)


def pairs(*seconds):
    return [(Turn(a, 1.0, False), Turn(b, 1.0, False)) for a, b in seconds]


def test_the_median_of_neighbouring_ratios_counts_not_the_ratio_of_medians():
    # The machine became ten times slower in between; each pair says 2.
    found = summarize(pairs((1, 2), (1, 2), (10, 20), (10, 20), (10, 20)))
    assert found.ratio == found.low == found.high == 2
    assert (found.base, found.seconds, found.pairs, found.dropped) == (10, 20, 5, 0)


def test_a_pair_with_a_disturbed_turn_does_not_count():
    disturbed = [(Turn(1, 0.5, True), Turn(9, 1.0, False)), (Turn(1, 1.0, False), Turn(9, 0.5, True))]
    found = summarize([*pairs(*[(1, 3)] * 5), *disturbed])
    assert (found.ratio, found.pairs, found.dropped, found.disturbed) == (3, 5, 2, False)


def test_where_most_are_disturbed_the_comparison_says_so():
    bad = [(Turn(1, 0.5, True), Turn(3, 0.5, True))] * 7
    assert summarize([*pairs(*[(1, 3)] * 4), *bad]).disturbed
    assert not summarize([*pairs(*[(1, 3)] * 5), *bad]).disturbed
    assert summarize([(Turn(1, 0.5, True), Turn(3, 0.5, True))] * 9).ratio == 3  # all that there is


def test_turns_alternate_and_swap_their_order_each_time():
    log = []
    a, b = Scripted("a", [], log), Scripted("b", [], log, call=2.0)
    found = compare(a, b, seconds=5, turn=1)
    order = "".join(name for name, _ in log)
    assert order.endswith("abbaabbaab") and found.pairs == 5
    assert found.ratio == 2


def test_disturbed_pairs_are_made_again_but_not_forever():
    def bad(engine):
        turn = engine.__class__.turn
        engine.turn = lambda calls: Turn(turn(engine, calls).seconds, 0.5, True)
        return engine

    log = []
    found = compare(bad(Scripted("a", [], log)), Scripted("b", [], log), seconds=10, turn=1)
    assert (found.pairs, found.dropped, found.disturbed) == (0, 40, True)


@pytest.mark.parametrize("seconds", [1e-7, 3e-6, 1e-3, 0.2, 4.0])
def test_calls_fill_a_turn(seconds):
    calls = calls_for(Scripted("a", [], [], call=seconds), 0.1)
    assert calls == 1 if seconds > 0.1 else calls * seconds == pytest.approx(0.1, rel=0.5)
