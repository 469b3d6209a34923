"""Concurrent blocks, pixel shuffling, and layers for sparse storage and several devices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from gluonjit import context, ndarray
from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.nn import BatchNorm, HybridSequential, Sequential
from gluonjit.gluon.parameter import ParameterDict
from gluonjit.language.source import stacklevel

__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SparseEmbedding",
    "SyncBatchNorm",
]


class Concurrent(Sequential):
    """Passes its input to every child and concatenates their outputs along `axis`.

    >>> net = gluon.contrib.nn.Concurrent(axis=1)
    >>> net.add(nn.Flatten(), nn.Flatten())
    >>> net(mx.nd.ones((2, 3))).shape
    (2, 6)
    """

    def __init__(self, axis: int = -1, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any) -> Any:
        return ndarray.concat(*(block(x) for block in self._children.values()), dim=self.axis)


class HybridConcurrent(HybridSequential):
    """`Concurrent` of hybrid blocks, which are compiled into one graph.

    >>> net = gluon.contrib.nn.HybridConcurrent(axis=1)
    >>> net.add(nn.Dense(4), gluon.contrib.nn.Identity())
    >>> net.initialize()
    >>> net(mx.nd.ones((2, 3))).shape
    (2, 7)
    """

    def __init__(self, axis: int = -1, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.concat(*(block(x) for block in self._children.values()), dim=self.axis)


class Identity(HybridBlock):
    """Returns its input; for a skip connection in a `HybridConcurrent`.

    >>> gluon.contrib.nn.Identity()(mx.nd.ones((2, 3))).shape
    (2, 3)
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x


