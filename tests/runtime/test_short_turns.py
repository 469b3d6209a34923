"""While a graph is compiled, threads that wait for the interpreter have it soon."""

import sys

import pytest

from gluonjit.ir.text import parse_graph
from gluonjit.runtime.compiler import compile_graph
from gluonjit.runtime.short_turns import short_turns

USUAL, SHORT = 0.004, 0.0005


@pytest.fixture(autouse=True)
def usual():
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL)
    yield
    sys.setswitchinterval(before)


def turn():
    return round(sys.getswitchinterval(), 6)


def test_turns_are_short_until_the_last_thread_has_compiled():
    first, second = short_turns(), short_turns()
    with first:
        second.__enter__()
        assert turn() == SHORT
    assert turn() == SHORT
    second.__exit__(None, None, None)
    assert turn() == USUAL


def test_what_the_program_chooses_stays():
    with short_turns():
        sys.setswitchinterval(0.002)
    assert turn() == 0.002
    sys.setswitchinterval(0.00025)
    with short_turns():
        assert turn() == 0.00025
    assert turn() == 0.00025


def test_passes_run_in_short_turns():
    graph = parse_graph("graph @f(%x: f32[3]) level legal {\n  %y = exp(%x)\n  return %y\n}")
    seen = set()
    compile_graph(graph, after=lambda *_: seen.add(turn()))
    assert (seen, turn()) == ({SHORT}, USUAL)
