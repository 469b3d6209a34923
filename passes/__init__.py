"""Passes: functions from Graph to Graph, each in the file of its name, and the manager that runs them.

Importing this package imports no pass; `run_passes` finds each by its name when it is first asked for. The manager is
imported at the first use of it: a process that finds its code in the object cache needs no more than `pipelines`.

Programs that train may find all of their code there, too. So what differentiates names modules of passes by this
package, as in `passes.partition.divide`: each is imported at its first use. (It is imported as `gluonjit.passes`, for
`from gluonjit import passes` asks `gluonjit` first, which has no such attribute, and looks for what was meant.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gluonjit.common.aside import imported

if TYPE_CHECKING:
    from gluonjit.passes import differentiate, differentiate_control, open_channels, partition, row_gradients
    from gluonjit.passes.manager import (
        Pass,
        PassError,
        all_passes,
        find_pass,
        parse_pipeline,
        register_pass,
        run_passes,
    )

_NAMES = ("Pass", "PassError", "all_passes", "find_pass", "parse_pipeline", "register_pass", "run_passes")
"""Of the manager."""
_MODULES = ("differentiate", "differentiate_control", "open_channels", "partition", "row_gradients")

__all__ = [
    "Pass",
    "PassError",
    "all_passes",
    "differentiate",
    "differentiate_control",
    "find_pass",
    "open_channels",
    "parse_pipeline",
    "partition",
    "register_pass",
    "row_gradients",
    "run_passes",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return imported(f"{__name__}.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gluonjit.passes import manager

    return getattr(manager, name)
