"""What else a machine does while something is measured on it."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_STAT = "/proc/stat"
"""Where Linux counts the time of all cores; its first line is described in proc(5)."""
_LEAST = 0.1
"""Seconds: Linux counts in hundredths, so shorter times say nothing."""


class MachineUse(NamedTuple):
    """How many cores were at work, as means over a stretch of time."""

    cores: int
    """Cores that the machine has."""
    own: float
    """Cores at work for this process."""
    others: float
    """Cores at work for other programs, or taken away by the host of a virtual machine."""

    def crowded(self, threads: int) -> bool:
        """Whether the others took cores that this process would have used for `threads` threads."""
        return self.others > max(self.cores - threads, 0) + 0.1


class Clocks(NamedTuple):
    """Clocks at one moment, in seconds."""

    wall: float
    own: float
    machine: float | None
    """CPU time of everyone since the machine started; None where the system does not tell."""

    @classmethod
    def read(cls) -> Clocks:
        return cls(time.perf_counter(), time.process_time(), _machine_seconds())

    def use_since(self) -> MachineUse | None:
        """The use from this moment to now; None if the system does not tell, or too little time has passed."""
        now = Clocks.read()
        seconds = now.wall - self.wall
        if self.machine is None or now.machine is None or seconds < _LEAST:
            return None
        own = (now.own - self.own) / seconds
        return MachineUse(os.cpu_count() or 1, own, max((now.machine - self.machine) / seconds - own, 0.0))


def _machine_seconds() -> float | None:
    try:
        with open(_STAT, encoding="ascii") as file:
            user, nice, system, _idle, _iowait, interrupts, softirqs, steal = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + interrupts + softirqs + steal) / os.sysconf("SC_CLK_TCK")
