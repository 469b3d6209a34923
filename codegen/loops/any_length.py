"""Elementwise kernels that are told their length at run time, so that one serves arrays of many sizes.

An optimizer's step computes the same for every weight of a model. A kernel for each of their sizes would take longer to
compile than a network's whole training step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from gluonjit.ir.annotations import GUARD, KERNEL, STRIDES, THREADS
from gluonjit.ir.dims import Dim
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.kernels.element_plans import Loops
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import TensorType

LENGTH = "length"
"""The open dimension of such kernels, in a graph that has none."""
_LENGTH = Dim({(LENGTH,): 1})
_SIZES = 4
"""Different lengths from which on one kernel for all is worth the few instructions more that each takes."""
_SHORTEST = 16
"""Shorter arrays take less time, and less code, with their length known."""


class OfAnyLength(NamedTuple):
    """An op in terms of `LENGTH`, and what that is."""

    op: Op
    length: int


def of_any_length(ops: Iterable[Op]) -> dict[Op, OfAnyLength]:
    """Those of the ops that should be lowered in this way."""
    alike: dict[Hashable, list[tuple[Op, OfAnyLength]]] = {}
    for op in ops:
        if (n := _length(op)) is not None:
            open_op = _opened(op, n)
            alike.setdefault(op_key(open_op), []).append((op, OfAnyLength(open_op, n)))
    return {
        op: found
        for group in alike.values()
        if len({found.length for _, found in group}) >= _SIZES
        for op, found in group
    }


def _length(op: Op) -> int | None:
    """The number of elements of all arrays that an elementwise kernel reads and writes, other than scalars; None if
    there is no such number, or it is written in an attribute."""
    if not isinstance(KERNEL.of(op), Loops) or any(STRIDES.of(op)) or GUARD.of(op) is not None:
        return None
    shape = op.results[0].shape
    if len(shape) != 1 or not isinstance(shape[0], int) or shape[0] < _SHORTEST:
        return None
    (region,) = op.regions
    if any(v.shape not in ((), shape) for v in (*region.inputs, *region.outputs)):
        return None
    for inner in region.ops:
        spread = inner.name == "broadcast" and inner.operands[0].shape == () and inner.attrs["shape"] == shape
        constant = inner.name == "constant" and inner.result.shape == ()
        by_element = inner.definition.elementwise and all(v.shape == inner.result.shape for v in inner.operands)
        if not (spread or constant or by_element) or any(v.shape not in ((), shape) for v in inner.results):
            return None
    return shape[0]


def _opened(op: Op, n: int) -> Op:
    """The op with `LENGTH` for n."""
    env: dict[Value, Value] = {}

    def opened(v: Value) -> Value:
        if v not in env:
            env[v] = replace(v, type=TensorType(v.dtype, (_LENGTH,))) if v.shape == (n,) else v
        return env[v]

    def values(of: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(map(opened, of))

    def rebuilt(inner: Op, regions: tuple[Graph, ...]) -> Op:
        attrs = inner.attrs
        if inner.name == "broadcast":
            attrs = MappingProxyType({**attrs, "shape": (_LENGTH,)})
        return replace(
            inner, attrs=attrs, operands=values(inner.operands), results=values(inner.results), regions=regions
        )

    (region,) = op.regions
    body = replace(
        region,
        inputs=values(region.inputs),
        ops=tuple(rebuilt(inner, ()) for inner in region.ops),
        outputs=values(region.outputs),
    )
    made = rebuilt(op, (body,))
    return replace(made, attrs={k: v for k, v in made.attrs.items() if k != THREADS.name})  # that is the caller's
