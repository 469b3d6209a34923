"""Ours: the Gluon block, hybridized, as a user calls it, NDArrays in and out."""

from __future__ import annotations

from benchmarks.model import Model
from benchmarks.peers import Loaded


def load(model: Model, threads: int) -> Loaded:
    loaded = load_imperative(model, threads)
    loaded.call.hybridize()  # type: ignore[attr-defined]
    return loaded


def load_imperative(model: Model, threads: int) -> Loaded:
    """The same, operator by operator."""
    import gluonjit as mx
    from benchmarks.workloads import make, results
    from gluonjit._version import version

    mx.set_num_threads(threads)
    facts = model.facts
    net, inputs = make(facts["workload"], facts["batch"], facts["width"])
    return Loaded(net, [mx.nd.array(x) for x in inputs], lambda y: [x.asnumpy() for x in results(y)], version)
