"""Steps of optimizers and small trainings, for real MXNet (`oracle/record_training.py`) and for gluonjit alike.

Nothing here imports either: `mx` is passed in. Inputs are made by operations that give the same bits on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS = 5
SHAPES = {"fc_weight": (4, 3), "fc_bias": (5,), "bn_gamma": (2,)}
C = {"clip_gradient": 0.3, "wd": 0.1, "rescale_grad": 0.5}
HALF = {"multi_precision": True, "dtype": "float16", **C}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("sgd", {"learning_rate": 0.1}),
    "sgd_all": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, **C}),
    "sgd_half": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, **HALF}),
    "sgd_half_plain": ("sgd", {"learning_rate": 0.1, **HALF}),
    "sgd_double": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "dtype": "float64", **C}),
    "ccsgd": ("ccsgd", {"learning_rate": 0.1, "momentum": 0.5}),
    "nag": ("nag", {"learning_rate": 0.1, "momentum": 0.9, **C}),
    "nag_plain": ("nag", {"learning_rate": 0.1, **C}),
    "nag_half": ("nag", {"learning_rate": 0.1, "momentum": 0.9, **HALF}),
    "signum": ("signum", {"learning_rate": 0.1, "wd_lh": 0.2, **C}),
    "signsgd": ("signum", {"learning_rate": 0.1, "momentum": 0.0, **C}),
    "ftml": ("ftml", {"learning_rate": 0.1}),
    "ftml_all": ("ftml", {"learning_rate": 0.1, **C}),
    "lars": ("lars", {"learning_rate": 0.1, "momentum": 0.9, "eta": 0.5, "eps": 1e-3, **C}),
    "lars_plain": ("lars", {"learning_rate": 0.1, "eta": 0.5}),
    "lars_half": ("lars", {"learning_rate": 0.1, "momentum": 0.9, "eta": 0.5, **HALF}),
    "lars_scheduled": ("lars", {"momentum": 0.9, "eta": 0.5, "schedule": 2}),
    "lbsgd": ("lbsgd", {"learning_rate": 0.1, "momentum": 0.9, "batch_scale": 2, "updates_per_epoch": 2, **C}),
    "lbsgd_lars": ("lbsgd", {"learning_rate": 0.1, "warmup_strategy": "lars"}),
    "lbsgd_half": ("lbsgd", {"learning_rate": 0.1, "momentum": 0.9, "warmup_strategy": "sqrt", **HALF}),
    "lamb": ("lamb", {"learning_rate": 0.1}),
    "lamb_all": ("lamb", {"learning_rate": 0.1, "lower_bound": 0.5, "upper_bound": 1.5, **C}),
    "lamb_plain": ("lamb", {"learning_rate": 0.1, "bias_correction": False}),
    "lamb_half": ("lamb", {"learning_rate": 0.1, **HALF}),
    "dcasgd": ("dcasgd", {"learning_rate": 0.1, **C}),
    "adam": ("adam", {"learning_rate": 0.1}),
    "adam_all": ("adam", {"learning_rate": 0.1, "beta1": 0.8, **C}),
    "adam_half": ("adam", {"learning_rate": 0.1, **HALF}),
    "adam_scheduled": ("adam", {"schedule": 2, "begin_num_update": 3}),
    "adagrad": ("adagrad", {"learning_rate": 0.1, **C}),
    "rmsprop": ("rmsprop", {"learning_rate": 0.1, **C}),
    "rmsprop_centered": ("rmsprop", {"learning_rate": 0.1, "centered": True, "clip_weights": 0.6}),
    "adadelta": ("adadelta", {**C}),
    "ftrl": ("ftrl", {"learning_rate": 0.5, "lamda1": 0.1, **C}),
    "adamax": ("adamax", {"learning_rate": 0.1, **C}),
    "nadam": ("nadam", {"learning_rate": 0.1, **C}),
    "test": ("test", {"rescale_grad": 0.5}),
    "groupadagrad": ("groupadagrad", {"learning_rate": 0.1, "clip_gradient": 0.3}),
}


def steps(mx: Any, name: str) -> dict[str, np.ndarray]:
    """The weights after `STEPS` steps of a case."""
    kind, settings = CASES[name]
    settings = dict(settings)
    dtype = settings.pop("dtype", "float32")
    if "schedule" in settings:
        settings["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(settings.pop("schedule"), 0.5, base_lr=0.2)
        settings["learning_rate"] = 0.2  # or the default of the optimizer replaces it
    shapes = dict(list(SHAPES.items())[:1]) if kind == "groupadagrad" else SHAPES
    names = dict(enumerate(shapes))
    updater = mx.optimizer.get_updater(mx.optimizer.create(kind, param_idx2name=names, **settings))
    rng = np.random.RandomState(7)
    weights = [mx.nd.array(rng.uniform(-1, 1, s), dtype=dtype) for s in shapes.values()]
    for _ in range(STEPS):
        grads = [mx.nd.array(rng.uniform(-1, 1, s), dtype=dtype) for s in shapes.values()]
        if updater.aggregate_updates:
            updater(list(names), grads, weights)
        else:
            for k, (g, w) in enumerate(zip(grads, weights)):
                updater(k, g, w)
    return {n: w.asnumpy() for n, w in zip(shapes, weights)}


# Training LeNet

BATCH, LOSSES = 8, 20
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("sgd", {"learning_rate": 0.01, "momentum": 0.9, "wd": 1e-3}),
    "adam": ("adam", {"schedule": 5}),
}


def lenet(mx: Any) -> Any:
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(
            nn.Conv2D(4, 5, activation="tanh"),
            nn.MaxPool2D(2, 2),
            nn.Conv2D(6, 3, use_bias=False),
            nn.BatchNorm(),  # before it, a bias would have a gradient of rounding errors alone
            nn.Activation("relu"),
            nn.MaxPool2D(2, 2),
            nn.Flatten(),
            nn.Dense(16, activation="relu"),
            nn.Dense(10),
        )
    return net


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(number)
    labels = rng.randint(0, 10, BATCH)
    images = rng.uniform(0, 1, (BATCH, 1, 16, 16))
    images[np.arange(BATCH), 0, labels] += 1
    return images.astype(np.float32), labels.astype(np.float32)


def trainer(mx: Any, net: Any, name: str) -> Any:
    kind, settings = TRAININGS[name]
    settings = dict(settings)
    if "schedule" in settings:
        settings["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(settings.pop("schedule"), 0.5, base_lr=0.01)
        settings["learning_rate"] = 0.01
    return mx.gluon.Trainer(net.collect_params(), kind, settings)


def train(mx: Any, net: Any, own: Any, numbers: range) -> list[float]:
    """One step for each of these batches; the mean losses before the steps."""
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for k in numbers:
        x, y = map(mx.nd.array, batch(k))
        with mx.autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        own.step(BATCH)
        losses.append(float(loss.mean().asscalar()))
    return losses


def values(net: Any) -> dict[str, np.ndarray]:
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}
