"""The hybridized call: traces once, compiles per signature, then calls native code directly.

There are two caches. A *trace* (the Symbol) is valid for every signature for which its facts hold. A *compiled
signature* (shapes, dtypes, training mode, device) belongs to one trace; signatures that differ in the device alone
share their code. The one used last is installed on the block as `_fast_call`, whose native entry checks the arguments
itself.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from gluonjit.autodiff.computation import Computation, OpenComputation, compiled
from gluonjit.autodiff.recorded_calls import recorded_call
from gluonjit.autodiff.tape import is_constant, refuse_write
from gluonjit.base import MXNetError
from gluonjit.context import Context
from gluonjit.execution.backends import get_backend, opens_dimensions
from gluonjit.execution.compile_log import (
    COMPILED,
    DROPPED,
    FIRST,
    GRADIENT,
    TRACED,
    CompileLog,
    Signature,
    nearest_difference,
)
from gluonjit.execution.open_shapes import (
    HISTORY,
    MAX_OPEN,
    WHERE_DIVIDED,
    Declared,
    Openings,
    declared_open,
    fits,
)
from gluonjit.execution.session import Inputs, Monitor, Session
from gluonjit.ir.dims import Undecided
from gluonjit.ir.graph import Graph, Loc
from gluonjit.ir.signals import is_from_signal
from gluonjit.ir.sizes import sizes_of, with_sizes
from gluonjit.ir.structure import graph_key
from gluonjit.ir.types import IRError, TensorType, type_of
from gluonjit.language import forms
from gluonjit.language.forms import ARRAY
from gluonjit.language.kinds import as_nd, as_np
from gluonjit.language.modes import Scope, is_training, modes
from gluonjit.language.source import stacklevel, user_loc
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import tracked
from gluonjit.runtime import forks
from gluonjit.runtime.backend import Callee
from gluonjit.runtime.collector import without_collector
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.fast_call import fast_call, give_back_arena
from gluonjit.runtime.storage import EPOCH, Storage
from gluonjit.trace.block_attributes import Attributes
from gluonjit.trace.protocols import Program
from gluonjit.trace.tracing import Trace, alias_pattern, flatten, trace

MAX_SIGNATURES = 256
"""So many signatures are kept; many may share code for open dimensions."""
CACHE_SIZE = 64
"""So many codes are kept per block, unless `hybridize(cache_size=…)` says otherwise."""
MANY = 9
"""At the code of this number, a warning says why there are so many, and what helps."""
MAX_REFUSALS = 8
"""After how many traces that failed because the call changed attributes that it reads, a block stays with Python."""
CALLS_OF_1 = 256
"""After how many calls a signature whose open dimension is 1 gets code of its own, which may be a fifth faster. Calls
are counted, as an answer's bits must not depend on time."""


class NotCompiledYet(Exception):
    """Another thread compiles the code of this call, which should not wait for it (`hybridize(wait=False)`)."""


