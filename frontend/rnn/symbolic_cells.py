"""Recurrent cells over symbols: the base class, the plain, LSTM and GRU cells, and dropout between cells.

Shapes: inputs (batch, features), states (batch, hidden). Nodes are named `<prefix>t<step>_…`, parameters
`<prefix>i2h_weight` and so on, as checkpoints and graphs of MXNet have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gluonjit import initializer, ndarray, symbol
from gluonjit.base import numeric_types
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol

Weights = dict[str, NDArray]
GROUPS = ("i2h", "h2h")
"""The products of a step: of the input and of the state."""
LSTM_GATES = ("_i", "_f", "_c", "_o")
GRU_GATES = ("_r", "_z", "_o")


class RNNParams:
    """Variables by name, created on first use; cells with the same `RNNParams` share weights."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """The variable `prefix + name`, made with `kwargs` if there is none."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = symbol.var(name, **kwargs)
        return self._params[name]


def as_sequence(length: int | None, inputs: Any, layout: str, merge: bool | None) -> tuple[Any, int]:
    """(sequence, time axis). The sequence is one symbol (`merge` True), a list of steps (False), or unchanged (None).

    `layout` is that of the single symbol, such as `NTC`. AssertionError if the number of steps is not `length`.
    """
    if inputs is None:
        raise AssertionError("unroll needs inputs: create input variables outside of it")
    axis = layout.find("T")
    if isinstance(inputs, Symbol):
        if merge is False:
            if len(inputs.list_outputs()) != 1:
                raise AssertionError("unroll takes no grouped symbol: give a list of its outputs")
            steps: Any = symbol.split(inputs, axis=axis, num_outputs=length, squeeze_axis=1)  # type: ignore[arg-type]
            return list(steps), axis
        return inputs, axis
    if length is not None and len(inputs) != length:
        raise AssertionError(f"unroll for {length} steps was given {len(inputs)} inputs")
    if merge:
        return symbol.Concat(*(symbol.expand_dims(x, axis=axis) for x in inputs), dim=axis), axis
    return inputs, axis


