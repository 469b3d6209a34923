"""What passes and code generation know of the machine they work for.

A `Machine` is a value: they read it and nothing else, so that the same machine gives the same code wherever the
compiler runs. `codegen/target.py` makes those of the host and of known names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gluonjit.common.lazy import cached_property
from gluonjit.ir.types import BF16, F16, F32, F64, I8, I16, I32, DType, IRError

CACHES = (32 << 10, 512 << 10, 8 << 20)
"""Bytes of the data caches of levels 1 to 3 where nothing better is known."""
LINE, PAGE = 64, 4096
"""Bytes of a cache line, and of a page, where nothing better is known."""
ALIGNMENT = LINE
"""Alignment of memory that kernels use, in bytes: a cache line, and the widest vector in use. All code relies on it."""
WORTH_A_THREAD = 8000
"""Nanoseconds of work that make it worth using one more thread."""


@dataclass(frozen=True)
class Multiplication:
    """How elements of a type are multiplied, and the products added up."""

    dtype: DType
    """The type of the factors in memory."""
    computed_in: DType
    """The type of the factors in registers."""
    sums: DType
    terms: int = 1
    """Products that one instruction adds to each lane of a sum."""
    feature: str = ""
    """What the machine must have, in LLVM's spelling."""
    has_code: bool = True
    """Whether there is a micro-kernel (`codegen/kernels/tiles.py`)."""


MULTIPLICATIONS = (
    Multiplication(F32, F32, F32),
    Multiplication(F64, F64, F64),
    Multiplication(BF16, BF16, F32, terms=2, feature="avx512bf16", has_code=False),
    Multiplication(BF16, F32, F32),
    Multiplication(F16, F32, F32),
    Multiplication(I16, I16, I32, terms=2),
    Multiplication(I8, I8, I32, terms=4, feature="avx512vnni", has_code=False),
)
"""The best way first, for each type. A new one is a row here, and a micro-kernel."""


@dataclass(frozen=True)
class Machine:
    """`features` is LLVM's list (`+avx2,-sse4a`), on top of what `cpu` implies. Sizes of caches, lines and pages are
    bytes; caches are as one core sees them, from the system where it tells.

    Rates are not told by any system. They are those of Zen 4 and Zen 5 cores, measured by `benchmarks/kernels.py` and
    `benchmarks/bandwidth.py`, and serve for all: choices depend on ratios, which differ less than rates do."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    num_vector_registers: int
    has_fma: bool
    has_f16: bool
    """Conversions between f16 and f32 are instructions; elsewhere they would be calls into the compiler's library."""
    l1: int = CACHES[0]
    l2: int = CACHES[1]
    l3: int = CACHES[2]
    line: int = LINE
    page: int = PAGE
    l1_ways: int = 8
    """Lines that a set of the first-level cache has, at least. Places that are a multiple of a page apart share one."""
    clock: float = 3.5
    """Cycles per nanosecond."""
    units: int = 2
    """Vector multiply-adds that begin in a cycle; also loads."""
    latency: int = 4
    """Cycles until the result of a multiply-add can be used."""
    l2_rate: float = 32
    l3_rate: float = 25
    memory_rate: float = 10
    """Bytes per cycle that the second-level cache, the third-level cache and the memory deliver to a product."""
    loop_instructions: float = 4
    """Vector instructions per nanosecond in loops."""
    loop_near: float = 60
    loop_far: float = 30
    """Bytes per nanosecond that loops read and write where all fit into the second-level cache, and where not."""

    def multiplications(self) -> Iterator[Multiplication]:
        """All ways that it has."""
        has = set(self.features.split(","))
        return (way for way in MULTIPLICATIONS if not way.feature or f"+{way.feature}" in has)

    @cached_property
    def _ways(self) -> dict[DType, Multiplication]:
        """The best way for each type, of those that there is code for."""
        return {way.dtype: way for way in reversed([*self.multiplications()]) if way.has_code}

    def multiplies(self, dtype: DType) -> bool:
        """Whether kernels multiply elements of the type."""
        return dtype in self._ways

    def multiplication(self, dtype: DType) -> Multiplication:
        """How kernels multiply elements of the type; IRError if they do not."""
        if dtype not in self._ways:
            raise IRError(f"there is no kernel that multiplies {dtype}")
        return self._ways[dtype]

    def sum_lanes(self, dtype: DType) -> int:
        """How many sums of products of such elements a vector register holds."""
        return self.lanes(self.multiplication(dtype).sums)

    @property
    def multiply_adds(self) -> float:
        """Vector multiply-adds per nanosecond."""
        return self.units * self.clock

    @property
    def cycles_per_multiply_add(self) -> float:
        """Cycles of a vector's multiply-add, where many do not wait for each other."""
        return (1 if self.has_fma else 2) / self.units

    @property
    def chains(self) -> int:
        """Multiply-adds that must be in flight at a time to keep all units busy."""
        return self.units * self.latency

    @property
    def arch(self) -> str:
        """`x86`, `aarch64`, or the first part of the triple."""
        name = self.triple.split("-", 1)[0]
        return {"x86_64": "x86", "i686": "x86", "amd64": "x86", "arm64": "aarch64"}.get(name, name)

    @property
    def has_masked_access(self) -> bool:
        """A masked load or store of 32-bit lanes is one instruction."""
        return self.arch == "x86" and self.vector_bits >= 256

    @property
    def masks_stores(self) -> bool:
        """A masked store takes no longer than a whole one. That of AVX2 takes a Zen 3 twelve cycles, as long as several
        narrower stores."""
        return self.arch == "x86" and self.vector_bits == 512

    @property
    def compresses(self) -> bool:
        """Moving the chosen 32-bit lanes of a register together is one instruction."""
        return self.arch == "x86" and self.vector_bits == 512

    def lanes(self, dtype: DType) -> int:
        """How many elements of `dtype` a vector register holds, as they are computed (f16 and bf16 as f32)."""
        return self.vector_bits // max(32 if dtype.is_float else 8, dtype.bits)

    @property
    def width(self) -> int:
        """Lanes of the loops in `codegen/loops/loops`: a register of f32, whatever the dtypes, so that they can mix."""
        return self.vector_bits // 32
