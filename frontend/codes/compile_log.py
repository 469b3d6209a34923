"""What a hybridized block has traced and compiled, and why: `net.explain()`, and GLUONJIT_LOG=compile.

Whoever waits for a compiler a second time asks what was different. So every trace and compilation has a reason, in the
words of the caller: a shape, an element type, a mode, an attribute that was set, code that had been evicted.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from gluonjit.common.quantities import noun_text
from gluonjit.context import Context
from gluonjit.ir.graph import Loc
from gluonjit.ir.types import TensorType
from gluonjit.language.modes import logs_compiling
from gluonjit.language.source import shown, user_loc
from gluonjit.runtime import forks

KEPT = 1024
"""Events that are kept per block; older ones are only counted."""
_PRINTED = 40
"""Events, the latest ones, that are in the text of an explanation."""
_SHOWN = 3
"""The most arguments that a reason names, of those that differ."""

FIRST = "first call"

TRACED, COMPILED, PYTHON, DROPPED = "traced", "compiled", "runs as Python", "dropped"
FORWARD, BACKWARD = "compiled a forward half", "compiled a backward half"
"""What an event says. The halves are those of a recorded call: one saves what the other, its gradient, reads."""


class Signature(NamedTuple):
    """What a call's code depends on. `names` and `types` are of the arrays among its arguments; `form` is how these are
    nested, `kinds` which of them are arrays of `mx.np`."""

    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    form: Hashable = None
    kinds: tuple[bool, ...] = ()
    training: bool = False
    recording: bool = False
    device: Context | None = None

    def __str__(self) -> str:
        modes = [word for word, on in (("training", self.training), ("recorded", self.recording)) if on]
        device = [str(self.device)] if self.device is not None else []
        return ", ".join([*map(str, self.types), *modes, *device])

    def differences(self, before: Signature) -> list[str]:
        """How this call differs from an earlier one, in a few words each."""
        if self.form != before.form or len(self.types) != len(before.types):
            return ["the arguments are nested in another way"]
        parts = [
            _type_difference(k, name, now, then)
            for k, (name, now, then) in enumerate(zip(self.names, self.types, before.types))
            if now != then
        ]
        if len(parts) > _SHOWN:
            parts[_SHOWN:] = [f"and {len(parts) - _SHOWN} more"]
        if self.kinds != before.kinds:
            parts.append("other arguments are arrays of mx.np")
        if self.training != before.training:
            parts.append("training mode" if self.training else "inference, after training mode")
        if self.recording != before.recording:
            parts.append("the call is recorded" if self.recording else "the call is not recorded")
        if self.device != before.device:
            parts.append(f"on {self.device or 'cpu(0)'}, after {before.device or 'cpu(0)'}")
        return parts


def nearest_difference(now: Signature, before: Iterable[Signature]) -> str:
    """How a call differs from the most similar one of those `before`; '' if there are none."""
    different = [found for then in before if (found := now.differences(then))]
    if not different:
        return ""
    nearest = min(different, key=len)
    return "; ".join(nearest)


def _type_difference(position: int, name: str, now: TensorType, then: TensorType) -> str:
    where = f"argument {position}" if name in ("data", f"data{position}") else f"argument {position} ({name})"
    if now.dtype != then.dtype:
        return f"element type of {where}: {now.dtype.name}, had {then.dtype.name}"
    return f"shape of {where}: {_shape(now)}, had {_shape(then)}"


def _shape(t: TensorType) -> str:
    return "×".join(map(str, t.shape)) if t.shape else "()"


@dataclass(frozen=True)
class Event:
    """Something that a call waited for, or that has consequences for later ones."""

    what: str
    """TRACED, COMPILED, FORWARD, BACKWARD, PYTHON or DROPPED."""
    why: str
    signature: str
    """What it is for; '' for all calls."""
    seconds: float
    cached: bool
    """Whether the code was in the object cache."""
    line: Loc
    """The user's line that made the call."""
    kernels: tuple[int, int] = (0, 0)
    """How many kernels of compiled code were in files (`gluonjit warm`), and how many it has; zeros if that is not
    known."""

    def __str__(self) -> str:
        took = f" in {_duration(self.seconds)}" if self.seconds else ""
        took += ", from the object cache" if self.cached else ""
        if self.kernels[0]:
            took += ", {} of {} kernels from files".format(*self.kernels)
        of = f" for {self.signature}" if self.signature else ""
        at = f"  at {shown(self.line)}" if str(self.line) else ""
        return f"{self.what}{of}{took}: {self.why}{at}"


