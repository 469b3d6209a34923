"""Recurrent cells whose products are convolutions: input and states are images of 1 to 3 spatial axes.

`input_shape` is the input's shape without the batch: (C, …), or (…, C) for layouts with C last. The convolution of the
input may shrink the image (`i2h_pad`, `i2h_dilate`); the result's size is that of the states. The convolution of the
state keeps this size, as its kernel is odd and padded accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.gluon.nn.conv_layers import Size, _spatial
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.gluon.rnn import HybridRecurrentCell
from gluonjit.gluon.rnn.recurrent_cell import States
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = [
    "Conv1DGRUCell",
    "Conv1DLSTMCell",
    "Conv1DRNNCell",
    "Conv2DGRUCell",
    "Conv2DLSTMCell",
    "Conv2DRNNCell",
    "Conv3DGRUCell",
    "Conv3DLSTMCell",
    "Conv3DRNNCell",
]


class _ConvCell(HybridRecurrentCell):
    """The base of all nine: convolutions of the input and of the hidden state, with `_gates` · hidden channels each."""

    _gates: int
    n_states = 1

    def _build(
        self,
        rank: int,
        input_shape: Sequence[int],
        hidden_channels: int,
        kernels: tuple[Size, Size],
        i2h_pad: Size,
        dilations: tuple[Size, Size],
        weight_initializers: tuple[Any, Any],
        bias_initializers: tuple[Any, Any],
        conv_layout: str,
        activation: Any,
        prefix: str | None,
        params: ParameterDict | None,
    ) -> None:
        """Initializes the cell. Pairs are for the convolutions of the input and of the state."""
        HybridRecurrentCell.__init__(self, prefix=prefix, params=params)
        self._hidden_channels = hidden_channels
        self._input_shape = input_shape
        self._conv_layout = conv_layout
        self._activation = activation
        i2h_kernel, h2h_kernel = (tuple(_spatial(k, rank, "kernel")) for k in kernels)
        i2h_dilate, h2h_dilate = (tuple(_spatial(d, rank, "dilation")) for d in dilations)
        pad = tuple(_spatial(i2h_pad, rank, "padding"))
        if any(k % 2 == 0 for k in h2h_kernel):
            raise AssertionError(f"Only support odd number, get h2h_kernel= {kernels[1]}")
        self._channel_axis = conv_layout.find("C")
        channels = input_shape[self._channel_axis - 1]
        image = input_shape[1:] if self._channel_axis == 1 else input_shape[:-1]
        out = tuple(x + 2 * p - d * (k - 1) if x else 0 for x, k, p, d in zip(image, i2h_kernel, pad, i2h_dilate))
        self._state_shape = self._with_channels(hidden_channels, out)
        total = self._gates * hidden_channels
        self._i2h: dict[str, Any] = {"kernel": i2h_kernel, "pad": pad, "dilate": i2h_dilate}
        self._h2h: dict[str, Any] = {
            "kernel": h2h_kernel,
            "pad": tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel)),
            "dilate": h2h_dilate,
        }
        for convolution in (self._i2h, self._h2h):
            convolution.update(num_filter=total, stride=(1,) * rank, layout=conv_layout)

        def get(name: str, shape: tuple[int, ...], init: Any) -> Any:
            return self.params.get(name, shape=shape, init=init, allow_deferred_init=True)

        i2h_shape = (total, *self._with_channels(channels, i2h_kernel))
        h2h_shape = (total, *self._with_channels(hidden_channels, h2h_kernel))
        self.i2h_weight = get("i2h_weight", i2h_shape, weight_initializers[0])
        self.h2h_weight = get("h2h_weight", h2h_shape, weight_initializers[1])
        self.i2h_bias = get("i2h_bias", (total,), bias_initializers[0])
        self.h2h_bias = get("h2h_bias", (total,), bias_initializers[1])

    def _with_channels(self, channels: int, image: tuple[int, ...]) -> tuple[int, ...]:
        return (channels, *image) if self._channel_axis == 1 else (*image, channels)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        shape = (batch_size, *self._state_shape)
        return [{"shape": shape, "__layout__": self._conv_layout} for _ in range(self.n_states)]

    def __repr__(self) -> str:
        shape = self.i2h_weight.shape
        channels = shape[1 if self._channel_axis == 1 else -1]
        return f"{type(self).__name__}({channels or None} -> {shape[0]}, {self._activation}, {self._conv_layout})"

    def _convolve(self, F: Any, data: Any, weight: Any, bias: Any, settings: dict[str, Any], name: str) -> Any:
        return F.Convolution(data=data, weight=weight, bias=bias, name=name, **settings)

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: States, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, States]:
        step = f"t{self._counter}_"
        i2h = self._convolve(F, inputs, i2h_weight, i2h_bias, self._i2h, step + "i2h")
        h2h = self._convolve(F, states[0], h2h_weight, h2h_bias, self._h2h, step + "h2h")
        return self._combine(F, step, i2h, h2h, states)

    def _combine(self, F: Any, step: str, i2h: Any, h2h: Any, states: States) -> tuple[Any, States]:
        """(output, new states) from the two convolutions (all gates) and the old states."""
        raise NotImplementedError


class _ConvRNNCell(_ConvCell):
    """h' = act(W_i2h * x + b_i2h + W_h2h * h + b_h2h)."""

    _gates = 1

    def _alias(self) -> str:
        return "conv_rnn"

    def _combine(self, F: Any, step: str, i2h: Any, h2h: Any, states: States) -> tuple[Any, States]:
        output = self._get_activation(F, i2h + h2h, self._activation, name=step + "out")
        return output, [output]


