"""A compiled graph that can be called with ndarrays.

The graph's native function takes one table of pointers, laid out by `codegen.interface.Layout`. `Executable` checks the
arguments, keeps the prepared values (packed weights …) up to date, provides an arena and makes the call.
"""

from __future__ import annotations

import copy
import ctypes
import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from gluonjit.codegen.block_memory import LARGE
from gluonjit.codegen.interface import Interface, Layout, Prepare
from gluonjit.codegen.python_objects import Array
from gluonjit.common.lazy import cached_property
from gluonjit.common.stages import stage
from gluonjit.ir.dims import aligned
from gluonjit.ir.graph import Graph
from gluonjit.ir.machine import ALIGNMENT, Machine
from gluonjit.ir.sizes import sizes_of
from gluonjit.ir.types import IRError, TensorType, type_of
from gluonjit.runtime import forks, host, kept_blocks, threads
from gluonjit.runtime.arenas import ARENAS, ArenaPool, CacheFriendly, aligned_array, aligned_copy, give_back
from gluonjit.runtime.prepared_files import SMALLEST, PreparedFiles, evict, inputs_digest
from gluonjit.runtime.watching import Progress, Watch


@dataclass(frozen=True, eq=False)
class CodeSource:
    """What code was made of. `make` gives the graph, for those who look at it: code runs without."""

    make: Callable[[], Graph]
    pipeline: str
    target: Machine
    tuned: bool = False

    @cached_property
    def graph(self) -> Graph:
        return self.make()


_DATA = int(Array.DATA)
_word = ctypes.c_size_t.from_address


def _by_layout(x: np.ndarray) -> int:
    return _word(id(x) + _DATA).value


def _by_ctypes(x: np.ndarray) -> int:
    return x.ctypes.data


_probe = np.empty(1)
address_of: Callable[[np.ndarray], int] = _by_layout if _by_layout(_probe) == _probe.ctypes.data else _by_ctypes
"""The address of an array's first element. `x.ctypes` makes an object each time, which takes eight times as long; a
small step of training asks some seventy times."""

MEASURING = 2
"""Further words at the end of a table, for code that measures itself (`codegen/threads/stamps.py`)."""


class Watcher(Protocol):
    """What measures calls of native functions (`runtime/timed.py`). Tables are complete."""

    def run(self, function: NativeFunction, table: np.ndarray, nthreads: int) -> None:
        """Runs the function."""

    def entry(
        self, function: NativeFunction, table: np.ndarray, nthreads: int, fallback: Callable[..., Any]
    ) -> tuple[int, Callable[[Any], Any]] | None:
        """What calls that go from Python straight to native code with this table need in order to be noted: the address
        to be called instead of the function's, and what wraps the callable so that its calls are noted. None if they
        need not be noted."""


watcher: Watcher | None = None
"""What measures calls now."""

_MOST_SIZES = 64
"""The sizes for which an executable with open dimensions keeps what it has computed, some kilobytes each."""


