"""What a kernel is to all who do not write its code: a frozen dataclass, the annotation `.kernel` of the ops that it
computes.

    @dataclass(frozen=True)
    class Conv(Plan, kernel="conv"):
        '''Direct convolution of any size, stride, dilation, padding and number of groups.'''

        pixels: Annotated[int, "of a register tile"]
        …

Fields without a default are the kernel's *tile*, which people see as `14×32×7`; others say how else it departs from the
plain form. In texts a plan is `conv(pixels = 14, columns = 32, block = 7)`, or its name alone.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from gluonjit.ir import plugins
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError

if TYPE_CHECKING:
    from gluonjit.ir.graph import Op, Value

ANNOTATION = ".kernel"
"""The attribute of ops that holds their plan; it is declared in `ir/annotations.py`."""
_FILES = ("element_plans", "op_plans", "product_plans")
"""Where plans are; imported when one is asked for by name."""
_KERNELS: dict[str, type[Plan]] = {}
P = TypeVar("P", bound="Plan")


class Plan:
    """How a kernel computes an op. Subclasses are frozen dataclasses whose fields `select` decides; a field's type is
    `Annotated[type, "what it is"]`, of ints, bools, strings of a `Literal`, tuples of them, and None. After that, a
    range says which ints are possible."""

    kernel: ClassVar[str]
    """Its name."""
    shares: ClassVar[str] = ""
    """What threads divide among them."""
    strides: ClassVar[str] = "none"
    """Which values it takes strides of, for people; `takes_strides` says it of an op."""
    why: ClassVar[str] = ""
    """Why it is chosen, where that is the same for all ops."""
    computes: ClassVar[bool] = True
    """False for what is no kernel: the result is memory that other ops' kernels read or write."""
    by_element: ClassVar[bool] = False
    """Whether each element is computed by its definition: any strides, parts of operands and bodies will do."""
    is_product: ClassVar[bool] = False
    """Whether it computes a matrix product or a convolution, and what follows, on the accumulators."""
    reads_lines: ClassVar[bool] = False
    """Whether a register tile reads several rows of the first operand together: if they lay a page apart, they would
    share few sets of the first cache."""
    may_overwrite: ClassVar[bool] = False
    """Whether it can work in place: write a result over an operand that it reads only where it writes."""
    restores_weights: ClassVar[bool] = False
    """Whether products in its body other than the last one are not computed: they undo a transform of the weights."""

    def __init_subclass__(cls, kernel: str = "") -> None:
        if not kernel:
            return
        if kernel in _KERNELS:
            raise IRError(f"kernel {kernel!r} is declared twice")
        cls.kernel = kernel
        _KERNELS[kernel] = cls

    @property
    def tile(self) -> tuple[int, ...]:
        """The numbers that people know it by: sizes of register tiles, then how much a task is."""
        return tuple(getattr(self, f.name) for f in fields(self) if f.default is MISSING)  # type: ignore[arg-type]

    def is_for(self, op: Op) -> bool:
        """Whether the op is of the kind that it computes. The verifier asks; whether shapes fit a tile is up to
        `select`."""
        return True

    @property
    def bypasses_caches(self) -> bool:
        """Whether it writes its results to memory directly."""
        return False

    def packed_operand(self) -> int | None:
        """Which operand holds packed weights, if one does. Only kernels of the same graph write it."""
        return None

    def takes_strides(self, op: Op, k: int, strides: Sequence[int]) -> bool:
        """Whether it can read operand k of `op`, or write result k - len(operands), with these strides."""
        return self.by_element

    def weights_read_once(self, op: Op) -> Value | None:
        """The packed weights of which it reads each element once."""
        return None

    def computing(self, op: Op) -> float | None:
        """The nanoseconds that it computes for, where they do not follow from the primitives in its body."""
        return None

    def remarks(self) -> Iterator[str]:
        """What people should know of how it works."""
        return iter(())

    def backwards(self) -> Plan:
        """The same, but for reading weights from the last to the first, if it can."""
        return self

    def __str__(self) -> str:
        parts = [f"{name} = {_literal(value)}" for name, value in _told(self)]
        return f"{self.kernel}({', '.join(parts)})" if parts else self.kernel

    @classmethod
    def purpose(cls) -> str:
        """What it is for."""
        return (cls.__doc__ or "").strip().partition("\n\n")[0].rstrip(".")

    @classmethod
    @functools.cache
    def parts(cls) -> Mapping[str, Part]:
        """Its fields by name."""
        hints = get_type_hints(cls, include_extras=True)
        found = {}
        for f in fields(cls):  # type: ignore[arg-type]
            hint = hints[f.name]
            type, meaning, *bounds = get_args(hint) if get_origin(hint) is Annotated else (hint, "")
            found[f.name] = Part(type, meaning, f.default, *bounds)
        return found

    @classmethod
    def of(cls: type[P], op: Op) -> P:
        """The plan of an op whose kernel this is; IRError for any other."""
        plan = op.attrs.get(ANNOTATION)
        if not isinstance(plan, cls):
            raise IRError(f"{op.name} is not computed by the kernel {cls.kernel!r}, but by {plan}")
        return plan

    @classmethod
    def with_values(cls, values: Mapping[str, Any]) -> Plan:
        """The plan with these values of fields; IRError if one is unknown, missing, of another type, or
        out of bounds."""
        parts = cls.parts()
        for name, value in values.items():
            if name not in parts:
                raise IRError(f"kernel {cls.kernel!r} has no field {name!r}{did_you_mean(name, parts)}")
            if not _is_a(value, parts[name].type):
                raise IRError(f"kernel {cls.kernel!r}: {name} = {value!r} is no {_name(parts[name].type)}")
            if (known := parts[name].bounds) is not None and value not in known:
                raise IRError(f"kernel {cls.kernel!r}: {name} = {value} is not from {known[0]} to {known[-1]}")
        for name, part in parts.items():
            if part.default is MISSING and name not in values:
                raise IRError(f"kernel {cls.kernel!r} needs the field {name!r}")
        return cls(**values)


