"""How an MXNet operator is declared, and the table of all of them.

    @operator("FullyConnected", inputs=("data", "weight", "bias"), attrs={"num_hidden": integer(), ...})
    def fully_connected(b, data, weight, bias=None, *, num_hidden, no_bias, flatten):
        '''First line of the documentation.'''
        return b.add(...)

The function *is* the operator: run on ndarrays it computes (imperative mode), run on a Builder it compiles or infers
types. `b` is an `ir.graph.Emitter`. Adding one this way gives `mx.nd`, `mx.sym`, JSON, text form, docs and tests.
An expansion refuses inputs or attributes by raising `OperatorError`, with the key words of MXNet's own message if any.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir import opdef, plugins
from gluonjit.ir.dims import Undecided
from gluonjit.ir.graph import Builder, Emitter, Graph
from gluonjit.ir.opdef import REQUIRED, RNG_KEY
from gluonjit.ir.types import I64, IRError, TensorType
from gluonjit.language.mxnet_names import lacks
from gluonjit.operators import gradients
from gluonjit.operators.attributes import Attr, OutOfRange
from gluonjit.operators.documentation import filled
from gluonjit.operators.expansions import kept
from gluonjit.operators.gradients import WithGradient

Shape = tuple[int, ...]
"""A shape on the Symbol level: an entry of 0 is a dimension not known yet; None instead of a tuple knows nothing."""


class OperatorError(MXNetError, IRError):
    """An operator refuses its inputs or attributes: users see an MXNetError, code that builds graphs an IRError."""


class UndecidedOperator(OperatorError, Undecided):
    """What an operator computes depends on the sizes of open dimensions, or on values."""


@dataclass(eq=False, repr=False)
class Operator(opdef.OpDef):
    """An operator of MXNet's vocabulary.

    * `inputs`: names of the inputs in order, or a function of the attributes that returns them (`no_bias` drops one);
      `variadic` operators (`concat`) take any number, given by the attribute `num_args`.
    * `aux`: those inputs that are auxiliary states (`moving_mean`).
    * `outputs(attrs)`: the names of all results that MXNet counts (`node_row_ptr`), hidden ones last;
      `visible(attrs)`: how many of them a user gets. An expansion may leave out hidden results that nothing can read
      (the workspace of max pooling).
    * `complete(attrs, shapes)`: given partial input shapes (see `Shape`), returns them with those of learnable inputs
      filled in; serves deferred initialization.
    * `infer_inputs(attrs, in_shapes, out_shapes)`: returns input shapes refined from the outputs' (built in for
      `same_shape` operators).
    * `initializers`: by input, the `__init__` that composing gives to a variable there that has none.
    * `streams(attrs, training)`: how many `random_bits` the expansion draws; 0 for nearly all.
    * `expand(b, *inputs, **attrs)`: into primitives.
    * `gradient(b, g, y, x, **attrs)`: for operators whose gradient is not that of their expansion; see `gradients.py`.
    * `constants`: those inputs that gradients do not flow to although the result depends on them (regions of interest).
    * `late(b, y, x, **attrs)`: the inputs that get a new value when the gradient is computed, by number. `y` are the
      results that the expansion computes, `x` the inputs.
    """

    name: str
    expand: Callable[..., Any]  # (b, *inputs, **attrs): with a first line of documentation
    inputs: tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]] = ("data",)
    attrs: dict[str, Attr] = field(default_factory=dict)
    aux: tuple[str, ...] = ()
    variadic: bool = False
    outputs: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda attrs: ("output",)
    visible: Callable[[Mapping[str, Any]], int] | None = None
    complete: Callable[[Mapping[str, Any], list[Shape | None]], list[Shape | None]] | None = None
    infer_inputs: Callable[..., list[Shape | None]] | None = None
    same_shape: bool = False
    initializers: Mapping[str, str] = field(default_factory=dict)
    streams: Callable[[Mapping[str, Any], bool], int] | None = None
    clips: bool = False
    """Whether the result's length along an axis is clipped to the input's: the end of `slice` may lie past the axis."""
    imperative_only: str = ""
    """Why the operator cannot be traced, when it cannot (its result's shape depends on values)."""
    updates: Callable[[Mapping[str, Any]], Mapping[int, int]] | None = None
    """The inputs that it overwrites: maps the number of each to the number of the (hidden) result that it receives."""
    host: str = ""
    """Why compiled code has to call Python for it, when it has to."""
    gradient: Callable[..., Sequence[Any] | None] | None = None
    constants: tuple[str, ...] = ()
    late: Callable[..., Mapping[int, Any]] | None = None
    number: str = ""
    """An attribute, any number, that the expansion also takes as a 0-d tensor of the data's element type: a gradient
    then serves all numbers, as programs give another one in each call."""
    aliases: tuple[str, ...] = ()
    level: str = "operator"
    _parsed: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    @property
    def doc(self) -> str:
        return filled(inspect.cleandoc(self.expand.__doc__ or ""))

    @property
    def attr_defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return {key: attr.default for key, attr in self.attrs.items()}

    @property
    def pure(self) -> bool:  # type: ignore[override]
        return self.streams is None

    def input_names(self, attrs: Mapping[str, Any]) -> tuple[str, ...]:
        if callable(self.inputs):
            return self.inputs(attrs)
        return tuple(f"arg{k}" for k in range(attrs["num_args"])) if self.variadic else self.inputs

    def aux_names(self, attrs: Mapping[str, Any]) -> Sequence[str]:
        """The names of the inputs that are auxiliary states."""
        return self.aux

    def check_arity(self, count: int, attrs: Mapping[str, Any]) -> None:
        """Raises OperatorError unless `count` is how many inputs the operator takes with these (parsed) attributes."""
        names = self.input_names(attrs)
        if count != len(names):
            listed = "" if self.variadic else f" It takes {', '.join(names)}."
            if names[-1:] == ("bias",) and count == len(names) - 1 and "no_bias" in self.attrs:
                listed += " With no_bias=True it takes no bias."
            raise OperatorError(f"Operator {self.name} expects {len(names)} inputs, but got {count} instead.{listed}")

    def parse(self, raw: Mapping[str, Any], node: str = "") -> dict[str, Any]:
        """Attributes from Python values or strings; OperatorError, as MXNet words it, for a bad or missing one."""
        key = cache_key(raw)
        known = self._parsed.get(key)
        if known is None:
            known = self._parse(raw, node)
            if key is not None:
                if len(self._parsed) >= 1024:  # a scalar that changes with every call must not fill the memory
                    self._parsed.clear()
                self._parsed[key] = known
        return dict(known)

    def _parse(self, raw: Mapping[str, Any], node: str) -> dict[str, Any]:
        shown = ", ".join([f'name="{node}"', *(f'{k}="{clipped(v)}"' for k, v in sorted(raw.items()))])
        where = f"in operator {self.name}({shown})"
        if not self.attrs:
            return {}  # an operator without attributes takes any and ignores them, as MXNet's do
        for key in raw:
            if key not in self.attrs and not (key.startswith("__") and key.endswith("__")):
                raise OperatorError(
                    f"Cannot find argument '{key}', Possible Arguments: {', '.join(self.attrs)}, "
                    f"{where}{opdef.did_you_mean(key, self.attrs)}"
                )
        out = {}
        for key, attr in self.attrs.items():
            if key not in raw:
                if attr.default is REQUIRED:
                    raise OperatorError(f"Required parameter {key} of {attr.kind} is not presented, {where}")
                out[key] = attr.default
                continue
            value = raw[key]
            try:
                out[key] = attr.parse(value)
            except OutOfRange as e:
                raise OperatorError(f"value {clipped(value)} for Parameter {key} {e}, {where}") from None
            except (ValueError, TypeError, OverflowError) as e:
                if attr.choices:
                    raise OperatorError(f"Invalid Input: '{clipped(value)}', {e}, {where}") from None
                raise OperatorError(
                    f"Invalid Parameter format for {key} expect {attr.kind} but value='{clipped(value)}', {where}"
                ) from None
        return out

    # The interface of `ir.opdef.OpDef`.

    def canonical_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Parsed attributes, plus `.stream` (first random stream) and other annotations, which start with a dot."""
        notes = {k: v for k, v in attrs.items() if k.startswith(".")}
        return {**self.parse({k: v for k, v in attrs.items() if not k.startswith(".")}), **notes}

    def infer(
        self, types: Sequence[TensorType], attrs: Mapping[str, Any], regions: Sequence[Graph] = ()
    ) -> tuple[TensorType, ...]:
        """The result types of the expansion, which is the only definition of what the operator computes."""
        if self.host and not all(t.is_static for t in types):
            raise Undecided(f"{self.name} runs Python, which needs the sizes")
        try:
            return tuple(v.type for v in self.expansion(types, attrs).outputs)
        except (*UNFORESEEN, AttributeError) as e:
            if self.host:  # the user's own code
                raise
            if not all(t.is_static for t in types):
                raise Undecided(f"not written for open dimensions: {type(e).__name__}: {e}") from e
            if isinstance(e, AttributeError):
                raise
            raise unforeseen(e, attrs) from e

    def expansion(self, types: Sequence[TensorType], attrs: Mapping[str, Any], training: bool = False) -> Graph:
        def make() -> Graph:
            b = Builder("expansion", training=training)
            return b.build(self.expand_into(b, [b.input("", t) for t in types], attrs), {"streams": b.stream})

        key = self._key(types, attrs, training)
        return make() if key is None else kept(("expansion", key), make, lambda graph: (graph,))

    def with_gradient(self, types: Sequence[TensorType], attrs: Mapping[str, Any], training: bool = False) -> Any:
        def make() -> WithGradient | None:
            return gradients.with_gradient(self, types, attrs, training)

        key = self._key(types, attrs, training)
        return make() if key is None else kept(("gradient", key), make, lambda own: own.regions if own else ())

    def _key(self, types: Sequence[TensorType], attrs: Mapping[str, Any], training: bool) -> Hashable | None:
        """What the expansion and the gradient depend on; None if they may be others the next time."""
        if self.host:  # it runs the user's own Python
            return None
        own = [(k, opdef.attr_key(v)) for k, v in sorted(attrs.items()) if k[:1] != "."]
        key = (self, tuple(types), tuple(own), training)
        try:
            hash(key)
        except TypeError:  # an attribute that cannot be hashed
            return None
        return key

    def expand_into(self, b: Emitter, operands: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Runs the expansion over emitter `b` on parsed attributes; always a tuple of all results it computes."""
        self.check_arity(len(operands), attrs)
        out = self.expand(b, *operands, **{k: v for k, v in attrs.items() if not k.startswith(".")})
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)


