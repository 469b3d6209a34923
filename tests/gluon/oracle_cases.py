"""Blocks of `gluon.loss`, `gluon.rnn` and `gluon.contrib` with inputs, to be run by this package and by real MXNet.

A case builds its block from the module `mx`, either of the two. `tests/oracle/record_gluon.py` keeps what MXNet says:
names, shapes, printed form, graph and results.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Case:
    name: str
    build: Callable[[Any], Any]
    """Makes the block, not initialized."""
    make_inputs: Callable[[np.random.RandomState], Sequence[np.ndarray]]
    hybrid: bool = True
    """Whether the block can be hybridized."""
    needs: tuple[str, ...] = ()
    """Operators."""

    def inputs(self) -> list[np.ndarray]:
        """Always the same, in float32."""
        random = np.random.RandomState(zlib.crc32(self.name.encode()))
        return [np.asarray(x, np.float32) for x in self.make_inputs(random)]

    def differentiated(self) -> list[int]:
        """The numbers of the inputs that are not whole numbers, as labels are, and lengths: what MXNet gives as the
        gradient of lengths is uninitialized memory."""
        return [k for k, x in enumerate(self.inputs()) if (x % 1).any()]

    def cotangents(self, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Head gradients for results of these shapes, in float32."""
        random = np.random.RandomState(zlib.crc32(f"{self.name}, backward".encode()))
        return [uniform(random, -1, 1, shape).astype(np.float32) for shape in shapes]


def trains(net: Any) -> bool:
    """Whether the block is differentiated in training mode.

    Not one with random numbers, nor SyncBatchNorm, which in MXNet waits for a second device.
    """
    return not any(word in repr(net) for word in ("Dropout", "Zoneout", "dropout=", "SyncBatchNorm"))


CASES: dict[str, Case] = {}


def uniform(random: np.random.RandomState, low: float, high: float, shape: Sequence[int]) -> np.ndarray:
    """Numbers with the same bits everywhere: normal ones depend on the C library's `log`."""
    return random.random_sample(shape) * (high - low) + low


def case(name: str, build: Any, *inputs: Any, hybrid: bool = True, needs: Sequence[str] = ()) -> None:
    """Registers a case. `inputs` are shapes, filled with uniform numbers, or functions of a RandomState."""

    def make(random: np.random.RandomState) -> list[np.ndarray]:
        return [x(random) if callable(x) else uniform(random, -1.75, 1.75, x) for x in inputs]

    assert name not in CASES
    CASES[name] = Case(name, build, make, hybrid, tuple(needs))


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The value of the parameter with this structured name."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    if name.endswith(("gamma", "running_var")):
        return uniform(random, 0.8, 1.2, shape).astype(np.float32)
    return uniform(random, -0.9, 0.9, shape).astype(np.float32)


def integers(high: int, shape: tuple[int, ...]) -> Any:
    return lambda random: random.randint(0, high, shape)


def positive(shape: tuple[int, ...]) -> Any:
    return lambda random: uniform(random, 0.05, 0.95, shape)


def signs(shape: tuple[int, ...]) -> Any:
    return lambda random: random.randint(0, 2, shape) * 2 - 1


def distribution(shape: tuple[int, ...]) -> Any:
    def make(random: np.random.RandomState) -> np.ndarray:
        x = uniform(random, 0.1, 1, shape)
        return x / x.sum(-1, keepdims=True)

    return make


def exactly(values: Any) -> Any:
    return lambda random: np.array(values)


# Losses: name, class, keywords, inputs


def loss(kind: str, *inputs: Any, title: str = "", needs: Sequence[str] = (), **kwargs: Any) -> None:
    build = lambda mx: getattr(mx.gluon.loss, kind)(**kwargs)  # noqa: E731
    case(f"{kind} {title}".strip(), build, *inputs, needs=needs)


