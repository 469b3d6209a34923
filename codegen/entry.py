"""The way from Python into a compiled graph: one module, compiled once per process, serves every executable.

`@fast` has CPython's METH_FASTCALL signature. Its `self` is an int64 ndarray, the *record* (`Field` names its words),
which describes one executable's last-used signature: it checks that the arguments are exactly that, takes their data
pointers, makes the result arrays, gives up the GIL unless the call is brief, calls the native function, and wraps the
results. Anything unexpected (another type, shape, dtype, layout, a changed parameter, a busy arena, training mode) goes
to the record's Python fallback with the same arguments, so `@fast` never has to explain an error.

`@run` calls a native function with denormals flushed to zero and the caller's floating-point mode restored;
`@dispatch` does so on several threads (`codegen.team`, whose code is in the same module).

Offsets into CPython and NumPy objects: `PyObject.ob_type` 8; `PyArrayObject` (numpy/ndarraytypes.h, the same in
NumPy 1 and 2): data 16, nd 24, dimensions 32, descr 56, flags 64, mem_handler 88.

NumPy's own memory begins anywhere, and vectors that are stored across the ends of cache lines take twice as long. So
large results get memory from the C library, which NumPy frees when the array dies.
"""

from __future__ import annotations

from enum import IntEnum

from gluonjit.codegen.llvm import KERNEL_PARAMS, Module
from gluonjit.codegen.target import Target
from gluonjit.codegen.team import add_team


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
    TEAM = 28  # the team's block, or 0: on this thread alone
    NTHREADS = 29  # on how many threads at most
    SHORT = 30  # nonzero: not worth waiting for workers to wake up
    ALIGNED_ALLOC = 31  # aligned_alloc of the C library
    FREE = 32
    NEW_FROM_DESCR = 33  # PyArray_NewFromDescr
    DATA_HANDLER = 34  # PyDataMem_DefaultHandler: NumPy's, which frees with `free`
    NO_MEMORY = 35  # PyErr_NoMemory
    MADVISE = 36  # or 0
    COUNT = 37


_C_CONTIGUOUS_ALIGNED = 0x0101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
_OWN_DATA = 0x0004  # NPY_ARRAY_OWNDATA
_WRITEABLE = 0x0400  # NPY_ARRAY_WRITEABLE
_LINE = 64
"""Bytes: what results are aligned to."""
_HUGE = 1 << 22
"""Bytes from which on NumPy, too, asks for huge pages."""
_MADV_HUGEPAGE = 14


HANDLER = 88
"""Where in an array NumPy notes who frees its memory."""


def _field(name: str, field: Field, type_: str = "ptr") -> str:
    return f"""
  %{name}.p = getelementptr i64, ptr %rec, i64 {int(field)}
  %{name} = load {type_}, ptr %{name}.p, align 8"""


def entry_module(target: Target, sleep: str | None) -> str:
    """LLVM text of the module that holds `@fast`, `@run` and the team's functions. `sleep`: see `codegen.team`."""
    module = Module(target)
    add_team(module, sleep)
    run = module.function("run", (("ptr", "function"), *KERNEL_PARAMS))
    saved = target.flush_denormals(run)
    run.emit("call void %function(ptr %table, i64 %thread, i64 %nthreads)")
    target.restore_denormals(run, saved)
    module.declare("llvm.memcpy.p0.p0.i64", "void", ("ptr", "ptr", "i64", "i1"))
    module.add(_ALIGNED_ARRAY)
    module.add(_FAST)
    return module.text()


