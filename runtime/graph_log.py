"""The graphs that a program compiles, kept as text: what `gluonjit warm --from-log` compiles ahead, elsewhere or after
an update. The environment variable GLUONJIT_GRAPHS names the folder.

Each is `<name>-<key>.ir`, its long constants in an `.npz` beside it, and its first line is a comment with the passes
that make code of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from gluonjit.ir.graph import Graph
from gluonjit.ir.structure import graph_key
from gluonjit.runtime.cache import all_attrs

_PIPELINE = "pipeline: "


def note(graph: Callable[[], Graph], pipeline: str) -> None:
    """Keeps the graph, if the environment says so. Warns if it cannot be written."""
    folder = os.environ.get("GLUONJIT_GRAPHS", "")
    if folder:
        try:
            _write(graph(), pipeline, Path(os.path.expanduser(folder)))
        except OSError as e:
            warnings.warn(f"GLUONJIT_GRAPHS: a graph was not kept: {e}", stacklevel=2)


def _write(graph: Graph, pipeline: str, folder: Path) -> None:
    from gluonjit.ir.text import save

    key = hashlib.sha256(repr((graph_key(graph), all_attrs(graph), pipeline)).encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]", "_", graph.name, flags=re.ASCII)[:80] + f"-{key}"
    if (folder / f"{name}.ir").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as whole:
        save(graph, Path(whole, f"{name}.ir"), locs=False, comment=_PIPELINE + pipeline)
        for path in sorted(Path(whole).iterdir(), key=lambda path: path.suffix == ".ir"):  # what it refers to, first
            os.replace(path, folder / path.name)


def pipeline_of(path: Path, default: str) -> str:
    """The passes that the file's first line names; `default` if it names none."""
    with path.open("rb") as f:
        line = f.readline(1 << 16).decode(errors="replace").strip().removeprefix("//").strip()
    return line.removeprefix(_PIPELINE) if line.startswith(_PIPELINE) else default
