"""What passes and code generation know of the machine they work for.

A `Machine` is a value: they read it and nothing else, so that the same machine gives the same code wherever the
compiler runs. `codegen/target.py` makes those of the host and of known names.
"""

from __future__ import annotations

from dataclasses import dataclass

from gluonjit.ir.types import DType

CACHES = (32 << 10, 512 << 10, 8 << 20)
"""Bytes of the data caches of levels 1 to 3 where nothing better is known."""


@dataclass(frozen=True)
class Machine:
    """`features` is LLVM's list (`+avx2,-sse4a`), on top of what `cpu` implies. Cache sizes are bytes, as one core
    sees them."""

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
    def compresses(self) -> bool:
        """Moving the chosen 32-bit lanes of a register together is one instruction."""
        return self.arch == "x86" and self.vector_bits == 512

    def lanes(self, dtype: DType) -> int:
        """How many elements of `dtype` a vector register holds, as they are computed (f16 and bf16 as f32)."""
        return self.vector_bits // max(32 if dtype.is_float else 8, dtype.bits)

    @property
    def width(self) -> int:
        """Lanes of the loops in `codegen/loops`: a register of f32, whatever the dtypes, so that they can mix."""
        return self.vector_bits // 32
