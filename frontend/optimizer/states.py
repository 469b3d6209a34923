"""States of optimizers as files: arrays, optimizers and schedules, to and from the names that MXNet has for them.

What is read is never executed (`files/state_files.py`). Objects are made of classes that exist already: MXNet's own,
those registered, and others of modules that have been imported.
"""

from __future__ import annotations

import sys
from typing import Any

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files import state_files
from gluonjit.files.state_files import Named
from gluonjit.ndarray import NDArray
from gluonjit.ndarray import array as ndarray_of
from gluonjit.training import schedules

_OPTIMIZERS = ("mxnet.optimizer.", "gluonjit.optimizer.")
_SCHEDULES = ("mxnet.lr_scheduler", "gluonjit.lr_scheduler", "gluonjit.training.schedules")


def dumps(states: Any, base: Any) -> bytes:
    """States, or (states, optimizer), as MXNet pickles them. MXNetError for a state that is no data.

    `base`: the class `Optimizer`.
    """
    try:
        return state_files.dumps(_named(states, base, {}))
    except TypeError as e:
        raise MXNetError(
            f"states of optimizers are saved as numbers, strings, arrays and containers of these, but there is {e}"
        ) from None


def loads(data: bytes, base: Any, name: str = "states") -> Any:
    """What `dumps`, or MXNet, has written: a dict, or (dict, optimizer).

    CheckpointError for a damaged file, MXNetError for one with an optimizer that is not known.
    """
    try:
        found = _made(state_files.loads(data, name), base, name, {})
    except RecursionError:
        raise CheckpointError(f"{name}: nested too deeply") from None
    states = found[0] if isinstance(found, tuple) and len(found) == 2 else found
    if not isinstance(states, dict):
        raise CheckpointError(f"{name}: not the states of an optimizer, but a {type(states).__name__}")
    if isinstance(found, tuple) and not isinstance(found[1], base):
        raise CheckpointError(f"{name}: in the place of the optimizer is a {type(found[1]).__name__}")
    return found


def _named(x: Any, base: Any, seen: dict[int, Any]) -> Any:
    """The structure with a `Named` for each object; what occurs twice is one object in the result, too."""
    if id(x) in seen:
        return seen[id(x)][1]
    if isinstance(x, NDArray):
        made: Any = state_files.array(x.asnumpy())
    elif x.__class__ is dict:
        made = {}
        seen[id(x)] = x, made
        made.update((k, _named(v, base, seen)) for k, v in x.items())
    elif x.__class__ in (list, tuple):
        made = type(x)(_named(v, base, seen) for v in x)
    elif isinstance(x, (base, schedules.LRScheduler)):
        made = Named(*_name(type(x)), None)
        seen[id(x)] = x, made
        made.state = _named(_state(x), base, seen)
    else:
        return x
    seen[id(x)] = x, made
    return made


def _state(x: Any) -> dict[str, Any]:
    get = getattr(type(x), "__getstate__", None)
    own = get(x) if get is not None else x.__dict__
    return own if isinstance(own, dict) else dict(x.__dict__)


def _name(own: type) -> tuple[str, str]:
    """The module and name under which MXNet finds the class."""
    if own.__module__.startswith("gluonjit.optimizer"):
        inner = "contrib" if own.__name__ == "GroupAdaGrad" else "optimizer"
        return f"mxnet.optimizer.{inner}", own.__name__
    if own.__module__ == "gluonjit.training.schedules":
        return "mxnet.lr_scheduler", own.__name__
    return own.__module__, own.__qualname__


def _made(x: Any, base: Any, name: str, seen: dict[int, Any]) -> Any:
    """The structure with arrays, optimizers and schedules."""
    if id(x) in seen:
        return seen[id(x)][1]
    made: Any
    if isinstance(x, Named):
        elements = state_files.elements(x, name)
        if elements is not None:
            made = ndarray_of(elements, dtype=elements.dtype)
        else:
            own = _class(x, base, name)
            made = object.__new__(own)
            seen[id(x)] = x, made
            state = _made(x.state, base, name, seen)
            if not isinstance(state, dict):
                raise CheckpointError(f"{name}: {x.name} without settings")
            setstate = getattr(made, "__setstate__", None)
            if setstate is not None:
                setstate(state)
            else:
                made.__dict__.update(state)
    elif x.__class__ is dict:
        made = {}
        seen[id(x)] = x, made
        made.update((k, _made(v, base, name, seen)) for k, v in x.items())
    elif x.__class__ in (list, tuple):
        made = type(x)(_made(v, base, name, seen) for v in x)
    else:
        return x
    seen[id(x)] = x, made
    return made


def _class(x: Named, base: Any, name: str) -> type:
    found: Any = None
    if x.module.startswith(_OPTIMIZERS):
        found = base.opt_registry.get(x.name.lower())
    elif x.module in _SCHEDULES:
        found = getattr(schedules, x.name, None) if x.name in schedules.__all__ else None
    else:
        found = sys.modules.get(x.module)
        for part in x.name.split("."):
            found = getattr(found, part, None)
        if not (isinstance(found, type) and issubclass(found, (base, schedules.LRScheduler))):
            found = None
    if found is None:
        raise MXNetError(
            f"{name}: it needs the optimizer or schedule {x.module}.{x.name}, which is not known here. If it is yours, "
            "import its module before loading"
        )
    own: type = found
    return own
