"""Random programs: native code equals NumPy, and every stage of the pipeline is text that parses back to itself."""

import pytest

from gluonjit.codegen.target import host, named
from gluonjit.ir.graph import evaluate
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import PIPELINE, compile_graph
from support.compare import assert_close
from support.draw import DRAWERS
from support.programs import coverage, random_program

PROGRAMS = 2000
BATCH = 50


def graph_of(program):
    """The program's graph, every other input of which is declared to be a parameter."""
    return program.graph.with_attrs(params=tuple(range(0, len(program.graph.inputs), 2)))


def compare(program, outputs, updates, where):
    for kind, got, want in (("output", outputs, program.outputs), ("update", updates, program.updates)):
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            assert_close(a, b, f"seed {program.seed}, {where}, {kind} {k}")


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_native_equals_numpy(first):
    programs = [random_program(seed) for seed in range(first, first + BATCH)]
    for program in programs:

        def round_trip(name, before, graph, seconds, seed=program.seed):
            text = print_graph(graph)
            assert print_graph(parse_graph(text)) == text, f"seed {seed} after {name}"

        executable = compile_graph(graph_of(program), after=round_trip)
        compare(program, *executable.run(program.inputs), "native")
        compare(program, *executable.run(program.inputs), "native, again")


@pytest.mark.parametrize("first", range(0, PROGRAMS // 4, BATCH))
def test_every_pass_keeps_the_meaning(first):
    for seed in range(first, first + BATCH):
        program = random_program(seed)

        def evaluates(name, before, graph, seconds, program=program):
            compare(program, *evaluate(graph, program.inputs), f"after {name}")

        run_passes(graph_of(program), PIPELINE, target=host(), after=evaluates)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v2"])
def test_narrower_targets(target):
    if host().arch != "x86":
        pytest.skip("these are levels of x86-64")
    if host().vector_bits < named(target).vector_bits:
        pytest.skip(f"this machine is not {target}")
    for seed in range(2 * len(DRAWERS)):
        program = random_program(seed)
        compare(program, *compile_graph(graph_of(program), target=named(target)).run(program.inputs), target)


def test_the_programs_draw_on_everything():
    names, _, empty = coverage([random_program(seed) for seed in range(200)])
    assert set(names) == set(DRAWERS)
    assert empty