class Part:
    """A field of a plan."""

    def __init__(self, type: Any, meaning: str, default: Any, bounds: range | None = None) -> None:
        self.type, self.meaning, self.default, self.bounds = type, meaning, default, bounds


def find_kernel(name: str) -> type[Plan]:
    """The kernel of that name; IRError with a suggestion if there is none."""
    if name not in _KERNELS:
        _import_all()
    if name not in _KERNELS:
        plugins.load()
    if name not in _KERNELS:
        raise IRError(f"unknown kernel {name!r}{did_you_mean(name, _KERNELS)}")
    return _KERNELS[name]


def all_kernels() -> Mapping[str, type[Plan]]:
    """Every kernel by name."""
    _import_all()
    plugins.load()
    return dict(sorted(_KERNELS.items()))


@functools.cache
def _import_all() -> None:
    package = __name__.rpartition(".")[0]
    for module in _FILES:
        import_module(f"{package}.{module}")


def _is_a(value: Any, type: Any) -> bool:
    """Whether the value has a type that fields may have."""
    origin, args = get_origin(type), get_args(type)
    if origin in (Union, types.UnionType):
        return any(_is_a(value, t) for t in args)
    if origin is Literal:
        return value.__class__ is str and value in args
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(v, args[0]) for v in value)
    return value is None if type in (None, types.NoneType) else value.__class__ is type


def _name(type: Any) -> str:
    return getattr(type, "__name__", None) or str(type)


def _literal(value: Any) -> str:
    """The value as `ir/printer.py` writes it."""
    if isinstance(value, tuple):
        parts = ", ".join(map(_literal, value))
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _told(plan: Plan) -> Iterator[tuple[str, Any]]:
    """The fields that differ from their defaults, with their values."""
    for f in fields(plan):  # type: ignore[arg-type]
        value = getattr(plan, f.name)
        if f.default is MISSING or value != f.default:
            yield f.name, value
