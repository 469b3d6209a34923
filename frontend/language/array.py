"""`Array`: the base class of NDArray, Symbol, the symbols of a trace and their counterparts of `mx.np`.

Code that accepts operands of any of these classes depends on `Array` alone, so that the layers that define the classes
do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

METHODS = (
    # By topic: elementwise, powers, trigonometry, activations, reductions and order, shapes, picking.
    "abs sign round rint fix floor ceil trunc clip exp expm1 log log10 log2 log1p "
    "sqrt rsqrt cbrt rcbrt square reciprocal "
    "sin cos tan arcsin arccos arctan degrees radians sinh cosh tanh arcsinh arccosh arctanh "
    "relu sigmoid softmax log_softmax softmin "
    "sum nansum prod nanprod mean max min norm sort topk argsort argmax argmax_channel argmin "
    "reshape_like zeros_like ones_like shape_array size_array broadcast_axes repeat tile pad swapaxes transpose flip "
    "depth_to_space space_to_depth split slice slice_axis slice_like take one_hot pick diag"
).split()
"""The operators that are methods of both NDArray and Symbol: `x.exp()` is `F.exp(x)`."""


class Array:
    """An operand or a result of operators.

    * `_numpy`: whether it belongs to `mx.np`, and so do results of operators on it.
    * `_symbolic`: whether operators append nodes to a graph instead of computing.
    * `_functions`: the package with the operator functions for it, `mx.nd` or `mx.sym`.
    * `_invoke(op, operands, attrs, out, name, attr, hint)`: runs an operator on operands of this class; see
      `language.namespace.Flavour`.

    The last two are set when the package is complete (`namespace.populate`).
    """

    __slots__ = ()

    _numpy: ClassVar[bool] = False
    _symbolic: ClassVar[bool] = False
    _functions: ClassVar[Any]
    _invoke: ClassVar[Callable[..., Any]]


def add_methods(cls: type[Array]) -> None:
    """Adds to `cls` the METHODS that it does not define itself."""
    for name in METHODS:
        if name not in cls.__dict__:
            setattr(cls, name, _method(name, cls))


def _method(name: str, cls: type[Array]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(cls._functions, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    method.__module__ = cls.__module__
    package = "mx.nd" if cls.__name__ == "NDArray" else "mx.sym"
    method.__doc__ = f"`x.{name}(…)` is `{package}.{name}(x, …)`, whose help describes the arguments."
    return method
