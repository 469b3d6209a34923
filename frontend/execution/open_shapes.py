"""Which dimensions of a block's arguments are open: those that were declared, or that have changed from call to call.

An open dimension has a name in place of a size. Code for it serves all sizes from `ir.dims.LOWEST` on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.dims import LOWEST, Dim, Extent, named
from gluonjit.ir.sizes import sizes_of
from gluonjit.ir.types import IRError, TensorType

HISTORY = 16
"""So many signatures are compared."""
_LETTERS = "nmkljhgf"

Declared = Mapping[str, Mapping[int, str]]
"""Argument's name → axis → the dimension's name."""


def opened(
    history: Sequence[Sequence[TensorType]], types: Sequence[TensorType], first_alone: bool = False
) -> list[TensorType] | None:
    """`types` with those dimensions open in which they differ from the types in `history`, which have the same ranks
    and element types. Dimensions that have always had equal sizes share a name. None if no open type fits.

    `first_alone`: of the first argument only the first dimension, and of others those that change with it."""
    rows = [*history, types]
    columns: dict[tuple[int, ...], Dim] = {}
    found = []
    for k, t in enumerate(types):
        shape: list[Extent] = []
        for axis, n in enumerate(t.shape):
            column = tuple(row[k].shape[axis] for row in rows)
            if len(set(column)) == 1 or (first_alone and (k or axis) and column not in columns):
                shape.append(n)
                continue
            if n < LOWEST:
                return None
            if column not in columns:
                count = len(columns)
                columns[column] = named(_LETTERS[count] if count < len(_LETTERS) else f"n{count}")
            shape.append(columns[column])
        found.append(t.with_shape(tuple(shape)))
    return found if columns else None


def declared_open(declared: Declared, names: Sequence[str], types: Sequence[TensorType]) -> list[TensorType] | None:
    """`types` with the declared dimensions open. None if one of them has a size that needs a graph of its own, or two
    of one name differ. ValueError for an argument or axis that is not there."""
    for name in declared:
        if name not in names:
            raise ValueError(f"dynamic names the argument {name!r}; the arguments are {', '.join(names)}")
    sizes: dict[str, int] = {}
    found = []
    for name, t in zip(names, types, strict=True):
        shape: list[Extent] = list(t.shape)
        for axis, dimension in declared.get(name, {}).items():
            if not -t.rank <= axis < t.rank:
                raise ValueError(f"dynamic names axis {axis} of {name!r}, which is {t}")
            n = t.shape[axis]
            if n < LOWEST or sizes.setdefault(dimension, n) != n:
                return None
            shape[axis] = named(dimension)
        found.append(t.with_shape(tuple(shape)))
    return found if sizes else None


class Codes:
    """What is compiled of one graph for inputs of several shapes. Executors that were reshaped share it."""

    def __init__(self) -> None:
        self._history: dict[Hashable, list[list[TensorType]]] = {}
        self._open: list[tuple[Hashable, list[TensorType], Any]] = []
        self._closed: set[Hashable] = set()

    def session(self, key: Hashable, types: list[TensorType], make: Callable[[list[TensorType]], Any]) -> Any:
        """A `Session` for inputs of these types: one that takes them already, or a new one with those dimensions open
        that have changed since the first, or else for these types alone. `key`: what else it depends on."""
        family = (key, tuple((t.dtype, t.rank) for t in types))
        for same, theirs, session in self._open:
            if same == family and fits(theirs, types):
                return session
        history = self._history.setdefault(family, [])
        open_types = None if family in self._closed else opened(history, types)
        history.append(types)
        del history[:-HISTORY]
        if open_types is not None:
            try:
                session = make(open_types)
                _ = session.callee
            except (IRError, MXNetError):
                self._closed.add(family)
            else:
                self._open.append((family, open_types, session))
                return session
        return make(types)


def fits(open_types: Sequence[TensorType], types: Sequence[TensorType]) -> bool:
    """Whether there are sizes with which the open types are these."""
    try:
        sizes_of(open_types, [t.shape for t in types])
    except IRError:
        return False
    return True


def checked(dynamic: Any) -> dict[str, dict[int, str]] | bool | None:
    """The argument `dynamic` of `hybridize`: {argument: {axis: name}}, where a list of axes names the dimensions after
    argument and axis; False: never; None: those that change. Raises ValueError or IRError for anything else."""
    if dynamic is None or dynamic is False:
        return dynamic
    problem = f"dynamic is {{'data': {{0: 'batch'}}}}, {{'data': [0]}}, False or None, not {dynamic!r}"
    if not isinstance(dynamic, Mapping):
        raise ValueError(problem)
    found: dict[str, dict[int, str]] = {}
    for argument, axes in dynamic.items():
        if isinstance(axes, (list, tuple)):
            axes = {axis: f"{str(argument).lower()}_{axis}" for axis in axes}
        if not isinstance(argument, str) or not isinstance(axes, Mapping):
            raise ValueError(problem)
        for axis, name in axes.items():
            if not isinstance(axis, int) or isinstance(axis, bool) or not isinstance(name, str):
                raise ValueError(problem)
            named(name)
        found[argument] = dict(axes)
    return found
