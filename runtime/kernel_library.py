"""Kernels that were compiled before, for whatever graph: nets of one family, and signatures of one net, share most of
theirs. They are entries of the object cache, or of files that are shipped (`kernel_files`).

A kernel's key says what it computes and how, for which machine as far as code depends on it, and what wrote it: the
contents of the sources of code generation, wherever they lie, and LLVM. So it is the same for all installations of a
version, and other sources may change without a kernel being compiled again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from gluonjit.codegen.target import of_code
from gluonjit.ir.machine import Machine
from gluonjit.runtime import cache, kernel_files
from gluonjit.runtime.artifact import Artifact

_KIND = "kernel "
"""How the name of a kernel's entry in the object cache begins."""


class KernelLibrary:
    """The kernels of one target, for one graph (`codegen.program.Library`).

    `keeps_all`: the object cache gets each kernel, however small, and also those that a file has."""

    def __init__(self, target: Machine, keeps_all: bool = False) -> None:
        self.keeps_all = keeps_all
        self._machine = target
        self._target = repr(of_code(target))
        self._is_on = not cache.why_off()
        self._reads_files = not keeps_all and kernel_files.is_on()
        self._keys: dict[str, str] = {}
        """The cache's key of each kernel, by its name."""
        self._relies: dict[str, bool] = {}
        """Whether a kernel relies on open dimensions not being 1."""
        self.objects: list[bytes] = []
        """The objects of the kernels that were found."""
        self.asked = self.from_files = 0
        """How many kernels the graph has, and how many of them a file had."""

    def name(self, kind: str, key: Hashable) -> str:
        """The name of the kernel that computes what `key` says: another one for another kernel, in every process."""
        digest = cache.digest_by(kernel_files.writers(), ("kernel", key, self._target))
        name = f"k{digest[:16]}_{kind}"
        self._keys[name] = digest
        return name

    def find(self, name: str) -> bool:
        """Whether the kernel was compiled before; then its objects are taken."""
        key = self._keys[name]
        found = kernel_files.find(self._machine, key) if self._reads_files else None
        self.asked += 1
        self.from_files += found is not None
        if found is None and self._is_on:
            found = cache.entry(key)
        if found is not None:
            self.objects += found.objects
            self._relies[name] = found.relies
        return found is not None

    def relies(self, name: str) -> bool:
        return self._relies[name]

    def note(self, name: str, relies: bool) -> None:
        self._relies[name] = relies

    def keep(self, kernels: Mapping[str, Sequence[bytes]]) -> None:
        """Stores the objects of kernels that were compiled now. OSError if all are to be kept, and cannot be."""
        if self._is_on:
            for name, objects in kernels.items():
                kernel = Artifact(f"{_KIND}{name}", list(objects), relies=self._relies[name])
                if not cache.add(self._keys[name], kernel) and self.keeps_all:
                    raise OSError(f"a kernel cannot be written to {cache.folder()}: is there no room?")


def kept() -> dict[str, bytes]:
    """The packed kernels that the object cache holds, by key."""
    found = {}
    for entry in cache.entries():
        if entry.name.startswith(_KIND):
            found[entry.key] = entry.path.read_bytes()
    return found
