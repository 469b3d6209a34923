"""Memory for large arrays, kept when they die for the next ones of their size.

A training step makes arrays of the same sizes again and again. The C library gives large blocks back to the system at
once, and the system clears each page when it is first touched: that was a fifth of the step of a language model, and
most of the time of a call that computes little for each element of its result. So the blocks of arrays that died wait.

`@take_block(blocks, nbytes)` and `@give_block(blocks, block, nbytes)` are functions of the native entry module; with
`@take_cleared` and `@resize_block` they are what NumPy calls for arrays that have the handler made of them
(`runtime/kept_blocks.py`). `blocks` is an array of int64 (`Word`). Who calls holds the GIL.

The blocks that wait and those that arrays have are together at most an eighth more than arrays ever had at once: a
block serves its own size only, so a program whose arrays of one size follow those of another needs both. A block that
nobody takes for a while is freed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.machine import ALIGNMENT

LARGE = 1 << 18
"""Bytes from which blocks are kept. The C library keeps smaller ones itself."""
_SLOTS = 512
"""The most blocks that wait."""
_SPARE = 8
"""Beside what arrays had at most, one part in so many may wait. Steps of training need up to a tenth."""
_AGE = 4096
"""A block that still waits after so many others were taken or given is freed."""
_HUGE = 1 << 22
"""Bytes: for blocks of this size or more huge pages are asked for, as NumPy does."""
_PAGE = 4096
_MADV_HUGEPAGE = 14


class Word(IntEnum):
    """Words of `blocks`."""

    ALLOC = 0  # aligned_alloc of the C library
    FREE = 1
    REALLOC = 2
    ADVISE = 3  # madvise, or 0
    USABLE = 4  # malloc_usable_size, or 0
    CLOCK = 5  # how many blocks were taken or given
    TAKEN = 6  # bytes that arrays have
    MOST = 7  # the most bytes that they had at once
    WAITING = 8  # bytes that wait
    FIRST_SLOT = 9  # of `_SLOTS`, three words each: bytes (0 in an empty one), address, when it was given


WORDS = Word.FIRST_SLOT + 3 * _SLOTS
_BLOCKS = ("ptr", "blocks")


def add_blocks(module: Module) -> None:
    """Adds the functions above, and `@free_oldest(blocks, most, since) → i1`: frees the block that waits longest if
    more than `most` bytes wait, or it was given before `since`; tells whether it did."""
    module.declare("llvm.memset.p0.i64", "void", ("ptr", "i8", "i64", "i1"))
    _free_oldest(module)
    _take(module)
    _give(module)
    _take_cleared(module)
    _resize(module)


def _word(f: Function, word: int, type: str = "i64") -> str:
    return f.load(type, f.gep("i64", "%blocks", int(word)), 8)


def _set(f: Function, word: int, value: str) -> None:
    f.store("i64", value, f.gep("i64", "%blocks", int(word)), 8)


def _slot(f: Function, k: str, part: int) -> str:
    """Where a part of slot k is: 0 its bytes, 1 its address, 2 its time."""
    return f.gep("i64", "%blocks", f.add(f.mul(k, 3), int(Word.FIRST_SLOT) + part))


def _best(f: Function, better: Callable[[str, str, str], str], start: int) -> str:
    """The slot that is better than all before it, -1 for none: `better(bytes, time, best time)` is an i1."""
    with f.for_(0, _SLOTS, 1, [("i64", "-1"), ("i64", str(start))], "slot") as loop:
        best, best_time = loop.carried
        nbytes, time = (f.load("i64", _slot(f, loop.index, part), 8) for part in (0, 2))
        is_better = better(nbytes, time, best_time)
        loop.next(
            f.op(f"select i1 {is_better}, i64 {loop.index}, i64 {best}"),
            f.op(f"select i1 {is_better}, i64 {time}, i64 {best_time}"),
        )
    return loop.results[0]


def _free_oldest(module: Module) -> None:
    f = module.function("free_oldest", (_BLOCKS, ("i64", "most"), ("i64", "since")), "i1")
    with f.exit(hint="keep") as keep:
        f.ret("false")

    def older(nbytes: str, time: str, best_time: str) -> str:
        return f.op(f"and i1 {f.op(f'icmp ne i64 {nbytes}, 0')}, {f.op(f'icmp slt i64 {time}, {best_time}')}")

    oldest = _best(f, older, (1 << 63) - 1)
    f.leave_if(f.op(f"icmp slt i64 {oldest}, 0"), keep)
    waiting = _word(f, Word.WAITING)
    fits = f.op(f"icmp sle i64 {waiting}, %most")
    recent = f.op(f"icmp sge i64 {f.load('i64', _slot(f, oldest, 2), 8)}, %since")
    f.leave_if(f.op(f"and i1 {fits}, {recent}"), keep)
    _set(f, Word.WAITING, f.sub(waiting, f.load("i64", _slot(f, oldest, 0), 8)))
    f.store("i64", 0, _slot(f, oldest, 0), 8)
    f.call(_word(f, Word.FREE, "ptr"), "void", ("ptr", f.load("ptr", _slot(f, oldest, 1), 8)))
    f.ret("true")


def _pages(f: Function) -> str:
    """`%nbytes` in whole pages."""
    return f.op(f"and i64 {f.add('%nbytes', _PAGE - 1)}, {-_PAGE}")


def _limit(f: Function) -> str:
    """The most bytes that arrays may have and that may wait, together."""
    most = _word(f, Word.MOST)
    return f.add(most, f.div(most, _SPARE))


def _tick(f: Function) -> str:
    now = f.add(_word(f, Word.CLOCK), 1)
    _set(f, Word.CLOCK, now)
    return now


def _take(module: Module) -> None:
    f = module.function("take_block", (_BLOCKS, ("i64", "nbytes")), "ptr")
    alloc = _word(f, Word.ALLOC, "ptr")
    with f.exit(hint="small") as small:
        rounded = f.op(f"and i64 {f.add('%nbytes', ALIGNMENT - 1)}, {-ALIGNMENT}")
        f.ret(f.call(alloc, "ptr", ("i64", ALIGNMENT), ("i64", f.max(rounded, ALIGNMENT))))
    f.leave_if(f.op(f"icmp ult i64 %nbytes, {LARGE}"), small)
    with f.exit(hint="none") as none:  # so many bytes that pages cannot be counted
        f.ret("null")
    f.leave_if(f.op(f"icmp ugt i64 %nbytes, {1 << 62}"), none)
    pages = _pages(f)
    _tick(f)
    taken = f.add(_word(f, Word.TAKEN), pages)

    def count() -> None:
        _set(f, Word.TAKEN, taken)
        _set(f, Word.MOST, f.max(_word(f, Word.MOST), taken))

    # The latest: most of it may still be in a cache.
    def later(nbytes: str, time: str, best_time: str) -> str:
        return f.op(f"and i1 {f.op(f'icmp eq i64 {nbytes}, {pages}')}, {f.op(f'icmp sgt i64 {time}, {best_time}')}")

    found = _best(f, later, -1)
    with f.exit(hint="again") as again:
        count()
        _set(f, Word.WAITING, f.sub(_word(f, Word.WAITING), pages))
        f.store("i64", 0, _slot(f, found, 0), 8)
        f.ret(f.load("ptr", _slot(f, found, 1), 8))
    f.leave_if(f.op(f"icmp sge i64 {found}, 0"), again)
    room = f.max(f.sub(_limit(f), taken), 0)
    with f.repeat([]) as loop:
        loop.again = f.call("free_oldest", "i1", _own(), ("i64", room), ("i64", 0))

    with f.repeat([("ptr", "null")]) as loop:  # without memory, what waits is freed first
        block = f.call(alloc, "ptr", ("i64", _PAGE), ("i64", pages))
        failed = f.op(f"icmp eq ptr {block}, null")
        loop.again = f.either(
            failed, "i1", lambda: f.call("free_oldest", "i1", _own(), ("i64", -1), ("i64", 0)), lambda: "false"
        )
        loop.next(block)
    (block,) = loop.results
    f.leave_if(f.op(f"icmp eq ptr {block}, null"), none)
    count()
    advise = _word(f, Word.ADVISE, "ptr")
    large = f.op(f"icmp uge i64 %nbytes, {_HUGE}")
    with f.if_(f.op(f"and i1 {large}, {f.op(f'icmp ne ptr {advise}, null')}")):
        f.call(advise, "i32", ("ptr", block), ("i64", pages), ("i32", _MADV_HUGEPAGE))
    f.ret(block)


def _own() -> tuple[str, str]:
    return "ptr", "%blocks"


def _give(module: Module) -> None:
    f = module.function("give_block", (_BLOCKS, ("ptr", "block"), ("i64", "nbytes")))
    with f.exit(hint="free") as free:
        f.call(_word(f, Word.FREE, "ptr"), "void", ("ptr", "%block"))
        f.ret()
    f.leave_if(f.op(f"icmp ult i64 %nbytes, {LARGE}"), free)
    with f.exit(hint="nothing") as nothing:
        f.ret()
    f.leave_if(f.op("icmp eq ptr %block, null"), nothing)
    pages = _pages(f)
    now = _tick(f)
    # Arrays that NumPy has resized were counted with other sizes.
    taken = f.max(f.sub(_word(f, Word.TAKEN), pages), 0)
    _set(f, Word.TAKEN, taken)
    # What `resize_block` made need not be so large, nor begin so.
    odd = f.op(f"and i64 {f.op('ptrtoint ptr %block to i64')}, {ALIGNMENT - 1}")
    f.leave_if(f.op(f"icmp ne i64 {odd}, 0"), free)
    usable = _word(f, Word.USABLE, "ptr")
    told = f.op(f"icmp ne ptr {usable}, null")
    size = f.either(told, "i64", lambda: f.call(usable, "i64", ("ptr", "%block")), lambda: pages)
    f.leave_if(f.op(f"icmp slt i64 {size}, {pages}"), free)
    room = f.sub(f.sub(_limit(f), taken), pages)
    f.leave_if(f.op(f"icmp slt i64 {room}, 0"), free)
    with f.repeat([]) as loop:
        loop.again = f.call("free_oldest", "i1", _own(), ("i64", room), ("i64", f.sub(now, _AGE)))

    def empty(nbytes: str, time: str, best_time: str) -> str:
        return f.op(f"icmp eq i64 {nbytes}, 0")

    slot = _best(f, empty, 0)
    f.leave_if(f.op(f"icmp slt i64 {slot}, 0"), free)
    f.store("i64", pages, _slot(f, slot, 0), 8)
    f.store("ptr", "%block", _slot(f, slot, 1), 8)
    f.store("i64", now, _slot(f, slot, 2), 8)
    _set(f, Word.WAITING, f.add(_word(f, Word.WAITING), pages))
    f.ret()


def _take_cleared(module: Module) -> None:
    """`calloc`, as NumPy calls it."""
    f = module.function("take_cleared", (_BLOCKS, ("i64", "count"), ("i64", "size")), "ptr")
    pair = f.op("call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %size)")
    module.declare("llvm.umul.with.overflow.i64", "{ i64, i1 }", ("i64", "i64"))
    nbytes, overflows = (f.op(f"extractvalue {{ i64, i1 }} {pair}, {k}") for k in (0, 1))
    with f.exit(hint="none") as none:
        f.ret("null")
    f.leave_if(overflows, none)
    block = f.call("take_block", "ptr", _own(), ("i64", nbytes))
    f.leave_if(f.op(f"icmp eq ptr {block}, null"), none)
    f.call("llvm.memset.p0.i64", "void", ("ptr", block), ("i8", 0), ("i64", nbytes), ("i1", "false"))
    f.ret(block)


def _resize(module: Module) -> None:
    """`realloc`, as NumPy calls it."""
    f = module.function("resize_block", (_BLOCKS, ("ptr", "block"), ("i64", "nbytes")), "ptr")
    f.ret(f.call(_word(f, Word.REALLOC, "ptr"), "ptr", ("ptr", "%block"), ("i64", "%nbytes")))
