"""The parent's side of `benchmarks.worker`: an engine that runs turns on request, and whose process is stopped between.

Threads of a stopped process do not spin, so the engine whose turn it is has the cores to itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import OURS

ROOT = Path(__file__).resolve().parents[1]
_LOST = 0.03
"""The largest share of the cores' time that other processes may have in a turn."""


class EngineFailed(Exception):
    """The engine is not installed, cannot run the model, or has died; the message says which."""


@dataclass(frozen=True)
class Turn:
    seconds: float
    """Per call."""
    cpu: float
    """CPU time divided by wall time: the number of busy cores."""
    disturbed: bool
    """Whether other processes had too much of the cores."""


class Engine:
    """Use it in a `with` statement."""

    def __init__(self, name: str, folder: Path, cpus: list[int], python: str = sys.executable) -> None:
        self.name = name
        self.threads = len(cpus)
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", name, str(folder.resolve()), ",".join(map(str, cpus))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            text=True,
        )
        try:
            facts = self._answer()
            if "failed" in facts:
                raise EngineFailed(facts["failed"])
        except BaseException:
            self.close()
            raise
        self.first: float = facts["first"]
        """Seconds from the model's files to the first result, the engine's import included."""
        self.memory: int = facts["memory"]
        self.version: str = facts["version"]
        self.work: float | None = facts["work"]
        self._signal("SIGSTOP")

    def turn(self, calls: int) -> Turn:
        facts = self._ask(f"turn {calls}")
        wall, cpu, waited = facts["wall"], facts["cpu"], facts["waited"]
        available = wall * self.threads
        # Threads that wait while all cores work for this very process are too many of its own.
        lost = available - cpu
        if waited is not None:
            lost = min(lost, waited)
        elif self.threads > 1:
            lost = 0.0  # the number of runnable threads is not known
        return Turn(wall / calls, cpu / wall, lost > _LOST * available)

    def outputs(self) -> list[np.ndarray]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "outputs.npz")
            self._ask(f"outputs {path}")
            with np.load(path) as archive:
                return list(archive.values())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._signal("SIGCONT")
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        self._signal("SIGSTOP")
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self._process.wait()
        self._log.seek(0)
        last = self._log.read().strip().splitlines()[-1:]
        raise EngineFailed(" ".join([f"died with exit status {self._process.returncode}", *last]))

    def _signal(self, name: str) -> None:
        if hasattr(signal, name):
            self._process.send_signal(getattr(signal, name))


def start(peer: str, folder: Path, cpus: list[int], python: str = sys.executable) -> Engine:
    return Engine(f"peers.{peer}:load", folder, cpus, python)


def start_ours(folder: Path, cpus: list[int]) -> Engine:
    return start(OURS, folder, cpus)


def cores(count: int) -> list[int]:
    """CPUs to pin `count` threads to, of different cores; the last ones, as systems have more to do on the first."""
    from gluonjit.runtime.cores import _siblings

    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    distinct = list({_siblings(cpu): cpu for cpu in reversed(mine)}.values())
    if len(distinct) < count:
        raise SystemExit(f"{count} threads need as many cores, and this process may use {len(distinct)}")
    return sorted(distinct[:count])
