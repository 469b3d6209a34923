"""Which loops each thread may run for its part of the rows of an open dimension, rather than share every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gluonjit.codegen.text.kernel_code import code_of
from gluonjit.ir.batch_rows import why_rows_mix
from gluonjit.ir.buffers import control_workspace, runs_kernel
from gluonjit.ir.dims import Dim, Extent, names_of
from gluonjit.ir.dims import named as dim
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.machine import Machine

LEAST, MOST = 4, 16
"""The fewest rows of a part are between these: with fewer, reading all weights takes too long; if parts had to have
more, there would be few of them."""


class Rows(NamedTuple):
    """The rows of an open dimension of which each thread may take a part."""

    dimension: str
    least: int
    """The fewest rows that a part may have."""


def rows_of(op: Op, target: Machine) -> Rows | None:
    """The rows of a planned loop, if there are any; None if its iterations must be shared.

    Results must have the same bits for every number of threads, so tiles must add up in the same order whichever part
    of the rows they are in."""
    if op.name != "loop" or len(op.regions) != 1:
        return None
    carried, scanned, trip = (op.attrs[key] for key in ("carried", "scanned", "trip"))
    end = control_workspace(op.regions, op)["end"]
    if not isinstance(end, Dim) or len(end.terms) != 1 or len(*end.terms) != 1:
        return None
    ((name,),) = end.terms
    body = op.regions[0]
    whole = (*op.operands[:carried], *op.results[:carried])
    by_step = (*op.operands[carried : carried + scanned], *op.results[carried:])
    captured = op.operands[carried + scanned :]
    if not (
        all(_is_rows(v.type.shape, name) for v in whole)
        and all(v.type.shape and _is_rows(v.type.shape[1:], name) for v in by_step)
        and name not in names_of([trip, *(n for v in captured for n in v.type.shape)])
    ):
        return None
    if why_rows_mix(body, name) is not None:
        return None
    return next((Rows(name, least) for least in range(LEAST, MOST + 1) if _same_sums(body, target, least)), None)


def _is_rows(shape: Sequence[Extent], name: str) -> bool:
    """Whether the first extent is the dimension, and the others are free of it."""
    return bool(shape) and shape[0] == dim(name) and name not in names_of(shape[1:])


def _same_sums(body: Graph, target: Machine, least: int) -> bool:
    """Whether the kernels of a loop's body compute each row in the same way for every number of rows from `least`."""
    for op in body.ops:
        if runs_kernel(op):
            code = code_of(op)
            if code is None or not code.same_sums(op, target, least):
                return False
    return True
