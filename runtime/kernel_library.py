"""Kernels that were compiled before, for whatever graph: nets of one family, and signatures of one net, share most of
theirs. They are entries of the object cache, named after what they compute and how."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from gluonjit.ir.machine import Machine
from gluonjit.runtime import cache
from gluonjit.runtime.artifact import Artifact


class KernelLibrary:
    """The kernels of one target, for one graph (`codegen.program.Library`)."""

    def __init__(self, target: Machine) -> None:
        self._target = repr(target)
        self._is_on = not cache.why_off()
        self._keys: dict[str, str] = {}
        """The cache's key of each kernel, by its name."""
        self._relies: dict[str, bool] = {}
        """Whether a kernel relies on open dimensions not being 1."""
        self.objects: list[bytes] = []
        """The objects of the kernels that were found."""

    def name(self, kind: str, key: Hashable) -> str:
        """The name of the kernel that computes what `key` says: another one for another kernel, in every process."""
        digest = cache.digest(("kernel", key, self._target))
        name = f"k{digest[:16]}_{kind}"
        self._keys[name] = digest
        return name

    def find(self, name: str) -> bool:
        """Whether the kernel was compiled before; then its objects are taken."""
        found = cache.entry(self._keys[name]) if self._is_on else None
        if found is not None:
            self.objects += found.objects
            self._relies[name] = found.relies
        return found is not None

    def relies(self, name: str) -> bool:
        return self._relies[name]

    def note(self, name: str, relies: bool) -> None:
        self._relies[name] = relies

    def keep(self, kernels: Mapping[str, Sequence[bytes]]) -> None:
        """Stores the objects of kernels that were compiled now."""
        if self._is_on:
            for name, objects in kernels.items():
                cache.add(self._keys[name], Artifact(f"kernel {name}", list(objects), relies=self._relies[name]))
