"""A team of threads that run one native function together: LLVM code of dispatch, barrier and sleep.

The caller is thread 0. Each worker waits at its *line* of the team's block for a job, a (function, table, number of
threads), and does its share. A waiting thread spins, then spins while yielding its core, then sleeps: on Linux in a
futex, elsewhere on a condition variable. It sleeps at once if another thread of the team was last seen on its core, as
what it waits for cannot happen before that thread gets the core. (Yielding is not enough where other processes want the
core, too: they keep it for milliseconds.) The team serves one caller at a time; a caller that finds it busy runs its
function alone.

What different threads write lies 256 bytes apart: neighbouring cache lines travel together, which makes a barrier
several times as slow. An *event* is a 32-bit word that a thread waits for to change, followed by the number of those
who sleep on it. The one who changes it looks at that number afterwards, the one who sleeps counts itself first and the
kernel compares the word then, all in one total order (seq_cst): so nobody sleeps through a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from gluonjit.codegen.text.intrinsics import float_mode, flush_bits, pause, set_float_mode
from gluonjit.codegen.text.llvm import KERNEL_PARAMS, Function, Module

MAX_THREADS = 256


class Block(IntEnum):
    """Byte offsets in a team's block."""

    BARRIER = 0  # void (*)(ptr team, i64 nthreads): graphs find it here
    WORKERS = 8  # i64: how many there are besides the caller; they are 1, 2, …
    SPINS = 16  # i64: how often a waiting thread polls while it keeps its core
    YIELDS = 24  # i64: how often it then polls and yields its core before it sleeps
    BUSY = 256  # i32: 1 while the team has a job
    WAKES_TO_SKIP = 264  # i64: how many more short calls do not wake workers
    SKIPPED_WAKES = 272  # i64: how many did not after the last one that did
    CALLS_ALONE = 280  # i64: how many more calls run on one thread, as several got in each other's way
    WERE_ALONE = 288  # i64: how many did after the last one that did not
    PENDING = 512  # event: workers that are not done with the job
    ARRIVED = 768  # i32: threads that are at the barrier
    GENERATION = 1024  # event: barriers passed
    MUTEX = 1280  # pthread_mutex_t and pthread_cond_t, where there is no futex
    CONDITION = 1408
    CROWDED = 1472  # i32: how often in this job a thread slept because it shared its core
    FLOAT_MODE = 1480  # i64: the caller's floating-point control register, which workers take over with a job
    LINES = 1536  # of the caller, which uses nothing but CORE, and of worker 1, 2, …
    LINE_SIZE = 256
    SIZE = LINES + LINE_SIZE * MAX_THREADS


class Line(IntEnum):
    """Byte offsets in a worker's line."""

    JOBS = 0  # event: jobs given so far
    TEAM = 8
    INDEX = 16  # i64: the worker's number
    FUNCTION = 24  # void (*)(ptr table, i64 thread, i64 nthreads), null: the worker ends
    TABLE = 32
    NTHREADS = 40
    CORE = 64  # i32: 1 + the number of the core where it took its job; 0: unknown, or it has none


_ASLEEP = 4  # offset of an event's number of sleepers

FUTEX, CONDITION = "futex", "condition"
SLEEP = {
    FUTEX: ("sched_yield", "sched_getcpu", "syscall"),
    CONDITION: (
        "sched_yield",
        "pthread_mutex_lock",
        "pthread_mutex_unlock",
        "pthread_cond_wait",
        "pthread_cond_broadcast",
    ),
    None: (),
}
"""The ways to sleep, and the functions of libc that they call. None: there are no workers."""

_FUTEX_NUMBER = {"x86": 202, "aarch64": 98}  # Linux's system call
_WAIT, _WAKE = 128, 129  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE
_ALL_THREADS = 2**31 - 1
_MOST_SKIPPED_WAKES = 255
_MOST_ALONE = 7
"""The most calls in a row that run alone. Few, as calls of 20 ms would otherwise take long to notice that a core is
free again."""
_BRIEFLY = 32
"""The divisor of SPINS after which a waiting thread checks for others on its core: 1 or 2 µs."""