loss("L2Loss", (4, 5), (4, 5))
loss("L2Loss", (4, 5), (4, 5), (4, 1), title="weights", weight=3.0)
loss("L2Loss", (4, 5, 2), (4, 10), title="reshaped label, other batch axis", batch_axis=1)
loss("L1Loss", (4, 5), (4, 5))
loss("L1Loss", (4, 5), (4, 5), (4, 1), title="weights", weight=0.5)
loss("SigmoidBCELoss", (4, 5), positive((4, 5)))
loss("SigmoidBCELoss", (4, 5), positive((4, 5)), (4, 1), positive((1, 5)), title="positive weight", weight=2.0)
loss("SigmoidBCELoss", positive((4, 5)), positive((4, 5)), title="of probabilities", from_sigmoid=True)
loss(
    "SigmoidBCELoss",
    positive((4, 5)),
    positive((4, 5)),
    (4, 1),
    positive((1, 5)),
    title="of probabilities, positive weight",
    from_sigmoid=True,
)
loss("SoftmaxCELoss", (4, 5), integers(5, (4,)))
loss("SoftmaxCELoss", (4, 5), integers(5, (4,)), (4, 1), title="weights", weight=2.0)
loss("SoftmaxCELoss", (4, 5), distribution((4, 5)), title="dense", sparse_label=False)
loss("SoftmaxCELoss", (4, 5, 3), integers(5, (4, 3)), title="axis 1", axis=1)
loss("SoftmaxCELoss", (4, 5), integers(5, (4,)), title="logits", from_logits=True)
loss("KLDivLoss", (4, 5), distribution((4, 5)))
loss("KLDivLoss", (4, 5), distribution((4, 5)), title="logits", from_logits=False, weight=0.1)
loss("HuberLoss", (4, 5), (4, 5))
loss("HuberLoss", (4, 5), (4, 5), (4, 1), title="rho", rho=0.3, weight=2.0)
loss("HingeLoss", (4, 5), signs((4, 5)))
loss("HingeLoss", (4, 5), signs((4, 5)), title="margin", margin=0.3)
loss("SquaredHingeLoss", (4, 5), signs((4, 5)))
loss("SquaredHingeLoss", (4, 5), signs((4, 5)), title="margin", margin=0.3)
loss("LogisticLoss", (4, 5), signs((4, 5)))
loss("LogisticLoss", (4, 5), integers(2, (4, 5)), title="binary", label_format="binary")
loss("TripletLoss", (4, 5), (4, 5), (4, 5))
loss("TripletLoss", (4, 5), (4, 5), (4, 5), title="margin", margin=0.3, weight=2.0)
loss("PoissonNLLLoss", (4, 5), positive((4, 5)))
loss("PoissonNLLLoss", positive((4, 5)), integers(5, (4, 5)), title="rates", from_logits=False)
loss("PoissonNLLLoss", (4, 5), lambda r: r.randint(1, 5, (4, 5)), title="full", compute_full=True)
loss("CosineEmbeddingLoss", (4, 5), (4, 5), signs((4,)))
loss("CosineEmbeddingLoss", (4, 5), (4, 5), signs((4,)), (4, 1), title="margin", margin=0.3, weight=2.0)
loss("SDMLLoss", (4, 5), (4, 5))
LABELS = exactly([[1, 0, 2], [3, 1, -1]])
loss("CTCLoss", (2, 7, 5), LABELS, needs=["CTCLoss"])
loss(
    "CTCLoss",
    (7, 2, 5),
    lambda r: np.array([[1, 3], [0, 1], [2, -1]]),
    title="TNC",
    layout="TNC",
    label_layout="TN",
    needs=["CTCLoss"],
)
loss(
    "CTCLoss",
    (2, 7, 5),
    exactly([[1, 0, 2], [3, 1, 0]]),
    exactly([7, 5]),
    exactly([3, 2]),
    title="lengths",
    weight=0.5,
    needs=["CTCLoss"],
)


# Cells. Their unrolling is a block: inputs are the sequence, then begin states (none: zeros), then valid lengths


def unrolled(make: Any, length: int, begin: int = 0, valid: bool = False, **kwargs: Any) -> Any:
    """Builds a block that unrolls the cell `make(mx.gluon)` for `length` steps."""

    def build(mx: Any) -> Any:
        class Unrolled(mx.gluon.HybridBlock):
            def __init__(self, **more):
                super().__init__(**more)
                with self.name_scope():
                    self.cell = make(mx.gluon)

            def hybrid_forward(self, F, x, *rest):
                more = dict(kwargs, valid_length=rest[begin]) if valid else kwargs
                outputs, states = self.cell.unroll(length, x, list(rest[:begin]) or None, **more)
                return [*(outputs if isinstance(outputs, list) else [outputs]), *states]

        return Unrolled()

    return build


X = (2, 5, 4)
STATE = (2, 6)
LENGTHS = exactly([5, 3])
CELLS = {
    "RNNCell": (lambda g: g.rnn.RNNCell(6), 1),
    "LSTMCell": (lambda g: g.rnn.LSTMCell(6), 2),
    "GRUCell": (lambda g: g.rnn.GRUCell(6), 1),
    "LSTMPCell": (lambda g: g.contrib.rnn.LSTMPCell(6, 3), 2),
}
for cell, (make, n) in CELLS.items():
    states = [STATE] * n if cell != "LSTMPCell" else [(2, 3), (2, 6)]
    case(f"{cell} NTC", unrolled(make, 5, n, merge_outputs=True), X, *states)
    case(f"{cell} list", unrolled(make, 5, n, layout="TNC", merge_outputs=False), (5, 2, 4), *states)
    case(f"{cell} valid lengths", unrolled(make, 5, n, valid=True), X, *states, LENGTHS)
