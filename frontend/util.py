"""What MXNet keeps in `mxnet.util`: whether NumPy's semantics are in force, and a few helpers.

Each thread has two switches. `array`: gluon creates parameters as `mx.np.ndarray`s, and programs that check
`is_np_array()` use `F.np` and `F.npx`. `shape`: () and 0 in shapes have NumPy's meaning, which they always have for
operators of `mx.np`.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from gluonjit.language import mxnet_names as _mxnet_names

F = TypeVar("F", bound=Callable[..., Any])


class _Semantics(threading.local):
    array = False
    shape = False


_now = _Semantics()


def is_np_array() -> bool:
    """Whether `mx.np` arrays are in use.

    >>> mx.util.is_np_array()
    False
    """
    return _now.array


def is_np_shape() -> bool:
    """Whether 0 in a shape means no elements, instead of a dimension not known yet.

    >>> mx.util.is_np_shape()
    False
    """
    return _now.shape


def set_np(shape: bool = True, array: bool = True) -> None:
    """Turns NumPy's semantics on or off, for shapes and for arrays. ValueError for arrays without shapes.

    >>> mx.npx.set_np()
    >>> mx.npx.is_np_array()
    True
    >>> mx.npx.reset_np()
    """
    if array and not shape:
        raise ValueError(
            "NumPy Shape semantics is required in using NumPy array semantics. Please set `shape=True` if you want to "
            "set `array=True`."
        )
    _now.array, _now.shape = array, shape


def reset_np() -> None:
    """Turns NumPy's semantics off.

    >>> mx.npx.reset_np()
    >>> mx.npx.is_np_array(), mx.npx.is_np_shape()
    (False, False)
    """
    set_np(shape=False, array=False)


def set_np_shape(active: bool) -> bool:
    """Turns NumPy's semantics on or off for shapes alone; returns what was set before."""
    if not active and _now.array:
        raise ValueError(
            "Deactivating NumPy shape semantics while NumPy array semantics is still active is not allowed."
        )
    before, _now.shape = _now.shape, bool(active)
    return before


class _Scope:
    """`with np_shape(True):` sets a switch and puts it back."""

    _switch = ""

    def __init__(self, active: bool = True) -> None:
        self._active = active
        self._before: list[bool] = []

    def __enter__(self) -> _Scope:
        self._before.append(getattr(_now, self._switch))
        setattr(_now, self._switch, bool(self._active))
        return self

    def __exit__(self, *exception: Any) -> None:
        setattr(_now, self._switch, self._before.pop())


class np_shape(_Scope):
    """The scope of `is_np_shape`."""

    _switch = "shape"


class np_array(_Scope):
    """The scope of `is_np_array`."""

    _switch = "array"


def use_np_shape(func: F) -> F:
    """Decorator: the function, or every method of the class, runs within `np_shape(True)`."""
    return _within(func, np_shape)


def use_np_array(func: F) -> F:
    """Decorator: the function, or every method of the class, runs within `np_array(True)`."""
    return _within(func, np_array)


def use_np(func: F) -> F:
    """Decorator: `use_np_shape` and `use_np_array`."""
    return use_np_shape(use_np_array(func))


_OF_BLOCKS = ("__init__", "initialize", "hybrid_forward", "infer_shape", "load_parameters")
"""The methods of gluon's own classes that depend on the switches."""


def _within(target: Any, scope: type[_Scope]) -> Any:
    if not inspect.isclass(target):
        if not callable(target):
            raise TypeError(f"{scope.__name__} can only decorate classes and callable objects, not {type(target)}")

        @functools.wraps(target)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with scope(True):
                return target(*args, **kwargs)

        return wrapper
    for name, method in inspect.getmembers(target, lambda f: inspect.isfunction(f) or isinstance(f, property)):
        getter = method.fget if isinstance(method, property) else method
        own = not getattr(getter, "__module__", "").startswith(__package__)
        if not own and name not in _OF_BLOCKS or isinstance(inspect.getattr_static(target, name), staticmethod):
            continue
        if isinstance(method, property):
            if getter is not None:
                setattr(target, name, property(_within(getter, scope), method.fset, method.fdel, method.__doc__))
        else:
            setattr(target, name, _within(method, scope))
    return target


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


_mxnet_names.explain(__name__)
