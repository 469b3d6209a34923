"""Dense, dropout, embedding, flatten."""

from __future__ import annotations

from typing import Any

from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.nn.activations import Activation

__all__ = ["Dense", "Dropout", "Embedding", "Flatten"]


class Dense(HybridBlock):
    """act(x·Wᵀ + b): weight (units, in_units), bias (units,).

    `flatten`: (N, …) is flattened to (N, in_units) and gives (N, units); otherwise the layer acts on the last axis.
    `in_units=0` is inferred by the first call.

    MXNetError if the input has another size than `in_units`.

    >>> layer = nn.Dense(3, activation="relu")
    >>> layer.initialize()
    >>> layer(mx.nd.ones((2, 4, 5))).shape, layer.weight.shape
    ((2, 3), (3, 20))
    >>> layer = nn.Dense(3, flatten=False)
    >>> layer.initialize()
    >>> layer(mx.nd.ones((2, 4, 5))).shape
    (2, 4, 3)
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._flatten = flatten
        self._units = units
        self._in_units = in_units
        with self.name_scope():
            self.weight = self.params.get(
                "weight", shape=(units, in_units), init=weight_initializer, dtype=dtype, allow_deferred_init=True
            )
            self.bias = None
            if use_bias:
                self.bias = self.params.get(
                    "bias", shape=(units,), init=bias_initializer, dtype=dtype, allow_deferred_init=True
                )
            self.act = None if activation is None else Activation(activation, prefix=activation + "_")

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        out = F.FullyConnected(
            x, weight, bias, no_bias=bias is None, num_hidden=self._units, flatten=self._flatten, name="fwd"
        )
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        units, in_units = self.weight.shape
        return f"{type(self).__name__}({in_units or None} -> {units}, {self.act or 'linear'})"


class Dropout(HybridBlock):
    """In training mode, sets a fraction `rate` of the input to 0 and scales the rest by 1/(1 − rate).

    The mask is shared along `axes`.

    Any shape in, the same shape out (Srivastava et al., 2014). Outside of training mode, and for `rate=0`, it returns
    its input. The random numbers depend on `mx.random.seed` alone.

    >>> layer = nn.Dropout(0.5)
    >>> layer(mx.nd.ones((2,))).asnumpy()
    array([1., 1.], dtype=float32)
    >>> with autograd.record():
    ...     dropped = layer(mx.nd.ones((1000,)))
    >>> sorted(set(dropped.asnumpy().tolist()))
    [0.0, 2.0]
    """

    def __init__(self, rate: float, axes: tuple[int, ...] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._rate = rate
        self._axes = axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd", cudnn_off=False)
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


class Embedding(HybridBlock):
    """Rows of weight (input_dim, output_dim), picked by indices: (…) → (…, output_dim).

    `sparse_grad`: the gradient is a row_sparse array, of the rows that were picked.

    Indices of any numeric type; those out of range count as the nearest row.

    >>> layer = nn.Embedding(input_dim=10, output_dim=4)
    >>> layer.initialize()
    >>> layer(mx.nd.array([[1, 2, 3], [4, 5, 6]])).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {
            "input_dim": input_dim,
            "output_dim": output_dim,
            "dtype": dtype,
            "sparse_grad": sparse_grad,
        }
        self.weight = self.params.get(
            "weight",
            shape=(input_dim, output_dim),
            init=weight_initializer,
            dtype=dtype,
            allow_deferred_init=True,
            grad_stype="row_sparse" if sparse_grad else "default",
        )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        kwargs = self._kwargs
        return f"{type(self).__name__}({kwargs['input_dim']} -> {kwargs['output_dim']}, {kwargs['dtype']})"


class Flatten(HybridBlock):
    """(N, …) → (N, product of the other axes).

    >>> nn.Flatten()(mx.nd.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__
