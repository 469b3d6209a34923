"""The functions of a library that runs a compiled model without Python, in LLVM IR; `c_library/library.py` builds it.

For the name `net`, C programs call:

    size_t net_memory(int threads, sizes …)                              bytes that net_create_in needs
    int    net_create(int threads, net **out)
    int    net_create_in(int threads, void *memory, size_t bytes, net **out)
    int    net_run(net *, sizes …, inputs …, outputs …)
    void   net_free(net *)
    const char *net_message(int status), *net_version(void), *net_describe(void)

A library whose weights lie in a file of their own takes its name: `net_create(int threads, const char *weights, …)`,
likewise `net_create_in`. It maps the file, so that processes share it, and compares its size and its first bytes with
what they were when the library was built.

A net is one block of memory (`Net` has its fields): a table of pointers for each program, the team of threads, then the
prepared values. `create` selects the first target that the processor can run, starts the workers, and runs the
`prepare` functions on the weights, which are read-only data. `run` fills in the pointers of the call and runs `main` on
the team. A mutex lets one call at a time use the net.

What Python does in `runtime/executable.py` and `runtime/threads.py` happens here in the same order, so the results have
the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from gluonjit.codegen.interface import CALLBACK, Interface, Layout, Prepare
from gluonjit.codegen.text.cpu_check import add_check
from gluonjit.codegen.text.llvm import Exit, Function, Module
from gluonjit.codegen.threads.team import FUTEX, MAX_THREADS, Block, Line, add_team
from gluonjit.ir.dims import Dim, Extent, aligned
from gluonjit.ir.machine import LINE, WORTH_A_THREAD, Machine
from gluonjit.ir.types import IRError, TensorType

ALIGNMENT = 256
"""Bytes to which each part of a net's memory is aligned, so that what different threads write lies far enough apart."""
_SHORT = 150_000
"""Nanoseconds, as in `runtime.threads`: shorter calls do not wait for sleeping workers."""
_YIELDS = 1000
_SPIN_NANOSECONDS = 50_000
_LOOKS = 1000


class Status(IntEnum):
    """What the functions return."""

    OK = 0
    BAD_ARGUMENT = 1
    BAD_SIZE = 2
    NO_MEMORY = 3
    NO_TARGET = 4
    BAD_WEIGHTS = 5
    BAD_DATA = 6


MESSAGES = {
    Status.OK: "no error",
    Status.BAD_ARGUMENT: "a pointer is null or not aligned to its elements, or the number of threads is not 1 to "
    f"{MAX_THREADS}",
    Status.BAD_SIZE: "a size is not one that the library was built for",
    Status.NO_MEMORY: "there is not enough memory",
    Status.NO_TARGET: "the library has no code for this processor: build it with another --target",
    Status.BAD_WEIGHTS: "the file of weights cannot be read, or is not the one that was made with the library",
    Status.BAD_DATA: "the model refuses the data: an index is out of bounds, a matrix is singular",
}


class Net(IntEnum):
    """Byte offsets in a net."""

    THREADS = 0  # i64
    ARENA = 8  # ptr
    ARENA_BYTES = 16  # i64
    OWNED = 24  # i64: whether the memory is the library's
    TARGET = 32  # i64
    WEIGHTS = 40  # ptr: where they begin, if they are in a file
    MUTEX = 64  # pthread_mutex_t: at most 64 bytes
    HANDLES = 128  # pthread_t of each worker
    TABLES = HANDLES + 8 * MAX_THREADS  # of every program of the target, one after the other


@dataclass(frozen=True)
class TargetCode:
    """A program compiled for one target: its functions are `<prefix>main`, `<prefix>prepare_0`, …"""

    prefix: str
    interface: Interface
    arguments: int
    """How many of the inputs of main are arguments of a call."""
    sources: tuple[int | None, ...]
    """Where in the weights the other inputs lie; None for those that nothing reads."""
    constants: tuple[int, ...]
    """Where in the weights the constants of main lie, then those of each prepare function."""
    packed: tuple[int, ...] | None = None
    """Where in the weights the prepared values lie, by their slots; None: `create` computes them."""


@dataclass(frozen=True)
class Target:
    machine: Machine
    codes: tuple[TargetCode, ...]
    """The same programs for every target; the last that takes a call's sizes serves it."""


@dataclass(frozen=True)
class WeightsFile:
    """Weights in a file of their own: HEADER bytes that tell it from others, then `size` bytes."""

    name: str
    header: bytes
    size: int


HEADER = 64


