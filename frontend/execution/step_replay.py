"""Steps of training as one native call.

A step of training, `with record(): loss = loss_of(net(x), y)`, `loss.backward()`, `trainer.step(n)`, is a chain of
native calls: the forward half of each hybridized block, their backward halves in the opposite order, and the update of
the weights. Python between them takes longer than a small network. So a `Trainer` has one of its first steps observed
(`Observation`). If that was such a chain, and nothing else, a `StepReplay` stands for the steps to come: while they
make the same calls, each is noted and returns at once, and `trainer.step` runs the whole chain. Its arrays are deferred
until then (`ndarray/deferred.py`), so that whoever looks at a loss, a gradient or a parameter too early just makes the
step come in pieces: what was called up to there is computed first, as if it had been at once. Parameters, gradients and
states stay deferred from one step to the next: while nobody looks at them, a step need not check them again.

Whatever is not as it was observed (another shape, a hook, a new parameter array, `grad_req`, another thread) takes the
ordinary way, call by call.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import attrgetter, is_
from threading import get_ident
from typing import Any

import numpy as np

from gluonjit.autodiff.tape import Edge
from gluonjit.execution.cached_call import no_replay
from gluonjit.execution.step_chain import StepChain
from gluonjit.ir.types import IRError
from gluonjit.language import rng
from gluonjit.language.forms import ARRAY
from gluonjit.language.interrupts import Uninterrupted
from gluonjit.language.modes import Scope, leave_natively, modes
from gluonjit.language.running import no_trace
from gluonjit.language.source import shown, user_loc
from gluonjit.ndarray import NDArray, deferred
from gluonjit.ndarray.deferred import (
    Held,
    changes,
    deferred_class,
    elements,
    made,
    now,
    origin_of,
    own_class,
    replace,
    stand_in,
    storage_of,
)
from gluonjit.ndarray.gradient_listeners import listeners
from gluonjit.ndarray.observed_steps import HYBRIDIZE, Observation, ObservedCall, Unfit
from gluonjit.ndarray.variable import Variable
from gluonjit.runtime import mode
from gluonjit.runtime.executable import Bound
from gluonjit.runtime.native_exit import native_exit
from gluonjit.runtime.native_note import Noting, Passed
from gluonjit.runtime.storage import EPOCH

MOST_COPIED = 1 << 20
"""Bytes of an argument that is copied where another array may share its memory."""
MISSES = 3
"""How many steps in turn that begin as observed, but go on otherwise, end a replay."""
IDLE = 8
"""How many steps of its trainer in turn without it end it, too: its blocks may have been hybridized anew."""

_LOOKED = (
    "an array of the step is looked at before `backward`, or `backward` is not that of the loss alone: look after it, "
    "better after `step`"
)
_NOT_CALLED = "its blocks are not called as in the step observed: they may have been hybridized anew or traced again"
_SAME_SIZES = 'give all batches one size (last_batch="discard")'


def replay(observation: Observation, trainer: Any, updates: Sequence[Any], step: Any) -> StepReplay:
    """What stands for steps like the observed one, which ended with these updates, taken by `step`
    (`optimizer.step.BoundStep`, or None). Unfit if nothing can."""
    if observation.why_not:
        raise Unfit(observation.why_not)
    if not observation.is_complete:
        raise Unfit("no `backward` comes between it and the step before: take one step after each backward")
    if step is None or not isinstance(step.call, Bound):
        raise Unfit("the optimizer's update is not one native call: another optimizer may have that")
    for call in observation.calls:
        if not _is_up_to_date(call):
            raise Unfit(f"{call.caller.block.name} or its parameters change during it: change them between steps")
    try:
        chain = StepChain(observation.calls, step.call)
    except IRError as e:
        raise Unfit(str(e)) from e
    written = {id(x.grad) for x in chain.gradients}
    if {*chain.gradients} != observation.leaves or len(written) < len(observation.leaves):
        raise Unfit("arrays outside of hybridized blocks have gradients, too: let blocks hold them as parameters")
    work = trainer._work()
    if len(work) != len(updates) or not written >= {id(grad) for _, grad, _ in work}:
        raise Unfit("the trainer has parameters whose gradients the step does not compute: leave them out")
    return StepReplay(observation.calls, chain, trainer, updates, step)


def _is_up_to_date(call: ObservedCall) -> bool:
    """Whether the next call would run the same code on the same arrays: programs may change blocks and parameters
    before a step has ended."""
    held, variables = call.arrays[call.arguments :], [x for x in call.sources if isinstance(x, Variable)]
    if not any(code is call.code for code in call.caller.store.entries):
        return False
    if any(p._plain is not x for p, x in zip(call.code.trace.params, held)):
        return False
    return all(any(x._grad_state is variable for x in held) for variable in variables)


_array, _request = attrgetter("_plain"), attrgetter("_grad_req")
_listening = listeners.data  # type: ignore[attr-defined]
"""What `listeners` looks at to tell whether it is empty; it takes its time."""


class _Link:
    """What a step needs to know of one of its calls, at hand."""

    __slots__ = (
        "block",
        "caller",
        "counts",
        "drops",
        "edges",
        "is_first",
        "key",
        "note",
        "noting",
        "operands",
        "rebuild",
        "replay",
        "results",
        "streams",
    )

    def __init__(self, replay: weakref.ref[StepReplay], call: ObservedCall, chain: StepChain, i: int) -> None:
        self.replay, self.is_first = replay, not i
        self.caller, self.block, self.drops = call.caller, call.caller.block, call.caller.drops
        self.counts = call.caller.log.counts
        places, sources = chain.arguments[i], chain.from_calls[i]
        kinds = [(x.__class__, deferred_class(x.__class__)) for x in call.arrays[: call.arguments]]
        self.operands: list[tuple[Any, ...]] = [
            (*kind, place, sources.get(k)) for k, (kind, place) in enumerate(zip(kinds, places))
        ]
        """For each argument its own and its deferred class, its place, and the call and the result that it is."""
        self.key, self.streams = chain.keys[i], call.code.session.streams
        self.results = [(deferred_class(x.__class__), place) for x, place in zip(call.results, chain.results[i])]
        self.edges = [(x.__class__, Edge(call.node, number)) for number, x in enumerate(call.results)]
        """The results' own classes, and their origins once `backward` has freed the node."""
        self.noting: Noting | None = None
        self.note: Any = None
        """Does what `StepReplay._noted` does, natively; None if it cannot."""
        trace = call.code.trace
        self.rebuild = None if trace.out_form == ARRAY else trace.rebuild

    def enter(self, *args: Any) -> Any:
        """A call of the block, for which it has nothing to do but run compiled code (`HybridBlock._fast_call`)."""
        replay = self.replay() if modes.recording else None
        if replay is not None:
            found, waiting = None, now.step
            if waiting is None:
                found = replay.begins(args) if self.is_first else None
            elif waiting is replay:
                found = replay.takes(self.caller, args)
            if found is not None:
                return found
        return self.block._slow_call(*args)


