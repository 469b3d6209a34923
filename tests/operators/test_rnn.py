"""Recurrent layers: laws about time, direction and lengths, and what is refused."""

import numpy as np
import pytest

from gluonjit.base import MXNetError
from gluonjit.operators.registry import get
from support.compare import assert_close

from .running import run_eager
from .samples_rnn import layers

MODES = ["rnn_relu", "rnn_tanh", "gru", "lstm"]


def run(inputs, attrs, training=False):
    """Output, and the states."""
    out, *states = run_eager("RNN", inputs, {**attrs, "state_outputs": True}, training)
    return out, states


@pytest.mark.parametrize("mode", MODES)
def test_step_by_step(mode):
    """A sequence at once, or one step after the other."""
    (x, parameters, *states), attrs = layers(np.random.RandomState(0), mode, layers=2)
    want, last = run([x, parameters, *states], attrs)
    for t in range(len(x)):
        out, states = run([x[t : t + 1], parameters, *states], attrs)
        assert_close(out[0], want[t])
    for a, b in zip(states, last):
        assert_close(a, b)


@pytest.mark.parametrize("mode", MODES)
def test_lengths(mode):
    """Each entry of the batch gives what its own sequence gives alone, in both directions."""
    inputs, attrs = layers(np.random.RandomState(1), mode, batch=3, layers=2, directions=2)
    x, parameters, *states = inputs
    lengths = [4, 1, 3]
    out, last = run([*inputs, np.array(lengths, np.float32)], {**attrs, "use_sequence_length": True})
    for k, n in enumerate(lengths):
        alone, states_alone = run([x[:n, k : k + 1], parameters, *(s[:, k : k + 1] for s in states)], attrs)
        assert_close(out[:n, k : k + 1], alone)
        assert not out[n:, k].any()
        for a, b in zip(last, states_alone):
            assert_close(a[:, k : k + 1], b)


def test_backwards_is_the_reverse():
    (x, parameters, *states), attrs = layers(np.random.RandomState(2), "lstm", directions=2)
    out, _ = run([x, parameters, *states], attrs)
    weights, biases = parameters[:-80], parameters[-80:]  # each direction has 2 * 4 * 5 biases
    middle = len(weights) // 2
    swapped = np.concatenate([weights[middle:], weights[:middle], biases[40:], biases[:40]])
    other, _ = run([x[::-1].copy(), swapped, *(s[::-1].copy() for s in states)], attrs)
    assert_close(other[::-1, :, 5:], out[:, :, :5])


def test_clipping():
    inputs, attrs = layers(np.random.RandomState(3), "lstm")
    _, (_, cell) = run(inputs, {**attrs, "lstm_state_clip_min": -0.1, "lstm_state_clip_max": 0.2})
    assert cell.min() >= np.float32(-0.1) and cell.max() <= np.float32(0.2)
    inputs[0][:] = np.nan
    clip = {**attrs, "lstm_state_clip_min": -0.1, "lstm_state_clip_max": 0.2}
    assert np.isnan(run(inputs, clip)[1][1]).all()
    assert (run(inputs, {**clip, "lstm_state_clip_nan": True})[1][1] == np.float32(-0.1)).all()


def test_dropout():
    """Between layers, while training, and by new numbers in each layer."""
    inputs, attrs = layers(np.random.RandomState(4), "gru", layers=3, p=1.0)
    op = get("RNN")
    assert [op.streams(op.parse(attrs), mode) for mode in (True, False)] == [2, 0]
    # With everything dropped, the last layer knows nothing of the input.
    silent = [np.zeros_like(inputs[0]), *inputs[1:]]
    assert_close(run(inputs, attrs, training=True)[0], run(silent, attrs, training=True)[0])
    assert_close(run(inputs, attrs)[0], run(inputs, {**attrs, "p": 0.0})[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: (5, 3)}, "Input data should be rank-3 tensor of dim"),
        ({1: (7,)}, r"Provided = \[7\], inferred shape=\[200\] for parameters"),
        ({2: (1, 1, 5)}, r"Provided = \[1,1,5\], inferred shape=\[1,2,5\] for state"),
        ({3: (1, 2, 4)}, r"inferred shape=\[1,2,5\] for state_cell"),
    ],
)
def test_refused_shapes(change, message):
    inputs, attrs = layers(np.random.RandomState(0), "lstm")
    for k, shape in change.items():
        inputs[k] = np.zeros(shape, np.float32)
    with pytest.raises(MXNetError, match=message):
        run(inputs, attrs)


def test_refused_attributes():
    inputs, attrs = layers(np.random.RandomState(0), "gru", projection=2)
    with pytest.raises(MXNetError, match="projection_size is only for mode='lstm'"):
        run(inputs, attrs)
    inputs, attrs = layers(np.random.RandomState(0), "lstm", lstm_state_clip_min=0)
    with pytest.raises(MXNetError, match="must be given together"):
        run(inputs, attrs)


def test_shapes_of_parameters():
    op = get("RNN")
    attrs = op.parse({"state_size": 4, "num_layers": 2, "mode": "lstm", "bidirectional": True, "projection_size": 3})
    assert op.complete(attrs, [(5, 2, 3), None, None, None]) == [(5, 2, 3), (656,), (4, 2, 3), (4, 2, 4)]
    assert op.complete(attrs, [(5, 0, 0), None, None, None]) == [(5, 0, 0), (0,), (4, 0, 3), (4, 0, 4)]
    assert op.infer_inputs(attrs, [(0, 0, 3), None, None, None], [(5, 2, 6), None, None])[0] == (5, 2, 3)
