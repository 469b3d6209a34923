"""What an operator *is*: one definition per name, in one registry that printer, parser, verifier and passes share.

Two vocabularies live in it. `Primitive`s (`ir/primitives/`) are what passes and codegen understand. Front ends add
their own subclasses of `OpDef` whose `expand` turns an op into primitives; `ir` never imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.ir import plugins
from gluonjit.ir.dims import Dim
from gluonjit.ir.types import DType, IRError, TensorType
from gluonjit.ir.types import dtype as as_dtype

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter, Graph

REQUIRED: Any = object()
"""Default of an attribute that must be given."""


RNG_KEY = "rng_key"
"""The name of the value that random operators draw on: an input of the graph, or what a loop's body makes of one."""


class OpDef:
    """An operator's definition.

    `infer(types, attrs, regions)` gives the result types, or raises IRError when operands or attributes do not fit.
    `pure` is False for what must not be merged, dropped or reordered (random numbers).
    """

    name: str
    level: str
    """The vocabulary: 'operator' (expanded away by `expand`), 'primitive', 'host' (a primitive that may run Python),
    'structural' (holds what a pass has put into its region) or 'control' (holds what it runs several times, or
    conditionally)."""
    pure: bool = True
    attr_defaults: Mapping[str, Any] = MappingProxyType({})
    """Each attribute's default, or REQUIRED."""

    # What passes and code generation ask of any op; only primitives answer otherwise (see there).
    elementwise: bool = False
    commutative: bool = False
    predicate: bool = False
    moves: str = ""
    accumulates: str = ""
    instructions: float = 1.0

    @property
    def has_own_kernel(self) -> bool:
        """Whether it is a kernel by itself, without a region: it has no scalar definition that could be fused."""
        return False

    def canonical_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """`attrs` with defaults filled in and values in canonical form; raises IRError for unknown or missing ones."""
        raise NotImplementedError

    def infer(
        self, types: Sequence[TensorType], attrs: Mapping[str, Any], regions: Sequence[Graph]
    ) -> tuple[TensorType, ...]:
        raise NotImplementedError

    def expansion(self, types: Sequence[TensorType], attrs: Mapping[str, Any], training: bool = False) -> Graph:
        """The results of an operator as a graph of primitives over inputs of these types, and a last one named
        `RNG_KEY` if it draws random numbers, on streams counted from 0; its attribute `streams` says how many."""
        raise NotImplementedError

    def with_gradient(self, types: Sequence[TensorType], attrs: Mapping[str, Any], training: bool = False) -> Any:
        """The attributes and regions of the primitive `with_gradient` for an operator of these types; None if its
        gradient is that of its expansion."""
        return None

    def expand_into(self, b: Emitter, operands: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Computes the results over the emitter `b` by primitives; what level 'operator' has and others have not."""
        raise NotImplementedError


@dataclass(eq=False)
class Primitive(OpDef):
    """A primitive, stated in one place.

    * `infer(*types, **attrs)` → a TensorType (or a tuple of them).
    * `eval(*arrays, **attrs)` → ndarray (or a tuple): the NumPy reference. Result dtype and shape must be `infer`'s.
    * `quick(*types, **attrs)`: a function of arrays of these types alone, without open dimensions, that gives the bits
      of `eval` in less time, as it looks at nothing that types tell; it may give a NumPy scalar for a 0-d result. None
      if there is none.
    * `element(s, i, *operands, **attrs)`: the scalar of the result at index `i` (a tuple of index expressions), over
      a handler `s`; each operand is a function from an index tuple to a scalar. None for primitives that only a
      kernel in `codegen/` can compute. `ir/primitives/__init__` documents the handler.

    Its traits are all that passes and code generation know of it beyond its name:

    * `elementwise`: result[i] depends on operand[i] alone; such a primitive may broadcast until `legalize-broadcast`.
    * `commutative`: gives the same bits with its operands swapped. `maximum` and `minimum` do not: of 0.0 and -0.0 they
      may take either.
    * `predicate`: its scalars are bools, whatever its operands are.
    * `moves`: it computes nothing, its elements are those of operands, or known from their index: 'affine' if index
      arithmetic alone finds them, 'lookup' if that takes a comparison or an index that is read.
    * `accumulates`: 'reduction' (of one operand), or 'contraction', a sum of products whose kernel can go on with the
      accumulators (an *anchor* of a fused group).
    * `instructions`: about how many vector instructions an element takes, or a term of what accumulates.

    `vjp` is the rule of its gradient: `vjp(b, g, y, *operands, **attrs)` emits over `b`, an emitter, the cotangent of
    each operand (a tuple; alone if there is one operand), given those of the results. None is a cotangent of zeros,
    given and returned. `g` and `y` (the results) are tuples if there are several. NO_GRADIENT for what is constant
    almost everywhere; None for what has regions, for `passes/differentiate` knows these, or cannot be differentiated.
    """

    name: str
    infer_types: Callable[..., Any]
    eval: Callable[..., Any]
    element: Callable[..., Any] | None = None
    quick: Callable[..., Callable[..., Any] | None] | None = None
    attr_defaults: dict[str, Any] = field(default_factory=dict)
    elementwise: bool = False
    commutative: bool = False
    predicate: bool = False
    moves: str = ""
    accumulates: str = ""
    instructions: float = 1.0
    pure: bool = True
    region_count: int = 0
    vjp: Callable[..., Any] | None = None
    doc: str = ""
    level: str = "primitive"

    @property
    def has_own_kernel(self) -> bool:
        return self.element is None and not self.region_count

    def canonical_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        if not attrs and not self.attr_defaults:
            return {}
        # Attributes that start with a dot are annotations (`ir/annotations.py`): any op may carry them.
        notes = {}
        for key, value in attrs.items():
            if key not in self.attr_defaults:
                if key[:1] != ".":
                    raise IRError(f"{self.name} has no attribute {key!r}{did_you_mean(key, self.attr_defaults)}")
                notes[key] = canonical(value)
        out = {}
        for key, default in self.attr_defaults.items():
            value = attrs.get(key, default)
            if value is REQUIRED:
                raise IRError(f"{self.name} needs the attribute {key!r}")
            out[key] = as_dtype(value) if key == "dtype" and value is not None else canonical(value)
        return {**out, **notes} if notes else out

    def infer(
        self, types: Sequence[TensorType], attrs: Mapping[str, Any], regions: Sequence[Graph]
    ) -> tuple[TensorType, ...]:
        own = {k: v for k, v in attrs.items() if k[:1] != "."} if attrs else {}
        if self.region_count:
            own["regions"] = tuple(regions)
        try:
            result = self.infer_types(*types, **own)
        except TypeError as e:
            if e.__traceback__ is not None and e.__traceback__.tb_next is None:  # the call itself: operand count
                raise IRError(f"{self.name} does not take {len(types)} operand(s)") from e
            raise
        return result if isinstance(result, tuple) else (result,)


def NO_GRADIENT(b: Emitter, *_values: Any, **_attrs: Any) -> None:
    """The `vjp` of what is constant almost everywhere: no operand gets a cotangent."""


def canonical(value: Any) -> Any:
    """One form per attribute value, so that equal ones compare equal: tuples for lists, Python numbers for NumPy's."""
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, (list, tuple)):
        return tuple([v if type(v) in _SIMPLE else canonical(v) for v in value])
    if isinstance(value, np.generic):
        return value.item()
    return value