@dataclass(frozen=True)
class Model:
    """The model that a library runs."""

    name: str
    dims: tuple[str, ...]
    """The open dimensions: further arguments of `run`."""
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    fixed: tuple[dict[str, int], ...]
    """For each program, the sizes of those dimensions for which it serves one size alone."""
    description: str
    """JSON."""
    version: str
    weights: WeightsFile | None = None
    """None: they are data of the library."""


def largest_size(model: Model, targets: Sequence[Target]) -> int:
    """Sizes of open dimensions go up to here: no number that is computed from them overflows."""
    extents: list[Extent] = [t.nbytes for t in (*model.inputs, *model.outputs)]
    for target in targets:
        for code in target.codes:
            main = code.interface.main
            extents += [main.arena, main.scratch * MAX_THREADS, main.cost]
    polynomials = [e for e in extents if isinstance(e, Dim)]

    def most(n: int) -> int:
        return max((sum(abs(c) * n ** len(names) for names, c in e.terms.items()) for e in polynomials), default=0)

    return max(n for n in (1 << k for k in range(1, 32)) if n == 2 or most(n) < 1 << 60)


def public(name: str) -> list[str]:
    """The symbols of a library that programs call."""
    return [f"{name}_{f}" for f in ("memory", "create", "create_in", "run", "free", "message", "version", "describe")]


def driver(model: Model, targets: Sequence[Target], weights: str) -> Module:
    """The module of these functions. `weights`: the symbol of the weights, if they are in the library."""
    module = Module(targets[0].machine)
    _Driver(module, model, targets, weights)
    return module