_ALIGNED_ARRAY = f"""
; A new array of `nbytes`, in memory of its own that begins a cache line; takes over the reference to `descr`.
define internal ptr @aligned_array(ptr %rec, ptr %descr, i32 %nd, ptr %dims, i64 %nbytes) nounwind {{
entry:
{_field("alloc", Field.ALIGNED_ALLOC)}
{_field("array.type", Field.ARRAY_TYPE)}
{_field("create", Field.NEW_FROM_DESCR)}
{_field("handler", Field.DATA_HANDLER)}
{_field("incref", Field.INCREF)}
{_field("decref", Field.DECREF)}
{_field("madvise", Field.MADVISE)}
  %rounded.1 = add i64 %nbytes, {_LINE - 1}
  %rounded = and i64 %rounded.1, {-_LINE}
  %data = call ptr %alloc(i64 {_LINE}, i64 %rounded)
  %there = icmp ne ptr %data, null
  br i1 %there, label %advise, label %none

none:
{_field("no.memory", Field.NO_MEMORY)}
  call void %decref(ptr %descr)
  %error = call ptr %no.memory()
  ret ptr null

advise:
  %many = icmp uge i64 %nbytes, {_HUGE}
  %can = icmp ne ptr %madvise, null
  %huge = and i1 %many, %can
  br i1 %huge, label %pages, label %make

pages:
  %at = ptrtoint ptr %data to i64
  %page.1 = add i64 %at, 4095
  %page = and i64 %page.1, -4096
  %skipped = sub i64 %page, %at
  %length = sub i64 %nbytes, %skipped
  %ignored = call i32 %madvise(i64 %page, i64 %length, i32 {_MADV_HUGEPAGE})
  br label %make

make:
  %array = call ptr %create(
    ptr %array.type, ptr %descr, i32 %nd, ptr %dims, ptr null, ptr %data, i32 {_WRITEABLE}, ptr null)
  %made = icmp ne ptr %array, null
  br i1 %made, label %own, label %drop

drop:
{_field("free", Field.FREE)}
  call void %free(ptr %data)
  ret ptr null

own:
  %flags.p = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags.p, align 4
  %flags.own = or i32 %flags, {_OWN_DATA}
  store i32 %flags.own, ptr %flags.p, align 4
  call void %incref(ptr %handler)
  %handler.at = getelementptr i8, ptr %array, i64 {HANDLER}
  store ptr %handler, ptr %handler.at, align 8
  ret ptr %array
}}
"""

