"""Code for the calls of a hybridized block: finds it, or traces the program and compiles it.

There are two caches. A *trace* is right for every call for which its guards hold (`trace/guards.py`). Code is for the
types of a call's arguments, or for a whole family of them, where dimensions are open (`open_shapes.py`). It belongs to
one trace; calls that differ in the device alone share it.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

from gluonjit.autodiff.computation import Compiler, Computation, OpenComputation
from gluonjit.autodiff.tiering import pays_at_once
from gluonjit.base import MXNetError
from gluonjit.codes.compile_log import BACKWARD, COMPILED, FORWARD, TRACED, CompileLog, Signature
from gluonjit.codes.open_shapes import WHERE_DIVIDED, Declared, declared_open, fits
from gluonjit.codes.store import CODES, Store
from gluonjit.context import Context
from gluonjit.execution.backends import get_backend, opens_dimensions
from gluonjit.execution.session import Session
from gluonjit.ir.dims import Undecided
from gluonjit.ir.graph import Graph, Loc
from gluonjit.ir.sizes import sizes_of, with_sizes
from gluonjit.ir.structure import graph_key
from gluonjit.ir.types import IRError, TensorType, type_of
from gluonjit.language.modes import is_training, modes
from gluonjit.language.source import stacklevel, user_loc
from gluonjit.ndarray import deferred
from gluonjit.runtime.backend import Callee
from gluonjit.runtime.collector import without_collector
from gluonjit.runtime.executable import Executable
from gluonjit.trace import guards
from gluonjit.trace.block_attributes import Attributes, Reader
from gluonjit.trace.guards import KEY, Arguments
from gluonjit.trace.protocols import HybridForward
from gluonjit.trace.tracing import Trace, flatten, trace

MANY = 9
"""When a block has so many codes, a warning says why, and what helps."""
MAX_REFUSALS = 8
"""Traces that may fail because the call changed attributes that it reads; after that, the block stays with Python."""
CALLS_OF_1 = 256
"""Calls after which a signature whose open dimension is 1 gets code of its own, which may be a fifth faster. Calls
are counted, as an answer's bits must not depend on time."""


class Traceable(HybridForward, Protocol):
    """A program whose code can be made here."""

    _jit_log: Any
    """Its `CompileLog`."""
    _jit_gradients: Any
    """What recorded calls ran, by their graphs, of code that was dropped; None if there was none."""

    def _argument_names(self, count: int) -> list[str]:
        """The names of the arrays in the arguments, of which there are `count`."""

    def _jit_completed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of `forward` in a call with `args`: a layer may add states."""


@dataclass
class BlockCode:
    """What calls with one key run."""

    trace: Trace
    session: Session
    types: list[TensorType]
    """The types of all graph inputs except for the random key."""
    device: Context | None
    """The device of arguments, parameters and results; None is cpu(0)."""
    computation: Callable[[], Computation]
    """What recorded calls run; made by the first of them."""
    refused: set[Hashable] = field(default_factory=set)
    """Gradients of code with open dimensions: the inputs by which they cannot be open."""
    calls_left: int = 0
    """Calls until this key gets code of its own; 0: never."""
    own: BlockCode | None = None
    """The key's own code, while it is compiled."""


