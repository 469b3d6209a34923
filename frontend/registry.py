"""Factories by name: `mx.registry`. A base class's registry makes its subclasses from strings, dicts and JSON."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = ["get_alias_func", "get_create_func", "get_register_func", "get_registry"]

_CLASSES: defaultdict[type, dict[str, type]] = defaultdict(dict)
"""For each base class, its registered subclasses by name in lower case."""


def get_registry(base_class: type) -> dict[str, type]:
    """A copy of what is registered for `base_class`, by name."""
    return dict(_CLASSES[base_class])


def get_register_func(base_class: type, nickname: str) -> Callable[..., type]:
    """`register(klass, name=None)`: makes a subclass known by `name`, or by the class's own name."""
    classes = _CLASSES[base_class]

    def register(klass: type, name: str | None = None) -> type:
        if not issubclass(klass, base_class):
            raise AssertionError(f"Can only register subclass of {base_class.__name__}")
        name = (klass.__name__ if name is None else name).lower()
        old = classes.get(name)
        if old is not None:
            warnings.warn(
                f"New {nickname} {klass.__module__}.{klass.__name__} registered with name {name} is overriding "
                f"existing {nickname} {old.__module__}.{old.__name__}",
                UserWarning,
                stacklevel=2,
            )
        classes[name] = klass
        return klass

    register.__doc__ = f"Registers a {nickname} class; usable as decorator."
    return register


def get_alias_func(base_class: type, nickname: str) -> Callable[..., Callable[[type], type]]:
    """`alias(*names)`: a class decorator that registers the class under each of the names."""
    register = get_register_func(base_class, nickname)

    def alias(*aliases: str) -> Callable[[type], type]:
        def decorate(klass: type) -> type:
            for name in aliases:
                register(klass, name)
            return klass

        return decorate

    return alias


def get_create_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """`create(x, *args, **kwargs)`: the object that `x` means.

    `x` is such an object already, a registered name, a dict with the key `nickname`, or JSON of a dict or of
    `[name, kwargs]`. It may also come as the keyword `nickname`.
    """
    classes = _CLASSES[base_class]

    def create(*args: Any, **kwargs: Any) -> Any:
        what, args = (args[0], args[1:]) if args else (kwargs.pop(nickname), ())
        if isinstance(what, base_class):
            if args or kwargs:
                raise AssertionError(f"{nickname} is already an instance. Additional arguments are invalid")
            return what
        if isinstance(what, dict):
            return create(**what)
        if not isinstance(what, str):
            made = f": write {what.__name__}(), which makes one" if isinstance(what, type) else ""
            raise AssertionError(f"{nickname} must be of string type{made}")
        if what.startswith(("[", "{")):
            if args or kwargs:
                raise AssertionError(f"a {nickname} given as JSON takes no further arguments")
            import json

            described = json.loads(what)
            return create(described[0], **described[1]) if isinstance(described, list) else create(**described)
        name = what.lower()
        if name not in classes:
            hint = did_you_mean(name, classes)
            raise AssertionError(f"{name} is not registered. Please register with {nickname}.register first{hint}")
        return classes[name](*args, **kwargs)

    create.__doc__ = f"The {nickname} that a name, a dict or JSON describes; a {nickname} as it is."
    return create


_mxnet_names.explain(__name__)