_FAST = f"""
define ptr @fast(ptr %self, ptr %args, i64 %nargs) nounwind {{
entry:
  %rec.p = getelementptr i8, ptr %self, i64 16
  %rec = load ptr, ptr %rec.p, align 8
{_field("nargs.want", Field.N_ARGS, "i64")}
  %nargs.ok = icmp eq i64 %nargs, %nargs.want
{_field("mode.at", Field.MODE)}
  %mode = load i64, ptr %mode.at, align 8
  %mode.ok = icmp eq i64 %mode, 0
{_field("epoch.at", Field.EPOCH)}
  %epoch = load i64, ptr %epoch.at, align 8
{_field("epoch.seen", Field.EPOCH_SEEN, "i64")}
  %epoch.ok = icmp eq i64 %epoch, %epoch.seen
{_field("arena", Field.ARENA)}
  %arena.ok = icmp ne ptr %arena, null
  %ok.1 = and i1 %nargs.ok, %mode.ok
  %ok.2 = and i1 %epoch.ok, %arena.ok
  %ok = and i1 %ok.1, %ok.2
  br i1 %ok, label %prepare, label %slow

prepare:
{_field("n.table", Field.N_TABLE, "i64")}
{_field("template", Field.TABLE)}
{_field("n.out", Field.N_OUTPUTS, "i64")}
{_field("wrapper", Field.WRAPPER_TYPE)}
{_field("slot", Field.ARRAY_SLOT, "i64")}
{_field("array.type", Field.ARRAY_TYPE)}
{_field("incref", Field.INCREF)}
{_field("decref", Field.DECREF)}
  %table = alloca ptr, i64 %n.table, align 64
  %held = alloca ptr, i64 %nargs, align 8
  %made = alloca ptr, i64 %n.out, align 8
  %table.bytes = mul i64 %n.table, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr %template, i64 %table.bytes, i1 false)
{_field("in.spec", Field.INPUTS)}
  br label %arg

arg:
  %k = phi i64 [ 0, %prepare ], [ %k.next, %arg.good ]
  %spec = phi ptr [ %in.spec, %prepare ], [ %spec.next, %arg.good ]
  %args.done = icmp eq i64 %k, %nargs
  br i1 %args.done, label %hold.start, label %arg.check

arg.check:
  %arg.p = getelementptr ptr, ptr %args, i64 %k
  %object = load ptr, ptr %arg.p, align 8
  %object.type.p = getelementptr i8, ptr %object, i64 8
  %object.type = load ptr, ptr %object.type.p, align 8
  %is.wrapper = icmp eq ptr %object.type, %wrapper
  br i1 %is.wrapper, label %arg.wrapper, label %slow

arg.wrapper:
  %array.p = getelementptr i8, ptr %object, i64 %slot
  %array = load ptr, ptr %array.p, align 8
  %has.array = icmp ne ptr %array, null
  br i1 %has.array, label %arg.array, label %slow

arg.array:
  %type.p = getelementptr i8, ptr %array, i64 8
  %type = load ptr, ptr %type.p, align 8
  %type.ok = icmp eq ptr %type, %array.type
  br i1 %type.ok, label %arg.layout, label %slow

arg.layout:
  %descr.p = getelementptr i8, ptr %array, i64 56
  %descr = load ptr, ptr %descr.p, align 8
  %descr.want = load ptr, ptr %spec, align 8
  %descr.ok = icmp eq ptr %descr, %descr.want
  %flags.p = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags.p, align 4
  %flags.both = and i32 %flags, {_C_CONTIGUOUS_ALIGNED}
  %flags.ok = icmp eq i32 %flags.both, {_C_CONTIGUOUS_ALIGNED}
  %nd.p = getelementptr i8, ptr %array, i64 24
  %nd32 = load i32, ptr %nd.p, align 4
  %nd = zext i32 %nd32 to i64
  %nd.want.p = getelementptr i64, ptr %spec, i64 1
  %nd.want = load i64, ptr %nd.want.p, align 8
  %nd.ok = icmp eq i64 %nd, %nd.want
  %layout.1 = and i1 %descr.ok, %flags.ok
  %layout.ok = and i1 %layout.1, %nd.ok
  br i1 %layout.ok, label %arg.dims, label %slow

arg.dims:
  %dims.p = getelementptr i8, ptr %array, i64 32
  %dims = load ptr, ptr %dims.p, align 8
  %dims.want = getelementptr i64, ptr %spec, i64 2
  br label %dim

dim:
  %d = phi i64 [ 0, %arg.dims ], [ %d.next, %dim.check ]
  %dims.done = icmp eq i64 %d, %nd
  br i1 %dims.done, label %arg.good, label %dim.check

dim.check:
  %dim.p = getelementptr i64, ptr %dims, i64 %d
  %dim.n = load i64, ptr %dim.p, align 8
  %dim.want.p = getelementptr i64, ptr %dims.want, i64 %d
  %dim.want = load i64, ptr %dim.want.p, align 8
  %dim.ok = icmp eq i64 %dim.n, %dim.want
  %d.next = add i64 %d, 1
  br i1 %dim.ok, label %dim, label %slow

arg.good:
  %data.p = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %data.p, align 8
  %table.arg = getelementptr ptr, ptr %table, i64 %k
  store ptr %data, ptr %table.arg, align 8
  %held.arg = getelementptr ptr, ptr %held, i64 %k
  store ptr %array, ptr %held.arg, align 8
  %spec.next = getelementptr i64, ptr %dims.want, i64 %nd
  %k.next = add i64 %k, 1
  br label %arg

; From here on nothing goes back to the fallback. The arrays are held: another thread may drop them meanwhile.
hold.start:
{_field("out.spec", Field.OUTPUTS)}
{_field("new.array", Field.NEW_ARRAY)}
  br label %hold

hold:
  %h = phi i64 [ 0, %hold.start ], [ %h.next, %hold.one ]
  %hold.done = icmp eq i64 %h, %nargs
  br i1 %hold.done, label %out, label %hold.one

hold.one:
  %h.p = getelementptr ptr, ptr %held, i64 %h
  %h.array = load ptr, ptr %h.p, align 8
  call void %incref(ptr %h.array)
  %h.next = add i64 %h, 1
  br label %hold

out:
  %o = phi i64 [ 0, %hold ], [ %o.next, %out.good ]
  %o.spec = phi ptr [ %out.spec, %hold ], [ %o.spec.next, %out.good ]
  %outs.done = icmp eq i64 %o, %n.out
  br i1 %outs.done, label %call, label %out.make

out.make:
  %o.descr = load ptr, ptr %o.spec, align 8
  call void %incref(ptr %o.descr)
  %o.nd.p = getelementptr i64, ptr %o.spec, i64 1
  %o.nd = load i64, ptr %o.nd.p, align 8
  %o.nd32 = trunc i64 %o.nd to i32
  %o.slot.p = getelementptr i64, ptr %o.spec, i64 2
  %o.slot = load i64, ptr %o.slot.p, align 8
  %o.bytes.p = getelementptr i64, ptr %o.spec, i64 3
  %o.bytes = load i64, ptr %o.bytes.p, align 8
  %o.dims = getelementptr i64, ptr %o.spec, i64 4
  %o.any = icmp eq i64 %o.bytes, 0
  br i1 %o.any, label %out.any, label %out.aligned

out.any:
  %o.array.any = call ptr %new.array(i32 %o.nd32, ptr %o.dims, ptr %o.descr, i32 0)
  br label %out.made

out.aligned:
  %o.array.aligned = call ptr @aligned_array(ptr %rec, ptr %o.descr, i32 %o.nd32, ptr %o.dims, i64 %o.bytes)
  br label %out.made

out.made:
  %o.array = phi ptr [ %o.array.any, %out.any ], [ %o.array.aligned, %out.aligned ]
  %o.made.p = getelementptr ptr, ptr %made, i64 %o
  store ptr %o.array, ptr %o.made.p, align 8
  %o.fine = icmp ne ptr %o.array, null
  br i1 %o.fine, label %out.good, label %undo

out.good:
  %o.data.p = getelementptr i8, ptr %o.array, i64 16
  %o.data = load ptr, ptr %o.data.p, align 8
  %o.table.p = getelementptr ptr, ptr %table, i64 %o.slot
  store ptr %o.data, ptr %o.table.p, align 8
  %o.spec.next = getelementptr i64, ptr %o.dims, i64 %o.nd
  %o.next = add i64 %o, 1
  br label %out

call:
{_field("arena.slot", Field.ARENA_SLOT, "i64")}
{_field("function", Field.FUNCTION)}
{_field("save", Field.SAVE_THREAD)}
{_field("restore", Field.RESTORE_THREAD)}
{_field("team", Field.TEAM)}
  %arena.table = getelementptr ptr, ptr %table, i64 %arena.slot
  store ptr %arena, ptr %arena.table, align 8
  store ptr null, ptr %arena.p, align 8
  %brief = icmp eq ptr %save, null
  br i1 %brief, label %call.start, label %release.gil

release.gil:
  %state.saved = call ptr %save()
  br label %call.start

call.start:
  %state = phi ptr [ null, %call ], [ %state.saved, %release.gil ]
  %alone = icmp eq ptr %team, null
  br i1 %alone, label %call.alone, label %call.team

call.alone:
  call void @run(ptr %function, ptr %table, i64 0, i64 1)
  br label %called

call.team:
{_field("nthreads", Field.NTHREADS, "i64")}
{_field("short", Field.SHORT, "i64")}
  call void @dispatch(ptr %team, ptr %function, ptr %table, i64 %nthreads, i64 %short)
  br label %called

called:
  br i1 %brief, label %finished, label %take.gil

take.gil:
  call void %restore(ptr %state)
  br label %finished

finished:
  store ptr %arena, ptr %arena.p, align 8
  br label %wrap.start

wrap.start:
{_field("alloc", Field.ALLOC)}
{_field("none", Field.NONE)}
{_field("slot.a", Field.NONE_SLOT_A, "i64")}
{_field("slot.b", Field.NONE_SLOT_B, "i64")}
{_field("new.list", Field.NEW_LIST)}
  %bare = icmp eq ptr %new.list, null
  br i1 %bare, label %wrap, label %list

list:
  %list.new = call ptr %new.list(i64 %n.out)
  %list.ok = icmp ne ptr %list.new, null
{_field("items.at", Field.LIST_ITEMS, "i64")}
  br i1 %list.ok, label %list.items, label %undo

list.items:
  %items.p = getelementptr i8, ptr %list.new, i64 %items.at
  %items.got = load ptr, ptr %items.p, align 8
  br label %wrap

wrap:
  %result.list = phi ptr [ null, %wrap.start ], [ %list.new, %list.items ]
  %items = phi ptr [ null, %wrap.start ], [ %items.got, %list.items ]
  br label %wrap.next

wrap.next:
  %w = phi i64 [ 0, %wrap ], [ %w.next, %wrap.store ], [ %w.next, %wrap.bare ]
  %last = phi ptr [ %result.list, %wrap ], [ %result.list, %wrap.store ], [ %wrapped, %wrap.bare ]
  %wrap.done = icmp eq i64 %w, %n.out
  br i1 %wrap.done, label %release, label %wrap.one

wrap.one:
  %wrapped = call ptr %alloc(ptr %wrapper, i64 0)
  %wrapped.ok = icmp ne ptr %wrapped, null
  br i1 %wrapped.ok, label %wrap.fill, label %wrap.fail

wrap.fill:
  %w.made.p = getelementptr ptr, ptr %made, i64 %w
  %w.array = load ptr, ptr %w.made.p, align 8
  %w.slot = getelementptr i8, ptr %wrapped, i64 %slot
  store ptr %w.array, ptr %w.slot, align 8
  call void %incref(ptr %none)
  %w.slot.a = getelementptr i8, ptr %wrapped, i64 %slot.a
  store ptr %none, ptr %w.slot.a, align 8
  call void %incref(ptr %none)
  %w.slot.b = getelementptr i8, ptr %wrapped, i64 %slot.b
  store ptr %none, ptr %w.slot.b, align 8
  %w.next = add i64 %w, 1
  br i1 %bare, label %wrap.bare, label %wrap.store

wrap.store:
  %item.p = getelementptr ptr, ptr %items, i64 %w
  store ptr %wrapped, ptr %item.p, align 8
  br label %wrap.next

wrap.bare:
  br label %wrap.next

; Out of memory while wrapping: arrays from %w on are still ours, those before belong to the list.
wrap.fail:
  %list.there = icmp ne ptr %result.list, null
  br i1 %list.there, label %wrap.fail.list, label %wrap.drop

wrap.fail.list:
  call void %decref(ptr %result.list)
  br label %wrap.drop

wrap.drop:
  %wd = phi i64 [ %w, %wrap.fail ], [ %w, %wrap.fail.list ], [ %wd.next, %wrap.drop.one ]
  %wd.done = icmp eq i64 %wd, %n.out
  br i1 %wd.done, label %release.null, label %wrap.drop.one

wrap.drop.one:
  %wd.p = getelementptr ptr, ptr %made, i64 %wd
  %wd.array = load ptr, ptr %wd.p, align 8
  call void %decref(ptr %wd.array)
  %wd.next = add i64 %wd, 1
  br label %wrap.drop

; An allocation failed before the call: drop the results made so far (%undo.n of them), and the arguments.
undo:
  %undo.n = phi i64 [ %o, %out.made ], [ %n.out, %list ]
  br label %undo.next

undo.next:
  %u = phi i64 [ 0, %undo ], [ %u.next, %undo.one ]
  %undo.done = icmp eq i64 %u, %undo.n
  br i1 %undo.done, label %release.null, label %undo.one

undo.one:
  %u.p = getelementptr ptr, ptr %made, i64 %u
  %u.array = load ptr, ptr %u.p, align 8
  call void %decref(ptr %u.array)
  %u.next = add i64 %u, 1
  br label %undo.next

release.null:
  br label %release

release:
  %result = phi ptr [ %last, %wrap.next ], [ null, %release.null ]
  br label %release.next

release.next:
  %r = phi i64 [ 0, %release ], [ %r.next, %release.one ]
  %release.done = icmp eq i64 %r, %nargs
  br i1 %release.done, label %done, label %release.one

release.one:
  %r.p = getelementptr ptr, ptr %held, i64 %r
  %r.array = load ptr, ptr %r.p, align 8
  call void %decref(ptr %r.array)
  %r.next = add i64 %r, 1
  br label %release.next

done:
  ret ptr %result

slow:
{_field("fallback", Field.FALLBACK)}
{_field("vectorcall", Field.VECTORCALL)}
  %slow.result = call ptr %vectorcall(ptr %fallback, ptr %args, i64 %nargs, ptr null)
  ret ptr %slow.result
}}
"""
