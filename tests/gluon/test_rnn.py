"""Cells and recurrent layers: states, stepping and unrolling, modes, errors. Their results are in test_oracle.py."""

import copy
import json
import pickle

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon
from gluonjit.base import TraceError
from gluonjit.gluon import contrib, nn, rnn
from gluonjit.gluon.rnn import rnn_cell
from support import reference
from support.compare import assert_close

pytestmark = pytest.mark.usefixtures("fresh_names")

X = np.random.RandomState(0).standard_normal((2, 5, 4)).astype(np.float32)


def steps(cell, inputs, states):
    outputs = []
    for k in range(inputs.shape[1]):
        output, states = cell(inputs[:, k], states)
        outputs.append(output)
    return mx.nd.stack(*outputs, axis=1), states


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("hybridize", [False, True])
def test_stepping_is_unrolling(kind, hybridize):
    cell = getattr(rnn, kind)(6)
    cell.initialize()
    if hybridize:
        cell.hybridize()
    x = mx.nd.array(X)
    unrolled, last = cell.unroll(5, x, merge_outputs=True)
    cell.reset()
    stepped, states = steps(cell, x, cell.begin_state(2))
    assert_close(stepped.asnumpy(), unrolled.asnumpy())
    for a, b in zip(states, last, strict=True):
        assert_close(a.asnumpy(), b.asnumpy())
    assert cell._counter == 4


def test_states():
    cell = rnn.LSTMCell(6)
    assert cell.state_info(3) == [{"shape": (3, 6), "__layout__": "NC"}] * 2
    h, c = cell.begin_state(3)
    assert h.shape == c.shape == (3, 6) and h.asnumpy().sum() == 0
    names = [s.name for s in cell.begin_state(func=mx.sym.var)]
    assert names == ["lstm0_begin_state_2", "lstm0_begin_state_3"]
    cell.reset()
    (one, _) = cell.begin_state(2, func=mx.nd.ones, dtype="float64")
    assert one.dtype == np.float64 and one.asnumpy().sum() == 12
    stack = rnn.SequentialRNNCell()
    stack.add(cell)
    stack.add(rnn.DropoutCell(0.5))
    stack.add(rnn.GRUCell(3))
    assert [info["shape"] for info in stack.state_info(2)] == [(2, 6), (2, 6), (2, 3)]
    assert [s.shape for s in stack.begin_state(batch_size=2)] == [(2, 6), (2, 6), (2, 3)]
    assert len(stack) == 3 and stack[0] is cell


def test_stepping_a_stack():
    stack = rnn.HybridSequentialRNNCell()
    stack.add(rnn.LSTMCell(6))
    stack.add(rnn.ResidualCell(rnn.GRUCell(6)))
    stack.initialize()
    x = mx.nd.array(X)
    unrolled, _ = stack.unroll(5, x, merge_outputs=True)
    stepped, states = steps(stack, x, stack.begin_state(batch_size=2, func=mx.nd.zeros))
    assert_close(stepped.asnumpy(), unrolled.asnumpy())
    assert [s.shape for s in states] == [(2, 6)] * 3
    assert repr(stack) == ("HybridSequentialRNNCell(\n(0): LSTMCell(4 -> 24)\n(1): ResidualCell(GRUCell(6 -> 18))\n)")


def test_printed_forms():
    assert repr(rnn.RNNCell(6, "relu")) == "RNNCell(None -> 6, relu)"
    assert repr(rnn.LSTMCell(6, input_size=3)) == "LSTMCell(3 -> 24)"
    assert repr(rnn.DropoutCell(0.3, axes=(1,))) == "DropoutCell(rate=0.3, axes=(1,))"
    zoned = rnn.ZoneoutCell(rnn.RNNCell(6), 0.2, 0.3)
    assert repr(zoned) == "ZoneoutCell(p_out=0.2, p_state=0.3, RNNCell(None -> 6, tanh))"
    both = rnn.BidirectionalCell(rnn.GRUCell(2, prefix="l_"), rnn.GRUCell(2, prefix="r_"))
    assert repr(both) == "BidirectionalCell(forward=GRUCell(None -> 6), backward=GRUCell(None -> 6))"
    dropped = contrib.rnn.VariationalDropoutCell(rnn.RNNCell(6), 0.1, 0.2, 0.3)
    assert repr(dropped) == "VariationalDropoutCell(p_out = 0.3, p_state = 0.2)"
    assert repr(contrib.rnn.LSTMPCell(6, 3)) == "LSTMPCell(None -> 24 -> 3)"
    assert repr(rnn.LSTM(6, 2, dropout=0.5, bidirectional=True)) == (
        "LSTM(None -> 6, TNC, num_layers=2, dropout=0.5, bidirectional)"
    )


