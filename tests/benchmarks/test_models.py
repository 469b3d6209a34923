"""Every engine's model computes what ours does: on nets small enough for a test, that use all operators of the rest."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from benchmarks import results, sizes, workloads
from benchmarks.engine import EngineFailed, cores, start
from benchmarks.fold import folded
from benchmarks.graph import read
from benchmarks.model import Model
from benchmarks.peers.onnx_model import write
from benchmarks.workloads import WORKLOADS, Encoder, make
from gluonjit.gluon import nn, rnn

ENGINES = {
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino", "onnx"),
    "litert": ("ai_edge_litert",),
    "ncnn": ("ncnn",),
    "jax": ("jax",),
    "torch_eager": ("torch",),
}


class Images(nn.HybridSequential):
    """Padding on one side and both, windows that do not fit, groups, joined branches, a flattened image."""

    shape = (2, 8, 15, 14)

    def __init__(self):
        super().__init__()
        self.stem = nn.HybridSequential()
        self.stem.add(nn.Conv2D(8, 3, 2, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
        self.stem.add(nn.MaxPool2D(3, 2, 1), nn.Conv2D(8, 3, padding=1, groups=8), nn.BatchNorm())
        self.left, self.right = nn.AvgPool2D(3, 1, 1), nn.Conv2D(8, (1, 3), padding=(0, 1), activation="relu")
        self.norm, self.last = nn.BatchNorm(), nn.Dense(5)
        self.more = nn.HybridSequential()
        self.more.add(nn.MaxPool2D(2, 2, ceil_mode=True), nn.Conv2D(4, 1), nn.GlobalAvgPool2D(), nn.Flatten())

    def hybrid_forward(self, F, x):
        x = F.clip(self.stem(x), 0, 6)
        x = F.Activation(self.norm(F.concat(self.left(x), self.right(x) + x, dim=1)), act_type="relu")
        return F.concat(self.last(x), self.more(x), dim=1)


class Sequence(nn.HybridSequential):
    shape = (5, 1, 6)

    def __init__(self):
        super().__init__()
        self.add(rnn.LSTM(8, input_size=6))


class Attention(nn.HybridSequential):
    shape = (1, 7, 16)

    def __init__(self):
        super().__init__()
        self.add(Encoder(16, 2))


class Elementwise(nn.HybridSequential):
    shape = (3, 40)

    def hybrid_forward(self, F, x):
        return F.tanh(x * x + x) * F.sigmoid(x)


class Boxes(nn.HybridSequential):
    """Three outputs, of which one is constant."""

    shape = (2, 3, 6, 5)

    def __init__(self):
        super().__init__()
        for k in range(2):
            setattr(self, f"classes{k}", nn.Conv2D(9, 3, padding=1))
            setattr(self, f"offsets{k}", nn.Conv2D(12, 3, padding=1))

    def hybrid_forward(self, F, x):
        def row(head):
            return F.flatten(F.transpose(head(x), axes=(0, 2, 3, 1)))

        scores, places, anchors = [], [], []
        for k, pair in enumerate(((0.2, 0.4), (0.5, 0.8))):
            scores.append(row(getattr(self, f"classes{k}")))
            places.append(row(getattr(self, f"offsets{k}")))
            anchors.append(F.contrib.MultiBoxPrior(x, sizes=pair, ratios=(1, 2)))
            x = F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
        chances = F.softmax(F.reshape(F.concat(*scores, dim=1), shape=(0, -1, 3)), axis=-1)
        return F.transpose(chances, axes=(0, 2, 1)), F.concat(*places, dim=1), F.concat(*anchors, dim=1)


CASES = [Images, Sequence, Attention, Elementwise, Boxes]
IN_PROCESS = ("onnxruntime",)
"""Engines for which no process is started. Of the others, some crash when a process ends that has used them."""
ONE_OUTPUT = ("litert", "ncnn")
"""Engines whose models are written with one output."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Model files and the right answer, by case; made once."""
    made = {}

    def get(case):
        if case not in made:
            made[case] = export(case, tmp_path_factory.mktemp(case.__name__))
        return made[case]

    return get


def export(case, folder) -> tuple[Model, list[np.ndarray]]:
    rng = np.random.RandomState(7)
    net, x = case(), rng.uniform(-1, 1, case.shape).astype(np.float32)
    net.initialize()
    net(mx.nd.array(x))
    for parameter in net.collect_params().values():
        low = 0.5 if parameter.name.endswith(("var", "gamma")) else -0.5
        parameter.set_data(mx.nd.array(rng.uniform(low, 1, parameter.shape)))
    graph = mx.sym.Group(workloads.results(net(mx.sym.var("data"))))
    aux, params = set(graph.list_auxiliary_states()), {n: p.data() for n, p in net.collect_params().items()}
    groups = [{n: v for n, v in params.items() if (n in aux) == states} for states in (False, True)]
    mx.model.save_checkpoint(str(folder / "model"), 0, graph, *groups)
    np.savez(folder / "inputs.npz", data=x)
    return Model(Path(folder)), [y.asnumpy() for y in workloads.results(net(mx.nd.array(x)))]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_gives_our_answer(engine, case, models):
    for module in ENGINES[engine]:
        pytest.importorskip(module)
    model, answers = models(case)
    if case is Boxes and engine in ONE_OUTPUT:
        with pytest.raises(EngineFailed, match="one output"):
            start(engine, model.folder, cores(1))
        return
    if case is not Images:  # for which the engine has a process write it
        write(model, model.folder / "model.onnx", {"data": case.shape})
    if engine in IN_PROCESS:
        loaded = import_module(f"benchmarks.peers.{engine}").load(model, 1)
        found = [loaded.to_numpy(loaded.call(*loaded.args)) for _ in range(2)]
    else:
        with start(engine, model.folder, cores(1)) as process:
            process.turn(1)
            found = [process.outputs()]
    # A later call must not go on where the first one ended.
    assert results.difference(found[-1], answers) < 1e-5


@pytest.mark.parametrize("case", [Images, Attention, Boxes], ids=lambda c: c.__name__)
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_one_export_serves_every_batch_and_length(engine, case, models, tmp_path):
    for module in ENGINES[engine]:
        pytest.importorskip(module)
    model = models(case)[0]
    prefix = model.prefix
    net = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
    net.hybridize(backend="numpy")  # it would compile each size
    shape, lengths = [61, *case.shape[1:]], [case.shape[1]]
    if case is Attention:
        shape[1], lengths = 67, [2, 9]
    write(model, tmp_path / "net.onnx", {"data": tuple(shape)}, sizes.DIMS)
    call = sizes.PEERS[engine](str(tmp_path / "net.onnx"), 1)
    for n in (1, 2, 5):
        for length in lengths:
            x = np.random.RandomState(n).uniform(-1, 1, (n, length, *shape[2:])).astype(np.float32)
            answers = [y.asnumpy() for y in workloads.results(net(mx.nd.array(x)))]
            assert results.difference(call(x), answers) < 1e-5


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_the_plain_graph_knows_every_shape(case, models):
    net = models(case)[0].net()
    known = {*net.inputs, *net.params}
    for node in net.nodes:
        assert known.issuperset(node.inputs)
        known.add(node.output)
    assert net.shapes.keys() == known and known.issuperset(net.outputs)
    assert all(net.params[name].shape == net.shapes[name] for name in net.params)


def test_folding_leaves_no_batch_norm_and_no_activation_behind_a_convolution(models):
    net = models(Images)[0].net()
    made = folded(net)
    ops = [node.op for node in made.nodes]
    assert "batch_norm" not in ops and "relu" not in ops
    # Of three normalizations two are in weights; the one behind the concat is not.
    assert ops.count("affine") == 1 and len(ops) == len(net.nodes) - 6
    assert [node.attrs["activation"] for node in made.nodes if node.op == "affine"] == ["relu"]


@pytest.mark.parametrize(
    ("key", "flop", "nbytes"),
    [
        ("W1", 2 * (512 * 256 + 256 * 128 + 128 * 2) + 256 + 128, 4 * (512 + 2 + 513 * 256 + 257 * 128 + 129 * 2)),
        ("W10", 32 * 2 * 4 * 256 * 512, 4 * (2 * 32 * 256 + 4 * 256 * 514)),
    ],
)
def test_operations_and_bytes_are_counted_by_the_textbook(key, flop, nbytes, tmp_path):
    net, arrays = make(key)
    graph = net(mx.sym.var("data"))
    mx.model.save_checkpoint(str(tmp_path / "m"), 0, graph, {n: p.data() for n, p in net.collect_params().items()}, {})
    plain = read(tmp_path / "m", {"data": arrays[0].shape})
    assert (plain.flop(), plain.nbytes()) == (flop, nbytes)


def test_an_operator_that_is_not_known_is_named(tmp_path):
    graph = mx.sym.erf(mx.sym.var("data"))
    mx.model.save_checkpoint(str(tmp_path / "m"), 0, graph, {}, {})
    with pytest.raises(NotImplementedError, match="erf"):
        read(tmp_path / "m", {"data": (2,)})


def test_weights_are_the_same_every_time_and_differ_by_name():
    (a, x), (b, y) = make("W1"), make("W1")
    first, second = ({n: p.data().asnumpy() for n, p in net._collect_params_with_prefix().items()} for net in (a, b))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert np.array_equal(x[0], y[0]) and len({v.tobytes() for v in first.values()}) == len(first)


def test_batch_and_width_change_shapes():
    net, (x,) = make("W2", batch=3, width=2)
    assert x.shape == (3, 1, 28, 28) and net[0].weight.shape == (12, 1, 5, 5)
    with pytest.raises(ValueError, match="no factor"):
        make("W4", width=2)


def test_every_workload_of_the_table_is_there():
    assert list(WORKLOADS) == ["W1", "W1b", *(f"W{k}" for k in range(2, 15))]
    assert all(w.goal is None or len(w.goal) == 2 for w in WORKLOADS.values())
