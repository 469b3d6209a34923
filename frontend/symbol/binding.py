"""The types of the arrays that a symbol can be bound to, from those that are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import F32, IRError, TensorType
from gluonjit.ir.types import dtype as ir_dtype
from gluonjit.language.source import quote
from gluonjit.symbol.dtypes import solve_types
from gluonjit.symbol.graph import Node, post_order, variables
from gluonjit.symbol.shapes import bracketed, is_complete, solve_shapes


def solve_variables(symbol: Any, types: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, TensorType]:
    """The types of all variables, by name, inferred from the given element types and shapes.

    Unknown element types become float32; RuntimeError if a shape stays unknown.
    """
    heads = symbol._heads
    arguments, aux = variables(heads)
    by_name = {n.name: n for n in (*arguments, *aux)}
    known = {by_name[k]: tuple(map(int, v)) for k, v in shapes.items() if k in by_name and isinstance(v, tuple)}
    given = {by_name[k]: ir_dtype(v) for k, v in types.items() if k in by_name}
    try:
        table = solve_shapes(heads, known)
    except MXNetError as e:
        raise simple_bind_error(shapes, str(e)) from e
    open_ = [n for n in by_name.values() if not is_complete(table[n, 0])]
    if open_:
        unknown = next((k for k in shapes if k not in by_name), None)
        why = f"the graph has no argument {unknown!r}{did_you_mean(unknown, by_name)}\n" if unknown is not None else ""
        listed = ", ".join(f"{n.name}: {bracketed(table[n, 0])}" for n in open_)
        raise RuntimeError(
            f"{why}simple_bind error. InferShape pass cannot decide shapes for the following arguments (-1 means "
            f"unknown dimensions). Please consider providing them as inputs:\n{listed}"
        )
    dtypes = solve_types(heads, given)
    found = {}
    for name, n in by_name.items():
        try:
            found[name] = TensorType(dtypes[n, 0] or F32, table[n, 0] or ())
        except IRError as e:
            raise cannot_bind(symbol, n, shapes, str(e)) from e
    return found


def cannot_bind(symbol: Any, variable: Node, shapes: Mapping[str, Any], why: str) -> RuntimeError:
    """An error about a variable's array, which names the operator that reads it first."""
    readers = (n for n in post_order(symbol._heads) if n.op and any(v is variable for v, _ in n.inputs))
    reader = next(readers, None)
    of = f" of {reader.name}: {reader.op.name}" if reader is not None and reader.op is not None else ""
    place = quote(reader.loc) if reader is not None else ""
    return simple_bind_error(shapes, f"Error in argument {variable.name}{of}: {why}{place}")


def simple_bind_error(shapes: Mapping[str, Any], why: str) -> RuntimeError:
    """The cause, then what MXNet's errors about binding say: the given shapes."""
    listed = "".join(f"\n{k}: {v}" for k, v in shapes.items())
    return RuntimeError(f"{why}\nsimple_bind error. Arguments:{listed}")
