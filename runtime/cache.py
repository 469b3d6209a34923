"""The object cache: compiled code on disk, so that the next process runs no pass and generates no code.

A file per entry, named after its key: a SHA-256 over what was compiled (a traced graph, the pipeline, the target) and
what compiled it (the sources of this package as they are, the versions of LLVM, llvmlite and NumPy). An entry never
changes, so there is nothing to lock: a writer makes a file of its own and renames it, which is atomic, and of two that
write the same key, either is right. A reader has the old or the new file, whole; a sum over its bytes says so. Evicting
takes those entries away that were not used for longest; a reader that has one open keeps it.

The code in it is executed, so the folder must be one that only its owner can write to: made with mode 0700, and not
used if it belongs to another user or others may write to it. An entry is a regular file with its key inside; nothing
else under its name is read. Whatever goes wrong, the graph is compiled.

Graphs with operators or passes that this package does not define are not kept: the sources of those may change without
a change of the key.

Environment: GLUONJIT_CACHE=0 turns it off, GLUONJIT_CACHE_DIR says where it is.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from gluonjit._version import version
from gluonjit.ir.graph import Graph
from gluonjit.ir.structure import graph_key
from gluonjit.runtime import artifact
from gluonjit.runtime.artifact import Artifact, Corrupt, pack, unpack

LIMIT = 1 << 29
"""Bytes. The entries used last stay, until so many."""
_LARGEST = LIMIT // 4
_SUFFIX = ".gluonjit"
_ABANDONED = 3600
"""Seconds after which a file that was never renamed belongs to a process that has died."""


def why_off() -> str:
    """Why there is no cache, or ''."""
    if os.environ.get("GLUONJIT_CACHE", "").strip() == "0":
        return "turned off by GLUONJIT_CACHE=0"
    return _unusable(folder())


def folder() -> Path:
    """Where entries lie, whether it exists or not."""
    given = os.environ.get("GLUONJIT_CACHE_DIR")
    if given:
        return Path(given).expanduser() / "objects"
    import platformdirs

    return Path(platformdirs.user_cache_dir("gluonjit", appauthor=False)) / "objects"


def _unusable(where: Path) -> str:
    """Why the folder cannot be used, or ''; makes it if need be."""
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        where.mkdir(mode=0o700, exist_ok=True)
        facts = where.lstat()
    except OSError as e:
        return f"{where}: {e.strerror or e}"
    if not stat.S_ISDIR(facts.st_mode):
        return f"{where} is not a folder"
    if hasattr(os, "geteuid"):
        if facts.st_uid != os.geteuid():
            return f"{where} belongs to another user"
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"other users may write to {where}; `chmod 700` it"
    return "" if os.access(where, os.R_OK | os.W_OK | os.X_OK) else f"{where} is read-only"


# ---- keys


def graph_cache_key(graph: Graph, pipeline: str, target: Hashable, measured_on: int | None = None) -> str | None:
    """The key of what compiling `graph` gives; None if it depends on code that is not this package's.

    `measured_on`: on how many threads kernels were measured, if they were (`hybridize(tune=True)`).
    """
    if not all(map(_is_ours, _functions(graph))):
        return None
    if not all(map(_is_ours, _passes(pipeline))):
        return None
    return _digest(("graph", graph_key(graph), _attrs(graph), pipeline, target, measured_on))


def text_cache_key(text: str, target: Hashable) -> str:
    """The key of what compiling the LLVM IR `text` gives."""
    return _digest(("text", text, target))


def _attrs(graph: Graph) -> list[object]:
    """The facts about a graph and its regions, which `graph_key` leaves out."""
    regions = (region for op in graph.ops for region in op.regions)
    return [sorted(graph.attrs.items()), *map(_attrs, regions)]


def _functions(graph: Graph) -> Iterator[object]:
    """All that the operators and primitives of a graph, and of its regions, are defined by."""
    for definition in {op.definition: None for op in graph.ops}:
        yield from filter(callable, vars(definition).values())
    for op in graph.ops:
        for region in op.regions:
            yield from _functions(region)


def _passes(pipeline: str) -> Iterator[object]:
    """The functions of those passes that are known so far; the others are this package's, imported when they run."""
    manager = sys.modules.get("gluonjit.passes.manager")  # not imported for this: it is not, where all is in the cache
    if manager is not None:
        registered = manager.registered_passes()
        for name, _ in manager.parse_pipeline(pipeline):
            if name in registered:
                yield registered[name].run