class BlockCompiler:
    """Makes the code of one block, and keeps it in `store`. `flags` are those of `hybridize`; `reader` is told of
    changes of attributes on which a trace depends, `forget` of sessions that are kept no more."""

    def __init__(
        self, block: Traceable, flags: Mapping[str, Any], reader: Reader, forget: Callable[[Session], object]
    ) -> None:
        self.block = block
        self.backend = get_backend(flags.get("backend"))
        self.options = dict(flags.get("backend_opts") or {})
        self.remat = flags.get("remat")
        self.dynamic: Declared | bool | None = flags.get("dynamic")
        self.log: CompileLog = block._jit_log
        self.store: Store[BlockCode] = Store(
            flags.get("cache_size") or CODES, lambda code: code.session, self.log, forget
        )
        self.traces: list[Trace] = []
        self.recording_matters = False
        """Whether a trace has depended on whether its call was recorded."""
        self.gradients: WeakValueDictionary[Hashable, Computation] = WeakValueDictionary()
        """What recorded calls run, by their graphs."""
        self._earlier_gradients: dict[Hashable, Computation] = block._jit_gradients or {}
        """Computations of code that was dropped: differentiating takes longer than tracing."""
        block._jit_gradients = None
        self._reader = reader
        self._count = 0
        """How many codes were compiled."""
        self._refusals = 0
        """How many traces failed because the program changed attributes that it reads; see `tries_again`."""
        self._refused_last = False

    def code(self, call: Arguments, args: Sequence[Any], waits: bool) -> BlockCode:
        """The code for a call, made if need be. `waits`: until it is compiled; else it may still be compiling."""
        deferred.settle()  # not while a trace runs
        deferred.release()
        with self.store.lock, without_collector():
            key: Any = call[KEY]
            types = call.types
            found = self._found(key, call, waits) or self._of_another_device(key, call)
            if found is None:
                found = self._served(call, types)
            if found is not None:
                self.store.keep(key, found)
                return found
            found, is_new = self._made(call, types, args, waits)
        if is_new:
            found.trace.attributes.announce()
        return found

    def discard(self, log: Attributes) -> None:
        """Drops the trace with this log, and the code compiled from it."""
        with self.store.lock:
            self.traces = [t for t in self.traces if t.attributes is not log]
            self.store.discard(lambda code: code.trace.attributes is log)

    # ---- what there is already

    def _found(self, key: Hashable, call: Arguments, waits: bool) -> BlockCode | None:
        """The code of this key."""
        found = self.store.find(key)
        if found is None or guards.held(found.trace, found.types, call) is None or not self._works(found, call):
            return None
        if found.calls_left and not call.recording:
            return self._counted(found, call, waits)
        return found

    def _of_another_device(self, key: tuple[Any, ...], call: Arguments) -> BlockCode | None:
        """The code that another device has for the same call, for this device: its values are prepared from this
        device's copy of the parameters."""
        *rest, here = key
        for (*others, device), code in self.store.items:
            if others == rest and device != here and guards.held(code.trace, code.types, call) is not None:
                return replace(code, session=code.session.for_other_parameters(), device=call.device, own=None)
        return None

    def _served(self, call: Arguments, types: Sequence[TensorType]) -> BlockCode | None:
        """Code for open dimensions, with the sizes of this call."""
        for code in self.store.open_of(_family(call, types)):
            if guards.held(code.trace, code.types, call) is None:
                continue
            open_types = code.types[: len(types)]
            if fits(open_types, types):
                if self._works(code, call):
                    return self._sized(code, types, call.training)
            elif fits(open_types, types, 1) and not call.recording and _serves_1(code, types, call.training):
                return self._sized(code, types, call.training, alone=True)
        return None

    def _works(self, found: BlockCode, call: Arguments) -> bool:
        """Whether there is code for this call. A recorded call may have found dimensions to be open, and compiled
        nothing but its gradient."""
        session = found.session
        if not session.is_open or call.recording or session.compiled_already is not None or session.is_compiling:
            return True
        try:
            _ = session.callee
        except (IRError, MXNetError) as e:
            self._drop(session, e)
            return False
        self._share(session, found.trace, found.device)
        return True

    def _drop(self, session: Session, problem: Exception) -> None:
        """Forgets code that could not be compiled: the next call raises what is wrong, or compiles for its sizes."""
        self.store.close(lambda code: code.session is session, str(problem))
        self.store.discard(lambda code: code.session is session)

    def _counted(self, found: BlockCode, call: Arguments, waits: bool) -> BlockCode:
        """What serves one more call of a key that has no code of its own yet."""
        if found.calls_left != 1:
            found.calls_left -= 1
            return found
        if found.own is None:
            why = f"{CALLS_OF_1} calls with a dimension of 1, which code of its own serves faster"
            signature = self._signature(call.types, call.training, call.device)
            try:
                found.own = self._compiled(found.trace, signature, why, waits)
            except (IRError, MXNetError):
                found.calls_left = 0
                return found
        if found.own.session.is_compiling:
            return found
        found.calls_left = 0
        return found if found.own.session.compiled_already is None else found.own

    # ---- what has to be made

    def _made(
        self, call: Arguments, types: list[TensorType], args: Sequence[Any], waits: bool
    ) -> tuple[BlockCode, bool]:
        """New code, and whether its trace is new."""
        names = tuple(self.block._argument_names(len(types)))
        signature = Signature(names, tuple(types), call.form, call.kinds, call.training, call.recorded, call.device)
        family = _family(call, types)
        why = self.store.why(signature, call[KEY])
        known = next((t for t in self.traces if guards.admits(t, types, call)), None)
        is_new = known is None
        if known is None:
            why = self._why_traced(types, call) or why
            known = self._traced(args, signature, why)
        code = self._open(family, known, signature, why, waits)
        found = (
            self._compiled(known, signature, why, waits) if code is None else self._sized(code, types, call.training)
        )
        self.store.note_made(signature)
        if not known.attributes.stale:
            self.store.openings(family).history.append(types)
            if code is not None:
                self.store.keep_open(family, code)
            call = call._replace(recorded=call.recording and self.recording_matters)
            self.store.keep(call[KEY], found)
            alive = {id(c.trace) for c in (*self.store.entries, *self.store.open_entries)}
            self.traces = [t for t in self.traces if id(t) in alive or t is self.traces[-1]]
        return found, is_new

    def _traced(self, args: Sequence[Any], signature: Signature, why: str) -> Trace:
        began = time.perf_counter()
        known = trace(self.block, args)
        self.log.add(TRACED, why, signature, time.perf_counter() - began)
        if known.attributes.keep(self._reader):
            self.traces.append(known)
        self.recording_matters = self.recording_matters or known.recording_fact
        self._refused_last = False
        return known

    def tries_again(self) -> bool:
        """Whether to trace again at the next call, after this one has changed attributes that it reads.

        A single failure is expected: the first call, or the first one with other shapes, may set up what later ones
        use. Two failures in a row, or `MAX_REFUSALS` in all, are not.
        """
        self._refusals += 1
        again = not self._refused_last and self._refusals < MAX_REFUSALS
        self._refused_last = True
        return again

    def _why_traced(self, types: Sequence[TensorType], call: Arguments) -> str:
        """What the latest trace of such arguments depends on that is different now; '' if there is none."""
        alike = (t for t in reversed(self.traces) if t.form == call.form and t.in_kinds == call.kinds)
        return next((why for t in alike if (why := guards.why_not(t, types, call))), "")

    def _open(self, family: Hashable, known: Trace, signature: Signature, why: str, waits: bool) -> BlockCode | None:
        """The trace, compiled for types like these with open dimensions; None if there are none, or cannot be any."""
        declared, types = self.dynamic, signature.types
        if declared is False or not opens_dimensions(self.backend):
            return None
        tried = self.store.openings(family)
        is_declared = isinstance(declared, Mapping)
        candidates: Iterable[tuple[TensorType, ...]] = (
            tried.declared(declared, signature.names, types)
            if isinstance(declared, Mapping)
            else tried.candidates(types)
        )

        def make(open_types: tuple[TensorType, ...]) -> BlockCode:
            if broken := known.broken(open_types, signature.training):
                raise Undecided(broken)
            return self._compiled(known, signature._replace(types=open_types), why, waits)

        def refused(error: Exception) -> None:
            if is_declared:
                remedy = f"\n{WHERE_DIVIDED}" if "divided by" in str(error) else ""
                warnings.warn(
                    f"{known.name} has no code for the dimensions given as dynamic, and is compiled for each of "
                    f"their sizes: {error}{remedy}",
                    stacklevel=stacklevel(),
                )

        return tried.first(candidates, make, refused)

    def _compiled(self, known: Trace, signature: Signature, why: str, waits: bool) -> BlockCode:
        """The trace, compiled for arguments of this signature, which may have open dimensions; `why` that is needed."""
        types, training, device = signature.types, signature.training, signature.device
        line = None if waits else user_loc()
        session = Session(
            known.graph(types, training),
            self.backend,
            self.options,
            params=params(known, len(types)),
            written=known.writes,
            streams=known.streams(training),
            compiled=lambda callee, seconds: self._note(COMPILED, why, signature, callee, seconds, line),
            signature=", ".join(map(str, types)),
        )
        first, known.initializes = known.initializes, False
        if not waits:
            session.compile_meanwhile(lambda problem: self._compiled_meanwhile(session, known, device, problem))
        elif not modes.recording:
            if first and self._computes_first_call(session):
                session.compute_once()
            else:
                _ = session.callee  # compiled now, so that a failure leaves nothing behind
                self._share(session, known, device)
        return BlockCode(known, session, known.input_types(types), device, self._recorded(known, signature, why))

    def _computes_first_call(self, session: Session) -> bool:
        """Whether NumPy computes the call that initializes parameters: programs make one to that end, before they train
        the block, which takes other code."""
        return not session.is_open and self.backend is get_backend(None) and not pays_at_once(session.graph)

    def _compiled_meanwhile(
        self, session: Session, known: Trace, device: Context | None, problem: Exception | None
    ) -> None:
        with self.store.lock:
            if problem is None:
                self._share(session, known, device)
            else:
                self._drop(session, problem)

    def _share(self, session: Session, known: Trace, device: Context | None) -> None:
        """Lets new code use the values that the code for other calls has prepared in the same way."""
        for other in self.store.entries:
            if other.trace is known and other.device == device:
                session.share(other.session)

    def _sized(self, code: BlockCode, types: Sequence[TensorType], training: bool, alone: bool = False) -> BlockCode:
        """Code for open dimensions, for arguments of these types; `alone`: but for recorded calls, which have code of
        their own."""
        known = code.trace
        signature = self._signature(types, training, code.device)
        own = self._recorded(known, signature, "its gradient cannot have open dimensions")
        computation = own if alone else functools.cache(lambda: OpenComputation(code.computation(), own, code.refused))
        left = CALLS_OF_1 if alone else 0
        return replace(code, types=known.input_types(types), computation=computation, calls_left=left)

    def _recorded(self, known: Trace, signature: Signature, why: str) -> Callable[[], Computation]:
        def note(callee: Callee, seconds: float, backward: bool) -> None:
            self._note(BACKWARD if backward else FORWARD, why, signature, callee, seconds)

        @functools.cache
        def computation() -> Computation:
            graph = known.graph(signature.types, signature.training)
            # What the program writes to an array has a gradient, too.
            graph = replace(graph, outputs=(*graph.outputs, *(graph.updates[k][1] for k in known.assigned)))
            key = graph_key(graph), repr(sorted(graph.attrs.items()))
            found = self._earlier_gradients.pop(key, None)
            if found is None:
                found = Computation(graph, Compiler(self.backend, self.options, note), self.remat)
            self.gradients[key] = found
            return found

        return computation

    # ---- what is told of it

    def _signature(self, types: Sequence[TensorType], training: bool, device: Context | None) -> Signature:
        return Signature(tuple(self.block._argument_names(len(types))), tuple(types), training=training, device=device)

    def _note(
        self, what: str, why: str, signature: Signature, callee: Callee, seconds: float, line: Loc | None = None
    ) -> None:
        """Notes that code has been made. Warns when that was so often that the program should do something about it."""
        cached, kernels = (callee.was_cached, callee.kernels) if isinstance(callee, Executable) else (False, (0, 0))
        self.log.add(what, why, signature, seconds, cached, line, kernels)
        if what == COMPILED:
            self._count += 1
            if self._count == MANY:
                name, limit = self.block.name, self.store.limit
                warnings.warn(
                    f"{name} has been compiled {MANY} times, the last time because of: {why}\n"
                    f"  instead: {self._remedy()}\n"
                    f"  {name}.explain() lists the reasons; {limit} codes are kept, or as many as "
                    "hybridize(cache_size=…) says",
                    stacklevel=stacklevel(),
                )

    def _remedy(self) -> str:
        """What helps against the differences that code was last compiled for."""
        *before, now = self.store.made
        if closed := self.store.closed:
            reason = closed[-1].partition("\n")[0]
            return f"pad arguments to a few sizes, as these cannot be open: {reason}"
        if before and any(t.shape != s.shape for b in before for t, s in zip(now.types, b.types)):
            if self.dynamic is False:
                return "leave out dynamic=False: one code then serves all sizes"
            return (
                "hybridize(dynamic={…}), with a name for each dimension that changes, or pad arguments to a few sizes"
            )
        return "pass what changes as an argument, rather than as an attribute"


