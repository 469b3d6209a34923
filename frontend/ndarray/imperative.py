"""Imperative operators: evaluates an expansion on NumPy arrays and wraps its results.

Every operator outside compiled code takes this path, so its overhead matters: what depends on the operator and its
attributes alone is computed once (`_Call`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.context import Context, placed
from gluonjit.ir.dims import Undecided
from gluonjit.ir.quiet import quiet
from gluonjit.ir.types import IRError, type_of
from gluonjit.language import late, rng
from gluonjit.language.modes import logs_compiling, modes, plain_calls
from gluonjit.language.running import running
from gluonjit.language.source import layer_loc, quote, user_loc
from gluonjit.ndarray import sparse_operators
from gluonjit.ndarray.ndarray import EAGER, EXACT, NDArray
from gluonjit.ndarray.settled_calls import SettledCalls
from gluonjit.ndarray.variable import tracked
from gluonjit.operators.registry import UNFORESEEN, Operator, OperatorError, cache_key, unforeseen
from gluonjit.operators.sampling.random_ops import is_drawn_at_once
from gluonjit.runtime.eager import Eager, needs_exact, noting_difference, unwrapped
from gluonjit.runtime.numpy_memory import InKeptBlocks
from gluonjit.runtime.storage import Storage

# Bits of ndarray.flags.num: C-contiguous, owns its data, writeable. A result with all three that is not an operand is
# fresh memory in an NDArray's layout, and needs no copy.
_FRESH = 0x0001 | 0x0004 | 0x0400


class _Call:
    """What depends on an operator and its attributes alone: parsed attributes, numbers of inputs and of results.

    An operator's number (`Operator.number`) is left out: calls that differ in it alone are one. `attrs` has that of the
    first of them."""

    __slots__ = (
        "accepted",
        "arity",
        "attrs",
        "computations",
        "context",
        "has_tiers",
        "makes_sparse",
        "most_untold",
        "only_draws",
        "settled",
        "tiers",
        "untold",
        "visible",
    )

    def __init__(self, op: Operator, raw: dict[str, Any]) -> None:
        self.attrs = op.parse(raw)
        self.computations: dict[Any, Any] = {}
        """What recording needs (`autodiff.operator_computations`), by types and mode."""
        self.has_tiers = not (op.imperative_only or op.host or op.number)
        """Whether native code may compute it: not operators with a number, as this differs from call to call and NumPy
        needs one pass."""
        self.only_draws = self.has_tiers and op.streams is not None and not op.input_names(self.attrs)
        """Whether it draws random numbers without operands: NumPy takes long for few numbers, too."""
        if self.only_draws and is_drawn_at_once(op.name, self.attrs):
            self.has_tiers = False
        shape = self.attrs.get("shape", self.attrs.get("size"))
        self.untold: list[bool] = []
        """The modes of the first calls that only draw, of which `tiers` is told later: those that draw the first values
        of parameters mostly are the only ones, and what `tiers` needs takes a while to import."""
        self.most_untold = min(_FEW_DRAWN // max(math.prod(shape) if isinstance(shape, tuple) else 1, 1), _FEW_CALLS)
        self.tiers: Any = None
        """What chooses between NumPy and native code for large operands (`autodiff/tiering.py`), once there are any."""
        self.settled = SettledCalls.of(op, self.attrs)
        self.arity = len(op.input_names(self.attrs))
        self.accepted: tuple[Sequence[np.dtype | None], Mapping[bool, Eager], set[Any]]
        """Element types of operands that go together, those of the last call; what computes with them; and the modes
        and ranks for which that is `EXACT`, but `EAGER` gives the same."""
        self.accepted = (None,) * self.arity, self.emitters(), set()
        self.visible = op.visible(self.attrs) if op.visible else len(op.outputs(self.attrs))
        self.makes_sparse = sparse_operators.makes_sparse(op, self.attrs)
        # Operators without inputs get their result's device as an attribute.
        self.context: Context | None = placed(raw["ctx"]) if "ctx" in op.attrs and "ctx" in raw else None

    def emitters(self, arrays: Sequence[np.ndarray] = ()) -> Mapping[bool, Eager]:
        return EXACT if needs_exact(*arrays, *self.attrs.values()) else EAGER


logs_compiling()  # a wrong word is an error at once, also in programs of which nothing is compiled
SMALL = 0 if plain_calls() == "native" else 1 << 10
"""Operators whose operands all have fewer elements are left to NumPy. See `autodiff/tiering.py`."""

_LARGE = 1 << 14
"""Elements of an operand from which an operator may make arrays that are worth keeping."""
_FEW_DRAWN, _FEW_CALLS = 1 << 22, 256
"""Numbers and calls that never pay for compiling what draws them, whatever the distribution."""
_USUAL_BLOCKS = contextlib.nullcontext()

_calls: dict[Operator, dict[Any, _Call]] = {}


def _call(op: Operator, raw: dict[str, Any]) -> tuple[_Call, dict[str, Any]]:
    """The `_Call` of these raw attributes, cached if they are hashable; and the attributes, parsed."""
    known = _calls.get(op)
    if known is None:
        known = _calls[op] = {}
    value = raw.get(op.number) if op.number else None
    if value.__class__ is float:
        key = op.number, cache_key({k: v for k, v in raw.items() if k != op.number}) if len(raw) > 1 else ()
        call = known.get(key)
        if call is None:
            call = known[key] = _Call(op, raw)
        return call, {**call.attrs, op.number: value}
    key = cache_key(raw)
    if key is None:
        call = _Call(op, raw)
        return call, call.attrs
    try:
        call = known[key]
    except KeyError:
        if len(known) >= 1024:  # bounds the cache where an attribute changes with every call
            known.clear()
        known[key] = call = _Call(op, raw)
    return call, call.attrs


def invoke(
    op: Operator,
    inputs: Sequence[Any],
    attrs: dict[str, Any],
    out: Any = None,
    name: Any = None,
    attr: Any = None,
    hint: str = "",
) -> Any:
    """Runs `op` on NDArrays. `attrs` are not parsed yet; None in `inputs` stands for an omitted input.

    Returns the visible results, as a list unless there is exactly one; they alias no operand. With `out`, writes the
    results there and returns `out`. `name` and `attr` are ignored, as in MXNet. While a trace runs, the operator is
    recorded instead.
    """
    if running.trace is not None:
        return running.trace.invoke(op, inputs, attrs, out, name, attr, hint)
    raw = attrs
    try:
        call, attrs = _call(op, raw)
    except OperatorError as e:
        raise OperatorError(f"{e}{quote(user_loc())}") from None
    if running.postponed is not None and out is None:
        found = running.postponed.invoke(op, call, attrs, raw, inputs)
        if found is not None:
            return found
    plain = True
    for x in inputs:
        if x.__class__ is not NDArray:
            plain = False
            break
    if call.makes_sparse or not plain and any(x is not None and x.stype != "default" for x in inputs):
        found = _from_parts(op, call, attrs, [x for x in inputs if x is not None], out)
        if found is not None:
            return found
    try:
        arrays = [x._array for x in inputs]
    except AttributeError:
        inputs = [x for x in inputs if x is not None]
        arrays = [x._array for x in inputs]
    if len(arrays) != call.arity:
        op.check_arity(len(arrays), attrs)
    key, flows, results, mode_and_types, large = None, False, None, None, False
    if modes.recording:
        for x in inputs:
            if x._grad_state is not None:
                flows = True
                break
        if flows and op.streams is not None:
            key = rng.reserve(op.streams(attrs, modes.training))
        if out is not None:
            for x in [out] if isinstance(out, NDArray) else out:
                late.refuse_write(x)
    try:
        if call.has_tiers:
            tiered = call.only_draws
            for x in arrays:
                if x.size >= SMALL:
                    tiered, large = True, x.size >= _LARGE
                    break
            if tiered and call.tiers is None:
                if call.only_draws and len(call.untold) < call.most_untold and plain_calls() != "native":
                    call.untold.append(modes.training)
                    tiered = False
                else:
                    call.tiers = late.tiered_operator(op, attrs)
                    for training in call.untold:
                        call.tiers.note_draw(training)
            if tiered:
                results = call.tiers.run(inputs, modes.training, key)
        settled = call.settled
        if settled is not None and results is None:
            mode_and_types = (modes.training, *[(x.shape, x.dtype) for x in arrays])
            interpreter = settled.find(mode_and_types, arrays)
            if interpreter is not None:
                results = settled.compute(interpreter, arrays, key)
        if results is None:
            types, emitters, alike = call.accepted
            k = 0
            for dtype in types:  # zip would take three times as long
                if arrays[k].dtype is not dtype:
                    emitters, alike = _checked(op, call, attrs, arrays)
                    break
                k += 1
            if emitters is EXACT:
                mode = (modes.training, *[x.ndim for x in arrays])
                if mode in alike:
                    emitters = EAGER
            emitter = emitters[modes.training]
            if key is not None:
                emitter = _drawing(key, type(emitter))
            elif call.only_draws and isinstance(out, NDArray):
                emitter = type(emitter)(modes.training, rng.next_key, out._array)
            if emitters is EXACT:
                with quiet():
                    results, differs = _exactly(op, emitter, arrays, attrs)
                if not differs:
                    alike.add(mode)
            else:
                with quiet(), InKeptBlocks() if large else _USUAL_BLOCKS:
                    results = op.expand(emitter, *arrays, **attrs)
    except (MXNetError, IRError) as e:
        raise _located(op, arrays, e) from None
    except IndexError:  # about the values of an index, as in compiled code
        raise
    except UNFORESEEN as e:
        if op.host:  # the user's own code
            raise
        raise _located(op, arrays, _explained(op, arrays, attrs) or unforeseen(e, attrs)) from None

    if results.__class__ is tuple or results.__class__ is list:
        if op.updates is not None:
            _update(op, attrs, inputs, results)
        results = list(results[: call.visible])
    else:
        results = [results]
    if out is not None:
        _write(op, results, out)
        if flows:
            late.record_operator(op, attrs, inputs, out, key, call.computations, mode_and_types)
        return out
    context = call.context
    if arrays:
        storage = inputs[0]._storage
        if storage is not None:
            context = storage.context
    wrap = NDArray._wrap
    if not plain:
        for x in inputs:
            if x.__class__ is not NDArray and x._numpy:
                wrap = x._wrap_alike
                break
    wrapped = []
    others = arrays
    for result in results:
        if result.__class__ is not np.ndarray or result.flags.num & _FRESH != _FRESH:
            try:
                result = _own(result, others)
            except UNFORESEEN as e:  # as MemoryError: it was one element, repeated
                raise _located(op, arrays, unforeseen(e, attrs)) from None
        else:
            for other in others:
                if other is result:
                    result = result.copy()
        x = wrap(result)
        if context is not None:
            x._storage = Storage(context)
        wrapped.append(x)
        if len(results) > 1:
            others = [*others, x._array]
    if flows:
        late.record_operator(op, attrs, inputs, wrapped, key, call.computations, mode_and_types)
    return wrapped[0] if len(wrapped) == 1 else wrapped


def _update(op: Operator, attrs: dict[str, Any], inputs: Sequence[Any], results: Sequence[np.ndarray]) -> None:
    """Overwrites the inputs that the operator updates."""
    assert op.updates is not None
    written = op.updates(attrs)
    for at in written:
        late.refuse_write(inputs[at])
    arrays = [inputs[at]._array for at in written]
    new = [_own(results[k], arrays) for k in written.values()]
    for at, value in zip(written, new):
        inputs[at]._store(value)


def _from_parts(op: Operator, call: _Call, attrs: dict[str, Any], inputs: Sequence[Any], out: Any) -> NDArray | None:
    """The result of an operator on sparse arrays; None if it is to run on the dense ones."""
    if len(inputs) != call.arity:
        op.check_arity(len(inputs), attrs)
    flows = [modes.recording and x._grad_state is not None and tracked(x) for x in inputs]
    found = sparse_operators.evaluate(op, attrs, inputs)
    if found is None:
        return None
    if out is not None:
        if modes.recording:
            late.refuse_write(out)
        found = found.copyto(out)
    if any(flows):
        gradient = sparse_operators.gradient_of(op, attrs, inputs, flows)
        if gradient is None:
            late.record_operator(op, attrs, inputs, found, None, call.computations)
        else:
            late.record_rule(op.name, inputs, [found], gradient, op.name in sparse_operators.LINEAR)
    return found


def _exactly(op: Operator, emitter: Eager, arrays: Sequence[np.ndarray], attrs: dict[str, Any]) -> tuple[Any, bool]:
    """The results of an operator by `EXACT`, and whether those of `EAGER` might differ."""
    results, differs = noting_difference(lambda: op.expand(emitter, *emitter.operands(arrays), **attrs))
    if isinstance(results, (tuple, list)):
        return [unwrapped(x) for x in results], differs
    return unwrapped(results), differs


def _drawing(key: np.ndarray, kind: type[Eager]) -> Eager:
    """An emitter that draws on this key, from which the operator's gradient draws the same numbers again."""
    streams = itertools.count()
    return kind(modes.training, lambda: key + np.array((0, next(streams)), np.int64))


