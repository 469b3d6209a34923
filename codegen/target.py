"""The machine that code is made for, and the only place that knows about AVX, NEON and their control registers.

A `Target` is a value: passes and kernels read it and nothing else, so that the same target gives the same code on
whatever machine the compiler runs.
"""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from gluonjit.ir.machine import CACHES, Machine
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError

if TYPE_CHECKING:
    from gluonjit.codegen.llvm import Function


class Target(Machine):
    """A machine, and what LLVM spells otherwise on each."""

    # How a thread treats denormals is in its floating-point control register. All threads of a call compute in the
    # caller's mode, as NumPy does there, unless the call wants denormals flushed.

    @property
    def flush_bits(self) -> int:
        """The bits of the register by which denormal operands and results become zero; 0 where none are known."""
        return {"x86": 0x8040, "aarch64": 1 << 24}.get(self.arch, 0)  # FTZ is bit 15, DAZ bit 6; FZ is bit 24

    def float_mode(self, f: Function) -> str:
        """Emits code that reads this thread's register (i64)."""
        if self.arch == "x86":
            slot = f.alloca("i32")
            f.intrinsic("llvm.x86.sse.stmxcsr", "void", ("ptr", slot), overload=())
            return f.op(f"zext i32 {f.load('i32', slot)} to i64")
        if self.arch == "aarch64":
            return f.intrinsic("llvm.aarch64.get.fpcr", "i64", overload=())
        return "0"

    def set_float_mode(self, f: Function, mode: str) -> None:
        """Emits code that writes it."""
        if self.arch == "x86":
            slot = f.alloca("i32")
            f.store("i32", f.op(f"trunc i64 {mode} to i32"), slot)
            f.intrinsic("llvm.x86.sse.ldmxcsr", "void", ("ptr", slot), overload=())
        elif self.arch == "aarch64":
            f.intrinsic("llvm.aarch64.set.fpcr", "void", ("i64", mode), overload=())

    def pause(self, f: Function) -> None:
        """Emits what a thread does between two looks at a word that another one is to change."""
        if self.arch == "x86":
            f.intrinsic("llvm.x86.sse2.pause", "void", overload=())
        elif self.arch == "aarch64":
            f.intrinsic("llvm.aarch64.isb", "void", ("i32", 15), overload=())  # `yield` does nothing on most of them

    def finish_streaming(self, f: Function) -> None:
        """Emits what lets other threads see stores past the caches."""
        if self.arch == "x86":
            f.intrinsic("llvm.x86.sse.sfence", "void", overload=())


# x86-64 without a number is not among them: it has no instruction that rounds to a whole number.
_X86_64 = "x86_64-unknown-linux-gnu"
_NAMED = {
    "x86-64-v2": Target(_X86_64, "x86-64-v2", "", 128, 16, has_fma=False, has_f16=False),
    "x86-64-v3": Target(_X86_64, "x86-64-v3", "", 256, 16, has_fma=True, has_f16=True),
    "x86-64-v4": Target(_X86_64, "x86-64-v4", "", 512, 32, has_fma=True, has_f16=True),
    "aarch64": Target("aarch64-unknown-linux-gnu", "generic", "", 128, 32, has_fma=True, has_f16=True),
}


def named(name: str) -> Target:
    """A target by its name: `host`, or one of the architecture levels. IRError for an unknown one."""
    if name in ("host", "native"):
        return _host()
    if name not in _NAMED:
        raise IRError(f"unknown target {name!r}{did_you_mean(name, ['host', *_NAMED])}")
    return _NAMED[name]


def host() -> Target:
    """The target to compile for: this machine, or what the environment variable GLUONJIT_TARGET names."""
    return named(os.environ.get("GLUONJIT_TARGET") or "host")


@functools.cache
def _host() -> Target:
    from llvmlite import binding

    binding.initialize_native_target()
    features = binding.get_host_cpu_features()
    triple = binding.get_process_triple()
    arch = triple.split("-", 1)[0]
    if arch in ("x86_64", "amd64", "i686"):
        wide = all(features.get(k) for k in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
        bits = 512 if wide else 256 if features.get("avx2") else 128
        registers = 32 if wide else 16 if arch != "i686" else 8
        has_fma, has_f16 = bool(features.get("fma")), bool(features.get("f16c"))
    else:
        # NEON and its like: 32 registers of 128 bits, fused multiply-add, conversions from and to half.
        bits, registers, has_fma = 128, 32, True
        has_f16 = arch in ("aarch64", "arm64")
    return Target(
        triple,
        binding.get_host_cpu_name(),
        features.flatten(),
        bits,
        registers,
        has_fma,
        has_f16,
        *_cache_sizes(),
    )


def _cache_sizes() -> tuple[int, int, int]:
    """Bytes of the data caches of levels 1 to 3; what the system does not tell is guessed."""
    sizes = list(CACHES)
    if platform.system() == "Linux":
        for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            try:
                kind = (index / "type").read_text().strip()
                level = int((index / "level").read_text())
                text = (index / "size").read_text().strip()
                size = int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]]
            except (OSError, ValueError, KeyError, IndexError):
                continue  # a container that hides it, or a kernel that spells it in another way
            if kind != "Instruction" and 1 <= level <= 3:
                sizes[level - 1] = size
    return sizes[0], sizes[1], sizes[2]
