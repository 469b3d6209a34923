"""Primitives for what needs the host's Python: calling its functions, and raising an error.

`host_call(x…) {function = "custom", arguments = (("scale", "2"),), types = (f32[2],)}` returns the results of the
function of that name in `FUNCTIONS`. It is the only primitive that runs Python each time it is executed.

`check_index(idx) {sizes = (3, 4)}` returns the indices idx[axis, …], with negative ones counted from the end, and
raises an error if one is out of bounds. Only then does it run Python.

Codegen gives both a kernel that calls back (`runtime/host.py`), where this module's `eval` is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.opdef import NO_GRADIENT, REQUIRED, primitive
from gluonjit.ir.primitives.checks import INTEGER, check_kind, ints
from gluonjit.ir.types import IRError, TensorType, type_of

Function = Callable[[Sequence[np.ndarray], Mapping[str, str]], Sequence[np.ndarray]]

FUNCTIONS: dict[str, Function] = {}
"""Functions from operands and arguments to results; they may keep operands but not modify them. A front end adds its
own."""

UNREAD = ".unread"
"""The argument that numbers the results which nothing reads, so that any values will do (the attribute `unread`)."""

ERRORS: dict[str, Callable[..., Exception]] = {
    "IndexError": lambda index, axis, size: IndexError(
        f"index {index} is out of bounds for axis {axis} with size {size}"
    ),
}
"""The error for an index, an axis and its length, or, if its name is followed by `: ` and a text, for that text. A
front end may add others."""


def _made(error: str, index: int, axis: int, size: int) -> Exception:
    name, _, text = error.partition(": ")
    return ERRORS[name](text) if text else ERRORS[name](index, axis, size)


def _infer_call(
    *operands: TensorType, function: Any, arguments: Any, types: Any, unread: Any
) -> tuple[TensorType, ...]:
    if not isinstance(function, str):
        raise IRError(f"function must be a name, got {function!r}")
    if not all(len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in arguments):
        raise IRError(f"arguments must be pairs of strings, got {arguments!r}")
    if not types or not all(isinstance(t, TensorType) for t in types):
        raise IRError(f"types must be those of the results, one at least, got {types!r}")
    if not all(isinstance(k, int) and 0 <= k < len(types) for k in unread):
        raise IRError(f"unread = {unread}, but there are {len(types)} results")
    return tuple(types)


def _eval_call(*operands: np.ndarray, function: str, arguments: Any, types: Any, unread: Any) -> Any:
    if function not in FUNCTIONS:
        raise IRError(
            f"there is no function {function!r} here to call: import what registers it before the graph runs (for "
            "Custom, the program that defines the operator)"
        )
    given_arguments = dict(arguments) | ({UNREAD: " ".join(map(str, unread))} if unread else {})
    results = tuple(np.asarray(y) for y in FUNCTIONS[function](operands, given_arguments))
    given = [type_of(y) for y in results]
    if given != list(types):
        raise IRError(f"{function} was to give ({', '.join(map(str, types))}), not ({', '.join(map(str, given))})")
    return results if len(results) > 1 else results[0]


def _infer_check(idx: TensorType, sizes: Any, negative: Any, error: Any) -> TensorType:
    check_kind(idx, INTEGER, "indices")
    sizes = ints("sizes", sizes, low=0)
    if not idx.rank or idx.shape[0] != len(sizes):
        raise IRError(f"the first axis of indices {idx} must count {len(sizes)} axes, of sizes {sizes}")
    if not isinstance(error, str) or error.partition(": ")[0] not in ERRORS:
        raise IRError(f"error must be one of {', '.join(ERRORS)}, got {error!r}")
    return idx


def _eval_check(idx: np.ndarray, sizes: Sequence[int], negative: bool, error: str) -> np.ndarray:
    for axis, (row, n) in enumerate(zip(idx, sizes)):
        low = -n if negative else 0
        if row.size and not (low <= row.min() and row.max() < n):
            outside = row[(row < low) | (row >= n)]
            raise _made(error, int(outside[0]), axis, n)
    lengths = np.array(sizes, idx.dtype).reshape(-1, *[1] * (idx.ndim - 1))
    return np.where(idx < 0, idx + lengths, idx)


primitive(
    "host_call",
    infer=_infer_call,
    eval=_eval_call,
    attrs={"function": REQUIRED, "arguments": (), "types": REQUIRED, "unread": ()},
    pure=False,
    level="host",
    doc="what a Python function computes, at every call",
)
primitive(
    "check_index",
    infer=_infer_check,
    eval=_eval_check,
    attrs={"sizes": REQUIRED, "negative": True, "error": "IndexError"},
    pure=False,
    level="host",
    vjp=NO_GRADIENT,
    doc="indices idx[axis, ...] counted from 0; an error if one is out of bounds, or, unless `negative`, below 0",
)