class _Driver:
    def __init__(self, module: Module, model: Model, targets: Sequence[Target], weights: str) -> None:
        self.module, self.model, self.targets = module, model, targets
        self.largest = largest_size(model, targets)
        self._weights = module.external(weights) if model.weights is None else None
        tables = [sum(8 * code.interface.main.size for code in t.codes) for t in targets]
        self._team = int(aligned(Net.TABLES + max(tables), ALIGNMENT))
        self._prepared = int(aligned(self._team + Block.SIZE, ALIGNMENT))
        self._prepared_at = [_prepared_places(t) for t in targets]
        self._bytes = self._prepared + max(size for _, size in self._prepared_at)
        for name, result, params in (*_LIBC, *(_LIBC_FILES if model.weights is not None else ())):
            module.declare(name, result, params)
        add_team(module, FUTEX)
        for k, target in enumerate(targets):
            add_check(module, f"runs_{k}", target.machine)
            self._setup(k)
            for p in range(len(target.codes)):
                self._needs(k, p)
                self._program(k, p)
        if model.weights is not None:
            self._map(model.weights)
        self._refused = self._check() if any(c.interface.calls_host for t in targets for c in t.codes) else None
        self._start()
        self._stop()
        self._memory()
        self._create_in()
        self._create()
        self._run()
        self._free()
        self._texts()

    def _api(self, name: str, params: Sequence[tuple[str, str]], result: str = "i32") -> Function:
        return self.module.function(f"{self.model.name}_{name}", params, result)

    @property
    def _sizes(self) -> list[tuple[str, str]]:
        return [("i64", f"n{k}") for k in range(len(self.model.dims))]

    def _with_sizes(self, f: Function) -> Function:
        f.sizes = {name: f"%n{k}" for k, name in enumerate(self.model.dims)}
        return f

    def _check(self) -> str:
        """What kernels call that check their data (`codegen/kernels/host.py`): it notes that this thread's call is
        refused, in the word returned. The first thread of a team, the caller, does all checks."""
        refused = self.module.thread_word("refused")
        f = self.module.function(CALLBACK, (("ptr", "text"), ("i64", "size"), ("ptr", "table")))
        f.store("i32", 1, refused, 4)
        return refused

    # ---- one program

    def _table(self, k: int, p: int) -> int:
        """Where in a net the table of a program is."""
        return Net.TABLES + sum(8 * code.interface.main.size for code in self.targets[k].codes[:p])

    def _setup(self, k: int) -> None:
        """`@setup_k(net)`: everything in the tables that no call changes, and the prepared values."""
        f = self.module.function(f"setup_{k}", (("ptr", "net"),), linkage="internal")
        places, _ = self._prepared_at[k]
        team, threads = f.gep("i8", "%net", self._team), _field(f, Net.THREADS, "i64")
        done: set[object] = set()
        for p, code in enumerate(self.targets[k].codes):
            main = code.interface.main
            table = f.gep("i8", "%net", self._table(k, p))
            for slot, source in zip(main.input_slots[code.arguments :], code.sources, strict=True):
                if source is not None:
                    self._point(f, table, slot, source)
            constants = iter(code.constants)
            for slot in main.constant_slots:
                self._point(f, table, slot, next(constants))
            f.store("ptr", team, f.gep("ptr", table, main.team_slot), 8)
            if code.packed is not None:
                for slot, at in zip(main.prepared_slots, code.packed, strict=True):
                    self._point(f, table, slot, at)
                continue
            for prepare in code.interface.prepares:
                key = _component(code, prepare)
                own = [next(constants) for _ in prepare.layout.constants]
                for slot, at in zip(prepare.slots, places[key], strict=True):
                    f.store("ptr", f.gep("i8", "%net", self._prepared + at), f.gep("ptr", table, slot), 8)
                if key in done:
                    continue
                done.add(key)
                layout = prepare.layout
                words = f.alloca("ptr", max(1, layout.size), 64)
                for slot, source in zip(layout.input_slots, _read(code, prepare), strict=True):
                    self._point(f, words, slot, source)
                for slot, at in zip(layout.result_slots, places[key], strict=True):
                    f.store("ptr", f.gep("i8", "%net", self._prepared + at), f.gep("ptr", words, slot), 8)
                for slot, at in zip(layout.constant_slots, own, strict=True):
                    self._point(f, words, slot, at)
                self._lend(f, layout, words)
                most = f.min(threads, layout.threads)
                self._dispatch(f, f"{code.prefix}{prepare.name}", words, most, 0)

    def _point(self, f: Function, table: str, slot: int, offset: int) -> None:
        weights = self._weights or _field(f, Net.WEIGHTS, "ptr")
        f.store("ptr", f.gep("i8", weights, offset), f.gep("ptr", table, slot), 8)

    def _lend(self, f: Function, layout: Layout, table: str) -> None:
        """The arena and the team for a call with this table."""
        arena = _field(f, Net.ARENA, "ptr")
        f.store("ptr", arena, f.gep("ptr", table, layout.arena_slot), 8)
        scratch = f.gep("i8", arena, aligned(layout.arena, LINE))
        f.store("ptr", scratch, f.gep("ptr", table, layout.scratch_slot), 8)
        f.store("ptr", f.gep("i8", "%net", self._team), f.gep("ptr", table, layout.team_slot), 8)

    def _dispatch(self, f: Function, name: str, table: str, threads: object, short: object) -> None:
        self.module.declare(name, "void", ("ptr", "i64", "i64"))
        call = (("ptr", f.gep("i8", "%net", self._team)), ("ptr", f"@{name}"), ("ptr", table))
        f.call("dispatch", "void", *call, ("i64", threads), ("i64", short), ("i64", 0))

    def _needs(self, k: int, p: int) -> None:
        """`@needs_k_p(threads, sizes …) → i64`: bytes of its arena, with scratch memory for each thread."""
        main = self.targets[k].codes[p].interface.main
        f = self.module.function(f"needs_{k}_{p}", (("i64", "threads"), *self._sizes), "i64", linkage="internal")
        self._with_sizes(f)
        f.ret(str(f.add(f.extent(aligned(main.arena, LINE)), f.mul("%threads", main.scratch))))

    def _program(self, k: int, p: int) -> None:
        """`@run_k_p(net, sizes …, inputs …, outputs …)`: one call; the arena is large enough."""
        code = self.targets[k].codes[p]
        main = code.interface.main
        f = self._with_sizes(
            self.module.function(f"run_{k}_{p}", (("ptr", "net"), *self._sizes, *self._pointers), linkage="internal")
        )
        table = f.gep("i8", "%net", self._table(k, p))
        slots = [*main.input_slots[: code.arguments], *main.result_slots[: code.interface.n_outputs]]
        for slot, (_, name) in zip(slots, self._pointers, strict=True):
            f.store("ptr", f"%{name}", f.gep("ptr", table, slot), 8)
        for slot, name in zip(main.size_slots, main.dims, strict=True):
            f.store("i64", f.sizes[name], f.gep("ptr", table, slot), 8)
        self._lend(f, main, table)
        cost = f.extent(main.cost)
        worth = f.max(f.min(f.div(cost, WORTH_A_THREAD), main.threads), 1) if main.dims else main.threads
        short = f.op(f"zext i1 {f.op(f'icmp slt i64 {cost}, {_SHORT}')} to i64")
        self._dispatch(f, f"{code.prefix}main", table, f.min(_field(f, Net.THREADS, "i64"), worth), short)

    @property
    def _pointers(self) -> list[tuple[str, str]]:
        """Parameters of `run` after the sizes."""
        inputs = [("ptr", f"in{k}") for k in range(len(self.model.inputs))]
        return [*inputs, *(("ptr", f"out{k}") for k in range(len(self.model.outputs)))]

    def _map(self, file: WeightsFile) -> None:
        """`@map_weights(path) → ptr`: where the mapped weights begin; null for a file that is not the library's."""
        f = self.module.function("map_weights", (("ptr", "path"),), "ptr", linkage="internal")
        header = self.module.constant(np.frombuffer(file.header, np.uint8), 1)
        nbytes = HEADER + file.size
        with f.exit(hint="none") as none:
            f.ret("null")
        handle = f.call("open", "i32", ("ptr", "%path"), ("i32", _O_RDONLY | _O_CLOEXEC))
        f.leave_if(f.op(f"icmp slt i32 {handle}, 0"), none)
        there = f.call("lseek", "i64", ("i32", handle), ("i64", 0), ("i32", _SEEK_END))
        right = f.op(f"icmp eq i64 {there}, {nbytes}")
        how = (("i32", _PROT_READ), ("i32", _MAP_PRIVATE), ("i32", handle), ("i64", 0))
        mapped = f.either(
            right, "ptr", lambda: f.call("mmap", "ptr", ("ptr", "null"), ("i64", nbytes), *how), lambda: _MAP_FAILED
        )
        f.call("close", "i32", ("i32", handle))
        f.leave_if(f.op(f"icmp eq ptr {mapped}, {_MAP_FAILED}"), none)
        # Read in large pieces, which are mapped at once (see `runtime/mapping.py`).
        address = f.op(f"ptrtoint ptr {mapped} to i64")
        f.call("madvise", "i32", ("i64", address), ("i64", nbytes), ("i32", _MADV_HUGEPAGE))
        same = f.op(f"icmp eq i32 {f.call('memcmp', 'i32', ('ptr', mapped), ('ptr', header), ('i64', HEADER))}, 0")
        with f.if_(f.op(f"xor i1 {same}, true")):
            f.call("munmap", "i32", ("ptr", mapped), ("i64", nbytes))
        f.leave_if(f.op(f"xor i1 {same}, true"), none)
        f.ret(f.gep("i8", mapped, HEADER))

    # ---- threads

    def _start(self) -> None:
        """`@start(net)`: the workers, which block all signals; fewer where the system allows no more."""
        f = self.module.function("start", (("ptr", "net"),), linkage="internal")
        team, threads = f.gep("i8", "%net", self._team), _field(f, Net.THREADS, "i64")
        f.store("ptr", "@barrier", f.gep("i8", team, int(Block.BARRIER)), 8)
        f.store("i64", self._spins(f), f.gep("i8", team, int(Block.SPINS)), 8)
        f.store("i64", _YIELDS, f.gep("i8", team, int(Block.YIELDS)), 8)
        everything, before = f.alloca("i64", 16, 16), f.alloca("i64", 16, 16)  # sigset_t
        f.call("sigfillset", "i32", ("ptr", everything))
        f.call("pthread_sigmask", "i32", ("i32", _SIG_SETMASK), ("ptr", everything), ("ptr", before))
        workers = f.alloca("i64")
        f.store("i64", 0, workers, 8)
        with f.for_(1, threads, hint="worker") as loop:
            with f.if_(f.op(f"icmp eq i64 {f.load('i64', workers, 8)}, {f.sub(loop.index, 1)}")):
                line = f.gep("i8", team, f.add(f.mul(loop.index, int(Block.LINE_SIZE)), int(Block.LINES)))
                f.store("ptr", team, f.gep("i8", line, int(Line.TEAM)), 8)
                f.store("i64", loop.index, f.gep("i8", line, int(Line.INDEX)), 8)
                handle = f.gep("i8", "%net", f.add(f.mul(loop.index, 8), int(Net.HANDLES)))
                work = (("ptr", handle), ("ptr", "null"), ("ptr", "@work"), ("ptr", line))
                made = f.op(f"icmp eq i32 {f.call('pthread_create', 'i32', *work)}, 0")
                with f.if_(made):
                    f.store("i64", loop.index, workers, 8)
        f.call("pthread_sigmask", "i32", ("i32", _SIG_SETMASK), ("ptr", before), ("ptr", "null"))
        count = f.load("i64", workers, 8)
        f.store("i64", count, f.gep("i8", team, int(Block.WORKERS)), 8)
        f.store("i64", f.add(count, 1), f.gep("i8", "%net", int(Net.THREADS)), 8)

    def _spins(self, f: Function) -> str:
        """How often a waiting thread looks in `_SPIN_NANOSECONDS`: measured, as in `runtime.threads`."""
        times = f.alloca("i64", 4, 16)

        def now(at: int) -> None:
            f.call("clock_gettime", "i32", ("i32", _CLOCK_MONOTONIC), ("ptr", f.gep("i64", times, at)))

        with f.for_(0, 3, carried=[("i64", str(1 << 40))]) as loop:
            now(0)
            f.call("pauses", "void", ("i64", _LOOKS))
            now(2)
            words = [f.load("i64", f.gep("i64", times, at), 8) for at in range(4)]
            seconds, rest = f.sub(words[2], words[0]), f.sub(words[3], words[1])
            loop.next(f.min(loop.carried[0], f.max(f.add(f.mul(seconds, 1_000_000_000), rest), 1)))
        return f.max(f.div(_LOOKS * _SPIN_NANOSECONDS, loop.results[0]), 1)

    def _stop(self) -> None:
        """`@stop(net)`: ends the workers, and waits for their ends."""
        f = self.module.function("stop", (("ptr", "net"),), linkage="internal")
        threads = _field(f, Net.THREADS, "i64")
        nothing = (("ptr", "null"), ("ptr", "null"), ("i64", threads))
        f.call("post", "void", ("ptr", f.gep("i8", "%net", self._team)), *nothing)
        with f.for_(1, threads, hint="worker") as loop:
            handle = f.load("i64", f.gep("i8", "%net", f.add(f.mul(loop.index, 8), int(Net.HANDLES))), 8)
            f.call("pthread_join", "i32", ("i64", handle), ("ptr", "null"))

    # ---- the functions that programs call

    def _bad_sizes(self, f: Function, status: str) -> None:
        with f.exit(hint="bad.size") as bad:
            f.ret(status)
        for _, name in self._sizes:
            low, high = f.op(f"icmp slt i64 %{name}, 1"), f.op(f"icmp sgt i64 %{name}, {self.largest}")
            f.leave_if(f.op(f"or i1 {low}, {high}"), bad)

    def _matches(self, f: Function, p: int) -> str:
        """Whether the program is for the call's sizes alone, or for any (i1)."""
        found = "true"
        for k, name in enumerate(self.model.dims):
            if name in self.model.fixed[p]:
                same = f.op(f"icmp eq i64 %n{k}, {self.model.fixed[p][name]}")
                found = same if found == "true" else f.op(f"and i1 {found}, {same}")
        return found

    def _chosen(self, f: Function) -> str:
        """The number of the program for the call's sizes (i64)."""
        chosen = "0"
        for p in range(len(self.model.fixed)):
            chosen = f.op(f"select i1 {self._matches(f, p)}, i64 {p}, i64 {chosen}")
        return chosen

    def _need(self, f: Function, target: str, chosen: str, threads: str) -> str:
        """Bytes of the arena of a call on a target (i64)."""
        slot = f.alloca("i64")
        f.store("i64", 0, slot, 8)
        sizes = [("i64", f"%{name}") for _, name in self._sizes]
        for k, t in enumerate(self.targets):
            for p in range(len(t.codes)):
                here = f.op(f"icmp eq i64 {target}, {k}")
                with f.if_(f.op(f"and i1 {here}, {f.op(f'icmp eq i64 {chosen}, {p}')}")):
                    f.store("i64", f.call(f"needs_{k}_{p}", "i64", ("i64", threads), *sizes), slot, 8)
        return f.load("i64", slot, 8)

    def _to_prepare(self, k: int, f: Function, threads: str) -> str:
        """Bytes of the arena while weights are packed (i64)."""
        most = "0"
        for code in self.targets[k].codes:
            for prepare in code.interface.prepares if code.packed is None else ():
                layout = prepare.layout
                arena = int(aligned(layout.arena, LINE))
                most = f.max(most, f.add(arena, f.mul(threads, layout.scratch)))
        return most

    def _select(self, f: Function) -> str:
        """The first target that this processor can run, or -1 (i64)."""
        found = "-1"
        for k in reversed(range(len(self.targets))):
            found = f.op(f"select i1 {f.call(f'runs_{k}', 'i1')}, i64 {k}, i64 {found}")
        return found

    def _total(self, f: Function, target: str, threads: str, need: str) -> str:
        """Bytes of a net with an arena of `need` (i64): the same for every target, but for the arena."""
        slot = f.alloca("i64")
        f.store("i64", need, slot, 8)
        for k in range(len(self.targets)):
            with f.if_(f.op(f"icmp eq i64 {target}, {k}")):
                f.store("i64", f.max(need, self._to_prepare(k, f, threads)), slot, 8)
        return f.add(f.load("i64", slot, 8), self._bytes + ALIGNMENT)

    def _memory(self) -> None:
        """The function returns 0 for impossible sizes or numbers of threads, and on a processor that cannot run the
        library."""
        f = self._api("memory", (("i32", "threads"), *self._sizes), "i64")
        with f.exit(hint="bad") as bad:
            f.ret("0")
        self._bad_sizes(f, "0")
        _leave_unless_threads(f, bad)
        threads = f.op("sext i32 %threads to i64")
        target = self._select(f)
        f.leave_if(f.op(f"icmp slt i64 {target}, 0"), bad)
        f.ret(self._total(f, target, threads, self._need(f, target, self._chosen(f), threads)))

    @property
    def _path(self) -> list[tuple[str, str]]:
        """The parameter of `create` for the file of weights."""
        return [("ptr", "path")] if self.model.weights is not None else []

    def _create(self) -> None:
        f = self._api("create", (("i32", "threads"), *self._path, ("ptr", "out")))
        path = [(type, f"%{name}") for type, name in self._path]
        given = (("i32", "%threads"), *path, ("ptr", "null"), ("i64", 0), ("ptr", "%out"))
        f.ret(f.call(f"{self.model.name}_create_in", "i32", *given))

    def _create_in(self) -> None:
        params = (("i32", "threads"), *self._path, ("ptr", "memory"), ("i64", "bytes"), ("ptr", "out"))
        f = self._api("create_in", params)
        bad, none, full = (_returning(f, s) for s in (Status.BAD_ARGUMENT, Status.NO_TARGET, Status.NO_MEMORY))
        f.leave_if(f.op("icmp eq ptr %out, null"), bad)
        f.store("ptr", "null", "%out", 8)
        _leave_unless_threads(f, bad)
        for _, name in self._path:
            f.leave_if(f.op(f"icmp eq ptr %{name}, null"), bad)
        target = self._select(f)
        f.leave_if(f.op(f"icmp slt i64 {target}, 0"), none)
        threads = f.op("sext i32 %threads to i64")
        own = f.op("icmp eq ptr %memory, null")
        least = self._total(f, target, threads, "0")
        size = f.op(f"and i64 {f.add(least, ALIGNMENT - 1)}, {-ALIGNMENT}")
        given = f.either(
            own, "ptr", lambda: f.call("aligned_alloc", "ptr", ("i64", ALIGNMENT), ("i64", size)), lambda: "%memory"
        )
        total = f.op(f"select i1 {own}, i64 {size}, i64 %bytes")
        f.leave_if(f.op(f"icmp eq ptr {given}, null"), full)
        f.leave_if(f.op(f"icmp ult i64 {total}, {least}"), full)
        weights = None
        if self.model.weights is not None:
            wrong = _returning(f, Status.BAD_WEIGHTS)
            weights = f.call("map_weights", "ptr", ("ptr", "%path"))
            missing = f.op(f"icmp eq ptr {weights}, null")
            with f.if_(f.op(f"and i1 {missing}, {own}")):
                f.call("free", "void", ("ptr", given))
            f.leave_if(missing, wrong)
        address = f.op(f"ptrtoint ptr {given} to i64")
        begin = f.op(f"and i64 {f.add(address, ALIGNMENT - 1)}, {-ALIGNMENT}")
        net = f.op(f"getelementptr i8, ptr {given}, i64 {f.sub(begin, address)}")
        f.call("memset", "ptr", ("ptr", net), ("i32", 0), ("i64", self._prepared))
        left = f.sub(total, f.add(f.sub(begin, address), self._bytes))
        fields = (
            (Net.THREADS, "i64", threads),
            (Net.ARENA, "ptr", f.gep("i8", net, self._bytes)),
            (Net.ARENA_BYTES, "i64", left),
            (Net.OWNED, "i64", f.op(f"zext i1 {own} to i64")),
            (Net.TARGET, "i64", target),
            *([(Net.WEIGHTS, "ptr", weights)] if weights is not None else []),
        )
        for field, type, value in fields:
            f.store(type, value, f.gep("i8", net, int(field)), 8)
        f.call("start", "void", ("ptr", net))
        for k in range(len(self.targets)):
            with f.if_(f.op(f"icmp eq i64 {target}, {k}")):
                f.call(f"setup_{k}", "void", ("ptr", net))
        f.store("ptr", net, "%out", 8)
        f.ret(str(int(Status.OK)))

    def _run(self) -> None:
        f = self._api("run", (("ptr", "net"), *self._sizes, *self._pointers))
        bad = _returning(f, Status.BAD_ARGUMENT)
        f.leave_if(f.op("icmp eq ptr %net, null"), bad)
        for (_, name), t in zip(self._pointers, (*self.model.inputs, *self.model.outputs), strict=True):
            f.leave_if(f.op(f"icmp eq ptr %{name}, null"), bad)
            address = f.op(f"ptrtoint ptr %{name} to i64")
            rest = f.op(f"and i64 {address}, {t.dtype.itemsize - 1}")
            f.leave_if(f.op(f"icmp ne i64 {rest}, 0"), bad)
        self._bad_sizes(f, str(int(Status.BAD_SIZE)))
        mutex = f.gep("i8", "%net", int(Net.MUTEX))
        with f.exit(hint="full") as full:
            f.call("pthread_mutex_unlock", "i32", ("ptr", mutex))
            f.ret(str(int(Status.NO_MEMORY)))
        f.call("pthread_mutex_lock", "i32", ("ptr", mutex))
        target, threads = _field(f, Net.TARGET, "i64"), _field(f, Net.THREADS, "i64")
        chosen = self._chosen(f)
        need = self._need(f, target, chosen, threads)
        with f.if_(f.op(f"icmp ugt i64 {need}, {_field(f, Net.ARENA_BYTES, 'i64')}")):
            own = f.op(f"icmp ne i64 {_field(f, Net.OWNED, 'i64')}, 0")
            f.leave_if(f.op(f"xor i1 {own}, true"), full)
            size = f.op(f"and i64 {f.add(need, ALIGNMENT - 1)}, {-ALIGNMENT}")
            larger = f.call("aligned_alloc", "ptr", ("i64", ALIGNMENT), ("i64", size))
            f.leave_if(f.op(f"icmp eq ptr {larger}, null"), full)
            # Advice: large pages are faster to find. The C library's blocks begin within a page.
            page = f.op(f"ptrtoint ptr {larger} to i64")
            first = f.op(f"and i64 {f.add(page, _PAGE - 1)}, {-_PAGE}")
            with f.if_(f.op(f"icmp uge i64 {size}, {_HUGE}")):
                advice = (("i64", first), ("i64", f.sub(size, f.sub(first, page))), ("i32", _MADV_HUGEPAGE))
                f.call("madvise", "i32", *advice)
            self._give_back(f)
            f.store("ptr", larger, f.gep("i8", "%net", int(Net.ARENA)), 8)
            f.store("i64", size, f.gep("i8", "%net", int(Net.ARENA_BYTES)), 8)
        given = [("ptr", "%net"), *((type, f"%{name}") for type, name in (*self._sizes, *self._pointers))]
        if self._refused is not None:
            f.store("i32", 0, self._refused, 4)
        for k, candidate in enumerate(self.targets):
            for p in range(len(candidate.codes)):
                here = f.op(f"icmp eq i64 {target}, {k}")
                with f.if_(f.op(f"and i1 {here}, {f.op(f'icmp eq i64 {chosen}, {p}')}")):
                    f.call(f"run_{k}_{p}", "void", *given)
        f.call("pthread_mutex_unlock", "i32", ("ptr", mutex))
        if self._refused is None:
            f.ret(str(int(Status.OK)))
        else:
            refused = f.op(f"icmp ne i32 {f.load('i32', self._refused, 4)}, 0")
            f.ret(f.op(f"select i1 {refused}, i32 {int(Status.BAD_DATA)}, i32 {int(Status.OK)}"))

    def _give_back(self, f: Function) -> None:
        """Frees the arena, unless it is the one that follows the net itself."""
        arena = _field(f, Net.ARENA, "ptr")
        first = f.gep("i8", "%net", self._bytes)
        with f.if_(f.op(f"icmp ne ptr {arena}, {first}")):
            f.call("free", "void", ("ptr", arena))

    def _free(self) -> None:
        f = self._api("free", (("ptr", "net"),), "void")
        with f.exit(hint="nothing") as nothing:
            f.ret()
        f.leave_if(f.op("icmp eq ptr %net, null"), nothing)
        f.call("stop", "void", ("ptr", "%net"))
        if self.model.weights is not None:
            mapped = f.gep("i8", _field(f, Net.WEIGHTS, "ptr"), -HEADER)
            f.call("munmap", "i32", ("ptr", mapped), ("i64", HEADER + self.model.weights.size))
        self._give_back(f)
        with f.if_(f.op(f"icmp ne i64 {_field(f, Net.OWNED, 'i64')}, 0")):
            f.call("free", "void", ("ptr", "%net"))

    def _texts(self) -> None:
        f = self._api("message", (("i32", "status"),), "ptr")
        text = self._text("no such status")
        for status, message in MESSAGES.items():
            same = f.op(f"icmp eq i32 %status, {int(status)}")
            text = f.op(f"select i1 {same}, ptr {self._text(message)}, ptr {text}")
        f.ret(text)
        for name, content in (("version", self.model.version), ("describe", self.model.description)):
            self._api(name, (), "ptr").ret(self._text(content))

    def _text(self, text: str) -> str:
        return self.module.constant(np.frombuffer(text.encode() + b"\0", np.uint8), 1)