class NativeFunction:
    """A native function with its layout. Constants are bound once, the other pointers at each call.

    One whose layout has open dimensions cannot be called before they have sizes (`sized`)."""

    def __init__(
        self, layout: Layout, address: int, keep: Any, flush: bool = False, arenas: ArenaPool | None = None
    ) -> None:
        self.layout = layout
        self.address = address
        self.code = keep
        """The loaded code, which must outlive every pointer to it."""
        self.source: CodeSource | None = None
        self.prepare: int | None = None
        """Which of the graph's `prepare` ops it is; None for the graph's own function."""
        self.flush = flush
        """Whether denormals count as zero during a call."""
        self.is_open = bool(layout.dims)
        """Whether it needs sizes."""
        self.arenas = arenas or ARENAS
        self.scratch_offset: Any = aligned(layout.arena, ALIGNMENT)
        """Where scratch memory begins, after the arena; each thread has its own part."""
        if not self.is_open:
            self.arenas.lend(self, self.working_memory)
        self.constants = [aligned_copy(c) for c in layout.constants]
        self.template = np.zeros(layout.size + MEASURING, np.int64)
        for slot, constant in zip(layout.constant_slots, self.constants, strict=True):
            self.template[slot] = address_of(constant)

    def sized(self, sizes: Mapping[str, int]) -> NativeFunction:
        """The same function for these sizes of its open dimensions."""
        other = copy.copy(self)
        other.layout, other.is_open = self.layout.sized(sizes), False
        other.scratch_offset = aligned(other.layout.arena, ALIGNMENT)
        other.arenas.lend(other, other.working_memory)
        other.template = self.template.copy()
        for name, slot in zip(self.layout.dims, self.layout.size_slots, strict=True):
            other.template[slot] = sizes[name]
        return other

    def share_arenas(self) -> None:
        """From now on its calls take the arenas of all code, which stay, instead of those that it was made with."""
        if self.arenas is not ARENAS:
            self.arenas = ARENAS
            self.arenas.lend(self, self.working_memory)

    def fill(self, table: np.ndarray, arena: np.ndarray) -> None:
        """Puts arena, scratch and team into a table."""
        table[self.layout.arena_slot] = address_of(arena)
        table[self.layout.scratch_slot] = address_of(arena) + self.scratch_offset
        table[self.layout.team_slot] = address_of(threads.block)

    @property
    def working_memory(self) -> int:
        """The bytes that a call takes in `arenas`."""
        return self.scratch_offset + self.layout.threads * self.layout.scratch

    def take_arena(self, nthreads: int) -> np.ndarray:
        """Memory for a call on `nthreads` threads; the caller puts it back into `arenas`."""
        return self.arenas.take(self.scratch_offset + nthreads * self.layout.scratch)

    def call(self, pointers: dict[int, int], begins: Callable[[np.ndarray], object] | None = None) -> None:
        """Runs on this thread and the team's, without the GIL; `pointers` maps table slots to addresses. `begins` is
        given the table before, in which the number of kernels that have run is that of all in the end."""
        table = self.template.copy()
        for slot, pointer in pointers.items():
            table[slot] = pointer
        if begins is not None:
            begins(table)
        self.run(table)
        if self.layout.ready:
            table[self.layout.progress_slot] = max(self.layout.ready)

    def run(self, table: np.ndarray) -> None:
        """`call` with a table that has all pointers to inputs and results."""
        nthreads = self.layout.threads
        if nthreads > 1:
            nthreads = min(nthreads, threads.usable) or threads.start(nthreads)
        arena = self.take_arena(nthreads)
        self.fill(table, arena)
        try:
            if watcher is None:
                self.enter(self.address, table, nthreads)
            else:
                watcher.run(self, table, nthreads)
            host.raise_error()
        finally:
            self.arenas.put(arena)

    def enter(self, address: int, table: np.ndarray, nthreads: int) -> None:
        """Runs the code at `address`, which takes tables like this function, in its way."""
        threads.run(address, address_of(table), nthreads, self.layout.cost, self.flush)


class Bound:
    """A call whose arrays are always the same: it reads them anew, and writes its results over the old ones.

    Such a call takes the time of the code and a few microseconds, however many arrays there are.
    """

    def __init__(
        self,
        function: NativeFunction,
        inputs: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        prepared: Mapping[int, np.ndarray],
    ) -> None:
        self.function = function
        self._keep = (*inputs, *results, *prepared.values())
        self.table = function.template.copy()
        """Where the function finds the arrays; complete but for the arena."""
        layout = function.layout
        for slots, arrays in ((layout.input_slots, inputs), (layout.result_slots, results)):
            for slot, x in zip(slots, arrays, strict=True):
                self.table[slot] = address_of(x)
        for slot, x in prepared.items():
            self.table[slot] = address_of(x)

    def __call__(self) -> None:
        """Runs the call; two threads must not do so at once."""
        self.function.run(self.table)

    def with_own_table(self) -> Bound:
        """The same call, of the same arrays, for somebody who keeps an arena in its table."""
        other = copy.copy(self)
        other.table = self.table.copy()
        return other


