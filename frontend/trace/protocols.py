"""The interfaces that tracing needs of its callers: a program, and the arrays that it holds.

Gluon's blocks and parameters implement them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gluonjit.context import Context

Shape = tuple[int, ...]


class Held(Protocol):
    """A named array that a program holds between calls; its shape may be unknown until the first call."""

    name: str
    _first: Any
    """The NDArray; None until it is initialized."""
    _plain: Any
    """The NDArray, if it is the only one, on cpu(0): what programs compute with there."""
    _declared_shape: Shape | None
    """The shape that a graph from a file declares; used where nothing else determines it."""
    _var: Any
    """The result of `var`, once it has been called."""

    @property
    def shape(self) -> Any:
        """The shape; None if nothing is known of it, 0 for an unknown dimension."""

    @shape.setter
    def shape(self, new: Shape) -> None: ...

    @property
    def dtype(self) -> Any: ...

    def data(self) -> Any:
        """The NDArray; an error if it is not initialized."""

    def _value_on(self, device: Context | None) -> Any:
        """The NDArray for arguments on a device (None: cpu(0)); an error if it has none there."""

    def _arrays(self) -> list[Any]:
        """The NDArrays of all devices."""

    def _reduce(self) -> Any:
        """The NDArray to save to a file."""

    def var(self) -> Any:
        """The variable that stands for it in graphs."""

    def _release(self) -> int:
        """Frees the array if nothing else refers to it and its file can be read again; the bytes that this frees."""

    def _complete_shape(self, shape: Shape) -> None:
        """Sets the inferred shape, and initializes the array if that was deferred."""


class HybridForward(Protocol):
    """What can be traced: an object with `hybrid_forward(F, *args, **held)`."""

    _fast_call: Callable[..., Any] | None
    """Compiled code that calls go to directly, without looking for a running trace; the next call sets it again."""

    @property
    def _children(self) -> Mapping[str, Any]:
        """The programs inside it, by attribute name."""

    @property
    def _reg_params(self) -> Mapping[str, Any]:
        """The `Held` arrays of its own, by attribute name."""

    @property
    def name(self) -> str: ...

    @property
    def hybrid_forward(self) -> Callable[..., Any]: ...

    def name_scope(self) -> AbstractContextManager[Any]:
        """A context in which new nodes get this program's name prefix."""

    def collect_params(self) -> Any:
        """The `Held` arrays of it and its children, by name."""
