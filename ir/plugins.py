"""Packages of others that add passes, primitives or operators, by an entry point in the group `gluonjit.passes`:

    [project.entry-points."gluonjit.passes"]
    mine = "my_package.passes"

The value is a module, whose import declares what it adds. That happens when a name is looked up that is not known
otherwise, or when all are listed; a program that uses none of them pays nothing.
"""

from __future__ import annotations

import warnings

GROUP = "gluonjit.passes"

_loaded: set[str] = set()


def load() -> bool:
    """Imports the modules that were not yet. Whether there was one; a warning names each that failed, and why."""
    from importlib import metadata  # takes 10 ms

    found = False
    for point in metadata.entry_points(group=GROUP):
        if point.value in _loaded:
            continue
        _loaded.add(point.value)
        try:
            point.load()
        except Exception as e:
            warnings.warn(
                f"the plug-in {point.name!r} ({point.value}) cannot be imported, so what it declares is missing: "
                f"{type(e).__name__}: {e}",
                stacklevel=2,
            )
        else:
            found = True
    return found
