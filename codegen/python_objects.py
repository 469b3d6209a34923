"""How native code reads Python's objects: arrays of NumPy, and members of others."""

from __future__ import annotations

from enum import IntEnum

from gluonjit.codegen.text.llvm import Exit, Function


class Array(IntEnum):
    """Byte offsets in an ndarray (PyArrayObject in numpy/ndarraytypes.h, the same in NumPy 1 and 2)."""

    TYPE = 8  # PyTypeObject*, as in every PyObject
    DATA = 16  # char*
    NDIM = 24  # i32
    DIMENSIONS = 32  # int64*
    BASE = 48  # PyObject*: whose memory it is a view of, or null
    DESCR = 56  # PyArray_Descr*
    FLAGS = 64  # i32
    HANDLER = 88  # PyObject*: what frees the data


_C_CONTIGUOUS_ALIGNED = 0x0101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED


def word(f: Function, field: int, type: str = "ptr") -> str:
    """A word of the record `%rec`."""
    return f.load(type, f.gep("i64", "%rec", int(field)), 8)


def member(f: Function, type: str, base: str, offset: int | str) -> str:
    """The member of an object at a byte offset."""
    return f.load(type, f.gep("i8", base, offset if isinstance(offset, str) else int(offset)))


def leave_unless(f: Function, exit: Exit, *conditions: str) -> None:
    """Leaves unless all conditions (i1) hold."""
    all_hold = conditions[0]
    for condition in conditions[1:]:
        all_hold = f.op(f"and i1 {all_hold}, {condition}")
    f.leave_if(f.op(f"xor i1 {all_hold}, true"), exit)


def is_same(f: Function, a: str, b: str) -> str:
    """Whether two pointers are the same (i1)."""
    return f.op(f"icmp eq ptr {a}, {b}")


def check_array(f: Function, array: str, array_type: str, spec: str, exit: Exit) -> str:
    """Leaves unless `array` is an ndarray as the words at `spec` say: descr, number of dimensions, these. Returns where
    they end."""
    leave_unless(f, exit, f.op(f"icmp ne ptr {array}, null"))
    leave_unless(f, exit, is_same(f, member(f, "ptr", array, Array.TYPE), array_type))
    descr = is_same(f, member(f, "ptr", array, Array.DESCR), f.load("ptr", spec, 8))
    both = f.op(f"and i32 {member(f, 'i32', array, Array.FLAGS)}, {_C_CONTIGUOUS_ALIGNED}")
    layout = f.op(f"icmp eq i32 {both}, {_C_CONTIGUOUS_ALIGNED}")
    rank = f.op(f"zext i32 {member(f, 'i32', array, Array.NDIM)} to i64")
    same_rank = f.op(f"icmp eq i64 {rank}, {f.load('i64', f.gep('i64', spec, 1), 8)}")
    leave_unless(f, exit, descr, layout, same_rank)
    dims, wanted = member(f, "ptr", array, Array.DIMENSIONS), f.gep("i64", spec, 2)
    with f.for_(0, rank, hint="axis") as axis:
        n, m = (f.load("i64", f.gep("i64", sizes, axis.index), 8) for sizes in (dims, wanted))
        leave_unless(f, exit, f.op(f"icmp eq i64 {n}, {m}"))
    return f.gep("i64", wanted, rank)
