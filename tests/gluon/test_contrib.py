"""`gluon.contrib`: what its blocks refuse, print and share. Their results are in test_oracle.py."""

import inspect

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import contrib, nn

pytestmark = pytest.mark.usefixtures("fresh_names")


def test_concurrent():
    for kind in (contrib.nn.Concurrent, contrib.nn.HybridConcurrent):
        net = kind(axis=1)
        net.add(nn.Dense(2), nn.Dense(3), contrib.nn.Identity())
        net.initialize()
        assert net(mx.nd.ones((4, 5))).shape == (4, 10)
        assert len(net) == 3 and isinstance(net[2], contrib.nn.Identity)
    with pytest.raises(ValueError, match="Children of HybridBlock must also be HybridBlock"):
        net.add(contrib.nn.Concurrent())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pixel_shuffle_is_a_permutation(rank):
    kind = getattr(contrib.nn, f"PixelShuffle{rank}D")
    image = (2, 3, 4)[:rank]
    x = np.arange(2 * 3 * 2**rank * np.prod(image), dtype=np.float32).reshape(2, 3 * 2**rank, *image)
    out = kind(2)(mx.nd.array(x)).asnumpy()
    split = x.reshape(2, 3, *(2,) * rank, *image)
    order = [axis for k in range(rank) for axis in (2 + rank + k, 2 + k)]
    np.testing.assert_array_equal(out, split.transpose(0, 1, *order).reshape(2, 3, *(2 * n for n in image)))


def test_pixel_shuffle_factors():
    assert repr(contrib.nn.PixelShuffle1D(3)) == "PixelShuffle1D(3)"
    assert repr(contrib.nn.PixelShuffle2D(3)) == "PixelShuffle2D((3, 3))"
    assert repr(contrib.nn.PixelShuffle3D((1, 2, 3))) == "PixelShuffle3D((1, 2, 3))"
    with pytest.raises(AssertionError, match="wrong length 3"):
        contrib.nn.PixelShuffle2D((1, 2, 3))


def test_sync_batch_norm_is_batch_norm():
    with pytest.warns(UserWarning, match="mannually set num_devices"):
        one = contrib.nn.SyncBatchNorm(in_channels=3)
    assert repr(one) == (
        "SyncBatchNorm(eps=1e-05, momentum=0.9, fix_gamma=False, use_global_stats=False, ndev=1, "
        "key='syncbatchnorm0_', in_channels=3)"
    )
    other = nn.BatchNorm(in_channels=3)
    x = mx.nd.random.uniform(shape=(2, 3, 4))
    results = []
    for layer in (one, other):
        layer.initialize()
        with mx.autograd.train_mode():
            results.append(layer(x).asnumpy())
        results.append(layer(x).asnumpy())
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])


def test_sparse_embedding_printed_form():
    layer = contrib.nn.SparseEmbedding(10, 4)
    assert repr(layer) == "SparseEmbedding(10 -> 4, float32)"
    layer.initialize()
    assert layer.weight.grad().stype == "row_sparse"


def test_deformable_printed_forms():
    layer = contrib.cnn.DeformableConvolution(8, 3, strides=2, padding=1, groups=2, in_channels=4, activation="relu")
    assert repr(layer) == (
        "DeformableConvolution(None -> 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), groups=2, "
        "Activation(relu))"
    )
    assert layer.offset_weight.shape == (18, 2, 3, 3)
    plain = contrib.cnn.DeformableConvolution(8, (1, 3), dilation=(1, 2), use_bias=False)
    assert repr(plain) == (
        "DeformableConvolution(None -> 8, kernel_size=(1, 3), stride=(1, 1), dilation=(1, 2), bias=False)"
    )
    assert repr(contrib.cnn.ModulatedDeformableConvolution(8)) == "ModulatedDeformableConvolution(\n\n)"
    assert contrib.cnn.ModulatedDeformableConvolution(8, 3).offset_split_index == 18
    with pytest.raises(AssertionError, match="'NCHW' and 'NHWC'"):
        contrib.cnn.DeformableConvolution(8, layout="NCWH")


def test_convolutional_cells():
    cell = contrib.rnn.Conv2DLSTMCell((3, 8, 7), 2, 3, (3, 5), i2h_pad=1)
    assert repr(cell) == "Conv2DLSTMCell(3 -> 8, tanh, NCHW)"
    assert [s["shape"] for s in cell.state_info(4)] == [(4, 2, 8, 7)] * 2
    last = contrib.rnn.Conv1DGRUCell((9, 3), 2, 4, 3, conv_layout="NWC")
    assert last.i2h_weight.shape == (6, 4, 3) and last.h2h_weight.shape == (6, 3, 2)
    assert last.state_info(1) == [{"shape": (1, 6, 2), "__layout__": "NWC"}]
    defaults = {n: p.default for n, p in inspect.signature(contrib.rnn.Conv3DRNNCell).parameters.items()}
    assert defaults["i2h_pad"] == (0, 0, 0) and defaults["conv_layout"] == "NCDHW" and defaults["activation"] == "tanh"
