"""What the caller of native code has to know: where each function finds its buffers, and what a whole program is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gluonjit.ir.types import TensorType


@dataclass
class Layout:
    """What each word of a native function's table points to."""

    input_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    arena: int
    """Bytes."""
    constants: tuple[np.ndarray, ...]
    prepared: int = 0
    scratch: int = 0
    """Bytes per thread; thread t's begin at t times as many."""
    threads: int = 1
    """How many threads are worth using; with 1 the code has no barriers, and looks at no team."""
    cost: int = 0
    """Nanoseconds that one thread is expected to take."""

    @property
    def input_slots(self) -> range:
        return range(len(self.input_types))

    @property
    def result_slots(self) -> range:
        return range(self.input_slots.stop, self.input_slots.stop + len(self.result_types))

    @property
    def prepared_slots(self) -> range:
        return range(self.result_slots.stop, self.result_slots.stop + self.prepared)

    @property
    def constant_slots(self) -> range:
        return range(self.prepared_slots.stop, self.prepared_slots.stop + len(self.constants))

    @property
    def arena_slot(self) -> int:
        return self.constant_slots.stop

    @property
    def scratch_slot(self) -> int:
        return self.arena_slot + 1

    @property
    def team_slot(self) -> int:
        """`codegen.team.Block`: where threads meet."""
        return self.arena_slot + 2

    @property
    def size(self) -> int:
        """Number of words."""
        return self.team_slot + 1


@dataclass
class Prepare:
    """One component of what depends on parameters alone."""

    name: str
    layout: Layout
    inputs: tuple[int, ...]
    """Which of the main function's inputs it takes."""
    slots: tuple[int, ...]
    """Where the main function's table holds its results."""


@dataclass
class Interface:
    """What the caller of a program's native code has to know."""

    main: Layout
    n_outputs: int
    """How many of the results are outputs; the rest are updated states."""
    prepares: tuple[Prepare, ...] = ()
    calls_host: bool = False
    """Whether it may call Python, and then hold an error in the end (`runtime.host`)."""
    unread: tuple[int, ...] = ()
    """Inputs that the main function does not read."""
