"""A running trace: the typed graph that `hybrid_forward` builds while it runs on `TracedSymbol`s.

Every operator becomes a node, in program order, with the type of each output. What the program learns of types (a
shape, a length, which of two operators `+` means) is recorded as a *fact*; the graph is valid for another signature
if all facts hold for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gluonjit import ndarray, symbol
from gluonjit.base import MXNetError, TraceError, ValueNeeded
from gluonjit.context import Context
from gluonjit.ir.graph import Loc
from gluonjit.ir.types import TensorType, dtype, type_of
from gluonjit.language import running
from gluonjit.language.kinds import as_np
from gluonjit.language.modes import modes
from gluonjit.language.source import quote, user_frame
from gluonjit.ndarray import NDArray
from gluonjit.operators import registry
from gluonjit.operators.registry import Operator, Shape
from gluonjit.symbol import symbolic_loops
from gluonjit.symbol.compose import make_node
from gluonjit.symbol.graph import DETACHED, Entry, Node, post_order
from gluonjit.symbol.shapes import is_complete
from gluonjit.symbol.subgraph import control_node
from gluonjit.symbol.symbol import Symbol
from gluonjit.trace import facts
from gluonjit.trace.block_attributes import Attributes
from gluonjit.trace.block_paths import block_paths
from gluonjit.trace.facts import Fact
from gluonjit.trace.memory import Cell, read, write
from gluonjit.trace.protocols import Held, HybridForward
from gluonjit.trace.traced_symbol import TracedSymbol
from gluonjit.trace.typetable import TypeTable
from gluonjit.util import is_np_array

OUTLIVED = (
    "a symbol was kept from an earlier call of hybrid_forward; symbols live only while it is traced. "
    "Return the array instead of keeping it on the block"
)


class _Place(NamedTuple):
    """Where a running block is called."""

    path: str
    user: FrameType | None
    """The user's innermost frame."""
    line: tuple[str, int] | None
    """The file and line that made the block, if no program of the user's stands between it and the one that calls it;
    else None."""


