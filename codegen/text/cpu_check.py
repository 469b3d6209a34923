"""Whether the processor that runs a library has the instructions that code in it was compiled for."""

from __future__ import annotations

from collections.abc import Collection

from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import IRError

# Bits of CPUID, after "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2, CPUID, by the names
# that LLVM gives the features: (leaf, index of the register among eax, ebx, ecx, edx): {feature: bit}. Sub-leaf 0.
_BITS: dict[tuple[int, int], dict[str, int]] = {
    (1, 2): {
        "sse3": 0,
        "pclmul": 1,
        "ssse3": 9,
        "fma": 12,
        "cx16": 13,
        "sse4.1": 19,
        "sse4.2": 20,
        "movbe": 22,
        "popcnt": 23,
        "aes": 25,
        "avx": 28,
        "f16c": 29,
    },
    (7, 1): {
        "bmi": 3,
        "avx2": 5,
        "bmi2": 8,
        "avx512f": 16,
        "avx512dq": 17,
        "adx": 19,
        "avx512ifma": 21,
        "avx512cd": 28,
        "sha": 29,
        "avx512bw": 30,
        "avx512vl": 31,
    },
    (7, 2): {
        "avx512vbmi": 1,
        "avx512vbmi2": 6,
        "gfni": 8,
        "vaes": 9,
        "vpclmulqdq": 10,
        "avx512vnni": 11,
        "avx512bitalg": 12,
        "avx512vpopcntdq": 14,
    },
    (0x80000001, 2): {"sahf": 0, "lzcnt": 5, "sse4a": 6, "xop": 11, "fma4": 16, "tbm": 21},
}
_V2 = ("sse3", "ssse3", "cx16", "sse4.1", "sse4.2", "popcnt", "sahf")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_LEVELS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
_OSXSAVE = 27  # of leaf 1, ecx: `xgetbv` tells which registers the system keeps
_YMM, _ZMM = 0x6, 0xE6


def features(target: Machine) -> tuple[str, ...]:
    """What the code may use, and a processor can be asked for."""
    if target.cpu in _LEVELS:
        return _LEVELS[target.cpu]
    known = {name for bits in _BITS.values() for name in bits}
    return tuple(f[1:] for f in target.features.split(",") if f[:1] == "+" and f[1:] in known)


def runs_on(target: Machine, machine: Machine) -> bool:
    """Whether `machine` can run code for `target`, as far as their descriptions tell."""
    return target == machine or target.arch == machine.arch == "x86" and set(features(target)) <= set(features(machine))


def add_check(module: Module, name: str, target: Machine) -> None:
    """Adds `@name() → i1`: whether this processor can run code for `target`."""
    f = module.function(name, (), "i1", linkage="internal")
    if target.arch != "x86":
        f.ret("true")  # the architecture alone: its code uses what every such processor has
        return
    f.ret(_has(f, features(target)))


def _has(f: Function, wanted: Collection[str]) -> str:
    if not wanted:
        raise IRError(f"nothing is known of the features of {f.target.cpu}: choose a --target by name")
    found = "true"

    def both(a: str, b: str) -> str:
        return b if a == "true" else f.op(f"and i1 {a}, {b}")

    highest = {base: _cpuid(f, base)[0] for base in (0, 0x80000000)}
    for (leaf, register), bits in _BITS.items():
        mask = sum(1 << bit for name, bit in bits.items() if name in wanted)
        if mask:
            there = f.op(f"icmp uge i32 {highest[leaf & 0x80000000]}, {leaf}")
            # A processor without the leaf would answer with another one's bits.
            masked = f.op(f"and i32 {_cpuid(f, leaf)[register]}, {mask}")
            found = both(found, f.op(f"and i1 {there}, {f.op(f'icmp eq i32 {masked}, {mask}')}"))
    if "avx" in wanted:
        state = _ZMM if "avx512f" in wanted else _YMM
        with f.exit("i1") as no:
            f.ret(no.params[0])
        keeps = f.op(f"icmp ne i32 {f.op(f'and i32 {_cpuid(f, 1)[2]}, {1 << _OSXSAVE}')}, 0")
        f.leave_if(f.op(f"xor i1 {keeps}, true"), no, "false")  # `xgetbv` is no instruction there
        low = f.op('call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)')
        kept = f.op(f"and i32 {f.op(f'extractvalue {{ i32, i32 }} {low}, 0')}, {state}")
        found = both(found, f.op(f"icmp eq i32 {kept}, {state}"))
    return found


def _cpuid(f: Function, leaf: int) -> list[str]:
    """eax, ebx, ecx and edx of a leaf."""
    kind = "{ i32, i32, i32, i32 }"
    asm = f'asm sideeffect "cpuid", "={{ax}},={{bx}},={{cx}},={{dx}},{{ax}},{{cx}}"(i32 {leaf}, i32 0)'
    pair = f.op(f"call {kind} {asm}")
    return [f.op(f"extractvalue {kind} {pair}, {k}") for k in range(4)]
