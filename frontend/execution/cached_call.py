"""The hybridized call: finds its code, runs it, and has the next call enter native code directly.

`CachedCall` finds what serves the arguments in its `store`, or lets the `BlockCompiler` make it. A `Session` runs it.
The code that served the last call is installed on the block as `_fast_call`, whose native entry checks the arguments
itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gluonjit.autodiff.recorded_calls import recorded_call
from gluonjit.autodiff.tape import is_constant, refuse_write
from gluonjit.execution.block_compiler import BlockCode, BlockCompiler, Traceable
from gluonjit.execution.session import Inputs, Monitor, Session
from gluonjit.language import forms
from gluonjit.language.forms import ARRAY
from gluonjit.language.kinds import as_nd, as_np
from gluonjit.language.modes import Scope, is_training, modes
from gluonjit.ndarray import NDArray, deferred
from gluonjit.ndarray.variable import tracked
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.fast_call import fast_call, give_back_arena
from gluonjit.runtime.storage import EPOCH, Storage
from gluonjit.trace import guards
from gluonjit.trace.block_attributes import Attributes
from gluonjit.trace.guards import KEY, Arguments
from gluonjit.trace.tracing import Trace, flatten


class NotCompiledYet(Exception):
    """Another thread compiles the code of this call, which should not wait for it (`hybridize(wait=False)`)."""


def no_replay() -> None:
    """What `CachedCall.replay` is where there is none."""


class Hybrid(Traceable, Protocol):
    """A program whose calls are compiled: Gluon's HybridBlock."""

    _jit_cached: Any
    """Its `CachedCall`, until the block changes."""
    _callback: Callable[..., None] | None
    """The hook that is shown every operator's results."""
    _monitor_all: bool
    _monitored_as_bound: bool
    _jit_debug_results: dict[str, Any] | None
    """Where the results of the last call's operators are kept; None if they are not."""

    def _passed_arrays(self, form: Any) -> int | None:
        """The number of arrays passed to the native entry for arguments of this form; None if it cannot serve them."""

    def _calls_only_compiled_code(self) -> bool:
        """Whether a call only runs compiled code, without hooks and the like."""

    def _slow_call(self, *args: Any) -> Any:
        """The path that the native entry takes for arguments that fail its checks."""


