"""The Python callable that enters native code directly: makes the record that `@fast` (`codegen.entry`) reads, with the
offsets and addresses in CPython and NumPy that it needs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.codegen.entry import Field
from gluonjit.ir.types import TensorType
from gluonjit.runtime import executable as executables
from gluonjit.runtime import kept_blocks, native, threads
from gluonjit.runtime.addresses import member_offset, python_function
from gluonjit.runtime.mode import MODE
from gluonjit.runtime.numpy_api import EMPTY, NEW_FROM_DESCR, numpy_api
from gluonjit.runtime.storage import EPOCH, Storage

if TYPE_CHECKING:
    from gluonjit.runtime.executable import Executable

_BRIEF = 20_000
"""A call on one thread that is estimated to take at most this many nanoseconds keeps the GIL. Releasing and taking it
costs 40, a tenth of the overhead of calling a small model from Python."""
_ALIGNED = 1 << 16
"""Results of at least this many bytes are aligned to cache lines."""
_NO_MODE = np.zeros(1, np.int64)


class Record(np.ndarray):
    """The int64 words that `@fast` reads as its `self` (`codegen.entry.Field`); keeps alive what they point to."""

    keep: tuple[Any, ...]
    end: weakref.finalize
    """Puts the arena back, once: when the record goes, or before."""


@functools.cache
def _allocator() -> dict[Field, int]:
    """The fields that let `@fast` allocate aligned arrays; empty if `kept_blocks.handler` is None."""
    handler = kept_blocks.handler()
    if handler is None:
        return {}
    return {
        Field.BLOCKS: kept_blocks.STATE.ctypes.data,
        Field.NEW_FROM_DESCR: numpy_api(NEW_FROM_DESCR),
        Field.DATA_HANDLER: id(handler),
        Field.NO_MEMORY: python_function("PyErr_NoMemory"),
    }


def _inputs(types: Sequence[TensorType]) -> np.ndarray:
    return np.array([*(word for t in types for word in (id(t.dtype.numpy), t.rank, *t.shape)), 0], np.int64)


def _outputs(types: Sequence[TensorType], slots: Sequence[int]) -> np.ndarray:
    words: list[int] = []
    for t, slot in zip(types, slots, strict=True):
        aligned = t.nbytes if t.nbytes >= _ALIGNED and _allocator() else 0
        words += [id(t.dtype.numpy), t.rank, slot, aligned, *t.shape]
    return np.array([*words, 0], np.int64)


def fast_call(
    executable: Executable,
    n_args: int,
    rest: Sequence[np.ndarray | None],
    held: dict[int, np.ndarray],
    epoch: int | None,
    wrapper: type,
    fallback: Callable[..., Any],
    bare: bool,
    calls: np.ndarray | None = None,
) -> Callable[..., Any]:
    """A Python callable that runs `executable` natively on `n_args` wrapped arrays, or calls `fallback`.

    `rest` are the graph's remaining inputs (parameters, captured arrays), `held` its prepared values by table slot,
    both as of `epoch`; None: nothing is left of the inputs, what is held depends on constants alone, and the call means
    the same in each mode. `wrapper` is NDArray or
    `mx.np.ndarray`; `bare`: returns the only result itself, not a list. `calls`: one int64, to which each call that is
    served adds 1.
    """
    calls = np.zeros(1, np.int64) if calls is None else calls
    main = executable.main
    layout = main.layout
    table = main.template.copy()
    rest = [None if slot in executable.unread else array for slot, array in enumerate(rest, n_args)]
    for slot, array in enumerate(rest, n_args):
        if array is not None:
            table[slot] = array.ctypes.data
    for slot, array in held.items():
        table[slot] = array.ctypes.data
    nthreads = threads.start(layout.threads)
    arena = main.take_arena(nthreads)
    main.fill(table, arena)
    watcher = executables.watcher
    measured = watcher.entry(main, table, nthreads, fallback) if watcher is not None else None
    inputs = _inputs(executable.input_types[:n_args])
    outputs = _outputs(executable.result_types, layout.result_slots)
    words = {
        Field.FALLBACK: id(fallback),
        Field.VECTORCALL: python_function("PyObject_VectorcallDict"),
        Field.N_ARGS: n_args,
        Field.WRAPPER_TYPE: id(wrapper),
        Field.ARRAY_SLOT: member_offset(wrapper, "_array"),
        Field.ARRAY_TYPE: id(np.ndarray),
        Field.EPOCH: (threads.SETTING if epoch is None else EPOCH).ctypes.data,
        Field.EPOCH_SEEN: int(threads.SETTING[0]) if epoch is None else epoch,
        Field.MODE: (_NO_MODE if epoch is None else MODE).ctypes.data,
        Field.ARENA: arena.ctypes.data,
        Field.FUNCTION: measured[0] if measured is not None else main.address,
        Field.N_OUTPUTS: len(executable.result_types),
        Field.N_TABLE: len(table),
        Field.TABLE: table.ctypes.data,
        Field.ARENA_SLOT: layout.arena_slot,
        Field.INPUTS: inputs.ctypes.data,
        Field.OUTPUTS: outputs.ctypes.data,
        Field.NEW_ARRAY: numpy_api(EMPTY),
        Field.SAVE_THREAD: 0 if nthreads == 1 and layout.cost < _BRIEF else python_function("PyEval_SaveThread"),
        Field.RESTORE_THREAD: python_function("PyEval_RestoreThread"),
        Field.ALLOC: python_function("PyType_GenericAlloc"),
        Field.INCREF: python_function("Py_IncRef"),
        Field.DECREF: python_function("Py_DecRef"),
        Field.NONE: id(None),
        Field.NONE_SLOT_A: member_offset(wrapper, "_storage"),
        Field.NONE_SLOT_B: member_offset(wrapper, "_grad_state"),
        Field.NEW_LIST: 0 if bare else python_function("PyList_New"),
        Field.LIST_ITEMS: 24,  # PyListObject: ob_base 16, ob_size 8, ob_item
        Field.TEAM: threads.block.ctypes.data if nthreads > 1 else 0,
        Field.NTHREADS: nthreads,
        Field.SHORT: threads.is_short(layout.cost),
        Field.STORAGE_CONTEXT: member_offset(Storage, "context"),
        Field.FLUSH: executable.flush_denormals,
        Field.CALLS: calls.ctypes.data,
        **_allocator(),
    }
    record = np.zeros(Field.COUNT, np.int64).view(Record)
    for field, word in words.items():
        record[field] = word
    # A call of another size may have it next. (At exit, nothing needs it.)
    record.end = weakref.finalize(record, main.arenas.put, arena)
    record.end.atexit = False
    record.keep = (
        executable,
        tuple(rest),
        tuple(held.values()),
        arena,
        table,
        inputs,
        outputs,
        fallback,
        wrapper,
        calls,
    )
    fast = native.new_function(native.entry().method, record)
    return measured[1](fast) if measured is not None else fast


def give_back_arena(fast: Any) -> None:
    """Lets other calls have the arena of what `fast_call` made, which takes its fallback from now on. While a call is
    using it, nothing happens: the arena is put back when `fast` goes. Other callables have none."""
    record = fast.__self__
    if not isinstance(record, Record):
        return
    record[Field.N_ARGS] = -1  # so that no other thread begins a call between the next lines
    if record[Field.ARENA]:
        record.end()
