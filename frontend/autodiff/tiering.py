"""Plain calls on native code: a graph runs with NumPy until that has cost as much as compiling would.

An operator that a program calls plainly, and its gradient, are graphs of primitives. NumPy takes a pass over memory for
each primitive, and gathers the operands of a convolution in a copy; native code does neither, but has to be compiled,
and to be called. So a graph is compiled when `saving` says that a call gains by it, and all its calls so far would have
gained about what compiling costs (`BUDGET` and `work`): then a program loses at most about as much again as it had lost
already. The more codes of an operator have not gained that much, because attributes or shapes are others in each call,
the later is the next one made, unless it is for types whose own calls would have paid for it. Shapes and the number of
calls decide, never a clock or a cache, so that a program gets the same bits each time.

`GLUONJIT_PLAIN=numpy` keeps all plain calls with NumPy, `GLUONJIT_PLAIN=native` compiles at the first call whatever can
be compiled, whether that pays or not: for tests, and to see what it costs.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

import gluonjit.passes as passes
from gluonjit.autodiff.computation import Run, evaluated
from gluonjit.base import MXNetError
from gluonjit.codes.compile_log import say_compiled
from gluonjit.codes.open_shapes import fits
from gluonjit.codes.store import Store
from gluonjit.ir.dims import Undecided
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.primitives.conv_phases import numpy_divides
from gluonjit.ir.primitives.convolution_eval import is_joint
from gluonjit.ir.sizes import untold
from gluonjit.ir.types import IRError, TensorType, type_of
from gluonjit.language import late, rng
from gluonjit.language.modes import plain_calls
from gluonjit.ndarray import NDArray
from gluonjit.operators.registry import Operator, operator_graph
from gluonjit.runtime.executable import Executable, ReadyCalls, address_of
from gluonjit.runtime.fast_call import fast_call
from gluonjit.runtime.storage import EPOCH, Storage
from gluonjit.runtime.watching import Watch

BUDGET = 60e6
"""Nanoseconds that compiling the smallest graph takes."""
_ELEMENTWISE_WORK, _OTHER_WORK, _CONV_WORK = 0.1, 0.5, 0.6
"""What an op adds to `work`; views add nothing. A convolution's kernel takes longer than this to compile, but programs
that call one mostly train it: with 1.5, twenty steps of MobileNetV2 passed before its convolutions were compiled."""
_SMALL = 10
"""A graph whose `work` is less is compiled at once where hybridized: programs wait for half a second at most."""
_UNPROVEN = 8
"""Codes of an operator that may be waiting for calls; each further one doubles what the next has to save."""
_CALL, _PREPARED_CALL = 5e3, 15e3
"""Nanoseconds of a direct native call from Python, and of one that looks whether prepared weights are fresh."""
_STEADY = 4
"""After so many calls weights that have not changed are expected not to: those of a GAN are used twice in a step."""
_DIRECT = 8
"""So many calls with operands of the same types come before direct ones, for which memory is set aside."""
_WORKING_MEMORY = 1 << 20
"""The most bytes that are set aside."""
_PASS = 1e3
"""Nanoseconds of a call of NumPy, without what it computes."""
MAX_TYPES = 64
"""The types of operands for which it is known at once whether native code of an operator pays."""

WEIGHTS = ("weight", "bias", "gamma", "beta", "parameters", "moving_mean", "moving_var")
"""The inputs of operators that are a layer's parameters."""

