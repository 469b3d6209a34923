"""`Pooling`: the maximum, average, sum or norm of each window, in 1 to 3 dimensions, channels first or last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_dtypes import finfo

from gluonjit.ir.dims import Dim, is_at_most, is_less
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, DType, dtype_of
from gluonjit.operators.attributes import boolean, enum, integer, optional, shape
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import check_table, narrowed, require_float, shape_text, widened

_DEFAULT_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def _spatial_axes(rank: int, layout: str | None) -> tuple[int, ...]:
    if rank not in _DEFAULT_LAYOUTS:
        raise OperatorError(f"Input data should be 3D, 4D or 5D (batch, channel, …), but it has {rank} dimensions")
    layout = layout or _DEFAULT_LAYOUTS[rank]
    if len(layout) != rank:
        raise OperatorError(f"layout {layout} does not fit data of {rank} dimensions")
    return tuple(k for k, letter in enumerate(layout) if letter not in "NC")


def _root(b: Emitter, x: Any, p: int) -> Any:
    if p == 1:
        return x
    # 0 is kept away from the root for the sake of the gradient, which would be NaN instead of 0.
    zero, one = (b.constant(v, dtype_of(x)) for v in (0, 1))
    none = b.eq(x, zero)
    x = b.select(none, one, x)
    return b.select(none, zero, b.sqrt(x) if p == 2 else b.cbrt(x))


def _power(b: Emitter, x: Any, p: int) -> Any:
    return x if p == 1 else x * x if p == 2 else x * x * x


def _checked_power(pool_type: str, p_value: int | None) -> int:
    if pool_type != "lp":
        return 1
    if p_value not in (1, 2, 3):
        raise OperatorError(f"p value of {p_value} is not supported; pool_type='lp' needs p_value 1, 2 or 3")
    return p_value


def _global(b: Emitter, data: Any, axes: tuple[int, ...], pool_type: str, p: int) -> Any:
    dtype = dtype_of(data)
    kept = tuple(1 if k in axes else n for k, n in enumerate(data.shape))
    if pool_type == "max":
        return b.reshape(b.reduce(data, op="max", axes=axes), shape=kept)
    x = _power(b, widened(b, data), p)
    total = b.reshape(b.reduce(x, op="sum", axes=axes), shape=kept)
    if pool_type == "avg":
        count = math.prod(data.shape[k] for k in axes)
        total = total / count
    return narrowed(b, _root(b, total, p), dtype)


def pooling_gradient(
    b: Emitter, g: Any, y: Any, x: Any, *, pool_type: str, global_pool: bool, layout: str | None, **_attrs: Any
) -> tuple[Any] | None:
    """The gradient of a global maximum: the first element equal to it gets the cotangent, as in all other windows."""
    (data,), (g,) = x, g
    axes = _spatial_axes(len(data.shape), layout)
    if not global_pool or pool_type != "max" or 0 in data.shape:
        return None
    others = tuple(k for k in range(len(data.shape)) if k not in axes)
    perm = (*others, *axes)
    count = math.prod(data.shape[k] for k in axes)
    rows = b.reshape(b.transpose(data, perm=perm), shape=(*(data.shape[k] for k in others), count))
    last = len(others)
    place = b.reshape(b.arg_reduce(rows, op="argmax", axis=last), shape=(*rows.shape[:-1], 1))
    number = b.iota(shape=(*(1,) * last, count), axis=last, dtype=I64)
    cotangent = b.reshape(b.transpose(g, perm=perm), shape=(*rows.shape[:-1], 1))
    d = b.select(b.eq(number, place), cotangent, b.constant(0, dtype_of(data)))
    d = b.reshape(d, shape=tuple(data.shape[k] for k in perm))
    return (b.transpose(d, perm=tuple(sorted(range(len(perm)), key=lambda k: perm[k]))),)


def _divisor(counts: Sequence[np.ndarray], axes: tuple[int, ...], rank: int, dtype: DType) -> np.ndarray:
    """The number of elements of each window, as the product of `counts` along `axes`; one number if all are equal."""
    if all((c == c[:1]).all() for c in counts):
        return np.asarray(math.prod(int(c[0]) if c.size else 1 for c in counts), dtype.numpy)
    grid = np.ones((1,) * rank, dtype.numpy)
    for axis, c in zip(axes, counts):
        grid = grid * c.reshape([-1 if k == axis else 1 for k in range(rank)]).astype(dtype.numpy)
    return np.maximum(grid, 1).astype(dtype.numpy)  # a window outside of the input sums to 0


@operator(
    "Pooling",
    attrs={
        "kernel": shape((), doc="extents of the window; not needed for global pooling"),
        "pool_type": enum(("avg", "lp", "max", "sum"), "max", doc="what is made of a window"),
        "global_pool": boolean(False, doc="whether one window covers all spatial axes"),
        "cudnn_off": boolean(False, doc="has no effect"),
        "pooling_convention": enum(("full", "same", "valid"), "valid", doc="where the last window ends"),
        "stride": shape((), doc="default 1 along each axis"),
        "pad": shape((), doc="default 0 along each axis"),
        "p_value": optional(integer(doc="the power p of `lp`: 1, 2 or 3")),
        "count_include_pad": optional(boolean(doc="whether the divisor of `avg` counts padding; None: it does")),
        "layout": optional(
            enum(
                ("NCDHW", "NCHW", "NCW", "NDHWC", "NHWC", "NWC"),
                doc="order of the axes of data and result; None: channels after the batch",
            )
        ),
    },
    outputs=lambda attrs: ("output", "workspace") if attrs["pool_type"] == "max" else ("output",),
    visible=lambda attrs: 1,
    gradient=pooling_gradient,
)
def pooling(
    b: Emitter,
    data: Any,
    *,
    kernel: tuple[int, ...],
    pool_type: str,
    global_pool: bool,
    cudnn_off: bool,
    pooling_convention: str,
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    p_value: int | None,
    count_include_pad: bool | None,
    layout: str | None,
) -> Any:
    """The maximum, average, sum or p-norm of each window

    Shapes: data (batch, channels, *space) -> (batch, channels, *extents)

    `global_pool`: one window covers all spatial axes. Conventions: `valid` drops windows that do not fit, `full` lets
    the last one extend past the end, `same` (one dimension only) starts a window at every stride. `avg` counts padding
    unless `count_include_pad=False`. `lp` is (sum x**p)**(1/p).

    The space has 1 to 3 axes; with a layout such as NHWC, channels are last. An extent is (n + 2 pad - kernel) / stride
    + 1, rounded down (`valid`) or up (`full`), or ceil((n + 2 pad) / stride) (`same`). MXNetError if a window is larger
    than the padded data.

    >>> data = mx.nd.array([[[1, 5, 2, 3]]])
    >>> mx.nd.Pooling(data, kernel=2, stride=2).asnumpy()
    array([[[5., 3.]]], dtype=float32)
    >>> mx.nd.Pooling(data, pool_type="avg", global_pool=True).asnumpy()
    array([[[2.75]]], dtype=float32)
    """
    own = require_float(data)
    rank = len(data.shape)
    axes = _spatial_axes(rank, layout)
    p = _checked_power(pool_type, p_value)
    if global_pool:
        return _global(b, data, axes, pool_type, p)
    g = _Windows(data.shape, axes, kernel, stride, pad, pooling_convention)
    if pool_type == "max":
        y = b.reduce_window(data, op="max", **g.attrs(rank))
        if any(g.has_outside(k, data.shape[axis]) for k, axis in enumerate(axes)):
            # A window outside of the input has no maximum; MXNet gives the lowest finite number.
            y = b.maximum(y, b.constant(float(finfo(own.numpy).min), own))
        return y
    x = _power(b, widened(b, data), p)
    total = b.reduce_window(x, op="sum", **g.attrs(rank))
    if pool_type == "avg":
        count_pad = count_include_pad is not False
        counts = [g.counts(k, data.shape[axis], count_pad) for k, axis in enumerate(axes)]
        known = [c for c in counts if c is not None]
        if len(known) == len(counts):
            total = total / b.constant(_divisor(known, axes, rank, dtype_of(x)))
        else:
            total = total / _open_divisor(b, g, data.shape, counts, count_pad, dtype_of(x))
    return narrowed(b, _root(b, total, p), own)


def _open_divisor(
    b: Emitter, g: _Windows, shape: tuple[Any, ...], counts: Sequence[np.ndarray | None], padding: bool, dtype: DType
) -> Any:
    """The number of elements in each window, where windows of an open axis have different ones."""
    product = None
    for k, axis in enumerate(g.axes):
        known = counts[k]
        count = g.open_counts(b, k, shape[axis], padding) if known is None else b.constant(known, I64)
        length = g.out[k] if known is None else len(known)
        along = b.reshape(count, shape=tuple(length if j == axis else 1 for j in range(len(shape))))
        product = along if product is None else product * along
    return b.cast(b.maximum(product, b.constant(1, I64)), dtype=dtype)  # a window outside of the input sums to 0


_MOST_IN_PADDING = 1 << 16
"""Limit on the taps of a window that lie in padding: each costs time for every result."""


class _Windows:
    """Window, stride and padding along the spatial axes, and the number of windows."""

    def __init__(
        self,
        shape: tuple[int, ...],
        axes: tuple[int, ...],
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        pad: tuple[int, ...],
        convention: str,
    ) -> None:
        n = len(axes)
        if convention == "same":
            if n != 1:
                raise OperatorError(
                    "pooling_convention 'same' is for data of 3 axes (batch, channel, x), got " + shape_text(shape)
                )
            if any(pad):
                raise OperatorError("pooling_convention 'same' disables the use of the pad parameter")
            pad = ()
        self.axes, self.kernel = axes, kernel
        self.stride, self.pad = stride or (1,) * n, pad or (0,) * n
        for name, values, low in (("kernel", kernel, 1), ("stride", self.stride, 1), ("pad", self.pad, 0)):
            if len(values) != n:
                raise OperatorError(
                    f"Input data has {n} spatial dimensions, so {name} needs {n} entries, got {shape_text(values)}"
                )
            if any(v < low for v in values):
                raise OperatorError(f"entries of {name} = {shape_text(values)} must be at least {low}")
        self.out, self.high = [], []
        for k, axis in enumerate(axes):
            padded = shape[axis] + 2 * self.pad[k]
            if convention == "same":
                out = -(-padded // self.stride[k])
                self.out.append(out)
                self.high.append(max((out - 1) * self.stride[k] + kernel[k] - padded, 0))
                continue
            if kernel[k] > padded:
                raise OperatorError(
                    f"kernel size ({kernel[k]}) exceeds input ({shape[axis]} padded to {padded}) along axis {axis}"
                )
            if self.pad[k] >= kernel[k]:
                raise OperatorError(f"pad {shape_text(self.pad)} must be smaller than kernel {shape_text(kernel)}")
            steps = padded - kernel[k]
            out = (-(-steps // self.stride[k]) if convention == "full" else steps // self.stride[k]) + 1
            self.out.append(out)
            # The elements by which the last window extends past the end are added to the padding.
            self.high.append(self.pad[k] + max((out - 1) * self.stride[k] + kernel[k] - padded, 0))
        self.window, self.low = zip(*(self._reached(k, shape[axis]) for k, axis in enumerate(axes)))
        # Keep the number of windows: padding that only the removed taps reach is removed from the end.
        self.high = [self.high[k] + self.window[k] - self.kernel[k] + self.pad[k] - self.low[k] for k in range(n)]

    def _reached(self, k: int, n: int) -> tuple[int, int]:
        """The taps along spatial axis `k` of `n` elements that read the input in any window: their number, from the
        first to the last, and the padding before the first.

        The other taps add nothing, and a file may ask for any number of them.
        """
        first = max(self.pad[k] - (self.out[k] - 1) * self.stride[k], 0)
        last = min(self.kernel[k], self.pad[k] + n)
        if last - first <= 0:  # all windows are outside of the input
            return 1, 0
        if last - first > n + _MOST_IN_PADDING:
            raise OperatorError(
                f"kernel size ({self.kernel[k]}), stride ({self.stride[k]}) and pad ({self.pad[k]}) are too large for "
                f"an input of {n} elements along axis {self.axes[k]}: windows lie in padding but for a few taps"
            )
        return last - first, self.pad[k] - first

    def counts(self, k: int, n: int, padding: bool) -> np.ndarray | None:
        """The number of elements in each window along spatial axis `k` of length `n`; None if windows of an open axis
        have different ones.

        `padding`: whether padding counts. Positions past the padding (conventions `full` and `same`) never count.
        """
        if isinstance(self.out[k], Dim):
            return self._equal_counts(k, n, padding)
        check_table(self.out[k])
        start = np.arange(self.out[k]) * self.stride[k] - self.pad[k]
        end = np.minimum(start + self.kernel[k], n + self.pad[k])
        if not padding:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        return np.maximum(end - start, 0)

    def _equal_counts(self, k: int, n: Any, padding: bool) -> np.ndarray | None:
        start, end = -self.pad[k], (self.out[k] - 1) * self.stride[k] - self.pad[k] + self.kernel[k]
        if padding and is_at_most(end, n + self.pad[k]) or is_at_most(0, start) and is_at_most(end, n):
            return np.array([self.kernel[k]])
        return None

    def open_counts(self, b: Emitter, k: int, n: Any, padding: bool) -> Any:
        """`counts` of an open axis, computed when the code runs."""

        def number(value: Any) -> Any:
            return b.constant(value, I64)

        place = b.iota(shape=(self.out[k],), axis=0, dtype=I64)
        start = place * number(self.stride[k]) - number(self.pad[k])
        end = b.minimum(start + number(self.kernel[k]), number(n + self.pad[k]))
        if not padding:
            start, end = b.maximum(start, number(0)), b.minimum(end, number(n))
        return b.maximum(end - start, number(0))

    def has_outside(self, k: int, n: Any) -> bool:
        """Whether some window along spatial axis `k` of length `n` is outside of the input."""
        if isinstance(self.out[k], Dim):
            return not (self.pad[k] < self.kernel[k] and is_less((self.out[k] - 1) * self.stride[k] - self.pad[k], n))
        counts = self.counts(k, n, False)
        return counts is not None and bool((counts == 0).any())

    def attrs(self, rank: int) -> Mapping[str, tuple[int, ...]]:
        """`reduce_window`'s attributes, with an entry for each of `rank` axes."""

        def spread(values: Any, other: int) -> tuple[int, ...]:
            return tuple(values[self.axes.index(k)] if k in self.axes else other for k in range(rank))

        return {
            "window": spread(self.window, 1),
            "stride": spread(self.stride, 1),
            "low": spread(self.low, 0),
            "high": spread(self.high, 0),
        }
