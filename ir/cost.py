"""About how long a kernel takes on one core, from shapes and a target: enough to tell 1 µs from 10.

The larger of two times: instructions at the rate of the vector units, and bytes at the rate of the caches.

The time of a graph with open dimensions is a polynomial over their sizes. That of a kernel is `_CALL` and a multiple of
the largest product of sizes in it, such that the sum is right if every size is HINT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.buffers import is_view
from gluonjit.ir.dims import HINT, Dim, Extent, Monomial, polynomial
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import with_hints
from gluonjit.ir.work import PRODUCTS, bytes_read, multiply_adds, own_ops

_CALL = 50
"""Nanoseconds for any kernel at all."""


def nanoseconds(op: Op, target: Machine) -> float:
    """The expected time of an op with a kernel; 0 for one that computes nothing."""
    if op.name in ("constant", "prepare") or is_view(op):
        return 0.0
    if op.name == "loop":
        return _CALL + op.attrs["trip"] * sum(graph_nanoseconds(r, target) for r in op.regions)
    if op.name in ("branch", "call"):
        return _CALL + max(graph_nanoseconds(r, target) for r in op.regions)
    return _CALL + max(transfer_and_computing(op, target))


def transfer_and_computing(op: Op, target: Machine) -> tuple[float, float]:
    """Nanoseconds that moving the operands and results of a kernel takes, and computing: the longer one counts.

    What is written beyond the near caches counts twice, unless it bypasses them: a line is read before a part of it is
    written."""
    plan, written = KERNEL.of(op), sum(v.type.nbytes for v in op.results)
    nbytes = written + bytes_read(op)
    if nbytes <= target.l2:
        transfer = nbytes / target.loop_near
    else:
        transfer = (nbytes if plan is not None and plan.bypasses_caches else nbytes + written) / target.loop_far
    known = plan.computing(op) if plan is not None else None
    if known is not None:
        return transfer, known
    body = own_ops(op) if op.regions else (op,)
    return transfer, sum(_computing(o, target) for o in body)


def graph_nanoseconds(graph: Graph, target: Machine) -> float:
    return sum(nanoseconds(op, target) for op in graph.ops)


def graph_cost(graph: Graph, time: Callable[[Op], float]) -> Extent:
    """The expected time of a graph, in nanoseconds, over the sizes of its open dimensions. `time`: `nanoseconds`."""
    return polynomial({names: int(terms) for names, terms in _graph_terms(graph, with_hints(graph), time, {}).items()})


_Terms = Mapping[Monomial, float]


def _graph_terms(graph: Graph, hinted: Graph, time_of: Callable[[Op], float], known: dict[Graph, _Terms]) -> _Terms:
    """`known`: the terms of regions, which calls of one function share."""
    if graph not in known:
        known[graph] = _sum(_terms(op, twin, time_of, known) for op, twin in zip(graph.ops, hinted.ops, strict=True))
    return known[graph]


def _terms(op: Op, hinted: Op, time_of: Callable[[Op], float], known: dict[Graph, _Terms]) -> _Terms:
    """The time of an op, of which `hinted` is the one where every size is HINT."""
    if op.definition.level == "control":
        inside = [_graph_terms(*pair, time_of, known) for pair in zip(op.regions, hinted.regions, strict=True)]
        if op.name != "loop":
            longest = {m: max(terms.get(m, 0.0) for terms in inside) for terms in inside for m in terms}
            return _sum([{(): float(_CALL)}, longest])
        trip = op.attrs["trip"]
        factors = trip.terms if isinstance(trip, Dim) else {(): trip}
        body = [{_product((m, by)): k * c for m, c in _sum(inside).items()} for by, k in factors.items()]
        return _sum([{(): float(_CALL)}, *body])
    time = time_of(hinted)
    names = _largest(op) if hinted is not op else ()
    if not names or not time:
        return {(): time}
    return {(): float(_CALL), names: (time - _CALL) / HINT ** len(names)}


def _sum(times: Iterable[_Terms]) -> _Terms:
    total: dict[Monomial, float] = {}
    for terms in times:
        for names, time in terms.items():
            total[names] = time + total.get(names, 0)
    return total


def _largest(op: Op) -> Monomial:
    """The names of the largest product of sizes on which the time of an op depends: that of a value, or of the
    products of a contraction."""
    counts = [v.type.size for v in (*op.operands, *op.results)]
    for o in op.regions[0].ops if op.regions else ():
        counts += [v.type.size for v in o.results]
        if o.name == "dot_general":
            counts.append(o.result.size * prod(o.operands[0].shape[k] for k in o.attrs["contract"][0]))
    found = [names for n in counts if isinstance(n, Dim) for names in n.terms]
    return max(found, key=lambda names: (len(names), names), default=())


def _product(factors: Iterable[Monomial]) -> Monomial:
    return tuple(sorted(name for names in factors for name in names))


def _computing(op: Op, target: Machine) -> float:
    """Nanoseconds of one primitive in the body of a kernel."""
    size, lanes = op.results[0].type.size, target.lanes(op.results[0].dtype)
    if op.name in PRODUCTS:
        dtype = op.operands[0].dtype
        lanes *= target.multiplication(dtype).terms if target.multiplies(dtype) else 1
        return multiply_adds(op) / (lanes * target.multiply_adds)
    if op.name in ("reduce", "arg_reduce"):
        size = op.operands[0].type.size
    elif op.name == "reduce_window":
        size *= prod(op.attrs["window"])
    each = 0.5 if op.definition.moves else op.definition.instructions
    return size * each / (lanes * target.loop_instructions)
