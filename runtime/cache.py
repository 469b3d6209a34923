"""The object cache: compiled code on disk, so that the next process runs no pass and generates no code.

Each entry is a file named after its key: a SHA-256 of what was compiled (a traced graph, the pipeline, the target) and
what compiled it (the current sources of this package, the versions of LLVM, llvmlite and NumPy, LLVM's level). An
entry never changes, so no locks are needed: a writer makes a new file and renames it, which is atomic; if two write the
same key, either file is right. A reader sees a complete file, old or new, and verifies its checksum. Eviction removes
the least recently used entries; a reader that has one open can still read it.

The code in an entry is executed, so only the owner may be able to write to the folder: it is made with mode 0700, and
not used if it belongs to another user than this one and root, or others may write to it. An entry is a regular file
with its key inside; anything else under its name is ignored. Whatever goes wrong, the graph is compiled instead.
A folder that cannot be written to, as in the image of a container, is read.

Graphs with operators or passes that this package does not define are not kept: the sources of those may change without
a change of the key.

Environment: GLUONJIT_CACHE=0 turns the cache off, GLUONJIT_CACHE_DIR sets its folder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import stat
import sys
import tempfile
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

import numpy as np

from gluonjit._version import version
from gluonjit.codegen.text.llvm import optimization_level
from gluonjit.ir.graph import Graph
from gluonjit.ir.structure import graph_key
from gluonjit.runtime import artifact
from gluonjit.runtime.artifact import Artifact, Corrupt, pack, unpack
from gluonjit.runtime.mapping import map_readonly

LIMIT = 1 << 29
"""Bytes of all entries; beyond that, the least recently used ones are evicted."""
_LARGEST = LIMIT // 4
_ROOM = "0"
"""Storing an entry whose key ends like this, one in 16, makes room for others: looking at thousands of files takes 0.1
s."""
_SUFFIX = ".gluonjit"
_ABANDONED = 3600
"""Seconds after which the process that left a temporary file is assumed to have died."""


def why_off() -> str:
    """Why the cache is off, or ''. One that is on may be read-only: see `why_unchangeable`."""
    if os.environ.get("GLUONJIT_CACHE", "").strip() == "0":
        return "turned off by GLUONJIT_CACHE=0"
    return _unusable(folder())


def why_unchangeable() -> str:
    """Why nothing can be kept in the cache, or ''."""
    reason = why_off()
    return reason or ("" if os.access(folder(), os.W_OK) else f"{folder()} is read-only")


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
        if facts.st_uid not in (os.geteuid(), 0):
            return f"{where} belongs to another user"
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"other users may write to {where}; `chmod 700` it"
    return "" if os.access(where, os.R_OK | os.X_OK) else f"{where} is not readable"


# ---- keys


def graph_cache_key(graph: Graph, pipeline: str, target: Hashable, measured_on: int | None = None) -> str | None:
    """The key of the compiled graph; None if that depends on code that is not part of this package.

    `measured_on`: the number of threads on which kernels were measured, if they were (`hybridize(tune=True)`).
    """
    if not all(map(_is_ours, _functions(graph))):
        return None
    if not all(map(_is_ours, _passes(pipeline))):
        return None
    return digest(("graph", graph_key(graph), all_attrs(graph), pipeline, target, measured_on))


def all_attrs(graph: Graph) -> list[object]:
    """The attributes of a graph and its regions, which `graph_key` leaves out."""
    regions = (region for op in graph.ops for region in op.regions)
    return [sorted(graph.attrs.items()), *map(all_attrs, regions)]


def _functions(graph: Graph) -> Iterator[object]:
    """The functions that define the operators and primitives of a graph and its regions."""
    for definition in {op.definition: None for op in graph.ops}:
        yield from filter(callable, vars(definition).values())
    for op in graph.ops:
        for region in op.regions:
            yield from _functions(region)


def _passes(pipeline: str) -> Iterator[object]:
    """The functions of the passes registered so far; other passes are this package's, and imported when they run."""
    if "gluonjit.passes.manager" in sys.modules:  # else it is useless if all is cached
        manager = import_module("gluonjit.passes.manager")  # waits where another thread is importing it
        registered = manager.registered_passes()
        for name, _ in manager.parse_pipeline(pipeline):
            if name in registered:
                yield registered[name].run


def _is_ours(function: object) -> bool:
    """Whether this package's sources determine what the function does: not if arguments are bound to it."""
    module = getattr(function, "__module__", None)
    return isinstance(module, str) and (module == "gluonjit" or module.startswith("gluonjit."))


def digest(what: object) -> str:
    """A digest of `what`, by its `repr`, of this package's current sources, and of LLVM's level."""
    return digest_by(compiler(), what)


def digest_by(sources: bytes, what: object) -> str:
    """`digest` with this digest of sources."""
    return hashlib.sha256(sources + repr((optimization_level(), what)).encode()).hexdigest()


@functools.cache
def compiler() -> bytes:
    """A digest of what generated code depends on besides the graph: versions of libraries, and the current sources."""
    import llvmlite
    from llvmlite import binding

    facts = version, llvmlite.__version__, binding.llvm_version_info, np.__version__, list(_own_sources())
    return hashlib.sha256(repr(facts).encode()).digest()


def _own_sources() -> Iterator[tuple[str, int, int]]:
    """(path, size, time of the last change) of each source file of this package. Times are in whole seconds, as in
    Python's own caches: images of containers keep no more of them."""
    packages = ("gluonjit", *(f"gluonjit.{part}" for part in ("codegen", "ir", "passes", "runtime")))
    for e in sources(packages):
        facts = e.stat()
        yield e.path, facts.st_size, facts.st_mtime_ns // 10**9


