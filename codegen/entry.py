"""The way from Python into a compiled graph: one module, compiled once per process, serves every executable.

`@fast` has CPython's METH_FASTCALL signature. Its `self` is an int64 ndarray, the *record* (`Field` names its words),
which describes one executable's last-used signature: it checks that the arguments are exactly that, takes their data
pointers, makes the result arrays, gives up the GIL unless the call is brief, calls the native function, and wraps the
results. Anything unexpected (another type, shape, dtype, layout, a changed parameter, a busy arena, training mode) goes
to the record's Python fallback with the same arguments, so `@fast` never has to explain an error.

`@run` calls a native function on this thread, `@dispatch` on several: they are in the same module
(`codegen.threads.team`), as is `@chain`, which runs several as one (`codegen.threads.chain`).

Programs that train get a second module when they need it, whose functions take over what Python does around such a
chain: `@note` (`codegen.noting`) and `@leave` (`codegen.leaving`).

NumPy's own memory begins anywhere, and vectors that are stored across the ends of cache lines take twice as long. So
large results get memory from `codegen.block_memory`, to which NumPy gives it back when the array dies.
"""

from __future__ import annotations

from enum import IntEnum

from gluonjit.codegen.block_memory import add_blocks
from gluonjit.codegen.leaving import add_leave
from gluonjit.codegen.noting import add_note
from gluonjit.codegen.python_objects import Array, check_array, leave_unless, member, word
from gluonjit.codegen.text.llvm import Exit, Function, Module
from gluonjit.codegen.threads.chain import add_chain
from gluonjit.codegen.threads.team import add_team
from gluonjit.ir.machine import Machine


class Field(IntEnum):
    """Words of a record."""

    FALLBACK = 0  # PyObject*: called with the same arguments when the fast path does not apply
    VECTORCALL = 1  # PyObject_VectorcallDict: without "Dict" it is no symbol before Python 3.11
    N_ARGS = 2
    WRAPPER_TYPE = 3  # PyTypeObject* of NDArray
    ARRAY_SLOT = 4  # byte offset of NDArray._array
    ARRAY_TYPE = 5  # &PyArray_Type
    EPOCH = 6  # const int64*: moves when a watched storage is written
    EPOCH_SEEN = 7
    MODE = 8  # const int64*: nonzero while any thread is in a mode that the fast path does not serve
    ARENA = 9  # char*: 0 while a call uses it
    FUNCTION = 10  # void (*)(void **table, int64 thread, int64 nthreads)
    N_OUTPUTS = 11
    N_TABLE = 12
    TABLE = 13  # void*[N_TABLE]: the template, complete but for inputs, outputs and arena
    ARENA_SLOT = 14  # index of the arena in the table
    INPUTS = 15  # int64[]: for each argument descr, nd, dimensions…
    OUTPUTS = 16  # int64[]: for each result descr, nd, table slot, bytes if it is to be aligned or 0, dimensions…
    NEW_ARRAY = 17  # PyArray_Empty
    SAVE_THREAD = 18  # PyEval_SaveThread, or 0: the call is so brief that it keeps the GIL
    RESTORE_THREAD = 19  # PyEval_RestoreThread
    ALLOC = 20  # PyType_GenericAlloc
    DECREF = 21  # Py_DecRef
    NONE = 22  # Py_None
    NONE_SLOT_A = 23  # byte offsets of the two NDArray slots that start as None
    NONE_SLOT_B = 24
    NEW_LIST = 25  # PyList_New, or 0 when the call returns its single result bare
    LIST_ITEMS = 26  # byte offset of PyListObject.ob_item
    INCREF = 27  # Py_IncRef (a plain add would break immortal objects)
    TEAM = 28  # the team's block, or 0: calls run on their own thread alone
    NTHREADS = 29  # the most threads of a call
    SHORT = 30  # nonzero: not worth waiting for workers to wake up
    BLOCKS = 31  # see `codegen.block_memory`
    NEW_FROM_DESCR = 32  # PyArray_NewFromDescr
    DATA_HANDLER = 33  # PyObject*: what gives the memory back
    NO_MEMORY = 34  # PyErr_NoMemory
    STORAGE_CONTEXT = 35  # byte offset of Storage.context
    FLUSH = 36  # nonzero: denormals count as zero during the call
    CALLS = 37  # int64*: how many calls were served here
    COUNT = 38


