"""Messages begin with what the user did, not with what the library was about to do."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn, rnn


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_misspelt_activation(hybridize):
    net = nn.Dense(4, activation="rleu")
    net.initialize()
    if hybridize:
        net.hybridize()
    with pytest.raises((ValueError, mx.MXNetError), match="^Invalid Input: 'rleu', valid values are: {'relu'"):
        net(mx.nd.ones((1, 2)))


def test_a_sequence_of_too_few_axes():
    net = rnn.LSTM(4)
    net.initialize()
    with pytest.raises(ValueError, match=r"^LSTM takes \(time, batch, features\), layout TNC, got \(3, 5\)"):
        net(mx.nd.ones((3, 5)))


def test_blocks_that_define_nothing():
    class Empty(mx.gluon.HybridBlock):
        pass

    class Plain(mx.gluon.Block):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty defines neither hybrid_forward\(self, F, x"):
        Empty()(mx.nd.ones((1,)))
    with pytest.raises(NotImplementedError, match=r"Plain defines no forward\(self, x, ...\)"):
        Plain()(mx.nd.ones((1,)))


@pytest.mark.parametrize("make", [np.ones, mx.nd.ones])
def test_a_loader_says_which_examples_differ(make):
    loader = mx.gluon.data.DataLoader(mx.gluon.data.SimpleDataset([make((2,)), make((2,)), make((3,))]), 3)
    with pytest.raises((ValueError, mx.MXNetError), match=r"number 0 is \(2,\), number 2 is \(3,\); DataLoader\(batch"):
        list(loader)