case("RNNCell relu", unrolled(lambda g: g.rnn.RNNCell(6, "relu"), 5, 1), X, STATE)
case("RNNCell softrelu", unrolled(lambda g: g.rnn.RNNCell(6, "softrelu"), 5, 1), X, STATE)
case(
    "LSTMCell activations",
    unrolled(lambda g: g.rnn.LSTMCell(6, activation="relu", recurrent_activation="softsign"), 5, 2),
    X,
    STATE,
    STATE,
)
case("LSTMCell zeros", unrolled(CELLS["LSTMCell"][0], 5), X)


def stack(kind: str, *cells: Any) -> Any:
    def make(g: Any) -> Any:
        out = getattr(g.rnn, kind)()
        with out.name_scope():
            for make_cell in cells:
                out.add(make_cell(g))
        return out

    return make


def both_ways(g: Any) -> Any:
    return g.rnn.BidirectionalCell(g.rnn.LSTMCell(6, prefix="l_"), g.rnn.LSTMCell(6, prefix="r_"))


TOWER = stack(
    "HybridSequentialRNNCell",
    lambda g: g.rnn.LSTMCell(4),
    lambda g: g.rnn.DropoutCell(0.3),
    lambda g: g.rnn.ResidualCell(g.rnn.GRUCell(4)),
    lambda g: g.rnn.ZoneoutCell(g.rnn.RNNCell(6), 0.2, 0.3),
)
TOWER_STATES = [(2, 4), (2, 4), (2, 4), (2, 6)]
case("HybridSequentialRNNCell", unrolled(TOWER, 5, 4), X, *TOWER_STATES)
case(
    "HybridSequentialRNNCell merged", unrolled(TOWER, 5, 4, merge_outputs=True, layout="TNC"), (5, 2, 4), *TOWER_STATES
)
case(
    "HybridSequentialRNNCell lengths", unrolled(TOWER, 5, 4, valid=True, merge_outputs=False), X, *TOWER_STATES, LENGTHS
)
case("BidirectionalCell", unrolled(both_ways, 5, 4), X, *[STATE] * 4)
case("BidirectionalCell merged", unrolled(both_ways, 5, 4, merge_outputs=True), X, *[STATE] * 4)
case("BidirectionalCell TNC", unrolled(both_ways, 5, 4, merge_outputs=True, layout="TNC"), (5, 2, 4), *[STATE] * 4)
case("BidirectionalCell lengths", unrolled(both_ways, 5, 4, valid=True, merge_outputs=True), X, *[STATE] * 4, LENGTHS)
case(
    "BidirectionalCell lengths TNC",
    unrolled(both_ways, 5, 4, valid=True, layout="TNC"),
    (5, 2, 4),
    *[STATE] * 4,
    LENGTHS,
)
case(
    "BidirectionalCell residual",
    unrolled(
        lambda g: g.rnn.ResidualCell(
            g.rnn.BidirectionalCell(g.rnn.GRUCell(2, prefix="l_"), g.rnn.GRUCell(2, prefix="r_"))
        ),
        5,
        2,
        valid=True,
        merge_outputs=True,
    ),
    X,
    (2, 2),
    (2, 2),
    LENGTHS,
)
case(
    "stack of BidirectionalCell",
    unrolled(stack("HybridSequentialRNNCell", both_ways, lambda g: g.rnn.GRUCell(3)), 5, 5, merge_outputs=True),
    X,
    *[STATE] * 4,
    (2, 3),
)
case("ZoneoutCell", unrolled(lambda g: g.rnn.ZoneoutCell(g.rnn.LSTMCell(6), 0.5, 0.5), 5, 2), X, STATE, STATE)
case(
    "VariationalDropoutCell",
    unrolled(lambda g: g.contrib.rnn.VariationalDropoutCell(g.rnn.LSTMCell(6), 0.3, 0.2, 0.1), 5, 2, valid=True),
    X,
    STATE,
    STATE,
    LENGTHS,
)
case(
    "VariationalDropoutCell without states",
    unrolled(lambda g: g.contrib.rnn.VariationalDropoutCell(g.rnn.LSTMCell(6), 0.3, 0.0, 0.1), 5, 2),
    X,
    STATE,
    STATE,
)


def conv_cell(rank: int, kind: str, image: tuple[int, ...]) -> Any:
    return lambda g: getattr(g.contrib.rnn, f"Conv{rank}D{kind}Cell")((3, *image), 2, 3, 3, i2h_pad=1)