class Recorder:
    """The running trace; `current_trace()` returns it.

    `training` and `recording` are the modes in which the trace started, `context` the arguments' device. `pauses`:
    whether operators outside of `autograd.record()` are constant for gradients; else nothing records. `nodes` are
    the operators in program order; `types` has the types of all entries except for those that depend on a parameter of
    unknown shape, which are in `partial`.
    """

    def __init__(
        self, block: HybridForward, training: bool, context: Context, recording: bool = False, pauses: bool = False
    ) -> None:
        self.block = block
        self.training = training
        self.recording = recording
        self.pauses = recording or pauses
        self.context = context
        self.nodes: list[Node] = []
        self.frames: list[object] = [object()]
        """The program, then the enclosing bodies of loops and branches, innermost last; see `memory.Cell`."""
        self.modes: dict[Node, bool] = {}
        self._assumed: list[tuple[Entry, Entry]] = []
        """Pairs of arrays that were assumed to have the same shape while it was unknown."""
        self._table = TypeTable(self._found)
        self.types = self._table.types
        self.partial = self._table.partial
        self.facts: dict[Fact, Any] = {}
        self.mode_fact = False
        """Whether the program asked for the training mode."""
        self.recording_fact = False
        """Whether the program asked for the recording mode, or set it."""
        self.records = False
        """Whether the program sets recording on, though the call is not recorded."""
        self.context_fact = False
        """Whether the program asked for the arguments' device."""
        self.blocks: list[HybridForward] = []
        """The programs whose `hybrid_forward` is running, innermost last."""
        self._users: dict[int, FrameType | None] = {}
        """The user's frame that made each running `call`, by the id of that call's frame."""
        self._paths = block_paths(block)
        self._places: list[_Place] = [_Place("", None, None)]
        """The place of each of `blocks`, and, first, of what is outside of them."""
        self.inputs: dict[Cell, tuple[Entry, Any]] = {}
        """The memory of graph inputs: the variable, and its origin (an argument's position, a Held or an NDArray)."""
        self.constants: dict[Node, np.ndarray] = {}
        self._parameters: dict[Held, TracedSymbol] = {}
        self._captured: dict[Any, TracedSymbol] = {}
        self._owners: dict[int, Held] | None = None
        self.refused_gradient: TraceError | None = None
        """Why a gradient that the program defines cannot be compiled, if so."""
        self.attributes = Attributes()
        self.probes = False
        """Whether to check after every operator if the program has drawn random numbers from Python or NumPy."""

    # Inputs

    def _input(self, name: str, type: TensorType | None, origin: Any, node: Node | None = None) -> TracedSymbol:
        node = node or Node(None, name, {})
        if type is not None:
            self.types[node, 0] = type
        cell = Cell((node, 0), self.frames[0])
        self.inputs[cell] = (cell.entry, origin)
        return TracedSymbol(self, cell, 0, type.shape if type else None)

    def argument(self, name: str, position: int, x: NDArray) -> TracedSymbol:
        """Argument number `position` of the traced call."""
        return _alike(x, self._input(name, type_of(x._stand_in), position))

    def variable(self, handle: TracedSymbol) -> Entry:
        """The variable of a graph input, whose value is the one before the call."""
        return self.inputs[handle._cell][0]

    def parameter(self, param: Held) -> TracedSymbol:
        """The symbol of an array that the program holds; the same one each time."""
        found = self._parameters.get(param)
        if found is None:
            (entry,) = param.var()._heads
            shape = tuple(param.shape or param._declared_shape or ())
            type: TensorType | None = None
            if param._first is not None:
                type = type_of(param._first._stand_in)
            elif is_complete(shape or None):
                type = TensorType(dtype(param.dtype), shape)
            found = self._input(param.name, type, param, entry[0])
            if type is None:
                self.partial[entry] = shape or None
            if is_np_array() if param._first is None else param._first._numpy:
                as_np(found)
            self._parameters[param] = found
        return found

    def capture(self, x: NDArray) -> TracedSymbol:
        """Captures an array from outside the program: an input of the graph, by reference. For a parameter's array,
        this is the parameter's symbol."""
        if self._owners is None:
            known = (p for p in self.block.collect_params().values() if p._first is not None)
            self._owners = {id(array): p for p in known for array in p._arrays()}
        if id(x) in self._owners:
            return self.parameter(self._owners[id(x)])
        key = _elements(x)
        found = self._captured.get(key)
        if found is None:
            found = _alike(x, self._input(f"captured{len(self._captured)}", type_of(x._array), x))
            self._captured[key] = found
        if found._numpy != x._numpy:
            return found.as_np_ndarray() if x._numpy else found.as_nd_ndarray()
        return found

    def uses(self, x: NDArray) -> bool:
        """Whether the trace reads this array, as a captured one or as a parameter's."""
        known = (p for p in self._parameters if p._first is not None)
        return _elements(x) in self._captured or any(x is own for p in known for own in p._arrays())

    @property
    def paused(self) -> bool:
        """Whether what the program computes now is constant for gradients, though something is recorded."""
        return self.pauses and not modes.recording

    def note_recording(self, recording: bool) -> None:
        """Notes that the program sets the recording mode."""
        self.recording_fact = True
        self.records |= recording and not self.recording

    def detached(self, entry: Entry) -> Entry:
        """The same value, which no gradient flows through."""
        if DETACHED in entry[0].attrs or entry[0] in self.constants:
            return entry
        return self.emit("BlockGrad", [entry], {}, attr={DETACHED: "True"})[0]

    def constant(self, value: np.ndarray) -> TracedSymbol:
        """A new array in each call, always with this value."""
        node = Node(None, f"constant{len(self.constants)}", {}, loc=self.loc())
        array = np.array(value, order="C")
        array.setflags(write=False)
        self.constants[node] = array
        self.types[node, 0] = type_of(array)
        return TracedSymbol(self, Cell((node, 0), self.frames[-1]), 0, array.shape)

    def adopt(self, value: Any) -> Any:
        """The symbol of this trace for an NDArray or a parameter's variable; any other value unchanged."""
        if isinstance(value, NDArray):
            return self.capture(value)
        if type(value) is Symbol:
            for param in self.block.collect_params().values():
                if param._var is not None and param._var._heads == value._heads:
                    return self.parameter(param)
        return value

    def lift(self, value: Any) -> TracedSymbol:
        """`value` as a symbol of this trace; MXNetError for a symbol of another graph."""
        if value.__class__ is TracedSymbol and value._recorder is self:
            return value
        value = self.adopt(value)
        if not isinstance(value, TracedSymbol):
            raise MXNetError(f"Unknown input to HybridBlock: {', '.join(value.list_inputs())}")
        if value._recorder is not self:
            raise MXNetError(OUTLIVED)
        return value

    # Blocks

    def call(self, block: HybridForward, args: Sequence[Any]) -> Any:
        """Records `block(*args)`: runs its `hybrid_forward` on symbols. Arguments other than arrays stay unchanged."""
        params = {name: self.parameter(p) for name, p in block._reg_params.items()}

        def run() -> Any:
            with block.name_scope():
                try:
                    return block.hybrid_forward(symbol, *map(self.adopt, args), **params)
                except TypeError as e:
                    explain_call(e)
                    raise

        return self.within(block, run)

    def within(self, block: HybridForward, run: Callable[[], Any]) -> Any:
        """Records what `run` does as a part of `block`."""
        if self.blocks and self.blocks[-1] is block:  # its own `forward` calls that of HybridBlock
            return run()
        self._probe()
        frame = id(sys._getframe())  # a frame that held itself would live until the next garbage collection
        user = self._users[frame] = user_frame(self._users, in_models=True)
        self._places.append(self._place(block, user))
        self.blocks.append(block)
        try:
            return run()
        finally:
            self._probe()
            self.blocks.pop()
            self._places.pop()
            del self._users[frame]

    def _probe(self) -> None:
        if self.probes:
            self.attributes.probe(tuple(self.blocks))

    # Operators

    def _place(self, block: HybridForward, user: FrameType | None) -> _Place:
        outer = self._places[-1]
        path = self._paths.get(id(block))
        if path is None:
            path = f"{outer.path}/{block.name}" if outer.path else block.name
        if not self.blocks or user is not outer.user:
            return _Place(path, user, None)
        return _Place(path, user, getattr(block, "_made_at", None) or outer.line)

    def loc(self) -> Loc:
        """Where the program is: in which block, and at which line. Where a layer of this package runs that another one
        calls, as in a Sequential, this is the line that made the layer: the one that calls them both says less."""
        place = self._places[-1]
        frame = user_frame(self._users, in_models=True)
        if frame is place.user and place.line is not None:
            return Loc(*place.line, place.path)
        return Loc(frame.f_code.co_filename, frame.f_lineno, place.path) if frame else Loc(block=place.path)

    def concerns(self, operands: Sequence[Any]) -> bool:
        """Whether an operator on these operands is part of the trace, rather than of an untyped graph."""
        given = [x for x in operands if x is not None]
        return not given or any(isinstance(x, TracedSymbol) or not isinstance(x, Symbol) for x in given)

    def invoke(
        self,
        op: Operator,
        operands: Sequence[Any],
        attrs: Mapping[str, Any],
        out: Any = None,
        name: str | None = None,
        attr: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> Any:
        """Records an operator with the semantics of `mx.nd`. Returns its visible results, or writes them to `out`."""
        if op.imperative_only:
            self.refuse(f"{op.name} cannot be compiled: {op.imperative_only}", for_value=True)
        by_name = {key: value for key, value in attrs.items() if isinstance(value, Symbol)}
        attrs = {key: value for key, value in attrs.items() if key not in by_name}
        given = [self.lift(x) for x in (*operands, *by_name.values()) if x is not None]
        results = self.emit(op, [read(x) for x in given], attrs, name=name, attr=attr, hint=hint)
        if op.updates is not None:
            (node, _), *_ = results
            for at, k in op.updates(node.parsed).items():
                write(given[at], (node, k))
        if out is not None:
            targets = list(out) if isinstance(out, (list, tuple)) else [out]
            if len(targets) != len(results):
                raise MXNetError(f"Operator {op.name} has {len(results)} outputs, but out= gives {len(targets)}")
            for k, (target, entry) in enumerate(zip(targets, results)):
                handle = self.lift(target)
                wanted, got = self.type(handle), self.type(self.fresh(entry))
                if not self.note("same type", entry, read(handle)):
                    raise MXNetError(
                        f"Incompatible attr in node at {k}-th output: operator {op.name} gives {got}, out= is {wanted}"
                    )
                write(handle, entry)
            return out
        symbols = [self.fresh(entry) for entry in results]
        if any(x._numpy for x in given):
            as_np(symbols)
        return symbols[0] if len(symbols) == 1 else symbols

    def array_function(self, name: str) -> Any:
        """The function `name` of `mx.nd`, which records its operators in the trace; None if there is none."""
        return getattr(ndarray, name, None)

    def fresh(self, entry: Entry) -> TracedSymbol:
        """A new array, in memory of its own, with the value `entry`."""
        if self.paused:
            entry = self.detached(entry)
        type = self.types.get(entry)
        return TracedSymbol(self, Cell(entry, self.frames[-1]), 0, type.shape if type else None)

    def emit(
        self,
        op: Operator | str,
        entries: Sequence[Entry],
        attrs: Mapping[str, Any],
        *,
        name: str | None = None,
        attr: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> list[Entry]:
        """Appends a node and returns its visible outputs. MXNetError if the operator does not accept the operands."""
        if running.running.trace is not self:
            raise MXNetError(OUTLIVED)
        if isinstance(op, str):
            op = registry.get(op)
        node = make_node(op, entries, attrs, name=name, attr=attr, hint=hint, loc=self.loc(), fill=False)
        self._append(node)
        return [(node, k) for k in range(node.visible)]

    def _append(self, node: Node) -> None:
        self._probe()
        self.nodes.append(node)
        if modes.training != self.training:  # `with autograd.train_mode():` around this operator
            self.modes[node] = modes.training
        try:
            self._table.add(node)
        except (RuntimeError, ValueError) as e:
            place = self._places[-1]
            if node.loc is not None and place.user is not None and (node.loc.file, node.loc.line) == place.line:
                caller = Loc(place.user.f_code.co_filename, place.user.f_lineno)
                e.args = (f"{e}{quote(caller, 'called at')}", *e.args[1:])
            raise

    def graft(self, graph: Symbol, inputs: Mapping[str, Any]) -> list[TracedSymbol]:
        """Copies the nodes of a finished graph into the trace, with `inputs` for its variables; returns the outputs.

        MXNetError for a variable that `inputs` lacks, and for operands that an operator does not accept.
        """
        if running.running.trace is not self:
            raise MXNetError(OUTLIVED)
        here = self.loc()
        env: dict[Entry, Entry] = {}
        for node in post_order(graph._heads):
            if node.op is None:
                if node.name not in inputs:
                    raise MXNetError(f"Unknown input to HybridBlock: {node.name}")
                env[node, 0] = read(self.lift(inputs[node.name]))
                continue
            if node.op.imperative_only:
                self.refuse(f"{node.op.name} cannot be compiled: {node.op.imperative_only}", for_value=True)
            operands = [env[e] for e in node.inputs]
            # A graph's own names are all that tells its layers from each other.
            loc = Loc(here.file, here.line, f"{here.block}/{node.name.removesuffix('_fwd')}")
            new = Node(node.op, node.name, node.attrs, operands, node.parsed, loc, node.versions)
            self._append(new)
            env.update({(node, k): (new, k) for k in range(len(node.output_names))})
            for at, k in (node.op.updates(node.parsed) if node.op.updates else {}).items():
                written = node.inputs[at]
                if written[0].op is None:
                    write(self.lift(inputs[written[0].name]), (new, k))
                    env[written] = (new, k)
        return [self.fresh(env[head]) for head in graph._heads]

    # Bodies of loops and branches

    def record_body(
        self, variables: Sequence[Node], alike: Sequence[TracedSymbol], scanned: int, function: Callable[..., Any]
    ) -> tuple[list[Entry], list[bool], Any, list[Node], bool]:
        """Runs `function(*variables) -> (results, forms)`. Returns (results, which of them are arrays of `mx.np`,
        forms, the operators recorded, whether the body depends on types).

        Each variable has the type of its array in `alike`; the first `scanned` ones that of one row of it. The body's
        operators are not added to the program. The body can read arrays from outside, but not write to them.
        """
        outer, before, assumed = self.nodes, set(self.facts), len(self._assumed)
        handles = []
        for k, (node, x) in enumerate(zip(variables, alike, strict=True)):
            whole = self.type(x)
            type = whole.with_shape(whole.shape[1:]) if k < scanned else whole
            self.types[node, 0] = type
            handle = TracedSymbol(self, Cell((node, 0), self.frames[-1]), 0, type.shape)
            handles.append(as_np(handle) if x._numpy else handle)
        self.frames.append(object())
        program: list[Node] = []
        self.nodes = program
        try:
            results, forms = function(*handles)
            symbols = [self.lift(x) for x in results]
            outputs, kinds = [read(x) for x in symbols], [x._numpy for x in symbols]
        finally:
            self.frames.pop()
            self.nodes = outer
        # Facts of the body's own arrays follow from the types of its operands, on which `sensitive` puts facts.
        inner = {*program, *variables}
        seen = [fact for fact in self.facts if fact not in before and any(e[0] in inner for e in fact[1:])]
        for fact in seen:
            del self.facts[fact]
        pairs = [pair for pair in self._assumed[assumed:] if any(e[0] in inner for e in pair)]
        self._assumed = [pair for pair in self._assumed if pair not in pairs]
        return outputs, kinds, forms, program, bool(seen or pairs)

    def append_control(
        self,
        op: Operator,
        graphs: Sequence[Any],
        given: Sequence[TracedSymbol],
        captured: Sequence[Entry],
        attrs: Mapping[str, Any],
        sensitive: bool,
    ) -> list[TracedSymbol]:
        """Appends a loop or branch whose bodies are `graphs`; returns its outputs. `sensitive`: the graphs are valid
        only for operands of these types."""
        node = control_node(op, graphs, [*map(read, given), *captured], attrs, self.loc())
        self._append(node)
        if sensitive:
            for entry in node.inputs:
                if entry in self.types:
                    self.note("shape", entry)
                    self.note("dtype", entry)
        return [self.fresh((node, k)) for k in range(node.visible)]

    def foreach(self, body: Callable[..., Any], data: Any, init_states: Any, name: str) -> Any:
        return symbolic_loops.foreach(body, data, init_states, name)

    def while_loop(
        self, cond: Callable[..., Any], func: Callable[..., Any], loop_vars: Any, max_iterations: Any, name: str
    ) -> Any:
        return symbolic_loops.while_loop(cond, func, loop_vars, max_iterations, name)

    def cond(self, pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str) -> Any:
        return symbolic_loops.cond(pred, then_func, else_func, name)

    def _found(self, entry: Entry, shape: Shape) -> TensorType:
        """The type of the parameter that a variable stands for, now that its shape is known."""
        (param,) = [origin for variable, origin in self.inputs.values() if variable == entry]
        return TensorType(dtype(param.dtype), shape)

    def deferred(self) -> dict[Held, Shape]:
        """The inferred shapes of the uninitialized parameters; MXNetError if one stays unknown."""
        found = {}
        for param, handle in self._parameters.items():
            if param._first is None:
                entry = self.variable(handle)
                if entry in self.partial:
                    raise MXNetError(
                        f"The shape of parameter {param.name} cannot be inferred: {param.shape}, 0 means unknown"
                    )
                found[param] = self.types[entry].shape
        for pair in self._assumed:
            self.note("same shape", *pair)
        return found

    # Facts

    def note(self, kind: str | facts.Subscript, *entries: Entry) -> Any:
        """The value of a fact of this kind about these entries, recorded as a guard of the graph."""
        fact = (kind, *entries)
        self.facts[fact] = seen = facts.value(fact, self.types)
        return seen

    def type(self, handle: TracedSymbol) -> TensorType:
        """The type of an array, without recording a fact. TraceError if it depends on a parameter of unknown shape."""
        entry = read(handle)
        if entry not in self.types:
            self.refuse(
                f"the shape of {handle!r} is not known here: it depends on a deferred parameter or an open dimension",
                "give the layer its input size (in_units, in_channels, …), or call the block once before hybridize()",
            )
        return self.types[entry]

    def ask(self, kind: str, handle: TracedSymbol) -> Any:
        """The value of a fact about an array's type, which the program asked for."""
        self.type(handle)
        return self.note(kind, read(handle))

    def same_shape(self, a: TracedSymbol, b: TracedSymbol) -> bool:
        """Whether the shapes are equal. Only equality is a fact: a broadcasting operator also suits equal shapes."""
        x, y = read(a), read(b)
        if x in self.partial or y in self.partial:
            self._assumed.append((x, y))
            return True  # MXNet's symbolic `+` requires equal shapes, from which the unknown ones are inferred
        equal = self.types[x].shape == self.types[y].shape
        if equal:
            self.note("same shape", x, y)
        return equal

    def value(self, handle: TracedSymbol, what: str, instead: str) -> np.ndarray:
        """The elements of an array, for a program that cannot be compiled without them: ValueNeeded, as `refuse`."""
        self.refuse(what, instead, for_value=True)

    def refuse(self, what: str, instead: str = "", for_value: bool = False) -> NoReturn:
        """Raises a TraceError about something that cannot be compiled, with the user's line.

        `for_value`: raises ValueNeeded instead, for a program that is correct but needs an array's value.
        """
        advice = f"\n  write instead: {instead}" if instead else ""
        loc = self.loc()
        text = f"{what}{quote(loc)}{advice}"
        if not for_value:
            raise TraceError(text)
        error = ValueNeeded(text)
        error.blocks, error.loc = tuple(self.blocks), loc
        raise error


def _alike(x: NDArray, handle: TracedSymbol) -> Any:
    """A new symbol, turned into the kind of `x` (`mx.nd` or `mx.np`)."""
    return as_np(handle) if x._numpy else handle


def _elements(x: NDArray) -> Any:
    """A key for the memory of an array: views of the same elements are one input, so that each sees all writes."""
    array = x._array
    return (array.__array_interface__["data"][0], array.shape, array.dtype) if array.size else id(x)


def explain_call(error: TypeError) -> None:
    """Raises the error with what `hybrid_forward` is called with, if it was the call that failed."""
    tb = error.__traceback__
    if tb is not None and tb.tb_next is None:
        how = "it is called as hybrid_forward(F, inputs..., parameters by name...), where F is mx.nd or mx.sym"
        raise TypeError(f"{error}; {how}") from None
