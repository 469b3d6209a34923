"""What MXNet keeps in `mxnet.util`: questions about NumPy semantics, which are always off here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from gluonjit.base import MXNetError

F = TypeVar("F", bound=Callable[..., Any])


def is_np_array() -> bool:
    """Whether `mx.np` arrays are in use."""
    return False


def is_np_shape() -> bool:
    """Whether 0 in a shape means no elements, instead of a dimension not known yet."""
    return False


def set_np(shape: bool = True, array: bool = True) -> None:
    if shape or array:
        _refuse("set_np()")


def reset_np() -> None:
    """Back to the semantics that are always in force."""


def set_np_shape(active: bool) -> bool:
    """Returns the setting before."""
    if active:
        _refuse("set_np_shape(True)")
    return False


class _Semantics:
    """`with np_shape(False):`, which changes nothing; asking for NumPy semantics is an error."""

    def __init__(self, active: bool = True) -> None:
        if active:
            _refuse(f"{type(self).__name__}(True)")

    def __enter__(self) -> _Semantics:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass


class np_shape(_Semantics):
    """The scope of `is_np_shape`."""


class np_array(_Semantics):
    """The scope of `is_np_array`."""


def use_np(func: F) -> F:
    _refuse("use_np")


use_np_array = use_np_shape = use_np


def _refuse(what: str) -> NoReturn:
    raise MXNetError(f"{what}: gluonjit has the mx.nd interface only, without mx.np")


def get_gpu_count() -> int:
    return 0


def getenv(name: str) -> str | None:
    """A variable of the process's environment."""
    import os

    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Sets a variable of the process's environment; None removes it."""
    import os

    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def makedirs(d: str) -> None:
    """`os.makedirs` that accepts a folder that exists."""
    import os

    os.makedirs(os.path.expanduser(d), exist_ok=True)


def set_module(module: str | None) -> Callable[[F], F]:
    """Decorator: the function says that it belongs to `module`."""

    def decorate(func: F) -> F:
        if module is not None:
            func.__module__ = module
        return func

    return decorate
