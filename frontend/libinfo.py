"""`mx.libinfo`: the version. There is no library and no header of MXNet's that could be found."""

from __future__ import annotations

from typing import NoReturn

from gluonjit.language import mxnet_names as _mxnet_names

__version__ = "1.9.1"


def find_lib_path(prefix: str = "libmxnet") -> NoReturn:
    """RuntimeError: programs that load MXNet's library need MXNet."""
    raise RuntimeError(f"Cannot find {prefix}: gluonjit has no library; compiled models have one (gluonjit build)")


def find_include_path() -> NoReturn:
    """RuntimeError, as for `find_lib_path`."""
    raise RuntimeError("Cannot find MXNet's headers: gluonjit has none")


_mxnet_names.explain(__name__)
