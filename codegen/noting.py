"""`@note`: notes a call of a step of training that is computed later (`execution/step_replay.py`).

It has CPython's METH_FASTCALL signature. Its `self` is an int64 ndarray, whose words `Note` names. If the arguments are
as these say, it puts their addresses into the tables of the step's native calls, makes them deferred, and returns the
result, a deferred array whose address is in the tables, too. Else it does nothing and returns None.
"""

from __future__ import annotations

from enum import IntEnum

from gluonjit.codegen.python_objects import Array, check_array, is_same, leave_unless, member, word
from gluonjit.codegen.text.llvm import Exit, Function, Module


class Note(IntEnum):
    """Words of a record."""

    N_ARGS = 0
    OPERANDS = 1  # int64*: for each argument the words of `Operand`, the last ones being its sizes
    ARRAY_TYPE = 2  # &PyArray_Type
    ARRAY_SLOT = 3  # byte offsets of the slots of an NDArray
    STORAGE_SLOT = 4
    ORIGIN_SLOT = 5
    STORAGE_CONTEXT = 6  # byte offsets in a Storage
    STORAGE_ALIASED = 7
    STORAGE_EXPOSED = 8
    NONE = 9  # Py_None
    FALSE = 10  # Py_False
    DEFERRED = 11  # PyObject*: a list of the arguments that were made deferred
    APPEND = 12  # PyList_Append
    SET = 13  # PyObject_SetAttr
    CLASS = 14  # PyObject*: "__class__"
    INCREF = 15  # Py_IncRef
    DECREF = 16  # Py_DecRef
    ALLOC = 17  # PyType_GenericAlloc
    NEW_ARRAY = 18  # PyArray_Empty
    RESULT_KIND = 19  # PyTypeObject*: the deferred class of the result
    RESULT_TYPE = 20  # int64*: descr, number of dimensions, these
    RESULT_WORDS = 21  # int64*: how many words are to hold its address, and where they are
    RESULT = 22  # PyObject*: the last result that was returned; 0 if there was another since
    COUNT = 23


class Operand(IntEnum):
    """Words about an argument."""

    OWN = 0  # PyTypeObject*: its class; 0: it is the result of an earlier call
    KIND = 1  # PyTypeObject*: its deferred class; PyObject**: where that result is
    WORDS = 2  # int64*: how many words are to hold its address, and where they are
    ARRAY = 3  # descr, number of dimensions, these


def add_note(module: Module) -> None:
    """Adds `@note(self, args, nargs)`."""
    f = module.function("note", (("ptr", "self"), ("ptr", "args"), ("i64", "nargs")), "ptr")
    f.emit(f"%rec = load ptr, ptr {f.gep('i8', '%self', int(Array.DATA))}")
    none, incref, decref = (word(f, field) for field in (Note.NONE, Note.INCREF, Note.DECREF))
    with f.exit(hint="failed") as failed:
        f.ret("null")
    # First: it may run Python's garbage collector, and so any code.
    result, data = _made(f, none, incref, failed)
    with f.exit(hint="undone") as undone:
        f.call(decref, "void", ("ptr", result))
        f.ret("null")
    with f.exit(hint="other") as other:
        f.call(decref, "void", ("ptr", result))
        f.call(incref, "void", ("ptr", none))
        f.ret(none)
    leave_unless(f, other, f.op(f"icmp eq i64 %nargs, {word(f, Note.N_ARGS, 'i64')}"))
    _check(f, none, other)
    _commit(f, undone)
    _put(f, data, word(f, Note.RESULT_WORDS))
    f.store("ptr", result, f.gep("i64", "%rec", int(Note.RESULT)), 8)
    f.ret(result)


def _operand(f: Function, spec: str, field: Operand) -> str:
    return f.load("ptr", f.gep("i64", spec, int(field)), 8)


def _end(f: Function, spec: str) -> str:
    """Where the next operand's words are."""
    rank = f.load("i64", f.gep("i64", spec, int(Operand.ARRAY) + 1), 8)
    return f.gep("i64", f.gep("i64", spec, int(Operand.ARRAY) + 2), rank)


