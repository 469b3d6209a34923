"""Learning to read 1797 real handwritten digits of 8x8 pixels, which scikit-learn ships (`pip install scikit-learn`).

    python examples/digits.py              # trains three networks; prints their accuracy on digits not trained with
    python examples/digits.py conv --epochs 5
    python examples/digits.py --picture digits.svg     # draws the curves, too (`pip install matplotlib`)

A network that reads the image as a whole (conv), one that reads it row by row (lstm), one that relates rows to each
other (transformer), each beside the best linear model of the same data. docs/training.md has the curves.
"""

import argparse
import math

import numpy as np

import gluonjit as mx
from gluonjit import autograd, gluon
from gluonjit.gluon import nn


def digits():
    """(images (n, 1, 8, 8) from 0 to 1, labels (n,)) for training and for testing: every fifth digit is a test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit("The digits are those of scikit-learn: pip install scikit-learn") from None

    data, labels = load_digits(return_X_y=True)
    images, labels = (data / 16).reshape(-1, 1, 8, 8).astype("float32"), labels.astype("float32")
    test = np.arange(len(labels)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def conv():
    net = nn.HybridSequential()
    for channels in (32, 64):
        net.add(nn.Conv2D(channels, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2))
    net.add(nn.Dropout(0.3), nn.Dense(128, activation="relu"), nn.Dropout(0.3), nn.Dense(10))
    return net


class Lstm(nn.HybridSequential):
    """Eight rows, one after the other, in both directions; a dense layer reads what it said at each."""

    def __init__(self):
        super().__init__()
        self.add(gluon.rnn.LSTM(128, layout="NTC", bidirectional=True), nn.Dropout(0.5), nn.Dense(10))

    def hybrid_forward(self, F, x):
        rows = F.reshape(x, (0, 8, 8))
        states = self[0](rows)
        return self[2](self[1](states))


class Attention(nn.HybridBlock):
    """Self-attention with several heads over (batch, length, units), then a layer for each place; both are added."""

    def __init__(self, units, heads):
        super().__init__()
        self.heads, self.scale = heads, 1 / math.sqrt(units // heads)
        with self.name_scope():
            self.qkv = nn.Dense(3 * units, flatten=False)
            self.out = nn.Dense(units, flatten=False)
            self.norm1, self.norm2 = nn.LayerNorm(), nn.LayerNorm()
            self.wide = nn.Dense(2 * units, flatten=False, activation="relu")
            self.narrow, self.drop = nn.Dense(units, flatten=False), nn.Dropout(0.2)

    def hybrid_forward(self, F, x):
        def heads(y):  # (batch, length, units) -> (batch * heads, length, units / heads)
            y = F.transpose(F.reshape(y, (0, 0, self.heads, -1)), (0, 2, 1, 3))
            return F.reshape(y, (-3, 0, 0))

        q, k, v = (heads(y) for y in F.split(self.qkv(self.norm1(x)), 3, axis=2))
        weights = F.softmax(F.batch_dot(q, k, transpose_b=True) * self.scale)
        y = F.transpose(F.reshape(F.batch_dot(weights, v), (-4, -1, self.heads, 0, 0)), (0, 2, 1, 3))
        x = x + self.drop(self.out(F.reshape(y, (0, 0, -3))))
        return x + self.drop(self.narrow(self.wide(self.norm2(x))))


class Transformer(nn.HybridBlock):
    """Each row is a word of 8 letters; a dense layer reads what is said at each."""

    def __init__(self, units=48, heads=4, layers=2):
        super().__init__()
        with self.name_scope():
            self.place = self.params.get("place", shape=(1, 8, units), init=mx.init.Normal(0.1))
            self.embed = nn.Dense(units, flatten=False)
            self.body = nn.HybridSequential()
            for _ in range(layers):
                self.body.add(Attention(units, heads))
            self.head = nn.Dense(10)

    def hybrid_forward(self, F, x, place):
        rows = F.broadcast_add(self.embed(F.reshape(x, (0, 8, 8))), place)
        return self.head(self.body(rows))


NETWORKS = {"conv": conv, "lstm": Lstm, "transformer": Transformer}


def train(net, epochs, batch_size=64, rate=3e-3, seed=0):
    """Trains `net`, and yields (epoch, mean loss, accuracy on the tests) after each epoch."""
    images, labels, test_images, test_labels = digits()
    mx.random.seed(seed)
    np.random.seed(seed)  # the order of the data
    net.initialize(mx.init.Xavier(), force_reinit=True)
    net.hybridize()
    data = gluon.data.DataLoader(
        gluon.data.ArrayDataset(images, labels), batch_size, shuffle=True, last_batch="discard"
    )
    steps = epochs * len(data)
    schedule = mx.lr_scheduler.CosineScheduler(steps, base_lr=rate, warmup_steps=steps // 10)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate, "lr_scheduler": schedule})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(1, epochs + 1):
        total = mx.metric.Loss()
        for x, y in data:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(batch_size)
            total.update(None, loss)
        right = mx.metric.Accuracy()
        right.update(mx.nd.array(test_labels), net(mx.nd.array(test_images)))
        yield epoch, total.get()[1], right.get()[1]


def linear():
    """The accuracy of logistic regression, without regularization that matters."""
    from sklearn.linear_model import LogisticRegression

    images, labels, test_images, test_labels = digits()
    model = LogisticRegression(max_iter=2000).fit(images.reshape(len(images), -1), labels)
    return model.score(test_images.reshape(len(test_images), -1), test_labels)


def draw(curves, baseline, path):
    """Draws {network: (losses, accuracies)} by epoch, and the linear model's accuracy beside them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    learned, lost = figure.subplots(1, 2)
    for name, (losses, accuracies) in curves.items():
        epochs = range(1, len(losses) + 1)
        learned.plot(epochs, [100 * accuracy for accuracy in accuracies], label=name)
        lost.plot(epochs, losses, label=name)
    learned.axhline(100 * baseline, color="black", linestyle="--", linewidth=1, label="linear model")
    learned.set(xlabel="epoch", ylabel="accuracy on test digits, %", ylim=(80, 100))
    lost.set(xlabel="epoch", ylabel="training loss", yscale="log")
    learned.legend(loc="lower right")
    for axes in (learned, lost):
        axes.grid(True, alpha=0.3)
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--picture", metavar="FILE", help="where to draw the curves: a .svg or .png file")
    given = parser.parse_args()
    curves = {}
    for name in given.networks:
        if name not in NETWORKS:
            parser.error(f"{name!r} is not one of {', '.join(NETWORKS)}")
        losses, accuracies = curves[name] = [], []
        for epoch, loss, accuracy in train(NETWORKS[name](), given.epochs):
            print(f"{name:12} epoch {epoch:3}   loss {loss:.4f}   accuracy {100 * accuracy:.2f} %", flush=True)
            losses.append(loss)
            accuracies.append(accuracy)
    baseline = linear()
    print(f"a linear model: {100 * baseline:.2f} %")
    if given.picture:
        draw(curves, baseline, given.picture)


if __name__ == "__main__":
    main()
