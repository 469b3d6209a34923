"""Whole models that are trained, by MXNet and by gluonjit alike.

A case is a function of a `Run`, which gives it the library, initial values and data that follow from names and seeds
alone, and the optimizer's steps; it yields one loss a step. What MXNet said is recorded by
`tests/oracle/record_trained_models.py`; `test_trained_models.py` compares.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Case = Callable[["Run"], Iterator[float]]

STEPS = 20

CASES: dict[str, Case] = {}
FAST = ("word_lstm", "sparse_embedding", "transformer", "vae", "super_resolution", "ctc")
"""What the suite runs by default; the others are trained if GLUONJIT_TRAIN is set."""
NOT_HYBRIDIZED = ("module_fit",)
"""Cases without a block to hybridize."""

OFF = {"float32": 1e-6, "float64": 1e-12}
"""By how much of themselves initial values are off, to see what rounding does to MXNet's answers."""


def case(f: Case) -> Case:
    CASES[f.__name__] = f
    return f


def initial(name: str, shape: tuple[int, ...]) -> Array:
    """A parameter's first values, which follow from its name in the block and its shape: numbers of float32.

    Weights are normal with variance 2 / fan-in, statistics and what scales are those of a layer that does nothing.
    """
    kind = name.rpartition(".")[2].rpartition("_")[2]
    if kind in ("gamma", "var"):
        return np.ones(shape, np.float32)
    if kind in ("beta", "mean"):
        return np.zeros(shape, np.float32)
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    if kind == "bias" or len(shape) < 2:
        return rng.uniform(-0.1, 0.1, shape).astype(np.float32)
    return (rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5).astype(np.float32)


def rounded(values: Array, name: str, by: float, dtype: str = "float32") -> Array:
    """The values times 1 ± `by`, signs drawn by name: how MXNet's answers depend on rounding is measured with it."""
    if not by:
        return values.astype(dtype)
    signs = np.random.RandomState(zlib.crc32(name.encode()) ^ 1).choice((-1, 1), values.shape)
    return (values.astype(np.float64) * (1 + by * signs)).astype(dtype)


@dataclass
class Run:
    """One training of one case: `mx` is the library; initial values are off by the factor 1 ± `off` · `OFF[dtype]`.

    Cases set `dtype` before they make a net.
    """

    mx: Any
    hybridize: bool = False
    off: int = 0

    def __post_init__(self) -> None:
        self.dtype = "float32"
        self.nets: list[tuple[str, Any]] = []
        self.values: dict[str, Array] = {}
        """Parameters after training that no block holds."""
        self.first: dict[str, Array] = {}

    def start(self, key: str, shape: tuple[int, ...]) -> Any:
        """The first values of a parameter, as an array of the library."""
        self.first[key] = rounded(initial(key, shape), key, self.off * OFF[self.dtype], self.dtype)
        return self.mx.nd.array(self.first[key], dtype=self.dtype)

    def net(self, net: Any, *inputs: Any, name: str = "") -> Any:
        """Gives a block its initial values; `inputs` determine shapes. Dropout is turned off."""

        def no_dropout(block: Any) -> None:
            if type(block).__name__ == "Dropout":
                block._rate = 0

        net.apply(no_dropout)
        net.initialize()
        net.cast(self.dtype)
        with self.mx.autograd.pause():
            net(*inputs)
        for key, p in self.parameters(net, name).items():
            p.set_data(self.start(key, p.shape))
        if self.hybridize:
            net.hybridize()
        self.nets.append((name, net))
        return net

    def parameters(self, net: Any, name: str) -> dict[str, Any]:
        return {f"{name}{key}": p for key, p in net._collect_params_with_prefix().items()}

    def trainer(self, net: Any, optimizer: str, **options: Any) -> Any:
        return self.mx.gluon.Trainer(net.collect_params(), optimizer, options)

    def rng(self, seed: int = 0) -> np.random.RandomState:
        return np.random.RandomState(seed)

    def normal(self, rng: np.random.RandomState, *shape: int) -> Any:
        return self.mx.nd.array(rng.standard_normal(shape).astype(np.float32), dtype=self.dtype)

    def train(self, case: Case) -> tuple[Array, dict[str, Array]]:
        """The losses (float64), and by parameter `checksum`s of what training made of it."""
        losses = np.array([float(x) for x in case(self)])
        after = dict(self.values)
        for name, net in self.nets:
            after |= {key: p.data().asnumpy() for key, p in self.parameters(net, name).items()}
        return losses, {key: checksum(value, self.first[key]) for key, value in sorted(after.items())}