_SIMPLE = frozenset({int, str, bool, type(None)})
_INTS = frozenset({int})


def attr_key(value: Any) -> Any:
    """A hashable key that is equal exactly for equal attribute values: arrays by content, floats by bit pattern."""
    if type(value) in _SIMPLE:
        return (type(value).__name__, value)
    if isinstance(value, np.ndarray):
        return ("ndarray", value.dtype.str, str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, tuple):
        if _INTS.issuperset(map(type, value)):  # nearly all
            return ("ints", value)
        return tuple([attr_key(v) for v in value])
    if isinstance(value, float):
        return ("float", np.float64(value).tobytes())
    if isinstance(value, (DType, TensorType, Dim)):
        return value
    return (type(value).__name__, value)


REGISTRY: dict[str, OpDef] = {}


def register(op: OpDef, name: str) -> OpDef:
    """Makes `op` known in the IR as `name`; IRError when the name is taken."""
    if name in REGISTRY:
        raise IRError(f"operator {name!r} is declared twice")
    REGISTRY[name] = op
    return op


def primitive(name: str, *, infer: Callable[..., Any], eval: Callable[..., Any], **kwargs: Any) -> Primitive:
    """Declares a primitive. Keyword `attrs` maps each attribute to its default (or REQUIRED)."""
    kwargs["attr_defaults"] = kwargs.pop("attrs", {})
    op = Primitive(name=name, infer_types=infer, eval=eval, **kwargs)
    register(op, name)
    return op


def lookup(name: str) -> OpDef:
    """The definition of `name`; IRError with a suggestion when there is none."""
    try:
        return REGISTRY[name]
    except KeyError:
        if plugins.load() and name in REGISTRY:
            return REGISTRY[name]
        if name.startswith("mx.") and not any(known.startswith("mx.") for known in REGISTRY):
            raise IRError(f"operator {name!r}: MXNet's vocabulary is not loaded; import gluonjit.operators") from None
        raise IRError(f"unknown operator {name!r}{did_you_mean(name, REGISTRY)}") from None


def did_you_mean(name: str, known: Any) -> str:
    """`; did you mean 'x'?` when a known name is near, else the list when it is short, else nothing."""
    import difflib

    names = [str(k) for k in known]
    near = difflib.get_close_matches(name, names, 3)
    if near:
        ratios = [difflib.SequenceMatcher(None, other, name).ratio() for other in near]
        nearest = min(other for other, ratio in zip(near, ratios) if ratio == max(ratios))  # of x_v1 and x_v2, x_v1
        return f"; did you mean {nearest!r}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 12 else ""
