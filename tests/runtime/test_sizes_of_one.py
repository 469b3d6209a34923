"""Code for open dimensions also serves sizes of 1, if nothing in it relies on larger ones."""

from __future__ import annotations

import numpy as np
import pytest

import gluonjit.operators  # noqa: F401  (the level traced names them)
from gluonjit.ir.dims import LOWEST, named
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.types import tensor
from gluonjit.runtime import cache
from gluonjit.runtime.build import expands_alike
from gluonjit.runtime.compiler import compile_graph
from support import open_programs
from support.compare import assert_close
from support.open_programs import open_program
from support.soak import tries

N, L = named("n"), named("l")
SIZES = ({"n": 1, "l": 1}, {"n": 1, "l": 7}, {"n": 33, "l": 1}, {"n": 1, "l": 16})


def test_random_programs(monkeypatch):
    monkeypatch.setattr(open_programs, "with_sizes", lambda graph, sizes: with_sizes(graph, sizes, lowest=1))
    monkeypatch.setenv("GLUONJIT_CACHE", "0")
    serving, programs = 0, tries(6)
    for seed in range(programs):
        program = open_program(seed)
        code = compile_graph(program.graph)
        if code.lowest == 1:
            serving += 1
            for sizes in SIZES:
                program.check(code.run(program.inputs(sizes)), sizes, "code for open dimensions")
    assert programs // 3 <= serving < programs  # some slices need more elements


def graph(make, *shapes, level="expanded"):
    b = Builder("g", level)
    return b.build([make(b, *(b.input(f"x{k}", tensor("f32", *shape)) for k, shape in enumerate(shapes)))])


def behind_the_first(b, x):
    return b.slice(x, start=(1, 0), size=(N - 1, 3))


@pytest.mark.parametrize(
    ("make", "shapes", "lowest"),
    [
        (lambda b, x, y: b.add(x, y), [(N, L), (N, L)], 1),
        (lambda b, x: b.reduce(x, op="max", axes=(0,)), [(N, 3)], 1),
        (lambda b, x: b.reshape(x, shape=(N * L, 3)), [(N, L, 3)], 1),
        (lambda b, x, w: b.dot_general(x, w, contract=((1,), (0,))), [(N, 8), (8, 5)], 1),
        (lambda b, x, w: b.dot_general(x, w, contract=((1,), (0,))), [(N, L), (L, 40)], 1),
        (behind_the_first, [(N, 3)], LOWEST),
        (lambda b, x: b.reduce(behind_the_first(b, x), op="max", axes=(0,)), [(N, 3)], LOWEST),
    ],
)
def test_what_code_relies_on(object_cache, make, shapes, lowest):
    """Whether it was compiled, found in the object cache, or put together from kernels that were."""
    for _ in range(2):
        code = compile_graph(graph(make, *shapes))
        assert code.lowest == lowest
    if lowest == 1:
        for sizes in SIZES:
            static = with_sizes(graph(make, *shapes), sizes, lowest=1)
            inputs = [np.random.default_rng(k).uniform(-1, 1, v.shape) for k, v in enumerate(static.inputs)]
            inputs = [x.astype(np.float32) for x in inputs]
            for found, wanted in zip(code.run(inputs)[0], evaluate(static, inputs)[0], strict=True):
                assert_close(found, wanted, f"with {sizes}")
    for entry in cache.entries():
        if not entry.name.startswith("kernel "):
            entry.path.unlink()
    assert compile_graph(graph(make, *shapes)).lowest == lowest


def test_kernels_of_the_library_keep_what_they_rely_on(object_cache, monkeypatch):
    from gluonjit.codegen import program
    from gluonjit.codegen.text import compile_parts
    from gluonjit.ir.dims import is_less

    lower = program.lower_kernel

    def relies(*args):
        assert is_less(1, N)
        lower(*args)

    monkeypatch.setattr(compile_parts, "_ALONE", 1)
    monkeypatch.setattr(program, "lower_kernel", relies)
    made = graph(lambda b, x: b.exp(x), (N, 3))
    assert compile_graph(made).lowest == LOWEST
    for entry in cache.entries():
        if not entry.name.startswith("kernel "):
            entry.path.unlink()
    monkeypatch.setattr(program, "lower_kernel", lambda *_: pytest.fail("the kernel is in the library"))
    assert compile_graph(made).lowest == LOWEST


def test_operators_for_which_1_is_another_case():
    assert expands_alike(graph(lambda b, x: b.emit("mx.exp", [x], {})[0], (N, 3), level="traced"))
    assert not expands_alike(graph(lambda b, x: b.emit("mx.squeeze", [x], {})[0], (N, 3), level="traced"))
    assert not expands_alike(graph(lambda b, x: b.slice(x, start=(1, 0), size=(1, 3)), (N, 3)))
