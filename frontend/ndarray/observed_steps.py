"""`Observation`: what the calls of a step of training were, for what replays such steps (`execution/step_replay.py`).

Nothing here knows of the compiler, so that programs which hybridize nothing need not import it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gluonjit.ndarray.ndarray import NDArray
from gluonjit.ndarray.variable import Variable

MOST_CALLS = 16
"""Of blocks, in a step that is worth replaying."""


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
        self.fits = True
        """Whether all was part of a chain up to now."""
        self.is_complete = False
        """Whether `backward` has been called."""

    def note_call(self, caller: Any, code: Any, arrays: Sequence[NDArray], results: Sequence[NDArray] | None) -> None:
        """A recorded call has computed `results` from these arrays; None: no gradient flows through it."""
        nodes: set[Any] = {getattr(x._grad_state, "node", None) for x in results or ()}
        node: Any = nodes.pop() if len(nodes) == 1 else None
        is_block = getattr(node, "backward", None) is not None and getattr(node, "forward", None) is not None
        if not self.fits or self.is_complete or not is_block or len(self.calls) == MOST_CALLS:
            self._give_up()
            return
        assert results is not None
        count = len(arrays) - len(code.trace.params) - len(code.trace.captured)
        parts = node.forward, node.backward, node.sources, node.written
        self.calls.append(ObservedCall(caller, code, [*arrays], count, [*results], node, *parts))

    def note_backward(
        self, heads: Sequence[NDArray], given: Sequence[Any], keeps_graph: bool, train_mode: bool, leaves: Any
    ) -> None:
        """`backward` has written the gradients of `leaves`."""
        last = self.calls[-1].results[0] if self.calls else None
        usual = len(heads) == 1 and given[0] is None and not keeps_graph and train_mode
        fits = self.fits and usual and heads[0] is last and not self.is_complete
        self.is_complete, self.leaves = True, {*leaves}
        if not fits:
            self._give_up()

    def _give_up(self) -> None:
        """What comes is no chain: keeps nothing of it alive, for as long as no trainer ends the step."""
        self.fits = False
        self.calls.clear()
        self.leaves.clear()
