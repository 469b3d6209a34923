"""`StepChain`: the native calls of an observed step of training, bound to each other's arrays.

The forward halves of the blocks come first, then the backward halves in the opposite order, then the update. What
passes from one to another lies in memory that the chain keeps; gradients go to the arrays of their variables at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.autodiff.computation import code_of
from gluonjit.autodiff.tape import Edge
from gluonjit.common.quantities import bytes_text
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.observed_steps import HYBRIDIZE, ObservedCall, Unfit
from gluonjit.ndarray.variable import Variable
from gluonjit.runtime.arenas import aligned_array
from gluonjit.runtime.call_chain import CallChain
from gluonjit.runtime.executable import Bound, Executable, address_of

MOST_BYTES = 16 << 20
"""What a chain may keep from step to step: in larger steps, Python's part is not worth it."""


_OUTSIDE = f"operators outside of hybridized blocks take part in the gradient: {HYBRIDIZE}"
_ONE_BLOCK = "put them into one hybridized block"


def _calls_python(name: str) -> str:
    return f"compiled code of {name} calls Python: `gluonjit check --train` says where"


def _name(call: ObservedCall) -> str:
    found: str = call.caller.block.name
    return found


class Place:
    """An array like `observed`, of which each step has another one: the words of tables that hold its address."""

    def __init__(self, observed: np.ndarray) -> None:
        self.shape, self.dtype = observed.shape, observed.dtype
        self.array = np.empty(self.shape, self.dtype)
        """One of the same type, whose elements nobody looks at."""
        self.words: list[tuple[np.ndarray, int]] = []

    def set(self, array: np.ndarray) -> None:
        address = address_of(array)
        for table, slot in self.words:
            table[slot] = address


