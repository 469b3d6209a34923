"""Graphs of the compiler: immutable SSA.

`Builder.emit` alone makes an Op, and infers its result types; passes build new graphs (`rewrite`) and never change
one. A region (the body of a fused group, loop or branch) is a Graph whose inputs are the op's operands in order, so
that what it captures is explicit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

import numpy as np

from gluonjit.common.lazy import cached_property
from gluonjit.common.signals import is_from_signal
from gluonjit.ir import opdef
from gluonjit.ir.dims import Dim, Extent, Undecided, names_of
from gluonjit.ir.formulas import Formula
from gluonjit.ir.interpreter import Interpreter, checked
from gluonjit.ir.types import BOOL, DType, IRError, TensorType, dtype, type_of
from gluonjit.ir.use_def import use_def_graph

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from gluonjit.ir.primitives.methods import Methods

    _T = TypeVar("_T")

    @dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(field,))
    def _unchanging(cls: type[_T]) -> type[_T]:
        """Declares fields that nothing assigns to. The type checker sees to it: frozen ones take four times as long to
        make, and to train a network takes a hundred thousand ops and values."""
        return cls

else:
    Methods = object
    _unchanging = dataclass(slots=True, eq=False)

_registry = opdef.REGISTRY

LEVELS = ("traced", "expanded", "legal", "fused", "planned")
"""What a graph may hold, in pipeline order; the verifier enforces it (`ir/verify.py`)."""


@dataclass(frozen=True, slots=True)
class Loc:
    """Where in the user's program an op comes from. Never part of an op's meaning: CSE ignores it."""

    file: str = ""
    line: int = 0
    block: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else ""
        return f"{place} ({self.block})" if place and self.block else place or self.block


@_unchanging
class Value(Formula):
    """An SSA value: graph input or op result. `name` is a hint for the printer; identity is the object.

    `offset` is its byte offset in the arena, given by `plan-memory`; None for what lives elsewhere. `builder` gives
    the one that made it, while it lives: to it go the operators of formulas (`ir/formulas.py`), or else to that of the
    rewriter that has taken it over (`Rewriter`).
    """

    name: str
    type: TensorType
    offset: Extent | None = None
    builder: Callable[[], Builder | None] | None = field(default=None, repr=False)

    __array_ufunc__ = None  # NumPy's arrays leave `array * value` to the value, which refuses it

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> int:
        return self.type.size

    def _emit(self, name: str, *operands: Any) -> Value:
        rewriter = _here.rewriter
        builder = rewriter.b if rewriter is not None and rewriter.has(self) else self.builder and self.builder()
        if builder is None:
            raise IRError(f"%{self.name} is not a value of a graph that is being built: operators cannot add to it")
        dtype = self.type.dtype
        if name == "div" and not dtype.is_float:
            raise IRError(f"{dtype} / {dtype}: in plain calls NumPy divides integers as floats; write b.div")
        values = [x if isinstance(x, Value) else builder.constant(_number(x, dtype), dtype) for x in operands]
        return builder.emit(name, values)[0]

    def __bool__(self) -> bool:
        raise IRError(f"whether a {self.type} is true is known only when the graph runs: use b.select, & or |")

    def _in_place(self, other: Any) -> Value:
        raise IRError("in plain calls, x += y writes into the array that x is; write x = x + y")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __iand__ = __ior__ = __ixor__ = _in_place


def _number(x: Any, dtype: DType) -> Any:
    """`x`, a number in a formula beside a value of this type; IRError for what NumPy would promote."""
    if type(x) is float and dtype.is_float or isinstance(x, (int, Dim)) and type(x) is not bool and dtype is not BOOL:
        return x
    raise IRError(f"{x!r} beside {dtype} in a formula is promoted in plain calls; write b.constant(x, dtype)")


@_unchanging
class Op:
    name: str
    operands: tuple[Value, ...]
    attrs: Mapping[str, Any]
    results: tuple[Value, ...]
    regions: tuple[Graph, ...] = ()
    loc: Loc | None = None

    @property
    def result(self) -> Value:
        if len(self.results) != 1:
            raise IRError(f"{self.name} has {len(self.results)} results, not one")
        return self.results[0]

    @property
    def definition(self) -> opdef.OpDef:
        try:
            return _registry[self.name]
        except KeyError:
            return opdef.lookup(self.name)


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """`updates` pairs an input with the value it holds after the call (state, such as BatchNorm's statistics)."""

    name: str
    inputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Value, ...]
    updates: tuple[tuple[Value, Value], ...] = ()
    level: str = "expanded"
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Facts about the whole graph (`arena` bytes after plan-memory, `training`, …)."""

    @cached_property
    def producers(self) -> Mapping[Value, Op]:
        """The op that makes each op result."""
        return MappingProxyType({r: op for op in self.ops for r in op.results})

    @cached_property
    def uses(self) -> Mapping[Value, tuple[Op, ...]]:
        """The ops that read each value, in order, one entry per op."""
        table: dict[Value, list[Op]] = {}
        for op in self.ops:
            for v in op.operands if len(op.operands) < 2 else dict.fromkeys(op.operands):
                table.setdefault(v, []).append(op)
        return MappingProxyType({v: tuple(ops) for v, ops in table.items()})

    @cached_property
    def open_names(self) -> frozenset[str]:
        """The open dimensions on which inputs and ops depend."""
        found: frozenset[str] = frozenset()
        for v in self.inputs:
            found |= names_of(v.type.shape)
        for op in self.ops:
            found |= open_names(op)
        return found

    @property
    def results(self) -> tuple[Value, ...]:
        """Every value that leaves the graph: outputs, then updated states."""
        return (*self.outputs, *(new for _, new in self.updates))

    def with_level(self, level: str) -> Graph:
        return replace(self, level=level)

    def with_attrs(self, **attrs: Any) -> Graph:
        return replace(self, attrs=MappingProxyType({**self.attrs, **attrs}))

    @property
    def heading(self) -> str:
        """The name and the first inputs, for people: `net(data: f32[8,32], …)`."""
        inputs = ", ".join(f"{v.name}: {v.type}" for v in self.inputs[:4]) + (", …" if len(self.inputs) > 4 else "")
        return f"{self.name}({inputs})"

    def __repr__(self) -> str:
        """Short, for prompts and messages; `str` has all of it."""
        return f"<graph @{self.heading}: {len(self.ops)} op{'s' * (len(self.ops) != 1)}, level {self.level}>"

    def __str__(self) -> str:
        from gluonjit.ir.printer import print_graph

        return print_graph(self)

    def svg(self) -> str:
        """A picture of the graph (`ir/pictures.py`). IRError without igraph: `pip install "gluonjit[draw]"`."""
        from gluonjit.ir.pictures import svg

        return svg(self)

    def use_def(self) -> Any:
        """Producers and consumers as a `networkx.MultiDiGraph` (`ir/use_def.py`)."""
        return use_def_graph(self)

    def steps(self, *inputs: Any) -> Iterator[tuple[Op, tuple[np.ndarray, ...]]]:
        """Runs the graph on ndarrays or NDArrays, and yields each op with its results.

        >>> for op, results in graph.steps(x, weight):
        ...     print(op.name, op.results[0].name, results[0].mean())
        """
        return Interpreter(self).one_by_one(checked(self, [getattr(x, "_array", x) for x in inputs]))

    def _repr_svg_(self) -> str | None:
        try:
            return self.svg()
        except IRError:  # notebooks show another form then
            return None

    def _repr_html_(self) -> str:
        from gluonjit.ir.pictures import as_html

        return as_html(self)


class Emitter(Methods):
    """What an expansion is written over: `b.add(x, y)`, `b.reduce(x, op='sum', axes=(1,))`.

    `Builder` records ops, `eager.Eager` (runtime) computes them on ndarrays at once. Both offer

    * one method per primitive (`ir/primitives/methods.pyi`): operands positional, attributes by keyword; returns the
      value, or a tuple of them. Those named as keywords of Python take `getattr(b, "and")`;
    * `constant(value, dtype)`;
    * `random_bits(shape=, dtype=)`, whose key and stream the emitter supplies in program order;
    * `elementwise(compute, shape)`, which is `compute(b, shape)`;
    * `training`: whether operators such as Dropout are in training mode;
    * values with `.shape` and `.dtype` (use `ir.types.dtype_of`, for ndarrays have NumPy's dtype).
    """

    training: bool = False

    def emit(self, name: str, operands: Sequence[Any], attrs: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        raise NotImplementedError

    def constant(self, value: Any, dtype: Any = None) -> Any:
        raise NotImplementedError

    def random_bits(self, shape: Sequence[int], dtype: Any = "i32") -> Any:
        raise NotImplementedError

    def operands(self, values: Sequence[Any]) -> Sequence[Any]:
        """Values from outside, with operators for formulas."""
        return values

    def elementwise(
        self,
        compute: Callable[[Any, tuple[int, ...]], Any],
        shape: tuple[int, ...],
        uniform: tuple[float, float, float] | None = None,
    ) -> Any:
        """`compute(b, shape)`, each of whose elements depends only on numbers and on the random bits of its own place.

        An emitter may compute it piece by piece, or draw it: `uniform` are low, high and the largest number of uniform
        ones in float32.
        """
        return compute(self, shape)

    if not TYPE_CHECKING:  # which would let any name pass

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name.startswith("_"):
                raise AttributeError(name)

            def call(*operands: Any, **attrs: Any) -> Any:
                results = self.emit(name, operands, attrs)
                return results[0] if len(results) == 1 else results

            return call  # not kept: it refers to the emitter, and so to all that this has emitted


def open_names(op: Op) -> frozenset[str]:
    """The open dimensions on which the op depends: by its types, its attributes, or in its regions."""
    found: frozenset[str] = frozenset()
    for v in (*op.operands, *op.results):
        if not v.type.is_static:
            found |= names_of(v.type.shape)
    for attr in op.attrs.values():
        found |= attr_names(attr)
    for region in op.regions:
        found |= region.open_names
    return found


_CLOSED = frozenset({int, str, bool, float, type(None), DType})
_NO_NAMES: frozenset[str] = frozenset()


def attr_names(attr: Any) -> frozenset[str]:
    """The open dimensions on which an attribute depends."""
    if type(attr) in _CLOSED:
        return _NO_NAMES
    if isinstance(attr, tuple):
        return _NO_NAMES.union(*[attr_names(part) for part in attr if type(part) not in _CLOSED])
    if isinstance(attr, TensorType):
        return names_of(attr.shape)
    return attr.names if isinstance(attr, Dim) else frozenset()


class Builder(Emitter):
    """Makes a graph op by op. `loc`, while set, is given to every op emitted without one."""

    def __init__(self, name: str = "graph", level: str = "expanded", training: bool = False) -> None:
        self.name = name
        self.level = level
        self.training = training
        self.loc: Loc | None = None
        self.stream = 0
        """The random stream that the next `random_bits` takes."""
        self.key: Value | None = None
        """The value (seed, counter) of type i64[2] that `random_bits` draws from; made on first use, as a graph
        input."""
        self._self = ref(self)
        self._inputs: list[Value] = []
        self._ops: list[Op] = []
        self._producers: dict[Value, Op] = {}
        self._updates: dict[Value, Value] = {}

    def input(self, name: str, type: TensorType) -> Value:
        value = Value(name, type, None, self._self)
        self._inputs.append(value)
        return value

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[Graph] = (),
        loc: Loc | None = None,
        result_names: Sequence[str] = (),
        offsets: Sequence[Extent | None] = (),
    ) -> tuple[Value, ...]:
        """Appends an op and returns its results. Raises IRError when operands or attributes do not fit.

        `result_names` and `offsets` (see `Value`) are in the order of the results and may be shorter.
        """
        definition = opdef.lookup(name)
        canonical = definition.canonical_attrs(attrs or {})
        try:
            types = definition.infer([v.type for v in operands], canonical, regions)
        except IRError as e:
            place = loc or self.loc
            signature = ", ".join(str(v.type) for v in operands)
            kind = Undecided if isinstance(e, Undecided) else IRError
            raise kind(f"{name}({signature}): {e}" + (f"\n  at {place}" if place else "")) from e
        if result_names or offsets:
            named = zip_longest(result_names[: len(types)], types, offsets[: len(types)])
            results = tuple([Value(name or "", t, offset) for name, t, offset in named])
        else:
            results = tuple([Value("", t, None, self._self) for t in types])
        return self.emit_typed(name, operands, canonical, results, regions, loc)

    def emit_typed(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: Mapping[str, Any],
        results: tuple[Value, ...],
        regions: Sequence[Graph] = (),
        loc: Loc | None = None,
    ) -> tuple[Value, ...]:
        """`emit` for a caller that has the canonical attributes and the results' types already, from the op's
        definition."""
        op = Op(name, tuple(operands), MappingProxyType(dict(attrs)), results, tuple(regions), loc or self.loc)
        self._append(op)
        return results

    def _append(self, op: Op) -> None:
        self._ops.append(op)
        for r in op.results:
            self._producers[r] = op
            if r.builder is not self._self:
                _set(r, "builder", self._self)

    def producer(self, value: Value) -> Op | None:
        """The op that made `value`; None for an input. What a rewrite rule looks through its operands with."""
        return self._producers.get(value)

    def constant(self, value: Any, dtype_: Any = None) -> Value:
        """A known tensor; of an open extent, or a tuple of such, the numbers that they will be."""
        if isinstance(value, Dim):
            number: Value = self.extent(of=value)
            return number if dtype_ is None or dtype(dtype_) is _I64 else self.cast(number, dtype=dtype_)
        if isinstance(value, tuple) and any(isinstance(n, Dim) for n in value):
            return self.concat(*(self.reshape(self.constant(n, dtype_), shape=(1,)) for n in value), axis=0)
        array = np.asarray(value, dtype(dtype_).numpy if dtype_ is not None else None)
        type_of(array)  # rejects element types the IR does not have
        if array.flags.writeable or not array.flags.c_contiguous:
            array = np.array(array, order="C")
            array.setflags(write=False)
        return self.emit("constant", (), {"value": array})[0]

    def random_bits(self, shape: Sequence[int], dtype: Any = "i32") -> Value:
        attrs = {"shape": tuple(shape), "dtype": dtype, "stream": self.stream}
        self.stream += 1
        return self.emit("random_bits", (self.random_key(),), attrs)[0]

    def random_key(self) -> Value:
        """`key`, made if need be."""
        if self.key is None:
            self.key = self.input(opdef.RNG_KEY, TensorType(_I64, (2,)))
        return self.key

    def update(self, state: Value, new: Value) -> None:
        """States that input `state` holds `new` after the call. The last of several wins."""
        if state.type != new.type:
            raise IRError(f"state {state.name} has type {state.type} and cannot become {new.type}")
        self._updates.pop(state, None)
        self._updates[state] = new

    def build(self, outputs: Sequence[Value], attrs: Mapping[str, Any] | None = None) -> Graph:
        return Graph(
            self.name,
            tuple(self._inputs),
            tuple(self._ops),
            tuple(outputs),
            tuple(self._updates.items()),
            self.level,
            MappingProxyType(dict(attrs or {})),
        )


_I64 = dtype("i64")
_set = object.__setattr__  # a value gets its builder when it becomes a part of it, and keeps it


class _Here(threading.local):
    rewriter: Rewriter | None = None
    """The innermost one that runs on this thread."""


_here = _Here()


class Rewriter:
    """Makes a new graph out of `graph`, op by op and in order; dead ops stay, `dce` removes them. Inputs, and ops of
    which neither the rewriter nor an operand has changed anything, are the same objects in both graphs.

    Subclasses say in `visit` what takes an op's place, and may say in `value` how a value is read. `rewrite` is enough
    for those who look at one op and its operands at a time.
    """

    def __init__(self, graph: Graph, level: str | None = None) -> None:
        self.graph = graph
        self.b = Builder(graph.name, level or graph.level)
        self.b._inputs += graph.inputs
        self.env: dict[Value, Value] = {v: v for v in graph.inputs}
        """What stands for each value of the old graph in the new one."""

    def has(self, v: Value) -> bool:
        """Whether the value is one of the new graph, as far as this has been made."""
        return v in self.b._producers or v in self.b._inputs

    def value(self, v: Value) -> Value:
        """The new value to be read in place of `v`."""
        return self.env[v]

    def visit(self, op: Op) -> Sequence[Value] | None:
        """The values that replace the op's results, None to keep the op, or () if `value` finds them in another way.

        May emit any number of ops through the builder, whose `loc` is the op's.
        """
        return None

    def run(self) -> Graph:
        b, env = self.b, self.env
        outer, _here.rewriter = _here.rewriter, self
        try:
            for op in self.graph.ops:
                b.loc = op.loc
                new = self.visit(op)
                if new is None:
                    new = _kept(b, op, [self.value(v) for v in op.operands])
                if len(new) == len(op.results) == 1:  # nearly all
                    env[op.results[0]] = new[0]
                elif new:
                    env.update(zip(op.results, new, strict=True))
            return self.finish([self.value(v) for v in self.graph.results])
        finally:
            _here.rewriter = outer

    def finish(self, results: Sequence[Value]) -> Graph:
        """The new graph, with `results` for the old one's outputs and updated states."""
        count = len(self.graph.outputs)
        for (state, _), new in zip(self.graph.updates, results[count:], strict=True):
            self.b.update(self.env[state], new)
        return replace(self.b.build(results[:count]), attrs=self.graph.attrs)


Rule = Callable[[Builder, Op, tuple[Value, ...]], "Sequence[Value] | None"]
"""`rule(builder, op, operands)`: the values that replace the op's results, or None to keep it as it is.

`operands` are the op's operands in the new graph. A rule may emit any number of ops through the builder, whose `loc`
is the op's.
"""


def rewrite(
    graph: Graph, rule: Rule, *, level: str | None = None, only_with: Callable[[Op], bool] | None = None
) -> Graph:
    """A new graph in which `rule` has been asked for every op, in order; the same graph if it has changed nothing.

    `only_with`: tells of an op whether the rule might change a graph that has it; without such an op none is copied."""
    if only_with is not None and not any(map(only_with, graph.ops)):
        return graph
    rewriter = _ByRule(graph, rule, level)
    new = rewriter.run()
    return new if rewriter.changed else graph


class _ByRule(Rewriter):
    def __init__(self, graph: Graph, rule: Rule, level: str | None) -> None:
        super().__init__(graph, level)
        self.rule = rule
        self.changed = level is not None and level != graph.level
        self.b.key = next((self.env[v] for v in graph.inputs if v.name == opdef.RNG_KEY), None)

    def visit(self, op: Op) -> Sequence[Value]:
        operands = tuple([self.env[v] for v in op.operands])
        new = self._replacement(op, operands)
        if new is None:
            new = _kept(self.b, op, operands)
        else:
            self.changed = True
            for old, value in zip(op.results, new, strict=True):
                if old.name and not value.name:
                    # Only a hint for the printer, on a value that this very builder made.
                    object.__setattr__(value, "name", old.name)
        if op.results and op.results[0].name == opdef.RNG_KEY:
            self.b.key = new[0]
        return new

    def _replacement(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        """What the rule says, checked; IRError that names the rule and the op."""
        try:
            new = self.rule(self.b, op, operands)
        except Undecided:
            raise
        except (IRError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
            if is_from_signal(e):
                raise
            kind = "" if isinstance(e, IRError) else f"{type(e).__name__}: "
            raise IRError(f"{self._which(op)} failed: {kind}{e}") from e
        if new is None:
            return None
        if isinstance(new, Value) or not all(isinstance(value, Value) for value in new):
            raise IRError(f"{self._which(op)} returned {new!r}; it returns a sequence of values, as (value,), or None")
        if len(new) != len(op.results):
            raise IRError(f"{self._which(op)} gave {len(new)} values for {len(op.results)} results")
        for old, value in zip(op.results, new, strict=True):
            if old.type is not value.type and old.type != value.type:
                raise IRError(f"{self._which(op)} changed the type from {old.type} to {value.type}")
            if not self.has(value):
                raise IRError(
                    f"{self._which(op)} returned {value!r} of another graph; `operands` are the op's operands in the "
                    "new one, `op.operands` those in the old one"
                )
        return new

    def _which(self, op: Op) -> str:
        """The rule and the op, for an error."""
        where = getattr(self.rule, "__qualname__", str(self.rule)).replace(".<locals>", "")
        signature = ", ".join(str(v.type) for v in op.operands)
        return f"the rewrite {where} of {op.name}({signature})" + (f" at {op.loc}" if op.loc else "")


def _kept(b: Builder, op: Op, operands: Sequence[Value]) -> tuple[Value, ...]:
    """The results of the op over new operands: itself, if they are its own ones, else a copy."""
    for old, new in zip(op.operands, operands, strict=True):
        if old is not new:
            return reemit(b, op, operands)
    b._ops.append(op)
    for r in op.results:
        b._producers[r] = op
    return op.results


def reemit(b: Builder, op: Op, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Copies `op` into `b` over new operands, keeping attributes, regions, location (if it has one) and result names.

    Skips inference when the operand types are unchanged, which is what makes a rewrite cheap.
    """
    for old, new in zip(op.operands, operands, strict=True):
        if old.type is not new.type and old.type != new.type:
            return b.emit(op.name, operands, op.attrs, op.regions, op.loc, [r.name for r in op.results])
    results = tuple([Value(r.name, r.type, r.offset, b._self) for r in op.results])
    new_op = Op(op.name, tuple(operands), op.attrs, results, op.regions, op.loc or b.loc)
    b._ops.append(new_op)
    for r in results:
        b._producers[r] = new_op
    return results


def with_notes(op: Op, notes: Mapping[str, Any]) -> Op:
    """`op` with these annotations in addition. It has the same results, as their types do not depend on them."""
    return Op(op.name, op.operands, MappingProxyType({**op.attrs, **notes}), op.results, op.regions, op.loc)


def with_regions(op: Op, regions: Sequence[Graph]) -> Op:
    """`op` with other regions, whose inputs and results have the types of its own."""
    return Op(op.name, op.operands, op.attrs, op.results, tuple(regions), op.loc)


def subgraph(name: str, ops: Iterable[Op], inputs: Sequence[Value], outputs: Sequence[Value], level: str) -> Graph:
    """A graph of copies of `ops` (in program order), whose inputs stand for `inputs`: the body of a region."""
    b = Builder(name, level)
    env = {v: b.input(v.name, v.type) for v in inputs}
    copy_ops(b, ops, env)
    return b.build([env[v] for v in outputs])


def copy_ops(b: Builder, ops: Iterable[Op], env: dict[Value, Value]) -> None:
    """Copies `ops` (in program order) into `b`. `env` says which values stand for those that they read, and gets those
    that stand for their results."""
    for op in ops:
        env.update(zip(op.results, reemit(b, op, [env[v] for v in op.operands]), strict=True))


def inline(b: Builder, body: Graph, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Emits the ops of `body` at the builder's location, over values of its inputs' types; returns its outputs.

    Its random ops draw on the builder's key, and on the next streams, in the order of those that they name."""
    env = dict(zip(body.inputs, operands))
    first = b.stream
    for op in body.ops:
        attrs = op.attrs
        if op.name == "random_bits":
            if op.operands[0] not in env:
                env[op.operands[0]] = b.random_key()
            attrs = MappingProxyType({**attrs, "stream": first + attrs["stream"]})
            b.stream = max(b.stream, attrs["stream"] + 1)
        results = tuple(Value(r.name, r.type, r.offset) for r in op.results)
        b._append(Op(op.name, tuple([env[v] for v in op.operands]), attrs, results, op.regions, op.loc or b.loc))
        env.update(zip(op.results, results, strict=True))
    return tuple(env[v] for v in body.outputs)