class _ConvLSTMCell(_ConvCell):
    """States (h, c): c' = f·c + i·g, h' = o·act(c'), as `LSTMCell`."""

    _gates = 4
    n_states = 2

    def _alias(self) -> str:
        return "conv_lstm"

    def _combine(self, F: Any, step: str, i2h: Any, h2h: Any, states: States) -> tuple[Any, States]:
        gates = F.SliceChannel(i2h + h2h, num_outputs=4, name=step + "slice", axis=self._channel_axis)
        enter = F.Activation(gates[0], act_type="sigmoid", name=step + "i")
        forget = F.Activation(gates[1], act_type="sigmoid", name=step + "f")
        new = self._get_activation(F, gates[2], self._activation, name=step + "c")
        leave = F.Activation(gates[3], act_type="sigmoid", name=step + "o")
        next_c = F.elemwise_add(forget * states[1], enter * new, name=step + "state")
        next_h = F.elemwise_mul(leave, self._get_activation(F, next_c, self._activation), name=step + "out")
        return next_h, [next_h, next_c]


class _ConvGRUCell(_ConvCell):
    """h' = (1 − z)·n + z·h with n = act(n_i2h + r·n_h2h), as `GRUCell`."""

    _gates = 3

    def _alias(self) -> str:
        return "conv_gru"

    def _combine(self, F: Any, step: str, i2h: Any, h2h: Any, states: States) -> tuple[Any, States]:
        axis = self._channel_axis
        i2h_r, i2h_z, i2h_n = F.SliceChannel(i2h, num_outputs=3, name=step + "i2h_slice", axis=axis)
        h2h_r, h2h_z, h2h_n = F.SliceChannel(h2h, num_outputs=3, name=step + "h2h_slice", axis=axis)
        reset = F.Activation(i2h_r + h2h_r, act_type="sigmoid", name=step + "r_act")
        update = F.Activation(i2h_z + h2h_z, act_type="sigmoid", name=step + "z_act")
        new = self._get_activation(F, i2h_n + reset * h2h_n, self._activation, name=step + "h_act")
        next_h = F.elemwise_add((1.0 - update) * new, update * states[0], name=step + "out")
        return next_h, [next_h]


