"""Training steps of Gluon programs: ours, and those of real MXNet, in whose process nothing of gluonjit is imported."""

from __future__ import annotations

import itertools
from typing import Any

from benchmarks.model import Model
from benchmarks.peers import LOSSES, Loaded, losses_array
from benchmarks.steps import STEPS, batches, gluon_net
from benchmarks.weights import values


def ours(model: Model, threads: int) -> Loaded:
    import gluonjit as mx
    from gluonjit._version import version

    mx.set_num_threads(threads)
    return _load(mx, model, version)


def mxnet(model: Model, threads: int) -> Loaded:
    import mxnet as mx

    return _load(mx, model, mx.__version__)


def _load(mx: Any, model: Model, version: str) -> Loaded:
    facts = model.facts
    step, updates = STEPS[facts["step"]], facts["updates"]
    data = [(mx.nd.array(x), mx.nd.array(y)) for x, y in batches(step, facts["batch"])]
    net = gluon_net(mx, step)
    net.initialize()
    net(data[0][0])  # completes the shapes
    parameters = net._collect_params_with_prefix()
    for name, parameter in parameters.items():
        parameter.set_data(mx.nd.array(values(name, parameter.shape, step.gain)))
    net.hybridize(static_alloc=True, static_shape=True)
    loss_function = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loss_function.hybridize(static_alloc=True, static_shape=True)
    settings = dict(step.settings)
    trainer = mx.gluon.Trainer(net.collect_params(), step.optimizer, settings) if updates else None
    trained = [p for p in parameters.values() if p.grad_req != "null"]
    turns, losses = itertools.cycle(data), []

    def call() -> None:
        x, y = next(turns)
        with mx.autograd.record():
            loss = loss_function(net(x), y)
            if step.clip is not None:
                loss = loss.mean()
        loss.backward()
        if step.clip is not None:
            mx.gluon.utils.clip_global_norm([p.grad() for p in trained], step.clip)
        if trainer is not None:
            trainer.step(1 if step.clip is not None else facts["batch"])
        if len(losses) < LOSSES:
            losses.append(float(loss.mean().asscalar()))
        mx.nd.waitall()

    return Loaded(call, [], lambda _: losses_array(losses), version)