class ReadyCalls:
    """The calls of an executable whose prepared values are up to date: they look up no more than where their inputs
    are. Others may run at the same time."""

    def __init__(self, executable: Executable, held: Mapping[int, np.ndarray]) -> None:
        self._executable = executable
        self._held = held
        """The prepared values by their slots, kept alive."""
        self._read = [k for k in range(len(executable.input_types)) if k not in executable.unread]
        self._table = executable.main.template.copy()
        for slot, x in held.items():
            self._table[slot] = address_of(x)

    def run(self, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """See `Executable.run`; `inputs` have the shapes and dtypes that it was made for."""
        callee, table, kept = self._executable, self._table.copy(), []
        for k in self._read:
            flags = inputs[k].flags
            x = inputs[k] if flags.c_contiguous and flags.aligned else np.require(inputs[k], requirements=["C", "A"])
            kept.append(x)
            table[k] = address_of(x)
        results = callee.new_results()
        for slot, x in zip(callee.main.layout.result_slots, results):
            table[slot] = address_of(x)
        callee.main.run(table)
        return results[: callee.n_outputs], results[callee.n_outputs :]


class Results(list[np.ndarray]):
    """The results of a `prepare` component. Nobody writes to them, or to the list."""


@dataclass
class Content:
    """The results of a `prepare` component, and the versions of the inputs from which they were computed."""

    results: Results = field(default_factory=Results)
    seen: tuple[Hashable, ...] | None = None


_computed: WeakValueDictionary[Hashable, Results] = WeakValueDictionary()
"""All results in this process that may be had again, by what computed them from which versions of arrays. So programs
that read the same parameters, such as the buckets of a BucketingModule, share what they pack alike."""


class Prepared:
    """One `prepare` component, and its results, which other programs may share. `made_by`: what they depend on besides
    the component and its inputs; None if nobody else may have them."""

    def __init__(
        self,
        function: NativeFunction,
        interface: Prepare,
        allocate: Callable[..., np.ndarray],
        files: PreparedFiles | None,
        made_by: Hashable,
    ) -> None:
        self.function = function
        self.name = interface.name
        self.made_by = made_by
        self.files = files
        """Where results may lie on disk; None for those that are computed sooner than found."""
        self.allocate = allocate
        """`allocate(shape, dtype)` makes an array for a result."""
        self.inputs = interface.inputs
        """Indices of the main graph's inputs that the component reads."""
        self.slots = interface.slots
        """Slots of its results in the main function's table."""
        self.same = interface.key, interface.inputs
        """Equal for components that compute the same from inputs with the same numbers."""
        self.content = Content()

    @property
    def results(self) -> Results:
        return self.content.results

    def is_fresh(self, versions: Sequence[Hashable] | None) -> bool:
        """Whether the results were computed from inputs of these versions (None: unknown)."""
        now = self._read(versions)
        return now is not None and now == self.content.seen

    def _read(self, versions: Sequence[Hashable] | None) -> tuple[Hashable, ...] | None:
        """The versions of its inputs; what depends on constants alone has none, and is never out of date."""
        return tuple([versions[k] for k in self.inputs]) if versions is not None else None if self.inputs else ()

    def empty(self) -> Prepared:
        """The same component, without results."""
        other = copy.copy(self)
        other.content = Content()
        return other

    def refresh(
        self,
        inputs: Sequence[np.ndarray | None],
        versions: Sequence[Hashable] | None,
        on_disk: Callable[[], frozenset[str]] = frozenset,
    ) -> bool:
        """Recomputes the results unless `versions` (None: unknown) says that no input changed; returns whether it
        did. `on_disk()`: the components of which `files` has results of some inputs."""
        now = self._read(versions)
        if now is not None and now == self.content.seen:
            return False
        known = self._identity(inputs, now)
        found = _computed.get(known)
        if found is None and self.files is not None and self.same[0] in on_disk():
            found = self._on_disk(inputs, now)
        if found is None:
            found = self._compute(inputs)
        if known is not None:
            _computed[known] = found
        self.content.results, self.content.seen = found, now
        return True

    def _identity(self, inputs: Sequence[np.ndarray | None], now: tuple[Hashable, ...] | None) -> Hashable:
        """Equal for equal results; None if nothing else has the same, or might. A storage may have several arrays, and
        versions of what is not watched say nothing to other programs."""
        arrays = [inputs[k] for k in self.inputs]
        if self.made_by is None or now is None or not all(isinstance(v, tuple) for v in now):
            return None
        return self.made_by, self.same[0], now, tuple(address_of(a) if a is not None else None for a in arrays)

    def _compute(self, inputs: Sequence[np.ndarray | None]) -> Results:
        layout = self.function.layout
        changes = bool(self.content.results)
        if changes:  # in a program that trains, with every call: what this takes is kept
            self.function.share_arenas()
        # New buffers: a call on another thread may still be reading the old ones. NumPy's own would not be aligned.
        is_kept = changes and kept_blocks.handler() is not None
        results = Results(
            kept_blocks.empty(t.shape, t.dtype.numpy, t.nbytes)
            if is_kept and t.nbytes >= LARGE
            else self.allocate(t.shape, t.dtype.numpy)
            for t in layout.result_types
        )
        arrays = [inputs[k] for k in self.inputs]
        pointers = {slot: address_of(a) for slot, a in zip(layout.input_slots, arrays, strict=True) if a is not None}
        pointers.update((s, address_of(r)) for s, r in zip(layout.result_slots, results, strict=True))
        with nullcontext() if changes else stage("packing parameters"):
            self.function.call(pointers)
        return results

    def _on_disk(self, inputs: Sequence[np.ndarray | None], now: tuple[Hashable, ...] | None) -> Results | None:
        digest = self._digest(inputs, now)
        if self.files is None or digest is None:
            return None
        found = self.files.find(self.same[0], digest, self.function.layout.result_types)
        return Results(found) if found is not None else None

    def keep(self, inputs: Sequence[np.ndarray | None]) -> int:
        """Writes the results, computed from these inputs, to disk; returns the number of bytes."""
        digest = self._digest(inputs, self.content.seen)
        if self.files is None or digest is None:
            return 0
        return self.files.keep(self.same[0], digest, self.results, self.function.layout.result_types)

    def _digest(self, inputs: Sequence[np.ndarray | None], versions: tuple[Hashable, ...] | None) -> str | None:
        """What the inputs hold; None if one of them is not watched, or not in memory."""
        arrays = [inputs[k] for k in self.inputs]
        if versions is None or any(a is None for a in arrays) or not all(isinstance(v, tuple) for v in versions):
            return None
        storages = [v[0] for v in versions if isinstance(v, tuple)]
        return inputs_digest([a for a in arrays if a is not None], storages)


def _memory(types: Iterable[TensorType]) -> tuple[Callable[[Any], Any], Any] | None:
    """What tells NumPy to take memory from `kept_blocks`, and what it is told; None for small results."""
    return kept_blocks.setter() if any(t.nbytes >= LARGE for t in types) else None


class Executable:
    """A compiled graph, called with `run(inputs)`, by any number of threads at once.

    The types of a graph with open dimensions fit inputs of many shapes: `sized` makes an executable for one of them,
    with the same code and the same prepared values, in microseconds; `run` does so by itself.

    `flush_denormals`: denormals count as zero during a call; the code is the same. `files`: where prepared values may
    lie on disk. `target`: what the code was made for; None if other programs must not use its prepared values."""

    def __init__(
        self,
        interface: Interface,
        loaded: Any,
        flush_denormals: bool = False,
        files: PreparedFiles | None = None,
        target: Machine | None = None,
    ) -> None:
        self.input_types: tuple[TensorType, ...] = interface.main.input_types
        self.result_types: tuple[TensorType, ...] = interface.main.result_types
        self.n_outputs = interface.n_outputs
        self._memory = _memory(self.result_types) if not interface.main.dims else None
        self.calls_host = interface.calls_host
        self.lowest = interface.lowest
        """The least size of an open dimension."""
        self.flush_denormals = flush_denormals
        self.was_cached = False
        """Whether the code was in the object cache."""
        self.kernels = 0, 0
        """How many of its kernels were in files, and how many it has; zeros if that is not known."""
        self.key: str | None = None
        """Its key there; None if it is not kept."""
        self.unread = frozenset(interface.unread)
        """Inputs that only `prepare` functions read; once these have run, None may be passed for them."""
        self.main = NativeFunction(interface.main, loaded.address("main"), loaded, flush_denormals)
        nbytes = sum(t.nbytes for p in interface.prepares for t in p.layout.result_types)
        small = nbytes <= CacheFriendly.LIMIT
        allocate = CacheFriendly().array if small else aligned_array
        self._files = None if small else files
        # `prepare` functions mostly run once, one after the other, so they share arenas that are freed in between. The
        # largest runs first, before the results of the others take memory.
        self._prepare_arenas = ArenaPool()
        ordered = sorted(enumerate(interface.prepares), key=lambda numbered: -numbered[1].layout.arena)
        self.prepared = [
            Prepared(
                NativeFunction(p.layout, loaded.address(p.name), loaded, flush_denormals, self._prepare_arenas),
                p,
                allocate,
                self._files if sum(t.nbytes for t in p.layout.result_types) >= SMALLEST else None,
                (target, flush_denormals) if target is not None else None,
            )
            for _, p in ordered
        ]
        for (number, _), prepared in zip(ordered, self.prepared, strict=True):
            prepared.function.prepare = number
        self._lock = forks.renewed()
        self._sized: dict[tuple[int, ...], Executable] = {}
        """Executables for the sizes that were used last, the latest one last."""
        self._sizes: dict[tuple[tuple[int, ...] | None, ...], Mapping[str, int]] = {}
        """The sizes of open dimensions by the shapes of inputs, as far as they are known. All copies share this."""

    def fitting(self, inputs: Sequence[np.ndarray | None]) -> Executable:
        """The executable for inputs of these shapes: itself, unless some of its dimensions are open. Raises IRError if
        none fits."""
        if not self.main.is_open:
            return self
        shapes = tuple([None if x is None else x.shape for x in inputs])
        sizes = self._sizes.get(shapes)
        if sizes is None:
            given = [(t, x.shape) for t, x in zip(self.input_types, inputs, strict=True) if x is not None]
            sizes = sizes_of([t for t, _ in given], [shape for _, shape in given], self.lowest)
            if len(self._sizes) >= _MOST_SIZES:
                self._sizes.clear()
            self._sizes[shapes] = sizes
        return self.sized(sizes)

    def sized(self, sizes: Mapping[str, int]) -> Executable:
        """The executable for these sizes of the open dimensions. Raises IRError if a result would be too large."""
        key = tuple(sizes[name] for name in self.main.layout.dims)
        with self._lock:
            found = self._sized.pop(key, None)
            if found is None:
                found = copy.copy(self)
                found.main = self.main.sized(sizes)
                found.input_types, found.result_types = found.main.layout.input_types, found.main.layout.result_types
                found._memory = _memory(found.result_types)
                found._sized = {}
            self._sized[key] = found
            if len(self._sized) > _MOST_SIZES:
                del self._sized[next(iter(self._sized))]
        return found

    def for_other_parameters(self) -> Executable:
        """The same native code with separate prepared values, for calls with another copy of the parameters."""
        other = copy.copy(self)
        other.prepared = [p.empty() for p in self.prepared]
        other._sized = {}
        return other

    def share(self, other: Executable) -> None:
        """Takes over those prepared values of `other` that this one prepares in the same way. Both must get the same
        arrays for these inputs from now on."""
        with other._lock:
            there = {p.same: p.content for p in other.prepared}
            self._lock = other._lock
            for p in self.prepared:
                p.content = there.get(p.same, p.content)

    def bind(self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Bound:
        """The call with these arrays, C-contiguous and aligned; `results` are the outputs, then the new states. The
        latter may be the states themselves if the graph has the attribute `in_place`.

        Raises IRError if an array does not have the type that the graph was compiled for, or if values are prepared
        from inputs.
        """
        if any(p.inputs for p in self.prepared):
            raise IRError("a call that prepares values from its inputs cannot be bound")
        for given, types in ((inputs, self.input_types), (results, self.result_types)):
            for x, want in zip(given, types, strict=True):
                if type_of(x) != want or not (x.flags.c_contiguous and x.flags.aligned):
                    raise IRError(f"expected {want}, got {type_of(x)}")
        return Bound(self.main, inputs, results, self.refresh([*inputs]) if self.prepared else {})

    def run(
        self,
        inputs: Sequence[np.ndarray],
        versions: Sequence[Hashable] | None = None,
        release: Callable[[int], int] | None = None,
        watch: Watch | None = None,
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(outputs, updated states), all new arrays.

        `versions[k]` changes whenever input k may have new contents; without `versions` every prepared value is
        recomputed. `release(k)` is called as soon as no call reads input k any more unless its version changes; it
        returns the number of bytes that were freed. `watch` learns of the results while they are computed, if the graph
        has the attribute `tells_progress`. Raises IRError if an input does not have the type that the graph was
        compiled for.
        """
        if self.main.is_open:
            return self.fitting(inputs).run(inputs, versions, release, watch)
        arrays = self.check(inputs)
        held = self.refresh(arrays, versions, release)
        pointers = {k: address_of(a) for k, a in enumerate(arrays) if a is not None and k not in self.unread}
        pointers.update((slot, address_of(r)) for slot, r in held.items())
        results = self.new_results()
        pointers.update((s, address_of(r)) for s, r in zip(self.main.layout.result_slots, results, strict=True))
        layout = self.main.layout
        if watch is not None and layout.ready:
            self.main.call(
                pointers, lambda table: watch(results, Progress(layout.ready, table[layout.progress_slot :]))
            )
        else:
            self.main.call(pointers)
        return results[: self.n_outputs], results[self.n_outputs :]

    def ready(self, inputs: Sequence[np.ndarray], versions: Sequence[Hashable] | None = None) -> ReadyCalls | None:
        """Calls with inputs of these types, for as long as no version changes; None if what is prepared belongs to
        other versions than these."""
        held = self.prepared_from(versions)
        return None if held is None else ReadyCalls(self.fitting(inputs), held)

    def new_results(self) -> list[np.ndarray]:
        if self._memory is None:
            return [np.empty(t.shape, t.dtype.numpy) for t in self.result_types]
        set_handler, ours = self._memory
        before = set_handler(ours)
        try:
            return [np.empty(t.shape, t.dtype.numpy) for t in self.result_types]
        finally:
            set_handler(before)

    def refresh(
        self,
        inputs: list[np.ndarray | None],
        versions: Sequence[Hashable] | None = None,
        release: Callable[[int], int] | None = None,
    ) -> dict[int, np.ndarray]:
        """Updates the prepared values; returns them by their slots in the main table. Inputs are released as in `run`,
        and replaced by None in the list."""
        free = 0
        with self._lock:
            if release is None and all(p.is_fresh(versions) for p in self.prepared):
                return self._held()
            waiting = Counter(k for p in self.prepared for k in p.inputs)
            on_disk = functools.cache(self._files.components if self._files is not None else frozenset)
            for p in self.prepared:
                self._prepare_arenas.drop(above=2 * p.function.scratch_offset)
                p.refresh(inputs, versions, on_disk)
                waiting.subtract(p.inputs)
                if release is not None:
                    for k in p.inputs:
                        if not waiting[k] and k in self.unread:
                            inputs[k] = None
                            free += release(k)
            self._prepare_arenas.drop()
            held = self._held()
        if free:
            give_back()
        return held

    def _held(self) -> dict[int, np.ndarray]:
        """The prepared values, by their slots in the main table."""
        return {slot: r for p in self.prepared for slot, r in zip(p.slots, p.results, strict=True)}

    def keep_prepared(self, inputs: Sequence[np.ndarray], versions: Sequence[Hashable]) -> int:
        """Computes the prepared values, and writes those to disk that take other processes longer to compute than to
        find; returns their bytes."""
        arrays: list[np.ndarray | None] = list(inputs)
        self.refresh(arrays, versions)
        with self._lock:
            kept = sum(p.keep(arrays) for p in self.prepared if p.files is not None)
        if kept:
            evict()
        return kept

    def prepared_from(self, versions: Sequence[Hashable] | None) -> dict[int, np.ndarray] | None:
        """Prepared values by their slots in the main table; None if some were computed from other versions than these,
        or, if these are None, from any."""
        with self._lock:
            if not all(p.is_fresh(versions) for p in self.prepared):
                return None
            return self._held()

    def check(self, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray | None]:
        """The inputs, C-contiguous and aligned; IRError if their number, a shape or a dtype is not the compiled one."""
        if len(inputs) != len(self.input_types):
            raise IRError(f"the graph takes {len(self.input_types)} inputs, got {len(inputs)}")
        arrays: list[np.ndarray | None] = []
        for k, (x, want) in enumerate(zip(inputs, self.input_types, strict=True)):
            if x is None and k in self.unread:
                arrays.append(None)
                continue
            if x is None or x.shape != want.shape or x.dtype != want.dtype.numpy:
                raise IRError(f"input {k} is {want}, got {x if x is None else type_of(x)}")
            fits = isinstance(x, np.ndarray) and x.flags.c_contiguous and x.flags.aligned  # no scalar of NumPy
            arrays.append(x if fits else np.require(x, requirements=["C", "A"]))
        return arrays
