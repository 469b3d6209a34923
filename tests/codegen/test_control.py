"""Loops and branches as native code equal their evaluation."""

import itertools

import numpy as np
import pytest

from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host
from gluonjit.ir.dims import named
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.types import BOOL, F32, I64, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import threads
from gluonjit.runtime.compiler import compile_graph
from support.compare import assert_close
from support.selected import TARGETS, runnable

STATE = TensorType(F32, (3, 6))


@pytest.fixture(autouse=True)
def several_threads():
    threads.set_num_threads(3)
    yield
    threads.set_num_threads(None)


def check(graph, inputs):
    outputs, _ = compile_graph(graph).run(inputs)
    for k, (got, want) in enumerate(zip(outputs, evaluate(graph, inputs)[0], strict=True)):
        assert_close(got, want, f"output {k}")
    # As if every kernel, however small, were worth sharing.
    shared = compile_graph(graph, pipeline=PIPELINE.replace("threads", "threads {grain = 0, share = 0}"))
    for _ in range(3):
        for k, (got, want) in enumerate(zip(shared.run(inputs)[0], outputs, strict=True)):
            np.testing.assert_array_equal(got, want, f"output {k} on several threads")


def inputs_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]


def step(rows_read):
    """A body: (i, h, [x], w) → (tanh(x + h·w), its double)."""
    b = Builder("step")
    b.input("i", TensorType(I64))
    h = b.input("h", STATE)
    x = b.input("x", STATE) if rows_read else h
    w = b.input("w", TensorType(F32, (6, 6)))
    new = b.tanh(b.add(x, b.dot_general(h, w, contract=((1,), (1,)))))
    return b.build([new, b.mul(new, b.constant(2.0, F32))])


def until(limit):
    """A condition: (i, h, w) → i < limit."""
    b = Builder("until")
    i = b.input("i", TensorType(I64))
    b.input("h", STATE)
    b.input("w", TensorType(F32, (6, 6)))
    return b.build([b.lt(i, b.constant(limit, I64))])


@pytest.mark.parametrize("params", [(), (1,)])
def test_loop(params):
    """Each number of iterations, with each condition; all of these loops in one graph."""
    b = Builder("net")
    h = b.input("h", STATE)
    w = b.input("w", TensorType(F32, (6, 6)))
    outputs = []
    for trip, limit in itertools.product([0, 1, 2, 7], [None, 0, 1, 5, 100]):
        x = b.input(f"x{trip}_{limit}", TensorType(F32, (trip, 3, 6)))
        regions = [step(True)] if limit is None else [step(True), until(limit)]
        attrs = {"carried": 1, "scanned": 1, "trip": trip, "last_first": limit in (1, 5)}
        last, rows = b.emit("loop", [h, x, w], attrs, regions)
        outputs += [last, rows, b.neg(last)]
    graph = b.build(outputs, {"params": params})
    check(graph, inputs_of(graph))


def test_nothing_scanned_and_captured_constants():
    b = Builder("net")
    h = b.input("h", STATE)
    w = b.constant(np.linspace(-1, 1, 36).reshape(6, 6), F32)
    last, rows = b.emit("loop", [h, w], {"carried": 1, "trip": 4}, [step(False)])
    graph = b.build([last, rows])
    check(graph, inputs_of(graph))


def test_states_that_change_places():
    body = Builder("swap")
    body.input("i", TensorType(I64))
    p, q = body.input("p", STATE), body.input("q", STATE)
    region = body.build([q, p])
    b = Builder("net")
    p, q = b.input("p", STATE), b.input("q", STATE)
    for trip in (3, 4):
        graph = b.build(b.emit("loop", [p, q], {"carried": 2, "trip": trip}, [region]))
        check(graph, inputs_of(graph))


def test_a_loop_in_a_loop():
    body = Builder("outer")
    body.input("i", TensorType(I64))
    h = body.input("h", STATE)
    w = body.input("w", TensorType(F32, (6, 6)))
    last, _ = body.emit("loop", [h, w], {"carried": 1, "trip": 3}, [step(False)])
    outer = body.build([last])
    b = Builder("net")
    h, w = b.input("h", STATE), b.input("w", TensorType(F32, (6, 6)))
    graph = b.build(b.emit("loop", [h, w], {"carried": 1, "trip": 2}, [outer]), {"params": (1,)})
    check(graph, inputs_of(graph))


def test_a_loop_over_parameters_alone_is_prepared():
    b = Builder("net")
    x, h, w = b.input("x", STATE), b.input("h", STATE), b.input("w", TensorType(F32, (6, 6)))
    last, _ = b.emit("loop", [h, w], {"carried": 1, "trip": 3}, [step(False)])
    graph = b.build([b.add(x, last)], {"params": (1, 2)})
    assert compile_graph(graph).prepared
    check(graph, inputs_of(graph))


@pytest.mark.parametrize("columns", [32, 100, 256])
def test_weights_read_to_and_fro(columns):
    """Every second iteration goes through the panels of weights backwards; each column's sum stays what it is."""
    body = Builder("step")
    body.input("i", TensorType(I64))
    h, w = body.input("h", TensorType(F32, (2, columns))), body.input("w", TensorType(F32, (columns, columns)))
    y = body.tanh(body.dot_general(h, w, contract=((1,), (1,))))
    region = body.build([y, y])
    b = Builder("net")
    h, w = b.input("h", TensorType(F32, (2, columns))), b.input("w", TensorType(F32, (columns, columns)))
    graph = b.build(b.emit("loop", [h, w], {"carried": 1, "trip": 5}, [region]), {"params": (1,)})
    plain = compile_graph(graph)
    alternating = PIPELINE.replace("alternate", "alternate {fits = 0}")
    inputs = inputs_of(graph)
    for steps in (alternating, alternating.replace("threads", "threads {grain = 0, share = 0}")):
        for got, want in zip(compile_graph(graph, pipeline=steps).run(inputs)[0], plain.run(inputs)[0], strict=True):
            np.testing.assert_array_equal(got, want)
    planned = run_passes(graph, alternating, target=host())
    assert "_backwards" in lower_program(planned, host()).text
    assert "_backwards" not in lower_program(run_passes(graph, PIPELINE, target=host()), host()).text


