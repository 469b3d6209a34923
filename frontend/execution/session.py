"""`Session`: a compiled graph, and how a call of it runs. Hybridized blocks and executors share it."""

from __future__ import annotations

import copy
import errno
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from gluonjit.autodiff.computation import Forward, evaluated
from gluonjit.base import MXNetError
from gluonjit.common.aside import Stopped, while_process_lives
from gluonjit.ir.dims import LOWEST
from gluonjit.ir.graph import Graph
from gluonjit.ir.sizes import dimensions, sizes_of, with_sizes
from gluonjit.language import rng
from gluonjit.language.source import quote
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.custom_calls import kept_operators
from gluonjit.runtime import forks
from gluonjit.runtime.backend import Backend, Callee
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.storage import Watched, watched
from gluonjit.symbol.monitored import run_monitored


class Monitor(NamedTuple):
    """A callback that is shown a call's results, operator by operator; see `monitored.run_monitored`."""

    callback: Callable[..., None]
    inputs_too: bool
    as_bound: bool
    """Whether results are named as in an executor rather than as in a hybridized block."""


class Inputs(NamedTuple):
    """The inputs of one call. `arrays` are the caller's; `elements` and `versions` have an entry per graph input."""

    arrays: list[Any]
    elements: list[Any]
    versions: list[Watched | None]


