"""Inputs without elements, and without axes: the same answer in all modes, or an error in all of them."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.ir.interpreter import evaluate
from gluonjit.operators import registry
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import compile_graph

from . import samples
from .running import graph_of, run_case, with_key
from .samples import Case

OPERATORS = [o for o in samples.operators() if not registry.get(o).imperative_only]
BATCH = 60
"""Cases that are compiled together."""


def variants(case: Case) -> Iterator[Case]:
    """The case with axes of 0 elements in place of one length, wherever it is found, and with 0-d inputs."""
    lengths = dict.fromkeys(n for x in case.inputs for n in x.shape if n)
    for length in lengths:
        cut = [tuple(slice(0 if n == length else n) for n in x.shape) for x in case.inputs]
        yield dataclasses.replace(case, inputs=[x[at].copy() for x, at in zip(case.inputs, cut, strict=True)])
    if lengths and all(x.size for x in case.inputs):
        yield dataclasses.replace(case, inputs=[np.asarray(x.reshape(-1)[0], x.dtype) for x in case.inputs])


def shown(case: Case) -> str:
    return f"{case} of {[x.shape for x in case.inputs]}"


def attempt(function, case):
    """Its results, or the error that it raises, as a string."""
    try:
        return function(case)
    except Exception as e:
        return f"{type(e).__name__}: {e}".splitlines()[0]


def evaluated(case):
    graph, inputs = graph_of([case])
    graph = run_passes(graph, "expand")
    return evaluate(graph, with_key(graph, inputs))[0]


def differ(found, wanted):
    if isinstance(found, str) or isinstance(wanted, str):
        return isinstance(found, str) != isinstance(wanted, str)
    kinds = [[(y.shape, y.dtype) for y in results] for results in (found, wanted)]
    return kinds[0] != kinds[1] or not all(
        np.allclose(a.astype(np.float64), b.astype(np.float64), 1e-4, 1e-5, equal_nan=True)
        for a, b in zip(found, wanted)
    )


def test_every_operator():
    """Imperatively and as a graph; natively, where there is something to compute out of nothing."""
    faults, computed = [], []
    for operator in OPERATORS:
        case = samples.cases(operator)[0]
        for variant in variants(case):
            plain, graph = attempt(run_case, variant), attempt(evaluated, variant)
            if differ(graph, plain):
                faults.append(f"{shown(variant)}: {plain} plainly, {graph} as a graph")
            elif not isinstance(plain, str) and any(y.size for y in plain) and not variant.training:
                computed.append((variant, plain))
    chosen = list({v.operator: (v, plain) for v, plain in computed if all(x.ndim for x in v.inputs)}.values())
    assert len(chosen) > 50
    for k in range(0, len(chosen), BATCH):
        batch = chosen[k : k + BATCH]
        graph, inputs = graph_of([v for v, _ in batch])
        graph = run_passes(graph, "expand")
        outputs = iter(compile_graph(graph).run(with_key(graph, inputs))[0])
        for variant, plain in batch:
            native = [next(outputs) for _ in plain]
            if differ(native, plain):
                faults.append(f"{shown(variant)}: {plain} plainly, {native} natively")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("program", "shape", "result"),
    [
        (lambda F, x, w: F.Deconvolution(x, w, kernel=(2, 2), pad=(1, 1), num_filter=2), (1, 1, 1, 1), (1, 2, 0, 0)),
        (lambda F, x, w: F.LRN(x, nsize=3), (2, 0, 3, 3), (2, 0, 3, 3)),
        (lambda F, x, w: F.LRN(x, nsize=3), (2, 3, 3, 0), (2, 3, 3, 0)),
        (lambda F, x, w: F.Pooling(x, kernel=(2, 2)), (0, 3, 4, 4), (0, 3, 3, 3)),
        (lambda F, x, w: F.Pooling(x, kernel=(2, 2), pool_type="avg"), (2, 0, 4, 4), (2, 0, 3, 3)),
    ],
)
def test_windows_over_nothing(program, shape, result):
    net = nn.HybridLambda(program)
    for hybridized in (False, True):
        net.hybridize(hybridized)
        assert net(mx.nd.zeros(shape), mx.nd.ones((1, 2, 2, 2))).shape == result


def test_nothing_to_pick_from():
    """NumPy has no element to give either."""
    net = nn.HybridLambda(lambda F, x, i: F.pick(x, i, axis=1))
    for hybridized in (False, True):
        net.hybridize(hybridized)
        with pytest.raises(mx.MXNetError, match="none along the indexed axes"):
            net(mx.nd.zeros((4, 0)), mx.nd.zeros(4))