def _note_natively(links: Sequence[_Link], noted: list[Any]) -> None:
    """Has the calls noted by native code that have one result and are passed arrays and such results."""
    for link in links:
        if link.rebuild is not None or len(link.results) != 1:
            continue
        ((kind, place),) = link.results
        result = Passed(link.edges[0][0], kind, place.shape, place.dtype, place.words)
        arguments: list[Any] = [
            links[source[0]].noting if place is None else Passed(own, kind, place.shape, place.dtype, place.words)
            for own, kind, place, source in link.operands
        ]
        if None not in arguments:
            link.noting = Noting(arguments, result, noted)
            link.note = link.noting.note


class StepReplay:
    """A chain that stands for the steps of a trainer. Those whose work it takes over call its methods, which tell
    whether it does. A small network's step is shorter than this Python, so little is called here that is not needed."""

    def __init__(
        self, calls: Sequence[ObservedCall], chain: StepChain, trainer: Any, updates: Sequence[Any], step: Any
    ) -> None:
        self._calls = [call._replace(arrays=call.arrays[call.arguments :], results=[]) for call in calls]
        self._chain, self._trainer = chain, weakref.ref(trainer)
        self._updates, self._step, self._update = updates, step, step.call
        self._work = trainer._work()
        self._indices = [k for k, _, _ in self._work]
        self._stepped = [x._grad_state for _, _, x in self._work]
        self._others = [x for x in chain.gradients if x not in self._stepped]
        """The variables whose gradients the update reads, and other ones."""
        self._optimizer, self._updater = trainer._optimizer, trainer._updaters[0]
        self._optimizer_states = [*map(self._updater.states.get, self._indices)]
        self._misses = self._idle = 0
        self._refused: tuple[int, str] = 0, ""
        """Why a step was last not replayed, or not to its end, after how many that were."""
        self._owner = 0
        """The thread whose step waits."""
        self._made: list[tuple[Sequence[Any], list[Any]]] = []
        """Arguments and results of the calls that it has made."""
        self._is_backward = False
        """Whether it has called `backward`, too."""
        self._deferred: list[Any] = []
        """Its arguments, as far as they are deferred: the same list in all steps, which native code knows."""
        own = weakref.ref(self)
        self._links = [_Link(own, call, chain, i) for i, call in enumerate(calls)]
        _note_natively(self._links, self._deferred)
        self._first, self._after = self._links[0], dict(enumerate(self._links))
        read = [x for call in self._calls for x in call.arrays]
        self._parameters = [*{id(x): x for x in read}.values()]
        """The arrays that programs of blocks hold."""
        self._variables = [x._grad_state for x in self._parameters]
        self._params = [p for call in calls for p in call.code.trace.params]
        self._trained = trainer._params
        self._arrays, self._requests = [*map(_array, self._params)], [*map(_request, self._trained)]
        self._seen = -1
        """`changes.parameters` when these were last found to be the same."""
        self._blocks = [call.caller.block for call in calls]
        computed = [*(x.grad for x in chain.gradients), *(x for x, _ in chain.states)]
        self._held = Held(read, computed, step.written(updates))
        weakref.finalize(self, self._held.dismiss).atexit = False
        self._has_run = 0
        """How many calls of the chain have run in this step, so that only what must follow may be missing."""
        calls[0].caller.replay = own
        self.install()
        leave_natively(native_exit)

    def install(self) -> None:
        """Has calls of the blocks come here at once, until other calls of theirs have native code installed there."""
        for link in self._links:
            if link.caller.block._calls_only_compiled_code():
                link.caller.block._fast_call = link.enter

    @property
    def count(self) -> int:
        """How many steps it has replayed, at least up to their gradients."""
        return self._chain.chain.runs

    @property
    def why_not(self) -> str:
        """Why the steps since the last one that was replayed were not; '' if that is unknown, or there were none."""
        count, why = self._refused
        return why if count == self.count else ""

    def _refuse(self, why: str, link: _Link | None = None) -> None:
        """A step is not replayed, or not to its end. `link`: of the block that `why` is about."""
        self._refused = self.count, why if link is None else f"{link.caller.block.name} {why}"

    # ---- a step that waits

    def begins(self, args: tuple[Any, ...]) -> Any:
        """The result of the first call of a step, which is recorded, to be computed later; None if it cannot be."""
        with deferred.lock:
            if now.step is not None or not self._may_begin():
                return None
            self._is_backward, self._has_run, self._owner = False, 0, get_ident()
            if not self._held.are_deferred:
                self._held.defer()
            now.step = self  # last: whoever is interrupted before has not begun a step
            found = self._noted(self._first, args)
            if found is None:
                now.step = None
            return found

    def takes(self, caller: Any, args: tuple[Any, ...]) -> Any:
        """The result of a recorded call of this step, to be computed later; None, and the step is settled, if it is
        another one."""
        with deferred.lock:
            if now.step is not self or self._owner != get_ident():
                return None
            link = self._after.get(len(self._made))
            block, usual = caller.block, modes.training and not modes.anomalies
            usual = usual and block._callback is None and block._jit_debug_results is None
            if link is not None and link.caller is caller and usual:
                found = self._noted(link, args)
                if found is not None:
                    return found
                why = self.why_not
            else:
                why = f"{caller.block.name} is called in another place or in another way than in the step observed"
            self.settle(why)
        return None

    def _may_begin(self) -> bool:
        if not modes.training:
            return False
        if modes.anomalies or _listening or mode.is_kept_off():
            self._refuse("`detect_anomaly`, mx.profiler or sums over processes look at each call: end that")
            return False
        for block in self._blocks:
            if block._callback is not None or block._jit_debug_results is not None:
                self._refuse(f"{block.name} has a monitor, or keeps intermediate results (debug=True)")
                return False
        count = changes.parameters  # before what is looked at
        same = count == self._seen
        if not same:
            same = all(map(is_, map(_array, self._params), self._arrays))
            same = same and all(map(is_, map(_request, self._trained), self._requests))
            self._seen = count if same else -1
        if same and self._held.are_deferred:
            return True
        same = same and all(x._grad_state is variable for x, variable in zip(self._parameters, self._variables))
        if not same or not self._held.are_intact:
            self._end("a parameter has got another array, gradient or `grad_req`: change these before training")
            return False
        if self._held.may_be_shared:
            self._refuse("a view, or another framework, shares memory with a parameter, a gradient or a state: drop it")
            return False
        return True

    def _noted(self, link: _Link, args: tuple[Any, ...]) -> Any:
        """The deferred result of the next call; None, and nothing is noted, if its arguments are not such as were
        observed."""
        if link.note is not None and link.caller.drops == link.drops:
            found = link.note(*args)
            if found is not None:
                if link.key is not None:
                    link.key[:] = rng.reserve(link.streams)
                self._made.append((args, [found]))
                link.counts["calls"] += 1
                return found
        if len(args) != len(link.operands):
            return self._refuse(f"is called with {len(args)} arguments, after {len(link.operands)}", link)
        if link.caller.drops != link.drops:
            return self._refuse("was traced again: its `explain()` says why", link)
        before, arguments, elsewhere = self._made, [], []
        for x, (own, kind, place, source) in zip(args, link.operands):
            if place is None:
                j, number = source
                if x is not before[j][1][number]:
                    return self._refuse(f"is passed something else than the result of a block: {HYBRIDIZE}", link)
                arguments.append(x)
                continue
            if x.__class__ is own:
                array, storage, origin = x._array, x._storage, x._grad_state
            elif any(x is y for y in self._deferred):
                array, storage, origin = elements(x), storage_of(x), origin_of(x)
            else:  # a parameter, or a result that is something else here
                return self._refuse("is passed an array that the step itself computes or updates", link)
            if array.shape != place.shape or array.dtype != place.dtype:
                return self._refuse(f"is passed an array of another shape or type: {_SAME_SIZES}", link)
            if origin is not None:
                return self._refuse(f"is passed an array that has a gradient, or was recorded: {HYBRIDIZE}", link)
            if not array.flags.aligned or storage is not None and storage.context is not None:
                return self._refuse("is passed an array that is not aligned, or on another device", link)
            if array.base is not None or storage is not None and (storage.aliased or storage.exposed):
                if array.nbytes > MOST_COPIED:
                    return self._refuse("is passed a large array that shares memory: pass a copy", link)
                array = array.copy()
                x = NDArray._wrap(array)
                x.__class__ = own
            arguments.append(x)
            elsewhere.append((x, own, kind, place, array))
        for x, own, kind, place, array in elsewhere:
            place.set(array)
            if x.__class__ is own:
                self._deferred.append(x)
                x.__class__ = kind
        if link.key is not None:
            link.key[:] = rng.reserve(link.streams)
        results = []
        for kind, place in link.results:
            array = np.empty(place.shape, place.dtype)
            place.set(array)
            results.append(made(kind, array))
        if link.noting is not None:
            link.noting.returned(results[0])
        before.append((arguments, results))
        link.counts["calls"] += 1
        return results[0] if link.rebuild is None else link.rebuild(results)

    def takes_backward(self, heads: Sequence[Any], given: Sequence[Any], keeps_graph: bool, train_mode: bool) -> bool:
        """Whether this `backward` is the step's own, which will be computed later."""
        with deferred.lock:
            if now.step is not self or self._is_backward or len(self._made) != len(self._calls):
                return False
            if keeps_graph or not train_mode or modes.anomalies or _listening or self._owner != get_ident():
                return False
            if len(heads) != 1 or heads[0] is not self._made[-1][1][0] or given[0] is not None:
                return False
            self._is_backward = True
            if self._held.are_watched:
                EPOCH[0] += 1  # native code that reads them comes to see that they are deferred
        return True

    # ---- the end of a step

    def settle(self, why: str = _LOOKED) -> None:
        """Computes what the step has called so far, in the ordinary way as far as the tape has to know of it. `why`:
        what ends the step, if that is before `backward`."""
        with deferred.lock, Uninterrupted(), no_trace():
            if now.step is not self:
                return
            if self._is_backward:
                self._misses = self._idle = 0  # half a step saved
                self._compute(self._chain.halves)
                return
            self._misses += 1
            self._refuse(why)
            if self._misses >= MISSES:
                self._end(f"in {MISSES} steps in turn, the last time at {shown(user_loc())}, {why}")
            try:
                with Scope(True, True):
                    self._record()
            finally:
                self._held.release()
                self._forget()

    def _record(self) -> None:
        """Computes the calls so far one by one, noted on the tape."""
        ordinary = self._held.classes | {id(x): own_class(x) for x in self._deferred}
        for i, (call, link, (arguments, results)) in enumerate(zip(self._calls, self._links, self._made)):
            given = [*arguments, *call.arrays]
            arrays = [stand_in(x, ordinary[id(x)]) if id(x) in ordinary else x for x in given]
            key = self._chain.keys[i]
            found = call.caller.recorded_now(call.code, arrays, None if key is None else key.copy())
            for x, (own, _), y in zip(results, link.edges, found, strict=True):
                y._grad_state.node.place = call.node.place  # the user's line, which this is not
                replace(x, own, y)

    def ends_with_update(self) -> bool:
        """Takes the whole step, if all but the trainer's `step` has been called; its `rescale_grad` is set."""
        trainer = self._trainer()
        with deferred.lock:
            if trainer is None or now.step is not self or self._owner != get_ident():
                self._idle += 1
                if self._idle >= IDLE:
                    self._end(f"in {IDLE} steps in turn, {self.why_not or _NOT_CALLED}")
                return False
            usual = trainer._kvstore is None and not trainer._params_to_init and trainer._kv_initialized
            usual = usual and not hasattr(trainer, "_amp_loss_scaler") and self._is_bound(trainer)
            if not self._is_backward or self._has_run or not usual:
                self.settle()
                return False
            try:
                updates = self._counted()
            except BaseException:
                self.settle()
                raise
            # An optimizer that looks at gradients has had them computed.
            if updates is None and now.step is self:
                self._compute(self._chain.halves + 1)
            else:
                self.settle()
                trainer._steps.take(self._updates if updates is None else updates)
                for _, _, weight in self._work:
                    weight._fresh_grad = False
            self._misses = self._idle = 0
        return True

    def _is_bound(self, trainer: Any) -> bool:
        """Whether the trainer's update is still that of the chain, but for its numbers."""
        optimizer, states = self._optimizer, map(self._updater.states.get, self._indices)
        same = trainer._optimizer is optimizer and trainer._updaters[0] is self._updater
        same = same and self._updater.optimizer is optimizer and self._step.call is self._update
        return same and all(map(is_, states, self._optimizer_states))

    def _counted(self) -> Any:
        """Counts the update and sets its numbers; returns None, or what is to be done instead, if the optimizer now
        wants something else than was observed."""
        optimizer = self._optimizer
        if self._step.settings is not None and optimizer._has_settings(self._step.settings):
            optimizer._update_count(self._indices)
            return None
        indices, gradients, weights = ([*part] for part in zip(*self._work))
        updates = self._updater._prepare(indices, gradients, weights)
        if updates is None:
            return []  # a user's optimizer has done it all
        if len(updates) != len(self._updates) or not all(map(_is_alike, updates, self._updates)):
            return updates
        self._step.set_numbers(updates)
        self._step.settings = optimizer._settings(self._indices)
        return None

    def _compute(self, count: int) -> None:
        """Runs the first calls of the chain, all halves at least, unless some have run. What follows is done even if a
        signal's handler raises an error as soon as they have run; if it does so later, by the next one who looks at an
        array."""
        before = self._chain.chain.runs
        try:
            if not self._has_run:
                self._chain.chain.run(count)
        finally:
            if self._chain.chain.runs > before:
                self._has_run = count
            if self._has_run:
                self._finish(self._has_run > self._chain.halves)

    def _finish(self, has_updated: bool) -> None:
        """Notes what the chain has written, and makes results and arguments ordinary arrays; without the update, all
        arrays. May be called again."""
        for x, new in self._chain.states:
            np.copyto(elements(x), new)
        if not (has_updated and self._held.are_noted):
            self._held.note_writes(has_updated)
            for variable in self._others if has_updated else self._chain.gradients:
                variable.fresh = True
            if has_updated:
                for variable in self._stepped:
                    variable.fresh = False
                self._held.are_noted = True
        for link, (_, results) in zip(self._links, self._made):
            link.counts["parts"] += 1
            for x, (own, edge) in zip(results, link.edges):
                x.__class__ = own
                x._grad_state = edge
        if not has_updated:
            self._held.release()
        self._forget()

    def _forget(self) -> None:
        """No step waits any more."""
        for x in self._deferred:
            x.__class__ = own_class(x)
        now.step = None
        self._made = []
        self._deferred.clear()

    def _end(self, why: str) -> None:
        """No further steps are replayed; the trainer may have others observed."""
        caller = self._calls[0].caller
        if caller.replay() is self:
            caller.replay = no_replay
        trainer = self._trainer()
        if trainer is not None and trainer._replay is self:
            trainer._replay, trainer._why_not_replayed = None, why
            trainer._replayed += self.count


def _is_alike(u: Any, observed: Any) -> bool:
    """Whether two updates differ in their numbers alone."""
    if u.rule is not observed.rule or u.rows_only != observed.rows_only or u.scalars.keys() != observed.scalars.keys():
        return False
    return len(u.arrays) == len(observed.arrays) and all(map(is_, u.arrays, observed.arrays))
