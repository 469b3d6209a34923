"""`mx.rnn`: graphs character by character as MXNet 1.9.1 makes them, weights, checkpoints, buckets of sentences."""

import random
import warnings
import zlib
from collections import defaultdict

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd, rnn

from .symbolic_cases import graphs

MXNET = {  # CRC-32 of the JSON that MXNet writes, in all layouts; by cell
    "rnn": 3482145326,
    "relu": 3887780560,
    "lstm": 2932401915,
    "gru": 2194599810,
    "shared": 4128257866,
    "stack": 697087194,
    "both": 2858675219,
    "zoneout": 4149206102,
    "residual": 4219110632,
    "fused_lstm": 2917215680,
    "fused_gru": 1507411639,
    "unfused": 1236030264,
    "unfused_relu": 3298158404,
    "ConvRNNCell": 283124204,
    "ConvLSTMCell": 1187026072,
    "ConvGRUCell": 183762973,
    "given": 2787704201,
}


@pytest.fixture(scope="module")
def written():
    found = defaultdict(str)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, graph in graphs(mx).items():
            found[name.partition(" ")[0]] += graph.tojson()
    return found


@pytest.mark.parametrize("cell", MXNET)
def test_graphs_are_those_of_mxnet(written, cell):
    assert zlib.crc32(written[cell].encode()) == MXNET[cell]


def test_weights_apart_and_together():
    cell = rnn.LSTMCell(2)
    packed = {
        "lstm_i2h_weight": nd.arange(24).reshape((8, 3)),
        "lstm_i2h_bias": nd.arange(8),
        "lstm_h2h_weight": nd.arange(16).reshape((8, 2)),
        "lstm_h2h_bias": nd.arange(8),
    }
    apart = cell.unpack_weights(packed)
    assert list(apart)[:4] == ["lstm_i2h_i_weight", "lstm_i2h_i_bias", "lstm_i2h_f_weight", "lstm_i2h_f_bias"]
    assert apart["lstm_h2h_f_weight"].asnumpy().tolist() == [[4, 5], [6, 7]]
    again = cell.pack_weights(apart)
    assert again.keys() == packed.keys()
    assert all((again[name].asnumpy() == packed[name].asnumpy()).all() for name in packed)


@pytest.fixture
def gru():
    return rnn.FusedRNNCell(2, num_layers=2, bidirectional=True, mode="gru")


def test_weights_of_the_fused_cell(gru):
    vector = nd.arange(180)
    apart = gru.unpack_weights({"gru_parameters": vector})
    assert len(apart) == 48
    assert apart["gru_r1_i2h_z_weight"].asnumpy().tolist() == [[104, 105, 106, 107], [108, 109, 110, 111]]
    assert apart["gru_l0_h2h_o_bias"].asnumpy().tolist() == [142, 143]
    assert (gru.pack_weights(apart)["gru_parameters"].asnumpy() == vector.asnumpy()).all()
    with pytest.raises(AssertionError, match="Invalid parameters size for FusedRNNCell: 181"):
        gru.unpack_weights({"gru_parameters": nd.arange(181)})


def test_the_fused_cell_computes_what_mxnet_does_and_what_its_parts_do(gru):
    x = nd.arange(9).reshape((3, 1, 3)) / 9
    weights = {"gru_parameters": nd.array(np.sin(np.arange(180)))}
    outputs, _ = gru.unroll(3, mx.sym.var("data"), layout="TNC", merge_outputs=True)
    fused = outputs.simple_bind(mx.cpu(), data=(3, 1, 3))
    fused.copy_params_from(weights)
    y = fused.forward(data=x)[0].asnumpy()
    np.testing.assert_allclose(y[0, 0], [-0.06135, -0.04502, 0.30645, 0.24451], atol=1e-5)  # MXNet's
    np.testing.assert_allclose(y[2, 0], [-0.24392, -0.08504, 0.12305, 0.13644], atol=1e-5)
    parts = gru.unfuse()
    outputs, _ = parts.unroll(3, mx.sym.var("data"), layout="TNC", merge_outputs=True)
    stepped = outputs.simple_bind(mx.cpu(), data=(3, 1, 3))
    stepped.copy_params_from(parts.pack_weights(gru.unpack_weights(weights)))
    np.testing.assert_allclose(stepped.forward(data=x)[0].asnumpy(), y, atol=1e-6)


