"""Convolutions of one channel by a few filters: native against NumPy."""

import numpy as np
import pytest

from gluonjit.codegen.kernels.planar import Piece, vectors_of_tile
from gluonjit.ir.interpreter import evaluate
from support.compare import close, difference
from support.convolutions import conv
from support.selected import TARGETS, run_selected, runnable


def run(graph, target, nthreads=2):
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]
    expected = evaluate(graph, inputs)[0][0]
    done = run_selected(graph, inputs, runnable(target), nthreads)
    assert close(done.outputs[0], expected), difference(done.outputs[0], expected)
    return done


CASES = {
    "halves of two rows": conv((28, 28), 1, 2, 5, batch=3),
    "quarters of rows, and a row twice": conv((10, 6), 1, 2, 3, batch=2),
    "whole vectors": conv((9, 34), 1, 1, 3),
    "a piece that does pixels again": conv((7, 31), 1, 2, (2, 3)),
    "stride and dilation": conv((30, 40), 1, 2, 3, batch=2, stride=(2, 1), dilation=(1, 2)),
    "padding": conv((16, 16), 1, 2, 5, low=(2, 1), high=(2, 3)),
    "long rows": conv((3, 150), 1, 2, 3),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_planar(name, target):
    assert "planar" in run(CASES[name], target).kernels


@pytest.mark.parametrize("filters", range(1, 9))
def test_every_number_of_filters(filters):
    """As many as make sense on the widest vectors, in an image cut by four tasks."""
    kernels = run(conv((20, 26), 1, filters, 3, batch=4), "host", 3).kernels
    assert ("planar" in kernels) == (2 * filters <= runnable("host").width)


@pytest.mark.parametrize(
    "graph",
    [
        conv((28, 28), 1, 20, 5),
        conv((28, 28), 2, 2, 5),
        conv((28, 28), 1, 2, 5, stride=2),
        conv((28, 28), 1, 2, 5, low=-1),
        conv((28, 28), 1, 2, (12, 11)),
        conv((28, 28), 1, 2, 5, epilogue="all"),
        conv((28, 3), 1, 2, 1),
        conv((28,), 1, 2, 5),
    ],
    ids=["filters", "channels", "stride", "cropped", "taps", "residual", "narrow", "1-D"],
)
def test_others(graph):
    assert "planar" not in run(graph, "x86-64-v3").kernels


def test_every_number_of_threads_gives_the_same_bits():
    rng = np.random.default_rng(1)
    graph = conv((23, 25), 1, 2, 3, batch=2)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    assert len({run_selected(graph, inputs, runnable("host"), t).outputs[0].tobytes() for t in (1, 2, 5, 64)}) == 1


def test_vectors():
    assert vectors_of_tile(2, 24, 8, 16) == [
        [Piece(0, 0, 0, 16)],
        [Piece(1, 0, 0, 16)],
        [Piece(0, 16, 0, 8), Piece(1, 16, 8, 8)],
    ]
    assert vectors_of_tile(1, 31, 16, 16) == [[Piece(0, 0, 0, 16)], [Piece(0, 15, 0, 16)]]
    assert vectors_of_tile(4, 4, 4, 16) == [[Piece(k, 0, 4 * k, 4) for k in range(4)]]
