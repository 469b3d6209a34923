"""Which dimensions of a block's arguments are open: those that were declared, or that have changed from call to call.

An open dimension has a name in place of a size. Code for it serves all sizes from `ir.dims.LOWEST` on.
"""

from __future__ import annotations

import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gluonjit.base import MXNetError
from gluonjit.common.signals import is_from_signal
from gluonjit.ir.dims import LOWEST, Dim, Extent, named, names_of, parse
from gluonjit.ir.sizes import sizes_of, usual_name
from gluonjit.ir.types import IRError, TensorType
from gluonjit.language.source import stacklevel

HISTORY = 16
"""The latest signatures that are compared."""
MAX_FAILURES = 8
"""Types that may fail to be open; after that, each shape of calls that are alike otherwise is compiled for itself."""

WHERE_DIVIDED = (
    "Strides divide sizes: declare a multiple of their product, as '32*h' for sizes that are multiples of 32."
)

Made = TypeVar("Made")

Declared = Mapping[str, Mapping[int, str]]
"""Argument's name → axis → the dimension's name."""


WAYS = ("any", "steps", "batch")
"""What is tried, one after the other, when sizes have changed. `any`: each dimension that has changed is a name.
`steps`: the first of an argument is, others are known modulo a power of two, as 32*h + 11, so that strides divide them.
`batch`: of the first argument only the first dimension is open, and of others those that change with it."""

Step = tuple[int, int]
"""(s, extra): sizes are known as s*h + r + extra, with r < s. Convolutions without padding ask for some pixels, so that
s*h alone may be too small for the least h."""
_STEPS: tuple[Step, ...] = ((32, 0), (16, 0), (8, 0), (4, 0), (2, 0))
"""The steps that are tried for the first rest r. The product of a net's strides is usually 32."""
_SMALL_STEPS: tuple[Step, ...] = ((2, 8), (4, 8), (8, 16), (16, 0), (32, 0))
"""The steps that are tried for other rests: the smaller the step, the fewer rests there are."""


def opened(
    history: Sequence[Sequence[TensorType]], types: Sequence[TensorType], way: str = "any", step: Step = (1, 0)
) -> list[TensorType] | None:
    """`types` with those dimensions open in which they differ from the types in `history`, which have the same ranks
    and element types. Dimensions that have always had equal sizes share a name. A size below LOWEST stays what it is.
    None if no open type fits.

    `way`: one of WAYS; `step`: for 'steps'."""
    rows = [*history, types]
    columns: dict[tuple[int, ...], Extent] = {}
    if way == "steps" and not _is_large_enough(rows, step):
        return None
    found = []
    for k, t in enumerate(types):
        shape: list[Extent] = []
        for axis, n in enumerate(t.shape):
            column = tuple(row[k].shape[axis] for row in rows)
            if len(set(column)) == 1 or n < LOWEST or (way == "batch" and (k or axis) and column not in columns):
                shape.append(n)
                continue
            if column not in columns:
                count = len(columns)
                name = named(usual_name(count))
                columns[column] = step[0] * name + n % step[0] + step[1] if axis else name
            shape.append(columns[column])
        found.append(t.with_shape(tuple(shape)))
    return found if columns else None


class Openings:
    """What has been tried with calls that are alike but for their sizes."""

    def __init__(self) -> None:
        self.history: deque[Sequence[TensorType]] = deque(maxlen=HISTORY)
        """The signatures that code was made for."""
        self.closed: str | None = None
        """Why no more is tried."""
        self._failed: set[tuple[TensorType, ...]] = set()
        self._steps: set[Step] = set()
        """Steps for which there is code."""
        self._failed_steps: set[Step] = set()
        self._step: Step | None = None
        """The step of the candidate that was given last."""

    def declared(
        self, declared: Declared, names: Sequence[str], types: Sequence[TensorType]
    ) -> list[tuple[TensorType, ...]]:
        """The candidate with the declared dimensions open, unless there is none (`declared_open`), or it has failed."""
        found = declared_open(declared, names, types) if self.closed is None else None
        return [tuple(found)] if found is not None and not self.has_failed(tuple(found)) else []

    def candidates(self, types: Sequence[TensorType]) -> Iterator[tuple[TensorType, ...]]:
        """Open types for these, in the order of WAYS. Each is followed by `succeeded` or `failed`.

        The largest step is tried first, as it is hardly ever in the way. If it has led to code for one rest, smaller
        ones are tried for the next."""
        for way in WAYS:
            steps: Sequence[Step] = [(1, 0)]
            if way == "steps":
                steps = [s for s in _SMALL_STEPS if s not in self._failed_steps] if self._steps else _STEPS
            for step in steps:
                found = opened(self.history, types, way, step)
                if found is None or self.has_failed(tuple(found)):
                    continue
                if self.closed is not None:
                    return
                self._step = step if way == "steps" else None
                yield tuple(found)
                if steps is _STEPS:
                    break

    def has_failed(self, candidate: tuple[TensorType, ...]) -> bool:
        return candidate in self._failed

    def first(
        self,
        candidates: Iterable[tuple[TensorType, ...]],
        make: Callable[[tuple[TensorType, ...]], Made],
        refused: Callable[[Exception], object] = lambda error: None,
    ) -> Made | None:
        """What `make` makes of the first of the candidates that can be open; None if none can. `refused` is told why
        one cannot."""
        for candidate in candidates:
            try:
                made = make(candidate)
            except Exception as e:
                if is_from_signal(e):
                    raise
                if not isinstance(e, (IRError, MXNetError)):
                    warnings.warn(f"please report this fault of the compiler, {e!r}", stacklevel=stacklevel())
                refused(e)
                self.failed(candidate, str(e))
            else:
                self.succeeded()
                return made
        return None

    def succeeded(self) -> None:
        """Notes that there is code for the latest candidate."""
        if self._step is not None:
            self._steps.add(self._step)

    def failed(self, candidate: tuple[TensorType, ...], why: str) -> None:
        """Notes that there can be no code for the latest candidate."""
        if self._steps and self._step is not None and self._step not in self._steps:
            self._failed_steps.add(self._step)
            return
        self._failed.add(candidate)
        if len(self._failed) == MAX_FAILURES:
            self.closed = why