UNFORESEEN = (ArithmeticError, LookupError, TypeError, ValueError, MemoryError)
"""Exceptions that an expansion may raise besides OperatorError, for attributes whose values it does not check."""


def unforeseen(error: Exception, attrs: Mapping[str, Any]) -> OperatorError:
    """Converts one of `UNFORESEEN` to an error for the user, with the attributes that caused it."""
    given = ", ".join(f"{key}={clipped(value)}" for key, value in attrs.items() if not key.startswith("."))
    return OperatorError(f"cannot be computed with {given or 'these inputs'}: {type(error).__name__}: {error}")


def clipped(value: Any) -> str:
    """An attribute's value for a message, shortened to fit a line."""
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def cache_key(raw: Mapping[str, Any]) -> Any:
    """A hashable key, equal only for attributes that parse alike; None when there is none (an array as a value)."""
    if not raw:
        return ()
    # 1, True and 1.0 are equal and hash alike, and so do 0.0 and -0.0: hence types, and texts of zeros and tuples.
    key = tuple([(k, c := v.__class__, repr(v) if c is tuple or (c is float and not v) else v) for k, v in raw.items()])
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _not_taken(op: Operator) -> list[str]:
    """The attributes that are no keyword of the expansion: unknown ones, and those with the name of an operand."""
    code = getattr(op.expand, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return []
    operands = 1 + (len(op.inputs) if isinstance(op.inputs, tuple) and not op.variadic else 0)
    taken = code.co_varnames[min(operands, code.co_argcount) : code.co_argcount + code.co_kwonlyargcount]
    return [key for key in op.attrs if key not in taken]


OPERATORS: dict[str, Operator] = {}
"""Every operator by each of its names, canonical and aliases."""


def operator(
    name: str, *, aliases: Sequence[str] = (), kind: type[Operator] = Operator, **kwargs: Any
) -> Callable[[Callable[..., Any]], Operator]:
    """Declares the decorated expansion as operator `name`; the keywords are the fields of `kind`."""

    def declare(expand: Callable[..., Any]) -> Operator:
        op = kind(name=name, expand=expand, aliases=tuple(aliases), **kwargs)
        if refused := _not_taken(op):
            raise MXNetError(
                f"operator {name!r} has attributes that its function cannot take by name: {', '.join(refused)}"
            )
        # A primitive may have an operator's name (`abs`): in the IR, operators carry the prefix `mx.`.
        opdef.register(op, f"mx.{name}")
        for key in (name, *aliases):
            if key in OPERATORS:
                raise MXNetError(f"operator {key!r} is declared twice")
            OPERATORS[key] = op
        return op

    return declare


def get(name: str) -> Operator:
    """The operator called `name`; MXNetError with a suggestion when there is none."""
    try:
        return OPERATORS[name]
    except KeyError:
        if plugins.load() and name in OPERATORS:
            return OPERATORS[name]
        if lacking := lacks(name):
            raise MXNetError(f"Operator {name} is not registered: {lacking}") from None
        raise MXNetError(f"Operator {name} is not registered{opdef.did_you_mean(name, OPERATORS)}") from None


def operator_graph(
    op: Operator, attrs: Mapping[str, Any], types: Sequence[TensorType], training: bool, hidden: bool = False
) -> Graph:
    """An operator with these (parsed) attributes as a graph of level `traced`, on operands of these types. `hidden`:
    its outputs are all results of its expansion, not only those that a user gets."""
    b = Builder(op.name, "traced", training)
    operands = [b.input(name, type) for name, type in zip(op.input_names(attrs), types, strict=True)]
    if op.streams is not None and op.streams(attrs, training):
        b.key = b.input(RNG_KEY, TensorType(I64, (2,)))
    results = b.emit(f"mx.{op.name}", operands, attrs)
    visible = op.visible(attrs) if op.visible and not hidden else len(results)
    return b.build(results[:visible], {"training": training})