_MOVE, _NATIVE_MOVE = 1.0, 0.3
"""Nanoseconds for an element that is copied to another place."""
_STEP, _NATIVE_STEP = 0.15, 0.03
"""For one of an op's `instructions`, of which each element takes some; they are vector instructions in both."""
_STREAM, _NATIVE_STREAM = 0.5, 0.0
"""For each element that a pass writes. Native code keeps intermediate values in registers."""
_PRODUCT, _NATIVE_PRODUCT = 0.035, 0.015
"""For a multiply-add of a convolution."""
_COLUMN = 3.0
"""For an element that NumPy copies to make it a matrix product."""
_TAP, _NATIVE_TAP = 0.6, 0.1
"""For an element that a pooling window reads."""
_DEPTHWISE_TAP, _DEPTHWISE_SUM = 1.0, 1.7
"""For a multiply-add of NumPy where each channel has its own filter, and in the gradient of these filters."""
_LOOKUP, _NATIVE_LOOKUP = 6.0, 1.0
"""For each run of elements that is found by an index."""
_SCATTER = 15.0
"""For an element that NumPy adds at an index."""
_SCAN = 10.0
"""For an element of a cumulative sum."""
_LOOP = 20.0
"""For each of the innermost loops that a reduction of NumPy consists of."""
_DRAW = 2e4
"""For an op that draws random words, whatever their number."""
_SORT_SAVED = 50.0
"""For an element that is sorted. 2 are saved, 6 with places; more are counted, so that plain calls soon take less time
than `np.sort`: NumPy's way here adds a scan for NaNs and -0, or keys, to it."""
_PACK = 0.5
"""For an element of a matrix that native code packs before it is multiplied."""
_ROWS = 32
"""The least number of rows for which a matrix is worth packing; NumPy packs it then, too."""
_BLAS_WAKES, _WAKING, _SHARED = 1 << 18, 1e6, 0.0125
"""From so many multiply-adds on, NumPy's products wake threads of its own, which go on spinning for a while and take
the cores from ours: milliseconds on two cores, nothing on one, where native products take as long as NumPy's. So what
is saved by a product, and for each multiply-add."""


def saving(graph: Graph, packs: bool) -> float:
    """About how many nanoseconds native code saves in a call; negative if it takes longer than NumPy. `graph` is of
    level `expanded` or `legal`; `packs`: whether weights are packed in each call."""
    return _saved(graph, packs) - (_CALL if packs else _PREPARED_CALL)


def _saved(graph: Graph, packs: bool) -> float:
    return sum(_saved_by(op, packs) for op in graph.ops)


def _saved_by(op: Op, packs: bool) -> float:
    """What the native form of one op saves, without the call."""
    if op.name in ("constant", "iota", "extent") or not op.results:
        return 0.0
    if op.name == "loop":
        return op.attrs["trip"] * (_PASS + sum(_saved(r, packs) for r in op.regions))
    if op.name in ("branch", "call"):
        return max(_saved(r, packs) for r in op.regions)
    if op.name == "with_gradient":
        return _saved(op.regions[0], packs)
    size, loops = op.results[0].type.size, 0
    if op.name in ("reshape", "broadcast", "transpose", "slice", "reverse"):
        return 0.0  # a view; what reads it pays
    if op.name == "dot_general":
        return _saved_by_product(op, packs)
    if op.name == "conv":
        return _saved_by_convolution(op)
    if op.name == "reduce_window":
        return size * math.prod(op.attrs["window"]) * (_TAP - _NATIVE_TAP) + _PASS
    if op.name == "depthwise_gradient":
        return op.operands[1].type.size * math.prod(op.attrs["taps"]) * (_DEPTHWISE_SUM - _NATIVE_TAP) + _PASS
    if op.name in ("gather", "gather_nd"):
        depth = op.attrs["axis"] + 1 if op.name == "gather" else op.operands[1].shape[0]
        runs = size // max(math.prod(op.operands[0].shape[depth:]), 1)
        return runs * (_LOOKUP - _NATIVE_LOOKUP) + size * (_STREAM - _NATIVE_STREAM) + _PASS
    if op.name == "scatter_add":
        return op.operands[2].type.size * (_SCATTER - _NATIVE_LOOKUP) + _PASS
    if op.name == "cumsum":
        return size * _SCAN + _PASS
    if op.name == "sort":
        return op.operands[0].type.size * _SORT_SAVED + _PASS
    if op.definition.moves:
        return size * (_MOVE - _NATIVE_MOVE) + _PASS
    if op.name in ("reduce", "arg_reduce"):
        size, loops = op.operands[0].type.size, _loops(op)
    if op.name == "random_bits":
        return _DRAW + size * op.definition.instructions * (_STEP - _NATIVE_STEP)
    steps = op.definition.instructions * (_STEP - _NATIVE_STEP)
    return size * (_STREAM - _NATIVE_STREAM + steps) + loops * _LOOP + _PASS


