"""Passes: functions from Graph to Graph, each in the file of its name, and the manager that runs them.

Importing this package imports no pass; `run_passes` finds each by its name when it is first asked for. The manager is
imported at the first use of it: a process that finds its code in the object cache needs no more than `pipelines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gluonjit.passes.manager import (
        Pass,
        PassError,
        all_passes,
        find_pass,
        parse_pipeline,
        register_pass,
        run_passes,
    )

__all__ = ["Pass", "PassError", "all_passes", "find_pass", "parse_pipeline", "register_pass", "run_passes"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gluonjit.passes import manager

    return getattr(manager, name)