def test_checkpoints_hold_weights_apart(tmp_path):
    cell = rnn.GRUCell(2)
    outputs, _ = cell.unroll(2, mx.sym.var("data"), merge_outputs=True)
    shapes = dict(zip(outputs.list_arguments(), outputs.infer_shape(data=(1, 2, 3))[0]))
    args = {name: nd.random.normal(shape=shape) for name, shape in shapes.items() if name.startswith("gru_i2h")}
    args |= {name: nd.random.normal(shape=shape) for name, shape in shapes.items() if name.startswith("gru_h2h")}
    save = rnn.do_rnn_checkpoint(cell, str(tmp_path / "net"), period=2)
    save(0, outputs, args, {})
    assert list(tmp_path.iterdir()) == []
    save(1, outputs, args, {})
    assert "arg:gru_i2h_z_weight" in nd.load(str(tmp_path / "net-0002.params"))
    graph, loaded, aux = rnn.load_rnn_checkpoint([cell], str(tmp_path / "net"), 2)
    assert graph.tojson() == outputs.tojson() and aux == {}
    assert loaded.keys() == args.keys()
    assert all((loaded[name].asnumpy() == args[name].asnumpy()).all() for name in args)


def test_misuse():
    modified = rnn.RNNCell(2)
    rnn.ResidualCell(modified)
    with pytest.raises(AssertionError, match="Call the modifier cell instead"):
        modified.begin_state()
    with pytest.raises(AssertionError, match="FusedRNNCell doesn't support zoneout.*unfuse it"):
        rnn.ZoneoutCell(rnn.FusedRNNCell(2))
    with pytest.raises(AssertionError, match="Either specify params for SequentialRNNCell or child cells, not both"):
        rnn.SequentialRNNCell(params=rnn.RNNParams()).add(rnn.RNNCell(2))
    with pytest.raises(AssertionError, match="unroll for 3 steps was given 1 inputs"):
        rnn.RNNCell(2).unroll(3, [mx.sym.var("x")])
    with pytest.raises(AssertionError, match="unroll needs inputs"):
        rnn.RNNCell(2).unroll(3, None)
    with pytest.raises(NotImplementedError, match="Please use unroll"):
        rnn.FusedRNNCell(2)(mx.sym.var("x"), [])
    with pytest.warns(UserWarning, match="rnn_unroll is deprecated"):
        outputs, _ = rnn.rnn_unroll(rnn.RNNCell(2), 2, mx.sym.var("data"))
    assert len(outputs) == 2


def test_sentences_as_numbers():
    words = [["a", "b"], ["b", "c"]]
    assert rnn.encode_sentences(words) == ([[0, 1], [1, 2]], {"\n": -1, "a": 0, "b": 1, "c": 2})
    assert rnn.encode_sentences([["a", "z"]], {"a": 1}, unknown_token="?", start_label=5) == (
        [[1, 5]],
        {"a": 1, "?": 5},
    )
    assert rnn.encode_sentences(words[:1], invalid_label=0)[0] == [[1, 2]]
    with pytest.raises(AssertionError, match="Unknown token q"):
        rnn.encode_sentences([["q"]], {"a": 1})


@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_buckets(layout, capsys):
    sentences = [[1, 2, 3], [4, 5], [6, 7], [1, 2, 3, 4, 5, 6], [8, 9, 1]]
    random.seed(1)
    np.random.seed(1)
    batches = rnn.BucketSentenceIter(sentences, 2, buckets=[3, 2], invalid_label=0, layout=layout)
    assert "discarded 1 sentences" in capsys.readouterr().out
    assert batches.default_bucket_key == 3 and rnn.BucketSentenceIter(sentences, 2).buckets == [2, 3]
    assert batches.provide_data[0].shape == ((2, 3) if layout == "NT" else (3, 2))
    seen = [(b.bucket_key, b.data[0].asnumpy(), b.label[0].asnumpy(), b.provide_label[0]) for b in batches]
    expected = [  # MXNet's, with these seeds
        (3, [[1, 2, 3], [8, 9, 1]], [[2, 3, 0], [9, 1, 0]]),
        (2, [[4, 5], [6, 7]], [[5, 0], [7, 0]]),
    ]
    for (key, data, label, description), wanted in zip(seen, expected, strict=True):
        assert description.shape == data.shape and description.layout == layout
        if layout == "TN":
            data, label = data.T, label.T
        assert (key, data.tolist(), label.tolist()) == wanted
    with pytest.raises(ValueError, match="Invalid layout NN"):
        rnn.BucketSentenceIter(sentences, 2, layout="NN")
