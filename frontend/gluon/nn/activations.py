"""Activation layers."""

from __future__ import annotations

from typing import Any

from gluonjit.gluon.block import HybridBlock
from gluonjit.training import initializers

__all__ = ["ELU", "GELU", "PReLU", "SELU", "Activation", "LeakyReLU", "Swish"]


class Activation(HybridBlock):
    """One of the operator `Activation`'s functions: 'relu', 'sigmoid', 'tanh', 'softrelu' or 'softsign'.

    Any shape in, the same shape out. MXNetError for another name, when the layer is called.

    >>> nn.Activation("relu")(mx.nd.array([-1, 0, 2])).asnumpy()
    array([0., 0., 2.], dtype=float32)
    """

    def __init__(self, activation: str, **kwargs: Any) -> None:
        self._act_type = activation  # `_alias` needs it
        super().__init__(**kwargs)

    def _alias(self) -> str:
        return self._act_type

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


class LeakyReLU(HybridBlock):
    """x where x ≥ 0, alpha·x elsewhere.

    Any shape in, the same shape out. AssertionError if `alpha` is negative.

    >>> nn.LeakyReLU(0.5)(mx.nd.array([-2, 0, 2])).asnumpy()
    array([-1.,  0.,  2.], dtype=float32)
    """

    def __init__(self, alpha: float, **kwargs: Any) -> None:
        if alpha < 0:
            raise AssertionError("Slope coefficient for LeakyReLU must be no less than 0.")
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


class PReLU(HybridBlock):
    """Leaky ReLU with learned slopes: one for all channels (`in_channels=1`) or one for each (axis 1).

    Any shape in, the same shape out (He et al., 2015).

    >>> layer = nn.PReLU(mx.init.Constant(0.5))
    >>> layer.initialize()
    >>> layer(mx.nd.array([[-2, 2]])).asnumpy()
    array([[-1.,  2.]], dtype=float32)
    """

    def __init__(
        self,
        alpha_initializer: Any = initializers.Constant(0.25),  # noqa: B008 (immutable, and the signature is MXNet's)
        in_channels: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.alpha = self.params.get("alpha", shape=(in_channels,), init=alpha_initializer)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        return F.LeakyReLU(x, gamma=alpha, act_type="prelu", name="fwd")


class ELU(HybridBlock):
    """x where x > 0, alpha·(eˣ − 1) elsewhere.

    Any shape in, the same shape out (Clevert et al., 2015).

    >>> nn.ELU(alpha=2)(mx.nd.array([-100, 0, 3])).asnumpy()
    array([-2.,  0.,  3.], dtype=float32)
    """

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


class SELU(HybridBlock):
    """Scaled ELU with the constants of self-normalizing networks.

    1.0507·x where x > 0, 1.0507·1.6733·(eˣ − 1) elsewhere (Klambauer et al., 2017). Any shape in, the same shape out.

    >>> nn.SELU()(mx.nd.array([-100, 0, 1])).asnumpy().round(3)
    array([-1.758,  0.   ,  1.051], dtype=float32)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(HybridBlock):
    """x·Φ(x), where Φ is the normal distribution function, computed by erf.

    Any shape in, the same shape out (Hendrycks and Gimpel, 2016).

    >>> nn.GELU()(mx.nd.array([-10, 0, 10])).asnumpy().round(3)
    array([-0.,  0., 10.], dtype=float32)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(HybridBlock):
    """x·sigmoid(beta·x).

    Any shape in, the same shape out (Ramachandran et al., 2017).

    >>> nn.Swish()(mx.nd.array([-100, 0, 100])).asnumpy()
    array([ -0.,   0., 100.], dtype=float32)
    """

    def __init__(self, beta: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._beta = beta

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x * F.sigmoid(self._beta * x, name="fwd")