def _loops(op: Op) -> int:
    """How many innermost loops a reduction takes: each is along the last axes, as far as all or none are reduced."""
    shape, attrs = op.operands[0].shape, op.attrs
    axes = attrs["axes"] if op.name == "reduce" else (attrs["axis"],)
    length = 1
    for k in reversed(range(len(shape))):
        if (k in axes) != (len(shape) - 1 in axes):
            break
        length *= shape[k]
    return op.operands[0].type.size // max(length, 1)


def _saved_by_convolution(op: Op) -> float:
    inputs, filters, results = op.attrs["layout"]
    inner, groups = op.attrs["input_dilation"], op.attrs["groups"]
    zeros = math.prod(inner)
    spatial = [n for n, axis in zip(op.result.shape, results) if axis not in "NC"]
    count = max(op.operands[1].shape[filters.index("O")], 1)
    taps = op.operands[1].type.size // count
    if taps == op.operands[1].shape[filters.index("I")] and zeros * math.prod(op.attrs["stride"]) == 1:
        images = op.result.type.size // max(count * math.prod(spatial), 1)
        each = math.prod(spatial) * count // groups * taps * (images if is_joint(images, spatial) else 1)
        return _saved_by_waking(each, op.result.type.size * taps) + _PASS
    if groups == count == op.operands[0].shape[inputs.index("C")] > 1:
        way = _DEPTHWISE_TAP
    else:
        way = _PRODUCT + _COLUMN * groups / count
    # Native code leaves out the products with zeros, NumPy only sometimes.
    written = 1 if numpy_divides(spatial, inner) else zeros
    return op.result.type.size * taps / zeros * (written * way - _NATIVE_PRODUCT) + _PASS


def _saved_by_waking(each: int, all: int) -> float:
    """What is saved by products of so many multiply-adds each."""
    return _WAKING + _SHARED * all if each >= _BLAS_WAKES else 0.0


def _saved_by_product(op: Op, packs: bool) -> float:
    a, b = (v.type for v in op.operands)
    batches = math.prod(a.shape[k] for k in op.attrs["batch"][0])
    terms = math.prod(a.shape[k] for k in op.attrs["contract"][0])
    each = op.results[0].type.size // max(batches, 1) * terms
    if packs and each * batches < _ROWS * b.size:
        return -_PACK * b.size
    return _saved_by_waking(each, each * batches)


def pays_at_once(graph: Graph) -> bool:
    """Whether a graph is worth compiling for a single call: it is small, or NumPy would take longer than compiling
    does."""
    if plain_calls() == "native":
        return True
    primitives = passes.run_passes(graph, "expand")
    if _calls_python(primitives):
        return True
    least = work(primitives)
    return least < _SMALL or saving(primitives, packs=True) > BUDGET * least


def work(graph: Graph) -> float:
    """About how many times as long as of the smallest graph compiling takes; less for a convolution alone."""
    least = _CONV_WORK if any(op.name == "conv" for op in graph.ops) else 1.0
    return max(least, _work(graph))


def _work(graph: Graph) -> float:
    return sum(_work_of(op) + sum(map(_work, op.regions)) for op in graph.ops)


def _work_of(op: Op) -> float:
    if op.name in ("constant", "iota", "extent", "broadcast", "reshape", "transpose", "slice", "reverse"):
        return 0.0
    if op.name == "conv":  # one between whose pixels zeros are inserted becomes several (`passes/split_phases.py`)
        return _CONV_WORK * (1 + 3 * math.prod(op.attrs["input_dilation"])) / 4
    return _ELEMENTWISE_WORK if op.definition.elementwise else _OTHER_WORK