class SparseEmbedding(Block):
    """`nn.Embedding` with row_sparse weight, which lives in a Trainer's store: make one before the first call.

    Indices (…) → (…, output_dim).

    >>> layer = gluon.contrib.nn.SparseEmbedding(10, 4)
    >>> layer.initialize()
    >>> trainer = gluon.Trainer(layer.collect_params(), "sgd")
    >>> layer(mx.nd.array([1, 2])).shape
    (2, 4)
    """

    def __init__(
        self, input_dim: int, output_dim: int, dtype: Any = "float32", weight_initializer: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {"input_dim": input_dim, "output_dim": output_dim, "dtype": dtype, "sparse_grad": True}
        self.weight = self.params.get(
            "weight",
            shape=(input_dim, output_dim),
            init=weight_initializer,
            dtype=dtype,
            grad_stype="row_sparse",
            stype="row_sparse",
        )

    def forward(self, x: Any) -> Any:
        return ndarray.Embedding(x, self.weight.row_sparse_data(x), name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        kwargs = self._kwargs
        return f"{type(self).__name__}({kwargs['input_dim']} -> {kwargs['output_dim']}, {kwargs['dtype']})"


class SyncBatchNorm(BatchNorm):
    """Batch normalization over the batches of all devices. As there is one device here, it equals `BatchNorm`.

    `num_devices` is kept for MXNet's files.

    (N, C, …) in and out.

    >>> layer = gluon.contrib.nn.SyncBatchNorm(num_devices=1)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    def __init__(
        self,
        in_channels: int = 0,
        num_devices: int | None = None,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            axis=1,
            momentum=momentum,
            epsilon=epsilon,
            center=center,
            scale=scale,
            use_global_stats=use_global_stats,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            running_mean_initializer=running_mean_initializer,
            running_variance_initializer=running_variance_initializer,
            in_channels=in_channels,
            **kwargs,
        )
        self._kwargs = {
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
            "ndev": self._get_num_devices() if num_devices is None else num_devices,
            "key": self.prefix,
        }

    def _get_num_devices(self) -> int:
        warnings.warn(
            "Caution using SyncBatchNorm: if not using all the GPUs, please mannually set num_devices",
            UserWarning,
            stacklevel=stacklevel(),
        )
        return max(context.num_gpus(), 1)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        return F.contrib.SyncBatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)


class _PixelShuffle(HybridBlock):
    """Rearranges channels into space: (N, C·f1·f2…, …) → (N, C, … each spatial axis times its factor)."""

    def __init__(self, factor: int | Sequence[int], rank: int) -> None:
        super().__init__()
        try:
            self._factors = (int(factor),) * rank  # type: ignore[arg-type]
        except TypeError:
            self._factors = tuple(int(f) for f in factor)  # type: ignore[union-attr]
            if len(self._factors) != rank:
                raise AssertionError(f"wrong length {len(self._factors)}") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors})"


# The comments are the axes after each line; reshape's codes are 0 (keep), -3 (join two), -4 a b (split into a, b).


class PixelShuffle1D(_PixelShuffle):
    """(N, C·f, W) → (N, C, W·f).

    >>> gluon.contrib.nn.PixelShuffle1D(2)(mx.nd.arange(4).reshape((1, 2, 2))).asnumpy()
    array([[[0., 2., 1., 3.]]], dtype=float32)
    """

    def __init__(self, factor: int) -> None:
        super().__init__(factor, 1)
        self._factor = self._factors[0]

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F.reshape(x, (0, -4, -1, self._factor, 0))  # N C f W
        x = F.transpose(x, (0, 1, 3, 2))  # N C W f
        return F.reshape(x, (0, 0, -3))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factor})"


class PixelShuffle2D(_PixelShuffle):
    """(N, C·f1·f2, H, W) → (N, C, H·f1, W·f2).

    A number for both factors, or two (Shi et al., 2016).

    >>> gluon.contrib.nn.PixelShuffle2D((2, 3))(mx.nd.ones((1, 12, 4, 4))).shape
    (1, 2, 8, 12)
    """

    def __init__(self, factor: int | Sequence[int]) -> None:
        super().__init__(factor, 2)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        f1, f2 = self._factors
        x = F.reshape(x, (0, -4, -1, f1 * f2, 0, 0))  # N C f1·f2 H W
        x = F.reshape(x, (0, 0, -4, f1, f2, 0, 0))  # N C f1 f2 H W
        x = F.transpose(x, (0, 1, 4, 2, 5, 3))  # N C H f1 W f2
        return F.reshape(x, (0, 0, -3, -3))


class PixelShuffle3D(_PixelShuffle):
    """(N, C·f1·f2·f3, D, H, W) → (N, C, D·f1, H·f2, W·f3).

    A number for all factors, or three.

    >>> gluon.contrib.nn.PixelShuffle3D(2)(mx.nd.ones((1, 8, 2, 2, 2))).shape
    (1, 1, 4, 4, 4)
    """

    def __init__(self, factor: int | Sequence[int]) -> None:
        super().__init__(factor, 3)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        # One factor at a time: MXNet's transpose takes at most six axes, and graphs have to equal MXNet's.
        f1, f2, f3 = self._factors
        x = F.reshape(x, (0, -4, -1, f1 * f2 * f3, 0, 0, 0))  # N C f1·f2·f3 D H W
        x = F.swapaxes(x, 2, 3)  # N C D f1·f2·f3 H W
        x = F.reshape(x, (0, 0, 0, -4, f1, f2 * f3, 0, 0))  # N C D f1 f2·f3 H W
        x = F.reshape(x, (0, 0, -3, 0, 0, 0))  # N C D·f1 f2·f3 H W
        x = F.swapaxes(x, 3, 4)  # N C D·f1 H f2·f3 W
        x = F.reshape(x, (0, 0, 0, 0, -4, f2, f3, 0))  # N C D·f1 H f2 f3 W
        x = F.reshape(x, (0, 0, 0, -3, 0, 0))  # N C D·f1 H·f2 f3 W
        x = F.swapaxes(x, 4, 5)  # N C D·f1 H·f2 W f3
        return F.reshape(x, (0, 0, 0, 0, -3))
