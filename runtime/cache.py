"""The object cache: compiled code on disk, so that the next process runs no pass and generates no code.

Each entry is a file named after its key: a SHA-256 of what was compiled (a traced graph, the pipeline, the target) and
what compiled it (the current sources of this package, the versions of LLVM, llvmlite and NumPy). An entry never
changes, so no locks are needed: a writer makes a new file and renames it, which is atomic; if two write the same key,
either file is right. A reader sees a complete file, old or new, and verifies its checksum. Eviction removes the least
recently used entries; a reader that has one open can still read it.

The code in an entry is executed, so only the owner may be able to write to the folder: it is made with mode 0700, and
not used if it belongs to another user or others may write to it. An entry is a regular file with its key inside;
anything else under its name is ignored. Whatever goes wrong, the graph is compiled instead.

Graphs with operators or passes that this package does not define are not kept: the sources of those may change without
a change of the key.

Environment: GLUONJIT_CACHE=0 turns the cache off, GLUONJIT_CACHE_DIR sets its folder.
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
"""Bytes of all entries; beyond that, the least recently used ones are evicted."""
_LARGEST = LIMIT // 4
_SUFFIX = ".gluonjit"
_ABANDONED = 3600
"""Seconds after which the process that left a temporary file is assumed to have died."""


def why_off() -> str:
    """Why the cache is off, or ''."""
    if os.environ.get("GLUONJIT_CACHE", "").strip() == "0":
        return "turned off by GLUONJIT_CACHE=0"
    return _unusable(folder())


def folder() -> Path:
    """The folder of the entries, which may not exist yet."""
    given = os.environ.get("GLUONJIT_CACHE_DIR")
    if given:
        return Path(given).expanduser() / "objects"
    import platformdirs

    return Path(platformdirs.user_cache_dir("gluonjit", appauthor=False)) / "objects"


def _unusable(where: Path) -> str:
    """Why the folder cannot be used, or ''; creates it if it is missing."""
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
    """The key of the compiled graph; None if that depends on code that is not part of this package.

    `measured_on`: the number of threads on which kernels were measured, if they were (`hybridize(tune=True)`).
    """
    if not all(map(_is_ours, _functions(graph))):
        return None
    if not all(map(_is_ours, _passes(pipeline))):
        return None
    return _digest(("graph", graph_key(graph), _attrs(graph), pipeline, target, measured_on))


def text_cache_key(text: str, target: Hashable) -> str:
    """The key of the compiled LLVM IR `text`."""
    return _digest(("text", text, target))


def _attrs(graph: Graph) -> list[object]:
    """The attributes of a graph and its regions, which `graph_key` leaves out."""
    regions = (region for op in graph.ops for region in op.regions)
    return [sorted(graph.attrs.items()), *map(_attrs, regions)]


def _functions(graph: Graph) -> Iterator[object]:
    """The functions that define the operators and primitives of a graph and its regions."""
    for definition in {op.definition: None for op in graph.ops}:
        yield from filter(callable, vars(definition).values())
    for op in graph.ops:
        for region in op.regions:
            yield from _functions(region)


def _passes(pipeline: str) -> Iterator[object]:
    """The functions of the passes registered so far; other passes are this package's, and imported when they run."""
    manager = sys.modules.get("gluonjit.passes.manager")  # not imported: useless if all is cached
    if manager is not None:
        registered = manager.registered_passes()
        for name, _ in manager.parse_pipeline(pipeline):
            if name in registered:
                yield registered[name].run


def _is_ours(function: object) -> bool:
    """Whether this package's sources determine what the function does: not if arguments are bound to it."""
    module = getattr(function, "__module__", None)
    return isinstance(module, str) and (module == "gluonjit" or module.startswith("gluonjit."))


def _digest(what: object) -> str:
    return hashlib.sha256(repr((_compiler(), what)).encode()).hexdigest()


@functools.cache
def _compiler() -> tuple[object, ...]:
    """What generated code depends on besides the graph: versions of libraries, and the current sources."""
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
    """Time of the last use, in seconds since the epoch."""

    @property
    def name(self) -> str:
        """The name of the graph that was compiled."""
        return artifact.name_of(_read(self.path, 1 << 20) or b"")


def _read(path: Path, most: int, used: bool = False) -> bytes | None:
    """Up to `most` bytes of a regular file; None, without blocking, for anything else. `used`: records the use."""
    try:
        handle = os.open(path, os.O_RDONLY | _SAFE_FLAGS)
        with os.fdopen(handle, "rb") as f:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            data = f.read(most)
            if used:
                os.utime(handle if os.utime in os.supports_fd else path)
            return data
    except OSError:
        return None


_SAFE_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags that refuse symbolic links, and do not wait for the writer of a FIFO."""


def load(key: str | None) -> Artifact | None:
    """The artifact stored under the key; None if there is none that can be used."""
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
    """Stores the artifact; does nothing if that is impossible."""
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
    """All entries, the most recently used first."""
    found = []
    for path in folder().glob("*" + _SUFFIX):
        try:
            facts = path.lstat()
        except OSError:
            continue  # another process has just removed it
        found.append(Entry(path, facts.st_size, facts.st_mtime))
    return sorted(found, key=lambda e: -e.used)


def clear() -> int:
    """Removes all entries; returns how many there were."""
    there = entries()
    for entry in there:
        _remove(entry.path)
    return len(there)


def _evict() -> None:
    """Removes the least recently used entries beyond LIMIT bytes, and temporary files of writers that died."""
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
