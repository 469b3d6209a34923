"""Training steps of Gluon programs: ours, and those of real MXNet, in whose process nothing of gluonjit is imported."""

from __future__ import annotations

import itertools
from typing import Any

from benchmarks.model import Model
from benchmarks.peers import LOSSES, Loaded, losses_array
from benchmarks.steps import STEPS, adversarial_nets, batches, gluon_loss, gluon_net
from benchmarks.weights import values


def ours(model: Model, threads: int) -> Loaded:
    import gluonjit as mx
    from gluonjit._version import version

    mx.set_num_threads(threads)
    return _load(mx, model, version)


def mxnet(model: Model, threads: int) -> Loaded:
    import mxnet as mx

    return _load(mx, model, mx.__version__)


def _prepared(mx: Any, net: Any, x: Any, gain: float, prefix: str = "") -> Any:
    """Sets the net's parameters, by their names after `prefix`, and hybridizes it; returns them. `x`: an input."""
    net.initialize()
    net(x)  # completes the shapes
    parameters = net._collect_params_with_prefix()
    for name, parameter in parameters.items():
        parameter.set_data(mx.nd.array(values(prefix + name, parameter.shape, gain)))
    net.hybridize(static_alloc=True, static_shape=True)
    return parameters


def _load(mx: Any, model: Model, version: str) -> Loaded:
    facts = model.facts
    step, updates = STEPS[facts["step"]], facts["updates"]
    data = [(mx.nd.array(x), mx.nd.array(y)) for x, y in batches(step, facts["batch"])]
    if step.is_adversarial:
        return _load_adversarial(mx, facts, data, version)
    net = gluon_net(mx, step)
    parameters = _prepared(mx, net, data[0][0], step.gain)
    loss_function = gluon_loss(mx, step)
    loss_function.hybridize(static_alloc=True, static_shape=True)
    settings = dict(step.settings)
    trainer = mx.gluon.Trainer(net.collect_params(), step.optimizer, settings) if updates else None
    trained = [p for p in parameters.values() if p.grad_req != "null"]
    turns, losses = itertools.cycle(data), []

    def call() -> None:
        x, y = next(turns)
        with mx.autograd.record():
            found = net(x)
            loss = loss_function(*found, y) if step.is_of_boxes else loss_function(found, y)
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


def _load_adversarial(mx: Any, facts: Any, data: Any, version: str) -> Loaded:
    """A step of the discriminator, by pictures and by generated ones, and one of the generator."""
    step, updates, batch = STEPS[facts["step"]], facts["updates"], facts["batch"]
    generator, discriminator = adversarial_nets(mx)
    _prepared(mx, generator, data[0][1], step.gain, "generator.")
    _prepared(mx, discriminator, data[0][0], step.gain, "discriminator.")
    loss_function = mx.gluon.loss.SigmoidBinaryCrossEntropyLoss()
    loss_function.hybridize(static_alloc=True, static_shape=True)
    trainers = [
        mx.gluon.Trainer(net.collect_params(), step.optimizer, dict(step.settings)) if updates else None
        for net in (discriminator, generator)
    ]
    true, false = mx.nd.ones((batch, 1)), mx.nd.zeros((batch, 1))
    turns, losses = itertools.cycle(data), []

    def call() -> None:
        pictures, noise = next(turns)
        with mx.autograd.record():
            by_pictures = loss_function(discriminator(pictures).reshape((-1, 1)), true)
            fake = generator(noise)
            by_others = loss_function(discriminator(fake.detach()).reshape((-1, 1)), false)
            loss = by_pictures + by_others
            loss.backward()
        if trainers[0] is not None:
            trainers[0].step(batch)
        with mx.autograd.record():
            deceived = loss_function(discriminator(fake).reshape((-1, 1)), true)
            deceived.backward()
        if trainers[1] is not None:
            trainers[1].step(batch)
        if len(losses) < LOSSES:
            losses.append(float(loss.mean().asscalar() + deceived.mean().asscalar()))
        mx.nd.waitall()

    return Loaded(call, [], lambda _: losses_array(losses), version)