def checksum(after: Array, before: Array) -> Array:
    """(6): the root mean square of a parameter, and of its change; its change along a direction; three elements."""
    a, b = after.astype(np.float64).ravel(), before.astype(np.float64).ravel()
    direction = np.random.RandomState(a.size % 1000).choice((-1.0, 1.0), a.size)
    root = a.size**0.5
    picked = a[[0, a.size // 2, a.size - 1]]
    return np.array([np.linalg.norm(a) / root, np.linalg.norm(a - b) / root, (a - b) @ direction / root, *picked])


def off_course(found: dict[str, Array], expected: dict[str, Array]) -> dict[str, float]:
    """How far the changes in `checksum`s are from the expected, by learned parameter, relative to its movement.

    A parameter that moves by less than a hundredth of the largest movement counts as one that moves by that: a bias in
    front of a normalization gets nothing but rounding.
    """
    learned = [key for key in expected if not key.endswith(("_mean", "_var"))]
    least = 1e-2 * max(expected[key][1] for key in learned)
    return {key: abs(found[key] - expected[key])[1:3].max() / max(expected[key][1], least) for key in learned}


# Classification


def classify(
    run: Run, net: Any, shape: tuple[int, ...], rate: float, momentum: float = 0.875, wd: float = 2**-13
) -> Iterator[float]:
    """Momentum descent on softmax cross entropy; a batch of its own at each step, of three that take turns.

    In float64 momentum, weight decay and rate should be sums of few powers of 2: MXNet keeps them in float32.
    """
    mx, rng = run.mx, run.rng()
    batches = [(run.normal(rng, *shape), mx.nd.array(rng.randint(0, 10, shape[0]))) for _ in range(3)]
    run.net(net, batches[0][0])
    trainer = run.trainer(net, "sgd", learning_rate=rate, momentum=momentum, wd=wd)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(STEPS):
        x, label = batches[step % 3]
        with mx.autograd.record():
            loss = loss_of(net(x), label)
        loss.backward()
        trainer.step(shape[0])
        yield loss.mean().asscalar()


def lenet(nn: Any) -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Conv2D(50, 5, activation="relu"))
    net.add(nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(128, activation="tanh"), nn.Dense(10))
    return net


def zoo(mx: Any, name: str) -> Any:
    """A model of the zoo for ten classes; pooling over all that is left of a small picture."""
    net = mx.gluon.model_zoo.vision.get_model(name, classes=10)
    last = [(key, block) for key, block in net.features._children.items() if type(block).__name__ == "AvgPool2D"]
    for key, _ in last:
        net.features._children[key] = mx.gluon.nn.GlobalAvgPool2D()
    if name.startswith("squeezenet"):  # its pooling stands after the last convolution
        for key, block in list(net.output._children.items()):
            if type(block).__name__ == "AvgPool2D":
                net.output._children[key] = mx.gluon.nn.GlobalAvgPool2D()
    return net


def classifier(run: Run, name: str, size: int = 64, batch: int = 4, **options: float) -> Iterator[float]:
    """`name` is that of a model, and of its precision where it is not float32."""
    name, _, dtype = name.partition("-")
    run.dtype = dtype or "float32"
    if name == "lenet":
        return classify(run, lenet(run.mx.gluon.nn), (16, 1, 28, 28), **options)
    return classify(run, zoo(run.mx, name), (batch, 3, size, size), **options)


QUICK = {"rate": 3e-4, "momentum": 0.9, "wd": 1e-4}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    # At rates this low the losses of MXNet itself hardly depend on rounding, but some parameters hardly move, either.
    "lenet": {"rate": 0.001},
    "alexnet": {"rate": 3e-5},
    "mobilenet0.25": {"size": 128, "batch": 8, "rate": 1e-6},
    "inceptionv3": {"rate": 1e-8, "size": 160},
    "resnet18_v2": {"rate": 1e-5},
    "squeezenet1.1": {"rate": 1e-5},
    # MXNet's own losses depend on rounding.
    "densenet121": QUICK,
    "mobilenetv2_1.0": {**QUICK, "rate": 1e-4},
    "resnet18_v1": QUICK,
    "resnet50_v1": QUICK,
    "vgg11": {**QUICK, "rate": 1e-6},
    "vgg11_bn": QUICK,
    # In double precision rounding is so small that movements can be compared, at rates that learn.
    "densenet121-float64": {"rate": 2**-16},
    "inceptionv3-float64": {"rate": 2**-22, "size": 160},
    "lenet-float64": {"rate": 2**-8},
    "mobilenet0.25-float64": {"rate": 2**-12},
    "mobilenetv2_1.0-float64": {"rate": 2**-14},
    "resnet18_v1-float64": {"rate": 2**-12},
    "resnet18_v2-float64": {"rate": 2**-12},
    "resnet50_v1-float64": {"rate": 2**-15},
    "squeezenet1.1-float64": {"rate": 2**-13},
    "vgg11-float64": {"rate": 2**-20},
    "vgg11_bn-float64": {"rate": 2**-16},
}
for _name, _options in CLASSIFIERS.items():
    CASES[_name] = functools.partial(classifier, name=_name, **_options)


