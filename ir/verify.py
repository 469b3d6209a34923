"""The verifier: what must hold for every graph. The pass manager runs it after the last pass, or every pass.

* Every value is defined once, and before it is used; a region sees only its own inputs.
* Declared types are those that inference gives; regions fit their op.
* A state that is updated is an input, at most once, by a value of its type.
* What passes have noted of the graph is possible: `params` are places of inputs, bytes are not negative. Annotations of
  ops are declared, and have the type and the level that they are declared with (`ir/annotations.py`).
* The level (`ir.graph.LEVELS`): operators of a front end only at `traced`; from `legal` on, the operands of
  elementwise primitives have equal shapes; ops with regions from `fused` on; `planned` adds what
  `ir/verify_memory.py` says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NoReturn
from weakref import WeakSet

from gluonjit.common.signals import is_from_signal
from gluonjit.ir import opdef
from gluonjit.ir.annotations import ANNOTATIONS, KERNEL, problem_of
from gluonjit.ir.dims import Dim
from gluonjit.ir.graph import LEVELS, Graph, Op, Value
from gluonjit.ir.printer import Names, print_op
from gluonjit.ir.structure import region_key
from gluonjit.ir.types import IRError
from gluonjit.ir.verify_memory import verify_memory


class VerifyError(IRError):
    """A graph is invalid: the pass or program that built it made a mistake."""


def verify(graph: Graph, earlier: Graph | None = None, seen: set[Hashable] | None = None) -> None:
    """Raises VerifyError, which shows the op's text, when `graph` is not valid. `earlier`: a graph that is, of which
    ops may have stayed; their types need not be inferred again. `seen`: what valid kernels of a graph around this one
    say."""
    seen = set() if seen is None else seen
    typed = {id(op.attrs): op for op in earlier.ops} if earlier is not None else {}
    if graph.level not in LEVELS:
        _fail(graph, None, f"unknown level {graph.level!r}{opdef.did_you_mean(graph.level, LEVELS)}")
    level = LEVELS.index(graph.level)
    defined: set[Value] = set()
    for v in graph.inputs:
        if v in defined:
            _fail(graph, None, f"input %{v.name} is listed twice")
        if v.offset is not None:
            _fail(graph, None, f"input %{v.name} cannot have a place in the arena")
        defined.add(v)
    _verify_notes(graph)
    definitions: dict[str, opdef.OpDef] = {}
    for op in graph.ops:
        definition = definitions.get(op.name)
        if definition is None:
            definition = definitions[op.name] = _definition(graph, op, level)
        for v in op.operands:
            if v not in defined:
                _fail(graph, op, _undefined(graph, v))
        for name in op.attrs:
            if name[:1] == ".":
                _verify_annotation(graph, op, name, level)
        for region in op.regions:
            _verify_region(graph, op, region, level, seen)
        if not _is_typed_like(op, typed.get(id(op.attrs))):
            _verify_types(graph, op, definition)
        if level >= _LEGAL and len(op.operands) > 1 and definition.elementwise:
            shape = op.operands[0].type.shape
            for v in op.operands:
                if v.type.shape != shape:
                    _fail(graph, op, f"operands of different shapes at level {graph.level!r}")
        for r in op.results:
            if r in defined:
                _fail(graph, op, "a value is defined twice")
            defined.add(r)
    _verify_results(graph, defined)
    if graph.level == "planned":
        verify_memory(graph, lambda op, problem: _fail(graph, op, problem))


def _verify_annotation(graph: Graph, op: Op, name: str, level: int) -> None:
    if problem := problem_of(name, op.attrs[name]):
        _fail(graph, op, problem)
    first = ANNOTATIONS[name].level
    if level < LEVELS.index(first):
        _fail(graph, op, f"{name} belongs to graphs of level {first!r} and later ones")
    if name == KERNEL.name and not (plan := op.attrs[name]).is_for(op):
        _fail(graph, op, f"the kernel {plan.kernel!r} does not compute such an op. What it is for: {plan.purpose()}")


_LEGAL = LEVELS.index("legal")
_FUSED = LEVELS.index("fused")


_SIZES = ("arena", "arena_sum", "scratch")
"""Attributes of graphs that are numbers of bytes."""


def _verify_notes(graph: Graph) -> None:
    params = graph.attrs.get("params", ())
    if (
        not isinstance(params, tuple)
        or not all(type(k) is int and 0 <= k < len(graph.inputs) for k in params)
        or len(set(params)) < len(params)
    ):
        _fail(graph, None, f"params = {params!r} must be a tuple of different places among {len(graph.inputs)} inputs")
    for key in _SIZES:
        if not _is_size(graph.attrs.get(key, 0)):
            _fail(graph, None, f"{key} = {graph.attrs[key]!r} must be a number of bytes")


def _is_size(n: object) -> bool:
    return isinstance(n, Dim) or (type(n) is int and 0 <= n < 2**63)


def _definition(graph: Graph, op: Op, level: int) -> opdef.OpDef:
    try:
        definition = opdef.lookup(op.name)
    except IRError as e:
        _fail(graph, op, str(e))
    if definition.level == "operator" and graph.level != "traced":
        _fail(graph, op, f"a graph of level {graph.level!r} cannot hold operators of a front end")
    if definition.level == "structural" and level < _FUSED:
        _fail(graph, op, f"a graph of level {graph.level!r} cannot hold ops with regions; 'fused' can")
    return definition


def _verify_region(graph: Graph, op: Op, region: Graph, level: int, seen: set[Hashable]) -> None:
    if region.level in LEVELS and not min(level, _LEGAL) <= LEVELS.index(region.level) <= max(level, _LEGAL):
        _fail(graph, op, f"a region of level {region.level!r} in a graph of level {graph.level!r}")
    if region in _valid:
        return
    says = _says(region)
    if says is None or says not in seen:
        try:
            verify(region, seen=seen)
        except VerifyError as e:
            _fail(graph, op, f"in its region: {e}")
    if says is not None:
        seen.add(says)
    _valid.add(region)


def _says(region: Graph) -> Hashable | None:
    """Equal for regions of which all are valid if one is: layers of a net repeat each other. None where that is more
    than what they say: memory, notes, and values that are not of the region, or there twice."""
    defined = {*region.inputs, *(r for op in region.ops for r in op.results)}
    count = len(region.inputs) + sum(len(op.results) for op in region.ops)
    if region.level != "fused" or region.attrs or len(defined) < count or any(v.offset is not None for v in defined):
        return None
    try:
        return region_key(region)
    except (KeyError, TypeError):  # a value that is not of the region; an attribute that is not hashable
        return None


_valid: WeakSet[Graph] = WeakSet()
"""Regions that have been verified. Graphs do not change, and most passes keep most regions."""


def _is_typed_like(op: Op, other: Op | None) -> bool:
    """Whether the op has the types of another one with the same attributes."""
    if other is None or op is other:
        return op is other
    if op.name != other.name or op.regions != other.regions:
        return False
    return _types_are_equal(op.operands, other.operands) and _types_are_equal(op.results, other.results)


def _types_are_equal(some: Sequence[Value], others: Sequence[Value]) -> bool:
    if len(some) != len(others):
        return False
    for a, b in zip(some, others):
        if a.type is not b.type and a.type != b.type:
            return False
    return True


def _verify_types(graph: Graph, op: Op, definition: opdef.OpDef) -> None:
    try:
        types = definition.infer([v.type for v in op.operands], op.attrs, op.regions)
    except Exception as e:  # attributes of a wrong type make inference fail in any manner
        if is_from_signal(e):
            raise
        _fail(graph, op, str(e) or type(e).__name__)
    if len(types) != len(op.results):
        _fail(graph, op, f"{len(op.results)} result(s) declared, but {op.name} has {len(types)}")
    for r, inferred in zip(op.results, types):
        if r.type != inferred:
            _fail(graph, op, f"a result is declared {r.type}, but {op.name} gives {inferred}")


def _verify_results(graph: Graph, defined: set[Value]) -> None:
    for v in graph.outputs:
        if v not in defined:
            _fail(graph, None, f"it returns a value that is not defined: {_undefined(graph, v)}")
    states: set[Value] = set()
    inputs = set(graph.inputs)
    for state, new in graph.updates:
        if state not in inputs:
            _fail(graph, None, f"updated state %{state.name} is not an input")
        if state in states:
            _fail(graph, None, f"state %{state.name} is updated twice")
        states.add(state)
        if new not in defined:
            _fail(graph, None, f"the new value of state %{state.name} is not defined: {_undefined(graph, new)}")
        if new.type != state.type:
            _fail(graph, None, f"state %{state.name} has type {state.type}, its new value {new.type}")


def _undefined(graph: Graph, value: Value) -> str:
    later = value in graph.producers
    return f"operand {value.type} is " + ("used before it is defined" if later else "not of this graph")


def _fail(graph: Graph, op: Op | None, problem: str) -> NoReturn:
    text = f"invalid graph @{graph.name}: {problem}"
    if op is not None:
        names = Names(graph)
        for other in graph.ops:
            if other is op:
                break
            for r in other.results:
                names.define(r)
        text += f"\n  {print_op(op, names)}"
        if op.loc is not None:
            text += f"\n  from {op.loc}"
    raise VerifyError(text)
