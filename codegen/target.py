"""The machines that code can be made for: the host, and some by name."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gluonjit.ir import plugins
from gluonjit.ir.machine import CACHES, LINE, Machine
from gluonjit.ir.types import IRError

# x86-64 without a number is not among them: it has no instruction that rounds to a whole number.
_X86_64 = "x86_64-unknown-linux-gnu"
_V3 = "sse3 ssse3 sse4.1 sse4.2 sahf cx16 popcnt lzcnt movbe bmi bmi2 avx avx2 fma f16c"
_ZEN3 = f"{_V3} sse4a prfchw"
_ZEN4 = (
    f"{_ZEN3} gfni avx512f avx512bw avx512cd avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni "
    "avx512bitalg avx512vpopcntdq avx512bf16"
)
_ZEN5 = f"{_ZEN4} avx512vp2intersect avxvnni movdiri"
_CHOSEN = (
    *_ZEN5.split(),
    *("fma4", "xop", "tbm", "avx512fp16", "avxifma", "avxneconvert", "avxvnniint8", "avxvnniint16"),
    *("avx10.1", "avx10.2", "egpr", "ndd", "nf", "ccmp", "cf", "push2pop2", "ppx", "zu"),
)
"""Features of x86 that LLVM may use by itself. It uses others, such as those of cryptography, for what asks for them by
name, which no kernel does."""


_DIVIDE_FAST = ("znver3", "znver4", "znver5")
"""CPUs that divide 64 bits as fast as 32, which LLVM does not know: it would look before each division whether 32 bits
do, and take a sixth longer for all code."""


def _chosen(has: Callable[[str], object]) -> str:
    """What LLVM is told of a machine's features."""
    return ",".join(f"{'+' if has(name) else '-'}{name}" for name in _CHOSEN)


def _zen(cpu: str, features: str, l1: int, l2: int) -> Machine:
    wide = "avx512f" in features
    bits, registers = (512, 32) if wide else (256, 16)
    return Machine(_X86_64, cpu, _chosen(features.split().__contains__), bits, registers, True, True, l1, l2, 32 << 20)


_NAMED = {
    "x86-64-v2": Machine(_X86_64, "x86-64-v2", "", 128, 16, has_fma=False, has_f16=False),
    "x86-64-v3": Machine(_X86_64, "x86-64-v3", "", 256, 16, has_fma=True, has_f16=True),
    "x86-64-v4": Machine(_X86_64, "x86-64-v4", "", 512, 32, has_fma=True, has_f16=True),
    "aarch64": Machine("aarch64-unknown-linux-gnu", "generic", "", 128, 32, has_fma=True, has_f16=True),
    "znver3": _zen("znver3", _ZEN3, 32 << 10, 512 << 10),
    "znver4": _zen("znver4", _ZEN4, 32 << 10, 1 << 20),
    "znver5": _zen("znver5", _ZEN5, 48 << 10, 1 << 20),
}


_PAIR_PRODUCTS = {
    128: "llvm.x86.sse2.pmadd.wd",
    256: "llvm.x86.avx2.pmadd.wd",
    512: "llvm.x86.avx512.pmaddw.d.512",
}


def pair_products(machine: Machine) -> str | None:
    """LLVM's name of the instruction that multiplies two vectors of signed 16-bit integers, and adds up the products of
    neighbours; None if the machine has none. With VNNI, LLVM makes one instruction of it and an addition."""
    return _PAIR_PRODUCTS.get(machine.vector_bits) if machine.arch == "x86" else None


def register_target(name: str, machine: Machine) -> None:
    """Makes a machine known by a name, to `--target` and GLUONJIT_TARGET; IRError if the name is taken."""
    if name in ("host", "native") or _NAMED.get(name, machine) != machine:
        raise IRError(f"target {name!r} is declared twice")
    _NAMED[name] = machine


def named(name: str) -> Machine:
    """A target by its name: `host`, or one that is declared. IRError, which lists them, for another name."""
    if name in ("host", "native"):
        return _host()
    if name not in _NAMED:
        plugins.load()
    if name not in _NAMED:
        raise IRError(f"unknown target {name!r}; there are {', '.join(['host', *_NAMED])}")
    return _NAMED[name]


def host() -> Machine:
    """The target to compile for: this machine, or what the environment variable GLUONJIT_TARGET names."""
    return named(os.environ.get("GLUONJIT_TARGET") or "host")


def of_code(machine: Machine) -> Machine:
    """What the code of a kernel depends on, so that machines which differ in nothing else can share it. Passes see the
    whole machine, and what they decide is part of a kernel's name."""
    features = machine.features
    if machine.arch == "x86" and features:
        features = _chosen({f[1:] for f in features.split(",") if f[:1] == "+"}.__contains__)
        if machine.cpu in _DIVIDE_FAST:
            features += ",-idivq-to-divl"
    return replace(machine, features=features, l3=CACHES[2])


@functools.cache
def _host() -> Machine:
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
    return Machine(
        triple,
        binding.get_host_cpu_name(),
        features.flatten(),
        bits,
        registers,
        has_fma,
        has_f16,
        *_caches(),
    )


def _caches() -> tuple[int, int, int, int]:
    """Bytes of the data caches of levels 1 to 3, and of a line; what the system does not tell is guessed."""
    sizes, line = list(CACHES), LINE
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
            if kind != "Instruction" and level == 1:
                with contextlib.suppress(OSError, ValueError):
                    line = int((index / "coherency_line_size").read_text()) or LINE
    return sizes[0], sizes[1], sizes[2], line
