"""The graphs that a program compiles, kept as text: what `gluonjit warm --from-log` compiles ahead, elsewhere or after
an update. The environment variable GLUONJIT_GRAPHS names the folder.

Each is `<name>-<key>.ir`, its long constants in an `.npz` beside it, and its first line is a comment with the passes
that make code of it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from gluonjit.ir.graph import Graph
from gluonjit.ir.structure import graph_key
from gluonjit.ir.text import save

_PIPELINE = "pipeline: "


def note(graph: Callable[[], Graph], pipeline: str) -> None:
    """Keeps the graph, if the environment says so. OSError if it cannot be written."""
    folder = os.environ.get("GLUONJIT_GRAPHS", "")
    if not folder:
        return
    found = graph()
    key = hashlib.sha256(repr((graph_key(found), pipeline)).encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]", "_", found.name, flags=re.ASCII)[:80]
    path = Path(folder).expanduser() / f"{name}-{key}.ir"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        save(found, path, locs=False, comment=_PIPELINE + pipeline)


def pipeline_of(path: Path, default: str) -> str:
    """The passes that the file's first line names; `default` if it names none."""
    with path.open(encoding="utf-8") as f:
        line = f.readline(1 << 16).strip().removeprefix("//").strip()
    return line.removeprefix(_PIPELINE) if line.startswith(_PIPELINE) else default
