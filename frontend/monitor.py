"""`mx.mon`: statistics of the arrays in an executor, every few batches."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from gluonjit.base import py_str
from gluonjit.ndarray import NDArray

__all__ = ["Monitor"]


class Monitor:
    """Collects statistics of executors' arguments and operators' results whose names match `pattern`.

    Call `tic()` before a batch and `toc()` after it: for every `interval`-th batch, `toc` returns the statistics.
    `stat_func(array)` returns an array or a list of them; the default is the norm divided by √size. `monitor_all`
    includes operators' inputs.
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[NDArray], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ) -> None:
        self.interval = interval
        self.stat_func = stat_func or (lambda x: x.norm() / x.size**0.5)
        self.re_prog = re.compile(pattern)
        self.sort = sort
        self.monitor_all = monitor_all
        self.activated = False
        self.queue: list[tuple[int, str, Any]] = []
        self.step = 0
        self.exes: list[Any] = []
        self.stat_helper = self._note  # an attribute, as in MXNet

    def _note(self, name: str | bytes, array: NDArray) -> None:
        """Notes the statistics of one array, if this batch is looked at."""
        if isinstance(name, bytes):
            name = py_str(name)
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def install(self, exe: Any) -> None:
        """Registers the monitor with an executor."""
        exe.set_monitor_callback(self.stat_helper, self.monitor_all)
        self.exes.append(exe)

    def tic(self) -> None:
        """Call it before a batch."""
        if self.step % self.interval == 0:
            self.queue = []
            self.activated = True
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """Call it after a batch: (batch, name, statistics as text) of every array; empty for most batches."""
        if not self.activated:
            return []
        for exe in self.exes:
            for name, array in {**exe.arg_dict, **exe.aux_dict}.items():
                self._note(name, array)
        self.activated = False
        if self.sort:
            self.queue.sort(key=lambda entry: entry[1])
        queue, self.queue = self.queue, []
        return [(step, name, _text(values)) for step, name, values in queue]

    def toc_print(self) -> None:
        """`toc`, logged."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %30s %s", step, name, text)


def _text(values: Any) -> str:
    values = values if isinstance(values, list) else [values]
    return "".join(f"{v.asscalar() if v.shape == (1,) else v.asnumpy()}\t" for v in values)