class CachedCall:
    """The compiled form of a hybridized block, called instead of `hybrid_forward`. Thread-safe."""

    not_yet = NotCompiledYet

    def __init__(self, block: Hybrid, flags: dict[str, Any]) -> None:
        self.block = block
        self.compiler = BlockCompiler(block, flags, self, self._forget_code)
        self.store = self.compiler.store
        self.log = self.compiler.log
        self.waits = bool(flags.get("wait", True))
        """Whether a call waits for its code, rather than raise `NotCompiledYet`."""
        self.releases = bool(flags.get("static_alloc"))
        """Whether parameters that compiled code reads only as packed copies may be freed."""
        self._latest: BlockCode | None = None
        """The code of the last call that could have gone directly to native code."""
        self.drops = 0
        """How many traces have been dropped."""
        self.replay: Callable[[], Any] = no_replay
        """Gives the `StepReplay` that begins with its recorded calls, or None."""

    def __call__(self, *args: Any) -> Any:
        call = self._arguments(args)
        with self.log.lock:
            self.log.counts["calls"] += 1
        code = self.store.find(call[KEY])
        held = guards.held(code.trace, code.types, call) if code is not None else None
        if code is None or held is None or not call.recording and (code.calls_left or not code.session.has_code):
            code = self.compiler.code(call, args, self.waits or call.recording)
            if not call.recording and code.session.is_compiling:
                raise NotCompiledYet
            held = guards.held(code.trace, code.types, call)
            assert held is not None
        if code.trace.attributes.finals:
            code.trace.attributes.set_again()
        held[:0] = call.leaves  # in this list, as `_run` may free some, to which nothing else must refer
        return self._run(code, held, len(call.leaves))

    def deferred(self, args: tuple[Any, ...]) -> Any:
        """The result of a call that is a part of a step to be replayed; None if this one is not."""
        if not modes.recording:
            return None
        step = deferred.now.step
        if step is not None:
            return step.takes(self, args)
        replay = self.replay()
        found = replay.begins(args) if replay is not None else None
        if found is not None:
            replay.install()
        return found

    @property
    def is_watched(self) -> bool:
        """Whether something wants to see the results of operators."""
        return self.block._callback is not None or self.block._jit_debug_results is not None

    def _arguments(self, args: tuple[Any, ...]) -> Arguments:
        leaves: Sequence[NDArray] = args
        if all(x.__class__ is NDArray for x in args):
            form: Any = (tuple, *[ARRAY] * len(args))
        else:
            leaves, form = flatten(args)
        storage = leaves[0]._storage if leaves else None
        return Arguments(
            leaves,
            form,
            tuple([(x._array.shape, x._array.dtype) for x in leaves]),
            tuple([x._numpy for x in leaves]),
            modes.training,
            modes.recording and self.compiler.recording_matters,
            storage.context if storage is not None else None,
            modes.recording,
        )

    def compile(self, *args: Any) -> BlockCode:
        """Traces and compiles for arguments like `args`, without running. What a recorded call runs depends on which
        of its arrays have gradients, and is compiled by that call."""
        code = self.compiler.code(self._arguments(args), args, True)
        if not modes.recording:
            _ = code.session.callee
        return code

    def prepare(self, *args: Any, keep: bool) -> int:
        """`compile` and `Session.prepare`."""
        code, call = self.compile(*args), self._arguments(args)
        held = guards.held(code.trace, code.types, call)
        assert held is not None
        return code.session.prepare([*call.leaves, *held], keep)

    @property
    def traces(self) -> list[Trace]:
        """The traces that are kept, the latest last."""
        return self.compiler.traces

    @property
    def codes(self) -> tuple[int, int]:
        """How many codes are kept, and how many may be."""
        return len(self.store), self.store.limit

    @property
    def open_code(self) -> Any:
        """What was compiled last for open dimensions (`Session.callee`); None if nothing was, or could be."""
        codes = self.store.open_entries
        return codes[-1].session.compiled_already if codes else None

    # ---- what keeps calls from going directly to native code

    def _forget_code(self, session: Session) -> None:
        if self._latest is not None and self._latest.session is session:
            self.block._fast_call = self._latest = None

    def forget(self, log: Attributes, why: str) -> None:
        """Drops the trace with this log, and the code compiled from it."""
        self.log.drop(why, had_code=True)
        with self.store.lock:
            self.compiler.discard(log)
            self.block._fast_call, self.replay = None, no_replay
            self.drops += 1

    def look_again(self) -> None:
        """Makes the next call take the Python path, which sets attributes again, even for the last signature."""
        with self.store.lock:
            self.block._fast_call = None

    # ---- running

    def _run(self, code: BlockCode, arrays: list[NDArray], count: int) -> Any:
        """The result of a call with these arrays, of which `count` are arguments."""
        known, session, block = code.trace, code.session, self.block
        if code is not self._latest and (fast := block._fast_call) is not None:
            self.look_again()
            give_back_arena(fast)  # now: this call may have come from there, and then it still exists
        epoch = int(EPOCH[0])  # read before the versions: a write in between is seen by the next call
        recording = modes.recording or known.records
        if recording or self.releases or block._callback is not None or block._jit_debug_results is not None:
            if recording and known.refused_gradient is not None and any(map(tracked, arrays)):
                raise known.refused_gradient  # before random numbers are drawn: the call may now run as Python
            inputs = session.inputs(arrays)
            monitor = self._observed(session, inputs)
            if recording and (found := self._recorded(code, inputs, monitor)) is not None:
                return forms.rebuild(known.out_form, found)
            outputs = session.run(inputs, monitor, self._releasing(code, inputs, count))
        else:
            inputs, outputs = session.call(arrays)
        self._install(code, inputs, epoch)
        results = [NDArray._wrap(x) for x in outputs]
        if code.device is not None:
            for x in results:
                x._storage = Storage(code.device)
        for k, (position, offset) in known.out_views.items():
            results[k] = _part(inputs.arrays[position], offset, outputs[k].shape, known.out_kinds[k])
        return known.rebuild(results)

    def _observed(self, session: Session, inputs: Inputs) -> Monitor | None:
        """Keeps all intermediate results, if they were asked for. Returns the monitor that the call shows results
        to."""
        block = self.block
        if block._jit_debug_results is not None:
            block._jit_debug_results = session.intermediates(inputs)
        if block._callback is None:
            return None
        return Monitor(block._callback, block._monitor_all, block._monitored_as_bound)

    def recorded_now(self, code: BlockCode, arrays: list[NDArray], key: np.ndarray | None) -> list[NDArray]:
        """The results of a recorded call of this code, noted on the tape. `key`: its random key, if it has one."""
        inputs = code.session.inputs(arrays, key)
        found = self._recorded(code, inputs, None)
        assert found is not None, "gradients flow through it"
        return found

    def _recorded(self, code: BlockCode, inputs: Inputs, monitor: Monitor | None) -> list[NDArray] | None:
        """The results of a recorded call; None if no gradient flows through it."""
        known = code.trace
        targets = [inputs.arrays[known.writes[k]] for k in known.assigned]
        with Scope(True, None):
            for x in targets:
                refuse_write(x)
        computation, kinds = code.computation(), known.out_kinds
        found = recorded_call(known.name, code.session, computation, inputs, monitor, kinds, code.device, targets)
        if deferred.observed.by is not None:
            deferred.observed.by.note_call(self, code, inputs.arrays, found)
        if found is None:
            return None
        for k, (position, offset) in known.out_views.items():
            x, result = inputs.arrays[position], found[k]
            found[k] = _part(x, offset, result.shape, known.out_kinds[k])
            if is_constant(result) and tracked(x):
                found[k] = x.detach() if found[k] is x else found[k]
            elif found[k] is not x:
                found[k]._grad_state = result._grad_state
        return found

    def _releasing(self, code: BlockCode, inputs: Inputs, count: int) -> Callable[[int], int] | None:
        """The function that frees a parameter of which only the packed copy is needed; None if none is to be freed."""
        if not self.releases or not self._goes_native(code):
            return None
        params = code.trace.params

        def release(k: int) -> int:
            if not count <= k < count + len(params):
                return 0
            inputs.arrays[k] = inputs.elements[k] = None
            return params[k - count]._release()

        return release

    def _goes_native(self, code: BlockCode) -> bool:
        """Whether calls like this can go directly to native code without a change of meaning."""
        known, callee = code.trace, code.session.compiled_already
        if not isinstance(callee, Executable) or callee.calls_host or code.device is not None:
            return False
        flat = known.out_form in (ARRAY, (list, *[ARRAY] * callee.n_outputs))
        if self.block._passed_arrays(known.form) is None or not flat or code.session.streams:
            return False
        if known.writes or known.out_views or known.records:
            return False
        if len({*known.in_kinds, *known.out_kinds}) > 1:  # the native entry accepts and returns arrays of one class
            return False
        return not is_training() and self.block._calls_only_compiled_code()

    def _install(self, code: BlockCode, inputs: Inputs, epoch: int) -> None:
        """Makes the next call go directly to native code, if it can."""
        known, callee = code.trace, code.session.compiled_already
        given = self.block._passed_arrays(known.form)
        if given is None or not isinstance(callee, Executable) or not self._goes_native(code):
            return
        if code.calls_left:
            return  # calls must be seen to be counted
        if any(watched is not None and watched[0].exposed for watched in inputs.versions):
            return  # another framework may write there unnoticed
        last, self._latest = self._latest, code
        if code is not last and len(self.store.items) > 1:
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
        with self.store.lock:
            current = any(c is code for c in self.store.entries)
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