_OWN_DATA = 0x0004  # NPY_ARRAY_OWNDATA
_WRITEABLE = 0x0400  # NPY_ARRAY_WRITEABLE


def entry_module(target: Machine, sleep: str | None) -> str:
    """LLVM text of the module that holds `@fast` and the team's functions. `sleep`: see `codegen.threads.team`."""
    module = Module(target)
    add_team(module, sleep)
    add_chain(module)
    add_blocks(module)
    _aligned_array(module)
    _fast(module)
    return module.text()


def steps_module(target: Machine) -> str:
    """LLVM text of the module for steps of training."""
    module = Module(target)
    add_leave(module)
    add_note(module)
    return module.text()


def _decref_all(f: Function, decref: str, objects: str, begin: int | str, end: int | str) -> None:
    """Gives up references to `objects[begin:end]`."""
    with f.for_(begin, end) as loop:
        f.call(decref, "void", ("ptr", f.load("ptr", f.gep("ptr", objects, loop.index), 8)))


def _aligned_array(module: Module) -> None:
    """`@aligned_array(rec, descr, nd, dims, nbytes)`: a new array in memory of its own that begins a cache line, or
    null with Python's error set. It takes over the reference to `descr`."""
    params = (("ptr", "rec"), ("ptr", "descr"), ("i32", "nd"), ("ptr", "dims"), ("i64", "nbytes"))
    f = module.function("aligned_array", params, "ptr", linkage="internal")
    blocks = word(f, Field.BLOCKS)
    data = f.call("take_block", "ptr", ("ptr", blocks), ("i64", "%nbytes"))
    with f.exit(hint="no.memory") as no_memory:
        f.call(word(f, Field.DECREF), "void", ("ptr", "%descr"))
        f.call(word(f, Field.NO_MEMORY), "ptr")
        f.ret("null")
    f.leave_if(f.op(f"icmp eq ptr {data}, null"), no_memory)
    array = f.call(
        word(f, Field.NEW_FROM_DESCR),
        "ptr",
        ("ptr", word(f, Field.ARRAY_TYPE)),
        ("ptr", "%descr"),
        ("i32", "%nd"),
        ("ptr", "%dims"),
        ("ptr", "null"),  # strides: row-major
        ("ptr", data),
        ("i32", _WRITEABLE),
        ("ptr", "null"),  # no template
    )
    with f.exit(hint="no.array") as no_array:
        f.call("give_block", "void", ("ptr", blocks), ("ptr", data), ("i64", "%nbytes"))
        f.ret("null")
    f.leave_if(f.op(f"icmp eq ptr {array}, null"), no_array)
    flags = f.gep("i8", array, int(Array.FLAGS))
    f.store("i32", f.op(f"or i32 {f.load('i32', flags)}, {_OWN_DATA}"), flags)
    handler = word(f, Field.DATA_HANDLER)
    f.call(word(f, Field.INCREF), "void", ("ptr", handler))
    f.store("ptr", handler, f.gep("i8", array, int(Array.HANDLER)))
    f.ret(array)


def _fast(module: Module) -> None:
    """`@fast(self, args, nargs)`, in the order in which it happens."""
    module.declare("llvm.memcpy.p0.p0.i64", "void", ("ptr", "ptr", "i64", "i1"))
    f = module.function("fast", (("ptr", "self"), ("ptr", "args"), ("i64", "nargs")), "ptr")
    f.emit(f"%rec = load ptr, ptr {f.gep('i8', '%self', int(Array.DATA))}")
    with f.exit(hint="slow") as slow:
        arguments = (("ptr", word(f, Field.FALLBACK)), ("ptr", "%args"), ("i64", "%nargs"), ("ptr", "null"))
        f.ret(f.call(word(f, Field.VECTORCALL), "ptr", *arguments))
    arena = _arena_if_free(f, slow)
    table = f.op(f"alloca ptr, i64 {word(f, Field.N_TABLE, 'i64')}, align 64")
    held = f.op("alloca ptr, i64 %nargs, align 8")
    made = f.op(f"alloca ptr, i64 {word(f, Field.N_OUTPUTS, 'i64')}, align 8")
    nbytes = f.mul(word(f, Field.N_TABLE, "i64"), 8)
    template = word(f, Field.TABLE)
    f.call("llvm.memcpy.p0.p0.i64", "void", ("ptr", table), ("ptr", template), ("i64", nbytes), ("i1", "false"))
    _take_arguments(f, table, held, slow)
    # From here on nothing goes back to the fallback.
    calls = word(f, Field.CALLS)
    f.store("i64", f.add(f.load("i64", calls, 8), 1), calls, 8)
    # The arrays are held: another thread may drop them meanwhile.
    incref, decref = word(f, Field.INCREF), word(f, Field.DECREF)
    with f.for_(0, "%nargs") as loop:
        f.call(incref, "void", ("ptr", f.load("ptr", f.gep("ptr", held, loop.index), 8)))
    with f.exit("ptr", "i64", "i64", hint="failed") as failed:
        # No memory for what it was to make: gives up the list, if there is one, and its own results begin … end - 1.
        results, begin, end = failed.params
        with f.if_(f.op(f"icmp ne ptr {results}, null")):
            f.call(decref, "void", ("ptr", results))
        _decref_all(f, decref, made, begin, end)
        _decref_all(f, decref, held, 0, "%nargs")
        f.ret("null")
    _make_results(f, table, made, incref, failed)
    _call(f, table, arena)
    result = _wrap_results(f, made, incref, failed)
    _decref_all(f, decref, held, 0, "%nargs")
    f.ret(result)


