"""Gluon 1.x models as native CPU code.

    import gluonjit as mx
    from gluonjit import nd, gluon

Everything is imported when it is first used (PEP 562): importing this package costs nothing, and `import gluonjit.ir`
does not execute the front end.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gluonjit import _tracebacks
from gluonjit._version import version

__version__ = "1.9.1"
"""The MXNet whose interface this is; programs compare it. The package's own version is `gluonjit_version`."""

gluonjit_version = version

_MODULES = {
    # name: module
    "attribute": "attribute",
    "autograd": "autograd",
    "base": "base",
    "callback": "callback",
    "context": "context",
    "contrib": "contrib",
    "engine": "engine",
    "executor": "execution.executor",
    "executor_manager": "executor_manager",
    "gluon": "gluon",
    "image": "image",
    "img": "image",
    "init": "initializer",
    "initializer": "initializer",
    "io": "io",
    "kv": "kvstore",
    "kvstore": "kvstore",
    "libinfo": "libinfo",
    "notebook": "notebook",
    "log": "log",
    "lr_scheduler": "lr_scheduler",
    "metric": "metric",
    "mod": "module",
    "model": "model",
    "module": "module",
    "mon": "monitor",
    "monitor": "monitor",
    "name": "name",
    "nd": "ndarray",
    "np": "numpy",
    "npx": "numpy_extension",
    "numpy": "numpy",
    "numpy_extension": "numpy_extension",
    "ndarray": "ndarray",
    "onnx": "onnx",
    "operator": "operator",
    "operators": "operators",
    "optimizer": "optimizer",
    "profiler": "profiler",
    "random": "random",
    "recordio": "recordio",
    "rnn": "rnn",
    "registry": "registry",
    "rnd": "random",
    "runtime": "runtime",
    "sym": "symbol",
    "symbol": "symbol",
    "test_utils": "test_utils",
    "util": "util",
    "visualization": "visualization",
    "viz": "visualization",
}
_OBJECTS = {
    # name: module that defines it
    "AttrScope": "attribute",
    "Context": "context",
    "MXNetError": "base",
    "Predictor": "tools.serving.predictor",
    "compile": "execution.inspecting",
    "cpu": "context",
    "cpu_pinned": "context",
    "current_context": "context",
    "get_num_threads": "runtime.threads",
    "gpu": "context",
    "install_as_mxnet": "tools.dropin",
    "load": "deployed",
    "is_np_array": "util",
    "is_np_shape": "util",
    "np_array": "util",
    "np_shape": "util",
    "register_backend": "execution.backends",
    "set_num_threads": "runtime.threads",
    "set_np_shape": "util",
    "use_np": "util",
    "use_np_array": "util",
    "use_np_shape": "util",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = _imported(_MODULES[name])
    elif name in _OBJECTS:
        value = getattr(_imported(_OBJECTS[name]), name)
    else:
        from gluonjit.language.mxnet_names import no_attribute

        raise no_attribute(__name__, name, __dir__())
    globals()[name] = value
    return value


def _imported(module: str) -> Any:
    """A module of this package, imported without Python's garbage collector, which would take a tenth of the time."""
    from gluonjit.runtime.collector import without_collector

    with without_collector(once=True):
        return importlib.import_module(f"gluonjit.{module}")


class _Lacking:
    """The last finder of modules: it says of `from gluonjit.gluon import X` that MXNet has X and gluonjit lacks it.

    Python looks for a module `gluonjit.gluon.X` when the package has no such attribute, and keeps what the package's
    `__getattr__` said to itself.
    """

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.startswith("gluonjit."):
            from gluonjit.language.mxnet_names import check_import

            check_import(fullname)


sys.meta_path.append(_Lacking)  # type: ignore[arg-type]
_tracebacks.install()


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_OBJECTS})


__all__ = ["__version__", "gluonjit_version", "version", *_MODULES, *_OBJECTS]
