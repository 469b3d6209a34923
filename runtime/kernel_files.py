"""Kernels in files that are shipped: with this package, in the image of a container, or for all users of a machine.

A file holds kernels for one machine (`codegen.target.of_code`), under the names that the object cache has for them
(`kernel_library`): another machine, or other sources of code generation, find nothing in it. It never changes; what is
in no file is compiled, and kept in the object cache. `gluonjit warm --output` writes one.

    magic (16 bytes) · SHA-256 of the header (32) · length of the header (8, little endian) · header · artifacts

The header is JSON: the machine, what made it, and where the artifact (`artifact.py`) of each kernel lies, which has a
sum of its own.

Files are looked for in `runtime/kernels/` under the name `<cpu>.kernels`, and where the environment variable
GLUONJIT_KERNELS says: files, or folders of such, separated as in PATH. The code in them is executed. What lies among
this package's sources is trusted as these are; any other file must belong to this user or root, and nobody else may
write to it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from gluonjit._version import version
from gluonjit.codegen.target import of_code
from gluonjit.ir.machine import Machine
from gluonjit.runtime import cache
from gluonjit.runtime.artifact import Artifact, Corrupt, unpack

SUFFIX = ".kernels"
SHIPPED = Path(__file__).parent / "kernels"
"""The folder of this package's own files."""
_WRITERS = ("codegen", "common", "ir")
"""The packages that code generation consists of: it imports no others."""
_MAGIC = b"gluonjit kernel2"
_START = len(_MAGIC) + 32 + 8
_MOST = 1 << 26
"""Bytes of a header, at most."""


class Untrusted(Exception):
    """The file belongs to somebody else, or others may write to it."""


class KernelFile(NamedTuple):
    """A file of kernels, as its header tells."""

    path: Path
    cpu: str
    machine: str
    """The `repr` of the machine."""
    version: str
    """That of this package which made it."""
    writers: str
    """The digest of what made it, see `writers`."""
    kernels: Mapping[str, tuple[int, int]]
    """The offset and the size of each kernel's artifact, by its key in the object cache."""

    @staticmethod
    def open(path: Path) -> KernelFile:
        """OSError for a file that cannot be read, Untrusted for one whose code is not executed, Corrupt for one that is
        damaged, or something else."""
        with _opened(path) as f:
            beginning = f.read(_START)
            length = int.from_bytes(beginning[-8:], "little")
            if len(beginning) < _START or not beginning.startswith(_MAGIC) or length > _MOST:
                raise Corrupt
            header = f.read(length)
        if hashlib.sha256(header).digest() != beginning[len(_MAGIC) : -8]:
            raise Corrupt
        try:
            words = json.loads(header)
            places = {str(key): (int(at), int(size)) for key, (at, size) in words["kernels"].items()}
            cpu, machine, version, writers = (str(words[fact]) for fact in ("cpu", "machine", "version", "writers"))
            return KernelFile(path, cpu, machine, version, writers, places)
        except (ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError) as e:
            raise Corrupt from e

    def why_not(self, machine: Machine) -> str:
        """Why nothing in it is of use here, or ''."""
        if self.machine != repr(of_code(machine)):
            what = f"this is {machine.cpu}" if machine.cpu != self.cpu else "with other features or caches"
            return f"it is for {self.cpu}, {what}"
        if self.writers != writers().hex():
            return f"other sources or another LLVM made it (version {self.version}): `gluonjit warm` makes a new one"
        return ""

    def find(self, key: str) -> Artifact | None:
        """The kernel with this key; None if it is not there, or damaged."""
        if key not in self.kernels:
            return None
        at, size = self.kernels[key]
        try:
            with _opened(self.path) as f:
                if not 0 <= at <= at + size <= os.fstat(f.fileno()).st_size:
                    return None
                f.seek(at)
                return unpack(key, f.read(size))
        except (OSError, Untrusted, Corrupt):
            return None


