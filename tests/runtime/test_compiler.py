"""What compiling leaves behind, besides the code."""

import gc

import numpy as np
import pytest

from gluonjit.ir.graph import Builder
from gluonjit.ir.types import F32, TensorType
from gluonjit.runtime.compiler import PIPELINE, compile_graph


def graph_with_weights():
    """x · exp(w)·2, where each of two weights is a parameter of its own, computed in several steps."""
    b = Builder("net", "traced")
    x, *weights = (b.input(name, TensorType(F32, (40, 40))) for name in ("x", "v", "w"))
    for w in weights:
        scaled = b.dot_general(b.exp(w), b.exp(w), contract=((1,), (0,)))
        x = b.dot_general(x, b.dot_general(scaled, scaled, contract=((1,), (0,))), contract=((1,), (0,)))
    return b.build([x], {"params": (1, 2)})


@pytest.mark.parametrize("on", [True, False])
def test_the_garbage_collector_is_as_it_was(on):
    seen = []
    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        compile_graph(graph_with_weights(), after=lambda *_: seen.append(gc.isenabled()))
        assert gc.isenabled() is on
        with pytest.raises(ZeroDivisionError):
            compile_graph(graph_with_weights(), after=lambda *_: 1 // 0)
        assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()
    assert seen == [False] * len(PIPELINE.split(","))


def test_what_prepares_parameters_holds_no_memory_between_times():
    executable = compile_graph(graph_with_weights())
    arenas = [p.function.arenas for p in executable.prepared]
    assert len(arenas) == 2 and arenas[0] is arenas[1] and arenas[0].nbytes >= 40 * 40 * 4
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-0.1, 0.1, (40, 40)).astype(np.float32) for _ in range(3)]

    def product(x, *weights):
        for w in np.exp(np.float64(weights)):
            x = x @ (w @ w @ w @ w)
        return x

    for versions in ([None, 1, 1], [None, 1, 2], None):  # both, one, both again
        inputs[2] = inputs[2] + np.float32(0.1)
        ((y,), _) = executable.run(inputs, versions)
        want = product(*inputs)
        assert np.abs(y - want).max() <= 1e-5 * np.abs(want).max()
        assert arenas[0]._free == []
