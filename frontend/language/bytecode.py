"""What the bytecode of a program tells: whether a statement drops a result, and whether functions ask for classes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from gluonjit.language.source import is_ours


def drops_result(frame: FrameType, function: Any) -> bool:
    """Whether the frame, whose current instruction calls `function`, does so in a statement that is nothing but this
    call, as `net(x)` or `self.net(x, y=2)`: nobody sees the result.

    False where it is not plain from names that the statement itself calls the function: in `found.extend(map(net, xs))`
    the statement's result is dropped, and those of the net are not."""
    import dis  # 3 ms

    found = [i for i in dis.get_instructions(frame.f_code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    if any(i.opname == "LOAD_GLOBAL" and i.argval in _OWN_NAMES for i in found):
        return False
    at = next((k for k, i in enumerate(found) if i.offset == frame.f_lasti), len(found))
    if at + 1 >= len(found) or found[at + 1].opname != "POP_TOP":
        return False
    wanted = 1 - dis.stack_effect(found[at].opcode, found[at].arg)  # the function and its arguments
    first = at
    while wanted > 0 and first > 0:
        first -= 1
        i = found[first]
        if "JUMP" in i.opname:
            return False  # `net(x if a else y)`: pushed in more than one way
        wanted -= dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None)
    loads = [i for i in found[first:at] if i.opname != "PUSH_NULL"]
    if not loads or not loads[0].opname.startswith(_LOADS) or not isinstance(loads[0].argval, str):
        return False
    called = _value(frame, loads[0].argval)
    for i in loads[1:]:
        if i.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        called = inspect.getattr_static(called, i.argval, None)
    return called is function


def _value(frame: FrameType, name: str) -> Any:
    """What a frame has by this name; None if nothing."""
    space = frame.f_locals
    try:
        return space[name]
    except KeyError:
        return frame.f_globals.get(name)
    finally:
        # Of a function, Python before 3.13 keeps one copy, and the arrays in it, as long as the frame. Whoever else has
        # that copy needs it: the references are otherwise those of the frame, of this function and of the call.
        is_copy = type(space) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if is_copy and sys.getrefcount(space) <= 3:
            space.clear()


_OWN_NAMES = frozenset(("locals", "vars"))
"""What may have given a function the one copy of its names that Python before 3.13 makes: reading a name changes it."""
_LOADS = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")


def asks_for_classes(functions: Iterable[Any], owner: type) -> bool:
    """Whether any of the functions, or one of the program that they call by name, asks for the class of something.
    Names are looked up in the module of the function, in modules that it names, and in the class `owner`, whose methods
    these functions are."""
    waiting, seen = list(functions), set()
    while waiting:
        function = waiting.pop()
        if isinstance(function, (MethodType, staticmethod, classmethod)):
            function = function.__func__
        if not isinstance(function, FunctionType) or function in seen or is_ours(function.__module__ or ""):
            continue
        seen.add(function)
        names = set(_names(function.__code__))
        if not _CLASS_OF.isdisjoint(names):
            return True
        for space in [function.__globals__, *_modules(function.__globals__, names), *map(vars, owner.__mro__)]:
            waiting += [space[name] for name in names if name in space]
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # nothing is in it yet
                waiting.append(cell.cell_contents)
    return False


_CLASS_OF = frozenset(("type", "__class__"))


def _names(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes in a function and in those that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _modules(space: Mapping[str, Any], names: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The namespaces of the program's modules that are among the names."""
    for name in names:
        module = space.get(name)
        if isinstance(module, ModuleType) and not is_ours(module.__name__):
            yield vars(module)
