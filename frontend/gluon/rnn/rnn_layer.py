"""Layers that run a whole sequence through one or more recurrent layers, by the operator `RNN`.

`output = layer(input)` starts from zeros; `output, states = layer(input, states)` gives the last states, too.
Input and output are (time, batch, channels), or (batch, time, channels) with `layout='NTC'`; states are
(layers · directions, batch, hidden).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gluonjit import ndarray, symbol
from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.parameter import Parameter
from gluonjit.gluon.rnn.rnn_cell import (
    BidirectionalCell,
    DropoutCell,
    GRUCell,
    HybridRecurrentCell,
    HybridSequentialRNNCell,
    LSTMCell,
    RNNCell,
)
from gluonjit.gluon.rnn.sequences import tensor_types
from gluonjit.language.forms import ARRAY
from gluonjit.ndarray import NDArray

__all__ = ["GRU", "LSTM", "RNN"]

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
_PARAMETER = re.compile(r"(l|r)(\d)_(i2h|h2h|h2r)_(weight|bias)\Z")


class _RNNLayer(HybridBlock):
    """The base of the layers; `mode` is the operator's.

    Parameters by direction (l, r) and layer: `l0_i2h_weight` (gates·hidden, input), `l0_h2h_weight` (gates·hidden,
    hidden), `l0_i2h_bias`, `l0_h2h_bias` (gates·hidden,), and with projection `l0_h2r_weight` (projection, hidden);
    h2h then multiplies the projected state. Dropout is between layers. `lstm_state_clip_*` bound the LSTM's cell state.
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int,
        layout: str,
        dropout: float,
        bidirectional: bool,
        input_size: int,
        i2h_weight_initializer: Any,
        h2h_weight_initializer: Any,
        i2h_bias_initializer: Any,
        h2h_bias_initializer: Any,
        mode: str,
        projection_size: int | None,
        h2r_weight_initializer: Any,
        lstm_state_clip_min: float | None,
        lstm_state_clip_max: float | None,
        lstm_state_clip_nan: bool | None,
        dtype: Any,
        use_sequence_length: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if layout not in ("TNC", "NTC"):
            raise AssertionError(f"Invalid layout {layout}; must be one of ['TNC' or 'NTC']")
        self._hidden_size = hidden_size
        self._projection_size = projection_size or None
        self._num_layers = num_layers
        self._mode = mode
        self._layout = layout
        self._dropout = dropout
        self._dir = 2 if bidirectional else 1
        self._input_size = input_size
        self._gates = _GATES[mode]
        self._initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        self._clipping = {
            "lstm_state_clip_min": lstm_state_clip_min,
            "lstm_state_clip_max": lstm_state_clip_max,
            "lstm_state_clip_nan": lstm_state_clip_nan,
        }
        self._dtype = dtype
        self._use_sequence_length = use_sequence_length

        rows, fed_back = self._gates * hidden_size, self._projection_size or hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "i2h_weight": (rows, input_size),
            "h2h_weight": (rows, fed_back),
            "i2h_bias": (rows,),
            "h2h_bias": (rows,),
        }
        initializers = dict(self._initializers)
        if self._projection_size:
            shapes["h2r_weight"] = (self._projection_size, hidden_size)
            initializers["h2r_weight"] = h2r_weight_initializer
        for layer in range(num_layers):
            for direction in "lr"[: self._dir]:
                for name, shape in shapes.items():
                    self._register_param(f"{direction}{layer}_{name}", shape, initializers[name], dtype)
            shapes["i2h_weight"] = (rows, fed_back * self._dir)

    def _register_param(self, name: str, shape: tuple[int, ...], init: Any, dtype: Any) -> Parameter:
        param = self.params.get(name, shape=shape, init=init, allow_deferred_init=True, dtype=dtype)
        setattr(self, name, param)
        return param

    def __repr__(self) -> str:
        rows, columns = self.l0_i2h_weight.shape  # type: ignore[attr-defined]
        parts = [f"{columns or None} -> {rows // self._gates}", self._layout]
        if self._num_layers != 1:
            parts.append(f"num_layers={self._num_layers}")
        if self._dropout != 0:
            parts.append(f"dropout={self._dropout}")
        if self._dir == 2:
            parts.append("bidirectional")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """Parameters by the structured names of the unfused stack of cells, which files have."""
        if prefix:
            prefix += "."
        found = {}
        for name, param in self._reg_params.items():
            direction, layer, product, kind = _PARAMETER.match(name).groups()  # type: ignore[union-attr]
            cell = f"{direction}_cell." if self._dir == 2 else ""
            found[f"{prefix}_unfused.{layer}.{cell}{product}_{kind}"] = param
        for name, child in self._children.items():
            found.update(child._collect_params_with_prefix(prefix + name))
        return found

    def cast(self, dtype: Any) -> None:
        super().cast(dtype)
        self._dtype = dtype

    def _unfuse(self) -> HybridSequentialRNNCell:
        """The same network as a stack of cells, with this layer's parameters."""
        if self._projection_size:
            raise AssertionError("_unfuse does not support projection layer yet!")
        if self._clipping["lstm_state_clip_min"] or self._clipping["lstm_state_clip_max"]:
            raise AssertionError("_unfuse does not support state clipping yet!")
        stack = HybridSequentialRNNCell(prefix=self.prefix, params=self.params)
        initializers = {f"{name}_initializer": init for name, init in self._initializers.items()}
        with stack.name_scope():
            size = self._input_size
            for layer in range(self._num_layers):
                cells = [
                    self._cell(input_size=size, prefix=f"{direction}{layer}_", **initializers)
                    for direction in "lr"[: self._dir]
                ]
                stack.add(BidirectionalCell(cells[0], cells[1]) if self._dir == 2 else cells[0])
                if self._dropout > 0 and layer != self._num_layers - 1:
                    stack.add(DropoutCell(self._dropout))
                size = self._hidden_size * self._dir
        return stack

    def _cell(self, **kwargs: Any) -> HybridRecurrentCell:
        """One cell of the unfused stack."""
        raise NotImplementedError

    # States

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The 'shape', '__layout__' and 'dtype' of each state; batch size 0 means unknown."""
        return [self._state(batch_size, self._projection_size or self._hidden_size)]

    def _state(self, batch_size: int, size: int) -> dict[str, Any]:
        return {"shape": (self._num_layers * self._dir, batch_size, size), "__layout__": "LNC", "dtype": self._dtype}

    def begin_state(self, batch_size: int = 0, func: Callable[..., Any] = ndarray.zeros, **kwargs: Any) -> list[Any]:
        """New states, created by `func(name=..., shape=..., **kwargs)`: `mx.nd.zeros`, `mx.sym.var`, …"""
        return [
            func(name=f"{self.prefix}h0_{k}", **{**info, **kwargs})
            for k, info in enumerate(self.state_info(batch_size))
        ]

    # Calls

    def __call__(self, inputs: Any, states: Any = None, sequence_length: Any = None) -> Any:
        """(output, states) if `states`, an array or a list of them, are given; else only the output.

        `sequence_length` (batch,) is used only by layers created with `use_sequence_length=True`.
        """
        more = (sequence_length,) if self._use_sequence_length else ()
        if states is None:
            return (self._fast_call or self._slow_call)(inputs, *more)
        states = [states] if isinstance(states, tensor_types) else list(states)
        return super().__call__(inputs, states, *more)

    def _slow_call(self, *args: Any) -> Any:
        return super()._slow_call(*self._jit_completed(args))

    def _jit_completed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs, *more = args
        if isinstance(inputs, NDArray) and inputs.ndim != 3:
            axes = {"T": "time", "N": "batch", "C": "features"}
            wanted = ", ".join(axes[letter] for letter in self._layout)
            raise ValueError(f"{type(self).__name__} takes ({wanted}), layout {self._layout}, got {inputs.shape}")
        if more and isinstance(more[0], list):
            return args
        # A tuple instead of a list tells `hybrid_forward` and the compiled call not to return states.
        return (inputs, tuple(self._zero_states(inputs)), *more)

    def _passed_arrays(self, form: Any) -> int | None:
        # The arguments are the inputs and zero states; the native call keeps the latter.
        states = form[2] if len(form) == 3 else ()
        return 1 if form[1] == ARRAY and states == (tuple, *[ARRAY] * (len(states) - 1)) else None

    def _zero_states(self, inputs: Any) -> list[Any]:
        if isinstance(inputs, NDArray):
            batch = inputs.shape[self._layout.find("N")]
            return self.begin_state(batch, ctx=inputs.context, dtype=inputs.dtype)
        return self.begin_state(0, func=symbol.zeros)

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: Any, sequence_length: Any = None, **params: Any
    ) -> Any:
        if F is ndarray:
            batch = inputs.shape[self._layout.find("N")]
            for state, info in zip(states, self.state_info(batch)):
                if state.shape != info["shape"]:
                    raise ValueError(f"Invalid recurrent state shape. Expecting {info['shape']}, got {state.shape}.")
        output, new_states = self._forward_kernel(F, inputs, list(states), sequence_length, **params)
        return output if isinstance(states, tuple) else (output, new_states)

    def _forward_kernel(
        self, F: Any, inputs: Any, states: list[Any], sequence_length: Any, **params: Any
    ) -> tuple[Any, list[Any]]:
        """Calls the operator, whose parameters are one vector: weights, then biases. For 'NTC', axes are swapped."""
        if self._layout == "NTC":
            inputs = F.swapaxes(inputs, 0, 1)
        products = {"weight": ("i2h", "h2h", "h2r")[: 3 if self._projection_size else 2], "bias": ("i2h", "h2h")}
        flat = (
            _vector(F, params[f"{direction}{layer}_{product}_{kind}"])
            for kind in ("weight", "bias")
            for layer in range(self._num_layers)
            for direction in "lr"[: self._dir]
            for product in products[kind]
        )
        result = F.RNN(
            inputs,
            F._internal._rnn_param_concat(*flat, dim=0),
            *states,
            *([sequence_length] if self._use_sequence_length else []),
            use_sequence_length=self._use_sequence_length,
            state_size=self._hidden_size,
            projection_size=self._projection_size,
            num_layers=self._num_layers,
            bidirectional=self._dir == 2,
            p=self._dropout,
            state_outputs=True,
            mode=self._mode,
            **self._clipping,
        )
        output, *new_states = (result[k] for k in range(3 if self._mode == "lstm" else 2))
        if self._layout == "NTC":
            output = F.swapaxes(output, 0, 1)
        return output, new_states


def _vector(F: Any, param: Any) -> Any:
    """The flattened parameter. For an array, its method makes a view; a symbol's method would need the shape."""
    return param.reshape(-1) if F is ndarray else F.reshape(param, shape=-1)


