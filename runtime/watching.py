"""Results of native code while it computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


class Progress:
    """A run that is under way on another thread. Result k is complete, and nobody writes to it any more, once
    `steps()` is at least `ready[k]`.

    `word`: where the code notes how many kernels have run; `ready` is empty if it does not."""

    def __init__(self, ready: tuple[int, ...], word: np.ndarray) -> None:
        self.ready = ready
        self._word = word

    def steps(self) -> int:
        return int(self._word[0])


Watch = Callable[[Sequence[np.ndarray], Progress], object]
"""A function that is called when a run begins, with its results, which are not computed yet."""