def _arena_if_free(f: Function, slow: Exit) -> str:
    """The arena, after checking the number of arguments, the modes, the epoch, and that no other call has the arena."""
    wanted = f.op(f"icmp eq i64 %nargs, {word(f, Field.N_ARGS, 'i64')}")
    plain = f.op(f"icmp eq i64 {f.load('i64', word(f, Field.MODE), 8)}, 0")
    epoch = f.load("i64", word(f, Field.EPOCH), 8)
    unwritten = f.op(f"icmp eq i64 {epoch}, {word(f, Field.EPOCH_SEEN, 'i64')}")
    arena = word(f, Field.ARENA)
    leave_unless(f, slow, wanted, plain, unwritten, f.op(f"icmp ne ptr {arena}, null"))
    return arena


def _take_arguments(f: Function, table: str, held: str, slow: Exit) -> None:
    """Checks that each argument is an NDArray on cpu(0) exactly as the record has it; its data goes to the table, its
    ndarray to `held`."""
    wrapper, slot = word(f, Field.WRAPPER_TYPE), word(f, Field.ARRAY_SLOT, "i64")
    array_type, none = word(f, Field.ARRAY_TYPE), word(f, Field.NONE)
    storage_slot, context_slot = word(f, Field.NONE_SLOT_A, "i64"), word(f, Field.STORAGE_CONTEXT, "i64")
    with f.for_(0, "%nargs", carried=[("ptr", word(f, Field.INPUTS))], hint="arg") as loop:
        (spec,) = loop.carried
        argument = f.load("ptr", f.gep("ptr", "%args", loop.index), 8)
        leave_unless(f, slow, f.op(f"icmp eq ptr {member(f, 'ptr', argument, Array.TYPE)}, {wrapper}"))
        storage = member(f, "ptr", argument, storage_slot)
        leave_unless(f, slow, f.op(f"icmp ne ptr {storage}, null"))
        with f.if_(f.op(f"icmp ne ptr {storage}, {none}")):  # another device has parameters of its own
            leave_unless(f, slow, f.op(f"icmp eq ptr {member(f, 'ptr', storage, context_slot)}, {none}"))
        array = member(f, "ptr", argument, slot)
        end = check_array(f, array, array_type, spec, slow)
        f.store("ptr", member(f, "ptr", array, Array.DATA), f.gep("ptr", table, loop.index), 8)
        f.store("ptr", array, f.gep("ptr", held, loop.index), 8)
        loop.next(end)