class RNN(_RNNLayer):
    """Elman networks: h' = act(W_i2h·x + b_i2h + W_h2h·h + b_h2h), `activation` 'relu' or 'tanh'.

    Input (time, batch, input_size) for layout 'TNC', (batch, time, input_size) for 'NTC'; output (time, batch,
    hidden_size·directions); states (num_layers·directions, batch, hidden_size), where directions is 2 if
    `bidirectional`. Without states, the layer starts from zeros and returns the output alone; with them, output and
    states. `dropout` acts between layers, in training mode. `input_size=0` is inferred by the first call.

    >>> layer = rnn.RNN(5, num_layers=2)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((4, 2, 3))).shape
    (4, 2, 5)
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            "rnn_" + activation,
            None,
            None,
            None,
            None,
            False,
            dtype,
            **kwargs,
        )

    def _cell(self, **kwargs: Any) -> HybridRecurrentCell:
        return RNNCell(self._hidden_size, activation=self._mode[len("rnn_") :], **kwargs)


class LSTM(_RNNLayer):
    """Long short-term memory, as `LSTMCell`; states are [h, c].

    `projection_size`: h is multiplied by W_h2r before it is returned and fed back. `state_clip_min` and
    `state_clip_max` bound c; with `state_clip_nan` its NaNs, too.

    Shapes and the other arguments as for `RNN`.

    >>> layer = rnn.LSTM(5, num_layers=2, bidirectional=True)
    >>> layer.initialize()
    >>> output, (h, c) = layer(mx.nd.ones((4, 2, 3)), layer.begin_state(batch_size=2))
    >>> output.shape, h.shape, c.shape
    ((4, 2, 10), (4, 2, 5), (4, 2, 5))
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            "lstm",
            projection_size,
            h2r_weight_initializer,
            state_clip_min,
            state_clip_max,
            state_clip_nan,
            dtype,
            **kwargs,
        )

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        return [*super().state_info(batch_size), self._state(batch_size, self._hidden_size)]

    def _cell(self, **kwargs: Any) -> HybridRecurrentCell:
        return LSTMCell(self._hidden_size, **kwargs)


class GRU(_RNNLayer):
    """Gated recurrent units, as `GRUCell`.

    Shapes and arguments as for `RNN`.

    >>> layer = rnn.GRU(5, layout="NTC")
    >>> layer.initialize()
    >>> layer(mx.nd.ones((2, 4, 3))).shape
    (2, 4, 5)
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            "gru",
            None,
            None,
            None,
            None,
            False,
            dtype,
            **kwargs,
        )

    def _cell(self, **kwargs: Any) -> HybridRecurrentCell:
        return GRUCell(self._hidden_size, **kwargs)
