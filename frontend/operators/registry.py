"""How an MXNet operator is declared, and the table of all of them.

    @operator("FullyConnected", inputs=("data", "weight", "bias"), attrs={"num_hidden": integer(), ...})
    def fully_connected(b, data, weight, bias=None, *, num_hidden, no_bias, flatten):
        '''First line of the documentation.'''
        return b.add(...)

The function *is* the operator: run on ndarrays it computes (imperative mode), run on a Builder it compiles or infers
types. `b` is an `ir.graph.Emitter`. Adding one this way gives `mx.nd`, `mx.sym`, JSON, text form, docs and tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.opdef import REQUIRED
from gluonjit.ir.types import IRError, TensorType
from gluonjit.operators.attributes import Attr

Shape = tuple[int, ...]
"""A shape on the Symbol level: an entry of 0 is a dimension not known yet; None instead of a tuple knows nothing."""


@dataclass(eq=False)
class Operator(opdef.OpDef):
    """An operator of MXNet's vocabulary.

    * `inputs`: names of the inputs in order, or a function of the attributes that gives them (`no_bias` drops one);
      `variadic` operators (`concat`) take any number, and count them in the attribute `num_args`.
    * `aux`: those inputs that are auxiliary states (`moving_mean`).
    * `outputs(attrs)`: the names of all results, hidden ones last; `visible(attrs)`: how many of them a user gets.
    * `complete(attrs, shapes)`: given partial input shapes (see `Shape`), returns them with those of learnable inputs
      filled in; serves deferred initialization.
    * `backward(attrs, in_shapes, out_shapes)`: returns input shapes refined from the outputs' (`same_shape` operators
      have it built in).
    * `streams(attrs, training)`: how many `random_bits` the expansion draws; 0 for nearly all.
    * `expand(b, *inputs, **attrs)`: into primitives.
    """

    name: str
    expand: Callable[..., Any]
    inputs: tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]] = ("data",)
    attrs: dict[str, Attr] = field(default_factory=dict)
    aux: tuple[str, ...] = ()
    variadic: bool = False
    outputs: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda attrs: ("output",)
    visible: Callable[[Mapping[str, Any]], int] | None = None
    complete: Callable[[Mapping[str, Any], list[Shape | None]], list[Shape | None]] | None = None
    backward: Callable[..., list[Shape | None]] | None = None
    same_shape: bool = False
    streams: Callable[[Mapping[str, Any], bool], int] | None = None
    imperative_only: str = ""
    """Why the operator cannot be traced, when it cannot (its result's shape depends on values)."""
    aliases: tuple[str, ...] = ()
    level: str = "operator"

    @property
    def doc(self) -> str:
        return (self.expand.__doc__ or "").strip()

    @property
    def pure(self) -> bool:  # type: ignore[override]
        return self.streams is None

    def input_names(self, attrs: Mapping[str, Any]) -> tuple[str, ...]:
        if self.variadic:
            return tuple(f"arg{k}" for k in range(attrs["num_args"]))
        return self.inputs(attrs) if callable(self.inputs) else self.inputs

    def parse(self, raw: Mapping[str, Any], node: str = "") -> dict[str, Any]:
        """Attributes from Python values or strings; MXNetError in MXNet's words for a bad, missing or unknown one."""
        shown = ", ".join([f'name="{node}"', *(f'{k}="{v}"' for k, v in sorted(raw.items()))])
        where = f"in operator {self.name}({shown})"
        out = {}
        for key, attr in self.attrs.items():
            if key not in raw:
                if attr.default is REQUIRED:
                    raise MXNetError(f"Required parameter {key} of {attr.kind} is not presented, {where}")
                out[key] = attr.default
                continue
            value = raw[key]
            try:
                out[key] = attr.parse(value)
            except (ValueError, TypeError, OverflowError) as e:
                if attr.choices:
                    raise MXNetError(f"Invalid Input: '{value}', {e}, {where}") from e
                raise MXNetError(
                    f"Invalid Parameter format for {key} expect {attr.kind} but value='{value}', {where}"
                ) from e
        for key in raw:
            if key not in self.attrs and not (key.startswith("__") and key.endswith("__")):
                raise MXNetError(
                    f"Cannot find argument '{key}' {where}{opdef.did_you_mean(key, self.attrs)} "
                    f"Possible Arguments: {', '.join(self.attrs) or 'none'}"
                )
        return out

    # What `ir` asks of every operator definition.

    def canonical_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Parsed attributes, plus `.stream` (first random stream) and other annotations, which start with a dot."""
        notes = {k: v for k, v in attrs.items() if k.startswith(".")}
        try:
            parsed = self.parse({k: v for k, v in attrs.items() if not k.startswith(".")})
        except MXNetError as e:
            raise IRError(str(e)) from e
        return {**parsed, **notes}

    def infer(
        self, types: Sequence[TensorType], attrs: Mapping[str, Any], regions: Sequence[Graph] = ()
    ) -> tuple[TensorType, ...]:
        """Result types, found by expanding into a scratch graph: what an operator computes is stated once."""
        b = Builder("infer")
        return tuple(v.type for v in self.expand_into(b, [b.input("", t) for t in types], attrs))

    def expand_into(self, b: Any, operands: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Runs the expansion over emitter `b`; always a tuple of all results, hidden ones included."""
        out = self.expand(b, *operands, **{k: v for k, v in attrs.items() if not k.startswith(".")})
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)


OPERATORS: dict[str, Operator] = {}
"""Every operator by each of its names, canonical and aliases."""


def operator(name: str, *, aliases: Sequence[str] = (), **kwargs: Any) -> Callable[[Callable[..., Any]], Operator]:
    """Declares the decorated expansion as operator `name`; the keywords are `Operator`'s fields."""

    def declare(expand: Callable[..., Any]) -> Operator:
        op = Operator(name=name, expand=expand, aliases=tuple(aliases), **kwargs)
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
    import gluonjit.operators  # noqa: F401  (declares them)

    try:
        return OPERATORS[name]
    except KeyError:
        raise MXNetError(f"Operator {name} is not registered{opdef.did_you_mean(name, OPERATORS)}") from None
