"""Where a native function finds its buffers."""

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
    def size(self) -> int:
        """Number of words."""
        return self.arena_slot + 1
