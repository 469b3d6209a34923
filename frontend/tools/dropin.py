"""`install_as_mxnet()`: afterwards, importing `mxnet` or any part of it gives this package.

    import gluonjit
    gluonjit.install_as_mxnet()
    from mxnet.gluon import nn        # gluonjit.gluon.nn

Nothing is written to disk: a finder at the front of `sys.meta_path` puts gluonjit's modules into `sys.modules` under
MXNet's names, so `mxnet.gluon.nn is gluonjit.gluon.nn`. `horovod.mxnet` is `gluonjit.horovod.mxnet`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from gluonjit.base import MXNetError
from gluonjit.language import mxnet_names
from gluonjit.tools import removed_names

_OURS = "gluonjit"
_THEIRS = "mxnet"
_ROOTS = {"mxnet": _OURS, "horovod": f"{_OURS}.horovod"}
"""What their packages are here. Horovod's own library is made for MXNet's."""

_LOADED = ("ndarray", "symbol", "gluon", "module", "io")
"""Parts that `import mxnet` leaves in `sys.modules`, where libraries look for them: einops for `mxnet.ndarray`."""


def install_as_mxnet(numpy_aliases: bool = False) -> None:
    """Makes `mxnet`, and every module below it, resolve to gluonjit in this process. Further calls have no effect.

    `numpy_aliases` also restores `np.int`, `np.float`, `np.bool`, `np.object` and other names that NumPy has removed
    since MXNet's time. MXNetError if the real MXNet has been imported already.
    """
    loaded = sys.modules.get(_THEIRS)
    package = importlib.import_module(_OURS)
    if loaded is not None and loaded is not package:
        where = getattr(loaded, "__file__", None) or "from somewhere"
        raise MXNetError(
            f"install_as_mxnet(): mxnet has been imported already, {where}; call it before anything imports mxnet"
        )
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())
    if numpy_aliases:
        removed_names.restore_numpy_names()


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `mxnet.a.b`: the module `gluonjit.a.b`, which it imports."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _ROOTS:
            return None
        found = _resolve(fullname)
        return ModuleSpec(fullname, self, loader_state=found, is_package=hasattr(found, "__path__"))

    def exec_module(self, module: ModuleType) -> None:
        """Replaces `module`, which the import system created, in `sys.modules` by gluonjit's module."""
        assert module.__spec__ is not None
        sys.modules[module.__name__] = module.__spec__.loader_state
        if module.__name__ == _THEIRS:
            for name in _LOADED:
                importlib.import_module(f"{_THEIRS}.{name}")
            importlib.import_module("multiprocessing.pool")  # programs use it without importing it


def _resolve(fullname: str) -> ModuleType:
    """The module that stands for `mxnet.a.b`. The import system has imported `mxnet.a` before."""
    parent_name, _, name = fullname.rpartition(".")
    if not parent_name:
        return importlib.import_module(_ROOTS[fullname])
    parent = sys.modules[parent_name]
    real = f"{parent.__name__}.{name}"
    try:
        module = importlib.import_module(real)
    except ImportError as e:
        if e.name != real:
            raise
        # A second name (`mxnet.sym`), or a file of MXNet's that is part of another one here.
        found = getattr(parent, name, None)
        if not isinstance(found, ModuleType):
            dotted = fullname.partition(".")[2]
            known = parent_name != "horovod" and mxnet_names.has_module(dotted)
            why = f": {mxnet_names.lacking(name)}" if known else ""
            raise ModuleNotFoundError(f"No module named {fullname!r}{why}", name=fullname) from None
        module = found
    if fullname.partition(".")[0] == _THEIRS:
        mxnet_names.explain(module.__name__)
    return module
