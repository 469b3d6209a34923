"""Annotations: what passes note of ops, as attributes that start with a dot. Any op may carry them.

Each is declared here, or by whoever adds one, and read through its declaration:

    THREADS = annotation(".threads", "an int", is_count, 0, "fused", "what it means")
    THREADS.of(op)  # the op's, or the default
    b.emit(op.name, operands, {**op.attrs, **THREADS(1)})

The verifier refuses those that are not declared, of another type, or in a graph of an earlier level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gluonjit.ir.dims import Dim, Extent
from gluonjit.ir.kernels.kernel_plan import ANNOTATION, Plan
from gluonjit.ir.types import IRError

if TYPE_CHECKING:
    from gluonjit.ir.graph import Op

T = TypeVar("T")


class Annotation(Generic[T]):
    """`type` is what people read; `fits` says whether a value has it."""

    def __init__(self, name: str, type: str, fits: Callable[[Any], bool], default: T, level: str, meaning: str) -> None:
        self.name, self.type, self.fits, self.default = name, type, fits, default
        self.level = level
        """The first level at which ops may carry it."""
        self.meaning = meaning

    def of(self, op: Op) -> T:
        """The op's value, or the default."""
        return op.attrs.get(self.name, self.default)  # type: ignore[no-any-return]

    def is_on(self, op: Op) -> bool:
        """Whether the op carries it."""
        return self.name in op.attrs

    def __call__(self, value: T) -> dict[str, Any]:
        """The attribute for an op."""
        return {self.name: value}


ANNOTATIONS: dict[str, Annotation[Any]] = {}


def annotation(
    name: str, type: str, fits: Callable[[Any], bool], default: T, level: str, meaning: str
) -> Annotation[T]:
    """Declares one; IRError if its name is taken, or no annotation's."""
    if name[:1] != "." or name in ANNOTATIONS:
        raise IRError(f"annotation {name!r} is declared twice, or its name does not start with a dot")
    made = ANNOTATIONS[name] = Annotation(name, type, fits, default, level, meaning)
    return made


def problem_of(name: str, value: Any) -> str | None:
    """What is wrong with an annotation of that name, if anything."""
    declared = ANNOTATIONS.get(name)
    if declared is None:
        return f"{name} is not a declared annotation (ir/annotations.py)"
    if not declared.fits(value):
        return f"{name} = {value} must be {declared.type}"
    return None


def without(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that are no annotations."""
    return {key: value for key, value in attrs.items() if key[:1] != "."}


def _is_bytes(n: Any) -> bool:
    return isinstance(n, Dim) or (type(n) is int and 0 <= n < 2**63)


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_strides(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        s is None or (isinstance(s, tuple) and all(isinstance(n, Dim) or type(n) is int for n in s)) for s in value
    )


STREAM = annotation(
    ".stream", "an int", _is_count, 0, "traced", "the first random stream of an operator, which `expand` counts on from"
)
TRAINING: Annotation[bool | None] = annotation(
    ".training",
    "a bool",
    _is_flag,
    None,
    "traced",
    "the mode in which an operator was called, where the graph's differs",
)
DETACHED = annotation(".detached", "a bool", _is_flag, False, "traced", "no gradient flows through the op")
GATE: Annotation[int | None] = annotation(
    ".gate",
    "an int",
    _is_count,
    None,
    "traced",
    "a `with_gradient` that serves one gradient alone, even if that will be differentiated again, with a number that "
    "tells such ops apart; a `select` in a gradient, which lets through what is asked for",
)
KERNEL: Annotation[Plan | None] = annotation(
    ANNOTATION,
    "a kernel (`ir/kernels`)",
    lambda value: isinstance(value, Plan),
    None,
    "fused",
    "how the op is computed: the kernel, its tile, and what else `select` decides",
)
GUARD: Annotation[int | None] = annotation(
    ".guard",
    "an int",
    _is_count,
    None,
    "fused",
    "which operand says whether the kernel is right; if not, loops compute the same ([padding](kernels.md#padding))",
)
STRIDES: Annotation[tuple[tuple[Extent, ...] | None, ...]] = annotation(
    ".strides",
    "a tuple",
    _is_strides,
    (),
    "fused",
    "elements between neighbours along each axis, of each operand, then of each result; None for row-major "
    "([windows](#windows))",
)
THREADS = annotation(
    ".threads",
    "an int",
    _is_count,
    0,
    "fused",
    "1: the first thread alone runs the kernel, which is too small to share",
)
SCRATCH: Annotation[Extent] = annotation(
    ".scratch",
    "a number of bytes",
    _is_bytes,
    0,
    "fused",
    "memory that each thread needs for itself while the kernel runs",
)
WORKSPACE: Annotation[Extent] = annotation(
    ".workspace", "a number of bytes", _is_bytes, 0, "fused", "memory that all threads share while the kernel runs"
)
WORKSPACE_OFFSET: Annotation[Extent] = annotation(
    ".workspace_offset", "a number of bytes", _is_bytes, 0, "planned", "where in the arena the workspace lies"
)