def _calls_python(graph: Graph) -> bool:
    """Whether compiled code would call back, or has errors of its own to raise: their texts are NumPy's business."""
    for op in graph.ops:
        if op.definition.level == "host" or op.name == "check_index" or getattr(op.definition, "host", False):
            return True
        if any(map(_calls_python, op.regions)):
            return True
    return False


class Code:
    """A compiled graph, and its copies with values that were prepared from the weights of one layer each."""

    def __init__(self, callee: Any, owes: float = 0.0, mark: object = None) -> None:
        self.callee = callee
        """See `runtime.backend.Callee`."""
        self.mark = mark
        """What stands for this code in its `Account` until the code has proved useful."""
        self.owes = owes
        """What its calls have yet to gain, in nanoseconds, until it has proved useful."""
        self.copies: WeakKeyDictionary[Storage, tuple[Hashable, Any]] = WeakKeyDictionary()
        """By the storage of a layer's first weight: where all its weights are, and the copy."""

    def of(self, first: Storage, where: Hashable) -> Any:
        """The copy for these weights."""
        known, copy = self.copies.get(first, (None, None))
        if copy is None or known != where:
            copy = self.callee
            if isinstance(copy, Executable):
                copy = copy.for_other_parameters()
            self.copies[first] = where, copy
        return copy


class Account:
    """How often native code of an operator, whatever its attributes, was made, but has not gained `BUDGET` so far. An
    operator that is called differently each time would otherwise be compiled again and again."""

    def __init__(self) -> None:
        self.unproven: set[object] = set()
        """A mark for each; a set, so that threads that prove the same code useful take it off once."""

    @property
    def budget(self) -> float:
        """What calls have to gain before the next code is made, in nanoseconds, of the smallest graph."""
        return BUDGET * 2.0 ** max(len(self.unproven) - _UNPROVEN, 0)


_accounts: defaultdict[str, Account] = defaultdict(Account)
"""By the names of operators."""


class Codes:
    """The native code of one program: `graph_of(types)` is its graph for operands of these types, which may have open
    dimensions. What depends on the inputs `params` alone is prepared. `name`: the operator's."""

    def __init__(
        self, name: str, graph_of: Callable[[Sequence[TensorType]], Graph], params: Sequence[int] = ()
    ) -> None:
        self.name = name
        self.account = _accounts[name]
        self._graph_of, self._params = graph_of, tuple(params)
        self._store: Store[tuple[Sequence[TensorType], Code]] = Store()
        self._missed: dict[Hashable, float] = {}
        """By family (`codes.store`): what calls would have gained since the last code was made."""

        self.work = 1.0
        """How long compiling takes, as in `work`, once a graph has been judged."""
        self._gains: dict[Hashable, float] = {}
        """What native code saves for each element of operands, without the call, by types and magnitudes of sizes:
        judging takes as long as a small call."""

    def gain(self, types: tuple[TensorType, ...], judged: Callable[[], float]) -> float:
        """What a call gains; `judged()` computes it. A gain of 0 or infinity is not kept for operands of other
        sizes."""
        call = _CALL if self.packs else _PREPARED_CALL
        count = sum(t.size for t in types)
        key = tuple([(t.dtype, *[n.bit_length() for n in t.shape]) for t in types])
        each = self._gains.get(key)
        if each is None:
            found = judged()
            if found == 0.0 or math.isinf(found) or not count:
                return found
            each = self._gains[key] = (found + call) / count
        return each * count - call

    @property
    def packs(self) -> bool:
        """Whether weights are packed in each call."""
        return not self._params

    def code(self, types: tuple[TensorType, ...], gain: float, before: float) -> Code | None:
        """What serves one more call that gains so many nanoseconds by native code; None if NumPy is to. `before`: what
        earlier calls with just these types would have gained."""
        family = tuple([(t.dtype, t.rank) for t in types])
        for known, code in self._store.open_of(family):
            if fits(known, types):
                return code
        missed = self._missed.get(family, 0.0) + gain
        budget = BUDGET if before >= BUDGET * self.work else self.account.budget
        if missed < budget * self.work:
            self._missed[family] = missed
            return None
        self._missed[family] = 0.0
        mark = object()
        self.account.unproven.add(mark)  # whether it can be compiled or not
        code = self._made(family, types)
        code.mark = mark
        return code

    def _made(self, family: Hashable, types: tuple[TensorType, ...]) -> Code:
        tried = self._store.openings(family)
        found = tried.first(tried.candidates(types), lambda candidate: (candidate, self._compiled(candidate)))
        tried.history.append(types)
        if found is None:
            return self._compiled(types)
        self._store.keep_open(family, found)
        return found[1]

    def _compiled(self, types: Sequence[TensorType]) -> Code:
        graph = self._graph_of(types)
        if lost := untold(graph):  # as where the gradient of a reshape only has that of its result
            raise Undecided(f"the inputs do not tell {', '.join(lost)}")
        if graph.open_names and passes.open_channels.has_open_channels(passes.run_passes(graph, "expand")):
            raise Undecided("convolutions have no kernel for any number of channels")
        start = time.perf_counter()
        callee = late.compile_graph(graph.with_attrs(params=self._params), {})
        took, was_cached = time.perf_counter() - start, isinstance(callee, Executable) and callee.was_cached
        say_compiled(self.name, "plain calls", ", ".join(map(str, types)), took, was_cached)
        return Code(callee, BUDGET * self.work)