class BaseRNNCell:
    """`cell(inputs, states)` appends one step to a graph: (output, new states)."""

    _gate_names: Sequence[str] = ()
    _num_hidden: int

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._own_params = params is None
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self._modified = False
        """Whether a modifier cell wraps this one; then the modifier has to be called instead."""
        self.reset()

    def reset(self) -> None:
        """Numbers steps from 0 again: call it before another graph is built."""
        self._init_counter = -1
        self._counter = -1
        for cell in getattr(self, "_cells", ()):
            cell.reset()

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        raise NotImplementedError

    @property
    def params(self) -> RNNParams:
        """The parameters. Once this is read they may be shared, so containers no longer replace them."""
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> list[Any]:
        """`shape` and `__layout__` of each state; 0 is the batch."""
        raise NotImplementedError

    @property
    def state_shape(self) -> list[Any]:
        return [info["shape"] for info in self.state_info]

    def _check_unmodified(self) -> None:
        if self._modified:
            raise AssertionError(
                "After applying modifier cells (e.g. DropoutCell) the base cell cannot be called directly. "
                "Call the modifier cell instead."
            )

    def begin_state(self, func: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> list[Any]:
        """A new symbol for each state, made by `func` (`sym.zeros`, `sym.var`, …) with `kwargs`."""
        self._check_unmodified()
        states = []
        for info in self.state_info:
            self._init_counter += 1
            kwargs.update(info or {})
            states.append(func(name=f"{self._prefix}begin_state_{self._init_counter}", **kwargs))
        return states

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        """A copy of `args` in which this cell's weights are split by gate."""
        args = dict(args)
        if self._gate_names:
            h = self._num_hidden
            for group in GROUPS:
                wholes = {kind: args.pop(f"{self._prefix}{group}_{kind}") for kind in ("weight", "bias")}
                for k, gate in enumerate(self._gate_names):
                    for kind, whole in wholes.items():
                        args[f"{self._prefix}{group}{gate}_{kind}"] = whole[k * h : (k + 1) * h].copy()
        return args

    def pack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        """The inverse of `unpack_weights`."""
        args = dict(args)
        if self._gate_names:
            for group in GROUPS:
                for kind in ("weight", "bias"):
                    parts = [args.pop(f"{self._prefix}{group}{gate}_{kind}") for gate in self._gate_names]
                    args[f"{self._prefix}{group}_{kind}"] = ndarray.concatenate(parts)
        return args

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Sequence[Symbol] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        """`length` steps: (outputs, last states).

        `inputs` and outputs are a list of steps, or one symbol in `layout`; `merge_outputs` says which, None: whatever
        is simpler.
        """
        self.reset()
        steps, _ = as_sequence(length, inputs, layout, False)
        states = list(self.begin_state() if begin_state is None else begin_state)
        outputs = []
        for x in steps[:length]:
            output, states = self(x, states)
            outputs.append(output)
        return as_sequence(length, outputs, layout, merge_outputs)[0], states

    def _get_activation(self, inputs: Symbol, activation: Any, **kwargs: Any) -> Symbol:
        """`activation` is one of `Activation`'s names or a function."""
        if isinstance(activation, str):
            return symbol.Activation(inputs, act_type=activation, **kwargs)
        return activation(inputs, **kwargs)

    def _step_prefix(self) -> str:
        """The prefix of the names of the next step."""
        self._counter += 1
        return f"{self._prefix}t{self._counter}_"


class _DenseCell(BaseRNNCell):
    """A cell whose products are `FullyConnected`."""

    _n_states = 1

    def __init__(self, num_hidden: int, prefix: str, params: RNNParams | None, i2h_bias: Any = None) -> None:
        super().__init__(prefix, params)
        self._num_hidden = num_hidden
        self._iW = self.params.get("i2h_weight")
        self._iB = self.params.get("i2h_bias", **({} if i2h_bias is None else {"init": i2h_bias}))
        self._hW = self.params.get("h2h_weight")
        self._hB = self.params.get("h2h_bias")

    @property
    def state_info(self) -> list[Any]:
        return [{"shape": (0, self._num_hidden), "__layout__": "NC"} for _ in range(self._n_states)]

    def _products(self, inputs: Symbol, state: Symbol, name: str) -> tuple[Symbol, Symbol]:
        width = self._num_hidden * len(self._gate_names)
        i2h = symbol.FullyConnected(inputs, self._iW, self._iB, num_hidden=width, name=f"{name}i2h")
        return i2h, symbol.FullyConnected(state, self._hW, self._hB, num_hidden=width, name=f"{name}h2h")


class RNNCell(_DenseCell):
    """activation(W x + b + V h + c)."""

    _gate_names = ("",)

    def __init__(
        self, num_hidden: int, activation: Any = "tanh", prefix: str = "rnn_", params: RNNParams | None = None
    ) -> None:
        super().__init__(num_hidden, prefix, params)
        self._activation = activation

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        name = self._step_prefix()
        i2h, h2h = self._products(inputs, states[0], name)
        output = self._get_activation(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


def lstm_step(parts: Any, cell: Symbol, name: str, activate: Callable[..., Symbol]) -> tuple[Any, list[Any]]:
    """(output, new states) from the four gates' sums before their activations; `activate` is usually tanh."""
    write = symbol.Activation(parts[0], act_type="sigmoid", name=f"{name}i")
    keep = symbol.Activation(parts[1], act_type="sigmoid", name=f"{name}f")
    new = activate(parts[2], name=f"{name}c")
    show = symbol.Activation(parts[3], act_type="sigmoid", name=f"{name}o")
    next_c = symbol._internal._plus(keep * cell, write * new, name=f"{name}state")
    next_h = symbol._internal._mul(show, activate(next_c), name=f"{name}out")
    return next_h, [next_h, next_c]


def gru_step(i2h: Any, h2h: Any, state: Symbol, name: str, activate: Callable[..., Symbol]) -> tuple[Any, list[Any]]:
    """(output, new states) from the three gates' products; `activate` is usually tanh."""
    reset = symbol.Activation(i2h[0] + h2h[0], act_type="sigmoid", name=f"{name}_r_act")
    update = symbol.Activation(i2h[1] + h2h[1], act_type="sigmoid", name=f"{name}_z_act")
    new = activate(i2h[2] + reset * h2h[2], name=f"{name}_h_act")
    next_h = symbol._internal._plus((1.0 - update) * new, update * state, name=f"{name}out")
    return next_h, [next_h]


def _tanh(x: Symbol, **kwargs: Any) -> Symbol:
    return symbol.Activation(x, act_type="tanh", **kwargs)


class LSTMCell(_DenseCell):
    """Long short-term memory; states are output and memory. `forget_bias` is the forget gate's first bias."""

    _gate_names = LSTM_GATES
    _n_states = 2

    def __init__(
        self, num_hidden: int, prefix: str = "lstm_", params: RNNParams | None = None, forget_bias: float = 1.0
    ) -> None:
        super().__init__(num_hidden, prefix, params, initializer.LSTMBias(forget_bias=forget_bias))

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        name = self._step_prefix()
        i2h, h2h = self._products(inputs, states[0], name)
        parts = symbol.SliceChannel(i2h + h2h, num_outputs=4, name=f"{name}slice")
        return lstm_step(parts, states[1], name, _tanh)


class GRUCell(_DenseCell):
    """Gated recurrent unit, whose reset gate applies after the product (as in cuDNN)."""

    _gate_names = GRU_GATES

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None) -> None:
        super().__init__(num_hidden, prefix, params)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        name = self._step_prefix()
        i2h, h2h = self._products(inputs, states[0], f"{name}_")
        i2h = symbol.SliceChannel(i2h, num_outputs=3, name=f"{name}_i2h_slice")
        h2h = symbol.SliceChannel(h2h, num_outputs=3, name=f"{name}_h2h_slice")
        return gru_step(i2h, h2h, states[0], name, _tanh)


class DropoutCell(BaseRNNCell):
    """Dropout on its input; it has no state."""

    def __init__(self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None) -> None:
        super().__init__(prefix, params)
        if not isinstance(dropout, numeric_types):
            raise AssertionError("dropout probability must be a number")
        self.dropout = dropout

    @property
    def state_info(self) -> list[Any]:
        return []

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Any, list[Any]]:
        return (symbol.Dropout(inputs, p=self.dropout) if self.dropout > 0 else inputs), list(states)

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Sequence[Symbol] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, list[Any]]:
        self.reset()
        inputs, _ = as_sequence(length, inputs, layout, merge_outputs)
        if isinstance(inputs, Symbol):
            return self(inputs, [])
        return super().unroll(length, inputs, begin_state, layout, merge_outputs)
