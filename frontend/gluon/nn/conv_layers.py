"""Convolutions and transposed convolutions in 1 to 3 dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.base import numeric_types
from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.nn.activations import Activation
from gluonjit.operators import registry

__all__ = ["Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose"]

Size = int | Sequence[int]
"""One number for all spatial axes, or one for each."""


def _spatial(value: Size, rank: int, what: str) -> Sequence[int]:
    """`value` for each of `rank` axes; a sequence is returned unchanged, as repr shows it."""
    if isinstance(value, numeric_types):
        return (value,) * rank  # type: ignore[return-value]
    if len(value) != rank:
        raise AssertionError(f"{what} must be a number or a list of {rank} ints")
    return value


def _check_layout(layout: str, known: tuple[str, ...]) -> None:
    if layout not in known:
        raise AssertionError(f"Only supports {' and '.join(map(repr, known))} layout for now")


class _Conv(HybridBlock):
    """act(conv(x, weight) + bias) by operator `op_name`, 'Convolution' or 'Deconvolution'.

    The weight is (channels, in_channels / groups, *kernel), or (in_channels, channels / groups, *kernel) for a
    transposed convolution. In layouts with C last, the weight's second axis is last, too.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Sequence[int],
        strides: Size,
        padding: Size,
        dilation: Size,
        groups: int,
        layout: str,
        in_channels: int = 0,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        op_name: str = "Convolution",
        adj: Sequence[int] | None = None,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        rank = len(kernel_size)
        self._channels = channels
        self._in_channels = in_channels
        self._op_name = op_name
        self._kwargs: dict[str, Any] = {
            "kernel": kernel_size,
            "stride": _spatial(strides, rank, "strides"),
            "dilate": _spatial(dilation, rank, "dilation"),
            "pad": _spatial(padding, rank, "padding"),
            "num_filter": channels,
            "num_group": groups,
            "no_bias": not use_bias,
            "layout": layout,
        }
        if adj is not None:
            self._kwargs["adj"] = adj
        with self.name_scope():
            self.weight = self.params.get(
                "weight", shape=self._weight_shape(), init=weight_initializer, allow_deferred_init=True
            )
            self.bias = None
            if use_bias:
                self.bias = self.params.get("bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True)
            self.act = None if activation is None else Activation(activation, prefix=activation + "_")

    def _weight_shape(self) -> tuple[int, ...]:
        """The weight's shape, inferred from an input of which at most the number of channels is known."""
        operator = registry.get(self._op_name)
        layout = self._kwargs["layout"]
        data = [0] * len(layout)
        data[layout.index("N")] = 1
        data[layout.index("C")] = self._in_channels
        attrs = operator.parse(self._kwargs)
        inputs = operator.input_names(attrs)
        shapes = operator.complete(attrs, [tuple(data)] + [None] * (len(inputs) - 1))  # type: ignore[misc]
        return shapes[inputs.index("weight")]  # type: ignore[return-value]

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        operands = (x, weight) if bias is None else (x, weight, bias)
        out = getattr(F, self._op_name)(*operands, name="fwd", **self._kwargs)
        return out if self.act is None else self.act(out)

    def _alias(self) -> str:
        return "conv"

    def __repr__(self) -> str:
        kwargs = self._kwargs
        rank = len(kwargs["kernel"])
        outer, inner = self.weight.shape[:2]
        text = f"{type(self).__name__}({inner or None} -> {outer}, kernel_size={kwargs['kernel']}"
        text += f", stride={kwargs['stride']}"
        if kwargs["pad"] != (0,) * rank:
            text += f", padding={kwargs['pad']}"
        if kwargs["dilate"] != (1,) * rank:
            text += f", dilation={kwargs['dilate']}"
        if kwargs["num_group"] != 1:
            text += f", groups={kwargs['num_group']}"
        if self.bias is None:
            text += ", bias=False"
        if self.act is not None:
            text += f", {self.act}"
        return text + ")"


class Conv1D(_Conv):
    """Convolution of (N, C, W).

    weight (channels, C / groups, kernel), result (N, channels, W') with
    W' = floor((W + 2·padding − dilation·(kernel − 1) − 1) / strides) + 1. Other arguments as for `Conv2D`.

    >>> layer = nn.Conv1D(8, kernel_size=3, strides=2)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((4, 3, 11))).shape
    (4, 8, 5)
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        _check_layout(layout, ("NCW",))
        super().__init__(
            channels,
            _spatial(kernel_size, 1, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            layout,
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv2D(_Conv):
    """Convolution of (N, C, H, W), or (N, H, W, C) with layout 'NHWC'.

    weight (channels, C / groups, kernel height, kernel width), bias (channels,), result (N, channels, H', W') with
    H' = floor((H + 2·padding − dilation·(kernel − 1) − 1) / strides) + 1, in pixels; W' likewise. It is a
    cross-correlation: the kernel is not mirrored.

    * `kernel_size`, `strides`, `padding`, `dilation`: one number for both axes, or two.
    * `groups`: input and output channels are split into so many groups, which do not see each other.
    * `activation`: the name of an `Activation` that follows; None: none.
    * `in_channels=0` is inferred by the first call.

    MXNetError if the channels of the input differ from `in_channels`, or a kernel is larger than the padded input.

    >>> layer = nn.Conv2D(8, kernel_size=3, padding=1, activation="relu")
    >>> layer.initialize()
    >>> layer(mx.nd.ones((2, 3, 32, 32))).shape, layer.weight.shape
    ((2, 8, 32, 32), (8, 3, 3, 3))
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = (1, 1),
        padding: Size = (0, 0),
        dilation: Size = (1, 1),
        groups: int = 1,
        layout: str = "NCHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        _check_layout(layout, ("NCHW", "NHWC"))
        super().__init__(
            channels,
            _spatial(kernel_size, 2, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            layout,
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv3D(_Conv):
    """Convolution of (N, C, D, H, W), or (N, D, H, W, C) with layout 'NDHWC'.

    weight (channels, C / groups, *kernel), result (N, channels, D', H', W'); extents and arguments as for `Conv2D`.

    >>> layer = nn.Conv3D(8, kernel_size=3, padding=1)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((1, 3, 4, 8, 8))).shape
    (1, 8, 4, 8, 8)
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = (1, 1, 1),
        padding: Size = (0, 0, 0),
        dilation: Size = (1, 1, 1),
        groups: int = 1,
        layout: str = "NCDHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        _check_layout(layout, ("NCDHW", "NDHWC"))
        super().__init__(
            channels,
            _spatial(kernel_size, 3, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            layout,
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class _ConvTranspose(_Conv):
    """The transposed convolutions: `output_padding` is added to one side of the output."""

    def __init__(
        self,
        channels: int,
        kernel_size: Sequence[int],
        strides: Size,
        padding: Size,
        output_padding: Size,
        dilation: Size,
        groups: int,
        layout: str,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.outpad = _spatial(output_padding, len(kernel_size), "output_padding")
        kwargs = {"op_name": "Deconvolution", "adj": self.outpad, **kwargs}
        super().__init__(channels, kernel_size, strides, padding, dilation, groups, layout, *args, **kwargs)


class Conv1DTranspose(_ConvTranspose):
    """Transposed convolution of (N, C, W).

    weight (C, channels / groups, kernel), result (N, channels, W') with
    W' = strides·(W − 1) + dilation·(kernel − 1) + 1 − 2·padding + output_padding. The other arguments are `Conv2D`'s.

    >>> layer = nn.Conv1DTranspose(8, kernel_size=4, strides=2, padding=1)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((1, 3, 5))).shape
    (1, 8, 10)
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        _check_layout(layout, ("NCW",))
        super().__init__(
            channels,
            _spatial(kernel_size, 1, "kernel_size"),
            strides,
            padding,
            output_padding,
            dilation,
            groups,
            layout,
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv2DTranspose(_ConvTranspose):
    """Transposed convolution of (N, C, H, W), or (N, H, W, C) with layout 'NHWC'.

    weight (C, channels / groups, kernel height, kernel width), result (N, channels, H', W') with H' = strides·(H − 1) +
    dilation·(kernel − 1) + 1 − 2·padding + output_padding, W' likewise: the gradient of `Conv2D` by its input. The
    other arguments are `Conv2D`'s.

    >>> layer = nn.Conv2DTranspose(8, kernel_size=4, strides=2, padding=1)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((1, 3, 16, 16))).shape
    (1, 8, 32, 32)
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = (1, 1),
        padding: Size = (0, 0),
        output_padding: Size = (0, 0),
        dilation: Size = (1, 1),
        groups: int = 1,
        layout: str = "NCHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        _check_layout(layout, ("NCHW", "NHWC"))
        super().__init__(
            channels,
            _spatial(kernel_size, 2, "kernel_size"),
            strides,
            padding,
            output_padding,
            dilation,
            groups,
            layout,
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv3DTranspose(_ConvTranspose):
    """Transposed convolution of (N, C, D, H, W), or (N, D, H, W, C) with layout 'NDHWC'.

    weight (C, channels / groups, *kernel), result (N, channels, D', H', W'); extents as for `Conv2DTranspose`.

    >>> layer = nn.Conv3DTranspose(4, kernel_size=2, strides=2)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((1, 3, 2, 4, 4))).shape
    (1, 4, 4, 8, 8)
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = (1, 1, 1),
        padding: Size = (0, 0, 0),
        output_padding: Size = (0, 0, 0),
        dilation: Size = (1, 1, 1),
        groups: int = 1,
        layout: str = "NCDHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        _check_layout(layout, ("NCDHW", "NDHWC"))
        super().__init__(
            channels,
            _spatial(kernel_size, 3, "kernel_size"),
            strides,
            padding,
            output_padding,
            dilation,
            groups,
            layout,
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )
