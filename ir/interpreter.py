"""The interpreter: runs a graph of any level with NumPy, op by op.

It is the reference that everything else is compared with, and runs what is too small to be worth compiling. A primitive
is computed by its `eval`, an operator (`mx.*`) by its expansion, in the mode and with the random numbers that compiled
code would have. Regions are run by interpreters of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gluonjit.ir import opdef
from gluonjit.ir.annotations import STREAM, TRAINING, without
from gluonjit.ir.quiet import quiet
from gluonjit.ir.types import IRError, type_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Graph, Op

Watch = Callable[["Op", Sequence[Any], Sequence[np.ndarray]], object]
"""`watch(op, operands, results)` is called after each op of a graph, but not of its regions."""


class _Step(NamedTuple):
    """An op, with everything looked up: values are in slots."""

    op: Op
    compute: Callable[..., Any]
    attrs: dict[str, Any]
    operands: list[int]
    results: list[tuple[int, np.dtype]]
    dead: list[int]
    """Slots that nothing reads after it."""


class Interpreter:
    """Runs one graph, any number of times. `training`: the mode of operators, unless the graph says it."""

    def __init__(self, graph: Graph, training: bool = False) -> None:
        self.graph = graph
        training = bool(graph.attrs.get("training", training))
        slots = {v: k for k, v in enumerate(graph.inputs)}
        key = next((k for v, k in slots.items() if v.name == opdef.RNG_KEY), None)
        last: dict[Any, int] = {}
        for k, op in enumerate(graph.ops):
            last.update((v, k) for v in (*op.operands, *op.results))
        kept = {*graph.results, *graph.inputs}
        self._steps: list[_Step] = []
        self._quick: _Quick | None = None
        for k, op in enumerate(graph.ops):
            slots.update([(r, len(slots) + n) for n, r in enumerate(op.results)])
            if op.results and op.results[0].name == opdef.RNG_KEY:
                key = slots[op.results[0]]
                kept.add(op.results[0])
            operands, results = [slots[v] for v in op.operands], [(slots[v], v.dtype.numpy) for v in op.results]
            dead = [slots[v] for v in {*op.operands, *op.results} if last[v] == k and v not in kept]
            if op.definition.level == "operator":
                compute, draws = _of_operator(op, training)
                if draws:
                    operands.append(_known(key, graph))
                self._steps.append(_Step(op, compute, {}, operands, results, dead))
            else:
                compute, attrs = _of_primitive(op, training)
                self._steps.append(_Step(op, compute, attrs, operands, results, dead))
        self._size = len(slots)
        self._outputs = [slots[v] for v in graph.outputs]
        self._updates = [slots[new] for _, new in graph.updates]

    def run(
        self, inputs: Sequence[np.ndarray], watch: Watch | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(outputs, updated states); they may share memory with inputs and with each other."""
        if watch is None:
            if self._quick is None:
                self._quick = _Quick(self._steps, self._size, {*self._outputs, *self._updates})
            values = self._quick.run(inputs)
        else:
            values = [*inputs, *[None] * (self._size - len(inputs))]
            self._run(self._steps, values, watch)
        return [values[k] for k in self._outputs], [values[k] for k in self._updates]

    def one_by_one(self, inputs: Sequence[np.ndarray]) -> Iterator[tuple[Op, tuple[np.ndarray, ...]]]:
        """Runs the graph, and yields each op with its results when they have been computed."""
        values: list[Any] = [*inputs, *[None] * (self._size - len(inputs))]
        found: list[tuple[Op, tuple[np.ndarray, ...]]] = []
        for step in self._steps:
            self._run([step], values, lambda op, operands, results: found.append((op, tuple(results))))
            yield found.pop()

    @staticmethod
    def _run(steps: Sequence[_Step], values: list[Any], watch: Watch | None) -> None:
        with quiet():
            for op, compute, attrs, operands, results, dead in steps:
                out = compute(*map(values.__getitem__, operands), **attrs)
                if out.__class__ is not tuple:
                    out = (out,)
                for (k, dtype), x in zip(results, out):
                    values[k] = x if x.__class__ is np.ndarray and x.dtype is dtype else np.asarray(x, dtype)
                if watch is not None:
                    watch(op, [values[k] for k in operands], [values[k] for k, _ in results])
                for k in dead:
                    values[k] = None


class _Quick:
    """The steps of a graph without a watch, in a form that takes little time apart from what they compute. `results`:
    the slots that are read in the end."""

    def __init__(self, steps: Sequence[_Step], size: int, results: Set[int]) -> None:
        fixed: list[Any] = [None] * size
        slots_read_alone = _needless_broadcasts(steps, results)
        self._steps: list[_QuickStep] = []
        for op, compute, attrs, operands, found, dead in steps:
            if len(found) == 1 and found[0][0] not in results and _is_fixed(op, [fixed[k] for k in operands]):
                slot, dtype = found[0]
                view = np.asarray(compute(*[fixed[k] for k in operands], **attrs), dtype)[...]
                view.flags.writeable = False
                fixed[slot] = view
                continue
            pick = itemgetter(*operands) if len(operands) > 1 else None
            if (quick := _quick_form(op)) is not None:
                compute, attrs = quick, {}
            if slots_read_alone.isdisjoint(slot for slot, _ in found):
                compute = partial(compute, **attrs) if attrs else compute
            else:
                compute = _same
            last = tuple([k for k in dead if fixed[k] is None])
            self._steps.append((compute, pick, operands, *(found[0] if len(found) == 1 else (-1, None)), found, last))
        self._fixed = fixed

    def run(self, inputs: Sequence[np.ndarray]) -> list[Any]:
        """The values of all slots that are kept."""
        values = [*inputs, *self._fixed[len(inputs) :]]
        with quiet():
            for compute, pick, operands, slot, dtype, results, dead in self._steps:
                if pick is not None:
                    out = compute(*pick(values))
                else:
                    out = compute(values[operands[0]]) if operands else compute()
                if out.__class__ is np.ndarray and out.dtype is dtype:
                    values[slot] = out
                else:
                    for (k, dtype), x in zip(results, out if out.__class__ is tuple else (out,)):
                        values[k] = x if x.__class__ is np.ndarray and x.dtype is dtype else np.asarray(x, dtype)
                for k in dead:
                    values[k] = None
        return values


