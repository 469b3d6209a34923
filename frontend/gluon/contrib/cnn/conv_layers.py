"""Deformable convolutions: an ordinary convolution of the input gives the offset of each kernel tap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.nn import Activation
from gluonjit.gluon.nn.conv_layers import Size, _check_layout, _spatial
from gluonjit.gluon.parameter import Parameter, ParameterDict
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


class _Deformable(HybridBlock):
    """The base of both layers: a convolution for the offsets, the deformable one, and an activation.

    For each tap of the kernel and each deformable group, the offset convolution gives `per_tap` numbers: the shifts in
    y and x, and in version 2 a weight. Its weight is (per_tap · taps · deformable groups, in_channels / groups,
    *kernel), with C last for 'NHWC'; the deformable weight is (channels, in_channels / groups, *kernel).
    """

    per_tap: int
    made: tuple[str, ...]
    """The parameters in the order in which they are created."""

    offset_weight: Parameter
    offset_bias: Parameter | None
    deformable_conv_weight: Parameter
    deformable_conv_bias: Parameter | None

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size,
        padding: Size,
        dilation: Size,
        groups: int,
        num_deformable_group: int,
        layout: str,
        use_bias: bool,
        in_channels: int,
        activation: str | None,
        offset_use_bias: bool,
        op_name: str,
        adj: Any,
        initializers: dict[str, Any],
        prefix: str | None,
        params: ParameterDict | None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        _check_layout(layout, ("NCHW", "NHWC"))
        self._channels = channels
        self._in_channels = in_channels
        self._op_name = op_name
        kernel = tuple(_spatial(kernel_size, 2, "kernel_size"))
        shared: dict[str, Any] = {
            "kernel": kernel,
            "stride": _spatial(strides, 2, "strides"),
            "dilate": _spatial(dilation, 2, "dilation"),
            "pad": _spatial(padding, 2, "padding"),
            "num_group": groups,
            "layout": layout,
        }
        if adj:
            shared["adj"] = adj
        taps = kernel[0] * kernel[1] * num_deformable_group
        self._kwargs_offset = {**shared, "num_filter": self.per_tap * taps, "no_bias": not offset_use_bias}
        self._kwargs_deformable_conv = {
            **shared,
            "num_filter": channels,
            "num_deformable_group": num_deformable_group,
            "no_bias": not use_bias,
        }
        rows, inner = self.per_tap * taps, in_channels // groups
        shapes: dict[str, Sequence[int]] = {
            "offset_weight": (rows, inner, *kernel) if layout == "NCHW" else (rows, *kernel, inner),
            "offset_bias": (rows,),
            "deformable_conv_weight": [channels, 0, *kernel],  # a list, as in MXNet's graphs
            "deformable_conv_bias": (channels,),
        }
        absent = {"offset_bias": not offset_use_bias, "deformable_conv_bias": not use_bias}
        with self.name_scope():
            for name in self.made:
                param = None
                if not absent.get(name):
                    init = initializers[name]
                    param = self.params.get(name, shape=shapes[name], init=init, allow_deferred_init=True)
                setattr(self, name, param)
            self.act = None if activation is None else Activation(activation, prefix=activation + "_")

    def _offsets(self, F: Any, x: Any, weight: Any, bias: Any) -> Any:
        operands = (x, weight) if bias is None else (x, weight, bias)
        return F.Convolution(*operands, cudnn_off=True, **self._kwargs_offset)


class DeformableConvolution(_Deformable):
    """Deformable convolution of (N, C, H, W), version 1: each tap is shifted.

    Arguments and the result's shape as for `nn.Conv2D` (Dai et al., 2017). A second convolution computes the shifts
    from the input, `offset_…` are its settings; `num_deformable_group` groups of channels have their own.

    >>> layer = gluon.contrib.cnn.DeformableConvolution(8, kernel_size=3, padding=1)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((1, 3, 6, 6))).shape
    (1, 8, 6, 6)
    """

    per_tap = 2
    made = ("offset_weight", "offset_bias", "deformable_conv_weight", "deformable_conv_bias")

    def __init__(
        self,
        channels: int,
        kernel_size: Size = (1, 1),
        strides: Size = (1, 1),
        padding: Size = (0, 0),
        dilation: Size = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        offset_weight_initializer: Any = "zeros",
        offset_bias_initializer: Any = "zeros",
        offset_use_bias: bool = True,
        op_name: str = "DeformableConvolution",
        adj: Any = None,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(
            channels,
            kernel_size,
            strides,
            padding,
            dilation,
            groups,
            num_deformable_group,
            layout,
            use_bias,
            in_channels,
            activation,
            offset_use_bias,
            op_name,
            adj,
            {
                "offset_weight": offset_weight_initializer,
                "offset_bias": offset_bias_initializer,
                "deformable_conv_weight": weight_initializer,
                "deformable_conv_bias": bias_initializer,
            },
            prefix,
            params,
        )

    def _alias(self) -> str:
        return "deformable_conv"

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        offset_weight: Any,
        deformable_conv_weight: Any,
        offset_bias: Any = None,
        deformable_conv_bias: Any = None,
    ) -> Any:
        operands = {
            "data": x,
            "offset": self._offsets(F, x, offset_weight, offset_bias),
            "weight": deformable_conv_weight,
        }
        if deformable_conv_bias is not None:
            operands["bias"] = deformable_conv_bias
        out = F.contrib.DeformableConvolution(**operands, name="fwd", **self._kwargs_deformable_conv)
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        kwargs = self._kwargs_deformable_conv
        outer, inner = self.deformable_conv_weight.shape[:2]
        text = f"{type(self).__name__}({inner or None} -> {outer}, kernel_size={kwargs['kernel']}"
        text += f", stride={kwargs['stride']}"
        if kwargs["pad"] != (0, 0):
            text += f", padding={kwargs['pad']}"
        if kwargs["dilate"] != (1, 1):
            text += f", dilation={kwargs['dilate']}"
        if kwargs["num_group"] != 1:
            text += f", groups={kwargs['num_group']}"
        if kwargs["no_bias"]:
            text += ", bias=False"
        if self.act is not None:
            text += f", {self.act}"
        return text + ")"


class ModulatedDeformableConvolution(_Deformable):
    """Deformable convolution of (N, C, H, W), version 2: each tap is shifted, and weighted by 2·sigmoid(number).

    Arguments and shapes as for `DeformableConvolution` (Zhu et al., 2018).

    >>> layer = gluon.contrib.cnn.ModulatedDeformableConvolution(8, kernel_size=3, padding=1)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((1, 3, 6, 6))).shape
    (1, 8, 6, 6)
    """

    per_tap = 3
    made = ("deformable_conv_weight", "deformable_conv_bias", "offset_weight", "offset_bias")

    def __init__(
        self,
        channels: int,
        kernel_size: Size = (1, 1),
        strides: Size = (1, 1),
        padding: Size = (0, 0),
        dilation: Size = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        offset_weight_initializer: Any = "zeros",
        offset_bias_initializer: Any = "zeros",
        offset_use_bias: bool = True,
        op_name: str = "ModulatedDeformableConvolution",
        adj: Any = None,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(
            channels,
            kernel_size,
            strides,
            padding,
            dilation,
            groups,
            num_deformable_group,
            layout,
            use_bias,
            in_channels,
            activation,
            offset_use_bias,
            op_name,
            adj,
            {
                "offset_weight": offset_weight_initializer,
                "offset_bias": offset_bias_initializer,
                "deformable_conv_weight": weight_initializer,
                "deformable_conv_bias": bias_initializer,
            },
            prefix,
            params,
        )
        self.offset_split_index = self._kwargs_offset["num_filter"] // 3 * 2

    def _alias(self) -> str:
        return "modulated_deformable_conv"

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        offset_weight: Any,
        deformable_conv_weight: Any,
        offset_bias: Any = None,
        deformable_conv_bias: Any = None,
    ) -> Any:
        both = self._offsets(F, x, offset_weight, offset_bias)
        offset = F.slice_axis(both, axis=1, begin=0, end=self.offset_split_index)
        mask = F.sigmoid(F.slice_axis(both, axis=1, begin=self.offset_split_index, end=None)) * 2
        operands = {"data": x, "offset": offset, "mask": mask, "weight": deformable_conv_weight}
        if deformable_conv_bias is not None:
            operands["bias"] = deformable_conv_bias
        out = F.contrib.ModulatedDeformableConvolution(**operands, name="fwd", **self._kwargs_deformable_conv)
        return out if self.act is None else self.act(out)


_mxnet_names.explain(__name__)