def test_modifiers_take_the_cell_over():
    base = rnn.RNNCell(6)
    cell = rnn.ResidualCell(base)
    assert cell.prefix == "rnn0_residualcell" and cell.params is base.params
    with pytest.raises(AssertionError, match="the base cell cannot be called directly"):
        base.begin_state(2)
    with pytest.raises(AssertionError, match="Cell rnn0 is already modified"):
        rnn.ZoneoutCell(base)
    assert [s.shape for s in cell.begin_state(func=mx.nd.zeros, batch_size=2)] == [(2, 6)]
    assert base._modified


def test_errors():
    both = rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2))
    x = mx.nd.array(X)
    with pytest.raises(NotImplementedError, match="Bidirectional cannot be stepped"):
        both(x[:, 0], both.begin_state(batch_size=2))
    stack = rnn.HybridSequentialRNNCell()
    stack.add(both)
    with pytest.raises(AssertionError, match="Please use unroll"):
        stack(x[:, 0], stack.begin_state(batch_size=2))
    with pytest.raises(AssertionError, match="BidirectionalCell doesn't support zoneout"):
        rnn.ZoneoutCell(rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2)))
    with pytest.raises(AssertionError, match="variational state dropout"):
        contrib.rnn.VariationalDropoutCell(both, drop_states=0.5)
    with pytest.raises(AssertionError, match="rate must be a number"):
        rnn.DropoutCell("half")
    cell = rnn.RNNCell(2)
    cell.initialize()
    with pytest.raises(AssertionError, match="unroll is for 4 steps, but the input has 5"):
        cell.unroll(4, x)
    with pytest.raises(AssertionError, match="unroll is for 4 steps, but there are 2 inputs"):
        cell.unroll(4, [x[:, 0], x[:, 1]])
    with pytest.raises(AssertionError, match="unroll\\(inputs=None\\)"):
        cell.unroll(4, None)
    with pytest.raises(AssertionError, match="doesn't allow grouped symbol"):
        cell.unroll(2, mx.sym.Group([mx.sym.var("a"), mx.sym.var("b")]))
    with pytest.raises(ValueError, match="Children of HybridBlock must also be HybridBlock"):
        rnn.HybridSequentialRNNCell().add(rnn.SequentialRNNCell())
    with pytest.raises(AssertionError, match="Invalid layout CNT"):
        rnn.LSTM(6, layout="CNT")
    with pytest.raises(AssertionError, match="Only support odd number"):
        contrib.rnn.Conv2DRNNCell((3, 8, 8), 2, 3, 2)


def test_activations_may_be_blocks():
    cell = rnn.RNNCell(6, activation=nn.LeakyReLU(0.25))
    cell.initialize()
    same = rnn.RNNCell(6, activation=lambda x, name: mx.nd.LeakyReLU(x, slope=0.25), params=cell.params)
    x = mx.nd.array(X)
    a, b = (c.unroll(5, x, merge_outputs=True)[0].asnumpy() for c in (cell, same))
    np.testing.assert_array_equal(a, b)


def test_private_helpers_that_others_import():
    inputs, axis, F, batch = rnn_cell._format_sequence(5, mx.nd.array(X), "NTC", False)
    assert (len(inputs), axis, F, batch) == (5, 1, mx.nd, 2)
    merged, *_ = rnn_cell._format_sequence(5, inputs, "TNC", True, in_layout="NTC")
    assert merged.shape == (5, 2, 4)
    masked = rnn_cell._mask_sequence_variable_length(mx.nd, merged, 5, mx.nd.array([2, 5]), 0, True)
    np.testing.assert_array_equal(masked.asnumpy()[2:, 0], 0)
    backward = rnn_cell._reverse_sequences(inputs, 5, mx.nd.array([2, 5]))
    np.testing.assert_array_equal(backward[0].asnumpy(), [X[0, 1], X[1, 4]])
    assert rnn_cell._get_begin_state(rnn.GRUCell(3), mx.nd, None, inputs, 2)[0].shape == (2, 3)
    assert gluon.tensor_types == (mx.sym.Symbol, mx.nd.NDArray)


# Cells that remember their previous step


