"""Random words for imperative execution: compiled blocks give the bits that NumPy gives."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.codegen.draws import DRAWS, draw_module
from gluonjit.codegen.target import named
from gluonjit.codegen.text.llvm import compile_module, undefined_symbols
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import Interpreter
from gluonjit.ir.primitives.random_bits import words_from
from gluonjit.ir.types import I32, I64, TensorType
from gluonjit.runtime import random_words


@pytest.mark.parametrize("kind", [I32, I64], ids=str)
def test_compiled_words_have_the_bits_of_numpy(kind, monkeypatch):
    """At the edges of vectors, of 32-bit words, and of what keys may be."""
    mx.nd.ones(1)  # loads the front end, and with it the compiler
    monkeypatch.setattr(random_words, "_drawn", random_words._MANY)
    for key in (np.array([12345, (1 << 33) + 7]), np.array([2**32 - 1, -1]), np.array([-(3 << 59) - 5, 1])):
        for start in (0, 1 << 14, (1 << 32) - 9, (1 << 33) + 5):
            for size in (1, 2, 3, 1 << 14, (1 << 14) + 1):
                found = random_words.words(key, start, size, kind)
                wanted = words_from(key, start, size, kind, 0)
                assert found.dtype == wanted.dtype and (found == wanted).all()
    assert str(kind) in random_words._native


def test_a_program_that_has_drawn_much_is_compiled_and_draws_the_same(monkeypatch):
    calls = []
    drawing = random_words._drawing
    monkeypatch.setattr(random_words, "_drawing", lambda kind: calls.append(kind) or drawing(kind))

    def drawn(before):
        monkeypatch.setattr(random_words, "_drawn", before)
        calls.clear()
        mx.random.seed(7)
        draws = [mx.nd.random.uniform, mx.nd.random.normal, lambda shape: mx.nd.random.randint(0, 99, shape=shape)]
        found = [draw(shape=shape).asnumpy() for draw in draws for shape in ((1,), (3,), (70, 80), (20_000,))]
        return found, len(calls), random_words._drawn

    first, none, count = drawn(0)
    later, some, most = drawn(random_words._MANY)
    assert not none and 0 < count < most == random_words._MANY
    assert some
    assert all((a == b).all() for a, b in zip(first, later))


@pytest.mark.parametrize("name", ["x86-64-v2", "znver5", "aarch64"])
def test_draws_can_be_compiled_for_each_width_of_vectors(name):
    for draw in DRAWS:
        assert not undefined_symbols(compile_module(draw_module(named(name), draw), named(name)))


def test_uniform_numbers_have_the_bits_of_numpy(monkeypatch):
    """Drawn at once, piece by piece by the operator's formula, and into an array that is there."""
    monkeypatch.setattr(random_words, "_MANY", 1 << 62)
    pieces = [drawn_uniform(*bounds) for bounds in BOUNDS]
    monkeypatch.setattr(random_words, "_MANY", 0)
    for bounds, piece in zip(BOUNDS, pieces):
        found, out = drawn_uniform(*bounds), mx.nd.ones((130, 127))
        assert found.tobytes() == piece.tobytes()
        assert drawn_uniform(*bounds, out=out) is out and out.asnumpy().tobytes() == piece.tobytes()
    gaps = np.empty((130, 254), np.float32)[:, ::2]
    assert random_words.uniform(np.array([3, 0]), gaps.shape, 0.0, 1.0, 1.0, gaps) is not gaps


BOUNDS = ((0.0, 1.0), (-0.07, 0.07), (1.0, 1.0000001), (3.0, 3.0), (-1e38, 3e38))


def drawn_uniform(low, high, **out):
    mx.random.seed(3)
    found = mx.nd.random.uniform(low, high, shape=(130, 127), **out)
    return found if out else found.asnumpy()


def test_graphs_that_are_interpreted_draw_so_too(monkeypatch):
    """As the gradient of dropout does, which draws what the operator has drawn. With a watch NumPy draws."""
    mx.nd.ones(1)
    calls = []
    drawing = random_words._drawing
    monkeypatch.setattr(random_words, "_drawing", lambda kind: calls.append(kind) or drawing(kind))
    monkeypatch.setattr(random_words, "_drawn", random_words._MANY)
    b = Builder("draws")
    (bits,) = b.emit(
        "random_bits", [b.input("key", TensorType(I64, (2,)))], {"shape": (9, 99), "dtype": I32, "stream": 2}
    )
    interpreter = Interpreter(b.build([bits]))
    key = np.array([7, (1 << 63) - 2])
    (found,), _ = interpreter.run([key])
    assert calls == ["i32"]
    (wanted,), _ = interpreter.run([key], lambda *op: None)
    assert calls == ["i32"] and found.shape == (9, 99) and (found == wanted).all()