def _make_results(f: Function, table: str, made: str, incref: str, failed: Exit) -> None:
    """Arrays for the results, in `made`; their data goes to the table."""
    n_outputs, empty = word(f, Field.N_OUTPUTS, "i64"), word(f, Field.NEW_ARRAY)
    with f.for_(0, n_outputs, carried=[("ptr", word(f, Field.OUTPUTS))], hint="out") as loop:
        (spec,) = loop.carried
        descr = f.load("ptr", spec, 8)
        f.call(incref, "void", ("ptr", descr))  # either way of making an array takes over a reference
        rank, slot, nbytes = (f.load("i64", f.gep("i64", spec, k), 8) for k in (1, 2, 3))
        nd, dims = f.op(f"trunc i64 {rank} to i32"), f.gep("i64", spec, 4)
        new = (("i32", nd), ("ptr", dims), ("ptr", descr), ("i32", 0))
        aligned = (("ptr", "%rec"), ("ptr", descr), ("i32", nd), ("ptr", dims), ("i64", nbytes))
        array = f.either(
            f.op(f"icmp eq i64 {nbytes}, 0"),
            "ptr",
            lambda: f.call(empty, "ptr", *new),
            lambda: f.call("aligned_array", "ptr", *aligned),
        )
        f.store("ptr", array, f.gep("ptr", made, loop.index), 8)
        f.leave_if(f.op(f"icmp eq ptr {array}, null"), failed, "null", 0, loop.index)
        f.store("ptr", member(f, "ptr", array, Array.DATA), f.gep("ptr", table, slot), 8)
        loop.next(f.gep("i64", dims, rank))


def _call(f: Function, table: str, arena: str) -> None:
    """Runs the graph, without the GIL if the call is not brief. Meanwhile the record has no arena, so that a call from
    another thread goes to the fallback."""
    arena_field = f.gep("i64", "%rec", int(Field.ARENA))
    f.store("ptr", arena, f.gep("ptr", table, word(f, Field.ARENA_SLOT, "i64")), 8)
    f.store("ptr", "null", arena_field, 8)
    save, restore, team = (word(f, field) for field in (Field.SAVE_THREAD, Field.RESTORE_THREAD, Field.TEAM))
    function = ("ptr", word(f, Field.FUNCTION)), ("ptr", table)
    brief = f.op(f"icmp eq ptr {save}, null")
    state = f.either(brief, "ptr", lambda: "null", lambda: f.call(save, "ptr"))
    alone, flush = f.op(f"icmp eq ptr {team}, null"), ("i64", word(f, Field.FLUSH, "i64"))
    with f.if_(alone):
        f.call("run", "void", *function, ("i64", 0), ("i64", 1), flush)
    with f.if_(f.op(f"xor i1 {alone}, true")):
        nthreads, short = (word(f, field, "i64") for field in (Field.NTHREADS, Field.SHORT))
        f.call("dispatch", "void", ("ptr", team), *function, ("i64", nthreads), ("i64", short), flush)
    with f.if_(f.op(f"xor i1 {brief}, true")):
        f.call(restore, "void", ("ptr", state))
    f.store("ptr", arena, arena_field, 8)


def _wrap_results(f: Function, made: str, incref: str, failed: Exit) -> str:
    """What the call returns: the only result as an NDArray, or a list of all of them."""
    n_outputs, wrapper = word(f, Field.N_OUTPUTS, "i64"), word(f, Field.WRAPPER_TYPE)
    array_slot = word(f, Field.ARRAY_SLOT, "i64")
    none, new_wrapper, new_list = (word(f, field) for field in (Field.NONE, Field.ALLOC, Field.NEW_LIST))
    none_slots = [word(f, field, "i64") for field in (Field.NONE_SLOT_A, Field.NONE_SLOT_B)]
    single = f.alloca("ptr")
    bare = f.op(f"icmp eq ptr {new_list}, null")

    def make_list() -> str:
        made_list = f.call(new_list, "ptr", ("i64", n_outputs))
        f.leave_if(f.op(f"icmp eq ptr {made_list}, null"), failed, "null", 0, n_outputs)
        return made_list

    results = f.either(bare, "ptr", lambda: "null", make_list)
    items = f.either(bare, "ptr", lambda: single, lambda: member(f, "ptr", results, word(f, Field.LIST_ITEMS, "i64")))
    with f.for_(0, n_outputs, hint="out") as loop:
        wrapped = f.call(new_wrapper, "ptr", ("ptr", wrapper), ("i64", 0))
        # The arrays before this one belong to the list.
        f.leave_if(f.op(f"icmp eq ptr {wrapped}, null"), failed, results, loop.index, n_outputs)
        f.store("ptr", f.load("ptr", f.gep("ptr", made, loop.index), 8), f.gep("i8", wrapped, array_slot), 8)
        for none_slot in none_slots:
            f.call(incref, "void", ("ptr", none))
            f.store("ptr", none, f.gep("i8", wrapped, none_slot), 8)
        f.store("ptr", wrapped, f.gep("ptr", items, loop.index), 8)
    return f.either(bare, "ptr", lambda: f.load("ptr", single, 8), lambda: results)