def _init_for_rank(rank: int, layout: str) -> Callable[..., None]:
    """The `__init__` of cells for images of `rank` axes; only the defaults depend on the rank."""

    def __init__(
        self: _ConvCell,
        input_shape: Sequence[int],
        hidden_channels: int,
        i2h_kernel: Size,
        h2h_kernel: Size,
        i2h_pad: Size = (0,) * rank,
        i2h_dilate: Size = (1,) * rank,
        h2h_dilate: Size = (1,) * rank,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        conv_layout: str = layout,
        activation: Any = "tanh",
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        self._build(
            rank,
            input_shape,
            hidden_channels,
            (i2h_kernel, h2h_kernel),
            i2h_pad,
            (i2h_dilate, h2h_dilate),
            (i2h_weight_initializer, h2h_weight_initializer),
            (i2h_bias_initializer, h2h_bias_initializer),
            conv_layout,
            activation,
            prefix,
            params,
        )

    return __init__


class Conv1DRNNCell(_ConvRNNCell):
    """Elman cell of (N, C, W).

    `rnn.RNNCell` with convolutions for its products: input (batch, *input_shape), states and output
    (batch, hidden_channels, W).

    >>> cell = gluon.contrib.rnn.Conv1DRNNCell((3, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 8)
    """

    __init__ = _init_for_rank(1, "NCW")  # type: ignore[assignment]


class Conv2DRNNCell(_ConvRNNCell):
    """Elman cell of (N, C, H, W).

    `rnn.RNNCell` with convolutions for its products: input (batch, *input_shape), states and output
    (batch, hidden_channels, H, W).

    >>> cell = gluon.contrib.rnn.Conv2DRNNCell((3, 8, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 8, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 8, 8)
    """

    __init__ = _init_for_rank(2, "NCHW")  # type: ignore[assignment]


class Conv3DRNNCell(_ConvRNNCell):
    """Elman cell of (N, C, D, H, W).

    `rnn.RNNCell` with convolutions for its products: input (batch, *input_shape), states and output
    (batch, hidden_channels, D, H, W).

    >>> cell = gluon.contrib.rnn.Conv3DRNNCell((3, 4, 8, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 4, 8, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 4, 8, 8)
    """

    __init__ = _init_for_rank(3, "NCDHW")  # type: ignore[assignment]


class Conv1DLSTMCell(_ConvLSTMCell):
    """LSTM cell of (N, C, W).

    `rnn.LSTMCell` with convolutions for its products (Shi et al., 2015): input (batch, *input_shape), states and output
    (batch, hidden_channels, W).

    >>> cell = gluon.contrib.rnn.Conv1DLSTMCell((3, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 8)
    """

    __init__ = _init_for_rank(1, "NCW")  # type: ignore[assignment]


class Conv2DLSTMCell(_ConvLSTMCell):
    """LSTM cell of (N, C, H, W).

    `rnn.LSTMCell` with convolutions for its products (Shi et al., 2015): input (batch, *input_shape), states and output
    (batch, hidden_channels, H, W).

    >>> cell = gluon.contrib.rnn.Conv2DLSTMCell((3, 8, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 8, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 8, 8)
    """

    __init__ = _init_for_rank(2, "NCHW")  # type: ignore[assignment]


class Conv3DLSTMCell(_ConvLSTMCell):
    """LSTM cell of (N, C, D, H, W).

    `rnn.LSTMCell` with convolutions for its products (Shi et al., 2015): input (batch, *input_shape), states and output
    (batch, hidden_channels, D, H, W).

    >>> cell = gluon.contrib.rnn.Conv3DLSTMCell((3, 4, 8, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 4, 8, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 4, 8, 8)
    """

    __init__ = _init_for_rank(3, "NCDHW")  # type: ignore[assignment]


class Conv1DGRUCell(_ConvGRUCell):
    """GRU cell of (N, C, W).

    `rnn.GRUCell` with convolutions for its products: input (batch, *input_shape), states and output
    (batch, hidden_channels, W).

    >>> cell = gluon.contrib.rnn.Conv1DGRUCell((3, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 8)
    """

    __init__ = _init_for_rank(1, "NCW")  # type: ignore[assignment]


class Conv2DGRUCell(_ConvGRUCell):
    """GRU cell of (N, C, H, W).

    `rnn.GRUCell` with convolutions for its products: input (batch, *input_shape), states and output
    (batch, hidden_channels, H, W).

    >>> cell = gluon.contrib.rnn.Conv2DGRUCell((3, 8, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 8, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 8, 8)
    """

    __init__ = _init_for_rank(2, "NCHW")  # type: ignore[assignment]


class Conv3DGRUCell(_ConvGRUCell):
    """GRU cell of (N, C, D, H, W).

    `rnn.GRUCell` with convolutions for its products: input (batch, *input_shape), states and output
    (batch, hidden_channels, D, H, W).

    >>> cell = gluon.contrib.rnn.Conv3DGRUCell((3, 4, 8, 8), 4, i2h_kernel=3, h2h_kernel=3, i2h_pad=1)
    >>> cell.initialize()
    >>> cell(mx.nd.ones((2, 3, 4, 8, 8)), cell.begin_state(batch_size=2))[0].shape
    (2, 4, 4, 8, 8)
    """

    __init__ = _init_for_rank(3, "NCDHW")  # type: ignore[assignment]


_mxnet_names.explain(__name__)