def _is_large_enough(rows: Sequence[Sequence[TensorType]], step: Step) -> bool:
    """Whether the sizes that have changed, but for the first of each argument, leave large enough names."""
    now = rows[-1]
    changed = [
        t.shape[k] for j, t in enumerate(now) for k in range(1, t.rank) if len({r[j].shape[k] for r in rows}) > 1
    ]
    large = [n for n in changed if n >= LOWEST]
    return bool(large) and (min(large) - step[1]) // step[0] >= LOWEST


def declared_open(declared: Declared, names: Sequence[str], types: Sequence[TensorType]) -> list[TensorType] | None:
    """`types` with the declared dimensions open, but for those whose size is below LOWEST. None if all are, or two of
    one name differ. ValueError for an argument or axis that is not there."""
    for name in declared:
        if name not in names:
            raise ValueError(f"dynamic names the argument {name!r}; the arguments are {', '.join(names)}")
    found = []
    small: set[str] = set()
    for name, t in zip(names, types, strict=True):
        shape: list[Extent] = list(t.shape)
        own = declared.get(name, {})
        for axis, dimension in own.items():
            if not -t.rank <= axis < t.rank:
                raise ValueError(f"dynamic names axis {axis} of {name!r}, which is {t}")
            if axis < 0 and axis + t.rank in own:
                raise ValueError(f"dynamic names axis {axis} of {name!r} twice: it is axis {axis + t.rank}, too")
            if t.shape[axis] < LOWEST:
                small |= names_of([parse(dimension)])
            else:
                shape[axis] = parse(dimension)
        found.append(t.with_shape(tuple(shape)))
    names_there = names_of(n for t in found for n in t.shape)
    return found if names_there and not small & names_there and fits(found, types) else None


def fits(open_types: Sequence[TensorType], types: Sequence[TensorType], lowest: int = LOWEST) -> bool:
    """Whether there are sizes, none below `lowest`, with which the open types are these."""
    try:
        sizes_of(open_types, [t.shape for t in types], lowest)
    except IRError:
        return False
    return True


def _is_one_size(n: Extent) -> bool:
    """Whether it is c·name + r, with c > 0 and 0 <= r < c."""
    if not isinstance(n, Dim) or len(n.names) != 1:
        return False
    (name,) = n.names
    rest = {names: c for names, c in n.terms.items() if names != (name,)}
    return 0 <= rest.pop((), 0) < n.terms.get((name,), 0) and not rest


def _word(part: object) -> str:
    """A part of a dimension's name, without what such names cannot have; axis -1 is `last1`."""
    return re.sub("[^a-z0-9]", "", str(part).lower().replace("-", "last"))


def checked(dynamic: Any) -> dict[str, dict[int, str]] | bool | None:
    """The argument `dynamic` of `hybridize`: {argument: {axis: name}}, where a list of axes names the dimensions after
    argument and axis; False: never; None: those that change. Raises ValueError or IRError for anything else."""
    if dynamic is None or dynamic is False:
        return dynamic
    problem = f"dynamic is {{'data': {{0: 'batch'}}}}, {{'data': [0]}}, False or None, not {dynamic!r}"
    if not isinstance(dynamic, Mapping):
        raise ValueError(problem)
    found: dict[str, dict[int, str]] = {}
    stems: set[str] = set()
    for argument, axes in dynamic.items():
        if isinstance(axes, (list, tuple)):
            stem = re.sub("^[0-9]*", "", _word(argument)) or "x"
            stem += f"_{len(found)}" if stem in stems else ""
            stems.add(stem)
            axes = {axis: f"{stem}_{_word(axis)}" for axis in axes}
        if not isinstance(argument, str) or not isinstance(axes, Mapping):
            raise ValueError(problem)
        for axis, name in axes.items():
            if not isinstance(axis, int) or isinstance(axis, bool) or not isinstance(name, str):
                raise ValueError(problem)
            if not _is_one_size(parse(name)):
                raise ValueError(
                    f"{name!r} is not a dimension: give a name, such as 'h', or a multiple of one and a rest, such as "
                    "'32*h+11'"
                )
        found[argument] = dict(axes)
    return found