class Steps(gluon.HybridBlock):
    """Two steps of a cell, which it resets only if told to."""

    def __init__(self, cell, reset, **kwargs):
        super().__init__(**kwargs)
        self.cell = cell
        self.again = reset

    def hybrid_forward(self, F, x, h):
        if self.again:
            self.cell.reset()
        a, states = self.cell(x, [h])
        b, states = self.cell(a, states)
        return F.concat(a, b, states[0], dim=1)


MEMORIES = {
    "zoneout": lambda: rnn.ZoneoutCell(rnn.RNNCell(4, input_size=4), 0.5, 0.5),
    "variational dropout": lambda: contrib.rnn.VariationalDropoutCell(rnn.RNNCell(4, input_size=4), 0.5, 0.5, 0.5),
}


@pytest.mark.parametrize("kind", MEMORIES)
def test_memory_of_steps_when_compiled_alone(kind):
    cell = MEMORIES[kind]()
    cell.initialize(mx.init.Uniform(1))
    x = mx.nd.array(X[:, 0])
    results = []
    for hybridize in (False, True):
        cell.hybridize(hybridize)
        cell.reset()
        mx.random.seed(3)
        with autograd.train_mode():
            out, states = x, cell.begin_state(func=mx.nd.ones, batch_size=2)
            for _ in range(4):
                out, states = cell(out, states)
        results.append(np.concatenate([out.asnumpy(), *(s.asnumpy() for s in states)]))
    assert_close(results[1], results[0])
    assert cell._counter == 3


@pytest.mark.parametrize("kind", MEMORIES)
def test_memory_of_steps_in_a_compiled_block(kind):
    net = Steps(MEMORIES[kind](), reset=True)
    net.initialize(mx.init.Uniform(1))
    x, h = mx.nd.array(X[:, 0]), mx.nd.array(X[:, 1])
    results = []
    for hybridize in (False, True):
        net.hybridize(hybridize)
        mx.random.seed(3)
        with autograd.train_mode():
            results += [net(x, h).asnumpy(), net(x, h).asnumpy()]
    assert_close(results[2], results[0])
    assert_close(results[3], results[1])
    assert np.abs(results[0] - results[1]).max() > 0

    forgetful = Steps(net.cell, reset=False)
    net.cell.reset()
    forgetful(x, h)
    forgetful.hybridize()
    with autograd.train_mode(), pytest.raises(TraceError, match=r"remembers its previous step(.|\n)*\.reset\(\)"):
        forgetful(x, h)


@pytest.mark.parametrize("kind", MEMORIES)
def test_memory_of_steps_is_not_copied(kind):
    net = Steps(MEMORIES[kind](), reset=True)
    net.initialize()
    x, h = mx.nd.array(X[:, 0]), mx.nd.array(X[:, 1])
    net.hybridize()
    expected = net(x, h).asnumpy()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(twin(x, h).asnumpy(), expected)


# Layers


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("layout", ["TNC", "NTC"])
def test_unfused_layers_are_stacks_of_cells(kind, layout):
    layer = getattr(rnn, kind)(6, num_layers=2, layout=layout, bidirectional=True, input_size=4)
    layer.initialize(mx.init.Uniform(1))
    stack = layer._unfuse()
    assert set(stack.collect_params().keys()) == set(layer.collect_params().keys())
    x = mx.nd.array(X if layout == "NTC" else X.swapaxes(0, 1))
    output, states = layer(x, layer.begin_state(2))
    outputs, last = stack.unroll(5, x, layout=layout, merge_outputs=True)
    assert_close(output.asnumpy(), outputs.asnumpy())
    count = len(states)
    for k, state in enumerate(states):
        assert_close(state.asnumpy(), np.stack([s.asnumpy() for s in last[k::count]]))
    names = list(layer._collect_params_with_prefix())
    assert names[0] == "_unfused.0.l_cell.i2h_weight" and names[-1] == "_unfused.1.r_cell.h2h_bias"


@pytest.mark.parametrize("hybridize", [False, True])
def test_layers_give_states_to_those_who_give_some(hybridize):
    layer = rnn.LSTM(6)
    layer.initialize()
    if hybridize:
        layer.hybridize()
    for batch in (2, 3):
        x = mx.nd.random.uniform(shape=(5, batch, 4))
        zeros = layer.begin_state(batch)
        for _ in range(2):
            alone = layer(x)
            output, states = layer(x, zeros)
            assert_close(output.asnumpy(), alone.asnumpy())
            assert [s.shape for s in states] == [(1, batch, 6)] * 2
    gru = rnn.GRU(6)
    gru.initialize()
    _, states = gru(mx.nd.ones((5, 2, 4)), mx.nd.zeros((1, 2, 6)))
    assert [s.shape for s in states] == [(1, 2, 6)]


