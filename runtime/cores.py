"""How many cores the process may use."""

from __future__ import annotations

import os
from pathlib import Path


def available_cores() -> int:
    """Cores that this process may use: those in its affinity mask, no more than its control group's quota allows.

    Hardware threads of one core count once: they share what kernels keep busy.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
        count = len(cores)
    else:
        count = os.cpu_count() or 1
    quota = _cgroup_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return max(1, count if quota is None else min(count, int(quota)))


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _cgroup_quota(membership: Path, root: Path) -> float | None:
    """Processors' worth of time that the control group grants, None if there is no limit (versions 1 and 2)."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root if not controllers else root / "cpu"
        here = top / path.lstrip("/")
        for folder in (here, *here.parents):
            quotas += _quota_of(folder)
            if folder == top:
                break
    return min(quotas, default=None)


def _quota_of(folder: Path) -> list[float]:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return [int(quota) / int(period)] if quota != "max" and int(quota) > 0 else []
    except (OSError, ValueError):
        return []  # no limit here, or no right to see it
