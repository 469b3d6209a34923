"""Arrays that gradients are asked for."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.quiet import quiet
from gluonjit.ndarray.gradient_listeners import listeners, note_stored
from gluonjit.runtime.storage import Storage

REQUESTS = ("write", "add", "null")
"""How `backward` stores a gradient: replaces the old one, adds to it, or not at all."""


class Variable:
    """What `attach_grad` makes of an array: `NDArray._grad_state` holds it.

    `stype`: the storage type of the gradient.
    `fresh`: whether `backward` has stored a gradient since somebody, such as a Trainer, last set it to False.
    """

    __slots__ = ("_grad", "_make", "_readers", "fresh", "request", "stype")

    def __init__(self, request: str, make: Callable[[], Any], stype: str = "default") -> None:
        if request not in REQUESTS:
            raise ValueError(f"grad_req must be 'write', 'add' or 'null', got {request!r}")
        self.request = request
        self.stype = stype
        self.fresh = False
        self._grad: Any = None
        self._make = make
        self._readers: list[weakref.ref[Any]] = []

    @staticmethod
    def into(request: str, grad: Any) -> Variable:
        """A variable whose gradients go to a given array."""
        variable = Variable(request, lambda: grad, grad.stype)
        variable._grad = grad
        return variable

    @property
    def has_grad(self) -> bool:
        """Whether the array for the gradient exists."""
        return self._grad is not None

    @property
    def grad(self) -> Any:
        """The array that `backward` writes to, the same one for ever; zeros, made on first use."""
        if self._grad is None:
            self._grad = self._make()
        return self._grad

    def note_reader(self, node: Any) -> None:
        """Notes that a node of the tape keeps the variable's value for its gradient."""
        readers = self._readers
        if len(readers) >= _READERS and not len(readers) & (len(readers) - 1):  # at powers of 2: drop those that ended
            readers[:] = [r for r in readers if (known := r()) is not None and not known.released]
        readers.append(weakref.ref(node))

    def keep_value(self, storage: Storage) -> None:
        """Gives nodes that will read the variable's value, in `storage`, a copy: the value is about to be replaced."""
        copies: dict[Any, Any] = {}
        for reader in self._readers:
            node = reader()
            if node is not None:
                node.keep_copies(storage, copies)
        self._readers.clear()


_READERS = 16
"""The number of readers at which those that have ended are dropped for the first time."""


def wants_rows(x: Any) -> bool:
    """Whether this array is a variable whose gradient is to be row_sparse."""
    state = x._grad_state
    return state.__class__ is Variable and state.stype == "row_sparse"


def store(target: Any, request: str, gradient: np.ndarray) -> None:
    """Writes a gradient to the array `target`, or adds it."""
    with quiet():
        if request == "add":
            target._array += gradient.astype(target._array.dtype, copy=False)
        else:
            np.copyto(target._array, gradient, casting="unsafe")
    target._wrote()
    if listeners:
        note_stored(target, gradient)


def tracked(x: Any) -> bool:
    """Whether gradients flow to this array: it is a variable, or was computed from one while recording. What a freed
    graph has computed is a constant for what is recorded later, as in MXNet: a state that is carried from batch to
    batch needs no `detach`."""
    state = x._grad_state
    if state is None:
        return False
    if state.__class__ is Variable:
        return bool(state.request != "null")
    return not state.node.released


def requests(given: Any, names: Sequence[str]) -> list[str]:
    """What `grad_req`, a word, a list of them, or a dict by name, says for each argument."""
    if isinstance(given, str):
        found = [given] * len(names)
    elif isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise ValueError(f"grad_req has {len(given)} entries for {len(names)} arguments")
        found = list(given)
    elif isinstance(given, Mapping):
        found = [given.get(name, "null") for name in names]
    else:
        raise TypeError(f"grad_req is a word, a list or a dict, got {type(given).__name__}")
    for request in found:
        if request not in REQUESTS:
            raise ValueError(f"grad_req must be in {', '.join(map(repr, REQUESTS))}, got {request!r}")
    return found
