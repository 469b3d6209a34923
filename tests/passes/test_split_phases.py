"""`split-phases` on random convolutions: the same function, without dilated inputs."""

import numpy as np
import pytest

from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F64, IRError, TensorType
from gluonjit.passes import run_passes


def random_convolution(rng):
    """A convolution with random windows, or None if the draw does not fit together."""
    axes = int(rng.integers(1, 4))

    def each(low, high):
        return tuple(int(n) for n in rng.integers(low, high, axes))

    spatial = "".join(map(str, range(axes)))
    b = Builder("g")
    x = b.input("x", TensorType(F64, (2, 2, *each(1, 8))))
    w = b.input("w", TensorType(F64, (3, 2, *each(1, 5))))
    try:
        y = b.conv(
            x,
            w,
            stride=tuple(int(n) for n in rng.choice([1, 1, 1, 2], axes)),
            low=each(-2, 5),
            high=each(-2, 5),
            dilation=each(1, 4),
            input_dilation=each(1, 5),
            layout=("NC" + spatial, "OI" + spatial, "NC" + spatial),
        )
    except IRError:
        return None
    return b.build([y])


@pytest.mark.parametrize("seed", range(4))
def test_random_convolutions(seed):
    rng = np.random.default_rng(seed)
    split = 0
    for _ in range(60):
        graph = random_convolution(rng)
        if graph is None:
            continue
        after = run_passes(graph, "split-phases")
        inputs = [rng.standard_normal(v.shape) for v in graph.inputs]
        (expected,), (got,) = evaluate(graph, inputs)[0], evaluate(after, inputs)[0]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        if after is not graph:
            split += 1
            convs = [op.attrs for op in after.ops if op.name == "conv"]
            assert all(n == 1 or s > 1 for a in convs for n, s in zip(a["input_dilation"], a["stride"]))
    assert split > 10


def test_more_phases_than_a_graph_can_hold():
    """A text may say any dilation: there is a convolution for each of its steps."""
    b = Builder("g")
    x, w = b.input("x", TensorType(F64, (1, 1, 4, 4))), b.input("w", TensorType(F64, (1, 1, 3, 3)))
    one = (1, 1)
    y = b.conv(x, w, stride=one, low=one, high=one, dilation=one, input_dilation=(1, 1000000))
    graph = b.build([y])
    assert run_passes(graph, "split-phases") is graph
