"""What the caller of native code has to know: where each function finds its buffers, and what a whole program is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gluonjit.common.lazy import cached_property
from gluonjit.ir.dims import LOWEST, at
from gluonjit.ir.machine import WORTH_A_THREAD
from gluonjit.ir.sizes import sized
from gluonjit.ir.types import TensorType

CALLBACK = "gluonjit_evaluate"
"""The function that kernels of `codegen/kernels/host.py` call, which is of `runtime.host`."""


@dataclass(frozen=True)
class Layout:
    """What each word of a native function's table points to."""

    input_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    arena: Any
    """Bytes of the arena, in which all intermediates lie."""
    constants: tuple[np.ndarray, ...]
    prepared: int = 0
    scratch: Any = 0
    """Bytes of scratch memory per thread; those of thread t begin at t times this number."""
    threads: int = 1
    """How many threads are worth using; with 1 the code has no barriers, and looks at no team."""
    cost: Any = 0
    """Nanoseconds that one thread is expected to take."""
    dims: tuple[str, ...] = ()
    """The open dimensions; the table holds a size for each. Types, `arena`, `scratch` and `cost` may be open."""
    ready: tuple[int, ...] = ()
    """For each result, after how many kernels it is complete; the code writes that number into the table as it gets
    there. Empty if it does not (see `codegen.threads.calls`)."""

    @cached_property
    def input_slots(self) -> range:
        return range(len(self.input_types))

    @cached_property
    def result_slots(self) -> range:
        return range(self.input_slots.stop, self.input_slots.stop + len(self.result_types))

    @cached_property
    def prepared_slots(self) -> range:
        return range(self.result_slots.stop, self.result_slots.stop + self.prepared)

    @cached_property
    def constant_slots(self) -> range:
        return range(self.prepared_slots.stop, self.prepared_slots.stop + len(self.constants))

    @cached_property
    def arena_slot(self) -> int:
        return self.constant_slots.stop

    @cached_property
    def scratch_slot(self) -> int:
        return self.arena_slot + 1

    @cached_property
    def team_slot(self) -> int:
        """`codegen.threads.team.Block`: where threads meet."""
        return self.arena_slot + 2

    @cached_property
    def size_slots(self) -> range:
        return range(self.team_slot + 1, self.team_slot + 1 + len(self.dims))

    @cached_property
    def progress_slot(self) -> int:
        """Where the least number of kernels that have run is: a number, not a pointer."""
        return self.size_slots.stop

    @cached_property
    def size(self) -> int:
        """Number of words."""
        return self.size_slots.stop + bool(self.ready)

    def sized(self, sizes: Mapping[str, int]) -> Layout:
        """The layout with these sizes of the open dimensions: the same words, but types and numbers are known."""
        cost = at(self.cost, sizes)
        return replace(
            self,
            input_types=tuple(sized(t, sizes) for t in self.input_types),
            result_types=tuple(sized(t, sizes) for t in self.result_types),
            arena=at(self.arena, sizes),
            scratch=at(self.scratch, sizes),
            threads=max(1, min(self.threads, cost // WORTH_A_THREAD)),
            cost=cost,
        )


@dataclass
class Prepare:
    """A function that computes one component of what depends on parameters alone."""

    name: str
    layout: Layout
    inputs: tuple[int, ...]
    """Which of the main function's inputs it takes."""
    slots: tuple[int, ...]
    """Where the main function's table holds its results."""
    key: str = ""
    """Equal for components that compute the same, in whatever program."""


@dataclass
class Interface:
    """What the caller of a program's native code has to know."""

    main: Layout
    n_outputs: int
    """How many of the results are outputs; the rest are updated states."""
    prepares: tuple[Prepare, ...] = ()
    calls_host: bool = False
    """Whether it may call Python, so that there may be an error to raise when it returns (`runtime.host`)."""
    unread: tuple[int, ...] = ()
    """Inputs that the main function does not read."""
    lowest: int = LOWEST
    """The least size of an open dimension: 1 if nothing relies on larger ones."""
