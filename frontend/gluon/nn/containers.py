"""Blocks made of other blocks or of a function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from gluonjit import ndarray, symbol
from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.parameter import ParameterDict

__all__ = ["HybridLambda", "HybridSequential", "Lambda", "Sequential"]


class _Stack(Block):
    """The base of `Sequential` and `HybridSequential`: children by number."""

    _is_container = True

    def add(self, *blocks: Block) -> None:
        """Appends blocks."""
        for block in blocks:
            self.register_child(block)

    def __repr__(self) -> str:
        return self._repr_children(self._children)

    def __getitem__(self, key: int | slice) -> Any:
        """A child; for a slice, a new container of those children."""
        chosen = list(self._children.values())[key]
        if not isinstance(chosen, list):
            return chosen
        net = type(self)(prefix=self._prefix)
        with net.name_scope():
            net.add(*chosen)
        return net

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._children.values()))


class Sequential(_Stack):
    """Calls its children one after the other.

    Indexing, slices and `len` are of the children. Use `HybridSequential` if all children are hybrid.

    >>> net = nn.Sequential()
    >>> net.add(nn.Dense(8), nn.Dense(3))
    >>> net.initialize()
    >>> net(mx.nd.ones((2, 4))).shape, len(net)
    ((2, 3), 2)
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def forward(self, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridizes the children, each on its own."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            warnings.warn(
                f"All children of this Sequential layer '{self.prefix}' are HybridBlocks. Consider "
                "using HybridSequential for the best performance.",
                stacklevel=2,
            )
        super().hybridize(active, **kwargs)


class HybridSequential(_Stack, HybridBlock):
    """Calls its children one after the other; all of them are hybrid, so they compile into one graph.

    Indexing, slices and `len` are of the children. ValueError for a child that is no HybridBlock.

    >>> net = nn.HybridSequential()
    >>> net.add(nn.Dense(8, activation="relu"), nn.Dense(3))
    >>> net.initialize()
    >>> net.hybridize()
    >>> net(mx.nd.ones((2, 4))).shape
    (2, 3)
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x


class Lambda(Block):
    """Calls a function: `function(*args)`, or the operator of `mx.nd` with that name.

    AssertionError for a name that `mx.nd` does not have.

    >>> nn.Lambda("tanh")(mx.nd.zeros((2,))).asnumpy()
    array([0., 0.], dtype=float32)
    >>> nn.Lambda(lambda x: x + 1)(mx.nd.zeros((2,))).asnumpy()
    array([1., 1.], dtype=float32)
    """

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            if not hasattr(ndarray, function):
                raise AssertionError(f"Function name {function} is not found in ndarray.")
            self._func_impl = getattr(ndarray, function)
        elif callable(function):
            self._func_impl = function
        else:
            raise ValueError(f"Unrecognized function in lambda: {function} of type {type(function)}")

    def forward(self, *args: Any) -> Any:
        return self._func_impl(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_impl.__name__})"


class HybridLambda(HybridBlock):
    """Calls a function: `function(F, x, *args)`, or the operator of `F` with that name.

    AssertionError for a name that is no operator.

    >>> nn.HybridLambda(lambda F, x: F.relu(x) + 1)(mx.nd.array([-1, 1])).asnumpy()
    array([1., 2.], dtype=float32)
    """

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            if not (hasattr(ndarray, function) and hasattr(symbol, function)):
                raise AssertionError(f"Function name {function} is not found in symbol/ndarray.")
            self._func: Callable[..., Any] = _Named(function)
            self._func_name = function
        elif callable(function):
            self._func = function
            self._func_name = function.__name__
        else:
            raise ValueError(f"Unrecognized function in lambda: {function} of type {type(function)}")

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._func(F, x, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


class _Named:
    """A function: `f(F, x)` is `F.<name>(x)`. It is a class so that blocks that hold one can be pickled."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, F: Any, *args: Any) -> Any:
        return getattr(F, self._name)(*args)
