"""`trace(program, args)`: runs `hybrid_forward` once on symbols of known type, and returns a `Trace`.

A trace stores its graph untyped; `Trace.graph` types it for any signature for which the recorded facts hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.stages import stage
from gluonjit.ir.graph import Graph
from gluonjit.ir.types import IRError, TensorType, dtype, type_of
from gluonjit.language import forms, running
from gluonjit.language.kinds import as_np
from gluonjit.language.modes import modes
from gluonjit.ndarray import NDArray
from gluonjit.symbol.graph import Entry, Node, post_order
from gluonjit.symbol.lower import completed_sources, lower, stream_numbers
from gluonjit.symbol.symbol import Symbol
from gluonjit.trace import block_attributes, facts
from gluonjit.trace.guards import alias_pattern
from gluonjit.trace.memory import read
from gluonjit.trace.protocols import Held, HybridForward
from gluonjit.trace.recorder import Recorder
from gluonjit.trace.traced_symbol import TracedSymbol


def flatten(args: Any) -> tuple[list[NDArray], Any]:
    """The arrays in the arguments of a call, and the arguments' form (hashable, see `language.forms`).

    ValueError for anything that is not an NDArray, None, a list or a tuple.
    """
    return forms.flatten(args, lambda value: isinstance(value, NDArray), "input")


class Trace:
    """The graph that `hybrid_forward` recorded, and the guards under which it is valid for another signature.

    * `symbol`: all outputs, as an untyped Symbol.
    * Graph inputs in order: the arguments' arrays; `params` (`Held`); `captured` (NDArrays, by reference);
      and, if operators draw random numbers, the key.
    * `writes`: positions among these inputs of the arrays that the program writes to, in the order of the graph's
      `updates`. If there are any, `alias_pattern` of a call's arrays must equal `aliases`. `assigned` numbers those
      writes among them that the program makes itself, rather than an operator, and not in `autograd.pause()`.
    * `in_kinds` and `out_kinds` say which of the arguments' arrays and of the results are `mx.np.ndarray`s.
    * `form` is the nesting of the arguments (see `flatten`), `input_names` the names of their arrays; `out_form` is
      the nesting of the result, which `rebuild` makes from output arrays.
    * `out_views`: for each output that is a view of an input, the input's position and the view's offset in elements.
    * `refused_gradient`: why the gradient cannot be compiled, if the program defines one that cannot.
    * `facts`: what the program learned of types; `training`, `recording`: the modes it ran in, guards if `mode_fact`,
      `recording_fact` (see `trace/guards.py`); `context`: the arguments' device, a guard if `context_fact`.
    * `records`: whether calls are recorded though recording is off, because the program sets it on for a part.
    """

    def __init__(
        self,
        recorder: Recorder,
        form: Any,
        inputs: Sequence[Entry],
        outputs: Sequence[Entry],
        out_form: Any,
        in_kinds: tuple[bool, ...],
        out_kinds: tuple[bool, ...],
        views: Mapping[int, tuple[Entry, int]],
    ) -> None:
        self.name = recorder.block.name or "net"
        self.initializes = False
        """Whether the call that it is made for initializes parameters; False from its first code on."""
        self.in_kinds, self.out_kinds = in_kinds, out_kinds
        self.form = form
        self.out_form = out_form
        self.input_names = [entry[0].name for entry in inputs]
        self.outputs = list(outputs)
        self.symbol = Symbol(self.outputs)
        self.facts: Mapping[facts.Fact, Any] = recorder.facts
        self.training = recorder.training
        self.mode_fact = recorder.mode_fact
        self.recording, self.recording_fact = recorder.recording, recorder.recording_fact
        self.records = recorder.records and not recorder.recording
        self.context, self.context_fact = recorder.context, recorder.context_fact
        self.constants = recorder.constants
        self._modes = recorder.modes
        self._types = recorder.types
        self._program = recorder.nodes
        written = [(entry, cell.entry) for cell, (entry, _) in recorder.inputs.items() if cell.entry != entry]
        # Operators without a use are dropped from the graph; random ones still count in `_program`'s stream numbers.
        live = set(post_order([*outputs, *(new for _, new in written)]))
        self._nodes = [n for n in live if n.op is None] + [n for n in recorder.nodes if n in live]
        self._unused = [n for n in recorder.nodes if n not in live and (n, 0) in self._types]
        # `holds` infers what facts are about; an empty view is of an array without needing its elements.
        asked = post_order([e for fact in self.facts for e in fact[1:]])
        needed = {*live, *asked, *(entry[0] for entry, _ in (*written, *views.values()))}
        held = [
            (entry, origin)
            for entry, origin in recorder.inputs.values()
            if not isinstance(origin, int) and entry[0] in needed
        ]
        self._params = [(e, origin) for e, origin in held if not isinstance(origin, NDArray)]
        self._captured = [(e, origin) for e, origin in held if isinstance(origin, NDArray)]
        self._inputs = [*inputs, *(e for e, _ in self._params), *(e for e, _ in self._captured)]
        self._updates = sorted(written, key=lambda update: self._inputs.index(update[0]))
        self.params: list[Held] = [param for _, param in self._params]
        self.captured: list[NDArray] = [x for _, x in self._captured]
        self.writes = [self._inputs.index(e) for e, _ in self._updates]
        recorded = {entry for cell, (entry, _) in recorder.inputs.items() if cell.recorded}
        self.assigned = [
            k for k, (entry, new) in enumerate(self._updates) if entry in recorded and not _kept_by_operator(new)
        ]
        self.aliases: tuple[int, ...] = ()
        self.out_views = {k: (self._inputs.index(entry), offset) for k, (entry, offset) in views.items()}
        self.attributes = recorder.attributes
        self.refused_gradient = recorder.refused_gradient

    @property
    def captured_variables(self) -> dict[Node, NDArray]:
        """The captured NDArrays, by the variables that stand for them in the graph."""
        return {entry[0]: x for entry, x in self._captured}

    @property
    def pinned_shapes(self) -> dict[Entry, tuple[int, ...]]:
        """The entries on whose shape the graph depends, with these shapes."""
        reshaped = {(node, 0): node.parsed["shape"] for node in self._nodes if node.op and node.op.name == "Reshape"}
        plain = {entry: shape for entry, shape in reshaped.items() if all(n > 0 for n in shape)}
        return plain | {fact[1]: shape for fact, shape in self.facts.items() if fact[0] == "shape"}

    @property
    def own_modes(self) -> bool:
        """Whether the program sets the training mode for some operators itself."""
        return any(node in self._modes for node in self._nodes)

    def rebuild(self, outputs: Sequence[Any]) -> Any:
        """The result of the call: `outputs` nested as `hybrid_forward` returned them."""
        if any(self.out_kinds):
            outputs = [as_np(x) if kind else x for x, kind in zip(outputs, self.out_kinds)]
        return forms.rebuild(self.out_form, outputs)

    def input_types(self, types: Sequence[TensorType]) -> list[TensorType]:
        """The types of all graph inputs except for the random key, given those of the arguments."""
        held = [type_of(p._first._array) if p._first is not None else _declared(p) for p in self.params]
        return [*types, *held, *(type_of(x._array) for x in self.captured)]

    def holds(self, types: Sequence[TensorType], training: bool) -> bool:
        """Whether the graph is valid for arguments of these types, in this mode."""
        return not self.broken(types, training)

    def broken(self, types: Sequence[TensorType], training: bool) -> str:
        """Why the graph is not valid for arguments of these types, in this mode; '' if it is.

        Infers the types of the untyped graph again, and compares them with the facts that the program saw. Operators
        without a use must accept these types, too: a plain call would run them.
        """
        if self.mode_fact and training != self.training:
            return "the program asks whether it is training"
        if not self.facts and not self._unused:
            return ""
        unused = [(node, 0) for node in self._unused]
        # Variables that only unused operators read are no inputs of the graph; the arguments do not change their types.
        table = {(n, 0): self._types[n, 0] for n in post_order(unused) if n.op is None and (n, 0) in self._types}
        table.update(zip(self._inputs, self.input_types(types)))
        table.update({(node, 0): type_of(value) for node, value in self.constants.items()})
        seen = [e for fact in self.facts for e in fact[1:]]
        wanted = post_order([*seen, *unused])
        try:
            sources = completed_sources(wanted, list(table.items()), [*self.outputs, *seen])
            for node in wanted:
                if node.op is not None:
                    attrs = {**node.parsed, **sources.get(node, {})}
                    results = node.op.infer([table[e] for e in node.inputs], attrs)
                    table.update({(node, k): t for k, t in enumerate(results)})
            for fact, found in self.facts.items():
                now = facts.value(fact, table)
                if now != found:
                    kind, *about = fact
                    names = " and ".join(node.name for node, _ in about)
                    return f"the program has read the {kind} of {names}: {found}, which is {now} now"
        except (IRError, MXNetError) as e:
            return str(e) or type(e).__name__  # tracing again reports the error, with the user's line
        return ""

    def streams(self, training: bool) -> int:
        """The number of random streams that a call consumes."""
        return stream_numbers(self._program, training, self._modes)[1]

    def graph(self, types: Sequence[TensorType], training: bool) -> Graph:
        """The graph of level `traced` for arguments of these types. MXNetError if an operator does not accept them."""
        inputs = list(zip(self._inputs, self.input_types(types)))
        with stage("typing"):
            return lower(
                self.name,
                inputs,
                self._nodes,
                self.outputs,
                training=training,
                updates=self._updates,
                constants=self.constants,
                modes=self._modes,
                random_nodes=self._program,
                known=self._types if all(self._types.get(entry) == type for entry, type in inputs) else {},
            )


def _kept_by_operator(entry: Entry) -> bool:
    """Whether this is the new value of a state that an operator writes to, such as an auxiliary state of `Custom`."""
    node, k = entry
    return bool(node.op and node.op.updates and k in node.op.updates(node.parsed).values())


def _declared(param: Held) -> TensorType:
    return TensorType(dtype(param.dtype), tuple(param.shape or ()))


def trace(block: HybridForward, args: Sequence[Any]) -> Trace:
    """Runs `block.hybrid_forward` on symbols that stand for `args` (nested NDArrays and Nones).

    Initializes parameters whose shape follows from the arguments. Raises TraceError for what cannot be compiled,
    MXNetError for operands that an operator does not accept, and whatever the program itself raises.
    """
    leaves, form = flatten(tuple(args))
    if not leaves:
        raise ValueError(f"All args are None and we do not support such a case. Received args={tuple(args)}")
    found = _trace(block, leaves, form, tuple(range(len(leaves))))
    if found.writes:
        # Aliased arguments must be one input, or a write through one would not be seen through the other.
        pattern = alias_pattern([x._array for x in (*leaves, *found.captured)])
        if pattern[: len(leaves)] != tuple(range(len(leaves))):
            found = _trace(block, leaves, form, pattern[: len(leaves)])
        found.aliases = pattern
    return found


def _trace(block: HybridForward, leaves: Sequence[NDArray], form: Any, pattern: Sequence[int]) -> Trace:
    with stage("tracing"):
        recorder, inputs, result = record(block, leaves, form, pattern)
    first = recorder.attributes
    pauses = recorder.records
    if pauses and not recorder.pauses:  # what the program has computed before it set recording on is constant
        first.undo()
        first.rewind()
        recorder, inputs, result = record(block, leaves, form, pattern, pauses=True)
        first = recorder.attributes
    if first.draws:
        # Numbers that another thread has drawn do not belong to the program, which draws its own in the same place
        # again.
        places = []
        for _ in range(2):
            recorder.attributes.undo()
            recorder, inputs, result = record(block, leaves, form, pattern, pauses, probes=True)
            places.append(recorder.attributes.drawn)
        where = next((found for place, found in places[0].items() if place in places[1]), None)
        if where is not None:
            recorder.attributes.undo()
            first.rewind()
            raise block_attributes.random_draws(where)
    block_attributes.check(recorder.attributes)
    if result is None:
        raise TypeError("Expected a list of symbols as input")
    flat, out_form = forms.flatten(result, lambda value: isinstance(value, (Symbol, NDArray)), "output")
    kinds = tuple(value._numpy for value in flat)
    if not flat:
        raise TypeError("Expected a list of symbols as input")
    with running.tracing(recorder):
        handles = [recorder.lift(value) for value in flat]
        outputs = [read(handle) for handle in handles]
    from_outside = {
        k: (recorder.inputs[handle._cell][0], handle._offset)
        for k, handle in enumerate(handles)
        if handle._cell in recorder.inputs
    }
    for k, (entry, offset) in from_outside.items():
        if offset or _is_part(handles[k], recorder.types.get(entry)):  # x[-2] of other shapes starts somewhere else
            recorder.note("shape", entry)
    deferred = recorder.deferred()
    for param, shape in deferred.items():
        param._complete_shape(shape)
    found = Trace(recorder, form, inputs, outputs, out_form, tuple(x._numpy for x in leaves), kinds, from_outside)
    found.initializes = bool(deferred)
    return found


def _is_part(handle: TracedSymbol, root: TensorType | None) -> bool:
    """Whether the handle is a view of some elements only, as far as its shape is known."""
    return root is not None and handle._shape is not None and math.prod(handle._shape) != root.size


def record(
    block: HybridForward,
    leaves: Sequence[NDArray],
    form: Any,
    pattern: Sequence[int],
    pauses: bool = False,
    probes: bool = False,
    kind: Callable[..., Recorder] = Recorder,
) -> tuple[Recorder, list[Entry], Any]:
    """Runs the program with array number pattern[k] as argument k. Returns (recorder, arguments' variables, result).

    If the program raises, its changes to attributes of blocks are undone.
    """
    recorder = kind(block, modes.training, leaves[0].context, modes.recording, pauses)
    recorder.probes = probes
    names = ["data"] if len(leaves) == 1 else [f"data{k}" for k in range(len(leaves))]
    blocks = _family(block)
    for b in blocks:
        if b._fast_call is not None:
            b._fast_call = None  # so that a child that is compiled by itself takes the Python path, which records it
    try:
        with running.tracing(recorder), block_attributes.noted():
            symbols = [recorder.argument(name, k, x) for k, (name, x) in enumerate(zip(names, leaves))]
            result = recorder.call(block, forms.rebuild(form, [symbols[k] for k in pattern]))
    except BaseException:
        recorder.attributes.undo()
        recorder.attributes.rewind()
        raise
    return recorder, [recorder.variable(s) for s in symbols], result


def _family(block: Any) -> list[Any]:
    """The block and all blocks inside it."""
    return [block, *(b for child in block._children.values() for b in _family(child))]


def parameter_shapes(block: HybridForward, args: Sequence[Any]) -> dict[Held, tuple[int, ...]]:
    """The inferred shapes of all uninitialized parameters, for arguments like `args`."""
    leaves, form = flatten(tuple(args))
    if not leaves:
        raise ValueError(f"All args are None and we do not support such a case. Received args={tuple(args)}")
    recorder, _, _ = record(block, leaves, form, range(len(leaves)))
    recorder.attributes.undo()
    recorder.attributes.rewind()
    return recorder.deferred()