# Text


def language_model(run: Run, cell: str) -> Iterator[float]:
    """Truncated back propagation through time: the state goes on, detached; gradients are clipped."""
    mx = run.mx
    nn, steps, batch, words, width = mx.gluon.nn, 7, 4, 50, 24

    class Model(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.encoder = nn.Embedding(words, width)
                self.rnn = getattr(mx.gluon.rnn, cell)(width, 2, input_size=width)
                self.decoder = nn.Dense(words, in_units=width)

        def hybrid_forward(self, F: Any, x: Any, *state: Any) -> Any:
            y, state = self.rnn(self.encoder(x), list(state))
            return self.decoder(F.reshape(y, (-1, width))), state

    text = mx.nd.array(np.tile(run.rng().randint(0, words, (11, batch)), (13, 1))[: steps * STEPS + 1])
    model = Model()
    state = model.rnn.begin_state(batch)
    run.net(model, text[:steps], *state)
    trainer = run.trainer(model, "sgd", learning_rate=1.0)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for k in range(0, steps * STEPS, steps):
        state = [s.detach() for s in state]
        with mx.autograd.record():
            y, state = model(text[k : k + steps], *state)
            loss = loss_of(y, text[k + 1 : k + 1 + steps].reshape((-1,)))
        loss.backward()
        gradients = [p.grad() for p in model.collect_params().values()]
        mx.gluon.utils.clip_global_norm(gradients, 0.25 * steps * batch)
        trainer.step(steps * batch)
        yield loss.mean().asscalar()


@case
def word_lstm(run: Run) -> Iterator[float]:
    return language_model(run, "LSTM")


@case
def word_gru(run: Run) -> Iterator[float]:
    return language_model(run, "GRU")


@case
def transformer(run: Run) -> Iterator[float]:
    """Two layers of attention that look back only; Adam, with a rate that warms up and then falls."""
    mx = run.mx
    nn, batch, length, words, width, heads = mx.gluon.nn, 3, 10, 30, 32, 4

    class Layer(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.qkv = nn.Dense(3 * width, flatten=False, in_units=width)
                self.out = nn.Dense(width, flatten=False, in_units=width)
                self.norm1, self.norm2 = nn.LayerNorm(in_channels=width), nn.LayerNorm(in_channels=width)
                self.wide = nn.Dense(4 * width, flatten=False, in_units=width)
                self.gelu = nn.GELU()
                self.narrow = nn.Dense(width, flatten=False, in_units=4 * width)

        def hybrid_forward(self, F: Any, x: Any, mask: Any) -> Any:
            def by_head(y: Any) -> Any:  # (batch, length, width) → (batch · heads, length, width / heads)
                return F.reshape(
                    F.transpose(F.reshape(y, (0, 0, heads, -1)), (0, 2, 1, 3)), (-1, length, width // heads)
                )

            q, k, v = (by_head(part) for part in F.split(self.qkv(self.norm1(x)), 3, axis=2))
            scores = F.broadcast_add(F.batch_dot(q, k, transpose_b=True) * (width // heads) ** -0.5, mask)
            y = F.reshape(F.batch_dot(F.softmax(scores), v), (-1, heads, length, width // heads))
            x = x + self.out(F.reshape(F.transpose(y, (0, 2, 1, 3)), (0, 0, -1)))
            return x + self.narrow(self.gelu(self.wide(self.norm2(x))))

    class Model(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.words = nn.Embedding(words, width)
                self.places = self.params.get("places_weight", shape=(1, length, width))
                self.layer1, self.layer2 = Layer(), Layer()
                self.norm = nn.LayerNorm(in_channels=width)
                self.decoder = nn.Dense(words, flatten=False, in_units=width)

        def hybrid_forward(self, F: Any, x: Any, mask: Any, places: Any) -> Any:
            y = F.broadcast_add(self.words(x), places)
            return self.decoder(self.norm(self.layer2(self.layer1(y, mask), mask)))

    rng = run.rng()
    mask = mx.nd.array(np.triu(np.full((1, length, length), -1e9, np.float32), 1))
    text = [rng.randint(0, words, (batch, length + 1)) for _ in range(3)]
    model = run.net(Model(), mx.nd.array(text[0][:, :-1]), mask)
    schedule = mx.lr_scheduler.CosineScheduler(STEPS, base_lr=3e-3, final_lr=1e-4, warmup_steps=5)
    trainer = run.trainer(model, "adam", learning_rate=3e-3, lr_scheduler=schedule, beta2=0.98, epsilon=1e-6)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(STEPS):
        ids = text[step % 3]
        with mx.autograd.record():
            loss = loss_of(model(mx.nd.array(ids[:, :-1]), mask), mx.nd.array(ids[:, 1:]))
        loss.backward()
        trainer.step(batch)
        yield loss.mean().asscalar()


@case
def sparse_embedding(run: Run) -> Iterator[float]:
    """A bag of words: the table's gradient has rows for the words that were met, and Adam updates these alone."""
    mx = run.mx
    nn, batch, length, words = mx.gluon.nn, 4, 6, 200

    class Model(mx.gluon.Block):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.table = nn.Embedding(words, 16, sparse_grad=True)
                self.classes = nn.Dense(3, in_units=16)

        def forward(self, x: Any) -> Any:
            return self.classes(self.table(x).mean(axis=1))

    rng = run.rng()
    ids = rng.randint(0, words, (STEPS, batch, length))
    labels = rng.randint(0, 3, (STEPS, batch))
    model = run.net(Model(), mx.nd.array(ids[0]))
    trainer = run.trainer(model, "adam", learning_rate=0.01, lazy_update=True)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for x, label in zip(ids, labels):
        with mx.autograd.record():
            loss = loss_of(model(mx.nd.array(x)), mx.nd.array(label))
        loss.backward()
        trainer.step(batch)
        yield loss.mean().asscalar()


@case
def ctc(run: Run) -> Iterator[float]:
    """A bidirectional LSTM that reads 12 columns and writes up to 4 letters, some lines shorter."""
    mx = run.mx
    nn, batch, length, letters = mx.gluon.nn, 3, 12, 8
    net = nn.HybridSequential()
    net.add(mx.gluon.rnn.LSTM(16, layout="NTC", bidirectional=True, input_size=5))
    net.add(nn.Dense(letters, flatten=False, in_units=32))
    rng = run.rng()
    x = run.normal(rng, batch, length, 5)
    label = mx.nd.array(rng.randint(0, letters - 1, (batch, 4)))
    lengths, label_lengths = mx.nd.array([12, 10, 9]), mx.nd.array([4, 3, 2])
    run.net(net, x)
    trainer = run.trainer(net, "rmsprop", learning_rate=0.003)
    loss_of = mx.gluon.loss.CTCLoss()
    for _ in range(STEPS):
        with mx.autograd.record():
            loss = loss_of(net(x), label, lengths, label_lengths)
        loss.backward()
        trainer.step(batch)
        yield loss.mean().asscalar()


# Generation


@case
def dcgan(run: Run) -> Iterator[float]:
    """Two nets and two trainers; the discriminator sees what is real, and what is made (detached)."""
    mx = run.mx
    nn, batch = mx.gluon.nn, 4
    maker, judge = nn.HybridSequential(), nn.HybridSequential()
    for channels, stride, pad in ((32, 1, 0), (16, 2, 1), (8, 2, 1)):
        maker.add(nn.Conv2DTranspose(channels, 4, stride, pad, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    maker.add(nn.Conv2DTranspose(3, 4, 2, 1, use_bias=False), nn.Activation("tanh"))
    judge.add(nn.Conv2D(8, 4, 2, 1, use_bias=False), nn.LeakyReLU(0.2))
    for channels in (16, 32):
        judge.add(nn.Conv2D(channels, 4, 2, 1, use_bias=False), nn.BatchNorm(), nn.LeakyReLU(0.2))
    judge.add(nn.Conv2D(1, 4, 1, 0, use_bias=False))
    rng = run.rng()
    real = [mx.nd.array(rng.uniform(-1, 1, (batch, 3, 32, 32))) for _ in range(3)]
    noise = [run.normal(rng, batch, 10, 1, 1) for _ in range(STEPS)]
    run.net(maker, noise[0], name="maker.")
    run.net(judge, real[0], name="judge.")
    trainers = [run.trainer(net, "adam", learning_rate=2e-4, beta1=0.5) for net in (judge, maker)]
    loss_of = mx.gluon.loss.SigmoidBinaryCrossEntropyLoss()
    ones, zeros = mx.nd.ones(batch), mx.nd.zeros(batch)
    for step in range(STEPS):
        with mx.autograd.record():
            of_real = loss_of(judge(real[step % 3]).reshape((-1,)), ones)
            made = maker(noise[step])
            of_made = loss_of(judge(made.detach()).reshape((-1,)), zeros)
            loss = of_real + of_made
            loss.backward()
        trainers[0].step(batch)
        with mx.autograd.record():
            fooled = loss_of(judge(maker(noise[step])).reshape((-1,)), ones)
            fooled.backward()
        trainers[1].step(batch)
        yield (loss.mean() + fooled.mean()).asscalar()


@case
def vae(run: Run) -> Iterator[float]:
    mx = run.mx
    nn, batch, size, latent = mx.gluon.nn, 6, 40, 3

    class Model(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.encoder, self.decoder = nn.HybridSequential(), nn.HybridSequential()
                self.encoder.add(nn.Dense(32, activation="relu"), nn.Dense(2 * latent))
                self.decoder.add(nn.Dense(32, activation="relu"), nn.Dense(size, activation="sigmoid"))

        def hybrid_forward(self, F: Any, x: Any, noise: Any) -> Any:
            mean, log_variance = F.split(self.encoder(x), 2, axis=1)
            y = self.decoder(mean + F.exp(0.5 * log_variance) * noise)
            divergence = 0.5 * F.sum(1 + log_variance - mean**2 - F.exp(log_variance), axis=1)
            likelihood = F.sum(x * F.log(y + 1e-10) + (1 - x) * F.log(1 - y + 1e-10), axis=1)
            return -likelihood - divergence

    rng = run.rng()
    x = mx.nd.array(rng.uniform(0, 1, (batch, size)))
    noise = [run.normal(rng, batch, latent) for _ in range(STEPS)]
    model = run.net(Model(), x, noise[0])
    trainer = run.trainer(model, "adam", learning_rate=0.003)
    for step in range(STEPS):
        with mx.autograd.record():
            loss = model(x, noise[step])
        loss.backward()
        trainer.step(batch)
        yield loss.mean().asscalar()


@case
def super_resolution(run: Run) -> Iterator[float]:
    """A small net whose channels become pixels; trained with L2Loss and Adam."""
    mx = run.mx
    nn, batch, up = mx.gluon.nn, 2, 3

    class Model(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.conv1 = nn.Conv2D(16, 5, padding=2, in_channels=1)
                self.conv2 = nn.Conv2D(16, 3, padding=1, in_channels=16)
                self.conv3 = nn.Conv2D(up * up, 3, padding=1, in_channels=16)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            y = self.conv3(F.tanh(self.conv2(F.LeakyReLU(self.conv1(x), act_type="elu"))))
            y = F.reshape(y, (0, -4, -1, up * up, 0, 0))
            y = F.reshape(F.transpose(y, (0, 1, 3, 4, 2)), (0, 0, 0, 0, up, up))
            return F.reshape(F.transpose(y, (0, 1, 2, 4, 3, 5)), (0, 0, -3, -3))

    rng = run.rng()
    x, target = run.normal(rng, batch, 1, 10, 10), run.normal(rng, batch, 1, 30, 30)
    model = run.net(Model(), x)
    trainer = run.trainer(model, "nadam", learning_rate=0.002)
    loss_of = mx.gluon.loss.L2Loss()
    for _ in range(STEPS):
        with mx.autograd.record():
            loss = loss_of(model(x), target)
        loss.backward()
        trainer.step(batch)
        yield loss.mean().asscalar()


# Detection


@case
def ssd(run: Run) -> Iterator[float]:
    """Boxes from two scales of a small net, matched by MultiBoxTarget with its hard examples."""
    mx = run.mx
    nn, batch, classes, boxes = mx.gluon.nn, 4, 2, 4

    def down(channels: int) -> Any:
        net = nn.HybridSequential()
        for _ in range(2):
            net.add(nn.Conv2D(channels, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
        net.add(nn.MaxPool2D(2))
        return net

    class Model(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.stem, self.stage1, self.stage2 = down(8), down(16), down(16)
                for k in range(2):
                    setattr(self, f"classes{k}", nn.Conv2D(boxes * (classes + 1), 3, padding=1))
                    setattr(self, f"places{k}", nn.Conv2D(boxes * 4, 3, padding=1))

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            scores, places, anchors = [], [], []
            y = self.stage1(self.stem(x))
            for k, sizes in enumerate(((0.2, 0.3), (0.5, 0.7))):
                if k:
                    y = self.stage2(y)
                anchors.append(F.contrib.MultiBoxPrior(y, sizes=sizes, ratios=(1, 2, 0.5)))
                for parts, head in ((scores, f"classes{k}"), (places, f"places{k}")):
                    parts.append(F.flatten(F.transpose(getattr(self, head)(y), (0, 2, 3, 1))))
            scores = F.reshape(F.concat(*scores, dim=1), (0, -1, classes + 1))
            return F.concat(*anchors, dim=1), scores, F.concat(*places, dim=1)

    rng = run.rng()
    corner = rng.uniform(0, 0.5, (batch, 2, 2))
    label = np.concatenate(
        [rng.randint(0, classes, (batch, 2, 1)), corner, corner + rng.uniform(0.2, 0.45, (batch, 2, 2))], axis=2
    )
    label[0, 1] = -1
    x, label = run.normal(rng, batch, 3, 32, 32), mx.nd.array(label)
    model = run.net(Model(), x)
    trainer = run.trainer(model, "sgd", learning_rate=0.05, wd=5e-4)
    class_loss, place_loss = mx.gluon.loss.SoftmaxCrossEntropyLoss(), mx.gluon.loss.L1Loss()
    for _ in range(STEPS):
        with mx.autograd.record():
            anchors, scores, places = model(x)
            targets, masks, ids = mx.nd.contrib.MultiBoxTarget(
                anchors, label, scores.transpose((0, 2, 1)), negative_mining_ratio=3, overlap_threshold=0.5
            )
            kept = (ids >= 0).expand_dims(2)
            loss = class_loss(scores, mx.nd.maximum(ids, 0), kept) + place_loss(places * masks, targets * masks)
        loss.backward()
        trainer.step(batch)
        yield loss.mean().asscalar()


# Modules


@case
def module_fit(run: Run) -> Iterator[float]:
    """`Module.fit` on a multilayer perceptron; cross entropy of each batch."""
    mx, rng = run.mx, run.rng()
    y = mx.sym.var("data")
    y = mx.sym.Activation(mx.sym.FullyConnected(y, num_hidden=32, name="fc1"), act_type="relu")
    y = mx.sym.BatchNorm(y, fix_gamma=False, name="bn")
    y = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(y, num_hidden=5, name="fc2"), name="softmax")
    x, label = rng.standard_normal((4 * STEPS, 12)).astype(np.float32), rng.randint(0, 5, 4 * STEPS).astype(np.float32)
    data = mx.io.NDArrayIter(x[: 2 * STEPS], label[: 2 * STEPS], batch_size=4)
    shapes = y.infer_shape(data=(4, 12), softmax_label=(4,))
    names = [*zip(y.list_arguments(), shapes[0]), *zip(y.list_auxiliary_states(), shapes[2])]
    start = {name: run.start(name, shape) for name, shape in names if name not in ("data", "softmax_label")}
    losses: list[float] = []

    def after_batch(parameters: Any) -> None:
        losses.append(parameters.eval_metric.get()[1])
        parameters.eval_metric.reset()

    module = mx.mod.Module(y)
    module.fit(
        data,
        num_epoch=2,
        eval_metric="ce",
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3},
        arg_params={key: start[key] for key in y.list_arguments() if key in start},
        aux_params={key: start[key] for key in y.list_auxiliary_states()},
        batch_end_callback=after_batch,
    )
    for values in module.get_params():
        run.values |= {key: value.asnumpy() for key, value in values.items()}
    yield from losses
