"""Recurrent cells whose inputs and states are images, and whose products are convolutions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from gluonjit import symbol
from gluonjit.rnn.symbolic_cells import GRU_GATES, LSTM_GATES, BaseRNNCell, RNNParams, gru_step, lstm_step
from gluonjit.symbol import Symbol

_leaky = functools.partial(symbol.LeakyReLU, act_type="leaky", slope=0.2)


class BaseConvRNNCell(BaseRNNCell):
    """The base of the three. `input_shape` is that of one step, including the batch, in `conv_layout`.

    States are as large as the convolution of the input; the convolution of the state keeps that size, so `h2h_kernel`
    must be odd.
    """

    _n_states = 1
    _default_prefix = ""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_hidden: int,
        h2h_kernel: tuple[int, int] = (3, 3),
        h2h_dilate: tuple[int, int] = (1, 1),
        i2h_kernel: tuple[int, int] = (3, 3),
        i2h_stride: tuple[int, int] = (1, 1),
        i2h_pad: tuple[int, int] = (1, 1),
        i2h_dilate: tuple[int, int] = (1, 1),
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        activation: Any = _leaky,
        prefix: str | None = None,
        params: RNNParams | None = None,
        conv_layout: str = "NCHW",
    ) -> None:
        super().__init__(self._default_prefix if prefix is None else prefix, params)
        if not all(k % 2 for k in h2h_kernel):
            raise AssertionError(f"Only support odd number, get h2h_kernel= {h2h_kernel}")
        self._num_hidden, self._activation, self._conv_layout = num_hidden, activation, conv_layout
        pad = tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel))
        self._i2h: dict[str, Any] = {"kernel": i2h_kernel, "stride": i2h_stride, "pad": i2h_pad, "dilate": i2h_dilate}
        self._h2h: dict[str, Any] = {"kernel": h2h_kernel, "dilate": h2h_dilate, "pad": pad, "stride": (1, 1)}
        image = symbol.Convolution(symbol.var("data"), num_filter=num_hidden, layout=conv_layout, **self._i2h)
        self._state_shape = (0, *image.infer_shape(data=tuple(input_shape))[1][0][1:])
        self._iW = self.params.get("i2h_weight", init=i2h_weight_initializer)
        self._hW = self.params.get("h2h_weight", init=h2h_weight_initializer)
        self._iB = self.params.get("i2h_bias", init=i2h_bias_initializer)
        self._hB = self.params.get("h2h_bias", init=h2h_bias_initializer)

    @property
    def state_info(self) -> list[Any]:
        return [{"shape": self._state_shape, "__layout__": self._conv_layout} for _ in range(self._n_states)]

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        common: dict[str, Any] = {"num_filter": self._num_hidden * len(self._gate_names), "layout": self._conv_layout}
        i2h = symbol.Convolution(inputs, self._iW, self._iB, name=f"{name}i2h", **common, **self._i2h)
        return i2h, symbol.Convolution(state, self._hW, self._hB, name=f"{name}h2h", **common, **self._h2h)

    def _activate(self, x: Symbol, **kwargs: Any) -> Symbol:
        return self._get_activation(x, self._activation, **kwargs)


class ConvRNNCell(BaseConvRNNCell):
    """activation(W * x + b + V * h + c)."""

    _gate_names = ("",)
    _default_prefix = "ConvRNN_"

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        name = self._step_prefix()
        i2h, h2h = self._products(inputs, states[0], name)
        output = self._activate(i2h + h2h, name=f"{name}out")
        return output, [output]


class ConvLSTMCell(BaseConvRNNCell):
    """`LSTMCell` of images (Shi et al., 2015)."""

    _gate_names = LSTM_GATES
    _n_states = 2
    _default_prefix = "ConvLSTM_"

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        name = self._step_prefix()
        i2h, h2h = self._products(inputs, states[0], name)
        axis = self._conv_layout.find("C")
        parts = symbol.SliceChannel(i2h + h2h, num_outputs=4, axis=axis, name=f"{name}slice")
        return lstm_step(parts, states[1], name, self._activate)


class ConvGRUCell(BaseConvRNNCell):
    """`GRUCell` of images. The channels are axis 1, whatever the layout, as in MXNet."""

    _gate_names = GRU_GATES
    _default_prefix = "ConvGRU_"

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        name = self._step_prefix()
        i2h, h2h = self._products(inputs, states[0], name)
        i2h = symbol.SliceChannel(i2h, num_outputs=3, name=f"{name}_i2h_slice")
        h2h = symbol.SliceChannel(h2h, num_outputs=3, name=f"{name}_h2h_slice")
        return gru_step(i2h, h2h, states[0], name, self._activate)
