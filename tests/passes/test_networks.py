"""Passes over convolutional networks change what is computed how, but not what: random networks against float64.

Some of these passes reassociate products and sums. Their error keeps its bound and not its bits, so that a rewritten
graph is held to the same distance from float64 as the graph that was written.
"""

from collections import Counter

import numpy as np
import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.dims import named as named_dim
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.verify import verify
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime.compiler import compile_graph
from support.networks import in_float64, random_network
from support.soak import tries

PASSES = ("fold-moves", "reorder-pooling", "fold-affine", "hoist-strides", "layout")
TOLERANCE = 1e-5
"""Relative to the largest element of a result."""


def distance(found, expected):
    """The largest error relative to the largest element."""
    pairs = zip(found, expected, strict=True)
    return max((np.abs(a - b).max() / max(np.abs(b).max(), 1e-3) for a, b in pairs if b.size), default=0.0)


def wide_outputs(network):
    """What the network gives in float64."""
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in network.inputs]
    return evaluate(in_float64(network.graph), wide)[0]


def check(network, expected, pipeline):
    """Runs the pipeline; each pass must keep shapes and values. Returns the graph, and the passes that changed it."""
    changed = []

    def after(name, before, graph, seconds):
        if graph is before:
            return
        changed.append(name)
        outputs = evaluate(graph, network.inputs)[0]
        assert [x.shape for x in outputs] == [x.shape for x in expected]
        error = distance(outputs, expected)
        assert error < TOLERANCE, f"{name}, seed {network.seed}: {error:.1e}\n{before}\n{graph}"

    return run_passes(network.graph, pipeline, after=after), changed


@pytest.mark.parametrize("block", range(tries(1)))
def test_networks_keep_their_values(block):
    fired = Counter()
    for seed in range(block * 20, block * 20 + 20):
        network = random_network(seed)
        expected = wide_outputs(network)
        for name in PASSES:
            fired.update(check(network, expected, name)[1])
        graph, changed = check(
            network, expected, "simplify, fold, cse, dce, " + ", ".join(PASSES) + ", simplify, cse, dce"
        )
        fired.update(changed)
        text = print_graph(graph)
        assert print_graph(parse_graph(text)) == text
    assert all(fired[name] >= 3 for name in PASSES), fired


def test_networks_with_an_open_batch_keep_their_values():
    pipeline = PIPELINE[PIPELINE.index("fold-moves") : PIPELINE.index(", plan-memory")]
    fired = Counter()
    for seed in range(tries(15)):
        network = random_network(seed, batch=named_dim("n"))
        batches = {}
        for n in (2, 5):
            inputs = network.for_batch(n)
            wide = in_float64(with_sizes(network.graph, {"n": n}))
            batches[n] = inputs, evaluate(wide, [x.astype(float) for x in inputs])[0]

        def after(name, before, graph, seconds, network=network, batches=batches):
            if graph is before:
                return
            fired[name] += 1
            for n, (inputs, expected) in batches.items():
                static = with_sizes(graph, {"n": n})
                verify(static)
                error = distance(evaluate(static, inputs)[0], expected)
                assert error < TOLERANCE, f"{name}, seed {network.seed}, n = {n}: {error:.1e}\n{before}\n{graph}"

        run_passes(network.graph, pipeline, after=after, target=named(("x86-64-v3", "x86-64-v4")[seed % 2]))
    assert fired.keys() >= {*PASSES, "select", "hoist", "views", "threads"}, fired


@pytest.mark.parametrize("name", ["fold-moves", "fold-affine", "hoist-strides"])
def test_a_second_run_changes_nothing(name):
    for seed in range(tries(10)):
        clean = run_passes(random_network(seed).graph, "simplify, cse, dce")
        once = run_passes(clean, [name, "simplify", "cse", "dce"])
        twice = run_passes(once, [name, "simplify", "cse", "dce"])
        assert print_graph(twice) == print_graph(once), seed


def test_nothing_is_folded_that_is_no_parameter():
    """Without parameters, no scale is known before the call."""
    for seed in range(tries(20)):
        graph = random_network(seed).graph.with_attrs(params=())
        assert run_passes(graph, "fold-affine") is graph


@pytest.mark.parametrize("seed", range(300, 300 + tries(6)))
def test_compiled_networks(seed):
    """Through the whole pipeline, to native code."""
    network = random_network(seed)
    assert distance(compile_graph(network.graph).run(network.inputs)[0], wide_outputs(network)) < TOLERANCE
