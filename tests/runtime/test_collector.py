"""Work during which Python's garbage collector is off, and what it finds afterwards."""

import subprocess
import sys
import textwrap

PREAMBLE = """
import gc, weakref
from gluonjit.runtime import collector
from gluonjit.runtime.collector import without_collector

class Node:
    '''An object that may be part of a cycle.'''

def is_young(x):
    '''Unless it is frozen, an object that is not young is old.'''
    return any(x is y for generation in (0, 1) for y in gc.get_objects(generation=generation))

def is_old(x):
    return any(x is y for y in gc.get_objects(generation=2))
"""


def in_a_process_of_its_own(code):
    """Looking at all objects, of which the tests' process has millions, takes seconds; and that one has compiled, and
    frozen what was there at its start."""
    done = subprocess.run([sys.executable, "-c", PREAMBLE + textwrap.dedent(code)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_was_made_is_not_looked_at_at_once():
    in_a_process_of_its_own(
        """
        with without_collector():
            assert not gc.isenabled()
            node = Node()
            assert is_young(node)
        assert gc.isenabled()
        assert not is_young(node)
        """
    )


def test_cycles_are_still_found_and_what_the_program_has_frozen_stays_frozen():
    in_a_process_of_its_own(
        """
        with without_collector():
            node = Node()
            node.own = node
            gone = weakref.ref(node)
            del node
        assert gone() is not None
        gc.collect()
        assert gone() is None

        kept = Node()
        gc.freeze()
        with without_collector():
            node = Node()
        assert not is_old(kept)
        assert not is_old(node)
        gc.unfreeze()
        assert is_old(kept)
        """
    )


def test_what_is_frozen_is_counted_a_few_times():
    """It takes 12 ms per million objects."""
    in_a_process_of_its_own(
        """
        counted = []
        gc.get_freeze_count = lambda: counted.append(1) or 1
        for _ in range(collector._MOST + 3):
            with without_collector():
                pass
        assert len(counted) == collector._MOST
        """
    )


def test_a_program_that_compiles_again_and_again_gets_rid_of_its_cycles():
    in_a_process_of_its_own(
        """
        for _ in range(collector._MOST):
            with without_collector():
                node = Node()
            assert not is_young(node)
        with without_collector():
            node = Node()
        assert is_young(node)
        """
    )


def test_a_collector_that_is_off_stays_off():
    in_a_process_of_its_own(
        """
        gc.disable()
        with without_collector():
            node = Node()
        assert not gc.isenabled()
        assert is_young(node)
        """
    )
