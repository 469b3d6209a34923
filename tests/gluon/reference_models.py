"""The models of `support/reference.py`, written as Gluon code.

Each function builds one, not initialized, in a fresh name manager; its name is the case's. What MXNet said about the
same code is in `meta.json`, and the graph it exported in `model-symbol.json`.
"""

from gluonjit import gluon
from gluonjit.gluon import contrib, loss, nn, rnn

CASES = {}


def case(build):
    CASES[build.__name__] = build
    return build


def scoped(*makers, net=None):
    """A HybridSequential whose children are made inside its name scope."""
    net = net or nn.HybridSequential()
    with net.name_scope():
        net.add(*(make() for make in makers))
    return net


class LeNetSeed(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.pool1 = nn.MaxPool2D(pool_size=(2, 2))
            self.conv2 = nn.Conv2D(16, kernel_size=5)
            self.pool2 = nn.MaxPool2D(pool_size=(2, 2))
            self.fc1 = nn.Dense(120)
            self.fc2 = nn.Dense(84)
            self.fc3_weight = self.params.get("fc3_weight", shape=(10, 84))

    def hybrid_forward(self, F, x, fc3_weight):
        x = self.pool1(F.relu(self.conv1(x)))
        x = self.pool2(F.relu(self.conv2(x)))
        x = x.reshape((0, -1))
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return F.dot(x, fc3_weight, transpose_b=True)


@case
def lenet_seed():
    return LeNetSeed()


@case
def mlp_seed():
    return scoped(
        lambda: nn.Dense(256, activation="relu"), lambda: nn.Dense(128, activation="relu"), lambda: nn.Dense(2)
    )


@case
def mlp_seed_noscope():
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(2))
    return net


