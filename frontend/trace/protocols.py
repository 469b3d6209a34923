"""What a trace sees of those who ask for it: a program and the arrays that it holds. Gluon's blocks and parameters are
such."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gluonjit.context import Context

Shape = tuple[int, ...]


class Held(Protocol):
    """An array that a program holds between calls, by a name; its shape may not be known before the first one."""

    name: str
    _data: Any
    """The NDArray; None until it is initialized."""
    _declared_shape: Shape | None
    """What a graph from a file says of the shape; it counts where nothing else has told."""
    _var: Any
    """What `var` has made, if anything."""

    @property
    def shape(self) -> Any:
        """The shape; None where nothing is known, 0 for a dimension that is not."""

    @shape.setter
    def shape(self, new: Shape) -> None: ...

    @property
    def dtype(self) -> Any: ...

    def data(self) -> Any:
        """The NDArray; an error where there is none."""

    def _value_on(self, device: Context | None) -> Any:
        """The NDArray for arguments on a device (None: cpu(0)); an error where there is none."""

    def _arrays(self) -> list[Any]:
        """The NDArrays of all devices."""

    def _reduce(self) -> Any:
        """The NDArray for a file."""

    def var(self) -> Any:
        """The variable that stands for it in graphs."""

    def _release(self) -> int:
        """Frees the array, if nothing else refers to it and it can be read again; how many bytes that frees."""

    def found_shape(self, shape: Shape) -> None:
        """Completes the shape, and initializes the array if that waited for it."""


class Program(Protocol):
    """Something to trace: `hybrid_forward(F, *args, **held)`."""

    _fast_call: Callable[..., Any] | None
    """Compiled code that would be called past a running trace; the next call sets it again."""

    @property
    def _children(self) -> Mapping[str, Any]:
        """The programs inside it, by attribute."""

    @property
    def _reg_params(self) -> Mapping[str, Any]:
        """What it holds itself, by attribute."""

    @property
    def name(self) -> str: ...

    @property
    def hybrid_forward(self) -> Callable[..., Any]: ...

    def name_scope(self) -> AbstractContextManager[Any]:
        """Within, nodes get names of this program."""

    def collect_params(self) -> Any:
        """All that it and its children hold, by name."""
