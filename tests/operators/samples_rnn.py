"""Samples of the recurrent layers."""

import numpy as np

from .samples import floats, sample

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}


def layers(
    rng, mode, time=4, batch=2, channels=3, size=5, layers=1, directions=1, projection=0, dtype="float32", **more
):
    """Inputs and attributes of an `RNN`."""
    out = projection or size
    parameters = 0
    for layer in range(layers):
        columns = channels if layer == 0 else out * directions
        parameters += directions * (GATES[mode] * size * (columns + out + 2) + projection * size)
    inputs = [
        floats(rng, time, batch, channels, dtype=dtype),
        floats(rng, parameters, dtype=dtype, low=-0.7, high=0.7),
        floats(rng, layers * directions, batch, out, dtype=dtype),
    ]
    if mode == "lstm":
        inputs.append(floats(rng, layers * directions, batch, size, dtype=dtype))
    attrs = {"state_size": size, "num_layers": layers, "bidirectional": directions == 2, "mode": mode, **more}
    if projection:
        attrs["projection_size"] = projection
    return inputs, attrs


@sample("RNN")
def one_layer(rng):
    return layers(rng, ["rnn_relu", "rnn_tanh"][rng.randint(2)])


@sample("RNN")
def lstm_with_states(rng):
    return layers(rng, "lstm", state_outputs=True)


@sample("RNN")
def gru_with_states(rng):
    return layers(rng, "gru", state_outputs=True)


@sample("RNN")
def tanh_with_states(rng):
    return layers(rng, "rnn_tanh", layers=2, state_outputs=True)


@sample("RNN")
def lstm_both_ways(rng):
    return layers(rng, "lstm", layers=2, directions=2, state_outputs=True)


@sample("RNN")
def gru_both_ways(rng):
    return layers(rng, "gru", layers=2, directions=2, state_outputs=True)


@sample("RNN")
def relu_both_ways(rng):
    return layers(rng, "rnn_relu", directions=2, state_outputs=True)


@sample("RNN")
def lstm_projected(rng):
    return layers(rng, "lstm", layers=2, projection=2, state_outputs=True)


@sample("RNN")
def lstm_projected_both_ways(rng):
    return layers(rng, "lstm", layers=2, directions=2, projection=3, state_outputs=True)


@sample("RNN")
def lstm_float64(rng):
    return layers(rng, "lstm", dtype="float64", state_outputs=True)


@sample("RNN")
def gru_float64(rng):
    return layers(rng, "gru", dtype="float64")


@sample("RNN")
def one_step(rng):
    return layers(rng, "lstm", time=1, batch=1)


@sample("RNN")
def nan_in_one_entry(rng):
    inputs, attrs = layers(rng, "lstm", state_outputs=True)
    inputs[0][1, 0, 0] = np.nan
    return inputs, attrs


@sample("RNN", oracle=False)  # MXNet has no CPU kernel
def lstm_float16(rng):
    return layers(rng, "lstm", dtype="float16")


@sample("RNN", oracle=False)  # MXNet's CPU kernels ignore the lengths
def lstm_of_lengths(rng):
    inputs, attrs = layers(rng, "lstm", batch=3, directions=2, state_outputs=True, use_sequence_length=True)
    return [*inputs, np.array([4, 1, 2], "float32")], attrs


@sample("RNN", oracle=False)
def gru_of_lengths(rng):
    inputs, attrs = layers(rng, "gru", batch=3, state_outputs=True, use_sequence_length=True)
    return [*inputs, np.array([0, 3, 9], "int32")], attrs


@sample("RNN", oracle=False)  # and ignore clipping
def lstm_clipped(rng):
    return layers(rng, "lstm", lstm_state_clip_min=-0.1, lstm_state_clip_max=0.2, state_outputs=True)


@sample("RNN", oracle=False)
def clipped_nan(rng):
    inputs, attrs = layers(rng, "lstm", lstm_state_clip_min=-1, lstm_state_clip_max=1, lstm_state_clip_nan=True)
    inputs[0][1, 0, 0] = np.nan
    return inputs, attrs


@sample("RNN", training=True, oracle=False)  # draws random numbers
def dropout_between_layers(rng):
    return layers(rng, "lstm", layers=3, p=0.5)


@sample("RNN", training=True)
def dropout_of_one_layer(rng):
    return layers(rng, "gru", p=0.5)


@sample("RNN", oracle=False)  # MXNet refuses
def no_steps(rng):
    return layers(rng, "lstm", time=0, state_outputs=True)