def _checked(
    op: Operator, call: _Call, attrs: dict[str, Any], arrays: Sequence[np.ndarray]
) -> tuple[Mapping[bool, Eager], set[Any]]:
    """What computes with arrays of these element types, as in `_Call.accepted`.

    Raises the error of inference if they do not go together, because NumPy would find one for all."""
    types = tuple([x.dtype for x in arrays])
    if len(set(types)) > 1 and not (op.imperative_only or op.host):
        with contextlib.suppress(Undecided):
            op.infer([type_of(x) for x in arrays], attrs)
    call.accepted = types, call.emitters(arrays), set()
    return call.accepted[1:]


def _explained(op: Operator, arrays: Sequence[np.ndarray], attrs: dict[str, Any]) -> Exception | None:
    """The error of inference, which tells better than NumPy's what is wrong; None if inference finds nothing."""
    if op.imperative_only:
        return None
    try:
        op.infer([type_of(x) for x in arrays], attrs)
    except (MXNetError, IRError) as e:
        return e
    return None


def _located(op: Operator, arrays: Sequence[np.ndarray], error: Exception) -> Exception:
    """An operator's error as in compiled code: with the operator's name, its operands' types and the user's line.

    Errors that already have these, and errors of a user's own code in an operator, are returned unchanged."""
    if error.__class__ not in (OperatorError, MXNetError, IRError) or str(error).startswith("Error in operator "):
        return error
    signature = ", ".join(str(type_of(x)) for x in arrays)
    layer = quote(layer_loc(), "in the layer made at")
    return OperatorError(f"Error in operator {op.name}({signature}): {error}{quote(user_loc())}{layer}")