def sources(packages: Iterable[str]) -> Iterator[os.DirEntry[str]]:
    """The source files of packages, always in the same order."""
    specs = filter(None, map(find_spec, packages))
    roots = sorted({Path(p).resolve() for spec in specs for p in spec.submodule_search_locations or ()})
    for root in roots:
        if not any(r in root.parents for r in roots):
            yield from _sources(root)


def _sources(root: str | Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(root) as found:
        entries = sorted(found, key=attrgetter("name"))
    for e in entries:
        if e.name.endswith(".py"):
            yield e
        elif e.name != "__pycache__" and e.is_dir():
            yield from _sources(e.path)


# ---- entries


@dataclass
class Entry:
    path: Path
    size: int
    used: float
    """Time of the last use, in seconds since the epoch."""

    @property
    def key(self) -> str:
        return self.path.name.removesuffix(_SUFFIX)

    @property
    def name(self) -> str:
        """The name of the graph that was compiled."""
        return artifact.name_of(read(self.path, 1 << 20, used=False) or b"")


def read(path: Path, most: int, used: bool = True) -> bytes | None:
    """Up to `most` bytes of a regular file; None, without blocking, for anything else. `used`: records the use."""
    try:
        with os.fdopen(_opened(path, used)[0], "rb") as f:
            return f.read(most)
    except OSError:
        return None


def map_file(path: Path, size: int) -> mmap.mmap | None:
    """A regular file of this size, mapped; None for anything else. Records the use."""
    try:
        handle, there = _opened(path, True)
        try:
            return map_readonly(handle, size) if there == size > 0 else None
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None


def _opened(path: Path, used: bool) -> tuple[int, int]:
    """(descriptor, size in bytes). Raises OSError, without blocking, unless it is a regular file."""
    handle = open_regular(path)
    if used:
        with contextlib.suppress(OSError):  # a file system that is read-only
            os.utime(handle if os.utime in os.supports_fd else path)
    return handle, os.fstat(handle).st_size


def open_regular(path: Path) -> int:
    """The descriptor of a regular file that is opened to be read. Raises OSError, without blocking, for anything else,
    links among them."""
    handle = os.open(path, os.O_RDONLY | _SAFE_FLAGS)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is not a regular file")
    return handle


_SAFE_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags that refuse symbolic links, and do not wait for the writer of a FIFO."""


def load(key: str | None) -> Artifact | None:
    """The artifact stored under the key; None if there is none that can be used."""
    return None if key is None or why_off() else entry(key)


def entry(key: str) -> Artifact | None:
    """`load` of a cache that is on."""
    path = folder() / (key + _SUFFIX)
    data = read(path, _LARGEST + 1)
    if data is None:
        return None
    try:
        if len(data) > _LARGEST:
            raise Corrupt
        return unpack(key, data)
    except Corrupt:
        remove(path)
        return None


def store(key: str | None, content: Artifact) -> None:
    """Stores the artifact; does nothing if that is impossible."""
    if key is None or why_off():
        return
    if add(key, content) and key.endswith(_ROOM):
        _evict()


def add(key: str, content: Artifact) -> bool:
    """`store` in a cache that is on, without making room; returns whether it could."""
    data = pack(key, content)
    return len(data) <= _LARGEST and write(folder() / (key + _SUFFIX), [data])


def write(path: Path, parts: Sequence[bytes | memoryview], durable: bool = False) -> bool:
    """Makes a file within `folder()`, at once; returns whether it could. `durable`: it is complete even if the machine
    fails right afterwards, which the name may survive and the contents not."""
    try:
        handle, temporary = tempfile.mkstemp(prefix="new-", dir=folder())  # readable by its owner alone
        try:
            with os.fdopen(handle, "wb") as f:
                f.writelines(parts)
                if durable:
                    f.flush()
                    os.fsync(f.fileno())
            os.replace(temporary, path)
        except OSError:
            remove(Path(temporary))
            return False
    except OSError:
        return False
    return True


def entries() -> list[Entry]:
    """All entries, the most recently used first."""
    return files(folder(), _SUFFIX)


def files(where: Path, suffix: str = "") -> list[Entry]:
    """The files in a folder whose names end so, the most recently used first."""
    found = [
        Entry(Path(e.path), facts.st_size, facts.st_mtime) for e, facts in _listed(where) if e.name.endswith(suffix)
    ]
    return sorted(found, key=lambda e: -e.used)


def _listed(where: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """What is in a folder; nothing if it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(where) as names:
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                yield name, name.stat(follow_symlinks=False)


def clear() -> int:
    """Removes all entries; returns how many there were."""
    there = entries()
    for entry in there:
        remove(entry.path)
    return len(there)


def _evict() -> None:
    """Removes the least recently used entries beyond LIMIT bytes, and temporary files of writers that died."""
    there: list[tuple[float, int, str]] = []  # no `Entry`, whose path takes most of the time where there are thousands
    for name, facts in _listed(folder()):
        if name.name.endswith(_SUFFIX):
            there.append((facts.st_mtime, facts.st_size, name.path))
        elif name.name.startswith("new-") and facts.st_mtime < time.time() - _ABANDONED:
            remove(Path(name.path))
    total = sum(size for _, size, _ in there)
    for _, size, path in sorted(there) if total > LIMIT else ():
        if total <= LIMIT:
            break
        remove(Path(path))
        total -= size


def remove(path: Path) -> None:
    """Removes a file, if it is still there."""
    try:
        path.unlink()
    except OSError:
        return  # another process has removed it, or (on Windows) holds it open