class Session:
    """A graph of level `traced`, and its code, compiled when it is first needed: recorded calls run other code.

    * `params`: positions of the inputs that change rarely; what depends on them alone is recomputed only when their
      version changes.
    * `written`: positions of the inputs whose arrays the graph writes to, in the order of its `updates`.
    * `streams`: the number of random streams of a call; if it is not 0, their key is the graph's last input.
    * `compiled(code, seconds)` is called when code has been made, or found in the object cache, within `seconds`.
    * `signature`: what it is for, in the words of a log.
    """

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        options: dict[str, Any],
        *,
        params: Sequence[int],
        written: Sequence[int],
        streams: int,
        compiled: Callable[[Callee, float], object] = lambda callee, seconds: None,
        signature: str = "",
    ) -> None:
        self.graph = graph.with_attrs(params=tuple(params))
        self.is_open = bool(dimensions(graph))
        self._compile: Callable[[], Callee] = lambda: backend(self.graph, options)
        self._compiled = compiled
        self._callee: Callee | None = None
        self.has_code = False
        """Whether `callee` is there."""
        self._lock = forks.renewed()
        self.params = tuple(params)
        self.written = tuple(written)
        self.streams = streams
        self.signature = signature
        self._compiling: threading.Thread | None = None
        self._computes = False
        """Whether NumPy computes the next call."""
        self._graphs: dict[tuple[int, ...], Graph] = {}
        """The graph for the sizes that `graph_of` was last asked for."""

    def __str__(self) -> str:
        return self.signature

    @property
    def callee(self) -> Callee:
        """The code; compiles it if need be."""
        if self._callee is None:
            with self._lock:
                if self._callee is None:
                    began = time.perf_counter()
                    callee = self._compile()
                    self._compiled(callee, time.perf_counter() - began)
                    self._callee, self.has_code = callee, True
        return self._callee

    def compile_meanwhile(self, then: Callable[[Exception | None], object]) -> None:
        """Compiles on another thread, which calls `then` at the end, with what went wrong, if anything did."""

        def compile() -> None:
            problem: Exception | None = None
            try:
                _ = self.callee
            except Exception as e:
                problem = e
            then(problem)

        def unless_the_process_ends() -> None:
            with suppress(Stopped):
                while_process_lives(compile)

        # No daemon: the process must not end while LLVM runs.
        self._compiling = threading.Thread(target=unless_the_process_ends, name="gluonjit compiler")
        self._compiling.start()

    def compute_once(self) -> None:
        """Has NumPy compute the next call, for which compiling does not pay."""
        self._computes = True

    def _computed(self, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        self._computes = False
        outputs, updates = evaluated(self.graph)(inputs)
        # In memory of their own: they may be views of inputs, or of each other.
        return [np.array(x, order="C") for x in outputs], [np.array(x, order="C") for x in updates]

    @property
    def is_compiling(self) -> bool:
        """Whether another thread is making the code, so that calls need not wait for it."""
        return self._compiling is not None and self._compiling.is_alive()

    @property
    def compiled_already(self) -> Callee | None:
        """The code, if it is compiled already."""
        return self._callee

    def share(self, other: Session) -> None:
        """Lets this code use the values that the code of `other` has prepared in the same way, and its arena."""
        mine, theirs = self._callee, other._callee
        if isinstance(mine, Executable) and isinstance(theirs, Executable) and mine is not theirs:
            mine.share(theirs)

    def for_other_parameters(self) -> Session:
        """A session with the same code for another copy of the parameters, from which it prepares its own values."""

        def same_code() -> Callee:
            callee = self.callee
            return callee.for_other_parameters() if isinstance(callee, Executable) else callee

        other = copy.copy(self)
        other._compile, other._callee, other._lock = same_code, None, forks.renewed()
        other.has_code = False
        other._compiled = lambda callee, seconds: None
        return other

    def inputs(self, arrays: list[Any], key: np.ndarray | None = None) -> Inputs:
        """The inputs of a call with these arrays. Reserves the random key of that call, if none is given."""
        elements: list[Any] = [x._array for x in arrays]
        versions = watched(arrays, self.params)
        if self.streams:
            elements.append(rng.reserve(self.streams) if key is None else key)
            versions.append(None)
        return Inputs(arrays, elements, versions)

    def prepare(self, arrays: Sequence[Any], keep: bool) -> int:
        """Computes what depends on parameters alone, as a call with these arrays would. `keep`: writes it to disk, for
        other processes; returns the number of bytes."""
        callee = self.callee
        if not isinstance(callee, Executable):
            return 0
        elements, versions = [x._array for x in arrays], watched(arrays, self.params)
        if keep:
            return callee.keep_prepared(elements, versions)
        callee.refresh(list(elements), versions)
        return 0

    def call(self, arrays: list[Any]) -> tuple[Inputs, list[np.ndarray]]:
        """The inputs of a call with these arrays, and its outputs."""
        inputs = self.inputs(arrays)
        return inputs, self.run(inputs)

    def run(
        self, inputs: Inputs, monitor: Monitor | None = None, release: Callable[[int], int] | None = None
    ) -> list[np.ndarray]:
        """Runs the graph and writes its updates to their arrays. Returns the outputs, in new memory.

        `release(k)` is called if only the packed copy of input k in compiled code is needed any more: it frees the
        array if it can, and returns the number of bytes freed.
        """
        self._show(inputs, monitor)
        try:
            if self._computes and self._callee is None:
                outputs, updates = self._computed(inputs.elements)
                self._write(inputs, updates)
                return outputs
            callee = self.callee
            if release is not None and isinstance(callee, Executable):
                outputs, updates = callee.run(inputs.elements, inputs.versions, release)
            else:
                outputs, updates = callee.run(inputs.elements, inputs.versions)
        except (MemoryError, OSError) as e:  # mmap says the latter
            if (
                isinstance(e, OSError)
                and e.errno != errno.ENOMEM
                or any(getattr(op.definition, "host", "") for op in self.graph.ops)
            ):
                raise
            raise _out_of_memory(self.graph_of(inputs)) from None
        self._write(inputs, updates)
        return outputs

    def run_forward(
        self, forward: Forward, inputs: Inputs, monitor: Monitor | None = None
    ) -> tuple[list[np.ndarray], list[Any]]:
        """Runs the forward computation of this graph. Returns its outputs, followed by what its gradient needs, and
        objects that must live as long as the gradient is needed."""
        self._show(inputs, monitor)
        with kept_operators(self.graph, inputs.arrays) as kept:
            outputs, updates = forward.run(inputs.elements)
        self._write(inputs, updates)
        return outputs, kept

    def intermediates(self, inputs: Inputs) -> dict[str, NDArray]:
        """The results of all operators of a call, computed one by one, under the names that an executor gives them;
        equal names are numbered."""
        found: dict[str, NDArray] = {}

        def keep(name: bytes, operator: bytes, x: NDArray) -> None:
            label = unique = name.decode()
            again = 0
            while unique in found:
                again += 1
                unique = f"{label}_{again}"
            found[unique] = x

        run_monitored(self.graph_of(inputs), inputs.elements, keep, False, True)
        return found

    def _show(self, inputs: Inputs, monitor: Monitor | None) -> None:
        if monitor is not None:
            run_monitored(
                self.graph_of(inputs), inputs.elements, monitor.callback, monitor.inputs_too, monitor.as_bound
            )

    @property
    def lowest(self) -> int:
        """The least size that the code, which must be there, takes for an open dimension."""
        return self._callee.lowest if isinstance(self._callee, Executable) else LOWEST

    def graph_of(self, inputs: Inputs) -> Graph:
        """The graph of these inputs' shapes, without open dimensions."""
        if not self.is_open:
            return self.graph
        names = dimensions(self.graph)
        given = [(v.type, x.shape) for v, x in zip(self.graph.inputs, inputs.elements, strict=True) if x is not None]
        sizes = sizes_of([t for t, _ in given], [shape for _, shape in given], self.lowest)
        key = tuple(sizes[name] for name in names)
        if key not in self._graphs:
            self._graphs = {key: with_sizes(self.graph, sizes, self.lowest)}
        return self._graphs[key]

    def _write(self, inputs: Inputs, updates: Sequence[np.ndarray]) -> None:
        for k, new in zip(self.written, updates, strict=True):
            overwrite(inputs.arrays[k], new)


def _out_of_memory(graph: Graph) -> MXNetError:
    """An error about the operator with the largest result: that is what there was no room for, most likely."""
    largest = max(graph.ops, key=lambda op: max((v.type.nbytes for v in op.results), default=0))
    operands, results = (", ".join(str(v.type) for v in of) for of in (largest.operands, largest.results))
    return MXNetError(
        f"Error in operator {largest.name.removeprefix('mx.')}({operands}): "
        f"there is not enough memory; its result is {results}{quote(largest.loc)}"
    )


def overwrite(array: NDArray, elements: np.ndarray) -> None:
    """Replaces the elements of an array, in place."""
    np.copyto(array._array, elements)
    array._wrote()
