"""Random programs: native code equals NumPy, and what passes make is text that parses back to itself."""

from itertools import cycle, islice

import pytest

from gluonjit.codegen.target import host
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime.compiler import compile_graph
from support.compare import assert_close
from support.draw import DRAWERS
from support.programs import coverage, random_program, together
from support.selected import TARGETS, runnable
from support.soak import tries

PROGRAMS = tries(90)
"""Enough for every primitive to have its turn."""
BATCH = 45
TOGETHER = 10
"""Programs in a graph: what a compilation costs besides its kernels is paid once for all of them."""


def graph_of(program):
    """The program's graph, every other input of which is declared to be a parameter."""
    return program.graph.with_attrs(params=tuple(range(0, len(program.graph.inputs), 2)))


def compare(program, outputs, updates, where):
    for kind, got, want in (("output", outputs, program.outputs), ("update", updates, program.updates)):
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            assert_close(a, b, f"seed {program.seed}, {where}, {kind} {k}")


def run_together(executable, programs, where):
    outputs, updates = map(iter, executable.run([x for program in programs for x in program.inputs]))
    for program in programs:
        mine = islice(outputs, len(program.outputs)), islice(updates, len(program.updates))
        compare(program, *map(list, mine), where)
    assert next(outputs, None) is next(updates, None) is None


@pytest.mark.parametrize(("first", "target"), [*zip(range(0, PROGRAMS, TOGETHER), cycle(TARGETS))])
def test_native_equals_numpy(first, target):
    """Each target has programs of its own: every primitive has its turn on each of them in test_loops.py. The first
    ones are compiled one by one, others some at a time. The text of the former is read after every pass, of the host's
    others when the graph has reached another level."""
    alone = first == 0
    for start in range(first, first + TOGETHER, 1 if alone else TOGETHER):
        seeds = range(start, start + (1 if alone else TOGETHER))
        programs = [random_program(seed) for seed in seeds]
        where = f"{seeds} on {target}"

        def round_trip(name, before, graph, seconds, where=where):
            if graph is not before and (alone or graph.level != before.level):
                text = print_graph(graph)
                assert print_graph(parse_graph(text)) == text, f"{where} after {name}"

        after = round_trip if target == "host" else None
        executable = compile_graph(together(programs), target=runnable(target), after=after)
        run_together(executable, programs, f"native, {where}")
        run_together(executable, programs, f"native, again, {where}")


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_every_pass_keeps_the_meaning(first):
    for seed in range(first, first + BATCH):
        program = random_program(seed)

        def evaluates(name, before, graph, seconds, program=program):
            if graph is not before:
                compare(program, *evaluate(graph, program.inputs), f"after {name}")

        run_passes(graph_of(program), PIPELINE, target=host(), after=evaluates)


def test_the_programs_draw_on_everything():
    least = len(DRAWERS)  # from any seed on: each primitive has its turn
    assert least <= PROGRAMS
    names, _, empty = coverage([random_program(seed) for seed in range(least)])
    assert set(names) == set(DRAWERS)
    assert empty