for rank in (1, 2, 3):
    image = (8, 7, 6)[:rank]
    for kind, n in (("RNN", 1), ("LSTM", 2), ("GRU", 1)):
        built = unrolled(conv_cell(rank, kind, image), 2, n)
        case(f"Conv{rank}D{kind}Cell", built, (2, 2, 3, *image), *[(2, 2, *image)] * n)
case(
    "Conv2DLSTMCell settings",
    unrolled(
        lambda g: g.contrib.rnn.Conv2DLSTMCell((3, 8, 7), 2, (3, 2), (3, 5), (0, 1), (2, 1), (1, 2), activation="relu"),
        2,
        2,
    ),
    (2, 2, 3, 8, 7),
    (2, 2, 4, 8),
    (2, 2, 4, 8),
)


# Layers


def layer(kind: str, **kwargs: Any) -> Any:
    """Builds a block around a recurrent layer: inputs are the sequence, then states (none: zeros), then lengths."""

    def build(mx: Any) -> Any:
        class Around(mx.gluon.HybridBlock):
            def __init__(self, **more):
                super().__init__(**more)
                with self.name_scope():
                    self.rnn = getattr(mx.gluon.rnn, kind)(6, **kwargs)

            def hybrid_forward(self, F, x, *states):
                if not states:
                    return self.rnn(x)
                if kwargs.get("use_sequence_length"):
                    output, states = self.rnn(x, list(states[:-1]), states[-1])
                else:
                    output, states = self.rnn(x, list(states))
                return [output, *states]

        return Around()

    return build


SERIES = (5, 2, 4)
RNN = ["RNN"]
for kind, n in (("RNN", 1), ("LSTM", 2), ("GRU", 1)):
    case(f"{kind} layer", layer(kind, input_size=4), SERIES, *[(1, 2, 6)] * n, needs=RNN)
    case(
        f"{kind} layers, both ways", layer(kind, num_layers=2, bidirectional=True), SERIES, *[(4, 2, 6)] * n, needs=RNN
    )
    case(f"{kind} layers NTC", layer(kind, num_layers=2, layout="NTC", dropout=0.3), X, *[(2, 2, 6)] * n, needs=RNN)
    case(f"{kind} layer from zeros", layer(kind), SERIES, needs=RNN)
case("RNN layer tanh", layer("RNN", activation="tanh"), SERIES, (1, 2, 6), needs=RNN)
case(
    "LSTM layers, projection",
    layer("LSTM", num_layers=2, projection_size=3, bidirectional=True),
    SERIES,
    (4, 2, 3),
    (4, 2, 6),
    needs=RNN,
)


# Contrib


def concurrent(kind: str, **kwargs: Any) -> Any:
    def build(mx: Any) -> Any:
        net = getattr(mx.gluon.contrib.nn, kind)(**kwargs)
        with net.name_scope():
            net.add(
                mx.gluon.nn.Dense(3, flatten=False, in_units=4),
                mx.gluon.contrib.nn.Identity(),
                mx.gluon.nn.Activation("relu"),
            )
        return net

    return build


case("HybridConcurrent", concurrent("HybridConcurrent"), (2, 3, 4))
case("HybridConcurrent axis", concurrent("HybridConcurrent", axis=2), (2, 3, 4))
case("Concurrent", concurrent("Concurrent"), (2, 3, 4), hybrid=False)
case("PixelShuffle1D", lambda mx: mx.gluon.contrib.nn.PixelShuffle1D(2), (2, 6, 3))
case("PixelShuffle2D", lambda mx: mx.gluon.contrib.nn.PixelShuffle2D(2), (2, 8, 3, 4))
case("PixelShuffle2D factors", lambda mx: mx.gluon.contrib.nn.PixelShuffle2D((2, 3)), (2, 12, 3, 4))
case("PixelShuffle3D", lambda mx: mx.gluon.contrib.nn.PixelShuffle3D((2, 3, 2)), (1, 24, 2, 3, 2))
case(
    "SyncBatchNorm",
    lambda mx: mx.gluon.contrib.nn.SyncBatchNorm(num_devices=2),
    (2, 3, 4),
    needs=["_contrib_SyncBatchNorm"],
)


def deformable(kind: str, *args: Any, **kwargs: Any) -> None:
    title = kwargs.pop("title")
    build = lambda mx: getattr(mx.gluon.contrib.cnn, kind)(*args, **kwargs)  # noqa: E731
    case(f"{kind} {title}".strip(), build, (2, 4, 9, 8), needs=[f"_contrib_{kind}"])


for kind in ("DeformableConvolution", "ModulatedDeformableConvolution"):
    deformable(kind, 4, 3, padding=1, num_deformable_group=2, activation="relu", title="")
    settings = {"dilation": 2, "groups": 2, "use_bias": False, "offset_use_bias": False, "in_channels": 4}
    deformable(kind, 4, (3, 2), (2, 1), **settings, title="settings")