@pytest.mark.parametrize("taken", [True, False])
def test_branch(taken):
    sides = []
    for name in ("exp", "neg"):
        side = Builder(name)
        x = side.input("x", STATE)
        sides.append(side.build([*side.emit(name, [x]), x]))
    b = Builder("net")
    c, x = b.input("c", TensorType(BOOL)), b.input("x", STATE)
    graph = b.build(b.emit("branch", [c, x], {}, sides))
    check(graph, [np.array(taken), inputs_of(graph)[1]])


@pytest.mark.parametrize("trip", [5, named("l")])
@pytest.mark.parametrize("conditional", [False, True])
def test_loop_with_open_extents(trip, conditional):
    state = TensorType(F32, (named("n"), 6))
    body = Builder("step")
    body.input("i", TensorType(I64))
    h, x = body.input("h", state), body.input("x", state)
    total = body.reduce(h, op="sum", axes=(0,))
    new = body.tanh(body.add(x, body.sub(h, body.broadcast(total, shape=state.shape, dims=(1,)))))
    regions = [body.build([new, body.mul(new, body.constant(2.0, F32))])]
    if conditional:
        until = Builder("until")
        i = until.input("i", TensorType(I64))
        until.input("h", state)
        regions.append(until.build([until.lt(i, until.constant(4, I64))]))
    b = Builder("net")
    operands = [b.input("h", state), b.input("x", TensorType(F32, (trip, *state.shape)))]
    last, rows = b.emit("loop", operands, {"carried": 1, "scanned": 1, "trip": trip}, regions)
    graph = b.build([last, rows, b.neg(last)])
    pipelines = (PIPELINE, PIPELINE.replace("threads", "threads {grain = 0, share = 0}"))
    for executable in (compile_graph(graph, pipeline=pipeline) for pipeline in pipelines):
        for n, l in ((2, 2), (3, 7), (33, 4), (64, 17)):
            static = with_sizes(graph, {"n": n, "l": l})
            inputs = inputs_of(static)
            for k, (got, want) in enumerate(zip(executable.run(inputs)[0], evaluate(static, inputs)[0], strict=True)):
                assert_close(got, want, f"output {k} of {n}, {l}")


def _recurrent(trip, units, meets=False, conditional=False):
    """A loop over steps of samples of an open batch, with packed weights; `meets`: samples depend on each other."""
    state = TensorType(F32, (named("n"), units))
    body = Builder("step")
    body.input("i", TensorType(I64))
    h, c, x = body.input("h", state), body.input("c", state), body.input("x", state)
    w = body.input("w", TensorType(F32, (units, units)))
    y = body.add(x, body.dot_general(h, w, contract=((1,), (1,))))
    new = body.tanh(body.add(y, body.reverse(c, axes=(0,)) if meets else c))
    regions = [body.build([new, body.mul(new, h), body.exp(new), body.neg(y)])]
    if conditional:
        until = Builder("until")
        i = until.input("i", TensorType(I64))
        until.input("h", state), until.input("c", state), until.input("w", w.type)
        regions.append(until.build([until.lt(i, until.constant(2, I64))]))
    b = Builder("net")
    operands = [b.input("h", state), b.input("c", state), b.input("x", TensorType(F32, (trip, *state.shape)))]
    results = b.emit("loop", [*operands, b.input("w", w.type)], {"carried": 2, "scanned": 1, "trip": trip}, regions)
    return b.build(results, {"params": (3,)})


def _in_parts(graph, target):
    planned = run_passes(graph, PIPELINE, target=target)
    return "_part(" in lower_program(planned, target).text


@pytest.mark.parametrize("name", TARGETS)
def test_which_loops_run_by_parts_of_the_rows(name):
    target = runnable(name)
    assert _in_parts(_recurrent(3, 64), target)
    # The last tile's columns are so few that the order of a row's sums depends on the tile's height.
    assert not _in_parts(_recurrent(3, 50), target)
    assert not _in_parts(_recurrent(3, 64, meets=True), target)
    assert not _in_parts(_recurrent(3, 64, conditional=True), target)
    assert not _in_parts(with_sizes(_recurrent(3, 64), {"n": 40}), target)


@pytest.mark.parametrize(
    ("units", "trip", "name"),
    [(50, 5, "host"), (64, named("l"), "host"), *((64, 5, name) for name in TARGETS[1:])],
)
def test_parts_of_the_rows(units, trip, name):
    """Every number of threads gives the same bits, and the sizes around those from which threads have own rows."""
    graph = _recurrent(trip, units)
    executable = compile_graph(
        graph, target=runnable(name), pipeline=PIPELINE.replace("threads", "threads {grain = 0}")
    )
    for n in (2, 5, 7, 8, 9, 12, 13, 23, 40, 67):
        static = with_sizes(graph, {"n": n, "l": 4})
        inputs = inputs_of(static, n)
        inputs[3] /= 8
        found = []
        for count in (1, 2, 3, 5):
            threads.set_num_threads(count)
            found.append(executable.run(inputs)[0])
        for k, want in enumerate(evaluate(static, inputs)[0]):
            assert_close(found[0][k], want, f"output {k} of {n}")
            for several in found[1:]:
                np.testing.assert_array_equal(several[k], found[0][k], f"output {k} of {n} on several threads")
