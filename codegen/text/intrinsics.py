"""Instructions that LLVM has under another name on each machine, or that only some machines have."""

from __future__ import annotations

from gluonjit.codegen.text.llvm import Function
from gluonjit.ir.machine import Machine

# How a thread treats denormals is in its floating-point control register. All threads of a call compute in the caller's
# mode, as NumPy does there, unless the call wants denormals flushed.


def flush_bits(machine: Machine) -> int:
    """The bits of the register by which denormal operands and results become zero; 0 where none are known."""
    return {"x86": 0x8040, "aarch64": 1 << 24}.get(machine.arch, 0)  # FTZ is bit 15, DAZ bit 6; FZ is bit 24


def float_mode(f: Function) -> str:
    """Reads this thread's register (i64)."""
    if f.target.arch == "x86":
        slot = f.alloca("i32")
        f.intrinsic("llvm.x86.sse.stmxcsr", "void", ("ptr", slot), overload=())
        return f.op(f"zext i32 {f.load('i32', slot)} to i64")
    if f.target.arch == "aarch64":
        return f.intrinsic("llvm.aarch64.get.fpcr", "i64", overload=())
    return "0"


def set_float_mode(f: Function, mode: str) -> None:
    """Writes this thread's register."""
    if f.target.arch == "x86":
        slot = f.alloca("i32")
        f.store("i32", f.op(f"trunc i64 {mode} to i32"), slot)
        f.intrinsic("llvm.x86.sse.ldmxcsr", "void", ("ptr", slot), overload=())
    elif f.target.arch == "aarch64":
        f.intrinsic("llvm.aarch64.set.fpcr", "void", ("i64", mode), overload=())


def pause(f: Function) -> None:
    """What a thread does between two looks at a word that another one is to change."""
    if f.target.arch == "x86":
        f.intrinsic("llvm.x86.sse2.pause", "void", overload=())
    elif f.target.arch == "aarch64":
        f.intrinsic("llvm.aarch64.isb", "void", ("i32", 15), overload=())  # `yield` does nothing on most of them


def finish_streaming(f: Function) -> None:
    """Lets other threads see stores past the caches."""
    if f.target.arch == "x86":
        f.intrinsic("llvm.x86.sse.sfence", "void", overload=())


def time_stamp(f: Function) -> str:
    """A counter that goes on at a constant rate, the same on all cores (i64)."""
    if f.target.arch == "aarch64":  # the cycle counter is not for programs
        return f.op('call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()')
    return f.intrinsic("llvm.readcyclecounter", "i64", overload=())