_HUGE, _PAGE, _MADV_HUGEPAGE = 1 << 22, 4096, 14
_SIG_SETMASK, _CLOCK_MONOTONIC = 2, 1  # Linux
_O_RDONLY, _O_CLOEXEC, _SEEK_END, _PROT_READ, _MAP_PRIVATE, _MAP_FAILED = (
    0,
    0x80000,
    2,
    1,
    2,
    "inttoptr (i64 -1 to ptr)",
)
_LIBC = (
    ("aligned_alloc", "ptr", ("i64", "i64")),
    ("free", "void", ("ptr",)),
    ("madvise", "i32", ("i64", "i64", "i32")),
    ("memset", "ptr", ("ptr", "i32", "i64")),
    ("pthread_create", "i32", ("ptr", "ptr", "ptr", "ptr")),
    ("pthread_join", "i32", ("i64", "ptr")),
    ("pthread_mutex_lock", "i32", ("ptr",)),
    ("pthread_mutex_unlock", "i32", ("ptr",)),
    ("pthread_sigmask", "i32", ("i32", "ptr", "ptr")),
    ("sigfillset", "i32", ("ptr",)),
    ("clock_gettime", "i32", ("i32", "ptr")),
)
_LIBC_FILES = (
    ("open", "i32", ("ptr", "i32")),
    ("lseek", "i64", ("i32", "i64", "i32")),
    ("mmap", "ptr", ("ptr", "i64", "i32", "i32", "i32", "i64")),
    ("munmap", "i32", ("ptr", "i64")),
    ("memcmp", "i32", ("ptr", "ptr", "i64")),
    ("close", "i32", ("i32",)),
)