def add_team(module: Module, sleep: str | None) -> None:
    """Adds to the module:

    * `@dispatch(team, function, table, nthreads, short, flush)`: runs the function on up to `nthreads` threads. With
      `short` (i64, nonzero) it runs alone when workers sleep, and wakes them for the next time: waking takes longer
      than a short function. With `flush` (i64, nonzero) all of them count denormals as zero meanwhile.
    * `@run(function, table, thread, nthreads, flush)`: runs it on this thread alone.
    * `@barrier(team, nthreads)`: returns when `nthreads` threads have called it.
    * `@work(line) → null`: a worker's life; the start routine of its thread.
    * `@try_lock(team) → i32` and `@unlock(team)`: keep the team from taking jobs.
    * `@pauses(n)`: looks at memory n times as a waiting thread does, to be timed.
    * `@post(team, function, table, nthreads)`: gives a job to workers 1 … nthreads - 1; the team is locked.
    """
    _sleep(module, sleep)
    _crowded(module, sleep)
    _wait(module, sleep)
    _pauses(module)
    _barrier(module)
    _post(module)
    _work(module)
    _lock(module)
    _run(module)
    _dispatch(module)


def _field(f: Function, base: str, offset: int, type: str) -> str:
    return f.load(type, f.gep("i8", base, int(offset)), 4 if type == "i32" else 8)


def _look(f: Function, word: str, order: str = "acquire") -> str:
    return f.op(f"load atomic i32, ptr {word} {order}, align 4")


def _signal(f: Function, event: str) -> None:
    """Wakes the threads that sleep on an event that has been changed."""
    sleepers = _look(f, f.gep("i8", event, _ASLEEP), "seq_cst")
    with f.if_(f.op(f"icmp ne i32 {sleepers}, 0")):
        f.call("wake", "void", ("ptr", "%team"), ("ptr", event))


def _sleep(module: Module, means: str | None) -> None:
    """`@sleep(team, word, old)` returns when woken, or at once if *word is not `old`; `@wake(team, word)`."""
    sleep = module.function("sleep", (("ptr", "team"), ("ptr", "word"), ("i32", "old")), linkage="internal")
    wake = module.function("wake", (("ptr", "team"), ("ptr", "word")), linkage="internal")
    if means == FUTEX:
        module.declare("syscall", "i64", ["i64", "ptr", "i64", "i64", "ptr"])
        number = _FUTEX_NUMBER[module.target.arch]
        for f, operation, value in ((sleep, _WAIT, sleep.op("zext i32 %old to i64")), (wake, _WAKE, _ALL_THREADS)):
            arguments = (("i64", number), ("ptr", "%word"), ("i64", operation), ("i64", value), ("ptr", "null"))
            f.call("syscall", "i64", *arguments)
    if means == CONDITION:  # one for all events of the team
        for name in SLEEP[CONDITION][1:]:
            module.declare(name, "i32", ["ptr", "ptr"] if name == "pthread_cond_wait" else ["ptr"])
        for f in (sleep, wake):
            mutex, condition = (f.gep("i8", "%team", int(at)) for at in (Block.MUTEX, Block.CONDITION))
            f.call("pthread_mutex_lock", "i32", ("ptr", mutex))
            if f is wake:
                f.call("pthread_cond_broadcast", "i32", ("ptr", condition))
            else:
                with f.if_(f.op(f"icmp eq i32 {_look(f, '%word', 'seq_cst')}, %old")):
                    f.call("pthread_cond_wait", "i32", ("ptr", condition), ("ptr", mutex))
            f.call("pthread_mutex_unlock", "i32", ("ptr", mutex))


def _core(f: Function) -> str:
    """1 + the number of the core that this thread is on (i32)."""
    return f.op(f"add i32 {f.call('sched_getcpu', 'i32')}, 1")


def _crowded(module: Module, means: str | None) -> None:
    """`@here(line)` says on a thread's line that it is at work on this core, `@crowded(team, least) → i1` whether at
    least `least` threads are. Where cores have no numbers, no core is crowded."""
    here = module.function("here", (("ptr", "line"),), linkage="internal")
    crowded = module.function("crowded", (("ptr", "team"), ("i32", "least")), "i1", linkage="internal")
    if means != FUTEX:
        crowded.ret("false")
        return
    module.declare("sched_getcpu", "i32", [])
    here.emit(f"store atomic i32 {_core(here)}, ptr {_core_of(here, '%line')} monotonic, align 4")
    f, core = crowded, _core(crowded)
    end = f.add(_field(f, "%team", Block.WORKERS, "i64"), 1)
    with f.for_(0, end, carried=[("i32", "0")], hint="thread") as loop:
        other = _look(f, _core_of(f, _line(f, loop.index)), "monotonic")
        same = f.op(f"zext i1 {f.op(f'icmp eq i32 {other}, {core}')} to i32")
        loop.next(f.op(f"add i32 {loop.carried[0]}, {same}"))
    f.ret(f.op(f"icmp uge i32 {loop.results[0]}, %least"))


