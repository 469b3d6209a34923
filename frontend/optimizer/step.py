"""Steps of weights: one after the other as operators, or all of them in one compiled call.

An optimizer says what is to be done to a weight as an `Update`: a rule, arrays, numbers. `Steps` compiles the updates
of all weights into one graph, with every number that the rules take as an input: a schedule of the learning rate
compiles nothing. The call writes new weights and states in place. Python runs no bytecode in between, so no signal
does. A step of rows is several writes; those who take steps keep Ctrl-C away meanwhile (`language.interrupts`).
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from gluonjit.codes.compile_log import say_compiled
from gluonjit.codes.store import Store
from gluonjit.execution.backends import get_backend
from gluonjit.ir.graph import Builder, Graph, inline
from gluonjit.ir.quiet import quiet
from gluonjit.ir.types import BF16, F16, F32, IRError, TensorType, dtype_of, type_of
from gluonjit.language.source import quote, user_loc
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.sparse_arrays import RowSparseNDArray
from gluonjit.operators.optimizers import update_rules
from gluonjit.operators.optimizers.update_rules import Rule
from gluonjit.operators.registry import OperatorError
from gluonjit.runtime.eager import Eager, Exact, needs_exact

MAX_STEPS = 16
"""The most lists of weights for which a step is compiled. Programs that train different parameters at every step have
any number of lists; further ones take their steps one weight at a time, with code for single weights."""

MAX_SINGLE = 256
"""The most kinds of weights, taken one at a time, for which code is kept."""


class Update(NamedTuple):
    """What a step does to one weight. See `update_rules` for rules; `states` may hold arrays that are only read."""

    rule: Rule
    weight: NDArray
    grad: NDArray
    states: tuple[NDArray, ...]
    scalars: dict[str, float]
    master: NDArray | None = None
    """The weight's float32 copy, from which the step is computed."""
    rows_only: bool = False
    """Whether only the rows that the gradient, which is row_sparse, has are updated."""

    @property
    def arrays(self) -> tuple[NDArray, ...]:
        """The gradient, then the arrays that the step may write."""
        first = (self.grad, self.weight, *self.states)
        return first if self.master is None else (*first, self.master)


def _refuse() -> Any:
    raise AssertionError("rules of optimizers draw no random numbers")


_EAGER = (Exact if needs_exact() else Eager)(False, _refuse)


def check(updates: Sequence[Update]) -> None:
    """Raises OperatorError for arrays whose shapes do not fit."""
    for u in updates:
        if u.grad.shape != u.weight.shape:
            raise OperatorError(
                f"the gradient has shape {u.grad.shape}, the weight {u.weight.shape}{quote(user_loc())}"
            )


def take(updates: Sequence[Update]) -> None:
    """Takes steps one after the other, without compiling."""
    check(updates)
    for u in updates:
        if u.rows_only:
            _take_rows(u)
            continue
        weight, grad, *states = _EAGER.operands([x._array for x in (u.weight, u.grad, *u.states)])
        master = None if u.master is None else _EAGER.operands([u.master._array])[0]
        with quiet():
            (weight, *new), wide = update_rules.run(_EAGER, u.rule, weight, grad, states, u.scalars, master)
        targets = [u.weight, *u.states[: len(new)], *([] if u.master is None else [u.master])]
        values = [weight, *new, *([] if u.master is None else [wide])]
        own = [x._array for x in targets]
        values = [x.copy() if any(np.may_share_memory(x, y) for y in own) else x for x in map(np.asarray, values)]
        for target, value in zip(targets, values, strict=True):
            target._store(value)


def _take_rows(u: Update) -> None:
    """Takes the step of the gradient's rows: the rule sees these rows of all arrays."""
    assert isinstance(u.grad, RowSparseNDArray)
    grad = u.grad.canonical()
    where = grad._rows
    if not len(where):
        return

    def rows(x: NDArray) -> NDArray:
        return NDArray._wrap(x.rows(where) if isinstance(x, RowSparseNDArray) else x._array[where])

    inner = Update(u.rule, rows(u.weight), NDArray._wrap(grad._values), tuple(map(rows, u.states)), u.scalars)
    if u.master is not None:
        inner = inner._replace(master=rows(u.master))
    take([inner])
    for own, new in zip(u.arrays[1:], inner.arrays[1:]):
        if isinstance(own, RowSparseNDArray):
            own.update_rows(where, new._array)
        else:
            own._array[where] = new._array
            own._wrote()


