"""Pooling and padding layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.base import numeric_types
from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.nn.conv_layers import Size, _spatial

__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "ReflectionPad2D",
]

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


class _Pooling(HybridBlock):
    """The operator `Pooling`. `strides=None` means the window's size; `ceil_mode` keeps a partial window at the end."""

    def __init__(
        self,
        pool_size: Sequence[int],
        strides: Size | None,
        padding: Size,
        ceil_mode: bool,
        global_pool: bool,
        pool_type: str,
        layout: str,
        count_include_pad: bool | None = None,
        **kwargs: Any,
    ) -> None:
        rank = len(pool_size)
        if layout not in _LAYOUTS[rank]:
            raise AssertionError(f"Only {' and '.join(_LAYOUTS[rank])} layouts are valid for {rank}D Pooling")
        super().__init__(**kwargs)
        self._kwargs: dict[str, Any] = {
            "kernel": pool_size,
            "stride": _spatial(pool_size if strides is None else strides, rank, "strides"),
            "pad": _spatial(padding, rank, "padding"),
            "global_pool": global_pool,
            "pool_type": pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        kwargs = self._kwargs
        return (
            f"{type(self).__name__}(size={kwargs['kernel']}, stride={kwargs['stride']}, padding={kwargs['pad']}, "
            f"ceil_mode={kwargs['pooling_convention'] == 'full'}, global_pool={kwargs['global_pool']}, "
            f"pool_type={kwargs['pool_type']}, layout={kwargs['layout']})"
        )


class MaxPool1D(_Pooling):
    """Maximum over windows of (N, C, W).

    (N, C, W) → (N, C, W') with W' = floor((W + 2·padding − pool_size) / strides) + 1, or its ceiling with `ceil_mode`;
    `strides=None` means `pool_size`.

    >>> nn.MaxPool1D(2)(mx.nd.array([[[1, 4, 3, 2]]])).asnumpy()
    array([[[4., 3.]]], dtype=float32)
    """

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        window = _spatial(pool_size, 1, "pool_size")
        super().__init__(window, strides, padding, ceil_mode, False, "max", layout, **kwargs)


class MaxPool2D(_Pooling):
    """Maximum over windows of (N, C, H, W).

    (N, C, H, W) → (N, C, H', W') with H' = floor((H + 2·padding − pool_size) / strides) + 1, or its ceiling with
    `ceil_mode`; W' likewise. `pool_size`, `strides` (None: `pool_size`) and `padding`: a number, or one for each axis.
    Padding never is the maximum. With layout 'NHWC', channels are last.

    >>> nn.MaxPool2D(3, strides=2, padding=1)(mx.nd.ones((1, 2, 8, 8))).shape
    (1, 2, 4, 4)
    """

    def __init__(
        self,
        pool_size: Size = (2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        layout: str = "NCHW",
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        window = _spatial(pool_size, 2, "pool_size")
        super().__init__(window, strides, padding, ceil_mode, False, "max", layout, **kwargs)


class MaxPool3D(_Pooling):
    """Maximum over windows of (N, C, D, H, W).

    (N, C, D, H, W) → (N, C, D', H', W'); extents and arguments as for `MaxPool2D`.

    >>> nn.MaxPool3D()(mx.nd.ones((1, 2, 4, 6, 8))).shape
    (1, 2, 2, 3, 4)
    """

    def __init__(
        self,
        pool_size: Size = (2, 2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        **kwargs: Any,
    ) -> None:
        window = _spatial(pool_size, 3, "pool_size")
        super().__init__(window, strides, padding, ceil_mode, False, "max", layout, **kwargs)


class AvgPool1D(_Pooling):
    """Mean over windows of (N, C, W).

    (N, C, W) → (N, C, W'), as `MaxPool1D`; `count_include_pad=False` divides by the number of elements that are no
    padding.

    >>> nn.AvgPool1D(2)(mx.nd.array([[[1, 3, 5, 7]]])).asnumpy()
    array([[[2., 6.]]], dtype=float32)
    """

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        window = _spatial(pool_size, 1, "pool_size")
        super().__init__(window, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class AvgPool2D(_Pooling):
    """Mean over windows of (N, C, H, W).

    (N, C, H, W) → (N, C, H', W'); extents and arguments as for `MaxPool2D`. `count_include_pad=False` divides by the
    number of elements that are no padding.

    >>> nn.AvgPool2D(2)(mx.nd.ones((1, 2, 8, 8))).shape
    (1, 2, 4, 4)
    """

    def __init__(
        self,
        pool_size: Size = (2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str = "NCHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        window = _spatial(pool_size, 2, "pool_size")
        super().__init__(window, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class AvgPool3D(_Pooling):
    """Mean over windows of (N, C, D, H, W).

    (N, C, D, H, W) → (N, C, D', H', W'); extents and arguments as for `AvgPool2D`.

    >>> nn.AvgPool3D()(mx.nd.ones((1, 2, 4, 6, 8))).shape
    (1, 2, 2, 3, 4)
    """

    def __init__(
        self,
        pool_size: Size = (2, 2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        window = _spatial(pool_size, 3, "pool_size")
        super().__init__(window, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class GlobalMaxPool1D(_Pooling):
    """Maximum over (W,).

    (N, C, W) → (N, C, 1).

    >>> nn.GlobalMaxPool1D()(mx.nd.array([[[1, 4, 3]]])).asnumpy()
    array([[[4.]]], dtype=float32)
    """

    def __init__(self, layout: str = "NCW", **kwargs: Any) -> None:
        super().__init__((1,), None, 0, True, True, "max", layout, **kwargs)


class GlobalMaxPool2D(_Pooling):
    """Maximum over (H, W).

    (N, C, H, W) → (N, C, 1, 1).

    >>> nn.GlobalMaxPool2D()(mx.nd.ones((2, 3, 5, 5))).shape
    (2, 3, 1, 1)
    """

    def __init__(self, layout: str = "NCHW", **kwargs: Any) -> None:
        super().__init__((1, 1), None, 0, True, True, "max", layout, **kwargs)


class GlobalMaxPool3D(_Pooling):
    """Maximum over (D, H, W).

    (N, C, D, H, W) → (N, C, 1, 1, 1).

    >>> nn.GlobalMaxPool3D()(mx.nd.ones((2, 3, 4, 5, 5))).shape
    (2, 3, 1, 1, 1)
    """

    def __init__(self, layout: str = "NCDHW", **kwargs: Any) -> None:
        super().__init__((1, 1, 1), None, 0, True, True, "max", layout, **kwargs)


class GlobalAvgPool1D(_Pooling):
    """Mean over (W,).

    (N, C, W) → (N, C, 1).

    >>> nn.GlobalAvgPool1D()(mx.nd.array([[[1, 4, 4]]])).asnumpy()
    array([[[3.]]], dtype=float32)
    """

    def __init__(self, layout: str = "NCW", **kwargs: Any) -> None:
        super().__init__((1,), None, 0, True, True, "avg", layout, **kwargs)


class GlobalAvgPool2D(_Pooling):
    """Mean over (H, W).

    (N, C, H, W) → (N, C, 1, 1).

    >>> nn.GlobalAvgPool2D()(mx.nd.ones((2, 3, 5, 5))).shape
    (2, 3, 1, 1)
    """

    def __init__(self, layout: str = "NCHW", **kwargs: Any) -> None:
        super().__init__((1, 1), None, 0, True, True, "avg", layout, **kwargs)


class GlobalAvgPool3D(_Pooling):
    """Mean over (D, H, W).

    (N, C, D, H, W) → (N, C, 1, 1, 1).

    >>> nn.GlobalAvgPool3D()(mx.nd.ones((2, 3, 4, 5, 5))).shape
    (2, 3, 1, 1, 1)
    """

    def __init__(self, layout: str = "NCDHW", **kwargs: Any) -> None:
        super().__init__((1, 1, 1), None, 0, True, True, "avg", layout, **kwargs)


class ReflectionPad2D(HybridBlock):
    """Pads H and W of (N, C, H, W) by reflection; `padding` may also be the 8 numbers that the operator takes.

    (N, C, H, W) → (N, C, H + 2·padding, W + 2·padding); `padding` must be below H and W.

    >>> nn.ReflectionPad2D(1)(mx.nd.array([[[[1, 2], [3, 4]]]])).asnumpy()[0, 0, 0]
    array([4., 3., 4., 3.], dtype=float32)
    """

    def __init__(self, padding: Size = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(padding, numeric_types):
            padding = (0, 0, 0, 0, padding, padding, padding, padding)  # type: ignore[assignment]
        if len(padding) != 8:  # type: ignore[arg-type]
            raise AssertionError(f"padding must be a number or 8 of them, not {padding}")
        self._padding = padding

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self._padding)