def _wait(module: Module, means: str | None) -> None:
    """`@wait(team, event, old, least)`: returns when the event's word is not `old` any more. It looks at the word for a
    while, if fewer than `least` threads are at work on this core (perhaps the waiting one among them), then sleeps."""
    params = (("ptr", "team"), ("ptr", "event"), ("i32", "old"), ("i32", "least"))
    f = module.function("wait", params, linkage="internal")
    spins, yields = (_field(f, "%team", field, "i64") for field in (Block.SPINS, Block.YIELDS))
    asleep = f.gep("i8", "%event", _ASLEEP)

    def is_same() -> str:
        return f.op(f"icmp eq i32 {_look(f, '%event')}, %old")

    def look(times: str, between: Callable[[], object]) -> None:
        with f.repeat([("i64", "0")]) as loop:
            same = is_same()
            with f.if_(same):
                between()
            count = f.add(loop.carried[0], 1)
            loop.next(count)
            loop.again = f.op(f"and i1 {same}, {f.op(f'icmp slt i64 {count}, {times}')}")

    if means is not None:
        module.declare("sched_yield", "i32", [])
    with f.repeat([]) as until:
        look(f.div(spins, _BRIEFLY), lambda: pause(f))
        with f.if_(is_same()):
            crowded = f.call("crowded", "i1", ("ptr", "%team"), ("i32", "%least"))
            with f.if_(f.op(f"xor i1 {crowded}, true")):
                look(spins, lambda: pause(f))
                if means is not None:
                    look(yields, lambda: f.call("sched_yield", "i32"))
            with f.if_(crowded):
                f.op(f"atomicrmw add ptr {f.gep('i8', '%team', int(Block.CROWDED))}, i32 1 monotonic")
            with f.if_(is_same()):
                f.op(f"atomicrmw add ptr {asleep}, i32 1 seq_cst")
                f.call("sleep", "void", ("ptr", "%team"), ("ptr", "%event"), ("i32", "%old"))
                f.op(f"atomicrmw sub ptr {asleep}, i32 1 seq_cst")
        until.again = is_same()


def _pauses(module: Module) -> None:
    f = module.function("pauses", (("i64", "n"),))
    word = f.alloca("i32")
    f.store("i32", 0, word)
    with f.for_(0, "%n"):
        _look(f, word)
        pause(f)


# ---- what threads do together


def _barrier(module: Module) -> None:
    f = module.function("barrier", (("ptr", "team"), ("i64", "nthreads")))
    arrived, generation = f.gep("i8", "%team", int(Block.ARRIVED)), f.gep("i8", "%team", int(Block.GENERATION))
    now = _look(f, generation)
    before = f.op(f"atomicrmw add ptr {arrived}, i32 1 acq_rel")
    last = f.op(f"icmp eq i64 {f.op(f'zext i32 {before} to i64')}, {f.sub('%nthreads', 1)}")
    with f.if_(last):
        f.emit(f"store atomic i32 0, ptr {arrived} monotonic, align 4")
        f.emit(f"store atomic i32 {f.op(f'add i32 {now}, 1')}, ptr {generation} seq_cst, align 4")
        _signal(f, generation)
    with f.if_(f.op(f"xor i1 {last}, true")):
        f.call("wait", "void", ("ptr", "%team"), ("ptr", generation), ("i32", now), ("i32", 2))


def _line(f: Function, worker: str) -> str:
    return f.gep("i8", "%team", f.add(f.mul(worker, int(Block.LINE_SIZE)), int(Block.LINES)))


def _core_of(f: Function, line: str) -> str:
    return f.gep("i8", line, int(Line.CORE))


def _post(module: Module) -> None:
    f = module.function("post", (("ptr", "team"), ("ptr", "function"), ("ptr", "table"), ("i64", "nthreads")))
    with f.for_(1, "%nthreads", hint="worker") as loop:
        line = _line(f, loop.index)
        for offset, type, value in (
            (Line.FUNCTION, "ptr", "%function"),
            (Line.TABLE, "ptr", "%table"),
            (Line.NTHREADS, "i64", "%nthreads"),
        ):
            f.store(type, value, f.gep("i8", line, int(offset)), 8)
        jobs = _field(f, line, Line.JOBS, "i32")
        f.emit(f"store atomic i32 {f.op(f'add i32 {jobs}, 1')}, ptr {line} seq_cst, align 4")
        _signal(f, line)