@pytest.mark.parametrize("layer", [rnn.LSTM(6), rnn.GRU(6, 2, bidirectional=True)], ids=str)
def test_calls_without_states_go_straight_to_native_code(layer):
    layer.initialize()
    x, longer = mx.nd.random.uniform(shape=(2, 5, 2, 4)), mx.nd.random.uniform(shape=(7, 3, 4))
    wanted = [layer(v).asnumpy() for v in (x[0], x[1], longer)]
    layer.hybridize()
    layer(x[0])
    fast = layer._fast_call
    assert fast is not None
    for given, value in zip((x[0], x[1], longer), wanted):
        assert_close(fast(given).asnumpy(), value)  # the last one has another shape
        assert_close(layer(given).asnumpy(), value)
    assert layer._fast_call is not fast
    _, states = layer(longer, layer.begin_state(3))
    assert_close(layer(longer, states)[0].asnumpy(), layer(longer, states)[0].asnumpy())
    assert abs(layer(longer, states)[0].asnumpy() - wanted[2]).max() > 1e-3  # other states, not the zeros kept
    assert_close(layer(longer).asnumpy(), wanted[2])
    layer.l0_h2h_bias.set_data(mx.nd.ones(layer.l0_h2h_bias.shape))
    changed = layer(longer).asnumpy()
    layer.hybridize(False)
    assert_close(layer(longer).asnumpy(), changed)


def test_layers_check_their_states():
    layer = rnn.GRU(6, input_size=4)
    layer.initialize()
    with pytest.raises(ValueError, match=r"Expecting \(1, 2, 6\), got \(1, 3, 6\)"):
        layer(mx.nd.ones((5, 2, 4)), mx.nd.zeros((1, 3, 6)))
    assert layer.state_info(2) == [{"shape": (1, 2, 6), "__layout__": "LNC", "dtype": "float32"}]
    projected = rnn.LSTM(6, 2, projection_size=3)
    assert [s["shape"] for s in projected.state_info(2)] == [(2, 2, 3), (2, 2, 6)]
    with pytest.raises(AssertionError, match="projection"):
        projected._unfuse()
    with pytest.raises(AssertionError, match="clipping"):
        rnn.LSTM(6, state_clip_min=-1, state_clip_max=1)._unfuse()


def test_clipped_states():
    layer = rnn.LSTM(6, input_size=4, state_clip_min=-0.1, state_clip_max=0.1)
    layer.initialize(mx.init.Uniform(2))
    _, (_, c) = layer(mx.nd.array(X.swapaxes(0, 1)), layer.begin_state(2))
    assert 0.099 < np.abs(c.asnumpy()).max() <= np.float32(0.1)


def test_sequence_lengths():
    layer = rnn.GRU(6, bidirectional=True, input_size=4, use_sequence_length=True)
    layer.initialize(mx.init.Uniform(1))
    x = mx.nd.array(X.swapaxes(0, 1))
    results = []
    for hybridize in (False, True):
        layer.hybridize(hybridize)
        output, (state,) = layer(x, layer.begin_state(2), mx.nd.array([5, 3]))
        results.append((output.asnumpy(), state.asnumpy()))
    for a, b in zip(*results):
        assert_close(b, a)
    assert (results[0][0][3:, 1] == 0).all()
    short, (state,) = layer(x[:3, 1:2], layer.begin_state(1), mx.nd.array([3]))
    assert_close(results[0][0][:3, 1:2], short.asnumpy())
    assert_close(results[0][1][:, 1:2], state.asnumpy())


def test_dropout_between_layers():
    layer = rnn.LSTM(6, num_layers=2, dropout=0.5, input_size=4)
    layer.initialize(mx.init.Uniform(1))
    x = mx.nd.array(X.swapaxes(0, 1))
    results = []
    for hybridize in (False, True):
        layer.hybridize(hybridize)
        mx.random.seed(11)
        with autograd.train_mode():
            results += [layer(x).asnumpy(), layer(x).asnumpy()]
        results.append(layer(x).asnumpy())
    for k in range(3):
        assert_close(results[k + 3], results[k])
    assert np.abs(results[0] - results[1]).max() > 1e-3


@pytest.mark.parametrize("hybridize", [False, True])
def test_types(hybridize):
    layer = rnn.GRU(6, input_size=4, dtype="float64")
    layer.initialize()
    cell = rnn.GRUCell(6, input_size=4)
    cell.initialize()
    for block in (layer, cell):
        block.hybridize(hybridize)
    x = mx.nd.array(X.swapaxes(0, 1), dtype="float64")
    assert layer(x).dtype == np.float64
    layer.cast("float32")
    assert layer.state_info()[0]["dtype"] == "float32"
    assert layer(x.astype("float32")).dtype == np.float32
    cell.cast("float64")
    output, _ = cell(x[0], cell.begin_state(2, dtype="float64"))
    assert output.dtype == np.float64


class Encoder(gluon.HybridBlock):
    """Starts from zeros whose batch size nobody says."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = rnn.LSTMCell(6)
            self.layer = rnn.GRU(3, layout="NTC")

    def hybrid_forward(self, F, x):
        outputs, _ = self.cell.unroll(5, x, merge_outputs=True)
        return self.layer(outputs)


def test_begin_states_serve_any_batch_size():
    net = Encoder()
    net.initialize()
    x = mx.nd.array(X)
    expected = net(x).asnumpy()
    net.hybridize()
    assert_close(net(x).asnumpy(), expected)
    wide = mx.nd.concat(x, x, x, dim=0)
    assert_close(net(wide).asnumpy(), np.concatenate([expected] * 3))
    assert len(net._jit_cached.traces) == 1


def test_deferred_shapes_are_found_while_tracing():
    net = Encoder()
    net.initialize()
    net.hybridize()
    assert net(mx.nd.array(X)).shape == (2, 5, 3)
    assert net.layer.l0_i2h_weight.shape == (9, 6)


def test_an_exported_layer_takes_its_states_as_inputs(tmp_path):
    folder = reference.folder() / "lstm_layer_top"
    layer = rnn.LSTM(6, layout="NTC")
    layer.load_parameters(folder / "structured.params")
    layer.hybridize()
    assert_close(layer(mx.nd.array(np.load(folder / "in0.npy"))).asnumpy(), np.load(folder / "out0.npy"))
    layer.export(tmp_path / "model")
    exported, expected = (json.loads((p / "model-symbol.json").read_text())["nodes"] for p in (tmp_path, folder))
    for node, wanted in zip(exported, expected, strict=True):
        node.get("attrs", {}).pop("__shape__", None)  # known here, for the parameters were loaded
        wanted.get("attrs", {}).pop("__shape__", None)
        assert node == wanted


class Dynamic(gluon.HybridBlock):
    """A cell over a sequence, as a loop."""

    def __init__(self, layout, **kwargs):
        super().__init__(**kwargs)
        self.layout = layout
        with self.name_scope():
            self.cell = rnn.LSTMCell(6, input_size=4)

    def hybrid_forward(self, F, x, h, c, lengths=None):
        unroll = contrib.rnn.rnn_cell.dynamic_unroll
        output, states = unroll(self.cell, x, [h, c], layout=self.layout, valid_length=lengths)
        return [output, *states]


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("lengths", [None, [5, 3]])
def test_dynamic_unrolling_is_unrolling(layout, lengths, hybridize):
    net = Dynamic(layout)
    net.initialize(mx.init.Uniform(1))
    net.hybridize(hybridize)
    x = mx.nd.array(X if layout == "NTC" else X.swapaxes(0, 1))
    states = [mx.nd.random.uniform(shape=(2, 6)) for _ in range(2)]
    valid = [] if lengths is None else [mx.nd.array(lengths)]
    output, *last = net(x, *states, *valid)
    expected, wanted = net.cell.unroll(5, x, states, layout, True, *valid)
    assert_close(output.asnumpy(), expected.asnumpy())
    for a, b in zip(last, wanted, strict=True):
        assert_close(a.asnumpy(), b.asnumpy())


@pytest.mark.parametrize(
    "kind", [rnn.SequentialRNNCell, rnn.HybridSequentialRNNCell, nn.Sequential, nn.HybridSequential]
)
def test_containers_can_be_iterated(kind):
    container, inside = kind(), [rnn.LSTMCell(2), rnn.GRUCell(2)]
    for cell in inside:
        container.add(cell)
    assert list(container) == inside