class Direct:
    """The calls of code, with prepared values of constants at most, with operands of certain types: they go from Python
    straight to native code once there have been some."""

    def __init__(self, callee: Any) -> None:
        self._callee = callee
        self._before = _DIRECT
        """How many calls are not direct yet."""
        self._fast: Callable[..., list[NDArray] | None] | None = None

    def run(
        self, arrays: Sequence[np.ndarray], watch: Watch | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """See `Executable.run`."""
        if self._fast is not None and watch is None:
            found = self._fast(*map(NDArray._wrap, arrays))
            if found is not None:
                results = [x._array for x in found]
                count = self._callee.n_outputs
                return results[:count], results[count:]
        if not isinstance(self._callee, Executable):
            outputs, updates = self._callee.run(arrays)
            return outputs, updates
        if watch is None:
            self._note_call(self._callee.fitting(arrays))
        return self._callee.run(arrays, watch=watch)

    def _note_call(self, callee: Executable) -> None:
        self._before -= 1
        if self._before > 0 or callee.main.working_memory > _WORKING_MEMORY:
            return
        constants = callee.prepared_from(None)
        if constants is not None:
            # Again, if what the last one held has changed: see `threads.renew`.
            self._fast = fast_call(callee, len(callee.input_types), (), constants, None, NDArray, _nothing, bare=False)
            self._before = _DIRECT


def _nothing(*inputs: NDArray) -> None:
    """What a direct call gives if it cannot be one: inputs are not contiguous, or the number of threads is another."""


class Tier:
    """The calls of a program with operands of certain types. `graph`: gives its primitives for these."""

    def __init__(self, codes: Codes, types: Sequence[TensorType], graph: Callable[[], Graph]) -> None:
        self._codes, self._types, self._graph = codes, tuple(types), graph
        self._gain: float | None = None
        self._missed = 0.0
        """What the calls so far would have gained."""
        self._code: Code | None = None
        self.direct: Direct | None = None
        """The calls of the code, if there is one."""

    @property
    def never(self) -> bool:
        """Whether NumPy is known to be at least as fast."""
        if self._gain is None:
            self._gain = self._codes.gain(self._types, self._judged)
        return self._gain <= 0

    def native(self) -> Code | None:
        """The code for one more call; None if NumPy is to compute it."""
        if self._code is not None:
            self._earn(self._code)
            return self._code
        if not self.never:
            assert self._gain is not None
            try:
                self._code = self._codes.code(self._types, self._gain, self._missed)
                self._missed += self._gain
                if self._code is not None:
                    self.direct = Direct(self._code.callee)
                    self._earn(self._code)
            except (IRError, MXNetError):  # the plain call still has NumPy
                self._gain = 0.0
        return self._code

    def _earn(self, code: Code) -> None:
        """Notes what a call gains, unless the code has proved useful."""
        if code.owes > 0:
            assert self._gain is not None
            code.owes -= self._gain
            if code.owes <= 0:
                self._codes.account.unproven.discard(code.mark)

    def _judged(self) -> float:
        mode = plain_calls()
        if mode == "numpy":
            return 0.0
        try:
            graph = self._graph()
            if _calls_python(graph):
                return 0.0
            self._codes.work = work(graph)
            return math.inf if mode == "native" else saving(graph, self._codes.packs)
        except (IRError, MXNetError):  # what is wrong with its operands, NumPy's way says better
            return 0.0


def tiered(graph: Graph, codes: Codes | None = None, types: Sequence[TensorType] | None = None) -> Run:
    """Runs a graph of level up to `legal` in this way; what `Computation` takes for `compile`. `codes`: of the program
    that it is for operands of these types."""
    codes = codes or Codes(graph.name, lambda types: graph)
    tier = Tier(codes, types or [v.type for v in graph.inputs], lambda: passes.run_passes(graph, "expand"))
    numpy_run: Run | None = None
    never = False

    def run(inputs: Sequence[np.ndarray], watch: Watch | None = None) -> Any:
        nonlocal numpy_run, never
        if not never:
            if tier.native() is not None:
                assert tier.direct is not None
                return tier.direct.run([np.asarray(x, order="C") for x in inputs], watch)
            never = tier.never
        numpy_run = numpy_run or evaluated(graph)
        return numpy_run(inputs)

    return run


class _Ready:
    """Calls with the weights of one layer that need not look whether these have changed, until `EPOCH` moves. Holds
    none of their memory."""

    __slots__ = ("_arrays", "_now", "_types", "calls", "epoch")

    def __init__(
        self, types: Hashable, weights: Sequence[np.ndarray], now: Hashable, epoch: int, calls: ReadyCalls
    ) -> None:
        self._types, self._now, self.calls = types, now, calls
        self._arrays = [ref(w) for w in weights]
        self.epoch = epoch
        """What `EPOCH` was before it was seen that the weights are still `now`: where they are, and their versions."""

    def serves(self, types: Hashable, weights: Sequence[np.ndarray]) -> bool:
        """Whether it can have this call, if the weights are still what they were."""
        if self._types != types:
            return False
        for known, w in zip(self._arrays, weights):
            if known() is not w:
                return False
        return True

    def renew(self, now: Hashable, epoch: int) -> bool:
        """Whether the weights are still what they were."""
        if self._now == now:
            self.epoch = epoch
            return True
        return False


class TieredOperator:
    """The plain calls of an operator with certain attributes."""

    def __init__(self, op: Operator, attrs: Mapping[str, Any]) -> None:
        self.name = op.name
        self._op, self._attrs = op, attrs
        self._weights = [k for k, name in enumerate(op.input_names(attrs)) if name in WEIGHTS]
        self._tiers: Store[tuple[Tier, Tier] | tuple[()]] = Store(MAX_TYPES)
        """By mode and types: what serves calls whose weights change, as in training, and those where they do not; empty
        if NumPy is at least as fast for both."""
        self._codes: dict[bool, tuple[Codes, Codes]] = {}
        """By mode, of the former and of the latter."""
        self._seen: WeakKeyDictionary[Storage, tuple[tuple[Hashable, Hashable], int]] = WeakKeyDictionary()
        """By the storage of the first weight: where the last call with it had all weights, and their versions; and how
        often it has had these."""
        self._ready: WeakKeyDictionary[Storage, _Ready] = WeakKeyDictionary()
        """By the storage of the first weight: the calls as the last one was, if it had prepared weights."""

    def run(self, inputs: Sequence[Any], training: bool, key: np.ndarray | None) -> list[np.ndarray] | None:
        """All results, in memory of their own; None if NumPy is to compute them. `inputs`: NDArrays. `key`: what it
        draws random numbers with, reserved here if it is None."""
        arrays = [x._array for x in inputs]
        types = (training, *[(x.shape, x.dtype) for x in arrays])
        tiers = self._tiers.find(types)
        if tiers is None:
            tiers = self._kept(types, arrays)
        if not tiers:
            return None
        callee, versions, steady = None, None, None
        if self._weights:
            epoch = int(EPOCH[0])  # read before the versions: a write in between is seen by the next call
            ready = self._ready.get(inputs[self._weights[0]].storage())
            if ready is not None and not ready.serves(types, self._weights_of(arrays)):
                ready = None
            if ready is None or ready.epoch != epoch:
                steady = self._steady(inputs)
                if ready is not None and not (steady is not None and ready.renew(steady[1], epoch)):
                    ready = None
            if ready is not None:
                tiers[1].native()  # notes the call
                return self.compute(ready.calls, arrays, None)
        if steady is not None:
            first, now, versions = steady
            if (code := tiers[1].native()) is not None:
                callee = code.of(first, now[0])
        elif tiers[0].native() is not None:
            callee = tiers[0].direct
        if callee is None:
            return None
        streams = self._op.streams(self._attrs, training) if self._op.streams is not None else 0
        if streams:
            arrays.append(rng.reserve(streams) if key is None else key)
            versions = versions and [*versions, None]
        results = self.compute(callee, arrays, versions)
        if steady is not None and not streams and isinstance(callee, Executable):
            calls = callee.ready(arrays, versions)
            if calls is not None:
                self._ready[first] = _Ready(types, self._weights_of(arrays), now, epoch, calls)
        return results

    def note_draw(self, training: bool) -> None:
        """Notes a call without operands that NumPy has computed."""
        if tiers := self._kept((training,), []):
            tiers[0].native()

    def _kept(self, types: tuple[Any, ...], arrays: Sequence[np.ndarray]) -> tuple[Tier, Tier] | tuple[()]:
        """What is to serve calls of these types, which are the first."""
        tiers: tuple[Tier, Tier] | tuple[()] = self._made([type_of(x) for x in arrays], types[0])
        if all(tier.never for tier in tiers):
            tiers = ()
        self._tiers.keep(types, tiers)
        return tiers

    def _weights_of(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [arrays[k] for k in self._weights]

    def compute(self, callee: Any, arrays: Sequence[np.ndarray], versions: Any) -> list[np.ndarray]:
        """Runs the code."""
        outputs: list[np.ndarray]
        outputs, _ = callee.run(arrays, versions) if versions is not None else callee.run(arrays)
        return outputs

    def _steady(self, inputs: Sequence[Any]) -> tuple[Storage, tuple[Hashable, Hashable], list[Hashable]] | None:
        """The first weight's storage; where all weights are, and their versions; and the versions of all inputs. None
        if weights have changed lately. What this gives does not refer to the first storage, but for itself, so that
        all ends with it."""
        watched = [inputs[k].storage().watch() for k in self._weights]
        first = watched[0][0]
        places = tuple([address_of(inputs[k]._array) for k in self._weights])  # a storage may hold several weights
        where = places, tuple([storage if storage is not first else None for storage, _ in watched])
        now = where, tuple([version for _, version in watched])
        known, times = self._seen.get(first, (None, 0))
        if known != now:
            times = 0
            self._ready.pop(first, None)  # what it had prepared may go
        if times < _STEADY:
            self._seen[first] = now, times + 1
            return None
        versions: list[Hashable] = [None] * len(inputs)
        for k, version in zip(self._weights, now[1]):
            versions[k] = version
        return first, now, versions

    def _made(self, types: Sequence[TensorType], training: bool) -> tuple[Tier, Tier]:
        op, attrs = self._op, self._attrs
        if training not in self._codes:

            def graph_of(types: Sequence[TensorType]) -> Graph:
                return operator_graph(op, attrs, types, training, hidden=True)

            self._codes[training] = Codes(op.name, graph_of), Codes(op.name, graph_of, self._weights)
        changing, steady = (
            Tier(codes, types, lambda: op.expansion(types, attrs, training)) for codes in self._codes[training]
        )
        return changing, steady


late.tiered_operator.provide(TieredOperator)