def packed(machine: Machine, kernels: Mapping[str, bytes]) -> Sequence[bytes]:
    """The parts of a file. `kernels`: the packed artifacts, by key."""
    names = sorted(kernels)

    def header(start: int) -> bytes:
        places = {}
        for name in names:
            places[name] = (start, len(kernels[name]))
            start += len(kernels[name])
        facts = {"cpu": machine.cpu, "machine": repr(of_code(machine)), "version": version, "writers": writers().hex()}
        return json.dumps({**facts, "kernels": places}).encode()

    # Offsets count from the file's beginning, and the longer they are, the longer is the header.
    start = 0
    while (found := _START + len(header(start))) != start:
        start = found
    text = header(start)
    return [_MAGIC, hashlib.sha256(text).digest(), len(text).to_bytes(8, "little"), text, *(kernels[n] for n in names)]


def find(machine: Machine, key: str) -> Artifact | None:
    """The kernel with this key, from any file for the machine."""
    for file in _files(machine, os.environ.get("GLUONJIT_KERNELS", "")):
        if (found := file.find(key)) is not None:
            return found
    return None


@functools.cache
def writers() -> bytes:
    """A digest of what writes kernels: the contents of the sources of code generation, wherever they lie, and LLVM."""
    from llvmlite import binding

    found = hashlib.sha256(repr((version, binding.llvm_version_info)).encode())
    for source in cache.sources(f"gluonjit.{part}" for part in _WRITERS):
        content = Path(source).read_bytes()
        found.update(f"{source.name} {len(content)} ".encode() + content)
    return found.digest()


def is_on() -> bool:
    """Whether files are read: not if the object cache is turned off by choice."""
    return os.environ.get("GLUONJIT_CACHE", "").strip() != "0"


def places(cpu: str) -> Iterator[Path]:
    """Where files for machines with this processor may be."""
    yield SHIPPED / f"{cpu}{SUFFIX}"
    for name in filter(None, os.environ.get("GLUONJIT_KERNELS", "").split(os.pathsep)):
        path = os.path.realpath(os.path.expanduser(name))  # unlike those of `Path`, for any text
        yield Path(path, f"{cpu}{SUFFIX}") if os.path.isdir(path) else Path(path)


def described(machine: Machine) -> Iterator[str]:
    """A line on each place where there is a file for the machine, or should be."""
    for path in places(machine.cpu):
        try:
            file = KernelFile.open(path)
        except FileNotFoundError:
            if path.parent != SHIPPED:
                yield f"{path}: missing"
        except OSError as e:
            yield f"{path}: not used: {e.strerror or e}"
        except Untrusted:
            yield f"{path}: not used: it belongs to another user, or others may write to it"
        except Corrupt:
            yield f"{path}: not used: damaged, or no file of kernels"
        else:
            reason = file.why_not(machine) if is_on() else "turned off by GLUONJIT_CACHE=0"
            yield f"{path}: not used: {reason}" if reason else f"{path}: {len(file.kernels)} kernels"


@functools.lru_cache(maxsize=8)
def _files(machine: Machine, listed: str) -> tuple[KernelFile, ...]:
    """Those for the machine that can be used. `listed`: GLUONJIT_KERNELS, which `places` reads."""
    found = []
    for path in places(machine.cpu):
        try:
            file = KernelFile.open(path)
        except (OSError, Untrusted, Corrupt):
            continue  # kernels are compiled instead; `gluonjit doctor` says why
        if not file.why_not(machine):
            found.append(file)
    return tuple(found)


def _opened(path: Path) -> IO[bytes]:
    if path.parent == SHIPPED:
        return path.open("rb")
    handle = cache.open_regular(path)
    facts = os.fstat(handle)
    if hasattr(os, "geteuid") and (
        facts.st_uid not in (os.geteuid(), 0) or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        os.close(handle)
        raise Untrusted
    return os.fdopen(handle, "rb")