def _family(call: Arguments, types: Sequence[TensorType]) -> Hashable:
    """What calls have in common that differ in sizes alone."""
    return call.form, call.training, call.kinds, call.device, tuple((t.dtype, t.rank) for t in types)


def _serves_1(code: BlockCode, types: Sequence[TensorType], training: bool) -> bool:
    """Whether code for open dimensions, which takes these types if they may be 1, is right for them."""
    known, session = code.trace, code.session
    if session.compiled_already is None or session.lowest > 1 or not known.holds(types, training):
        return False
    sizes = sizes_of(code.types[: len(types)], [t.shape for t in types], 1)
    try:
        return graph_key(known.graph(types, training)) == graph_key(with_sizes(session.graph, sizes, 1))
    except (IRError, MXNetError):
        return False


def params(known: Trace, n_args: int) -> list[int]:
    """Positions of the graph's inputs that change rarely: neither arguments of the call nor written by it."""
    rarely = range(n_args, n_args + len(known.params) + len(known.captured))
    return [k for k in rarely if k not in known.writes]


def trace_call(block: Traceable, args: Sequence[Any], dynamic: Declared | None = None) -> Graph:
    """The graph (level `traced`) that a hybridized call of `block` with `args` would compile, with these dimensions
    open. Raises Undecided if the program reads the size of one of them."""
    args = block._jit_completed(tuple(args))
    leaves, _ = flatten(args)
    known = trace(block, args)
    types = [type_of(x._array) for x in leaves]
    if dynamic:
        types = declared_open(dynamic, block._argument_names(len(types)), types) or types
        if broken := known.broken(types, is_training()):
            raise Undecided(broken)
    graph = known.graph(types, is_training())
    return graph.with_attrs(params=tuple(params(known, len(leaves))))