def _prepared_places(target: Target) -> tuple[dict[object, list[int]], int]:
    """(where the results of each prepare function lie, by what it computes; their bytes)"""
    places: dict[object, list[int]] = {}
    at = 0
    for code in target.codes:
        for prepare in code.interface.prepares if code.packed is None else ():
            key = _component(code, prepare)
            if key not in places:
                places[key] = []
                for t in prepare.layout.result_types:
                    places[key].append(at)
                    at = int(aligned(at + t.nbytes, ALIGNMENT))
    return places, at


def _read(code: TargetCode, prepare: Prepare) -> tuple[int, ...]:
    """Where in the weights the inputs of a prepare function lie."""
    found = tuple(code.sources[i - code.arguments] if i >= code.arguments else None for i in prepare.inputs)
    if None in found:
        raise IRError(f"{prepare.name} reads an input that is not a weight")
    return tuple(at for at in found if at is not None)


def _component(code: TargetCode, prepare: Prepare) -> object:
    """Equal for prepare functions, of whatever program, that compute the same values."""
    return prepare.key, _read(code, prepare)


def _field(f: Function, field: Net, type: str) -> str:
    return f.load(type, f.gep("i8", "%net", int(field)), 8)


def _returning(f: Function, status: Status) -> Exit:
    with f.exit(hint=status.name.lower()) as found:
        f.ret(str(int(status)))
    return found


def _leave_unless_threads(f: Function, bad: Exit) -> None:
    few, many = f.op("icmp slt i32 %threads, 1"), f.op(f"icmp sgt i32 %threads, {MAX_THREADS}")
    f.leave_if(f.op(f"or i1 {few}, {many}"), bad)