_QuickStep = tuple[Callable[..., Any], "Callable[..., Any] | None", list[int], int, Any, list[Any], tuple[int, ...]]
"""What computes; what picks several operands out of all values; the slots of operands; the slot and type of the one
result; the slots and types of all; and the slots that nothing reads after it."""


def _same(x: Any) -> Any:
    return x


def _needless_broadcasts(steps: Sequence[_Step], results: Set[int]) -> set[int]:
    """The slots of broadcasts that only elementwise ops read, beside an operand of their result's shape: NumPy
    broadcasts by itself, in less time."""
    needless: set[int] = set()
    for step in steps:
        if step.op.name == "broadcast" and _is_aligned(step.op):
            needless.add(step.results[0][0])
    if not needless:
        return needless
    needless -= results
    for op, _, _, operands, _, _ in steps:
        if not needless.isdisjoint(operands):
            shape = op.results[0].shape
            whole = any(v.shape == shape for k, v in zip(operands, op.operands) if k not in needless)
            if not (op.definition.elementwise and whole):
                needless.difference_update(operands)
    return needless


def _is_aligned(op: Op) -> bool:
    """Whether a broadcast is NumPy's: operand axes are the trailing ones."""
    dims, rank = op.attrs["dims"], len(op.results[0].shape)
    count = len(op.operands[0].shape)
    return dims is None or tuple(dims) == tuple(range(rank - count, rank))


def _quick_form(op: Op) -> Callable[..., Any] | None:
    """`Primitive.quick` for one op; None if there is none."""
    definition, types = op.definition, [v.type for v in op.operands]
    if not isinstance(definition, opdef.Primitive) or definition.quick is None or not all(t.is_static for t in types):
        return None
    return definition.quick(*types, **without(op.attrs))


def _is_fixed(op: Op, operands: Sequence[Any]) -> bool:
    """Whether an op gives a constant, or a view of one, in each run."""
    if op.name == "constant":
        return True
    return op.name in ("broadcast", "reshape", "transpose") and all(x is not None for x in operands)


def _known(key: int | None, graph: Graph) -> int:
    if key is None:
        raise IRError(f"@{graph.name} draws random numbers, and has no input {opdef.RNG_KEY}")
    return key


def _of_operator(op: Op, training: bool) -> tuple[Callable[..., Any], bool]:
    """What computes an operator, and whether it takes the graph's key as a last operand."""
    mode = TRAINING.of(op)
    training = training if mode is None else mode
    inner = Interpreter(op.definition.expansion([v.type for v in op.operands], op.attrs, training), training)
    if len(inner.graph.inputs) == len(op.operands):
        return lambda *operands: tuple(inner.run(operands)[0]), False
    stream = np.array((0, STREAM.of(op)), np.int64)
    return lambda *given: tuple(inner.run([*given[:-1], given[-1] + stream])[0]), True


def _of_primitive(op: Op, training: bool) -> tuple[Callable[..., Any], dict[str, Any]]:
    definition = op.definition
    if not isinstance(definition, opdef.Primitive):
        raise IRError(f"{op.name} is not a primitive; run the pass `expand` first")
    attrs = without(op.attrs)
    if definition.region_count:
        attrs["regions"] = [Interpreter(region, training) for region in op.regions]
    return definition.eval, attrs


def evaluate(
    graph: Graph, inputs: Sequence[Any], watch: Watch | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(outputs, updated states) of a graph that is run once. IRError when an input does not have the declared type."""
    return Interpreter(graph).run(checked(graph, inputs), watch)


def checked(graph: Graph, inputs: Sequence[Any]) -> list[np.ndarray]:
    """The inputs as ndarrays; IRError if one does not have the declared type."""
    if len(inputs) != len(graph.inputs):
        raise IRError(f"@{graph.name} takes {len(graph.inputs)} inputs, got {len(inputs)}")
    arrays = [np.asarray(x) for x in inputs]
    for v, x in zip(graph.inputs, arrays):
        if type_of(x) != v.type:
            raise IRError(f"input %{v.name} of @{graph.name} is {v.type}, got {type_of(x)}")
    return arrays


def evaluate_op(op: Op, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results of one primitive."""
    compute, attrs = _of_primitive(op, False)
    with quiet():
        out = compute(*operands, **attrs)
    out = out if isinstance(out, tuple) else (out,)
    return tuple(np.asarray(x, dtype=r.type.dtype.numpy) for x, r in zip(out, op.results, strict=True))
