"""Normalization layers: (x − mean) / √(variance + epsilon) · gamma + beta, over different axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.parameter import Parameter, ParameterDict

__all__ = ["BatchNorm", "BatchNormReLU", "GroupNorm", "InstanceNorm", "LayerNorm"]


class _Norm(HybridBlock):
    """The base of normalization layers: gamma and beta, and a repr that shows the constructor's arguments."""

    _kwargs: dict[str, Any]

    def _statistic(self, name: str, size: int, init: Any, learned: bool, **kwargs: Any) -> Parameter:
        """A parameter of shape (size,), where 0 is unknown; it has a gradient only if `learned`."""
        return self.params.get(
            name,
            grad_req="write" if learned else "null",
            shape=(size,),
            init=init,
            allow_deferred_init=True,
            **kwargs,
        )

    def _describe(self, **more: Any) -> str:
        content = ", ".join(f"{key}={value!r}" for key, value in {**self._kwargs, **more}.items())
        return f"{type(self).__name__}({content})"


class _BatchNorm(_Norm):
    """Normalizes over all axes except `axis`: in training mode by the batch's statistics, else by the running ones.

    Each batch updates the latter: running = momentum·running + (1 − momentum)·batch.
    """

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        fuse_relu: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        self.fuse_relu = fuse_relu
        if in_channels != 0:
            self.in_channels = in_channels
        n = in_channels
        self.gamma = self._statistic("gamma", n, gamma_initializer, scale, differentiable=scale)
        self.beta = self._statistic("beta", n, beta_initializer, center, differentiable=center)
        self.running_mean = self._statistic("running_mean", n, running_mean_initializer, False, differentiable=False)
        self.running_var = self._statistic("running_var", n, running_variance_initializer, False, differentiable=False)

    def cast(self, dtype: Any) -> None:
        """Converts the parameters; for float16, they stay float32, as statistics need the precision."""
        super().cast("float32" if np.dtype(dtype) == np.float16 else dtype)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        norm = F.contrib.BatchNormWithReLU if self.fuse_relu else F.BatchNorm
        return norm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        return self._describe(in_channels=self.gamma.shape[0] or None)


class BatchNorm(_BatchNorm):
    """Batch normalization over all axes except `axis`: gamma·(x − mean) / √(variance + epsilon) + beta.

    (N, C, …) in and out for the default `axis=1`; gamma, beta, running_mean and running_var are (C,). In training mode,
    mean and variance (divided by the number of elements) are those of the batch, and the running ones become
    momentum·running + (1 − momentum)·batch; otherwise, and with `use_global_stats`, the running ones are used (Ioffe
    and Szegedy, 2015). `scale=False` fixes gamma at 1, `center=False` leaves beta at its initial value. Float16 data
    keep float32 statistics.

    >>> layer = nn.BatchNorm()
    >>> layer.initialize()
    >>> layer(mx.nd.ones((2, 3, 4, 4))).shape, layer.gamma.shape
    ((2, 3, 4, 4), (3,))
    >>> with autograd.record():
    ...     y = layer(mx.nd.arange(96).reshape((2, 3, 4, 4)))
    >>> y.mean(axis=(0, 2, 3)).asnumpy().round(3) + 0
    array([0., 0., 0.], dtype=float32)
    """

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            axis=axis,
            momentum=momentum,
            epsilon=epsilon,
            center=center,
            scale=scale,
            use_global_stats=use_global_stats,
            fuse_relu=False,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            running_mean_initializer=running_mean_initializer,
            running_variance_initializer=running_variance_initializer,
            in_channels=in_channels,
            **kwargs,
        )


class BatchNormReLU(_BatchNorm):
    """`BatchNorm`, followed by ReLU. (N, C, …) in and out.

    >>> layer = nn.BatchNormReLU()
    >>> layer.initialize()
    >>> layer(mx.nd.array([[-1, 2]])).asnumpy().round(3)
    array([[0., 2.]], dtype=float32)
    """

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            axis=axis,
            momentum=momentum,
            epsilon=epsilon,
            center=center,
            scale=scale,
            use_global_stats=use_global_stats,
            fuse_relu=True,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            running_mean_initializer=running_mean_initializer,
            running_variance_initializer=running_variance_initializer,
            in_channels=in_channels,
            **kwargs,
        )


class InstanceNorm(_Norm):
    """Normalizes each sample and channel (`axis`) separately, over the other axes.

    (N, C, …) in and out, gamma and beta (C,): gamma·(x − mean) / √(variance + epsilon) + beta (Ulyanov et al., 2016).

    >>> layer = nn.InstanceNorm()
    >>> layer.initialize()
    >>> layer(mx.nd.array([[[1, 3], [10, 30]]])).asnumpy().round(3)
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis = axis
        self._epsilon = epsilon
        self.gamma = self._statistic("gamma", in_channels, gamma_initializer, scale)
        self.beta = self._statistic("beta", in_channels, beta_initializer, center)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        x = x.swapaxes(1, self._axis)
        return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon).swapaxes(1, self._axis)

    def __repr__(self) -> str:
        return self._describe(in_channels=self.gamma.shape[0])


class LayerNorm(_Norm):
    """Normalizes over one axis, by default the last.

    Any shape in, the same shape out; gamma and beta have that axis' size (Ba et al., 2016).

    >>> layer = nn.LayerNorm()
    >>> layer.initialize()
    >>> layer(mx.nd.array([[1, 3], [10, 30]])).asnumpy().round(3)
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis = axis
        self._epsilon = epsilon
        self.gamma = self._statistic("gamma", in_channels, gamma_initializer, scale)
        self.beta = self._statistic("beta", in_channels, beta_initializer, center)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(data, gamma=gamma, beta=beta, axis=self._axis, eps=self._epsilon)

    def __repr__(self) -> str:
        return self._describe(in_channels=self.gamma.shape[0])


class GroupNorm(_Norm):
    """Normalizes each of `num_groups` groups of channels (axis 1) of each sample; gamma and beta per group.

    (N, C, …) in and out, gamma and beta (num_groups,) (Wu and He, 2018). C is a multiple of `num_groups`.

    >>> layer = nn.GroupNorm(num_groups=2)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((2, 4, 3))).shape, layer.gamma.shape
    ((2, 4, 3), (2,))
    """

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "num_groups": num_groups, "center": center, "scale": scale}
        self._num_groups = num_groups
        self._epsilon = epsilon
        self.gamma = self._statistic("gamma", num_groups, gamma_initializer, scale)
        self.beta = self._statistic("beta", num_groups, beta_initializer, center)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(data, gamma=gamma, beta=beta, num_groups=self._num_groups, eps=self._epsilon)

    def __repr__(self) -> str:
        return self._describe()
