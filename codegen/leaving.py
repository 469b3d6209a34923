"""`@leave`: the `__exit__` of a context that has set two attributes of an object (`runtime.native_exit`).

Python looks for signals at the first instruction of every function in Python. An error that a handler raises there, at
the beginning of an `__exit__`, would leave the attributes as they are inside; native code has no such place.

It has CPython's METH_FASTCALL signature. `self` is the context, in whose slots `__enter__` has put what the attributes
were; None where it has not, and then the fallback does it all.
"""

from __future__ import annotations

from enum import IntEnum

from gluonjit.codegen.python_objects import word
from gluonjit.codegen.text.llvm import Function, Module

ATTRIBUTES = 2


class Leave(IntEnum):
    """Words of the record that `@set_leave` is given."""

    FALLBACK = 0  # PyObject*: called with the context alone
    VECTORCALL = 1  # PyObject_VectorcallDict
    GET = 2  # PyObject_GetAttr
    SET = 3  # PyObject_SetAttr
    INCREF = 4  # Py_IncRef
    DECREF = 5  # Py_DecRef
    NONE = 6  # Py_None
    TRUE = 7  # Py_True
    TARGET = 8  # PyObject*: what has the attributes, each True or False
    COUNTER = 9  # int64*: how many attributes are True, of the targets of all threads
    GUARD = 10  # PyObject*: what has an attribute that is None, else the fallback does it
    GUARD_NAME = 11  # PyObject*: its name
    NAMES = 12  # PyObject*[ATTRIBUTES]
    SLOTS = NAMES + ATTRIBUTES  # i64[ATTRIBUTES]: byte offsets in the context
    COUNT = SLOTS + ATTRIBUTES


def add_leave(module: Module) -> None:
    """Adds `@set_leave(record)` and `@leave(self, args, nargs)`."""
    place = module.word("leave_record")
    f = module.function("set_leave", (("ptr", "record"),))
    f.store("ptr", "%record", place, 8)
    f = module.function("leave", (("ptr", "self"), ("ptr", "args"), ("i64", "nargs")), "ptr")
    f.emit(f"%rec = load ptr, ptr {place}, align 8")
    none, decref = word(f, Leave.NONE), word(f, Leave.DECREF)
    with f.exit(hint="slow") as slow:
        own = f.alloca("ptr")
        f.store("ptr", "%self", own, 8)
        arguments = (("ptr", word(f, Leave.FALLBACK)), ("ptr", own), ("i64", 1), ("ptr", "null"))
        f.ret(f.call(word(f, Leave.VECTORCALL), "ptr", *arguments))
    with f.exit(hint="failed") as failed:
        f.ret("null")
    guard = _attribute(f, word(f, Leave.GUARD), word(f, Leave.GUARD_NAME))
    f.leave_if(f.op(f"icmp eq ptr {guard}, null"), failed)
    f.call(decref, "void", ("ptr", guard))
    f.leave_if(f.op(f"icmp ne ptr {guard}, {none}"), slow)
    slots = [f.gep("i8", "%self", word(f, Leave.SLOTS + k, "i64")) for k in range(ATTRIBUTES)]
    before = [f.load("ptr", slot, 8) for slot in slots]
    for value in before:
        f.leave_if(f.op(f"icmp eq ptr {value}, {none}"), slow)
    counter, target = word(f, Leave.COUNTER), word(f, Leave.TARGET)
    for k, (slot, value) in enumerate(zip(slots, before)):
        name = word(f, Leave.NAMES + k)
        now = _attribute(f, target, name)
        f.leave_if(f.op(f"icmp eq ptr {now}, null"), failed)
        f.call(decref, "void", ("ptr", now))  # True or False, which last
        with f.if_(f.op(f"icmp ne ptr {now}, {value}")):
            error = f.call(word(f, Leave.SET), "i32", ("ptr", target), ("ptr", name), ("ptr", value))
            by = f.op(f"select i1 {f.op(f'icmp eq ptr {value}, {word(f, Leave.TRUE)}')}, i64 1, i64 -1")
            by = f.op(f"select i1 {f.op(f'icmp eq i32 {error}, 0')}, i64 {by}, i64 0")
            f.store("i64", f.add(f.load("i64", counter, 8), by), counter, 8)
            f.leave_if(f.op(f"icmp ne i32 {error}, 0"), failed)
        f.call(word(f, Leave.INCREF), "void", ("ptr", none))
        f.store("ptr", none, slot, 8)
        f.call(decref, "void", ("ptr", value))
    f.call(word(f, Leave.INCREF), "void", ("ptr", none))
    f.ret(none)


def _attribute(f: Function, x: str, name: str) -> str:
    """A new reference to an attribute; null with Python's error set."""
    return f.call(word(f, Leave.GET), "ptr", ("ptr", x), ("ptr", name))
