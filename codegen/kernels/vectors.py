"""Integers in vectors of a known number of lanes, and loops over arrays of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gluonjit.codegen.text.llvm import Function, vector

Step = Callable[[Any, int, tuple[str, ...]], list[str]]
"""Writes what comes of the values carried and of the `lanes` items from the k-th on: `step(k, lanes, carried)`."""


def fold(
    f: Function,
    n: Any,
    lanes: int,
    starts: list[tuple[str, str]],
    step: Step,
    item: str = "i64",
) -> list[str]:
    """Folds all items below n, in vectors and then one by one; the results. `starts` has for each of them the operation
    by which lanes are combined (LLVM's name of the reduction) and the value to start from."""
    whole, results = 0, [start for _, start in starts]
    if lanes > 1:
        type = vector(lanes, item)
        whole = f.mul(f.div(n, lanes), lanes)
        with f.for_(0, whole, lanes, carried=[(type, splat(f, start, lanes, item)) for start in results]) as loop:
            loop.next(*step(loop.index, lanes, loop.carried))
        results = [
            f.intrinsic(f"llvm.vector.reduce.{how}", item, (type, x), overload=(type,))
            for (how, _), x in zip(starts, loop.results)
        ]
    with f.for_(whole, n, carried=[(item, x) for x in results]) as loop:
        loop.next(*step(loop.index, 1, loop.carried))
    return list(loop.results)


def number(lanes: int, item: str, value: int) -> str:
    """A constant in all lanes."""
    return str(value) if lanes == 1 else f"<{', '.join([f'{item} {value}'] * lanes)}>"


def splat(f: Function, value: Any, lanes: int, item: str = "i64") -> str:
    """A value in all lanes."""
    if lanes == 1:
        return value
    type = vector(lanes, item)
    one = f.op(f"insertelement {type} poison, {item} {value}, i64 0")
    return f.op(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")


def counting(f: Function, first: Any, lanes: int) -> str:
    """first, first + 1, … as i64."""
    type = vector(lanes, "i64")
    if lanes == 1:
        return first
    numbers = f"<{', '.join(f'i64 {lane}' for lane in range(lanes))}>"
    return f.op(f"add {type} {splat(f, first, lanes)}, {numbers}")