class HybridNet(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = nn.Dense(10)
        self.output = nn.Dense(2)

    def hybrid_forward(self, F, x):
        return self.output(F.relu(self.hidden(x)))


@case
def hybridnet_tutorial():
    return HybridNet()


@case
def conv1d():
    return scoped(
        lambda: nn.Conv1D(8, 5, strides=2, padding=2, dilation=2, groups=2, activation="relu"),
        lambda: nn.Conv1D(4, 3, use_bias=False),
    )


@case
def conv2d():
    return scoped(
        lambda: nn.Conv2D(12, (3, 5), strides=(2, 1), padding=(1, 2), dilation=(1, 2), groups=3),
        lambda: nn.Conv2D(12, 3, padding=(1, 1), groups=12, use_bias=False, activation="sigmoid"),
        lambda: nn.Conv2D(5, 1),
    )


@case
def conv2d_transpose():
    return scoped(
        lambda: nn.Conv2DTranspose(
            8, (4, 3), strides=(2, 3), padding=(1, 0), output_padding=(1, 2), groups=2, in_channels=6
        ),
        lambda: nn.Conv2DTranspose(3, 3, dilation=(2, 2), use_bias=False, activation="relu"),
    )


@case
def conv3d():
    return scoped(
        lambda: nn.Conv3D(6, (3, 3, 2), strides=(1, 2, 1), padding=(1, 0, 1), groups=2),
        lambda: nn.Conv3D(3, 1, activation="relu"),
    )


class PoolLayers(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            images = [
                nn.MaxPool2D(3, 2, ceil_mode=True),
                nn.MaxPool2D(),
                nn.AvgPool2D(3, 2, 1, ceil_mode=True, count_include_pad=False),
                nn.AvgPool2D(),
                nn.GlobalAvgPool2D(),
                nn.GlobalMaxPool2D(),
            ]
            series = [nn.MaxPool1D(3, 2, 1, ceil_mode=True), nn.AvgPool1D(), nn.GlobalAvgPool1D(), nn.GlobalMaxPool1D()]
            volumes = [
                nn.MaxPool3D(2, 2, 1, ceil_mode=True),
                nn.AvgPool3D((2, 1, 3), None, (1, 0, 1), count_include_pad=False),
                nn.GlobalAvgPool3D(),
                nn.GlobalMaxPool3D(),
            ]
        self._groups = tuple(map(len, (images, series, volumes)))
        for layer in (*images, *series, *volumes):
            self.register_child(layer)

    def hybrid_forward(self, F, *inputs):
        layers = iter(self._children.values())
        return [next(layers)(x) for x, count in zip(inputs, self._groups) for _ in range(count)]


@case
def pooling_layers():
    return PoolLayers()


class BNBlock(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.bn1 = nn.BatchNorm()
            self.bn2 = nn.BatchNorm(epsilon=1e-3, momentum=0.5, scale=False)
            self.bn3 = nn.BatchNorm(axis=-1, use_global_stats=True)

    def hybrid_forward(self, F, x):
        return self.bn3(self.bn2(self.bn1(x)))


@case
def batchnorm():
    return BNBlock()


@case
def layernorm():
    return scoped(nn.LayerNorm, lambda: nn.LayerNorm(axis=1, epsilon=1e-3, center=False))


@case
def instancenorm_groupnorm():
    return scoped(lambda: nn.InstanceNorm(scale=True), lambda: nn.GroupNorm(3))


@case
def embedding():
    return scoped(lambda: nn.Embedding(11, 6), lambda: nn.Dense(5, flatten=False))


@case
def embedding_int32():
    return nn.Embedding(11, 6)


class Fire(gluon.HybridBlock):
    def __init__(self, squeeze, expand1, expand3, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.sq = nn.Conv2D(squeeze, 1, activation="relu")
            self.e1 = nn.Conv2D(expand1, 1, activation="relu")
            self.e3 = nn.Conv2D(expand3, 3, padding=1, activation="relu")

    def hybrid_forward(self, F, x):
        x = self.sq(x)
        return F.concat(self.e1(x), self.e3(x), dim=1)


@case
def fire():
    return scoped(
        lambda: Fire(4, 6, 8),
        lambda: nn.MaxPool2D(3, 2, ceil_mode=True),
        lambda: Fire(3, 5, 5),
        lambda: nn.Dropout(0.0),
    )


class Res(gluon.HybridBlock):
    def __init__(self, channels, stride, downsample, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential(prefix="")
            self.body.add(
                nn.Conv2D(channels, 3, stride, 1, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.Conv2D(channels, 3, 1, 1, use_bias=False),
                nn.BatchNorm(),
            )
            self.down = None
            if downsample:
                self.down = nn.HybridSequential(prefix="")
                self.down.add(nn.Conv2D(channels, 1, stride, use_bias=False), nn.BatchNorm())

    def hybrid_forward(self, F, x):
        out = self.body(x)
        return F.Activation(out + (x if self.down is None else self.down(x)), act_type="relu")


@case
def residual():
    return scoped(lambda: Res(8, 1, False), lambda: Res(12, 2, True), nn.GlobalAvgPool2D, lambda: nn.Dense(5))


@case
def dense_flatten4d():
    return nn.Dense(7, activation="tanh")


@case
def dense_noflatten():
    return nn.Dense(7, use_bias=False, flatten=False)


@case
def dropout_eval():
    return scoped(lambda: nn.Dense(8), lambda: nn.Dropout(0.5), lambda: nn.Dense(4), lambda: nn.Dropout(0.3, axes=(0,)))


class Acts(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.prelu = nn.PReLU()
            others = [nn.LeakyReLU(0.1), nn.ELU(0.7), nn.SELU(), nn.GELU(), nn.Swish(1.3)]
            others += [nn.Activation(name) for name in ("relu", "sigmoid", "tanh", "softrelu", "softsign")]
        for layer in others:
            self.register_child(layer)

    def hybrid_forward(self, F, x):
        return [
            *(layer(x) for layer in self._children.values()),
            F.hard_sigmoid(x, alpha=0.3, beta=0.4),
            F.relu(x),
            F.sigmoid(x),
            F.softsign(x),
            F.erf(x),
            F.clip(x, -0.5, 0.8),
            F.smooth_l1(x, scalar=1.5),
            F.LeakyReLU(x, act_type="elu", slope=0.3),
        ]


@case
def activations():
    return Acts()


@case
def concurrent_identity():
    net = contrib.nn.HybridConcurrent(axis=1)
    net.add(nn.Conv2D(4, 1), nn.Conv2D(3, 3, padding=1), contrib.nn.Identity(), nn.AvgPool2D(3, 1, 1))
    return net


class Losses(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        kinds = [
            loss.L2Loss,
            loss.L1Loss,
            loss.SigmoidBinaryCrossEntropyLoss,
            loss.HuberLoss,
            loss.HingeLoss,
            loss.SquaredHingeLoss,
            loss.LogisticLoss,
            lambda: loss.KLDivLoss(from_logits=False),
            loss.PoissonNLLLoss,
        ]
        self.ce = loss.SoftmaxCrossEntropyLoss()
        self.ce2 = loss.SoftmaxCrossEntropyLoss(sparse_label=False)
        for make in kinds:
            self.register_child(make())

    def hybrid_forward(self, F, pred, label, index):
        ce, ce2, *others = self._children.values()
        return [*(each(pred, label) for each in others), ce(pred, index), ce2(pred, F.softmax(label))]


@case
def losses():
    return Losses()


class UnrollB(gluon.HybridBlock):
    """A cell for five steps, from states that are given."""

    def __init__(self, make, layout, **kwargs):
        super().__init__(**kwargs)
        self.layout = layout
        with self.name_scope():
            self.cell = make()

    def hybrid_forward(self, F, x, *states):
        outputs, states = self.cell.unroll(5, x, list(states), layout=self.layout, merge_outputs=True)
        return [outputs, *states]


@case
def lstmcell_unroll():
    return UnrollB(lambda: rnn.LSTMCell(6), "NTC")


@case
def grucell_unroll():
    return UnrollB(lambda: rnn.GRUCell(6), "TNC")


@case
def rnncell_unroll():
    return UnrollB(lambda: rnn.RNNCell(6, activation="relu"), "NTC")


class FusedRNN(gluon.HybridBlock):
    """A layer, from states that are given."""

    def __init__(self, make, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.rnn = make()

    def hybrid_forward(self, F, x, *states):
        output, states = self.rnn(x, list(states))
        return [output, *states]


@case
def lstm_fused():
    return FusedRNN(lambda: rnn.LSTM(6))


@case
def gru_fused2():
    return FusedRNN(lambda: rnn.GRU(6, num_layers=2))


@case
def rnn_fused_tanh():
    return FusedRNN(lambda: rnn.RNN(6, activation="tanh"))


class NoState(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.rnn = rnn.LSTM(6)
            self.out = nn.Dense(3, flatten=False)

    def hybrid_forward(self, F, x):
        return self.out(self.rnn(x))


@case
def lstm_fused_nostate():
    return NoState()
