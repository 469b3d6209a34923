"""A line on the terminal that tells how far a compilation is, or other work, if it takes longer than a second.

with Progress("resnet", ["expand", "fold", "code"]) as progress:
    ...
    progress.done("expand")
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, TextIO

_AFTER = 1.0
_EVERY = 0.1
_WIDTH = 24
"""Characters of the bar."""


class Progress:
    """Steps are done in the given order. Nothing is written unless `stream` (standard error) is a terminal. `doing` is
    the line's first word."""

    def __init__(self, name: str, steps: Sequence[str], stream: TextIO | None = None, doing: str = "compiling") -> None:
        self.name = "".join(c if c.isprintable() else "?" for c in name)
        self.doing = doing
        self.steps = list(steps)
        self._count = 0
        stream = sys.stderr if stream is None else stream
        self._stream = getattr(stream, "unescaped", stream)  # the command line escapes what it prints
        self._end = threading.Event()
        self._begin = time.monotonic()
        self._painter: threading.Thread | None = None

    def done(self, step: str) -> None:
        """Says that a step, the first of that name that is not done yet, is done, and with it those before it."""
        if step in self.steps[self._count :]:
            self._count = self.steps.index(step, self._count) + 1

    def part(self, step: str, share: float) -> None:
        """Says how much of the steps of that name is done, from 0 to 1, and with it those before them."""
        count = int(self.steps.count(step) * min(share, 1.0))
        if count:
            self._count = max(self._count, self.steps.index(step) + count)

    def line(self) -> str:
        part = self._count / max(len(self.steps), 1)
        bar = "█" * int(part * _WIDTH)
        step = self.steps[self._count] if self._count < len(self.steps) else "done"
        return f"{self.doing} {self.name}  {bar:·<{_WIDTH}}  {time.monotonic() - self._begin:4.1f} s  {step}"

    def __enter__(self) -> Progress:
        if _is_terminal(self._stream):
            self._painter = threading.Thread(target=self._paint, daemon=True)
            self._painter.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._painter is not None:
            self._end.set()
            self._painter.join()

    def _paint(self) -> None:
        if self._end.wait(_AFTER):
            return
        while not self._end.wait(_EVERY):
            self._stream.write(f"\r{self.line()}\x1b[K")
            self._stream.flush()
        self._stream.write("\r\x1b[K")
        self._stream.flush()


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
