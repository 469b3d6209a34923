"""Flattens nested arguments and results (lists and tuples of arrays and Nones), and rebuilds them.

A *form* is the nesting without the arrays: `ARRAY` for an array, None for None, and a tuple (class, form, form, …) for
a sequence. Forms are hashable, and equal when the nesting is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

ARRAY = "array"


def flatten(value: Any, is_leaf: Callable[[Any], bool], what: str) -> tuple[list[Any], Any]:
    """The leaves of `value` in order, and its form.

    ValueError, which names `what` ('input' or 'output'), for anything that is not a leaf, None, a list or a tuple.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, is_leaf, what, leaves)


def _flatten(value: Any, is_leaf: Callable[[Any], bool], what: str, leaves: list[Any]) -> Any:
    if is_leaf(value):
        leaves.append(value)
        return ARRAY
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return (type(value), *(_flatten(item, is_leaf, what, leaves) for item in value))
    raise ValueError(
        f"When hybridized, the input of HybridBlock {what} must be (nested) list of Symbol or NDArray, "
        f"but got {value} of type {type(value)}"
    )


def rebuild(form: Any, leaves: Sequence[Any]) -> Any:
    """The value with this form and these leaves."""
    return _rebuild(form, iter(leaves))


def _rebuild(form: Any, leaves: Iterator[Any]) -> Any:
    if form is None:
        return None
    if form == ARRAY:
        return next(leaves)
    kind, *parts = form
    items = [_rebuild(part, leaves) for part in parts]
    if hasattr(kind, "_fields"):  # a named tuple
        return kind(*items)
    return items if kind is list else kind(items)


def numbered(form: Any) -> Any:
    """A form as MXNet writes it: 0 for an array, -1 for None, a list for a sequence."""
    if form is None or form == ARRAY:
        return -1 if form is None else 0
    return [numbered(part) for part in form[1:]]


def from_numbers(numbers: Any) -> Any:
    """The form that MXNet writes as `numbers`, with a list for every sequence."""
    if isinstance(numbers, int):
        if numbers > 0:
            return (list, *[ARRAY] * numbers)
        return None if numbers else ARRAY
    return (list, *map(from_numbers, numbers))


def count(form: Any) -> int:
    """The number of arrays in a value of this form."""
    if form is None or form == ARRAY:
        return int(form == ARRAY)
    return sum(map(count, form[1:]))