class StepChain:
    """The chain for these calls, the head of whose `backward` was the last one's only result, and for the update, a
    bound call. Raises Unfit where something is needed that no chain does.

    * `arguments[i][k]`: the place of argument k of call i, None for the result of an earlier call, which
      `from_calls[i][k]` names as (call, result).
    * `results[i][r]`: the places of results.
    * `keys[i]`: the array for the random key of a call, None if it has none.
    * `gradients`: the variables whose gradients it writes.
    * `states`: arrays whose new values the chain leaves elsewhere: pairs of both.
    * `chain`: the calls, of which the first `halves` compute the gradients.
    """

    def __init__(self, calls: Sequence[ObservedCall], update: Bound) -> None:
        self._calls = calls
        self._kept_bytes = 0
        self._inputs: list[list[Any]] = []
        """For each call, its inputs, each an ndarray or a place."""
        self._saved: list[list[np.ndarray]] = []
        """For each call, the results that only its gradient reads."""
        self._cotangents: dict[tuple[int, int], np.ndarray] = {}
        """By the numbers of a call and a result."""
        self.arguments: list[list[Place | None]] = []
        self.from_calls: list[dict[int, tuple[int, int]]] = []
        self.results: list[list[Place]] = []
        self.keys: list[np.ndarray | None] = []
        self.gradients: list[Variable] = []
        self.states: list[tuple[NDArray, np.ndarray]] = []
        last = len(calls) - 1
        if len(calls[last].results) != 1:
            raise Unfit(f"{_name(calls[last])}, its last block, has several results: have it return the loss alone")
        self._cotangents[last, 0] = np.ones_like(calls[last].results[0]._array)
        chain = [self._forward(i, call) for i, call in enumerate(calls)]
        chain += [self._backward(i, calls[i]) for i in reversed(range(len(calls)))]
        self.halves = len(chain)
        """How many calls compute the gradients."""
        chain.append(update.with_own_table())
        if self._cotangents.keys() != {(i, head) for i, call in enumerate(calls) for head in call.node.heads}:
            raise Unfit(_OUTSIDE)
        for arrays in (self.gradients, [id(x) for x, _ in self.states]):
            if len({*arrays}) < len(arrays):
                raise Unfit(f"two of its blocks compute the gradient or the state of one parameter: {_ONE_BLOCK}")
        if len({call.function.flush for call in chain}) > 1:
            raise Unfit("its blocks treat denormals in two ways: hybridize all with the same `flush_denormals`")
        if self._kept_bytes > MOST_BYTES:
            size, most = bytes_text(self._kept_bytes), bytes_text(MOST_BYTES)
            raise Unfit(f"{size} would be kept from step to step, and {most} at most are; nothing is lost by it")
        self.chain = CallChain(chain)
        del self._calls, self._inputs, self._saved, self._cotangents

    def _kept(self, t: Any) -> np.ndarray:
        """Memory for a value that lives from one call to another."""
        self._kept_bytes += t.nbytes
        return aligned_array(t.shape, t.dtype.numpy)

    def _bound(
        self, name: str, code: Executable | None, inputs: Sequence[Any], results: Sequence[Any] | None
    ) -> tuple[Bound, list[Any]]:
        """The call of this code, of a block of this name, with ndarrays or places; `results` of None are kept ones.
        Returns it with these."""
        arrays = [x.array if isinstance(x, Place) else x for x in inputs]
        if code is None or code.calls_host:
            raise Unfit(_calls_python(name))
        if any(p.inputs for p in code.prepared):
            raise Unfit(f"{name} reads packed copies of parameters that are not trained")
        code = code.fitting(arrays)
        made = [self._kept(t) if x is None else x for t, x in zip(code.result_types, results or [], strict=True)]
        call = code.bind(arrays, [x.array if isinstance(x, Place) else x for x in made])
        layout = call.function.layout
        for slots, given in ((layout.input_slots, inputs), (layout.result_slots, made)):
            for slot, x in zip(slots, given, strict=True):
                if isinstance(x, Place):
                    x.words.append((call.table, slot))
        return call, made

    def _forward(self, i: int, call: ObservedCall) -> Bound:
        known, node, name = call.code.trace, call.node, _name(call)
        if known.writes or known.assigned or known.out_views:
            raise Unfit(f"{name} writes to its arguments, or returns parts of them: have it return new arrays")
        if known.attributes.finals:
            raise Unfit(f"{name} sets attributes in its `hybrid_forward`: return the values instead")
        if known.records or known.recording_fact or known.context_fact:
            raise Unfit(f"{name} records, or asks whether it is recorded or where: leave that to its caller")
        if call.code.device is not None:
            raise Unfit(f"{name} is called on {call.code.device}: use `cpu()`")
        if node.masks or node.reached is not None or len(node.heads) < len(call.results):
            raise Unfit(f"no gradient flows through some result of {name}: return that by another block")
        code = code_of(call.forward.run)
        if code is None:
            raise Unfit(_calls_python(name))
        produced = {id(x): (j, r) for j, other in enumerate(self._calls[:i]) for r, x in enumerate(other.results)}
        self.from_calls.append({k: produced[id(x)] for k, x in enumerate(call.arrays) if id(x) in produced})
        if any(k >= call.arguments for k in self.from_calls[i]):
            raise Unfit(f"{name} reads the result of another block without being passed it: pass it as an argument")
        self.arguments.append(
            [None if k in self.from_calls[i] else Place(x._array) for k, x in enumerate(call.arrays[: call.arguments])]
        )
        inputs: list[Any] = [x._array for x in call.arrays]
        inputs[: call.arguments] = [
            self.results[self.from_calls[i][k][0]][self.from_calls[i][k][1]] if place is None else place
            for k, place in enumerate(self.arguments[i])
        ]
        streams = call.code.session.streams
        self.keys.append(self._kept(code.input_types[-1]) if streams else None)
        if streams:
            inputs.append(self.keys[i])
        self._inputs.append(inputs)
        self.results.append([Place(x._array) for x in call.results])
        count = len(code.result_types)
        if count < len(call.results) or call.forward.count != len(call.results):
            raise Unfit(f"{name} returns the same array twice, or an argument: have it return new arrays")
        bound, made = self._bound(name, code, inputs, [*self.results[i], *[None] * (count - len(call.results))])
        self._saved.append(made)
        return bound

    def _backward(self, i: int, call: ObservedCall) -> Bound:
        backward, node = call.backward, call.node
        if not backward.is_dense or backward.presences:
            raise Unfit(f"{_name(call)} has sparse gradients")
        if backward.calls_python:
            raise Unfit(_calls_python(_name(call)))

        def cotangent(c: Any) -> np.ndarray:
            found = self._cotangents.get((i, node.heads[c.head]))
            if found is None:
                raise Unfit(_OUTSIDE)
            return found

        def value(place: int) -> Any:
            return self._inputs[i][place] if place >= 0 else self._saved[i][-1 - place]

        inputs = backward.arguments(value, cotangent, lambda head: None)
        results = [self._destination(source) for source in call.sources] + [None] * len(call.written)
        bound, made = self._bound(_name(call), backward.computation.code, inputs, results)
        for source, x in zip(call.sources, made):
            if source.__class__ is Edge:
                j = next((j for j, other in enumerate(self._calls[:i]) if other.node is source.node), None)
                if j is None:
                    raise Unfit(_OUTSIDE)
                if (j, source.number) in self._cotangents:
                    raise Unfit(f"two blocks read the same result of {_name(self._calls[j])}: {_ONE_BLOCK}")
                self._cotangents[j, source.number] = x
        self.states += zip(call.written, made[len(call.sources) :])
        return bound

    def _destination(self, source: Any) -> np.ndarray | None:
        """Where the gradient of a source goes: to a variable's array, or None."""
        if source.__class__ is Edge:
            return None
        if source.request != "write":
            raise Unfit(f'a gradient has grad_req="{source.request}"; "write" is what is replayed')
        if source.stype != "default":
            raise Unfit("a gradient is sparse; dense ones are what is replayed")
        self.gradients.append(source)
        found: np.ndarray = source.grad._array
        return found