class Steps:
    """Takes the steps of several weights in one compiled call. What is compiled is kept. Thread-safe."""

    def __init__(self) -> None:
        self._lists: Store[BoundStep] = Store(MAX_STEPS)
        self._single: Store[BoundStep] = Store(MAX_SINGLE)
        self.latest: BoundStep | None = None
        """The call that took the last steps, if it was one for all weights."""

    def take(self, updates: Sequence[Update]) -> None:
        self.latest = None
        on_parts = [u for u in updates if u.rows_only or u.weight.stype != "default"]
        if on_parts:
            take(on_parts)
        every = len(updates)
        updates = [_with_dense_gradient(u) for u in updates if not u.rows_only and u.weight.stype == "default"]
        updates = [u for u in updates if u.weight._array.size]
        if not updates:
            return
        check(updates)
        keys = tuple([_signature(u) for u in updates])
        with self._lists.lock:
            step = self._lists.find(keys)
            if step is not None or not self._lists.is_full:
                step = _take(self._lists, keys, step, updates)
                self.latest = step if len(updates) == every else None
                return
            for key, u in zip(keys, updates):
                _take(self._single, key, self._single.find(key), [u])

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


def _take(
    known: Store[BoundStep], key: Hashable, step: BoundStep | None, updates: Sequence[Update]
) -> BoundStep | None:
    """Takes the step; returns the compiled one, if it could be used."""
    if step is None:
        try:
            start = time.perf_counter()
            step = BoundStep(updates)
            known.keep(key, step)
            why = "first call" if len(known) == 1 else "other weights"
            say_compiled("step", why, f"{len(updates)} weights", time.perf_counter() - start, step.was_cached)
        except IRError as e:
            types = dict.fromkeys(f"{type_of(u.weight._array)} with states {_types(u.states)}" for u in updates)
            raise OperatorError(
                f"the steps of these weights cannot be computed: {', '.join(types)} ({e}). States are kept in the type "
                f"that a weight has at its first step; after net.cast, make a new Trainer{quote(user_loc())}"
            ) from None
    if step.take(updates):
        return step
    take(updates)
    return None


def _types(arrays: Sequence[NDArray]) -> str:
    return ", ".join(str(type_of(x._array)) for x in arrays) or "none"


def _with_dense_gradient(u: Update) -> Update:
    return u if u.grad.stype == "default" else u._replace(grad=u.grad.tostype("default"))


def _signature(u: Update) -> Hashable:
    arrays = tuple([(x._array.shape, x._array.dtype) for x in u.arrays])
    return u.rule, arrays, u.master is None, tuple(u.scalars)