class CompileLog:
    """What has happened to one block since it was made. Thread-safe."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: deque[Event] = deque(maxlen=KEPT)
        self.counts: defaultdict[str, int] = defaultdict(int)  # a Counter takes ten times as long to count
        """Under `lock`: how often each kind of event came, "calls" of the compiled form from Python, those of
        them that were "parts" of steps of training that ran as one call or that ended in Python ("fallbacks"), calls
        that went to Python at once ("interpreted"), and "cached" compilations."""
        self.native_calls = np.zeros(1, np.int64)
        """Calls that went straight into native code, which counts them itself (`codegen.entry.Field.CALLS`)."""
        self.seconds = 0.0
        """What all compilations took."""
        self.dropped_because = ""
        """Why there is no code, where there was some before."""
        self.lock = forks.renewed()

    def add(
        self,
        what: str,
        why: str,
        signature: object = "",
        seconds: float = 0.0,
        cached: bool = False,
        line: Loc | None = None,
        kernels: tuple[int, int] = (0, 0),
    ) -> None:
        """`line`: of the call, if it is on another thread; else it is where the program is now."""
        event = Event(what, why, str(signature), seconds, cached, user_loc() if line is None else line, kernels)
        with self.lock:
            self.events.append(event)
            self.counts[what] += 1
            self.counts["cached"] += cached
            if what in (COMPILED, FORWARD, BACKWARD):
                self.seconds += seconds
        _say(self.name, event)

    def runs_as_python(self, why: str, line: Loc | None) -> None:
        """`line`: what keeps it from being compiled."""
        self.add(PYTHON, why, line=line)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def drop(self, why: str, had_code: bool) -> None:
        """Code, if there was any, is no longer valid."""
        if had_code:
            self.dropped_because = why
            self.add(DROPPED, why)

    def taken_reason(self) -> str:
        """Why the block has no code; '' when it is asked again."""
        why, self.dropped_because = self.dropped_because, ""
        return why


class ExplainedSteps(NamedTuple):
    """Whether the steps of a trainer are replayed: run as one native call, or as two if the program looks at a gradient
    in between (`execution.step_replay`)."""

    are_replayed: bool
    """Whether those to come are, if they go on as before."""
    replayed: int
    """How many were."""
    why_not: str
    """Why the last ones were not, and what to do; '' if they were, or if none has been observed yet."""

    def __str__(self) -> str:
        if self.are_replayed:
            return f"{self.replayed} replayed" + (f"; not the last ones: {self.why_not}" if self.why_not else "")
        before = f"no longer replayed, {self.replayed} were" if self.replayed else "not replayed"
        return f"{before}: {self.why_not or 'none has been observed yet, the fourth one will be'}"


trainers: WeakKeyDictionary[Any, None] = WeakKeyDictionary()
"""The `gluon.Trainer`s that were made, in this order."""


def explained_steps(params: Iterable[Any]) -> list[ExplainedSteps]:
    """Whether the steps of each trainer of some of these parameters are replayed, if it has taken any."""
    own = {*map(id, params)}
    # `keyrefs` lists them at once, though another thread may make one meanwhile.
    alive = (reference() for reference in trainers.keyrefs())
    found = [trainer for trainer in alive if trainer is not None and not own.isdisjoint(map(id, trainer._params))]
    return [steps for trainer in found if (steps := trainer._explained_steps()) is not None]


class Explanation:
    """What `net.explain()` returns: prints as a text, and has the numbers."""

    def __init__(
        self,
        name: str,
        log: CompileLog | None,
        state: str,
        kept: int,
        limit: int,
        inner: Sequence[Any],
        steps: Iterable[ExplainedSteps],
    ) -> None:
        self.name = name
        self.state = state
        """Whether and how calls run."""
        self.kept, self.limit = kept, limit
        """How many codes there are now, and may be at most."""
        self.events: list[Event] = list(log.events) if log is not None else []
        counts: Mapping[str, int] = defaultdict(int) if log is None else log.counts
        self.native_calls = int(log.native_calls[0]) if log is not None else 0
        self.calls = self.native_calls + counts["calls"] + counts["interpreted"]
        """Calls of the hybridized block, those that ran as Python included."""
        self.parts_of_steps = counts["parts"]
        """Calls that waited for the end of a step of training, which then ran as one native call."""
        self.traces, self.compiles = counts[TRACED], sum(counts[what] for what in (COMPILED, FORWARD, BACKWARD))
        self.cache_hits = counts["cached"]
        self.fallbacks = counts["fallbacks"] + counts["interpreted"]
        """Calls that ran as Python, operator by operator, although the block is hybridized."""
        self.seconds = log.seconds if log is not None else 0.0
        """What all compilations took."""
        self.inner: list[Explanation] = list(inner)
        """The explanations of blocks inside that were compiled by themselves."""
        self.steps: list[ExplainedSteps] = list(steps)
        """For each trainer of its parameters that has taken steps."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.state}"
        if self.calls or self.events:
            others = f", {self.fallbacks} of them ran as Python" if self.fallbacks else ""
            others += f", {self.parts_of_steps} as parts of whole steps of training" if self.parts_of_steps else ""
            yield f"  {noun_text(self.calls, 'call')}, {self.native_calls} of them straight into native code{others}"
        if self.traces or self.compiles:
            hits = f", {self.cache_hits} from the object cache" if self.cache_hits else ""
            kept = f"; {noun_text(self.kept, 'code')} kept, of at most {self.limit}" if self.limit else ""
            yield (
                f"  traced {noun_text(self.traces, 'time')}, compiled {noun_text(self.compiles, 'time')} in "
                f"{_duration(self.seconds)}{hits}{kept}"
            )
        yield from (f"  steps of training: {steps}" for steps in self.steps)
        if len(self.events) > _PRINTED:
            yield f"  … {len(self.events) - _PRINTED} events before these are in `.events`"
        yield from (f"  - {event}" for event in self.events[-_PRINTED:])
        for part in self.inner:
            yield from (f"  {line}" for line in part._lines())


def explained(block: Any, steps: Iterable[ExplainedSteps] = ()) -> Explanation:
    """What `block.explain()` returns; a user's block may have another method of that name."""
    inner = [explained(child) for child in block._children.values() if _has_log(child)]
    state, kept, limit = block._compiled_state()
    return Explanation(block.name, block._jit_log, state, kept, limit, inner, steps)


def _has_log(block: Any) -> bool:
    return block._jit_log is not None or any(map(_has_log, block._children.values()))


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def say_compiled(name: str, why: str, what_for: str, seconds: float, cached: bool) -> None:
    """For plain operators and steps of optimizers, which have no `explain()`."""
    if logs_compiling():
        _say(name, Event(COMPILED, why, what_for, seconds, cached, user_loc()))


def _say(name: str, event: Event) -> None:
    if logs_compiling():
        print(f"gluonjit: {name} {event}", file=sys.stderr)