def _check(f: Function, none: str, other: Exit) -> None:
    """Leaves unless each argument is what it should be, and nobody else may look at its elements unnoticed."""
    slots = [word(f, field, "i64") for field in (Note.ARRAY_SLOT, Note.STORAGE_SLOT, Note.ORIGIN_SLOT)]
    wanted = [none, *[word(f, Note.FALSE)] * 2]
    members = [word(f, field, "i64") for field in (Note.STORAGE_CONTEXT, Note.STORAGE_ALIASED, Note.STORAGE_EXPOSED)]
    array_type = word(f, Note.ARRAY_TYPE)
    with f.for_(0, "%nargs", carried=[("ptr", word(f, Note.OPERANDS))], hint="arg") as loop:
        (spec,) = loop.carried
        x, own = f.load("ptr", f.gep("ptr", "%args", loop.index), 8), _operand(f, spec, Operand.OWN)
        is_result = is_same(f, own, "null")
        with f.if_(is_result):
            leave_unless(f, other, is_same(f, x, f.load("ptr", _operand(f, spec, Operand.KIND), 8)))
        with f.if_(f.op(f"xor i1 {is_result}, true")):
            leave_unless(f, other, is_same(f, member(f, "ptr", x, Array.TYPE), own))
            array, storage, origin = (member(f, "ptr", x, slot) for slot in slots)
            leave_unless(f, other, is_same(f, origin, none), f.op(f"icmp ne ptr {storage}, null"))
            with f.if_(f.op(f"icmp ne ptr {storage}, {none}")):
                parts = [is_same(f, member(f, "ptr", storage, m), w) for m, w in zip(members, wanted)]
                leave_unless(f, other, *parts)
            check_array(f, array, array_type, f.gep("i64", spec, int(Operand.ARRAY)), other)
            leave_unless(f, other, is_same(f, member(f, "ptr", array, Array.BASE), "null"))
        loop.next(_end(f, spec))


def _made(f: Function, none: str, incref: str, failed: Exit) -> tuple[str, str]:
    """The result, and where its elements will be."""
    spec = word(f, Note.RESULT_TYPE)
    descr, rank = f.load("ptr", spec, 8), f.load("i64", f.gep("i64", spec, 1), 8)
    f.call(incref, "void", ("ptr", descr))  # which the array takes over
    nd, dims = f.op(f"trunc i64 {rank} to i32"), f.gep("i64", spec, 2)
    new = (("i32", nd), ("ptr", dims), ("ptr", descr), ("i32", 0))
    array = f.call(word(f, Note.NEW_ARRAY), "ptr", *new)
    f.leave_if(is_same(f, array, "null"), failed)
    result = f.call(word(f, Note.ALLOC), "ptr", ("ptr", word(f, Note.RESULT_KIND)), ("i64", 0))
    with f.exit(hint="no.result") as no_result:
        f.call(word(f, Note.DECREF), "void", ("ptr", array))
        f.ret("null")
    f.leave_if(is_same(f, result, "null"), no_result)
    for slot, value in ((Note.ARRAY_SLOT, array), (Note.STORAGE_SLOT, none), (Note.ORIGIN_SLOT, none)):
        if value is none:
            f.call(incref, "void", ("ptr", none))
        f.store("ptr", value, f.gep("i8", result, word(f, slot, "i64")), 8)
    return result, member(f, "ptr", array, Array.DATA)


def _commit(f: Function, undone: Exit) -> None:
    """Puts the arguments' addresses into tables, and makes them deferred."""
    slot, set, name = word(f, Note.ARRAY_SLOT, "i64"), word(f, Note.SET), word(f, Note.CLASS)
    append, deferred = word(f, Note.APPEND), word(f, Note.DEFERRED)
    with f.for_(0, "%nargs", carried=[("ptr", word(f, Note.OPERANDS))], hint="arg") as loop:
        (spec,) = loop.carried
        x, own = f.load("ptr", f.gep("ptr", "%args", loop.index), 8), _operand(f, spec, Operand.OWN)
        with f.if_(f.op(f"icmp ne ptr {own}, null")):
            data = member(f, "ptr", member(f, "ptr", x, slot), Array.DATA)
            _put(f, data, _operand(f, spec, Operand.WORDS))
        with f.if_(is_same(f, member(f, "ptr", x, Array.TYPE), own)):  # else it is passed twice, or a result
            error = f.call(append, "i32", ("ptr", deferred), ("ptr", x))
            f.leave_if(f.op(f"icmp ne i32 {error}, 0"), undone)
            kind = _operand(f, spec, Operand.KIND)
            error = f.call(set, "i32", ("ptr", x), ("ptr", name), ("ptr", kind))
            f.leave_if(f.op(f"icmp ne i32 {error}, 0"), undone)
        loop.next(_end(f, spec))


def _put(f: Function, data: str, words: str) -> None:
    """Writes an address to the words that are to hold it."""
    with f.for_(0, f.load("i64", words, 8), hint="word") as loop:
        place = f.load("ptr", f.gep("i64", f.gep("i64", words, 1), loop.index), 8)
        f.store("ptr", data, place, 8)