class BoundStep:
    """The compiled step for weights of certain types. Bound to the arrays that it was last called with."""

    def __init__(self, updates: Sequence[Update]) -> None:
        b = Builder("step")
        self._flat = [_is_flat(u) for u in updates]
        self._writes: list[list[int]] = []
        """For each update, the numbers of the arrays that it writes, among its `arrays`."""
        rules: dict[Hashable, Graph] = {}
        for u, flat in zip(updates, self._flat):
            types = tuple([_type(x, flat) for x in u.arrays])
            key = u.rule, types, u.master is None, tuple(u.scalars)
            if key not in rules:  # of which a network has few
                rules[key] = _graph_of_rule(u, types)
            rule = rules[key]
            inputs = [b.input(v.name, v.type) for v in rule.inputs[: len(types) + len(u.scalars)]]
            new = inline(b, rule, inputs)
            written = [*range(1, 1 + len(new))]
            if u.master is not None:
                written[-1] = len(types) - 1
            for k, value in zip(written, new):
                b.update(inputs[k], value)
            self._writes.append(written)
        self._executable: Any = get_backend(None)(b.build([], {"in_place": True}), {})
        self._arrays: list[np.ndarray] = []
        self._rows: list[np.ndarray] = []
        self.settings: Any = None
        """What the numbers that are set depend on, if somebody has noted it here since (`Optimizer._settings`)."""
        self.call: Any = None
        """Takes the step of these arrays with the numbers that were last set; native code is called by a `Bound`."""

    @property
    def was_cached(self) -> bool:
        """Whether its code was in the object cache."""
        return getattr(self._executable, "was_cached", False)  # other backends have none

    def take(self, updates: Sequence[Update]) -> bool:
        """Takes the step; False, and nothing is done, if arrays share memory so that the order would matter."""
        if not self.is_bound_to(updates) and not self._bind(updates):
            return False
        self.set_numbers(updates)
        written = self.written(updates)
        # Before the call too: were it interrupted after it, compiled code would not learn of the new weights.
        for x in written:
            x._wrote()
        self.call()
        for x in written:
            x._wrote()
        return True

    def is_bound_to(self, updates: Sequence[Update]) -> bool:
        """Whether these are the updates of the arrays that the step was last taken for."""
        arrays = [x._array for u in updates for x in u.arrays]
        return len(arrays) == len(self._arrays) and all(map(is_, arrays, self._arrays))

    def set_numbers(self, updates: Sequence[Update]) -> None:
        """Has `call` take its numbers, such as learning rates, from these updates."""
        self.settings = None
        for row, u in zip(self._rows, updates):
            row[:] = [*u.scalars.values()]

    def written(self, updates: Sequence[Update]) -> list[NDArray]:
        """The arrays that the step writes to."""
        return [x for u, numbers in zip(updates, self._writes) for x in map(u.arrays.__getitem__, numbers)]

    def _bind(self, updates: Sequence[Update]) -> bool:
        inputs: list[np.ndarray] = []
        results: list[np.ndarray] = []
        rows: list[np.ndarray] = []
        for u, flat, numbers in zip(updates, self._flat, self._writes):
            own = [x._array.reshape(-1) if flat else x._array for x in u.arrays]
            wide = (u.weight if u.master is None else u.master)._array.dtype
            row = np.empty(len(u.scalars), wide if wide == np.float64 else np.float32)
            rows.append(row)
            inputs += [*own, *(row[k : k + 1].reshape(()) for k in range(len(row)))]
            results += [own[k] for k in numbers]
        if not all(x.flags.writeable for x in results) or _overlap(results, inputs):
            return False
        self.call = self._executable.bind(inputs, results)
        self._arrays, self._rows = [x._array for u in updates for x in u.arrays], rows
        return True


def _graph_of_rule(u: Update, types: Sequence[TensorType]) -> Graph:
    """The new weight, states and master by the rule of an update, from its arrays, of these types, then its numbers."""
    b = Builder("rule")
    grad, weight, *states = [b.input(f"arg{k}", t) for k, t in enumerate(types)]
    master = states.pop() if u.master is not None else None
    kind = dtype_of(weight if master is None else master)
    kind = F32 if kind in (F16, BF16) else kind
    scalars = {name: b.input(name, TensorType(kind, ())) for name in u.scalars}
    new, wide = update_rules.run(b, u.rule, weight, grad, states, scalars, master)
    return b.build(new if master is None else [*new, wide])


def _is_flat(u: Update) -> bool:
    """Whether the rule looks at no axes, so that equal sizes share their code."""
    return all(x.shape == u.weight.shape for x in u.arrays)


def _type(x: NDArray, flat: bool) -> TensorType:
    own = type_of(x._array)
    return TensorType(own.dtype, (own.size,)) if flat else own


def _overlap(written: Sequence[np.ndarray], every: Sequence[np.ndarray]) -> bool:
    """Whether an array that is written shares memory with another one of `every`, which holds all of them once."""
    targets = {id(x) for x in written}
    spans = sorted((x.ctypes.data, x.ctypes.data + x.nbytes, id(x) in targets) for x in every)
    end, last_is_target = 0, False
    for start, stop, target in spans:
        if start < end and (target or last_is_target):
            return True
        end, last_is_target = max(end, stop), target
    return False
