"""`Observation`: what the calls of a step of training were, for what replays such steps (`execution/step_replay.py`).

Nothing here knows of the compiler, so that programs which hybridize nothing need not import it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gluonjit.ndarray.ndarray import NDArray
from gluonjit.ndarray.variable import Variable

MOST_CALLS = 16
"""Of blocks, in a step that is worth replaying."""
HYBRIDIZE = "hybridize the loss, too, and leave no operator outside of hybridized blocks"
"""What to do where operators are a part of the step."""


class Unfit(Exception):
    """The observed step is no chain that can be replayed. Its text says why, and what to do (`net.explain()`)."""


class ObservedCall(NamedTuple):
    """A recorded call of a hybridized block, whose gradient has not been computed yet."""

    caller: Any
    """Its `CachedCall`."""
    code: Any
    """What it ran, a `BlockCode`."""
    arrays: list[NDArray]
    """The arguments, then the arrays that the program holds."""
    arguments: int
    """How many of them are arguments."""
    results: list[NDArray]
    node: Any
    """The `GraphNode` that has noted it."""
    forward: Any
    """The `Forward` that has run, and its `Backward`."""
    backward: Any
    sources: tuple[Any, ...]
    written: Sequence[NDArray]
    """The states that get new values with the gradient."""


class Observation:
    """What a thread does in one step of training, until its trainer ends it."""

    def __init__(self) -> None:
        self.calls: list[ObservedCall] = []
        self.leaves: set[Variable] = set()
        """The variables whose gradients were written."""
        self.why_not = ""
        """What was no part of a chain; '' up to then."""
        self.is_complete = False
        """Whether `backward` has been called."""

    def note_call(self, caller: Any, code: Any, arrays: Sequence[NDArray], results: Sequence[NDArray] | None) -> None:
        """A recorded call has computed `results` from these arrays; None: no gradient flows through it."""
        nodes: set[Any] = {getattr(x._grad_state, "node", None) for x in results or ()}
        node: Any = nodes.pop() if len(nodes) == 1 else None
        is_block = getattr(node, "backward", None) is not None and getattr(node, "forward", None) is not None
        name = caller.block.name
        if self.is_complete:
            self._give_up(f"{name} is called, recorded, between `backward` and `step`: take a step after each backward")
        elif not is_block:
            self._give_up(f"no gradient flows through the recorded call of {name}: call it in `autograd.pause()`")
        elif len(self.calls) == MOST_CALLS:
            self._give_up(f"it calls more than {MOST_CALLS} hybridized blocks: hybridize the one that calls them")
        if self.why_not:
            return
        assert results is not None
        count = len(arrays) - len(code.trace.params) - len(code.trace.captured)
        parts = node.forward, node.backward, node.sources, node.written
        self.calls.append(ObservedCall(caller, code, [*arrays], count, [*results], node, *parts))

    def note_backward(
        self, heads: Sequence[NDArray], given: Sequence[Any], keeps_graph: bool, train_mode: bool, leaves: Any
    ) -> None:
        """`backward` has written the gradients of `leaves`."""
        self.leaves = {*leaves}
        if self.is_complete:
            self._give_up("`backward` is called twice: take a step after each")
        elif not self.calls:
            self._give_up("no hybridized block is called in it: hybridize the network and the loss")
        elif heads[0] is not self.calls[-1].results[0]:
            name = self.calls[-1].caller.block.name
            self._give_up(f"`backward` does not begin at the result of {name}, its last hybridized block: {HYBRIDIZE}")
        elif len(heads) > 1 or given[0] is not None or keeps_graph or not train_mode:
            self._give_up("`backward` is called with more than one array or with options: call `loss.backward()`")
        self.is_complete = True

    def _give_up(self, why: str) -> None:
        """What comes is no chain: keeps nothing of it alive, for as long as no trainer ends the step."""
        self.why_not = self.why_not or why
        self.calls.clear()
        self.leaves.clear()