def _is_ours(function: object) -> bool:
    """Whether this package's sources say all that the function does. Not if it has arguments bound to it."""
    module = getattr(function, "__module__", None)
    return isinstance(module, str) and (module == "gluonjit" or module.startswith("gluonjit."))


def _digest(what: object) -> str:
    return hashlib.sha256(repr((_compiler(), what)).encode()).hexdigest()


@functools.cache
def _compiler() -> tuple[object, ...]:
    """What the code that is generated depends on besides the graph: versions, and the sources as they are."""
    import llvmlite
    from llvmlite import binding

    packages = ("gluonjit", *(f"gluonjit.{part}" for part in ("codegen", "ir", "passes", "runtime")))
    specs = filter(None, map(find_spec, packages))
    roots = sorted({Path(p).resolve() for spec in specs for p in spec.submodule_search_locations or ()})
    sources = [fact for root in roots if not any(r in root.parents for r in roots) for fact in _sources(root)]
    return version, llvmlite.__version__, binding.llvm_version_info, np.__version__, sources


def _sources(root: Path) -> Iterator[tuple[str, int, int]]:
    """(path, size, time of the last change) of each source file."""
    for parent, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            if name.endswith(".py"):
                path = os.path.join(parent, name)
                facts = os.stat(path)
                yield path, facts.st_size, facts.st_mtime_ns


# ---- entries


@dataclass
class Entry:
    path: Path
    size: int
    used: float
    """When, in seconds since the epoch."""

    @property
    def name(self) -> str:
        """What it was made of."""
        return artifact.name_of(_read(self.path, 1 << 20) or b"")


def _read(path: Path, most: int, used: bool = False) -> bytes | None:
    """Up to `most` bytes of a regular file; None for anything else, without waiting for it. `used`: it is used now."""
    try:
        handle = os.open(path, os.O_RDONLY | _CAREFUL)
        with os.fdopen(handle, "rb") as f:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            data = f.read(most)
            if used:
                os.utime(handle if os.utime in os.supports_fd else path)
            return data
    except OSError:
        return None


_CAREFUL = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Neither another file through a link, nor a wait for who writes to a pipe."""


def load(key: str | None) -> Artifact | None:
    """What was stored under the key; None if there is nothing that can be used."""
    if key is None or why_off():
        return None
    path = folder() / (key + _SUFFIX)
    data = _read(path, _LARGEST + 1, used=True)
    if data is None:
        return None
    try:
        if len(data) > _LARGEST:
            raise Corrupt
        return unpack(key, data)
    except Corrupt:
        _remove(path)
        return None


def store(key: str | None, content: Artifact) -> None:
    """Keeps the artifact, or does not, if that cannot be done."""
    if key is None or why_off():
        return
    data = pack(key, content)
    if len(data) > _LARGEST:
        return
    try:
        handle, temporary = tempfile.mkstemp(prefix="new-", dir=folder())  # readable by its owner alone
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
            os.replace(temporary, folder() / (key + _SUFFIX))
        except OSError:
            _remove(Path(temporary))
            return
    except OSError:
        return
    _evict()


def entries() -> list[Entry]:
    """All of them, the one used last first."""
    found = []
    for path in folder().glob("*" + _SUFFIX):
        try:
            facts = path.lstat()
        except OSError:
            continue  # another process has just taken it away
        found.append(Entry(path, facts.st_size, facts.st_mtime))
    return sorted(found, key=lambda e: -e.used)


def clear() -> int:
    """Removes all entries; how many there were."""
    there = entries()
    for entry in there:
        _remove(entry.path)
    return len(there)


def _evict() -> None:
    """Keeps the entries used last, up to LIMIT bytes, and removes what writers have left behind that died."""
    total = 0
    for entry in entries():
        total += entry.size
        if total > LIMIT:
            _remove(entry.path)
    for path in folder().glob("new-*"):
        try:
            if path.lstat().st_mtime < time.time() - _ABANDONED:
                _remove(path)
        except OSError:
            continue


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        return  # another process has removed it, or (on Windows) holds it open