def _work(module: Module) -> None:
    f = module.function("work", (("ptr", "line"),), "ptr")
    team, index = _field(f, "%line", Line.TEAM, "ptr"), _field(f, "%line", Line.INDEX, "i64")
    pending = f.gep("i8", team, int(Block.PENDING))
    with f.repeat([("i32", "0")]) as life:
        f.call("wait", "void", ("ptr", team), ("ptr", "%line"), ("i32", life.carried[0]), ("i32", 1))
        life.next(f.op(f"add i32 {life.carried[0]}, 1"))
        function, table = _field(f, "%line", Line.FUNCTION, "ptr"), _field(f, "%line", Line.TABLE, "ptr")
        nthreads = _field(f, "%line", Line.NTHREADS, "i64")
        life.again = f.op(f"icmp ne ptr {function}, null")
        with f.if_(life.again):
            f.call("here", "void", ("ptr", "%line"))
            set_float_mode(f, _field(f, team, Block.FLOAT_MODE, "i64"))
            f.call(function, "void", ("ptr", table), ("i64", index), ("i64", nthreads))
            f.emit(f"store atomic i32 0, ptr {_core_of(f, '%line')} monotonic, align 4")
            left = f.op(f"atomicrmw sub ptr {pending}, i32 1 seq_cst")
            with f.if_(f.op(f"icmp eq i32 {left}, 1")):
                f.call("done", "void", ("ptr", team), ("ptr", pending))
    f.ret("null")
    done = module.function("done", (("ptr", "team"), ("ptr", "event")), linkage="internal")
    _signal(done, "%event")


def _lock(module: Module) -> None:
    f = module.function("try_lock", (("ptr", "team"),), "i32")
    busy = f.gep("i8", "%team", int(Block.BUSY))
    pair = f.op(f"cmpxchg ptr {busy}, i32 0, i32 1 acquire monotonic")
    f.ret(f.op(f"zext i1 {f.op(f'extractvalue {{ i32, i1 }} {pair}, 1')} to i32"))
    f = module.function("unlock", (("ptr", "team"),))
    f.emit(f"store atomic i32 0, ptr {f.gep('i8', '%team', int(Block.BUSY))} release, align 4")


def _sleepers(f: Function, most: str) -> str:
    """How many of the workers 1 … most - 1 sleep (i32)."""
    with f.for_(1, most, carried=[("i32", "0")], hint="worker") as loop:
        asleep = _look(f, f.gep("i8", _line(f, loop.index), _ASLEEP), "monotonic")
        loop.next(f.op(f"add i32 {loop.carried[0]}, {asleep}"))
    return loop.results[0]


def _wake_for_next_time(f: Function, most: str, sleepers: str) -> None:
    """Wakes workers without a job: they look for one for a while. Where calls are so rare that they find the workers
    asleep again, it is done less and less often, as waking takes 10 µs of the caller's time."""
    skip, skipped = f.gep("i8", "%team", int(Block.WAKES_TO_SKIP)), f.gep("i8", "%team", int(Block.SKIPPED_WAKES))
    left, before = f.load("i64", skip, 8), f.load("i64", skipped, 8)
    asleep = f.op(f"icmp ne i32 {sleepers}, 0")
    wake = f.op(f"and i1 {asleep}, {f.op(f'icmp eq i64 {left}, 0')}")
    more = f.min(f.add(f.mul(before, 2), 1), _MOST_SKIPPED_WAKES)
    count = f.op(f"select i1 {wake}, i64 {more}, i64 {before}")
    f.store("i64", f.op(f"select i1 {asleep}, i64 {count}, i64 0"), skipped, 8)
    rest = f.op(f"select i1 {wake}, i64 {more}, i64 {f.max(f.sub(left, 1), 0)}")
    f.store("i64", f.op(f"select i1 {asleep}, i64 {rest}, i64 0"), skip, 8)
    with f.if_(wake), f.for_(1, most, hint="worker") as loop:
        f.call("wake", "void", ("ptr", "%team"), ("ptr", _line(f, loop.index)))


def _leave_alone(f: Function, useless: str) -> None:
    """After a call of several threads: if they shared cores at most of their meetings (`useless`, i1), the next ones
    run on one thread, more and more of them; each change of threads takes longer than many a kernel."""
    before = _field(f, "%team", Block.WERE_ALONE, "i64")
    calls = f.op(f"select i1 {useless}, i64 {f.min(f.add(f.mul(before, 2), 1), _MOST_ALONE)}, i64 0")
    for field in (Block.CALLS_ALONE, Block.WERE_ALONE):
        f.store("i64", calls, f.gep("i8", "%team", int(field)), 8)


