"""The common base of arrays and symbols of `mx.np`: Python's operators, and functions of `np` as methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

METHODS = (
    "all any argmax argmin argsort copy cumsum diag dot max mean min moveaxis nonzero prod repeat round sort "
    "squeeze std sum swapaxes take tile var expand_dims flip broadcast_to diagonal trace"
).split()
"""Functions of `np` that are also methods."""

_SIGNS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "mod": "mod",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
}


def row_major(order: str) -> None:
    """NotImplementedError for another order of elements: all arrays are row-major."""
    if order != "C":
        raise NotImplementedError(f"order {order} is not supported: arrays are row-major")


def row_major_cast(order: str | None) -> None:
    """ValueError for an order of elements that `astype` does not have."""
    if order not in ("C", "K", None):
        raise ValueError(f"order must be either 'K' or 'C', got {order!r}")


class NumpyMethods:
    """A mix-in that must come before NDArray or Symbol among a class's bases."""

    __slots__ = ()
    __hash__ = object.__hash__

    _numpy = True
    _np: ClassVar[Any]
    """`mx.np`, once it is complete."""

    def __neg__(self) -> Any:
        return self._np.negative(self)

    def __abs__(self) -> Any:
        return self._np.abs(self)

    def __invert__(self) -> Any:
        return self._np.invert(self)

    def reshape(self, *args: Any, **kwargs: Any) -> Any:
        """A copy in another shape: `reshape(2, -1)` or `reshape((2, -1))`."""
        row_major(kwargs.pop("order", "C"))
        shape = kwargs.pop("shape", None) or kwargs.pop("newshape", None) or args
        if kwargs:
            raise TypeError(f"reshape() got an unexpected keyword argument {next(iter(kwargs))!r}")
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = shape[0]
        return self._np.reshape(self, tuple(shape))

    def flatten(self, order: Any = "C", **kwargs: Any) -> Any:
        """A copy of all elements in a row."""
        return self._np.ravel(self, order)

    def ravel(self, order: str = "C") -> Any:
        """A copy of all elements in a row."""
        return self._np.ravel(self, order)

    def transpose(self, *axes: Any) -> Any:
        """The axes in the given order; reversed by default."""
        single = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
        return self._np.transpose(self, (axes[0] if single else axes) or None)

    @property
    def T(self) -> Any:
        return self._np.transpose(self)

    def split(self, *args: Any, **kwargs: Any) -> Any:
        """`np.split`."""
        return self._np.split(self, *args, **kwargs)

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Any:
        """`np.clip` of this array."""
        return self._np.clip(self, min, max, out)

    def as_np_ndarray(self) -> Any:
        """Itself."""
        return self


def _sign(name: str, reverse: bool) -> Callable[[Any, Any], Any]:
    if reverse:
        return lambda self, other: getattr(self._np, name)(other, self)
    return lambda self, other: getattr(self._np, name)(self, other)


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: getattr(self._np, name)(self, other, out=self)


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._np, name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"`np.{name}` of this array."
    return method


for _short, _name in _SIGNS.items():
    setattr(NumpyMethods, f"__{_short}__", _sign(_name, False))
    setattr(NumpyMethods, f"__r{_short}__", _sign(_name, True))
    setattr(NumpyMethods, f"__i{_short}__", _in_place(_name))
for _short, _name in _COMPARISONS.items():
    setattr(NumpyMethods, f"__{_short}__", _sign(_name, False))
for _name in METHODS:
    setattr(NumpyMethods, _name, _method(_name))
