"""Nested arguments and results of hybrid blocks: flat lists, and formats that rebuild the nesting.

A format is 0 for one array or symbol, n > 1 for a symbol with n outputs, -1 for None, and a list of formats for a
list or tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol

Format = Any
"""An int or a list of formats."""


def flatten(args: Any, what: str) -> tuple[list[Any], Format]:
    """Arrays, symbols and Nones of `args` in order, and its format.

    `what` ('input' or 'output') is for the ValueError that anything else raises.
    """
    if isinstance(args, NDArray):
        return [args], 0
    if isinstance(args, Symbol):
        count = len(args.list_outputs())
        return [args], count if count > 1 else 0
    if args is None:
        return [None], -1
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            f"When hybridized, the input of HybridBlock {what} must be (nested) list of Symbol or NDArray, "
            f"but got {args} of type {type(args)}"
        )
    flat: list[Any] = []
    formats = []
    for item in args:
        part, fmt = flatten(item, what)
        flat += part
        formats.append(fmt)
    return flat, formats


def regroup(flat: Sequence[Any], fmt: Format) -> Any:
    """The nesting that `fmt` describes, over `flat`; lists throughout. An entry of n > 1 takes n items as a list."""
    result, rest = _take(list(flat), fmt)
    if rest:
        raise ValueError(f"{len(rest)} of {len(flat)} values are left over after regrouping by {fmt}")
    return result


def _take(flat: list[Any], fmt: Format) -> tuple[Any, list[Any]]:
    if isinstance(fmt, int):
        if fmt > 1:
            return flat[:fmt], flat[fmt:]
        if fmt == -1 and flat[0] is not None:
            raise ValueError(
                "We do not support passing types that are not None when the initial HybridBlock has received NoneType "
                f"and has been hybridized. Received arg = {flat[0]}, fmt = {fmt}."
            )
        return flat[0], flat[1:]
    items = []
    for part in fmt:
        item, flat = _take(flat, part)
        items.append(item)
    return items, flat


def check_format(fmt: Format, stored: Format) -> None:
    """ValueError unless arguments of format `fmt` fit a trace made for `stored`; trailing Nones may come or go."""
    if fmt == stored:
        return
    if isinstance(fmt, list) and isinstance(stored, list):
        common = min(len(fmt), len(stored))
        rest = fmt[common:] + stored[common:]
        if rest and fmt[:common] == stored[:common] and all(f == -1 for f in rest):
            return
    # MXNet's text, to the letter, so that programs that know it go on working: it names the two the wrong way round.
    raise ValueError(
        "The argument structure of HybridBlock does not match the cached version. "
        f"Stored format = {fmt}, input format = {stored}"
    )


def kinds(args: Any) -> tuple[bool, bool]:
    """Whether a Symbol, and whether an NDArray, is anywhere in nested `args`."""
    if isinstance(args, NDArray):
        return False, True
    if isinstance(args, Symbol):
        return True, False
    has_symbol = has_array = False
    if isinstance(args, (list, tuple)):
        for item in args:
            symbol, array = kinds(item)
            has_symbol |= symbol
            has_array |= array
    return has_symbol, has_array