def _own(result: Any, others: list[np.ndarray]) -> np.ndarray:
    """`result` as a writeable C-contiguous array that shares no memory with `others`."""
    if np.size(result) >= _LARGE and not any(result.strides) and not any(result.flat[:1].tobytes()):
        return np.zeros(result.shape, result.dtype)  # the system's, which takes none of its pages yet
    array = np.ascontiguousarray(result).reshape(np.shape(result))
    if not array.flags.writeable or any(np.may_share_memory(array, other) for other in others):
        return array.copy()
    return array


def _write(op: Operator, results: list[np.ndarray], out: Any) -> None:
    """Writes the results to `out`, an NDArray or one per result, of the same shapes and types."""
    targets = [out] if isinstance(out, NDArray) else list(out)
    if len(targets) != len(results):
        raise MXNetError(f"Operator {op.name} has {len(results)} outputs, but out= gives {len(targets)}")
    for k, (target, result) in enumerate(zip(targets, results)):
        array = target._stand_in
        if array.shape != np.shape(result) or array.dtype != result.dtype:
            raise MXNetError(
                f"Incompatible attr in node  at {k}-th output: operator {op.name} gives "
                f"{result.dtype}{list(np.shape(result))}, out= is {array.dtype}{list(array.shape)}"
            )
    if len(targets) > 1:
        results = [_own(result, [t._stand_in for t in targets]) for result in results]
    for target, result in zip(targets, results):
        target._store(result)
