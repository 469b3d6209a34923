"""The results of `Symbol.infer_shape` and `Symbol.infer_type`, in MXNet's forms."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gluonjit.base import MXNetError, dtype_name
from gluonjit.ir import types
from gluonjit.operators.registry import Shape
from gluonjit.symbol.compose import not_found
from gluonjit.symbol.dtypes import solve_types
from gluonjit.symbol.graph import Entry, Node, variables
from gluonjit.symbol.shapes import exact_shapes, is_complete, solve_shapes
from gluonjit.util import is_np_shape


def check_shape(value: Any, what: str) -> Shape | None:
    """A shape that the caller gives; () is an unknown rank, -1 an unknown dimension. TypeError unless it is a tuple."""
    return tuple(max(n, 0) for n in _tuple(value, what)) or None


def _tuple(value: Any, what: str) -> Shape:
    if not isinstance(value, tuple):
        raise TypeError(f"Arguments need to be shapes (tuple), but {what} is {type(value)}.")
    return tuple(int(n) for n in value)


def infer_shape(heads: Sequence[Entry], args: Sequence[Any], kwargs: Mapping[str, Any], partial: bool) -> Any:
    """See `Symbol.infer_shape`."""
    groups = _groups(heads)
    table: Mapping[Entry, Shape | None]
    if is_np_shape():
        table = _with_empty_shapes(heads, known_variables(heads, args, kwargs, _tuple))
        unknown, note, no_rank = -1, "-1s", None
    else:
        table = solve_shapes(heads, known_variables(heads, args, kwargs, check_shape))
        unknown, note, no_rank = 0, "0s", ()
    found = [[no_rank if table[e] is None else table[e] for e in group] for group in groups]
    if partial or all(s is not None and unknown not in s for group in groups for s in map(table.get, group)):
        return tuple(found)
    listed = [(n.name, table[n, 0]) for n in variables(heads)[0]]
    missing = [f"{name}: {no_rank if s is None else s}" for name, s in listed if s is None or unknown in s]
    _warn("shape", f"({note} in shape means unknown dimensions). ", missing)
    return None, None, None


def _with_empty_shapes(heads: Sequence[Entry], given: Mapping[Node, Shape]) -> Mapping[Entry, Shape | None]:
    """The shape of every entry under `np_shape`: -1 for an unknown dimension, None for an unknown rank."""
    exact = exact_shapes(heads, given)
    if exact is not None:
        return exact
    # The rules, to which 0 is unknown, find the variables; if they find all, dimensions of 0 are no obstacle.
    known = {n: shape for n, s in given.items() if (shape := tuple(max(d, 0) for d in s))}
    table = solve_shapes(heads, known)
    found = {n: s for (n, _), s in table.items() if n.op is None and is_complete(s) and s is not None}
    exact = exact_shapes(heads, {**found, **given})
    if exact is not None:
        return exact
    solved = {e: None if s is None else tuple(d or -1 for d in s) for e, s in table.items()}
    return solved | {(n, 0): tuple(map(max, s, solved[n, 0] or s)) for n, s in given.items()}


def infer_type(heads: Sequence[Entry], args: Sequence[Any], kwargs: Mapping[str, Any], partial: bool) -> Any:
    """See `Symbol.infer_type`."""
    known = known_variables(heads, args, kwargs, lambda value, what: types.dtype(dtype_name(value)))
    table = solve_types(heads, known)
    found = [[t.numpy.type if (t := table[e]) else None for e in group] for group in _groups(heads)]
    if partial or all(t is not None for group in found for t in group):
        return tuple(found)
    _warn("type", "", [f"{n.name}: None" for n in variables(heads)[0] if table[n, 0] is None])
    return None, None, None


def _groups(heads: Sequence[Entry]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    arguments, aux = variables(heads)
    return [(n, 0) for n in arguments], list(heads), [(n, 0) for n in aux]


def known_variables(
    heads: Sequence[Entry], args: Sequence[Any], kwargs: Mapping[str, Any], check: Callable[[Any, str], Any]
) -> dict[Node, Any]:
    """The shapes or types that the caller gives, by variable."""
    if args and kwargs:
        raise ValueError("Can only specify known argument shapes either by positional or kwargs way.")
    arguments, aux = variables(heads)
    if len(args) > len(arguments):
        raise MXNetError(f"{len(args)} values given for {len(arguments)} arguments")
    known = {n: check(v, f"argument {k}") for k, (n, v) in enumerate(zip(arguments, args)) if v is not None}
    for key, value in kwargs.items():
        nodes = [n for n in (*arguments, *aux) if n.name == key]
        if not nodes:
            raise MXNetError(not_found(key, [n.name for n in arguments]))
        known.update(dict.fromkeys(nodes, check(value, f"'{key}'")))
    return known


def _warn(what: str, note: str, missing: Sequence[str]) -> None:
    listed = "\n\t".join([*missing[:10], *["..."] * (len(missing) > 10)])
    warnings.warn(
        f"Cannot decide {what} for the following arguments {note}Consider providing them as input:\n\t{listed}",
        stacklevel=4,
    )