@contextmanager
def _flushing(f: Function) -> Iterator[str]:
    """What is emitted in its body runs with denormals flushed if `%flush` is not 0, else in this thread's mode. Gives
    the mode of the body (i64)."""
    before = float_mode(f)
    flush = f.op("icmp ne i64 %flush, 0")
    inside = f.op(f"select i1 {flush}, i64 {f.op(f'or i64 {before}, {flush_bits(f.target)}')}, i64 {before}")
    with f.if_(flush):
        set_float_mode(f, inside)
    yield inside
    with f.if_(flush):
        set_float_mode(f, before)


def _run(module: Module) -> None:
    f = module.function("run", (("ptr", "function"), *KERNEL_PARAMS, ("i64", "flush")))
    with _flushing(f):
        f.call("%function", "void", *((type, f"%{name}") for type, name in KERNEL_PARAMS))


_DISPATCH = (
    ("ptr", "team"),
    ("ptr", "function"),
    ("ptr", "table"),
    ("i64", "nthreads"),
    ("i64", "short"),
    ("i64", "flush"),
)


def _dispatch(module: Module) -> None:
    f = module.function("dispatch", _DISPATCH)
    with _flushing(f) as mode:
        _dispatch_in(f, mode)


def _dispatch_in(f: Function, mode: str) -> None:
    """The body of `@dispatch`, which runs in the floating-point mode `mode`."""
    slot = f.alloca("i64")
    f.store("i64", 1, slot, 8)
    locked = f.op(f"icmp ne i32 {f.call('try_lock', 'i32', ('ptr', '%team'))}, 0")
    with f.if_(locked):
        # Also when it will run alone: the workers that it wakes for the next call compare their cores with this one.
        f.call("here", "void", ("ptr", f.gep("i8", "%team", int(Block.LINES))))
        left = f.gep("i8", "%team", int(Block.CALLS_ALONE))
        alone = f.load("i64", left, 8)
        f.store("i64", f.max(f.sub(alone, 1), 0), left, 8)
        there = f.min(f.add(_field(f, "%team", Block.WORKERS, "i64"), 1), "%nthreads")
        most = f.op(f"select i1 {f.op(f'icmp sgt i64 {alone}, 0')}, i64 1, i64 {there}")
        f.store("i64", most, slot, 8)
        with f.if_(f.op("icmp ne i64 %short, 0")):
            sleepers = _sleepers(f, most)
            with f.if_(f.op(f"icmp ne i32 {sleepers}, 0")):
                f.store("i64", 1, slot, 8)
            _wake_for_next_time(f, most, sleepers)
    nthreads = f.load("i64", slot, 8)
    together = f.op(f"icmp sgt i64 {nthreads}, 1")
    pending, crowded, generation = (
        f.gep("i8", "%team", int(field)) for field in (Block.PENDING, Block.CROWDED, Block.GENERATION)
    )
    before = _look(f, generation)
    with f.if_(together):
        others = f.op(f"trunc i64 {f.sub(nthreads, 1)} to i32")
        f.emit(f"store atomic i32 {others}, ptr {pending} monotonic, align 4")
        f.emit(f"store atomic i32 0, ptr {crowded} monotonic, align 4")
        f.store("i64", mode, f.gep("i8", "%team", int(Block.FLOAT_MODE)), 8)
        f.call("post", "void", ("ptr", "%team"), ("ptr", "%function"), ("ptr", "%table"), ("i64", nthreads))
    f.call("%function", "void", ("ptr", "%table"), ("i64", 0), ("i64", nthreads))
    with f.if_(together):
        with f.repeat([]) as until:
            left = _look(f, pending)
            working = f.op(f"icmp ne i32 {left}, 0")
            with f.if_(working):
                f.call("wait", "void", ("ptr", "%team"), ("ptr", pending), ("i32", left), ("i32", 2))
            until.again = working
        meetings = f.op(f"sub i32 {_look(f, generation)}, {before}")
        _leave_alone(f, f.op(f"icmp ugt i32 {f.op(f'shl i32 {_look(f, crowded)}, 1')}, {meetings}"))
    with f.if_(locked):
        f.call("unlock", "void", ("ptr", "%team"))