class Hybrid(Program, Protocol):
    """A program whose calls are compiled: Gluon's HybridBlock."""

    _jit_cached: Any
    """Its `CachedCall`, until the block changes."""
    _jit_log: Any
    """Its `CompileLog`."""
    _jit_gradients: Any
    """What recorded calls ran, by their graphs, of a `CachedCall` that was dropped; None if there was none."""
    _callback: Callable[..., None] | None
    """The hook that is shown every operator's results."""
    _monitor_all: bool
    _monitored_as_bound: bool
    _jit_debug_results: dict[str, Any] | None
    """Where the results of the last call's operators are kept; None if they are not."""

    def _argument_names(self, count: int) -> list[str]:
        """The names of the arrays in the arguments, of which there are `count`."""

    def _jit_completed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of `forward` in a call with `args`: a layer may add states."""

    def _passed_arrays(self, form: Any) -> int | None:
        """The number of arrays passed to the native entry for arguments of this form; None if it cannot serve them."""

    def _calls_only_compiled_code(self) -> bool:
        """Whether a call only runs compiled code, without hooks and the like."""

    def _slow_call(self, *args: Any) -> Any:
        """The path that the native entry takes for arguments that fail its checks."""


@dataclass
class Compiled:
    """One signature of one trace."""

    trace: Trace
    session: Session
    types: list[TensorType]
    """The types of all graph inputs except for the random key."""
    device: Context | None
    """The device of arguments, parameters and results; None is cpu(0)."""
    computation: Callable[[], Computation]
    """What recorded calls run; made by the first of them."""
    refused: set[Hashable] = field(default_factory=set)
    """Of code for open dimensions: gradients by which inputs cannot be open."""
    calls_left: int = 0
    """In so many calls, this signature gets code of its own; 0: never."""
    own: Compiled | None = None
    """That code, while it is compiled."""
    used: int = 0
    """When a call last had it from Python, on `_clock`."""


_clock = itertools.count(1)


class CachedCall:
    """The compiled form of a hybridized block, called instead of `hybrid_forward`. Thread-safe."""

    not_yet = NotCompiledYet

    def __init__(self, block: Hybrid, flags: dict[str, Any]) -> None:
        self.block = block
        self.backend = get_backend(flags.get("backend"))
        self.options = dict(flags.get("backend_opts") or {})
        self.remat = flags.get("remat")
        self.cache_size: int = flags.get("cache_size") or CACHE_SIZE
        self.log: CompileLog = block._jit_log
        self._made: deque[Signature] = deque(maxlen=HISTORY)
        """What code was last compiled for."""
        self._given_back: deque[Hashable] = deque(maxlen=MAX_SIGNATURES)
        """Signatures whose code has gone because others were used more recently."""
        self._count = 0
        """How many codes were compiled."""
        self.waits = bool(flags.get("wait", True))
        """Whether a call waits for its code, rather than raise `NotCompiledYet`."""
        self.dynamic: Declared | bool | None = flags.get("dynamic")
        self.traces: list[Trace] = []
        self.releases = bool(flags.get("static_alloc"))
        """Whether parameters that compiled code reads only as packed copies may be freed."""
        self._compiled: dict[tuple[Hashable, Context | None], Compiled] = {}
        self._lock = forks.renewed()
        self._open: list[tuple[Hashable, Compiled]] = []
        """Code for open dimensions, by what calls that it serves have in common (`_family`)."""
        self._tried: dict[Hashable, Openings] = {}
        """Which dimensions of calls were open or could not be, by what the calls have in common (`_family`)."""
        self._refusals = 0
        """How many traces failed because the program changed attributes that it reads; see `tries_again`."""
        self._refused_last = False
        self._latest: Compiled | None = None
        """The signature of the last call that could have gone directly to native code."""
        self.gradients: WeakValueDictionary[Hashable, Computation] = WeakValueDictionary()
        """What recorded calls run, by their graphs."""
        self._earlier_gradients: dict[Hashable, Computation] = block._jit_gradients or {}
        """Those of code that was dropped: differentiating takes longer than tracing."""
        block._jit_gradients = None
        self._recording_matters = False
        """Whether a trace has depended on whether its call was recorded."""

    def __call__(self, *args: Any) -> Any:
        leaves, form = flatten(args)
        self.log.count("calls")
        found = self._find(args, leaves, form, self.waits or modes.recording)
        if found.session.is_compiling and not modes.recording:
            raise NotCompiledYet
        found.trace.attributes.set_again()
        return self._run(found, leaves)

    def compile(self, *args: Any) -> Compiled:
        """Traces and compiles for arguments like `args`, without running. What a recorded call runs depends on which
        of its arrays have gradients, and is compiled by that call."""
        leaves, form = flatten(args)
        return self._find(args, leaves, form, True)

    def prepare(self, *args: Any, keep: bool) -> int:
        """`compile` and `Session.prepare`."""
        found = self.compile(*args)
        return found.session.prepare([*flatten(args)[0], *self._held(found.trace, found.device)], keep)

    @property
    def codes(self) -> tuple[int, int]:
        """How many codes are kept, and how many may be."""
        with self._lock:
            return len(self._sessions()), self.cache_size

    @property
    def open_code(self) -> Any:
        """What was compiled last for open dimensions (`Session.callee`); None if nothing was, or could be."""
        return self._open[-1][1].session.compiled_already if self._open else None

    def _find(self, args: Sequence[Any], leaves: Sequence[NDArray], form: Any, waits: bool) -> Compiled:
        """The signature of a call with these arguments. `waits`: its code is there, else it may still be compiling."""
        types = [type_of(x._array) for x in leaves]
        training = is_training()
        kinds = tuple([x._numpy for x in leaves])
        device = leaves[0]._device
        key = (form, tuple(types), training, modes.recording and self._recording_matters, kinds)
        found = self._compiled.get((key, device))
        if found is not None and self._fits(found, leaves, device) and self._works(found):
            if found is not self._latest:
                if self._latest is not None:  # native code may have served calls since
                    self._latest.used = next(_clock)
                found.used = next(_clock)
            if not found.calls_left or modes.recording:
                return found
            return self._counted(found, key, types, training, device, waits)
        names = tuple(self.block._argument_names(len(types)))
        signature = Signature(names, tuple(types), form, kinds, training, key[3], device)
        with self._lock, without_collector():
            # Another device has a copy of the parameters: the same code, with values prepared from that copy.
            twins = (c for (k, d), c in self._compiled.items() if k == key and d != device)
            twin = next((c for c in twins if self._fits(c, leaves, device)), None)
            if twin is not None:
                session = twin.session.for_other_parameters()
                found = self._compiled[key, device] = replace(twin, session=session, device=device, own=None)
                return found
            family = (form, training, kinds, device, tuple((t.dtype, t.rank) for t in types))
            served = self._served(family, types, training, leaves, device)
            if served is not None:
                self._compiled[key, device] = served
                return served
            known = self._known(form, kinds, types, training, leaves, device)
            new = known is None
            why = self._why(signature, (key, device))
            if known is None:
                because = self._why_traced(form, kinds, types, training, leaves, device) or why
                began = time.perf_counter()
                known = trace(self.block, args)
                self.log.add(TRACED, because, signature, time.perf_counter() - began)
                why = because
                if known.attributes.keep(self):
                    self.traces.append(known)
                self._refused_last = False
                if known.recording_fact:
                    self._recording_matters = True
                    key = (form, tuple(types), training, modes.recording, kinds)
            code = self._new_open(family, known, signature, why, waits)
            if code is None:
                found = self._new(known, signature, why, waits)
            else:
                found = self._sized(code, types, training)
            self._made.append(signature)
            if not known.attributes.stale:
                self._compiled[key, device] = found
                if code is not None:
                    self._open.append((family, code))
                    del self._open[:-MAX_OPEN]
                self._openings(family).history.append(types)
                self._give_back(found)
        if new:
            known.attributes.announce()
        return found

    def _known(
        self,
        form: Any,
        kinds: tuple[bool, ...],
        types: Sequence[TensorType],
        training: bool,
        leaves: Sequence[NDArray],
        device: Context | None,
    ) -> Trace | None:
        alike = (t for t in self.traces if t.form == form and t.in_kinds == kinds)
        return next((t for t in alike if self._serves(t, types, training, leaves, device)), None)

    def _new(self, known: Trace, signature: Signature, why: str, waits: bool) -> Compiled:
        """The trace, compiled for arguments of this signature, which may have open dimensions; `why` that is needed."""
        types, training, device = signature.types, signature.training, signature.device
        line = None if waits else user_loc()
        session = Session(
            known.graph(types, training),
            self.backend,
            self.options,
            params=_params(known, len(types)),
            written=known.writes,
            streams=known.streams(training),
            compiled=lambda callee, seconds: self._note(COMPILED, why, signature, callee, seconds, line),
        )
        if not waits:
            session.compile_meanwhile(lambda problem: self._compiled_meanwhile(session, known, device, problem))
        elif not modes.recording:
            _ = session.callee  # compiled now, so that a failure leaves nothing behind
            self._share(session, known, device)
        return Compiled(known, session, known.input_types(types), device, self._recorded(known, signature, why))

    def _share(self, session: Session, known: Trace, device: Context | None) -> None:
        """Lets new code use the values that other signatures have prepared in the same way."""
        for other in self._compiled.values():
            if other.trace is known and other.device == device:
                session.share(other.session)

    def _compiled_meanwhile(
        self, session: Session, known: Trace, device: Context | None, problem: Exception | None
    ) -> None:
        with self._lock:
            if problem is None:
                self._share(session, known, device)
                return
            self._drop(session, problem)

    def _drop(self, session: Session, problem: Exception) -> None:
        """Forgets code that could not be compiled: the next call raises what is wrong, or compiles for its sizes."""
        self._compiled = {key: c for key, c in self._compiled.items() if c.session is not session}
        for family, code in self._open:
            if code.session is session:
                self._openings(family).closed = str(problem)
        self._open = [(family, code) for family, code in self._open if code.session is not session]

    def _works(self, found: Compiled) -> bool:
        """Whether there is code for this call. A recorded call may have found the signature's dimensions open, and
        compiled nothing but its gradient."""
        session = found.session
        if not session.is_open or modes.recording or session.compiled_already is not None or session.is_compiling:
            return True
        with self._lock:
            try:
                _ = session.callee
            except (IRError, MXNetError) as e:
                self._drop(session, e)
                return False
            self._share(session, found.trace, found.device)
        return True

    def _recorded(self, known: Trace, signature: Signature, why: str) -> Callable[[], Computation]:
        def note(graph: Graph, callee: Callee, seconds: float) -> None:
            self._note(GRADIENT, why, signature, callee, seconds)

        @functools.cache
        def computation() -> Computation:
            graph = known.graph(signature.types, signature.training)
            # What the program writes to an array has a gradient, too.
            graph = replace(graph, outputs=(*graph.outputs, *(graph.updates[k][1] for k in known.assigned)))
            key = graph_key(graph), repr(sorted(graph.attrs.items()))
            found = self._earlier_gradients.pop(key, None)
            if found is None:
                found = Computation(graph, compiled(self.backend, self.options, note), self.remat)
            self.gradients[key] = found
            return found

        return computation

    # ---- open dimensions

    def _served(
        self,
        family: Hashable,
        types: Sequence[TensorType],
        training: bool,
        leaves: Sequence[NDArray],
        device: Context | None,
    ) -> Compiled | None:
        """The signature, by code for open dimensions that is there already."""
        for same, code in self._open:
            if same != family or not self._fits(code, leaves, device):
                continue
            open_types = code.types[: len(types)]
            if fits(open_types, types):
                if self._works(code):
                    return self._sized(code, types, training)
            elif fits(open_types, types, 1) and not modes.recording and self._serves_1(code, types, training):
                return self._sized(code, types, training, alone=True)
        return None

    def _counted(
        self,
        found: Compiled,
        key: Hashable,
        types: Sequence[TensorType],
        training: bool,
        device: Context | None,
        waits: bool,
    ) -> Compiled:
        """What serves one more call of a signature that has no code of its own yet."""
        with self._lock:
            if found.calls_left != 1:
                found.calls_left = max(found.calls_left - 1, 0)
                return found
            if found.own is None:
                try:
                    names = tuple(self.block._argument_names(len(types)))
                    signature = Signature(names, tuple(types), training=training, device=device)
                    why = f"{CALLS_OF_1} calls with a dimension of 1, which code of its own serves faster"
                    found.own = self._new(found.trace, signature, why, waits)
                except (IRError, MXNetError):
                    found.calls_left = 0
                    return found
            if found.own.session.is_compiling:
                return found
            found.calls_left = 0
            if found.own.session.compiled_already is None:
                return found
            if self._compiled.get((key, device)) is found:
                self._compiled[key, device] = found.own
            return found.own

    def _serves_1(self, code: Compiled, types: Sequence[TensorType], training: bool) -> bool:
        """Whether code for open dimensions, which takes these types if they may be 1, is right for them."""
        known, session = code.trace, code.session
        if session.compiled_already is None or session.lowest > 1 or not known.holds(types, training):
            return False
        sizes = sizes_of(code.types[: len(types)], [t.shape for t in types], 1)
        try:
            return graph_key(known.graph(types, training)) == graph_key(with_sizes(session.graph, sizes, 1))
        except (IRError, MXNetError):
            return False

    def _new_open(
        self,
        family: Hashable,
        known: Trace,
        signature: Signature,
        why: str,
        waits: bool,
    ) -> Compiled | None:
        """The trace, compiled for types like these with open dimensions; None if there are none, or cannot be any."""
        declared, types, training = self.dynamic, signature.types, signature.training
        if declared is False or not opens_dimensions(self.backend):
            return None
        tried = self._openings(family)
        if tried.closed is not None:
            return None
        candidates: Iterable[tuple[TensorType, ...]]
        if isinstance(declared, Mapping):
            given = declared_open(declared, self.block._argument_names(len(types)), types)
            candidates = [tuple(given)] if given is not None and not tried.has_failed(tuple(given)) else []
        else:
            candidates = tried.candidates(types)
        for open_types in candidates:
            try:
                if broken := known.broken(open_types, training):
                    raise Undecided(broken)
                code = self._new(known, signature._replace(types=tuple(open_types)), why, waits)
            except Exception as e:
                if is_from_signal(e):
                    raise
                if not isinstance(e, (IRError, MXNetError)):
                    warnings.warn(
                        f"{known.name}: please report this fault of the compiler, {e!r}", stacklevel=stacklevel()
                    )
                if isinstance(declared, Mapping):
                    remedy = f"\n{WHERE_DIVIDED}" if "divided by" in str(e) else ""
                    warnings.warn(
                        f"{known.name} has no code for the dimensions given as dynamic, and is compiled for each of "
                        f"their sizes: {e}{remedy}",
                        stacklevel=stacklevel(),
                    )
                tried.failed(open_types, str(e))
            else:
                tried.succeeded()
                return code
        return None

    def _openings(self, family: Hashable) -> Openings:
        return self._tried.setdefault(family, Openings())

    def _sized(self, code: Compiled, types: Sequence[TensorType], training: bool, alone: bool = False) -> Compiled:
        """The signature of arguments of these types, served by code for open dimensions; `alone`: but for recorded
        calls, which have code of their own."""
        known = code.trace
        names = tuple(self.block._argument_names(len(types)))
        signature = Signature(names, tuple(types), training=training, device=code.device)
        own = self._recorded(known, signature, "its gradient cannot have open dimensions")
        computation = own if alone else functools.cache(lambda: OpenComputation(code.computation(), own, code.refused))
        left = CALLS_OF_1 if alone else 0
        now = next(_clock)
        return replace(code, types=known.input_types(types), computation=computation, calls_left=left, used=now)

    # ---- why, and how many

    def _why(self, signature: Signature, key: Hashable) -> str:
        """Why there is no code for this signature."""
        if dropped := self.log.taken_reason():
            return dropped
        if key in self._given_back:
            return f"its code was given back, as {self.cache_size} others had been used since (cache_size)"
        if not self._made:
            return FIRST
        return nearest_difference(signature, reversed(self._made)) or "the parameters have other shapes or types"

    def _why_traced(
        self,
        form: Any,
        kinds: tuple[bool, ...],
        types: Sequence[TensorType],
        training: bool,
        leaves: Sequence[NDArray],
        device: Context | None,
    ) -> str:
        """What the latest trace of such arguments depends on that is different now; '' if there is none."""
        for known in reversed(self.traces):
            if known.form == form and known.in_kinds == kinds:
                if broken := known.broken(types, training):
                    return broken
                if not known.holds_while(modes.recording):
                    return "the program asks whether the call is recorded"
                if not known.holds_on(device):
                    return "the program asks for the device"
                if not self._same_aliases(known, leaves):
                    return "other arguments share memory, and the program writes to some"
        return ""

    def _note(
        self, what: str, why: str, signature: Signature, callee: Callee, seconds: float, line: Loc | None = None
    ) -> None:
        """Code has been made. Warns when that was so often that the program should do something about it."""
        self.log.add(what, why, signature, seconds, isinstance(callee, Executable) and callee.was_cached, line)
        if what == COMPILED:
            self._count += 1
            if self._count == MANY:
                warnings.warn(
                    f"{self.block.name} has been compiled {MANY} times, the last time because of: {why}\n"
                    f"  instead: {self._remedy()}\n"
                    f"  {self.block.name}.explain() lists the reasons; {self.cache_size} codes are kept, or as many as "
                    "hybridize(cache_size=…) says",
                    stacklevel=stacklevel(),
                )

    def _remedy(self) -> str:
        """What helps against the differences that code was last compiled for."""
        *before, now = self._made
        if closed := [tried.closed for tried in self._tried.values() if tried.closed is not None]:
            reason = closed[-1].partition("\n")[0]
            return f"pad arguments to a few sizes, as these cannot be open: {reason}"
        if before and any(t.shape != s.shape for b in before for t, s in zip(now.types, b.types)):
            if self.dynamic is False:
                return "leave out dynamic=False: one code then serves all sizes"
            return (
                "hybridize(dynamic={…}), with a name for each dimension that changes, or pad arguments to a few sizes"
            )
        return "pass what changes as an argument, rather than as an attribute"

    def _sessions(self) -> dict[int, tuple[Session, int]]:
        """All code that is kept, and when a call last had it."""
        found: dict[int, tuple[Session, int]] = {}
        for c in (*self._compiled.values(), *(c for _, c in self._open)):
            found[id(c.session)] = c.session, max(c.used, found.get(id(c.session), (None, 0))[1])
        return found

    def _give_back(self, new: Compiled) -> None:
        """Drops what was used least recently, while there is more than may be kept."""
        new.used = next(_clock)
        if self._latest is not None:
            self._latest.used = next(_clock)
        while len(self._compiled) > MAX_SIGNATURES:
            _, _, key = min((c.used, k, key) for k, (key, c) in enumerate(self._compiled.items()))
            del self._compiled[key]
        sessions = self._sessions()
        while len(sessions) > self.cache_size:
            oldest, _ = sessions.pop(min((k for k in sessions if k != id(new.session)), key=lambda k: sessions[k][1]))
            gone = [key for key, c in self._compiled.items() if c.session is oldest]
            self._given_back.extend(gone)
            types = ", ".join(str(v.type) for v in oldest.graph.inputs[: len(new.types) - len(new.trace.params)])
            self.log.add(DROPPED, f"{self.cache_size} others were used since (cache_size)", types)
            self._compiled = {key: c for key, c in self._compiled.items() if c.session is not oldest}
            self._open = [(family, c) for family, c in self._open if c.session is not oldest]
            if self._latest is not None and self._latest.session is oldest:
                self.block._fast_call = self._latest = None
        alive = {id(c.trace) for c in (*self._compiled.values(), *(c for _, c in self._open))}
        self.traces = [t for t in self.traces if id(t) in alive or t is self.traces[-1]]

    def forget(self, log: Attributes, why: str) -> None:
        """Drops the trace with this log, and the code compiled from it."""
        self.log.drop(why, had_code=True)
        with self._lock:
            self.traces = [t for t in self.traces if t.attributes is not log]
            self._compiled = {key: c for key, c in self._compiled.items() if c.trace.attributes is not log}
            self._open = [(family, c) for family, c in self._open if c.trace.attributes is not log]
            self.block._fast_call = None

    def look_again(self) -> None:
        """Makes the next call take the Python path, which sets attributes again, even for the last signature."""
        with self._lock:
            self.block._fast_call = None

    def tries_again(self) -> bool:
        """Whether to trace again at the next call, after this one has changed attributes that it reads.

        A single failure is expected: the first call, or the first one with other shapes, may set up what later ones
        use. Two failures in a row, or `MAX_REFUSALS` in all, are not.
        """
        self._refusals += 1
        again = not self._refused_last and self._refusals < MAX_REFUSALS
        self._refused_last = True
        return again

    def _fits(self, found: Compiled, leaves: Sequence[NDArray], device: Context | None) -> bool:
        """Whether the guards outside the signature hold: device, types of held arrays, aliasing of the inputs."""
        if not found.trace.holds_on(device) or not found.trace.holds_while(modes.recording):
            return False
        held = self._held(found.trace, device)
        types = found.types[len(leaves) :]
        same = all(x._array.shape == t.shape and x._array.dtype == t.dtype.numpy for x, t in zip(held, types))
        return same and self._same_aliases(found.trace, leaves)

    def _serves(
        self,
        known: Trace,
        types: Sequence[TensorType],
        training: bool,
        leaves: Sequence[NDArray],
        device: Context | None,
    ) -> bool:
        guards = known.holds_while(modes.recording) and known.holds_on(device) and known.holds(types, training)
        return guards and self._same_aliases(known, leaves)

    @staticmethod
    def _same_aliases(known: Trace, leaves: Sequence[NDArray]) -> bool:
        return not known.writes or alias_pattern([x._array for x in (*leaves, *known.captured)]) == known.aliases

    @staticmethod
    def _held(known: Trace, device: Context | None) -> list[NDArray]:
        return [*(p._value_on(device) for p in known.params), *known.captured]

    def _run(self, compiled: Compiled, leaves: Sequence[NDArray]) -> Any:
        known, session, block = compiled.trace, compiled.session, self.block
        if compiled is not self._latest and (fast := block._fast_call) is not None:
            self.look_again()
            give_back_arena(fast)  # now: this call may have come from there, and then it still exists
        epoch = int(EPOCH[0])  # read before the versions: a write in between is seen by the next call
        arrays = [*leaves, *self._held(known, compiled.device)]
        recording = modes.recording or known.records
        if recording and known.refused_gradient is not None and any(map(tracked, arrays)):
            raise known.refused_gradient  # before random numbers are drawn: the call may now run as Python
        inputs = session.inputs(arrays)
        monitor = None
        if block._callback is not None:
            monitor = Monitor(block._callback, block._monitor_all, block._monitored_as_bound)
        if block._jit_debug_results is not None:
            block._jit_debug_results = session.intermediates(inputs)
        if recording:
            targets = [inputs.arrays[known.writes[k]] for k in known.assigned]
            with Scope(True, None):
                for x in targets:
                    refuse_write(x)
            computation, kinds = compiled.computation(), known.out_kinds
            found = recorded_call(known.name, session, computation, inputs, monitor, kinds, compiled.device, targets)
            if found is not None:
                for k, (position, offset) in known.out_views.items():
                    x, result = inputs.arrays[position], found[k]
                    found[k] = _part(x, offset, result.shape, known.out_kinds[k])
                    if is_constant(result) and tracked(x):
                        found[k] = x.detach() if found[k] is x else found[k]
                    elif found[k] is not x:
                        found[k]._grad_state = result._grad_state
                return forms.rebuild(known.out_form, found)

        def release(k: int) -> int:
            if not len(leaves) <= k < len(leaves) + len(known.params):
                return 0
            inputs.arrays[k] = inputs.elements[k] = None
            return known.params[k - len(leaves)]._release()

        releases = self.releases and self._goes_native(compiled)
        outputs = session.run(inputs, monitor, release if releases else None)
        self._install(compiled, inputs, epoch)
        results = [NDArray._wrap(x) for x in outputs]
        if compiled.device is not None:
            for x in results:
                x._storage = Storage(compiled.device)
        for k, (position, offset) in known.out_views.items():
            results[k] = _part(inputs.arrays[position], offset, outputs[k].shape, known.out_kinds[k])
        return known.rebuild(results)

    def _goes_native(self, compiled: Compiled) -> bool:
        """Whether calls with this signature can go directly to native code without a change of meaning."""
        known, callee = compiled.trace, compiled.session.callee
        if not isinstance(callee, Executable) or callee.calls_host or compiled.device is not None:
            return False
        flat = known.out_form in (ARRAY, (list, *[ARRAY] * callee.n_outputs))
        if self.block._passed_arrays(known.form) is None or not flat or compiled.session.streams:
            return False
        if known.writes or known.out_views or known.records:
            return False
        if len({*known.in_kinds, *known.out_kinds}) > 1:  # the native entry accepts and returns arrays of one class
            return False
        return not is_training() and self.block._calls_only_compiled_code()

    def _install(self, compiled: Compiled, inputs: Inputs, epoch: int) -> None:
        """Makes the next call go directly to native code, if it can."""
        known, callee = compiled.trace, compiled.session.callee
        given = self.block._passed_arrays(known.form)
        if given is None or not isinstance(callee, Executable) or not self._goes_native(compiled):
            return
        if compiled.calls_left:
            return  # calls must be seen to be counted
        if any(watched is not None and watched[0].exposed for watched in inputs.versions):
            return  # another framework may write there unnoticed
        last, self._latest = self._latest, compiled
        if compiled is not last and len(self._compiled) > 1:
            return  # not worth it for each of many sizes that come by once
        callee = callee.fitting(inputs.elements)
        prepared = callee.prepared_from(inputs.versions)
        if prepared is None:
            return  # another thread has run the code with other parameters meanwhile
        rest = callee.check(inputs.elements)[given:]
        bare = known.out_form == ARRAY
        wrapper = type(as_np(NDArray._wrap(np.empty(0)))) if any(known.out_kinds) else NDArray
        calls = self.log.native_calls
        fast = fast_call(callee, given, rest, prepared, epoch, wrapper, self.block._slow_call, bare, calls)
        with self._lock:
            current = any(c is compiled for c in self._compiled.values())
            if (
                current and known.attributes.as_set and self.block._jit_cached is self
            ):  # else the block has changed meanwhile
                self.block._fast_call = fast


def _part(x: NDArray, offset: int, shape: tuple[int, ...], kind: bool) -> NDArray:
    """A view of the elements of `x` from `offset` on; `x` itself if it has that shape and kind."""
    if x.shape == shape and x._numpy == kind:
        return x
    part = x._view(x._array.reshape(-1)[offset : offset + math.prod(shape)].reshape(shape))
    return as_np(part) if kind else as_nd(part)


def _params(known: Trace, n_args: int) -> list[int]:
    """Positions of the graph's inputs that change rarely: neither arguments of the call nor written by it."""
    rarely = range(n_args, n_args + len(known.params) + len(known.captured))
    return [k for k in rarely if k not in known.writes]


def trace_call(block: Hybrid, args: Sequence[Any], dynamic: Declared | None = None) -> Graph:
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
    return graph.with_attrs(params=tuple(_params(known, len(leaves))))
