"""Targets: what the host is, the named ones, denormals."""

import ctypes
import re
from dataclasses import replace

import pytest

from gluonjit.codegen.target import host, named, of_code
from gluonjit.codegen.text import llvm
from gluonjit.codegen.text.intrinsics import float_mode, flush_bits, set_float_mode
from gluonjit.ir.types import BF16, F16, F32, F64, I8, I16, IRError


def test_host_has_sensible_numbers(monkeypatch):
    monkeypatch.delenv("GLUONJIT_TARGET", raising=False)
    t = host()
    assert t.vector_bits in (128, 256, 512) and t.num_vector_registers in (8, 16, 32)
    assert 8 << 10 <= t.l1 <= t.l2 <= t.l3 or t.l3 == 8 << 20
    assert t == host() and hash(t) == hash(host())


def test_lanes():
    t = named("x86-64-v3")
    assert (t.lanes(F32), t.lanes(F16), t.lanes(F64), t.lanes(I8), t.width) == (8, 8, 4, 32, 8)


def test_element_types_that_are_multiplied():
    """A row is used if the machine has its instruction, and there is a micro-kernel."""
    plain = named("x86-64-v4")
    assert [way.dtype for way in plain.multiplications()] == [F32, F64, BF16, F16, I16]
    assert plain.multiplication(F16).computed_in is F32 and plain.multiplication(F64).sums is F64
    rich = replace(plain, features="+avx512bf16,+avx512vnni")
    ways = {(way.dtype, way.terms): way.has_code for way in rich.multiplications()}
    assert ways[BF16, 2] is False and ways[I8, 4] is False
    assert rich.multiplication(BF16).computed_in is F32 and not rich.multiplies(I8)
    with pytest.raises(IRError, match="no kernel that multiplies i8"):
        rich.multiplication(I8)


def test_rates():
    """Two units that need four cycles; without fused instructions a product takes two of them."""
    fused, unfused = named("x86-64-v3"), named("x86-64-v2")
    assert fused.chains == 8 and fused.multiply_adds == 7
    assert (fused.cycles_per_multiply_add, unfused.cycles_per_multiply_add) == (0.5, 1)
    assert host().line >= 32


@pytest.mark.parametrize(("name", "ways"), [("x86-64-v3", ["divq", "divl"]), ("znver3", ["divq"])])
def test_divisions_are_narrowed_where_wide_ones_are_slow(name, ways):
    t = of_code(named(name))
    module = llvm.Module(t)
    f = module.function("k")
    f.store("i64", f.op("udiv i64 %thread, %nthreads"), "%table", 8)
    assert re.findall(r"\bdiv\w", llvm.assembly(module.text(), t)) == ways


def test_the_environment_overrides(monkeypatch):
    monkeypatch.setenv("GLUONJIT_TARGET", "x86-64-v2")
    assert host() is named("x86-64-v2")
    monkeypatch.setenv("GLUONJIT_TARGET", "x86-64-v33")
    with pytest.raises(IRError, match="unknown target 'x86-64-v33'; there are host, x86-64-v2, x86-64-v3"):
        host()


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_every_named_target_generates_code(name):
    t = named(name)
    module = llvm.Module(t)
    f = module.function("k")
    set_float_mode(f, f.op(f"or i64 {float_mode(f)}, {flush_bits(t)}"))
    text = llvm.assembly(module.text(), t)
    assert {"x86": "ldmxcsr", "aarch64": "FPCR"}[t.arch] in text


def test_denormals_flush_and_come_back():
    t = host()
    if not flush_bits(t):
        pytest.skip("no control register known for this architecture")
    module = llvm.Module(t)
    f = module.function("f", (("double", "x"), ("ptr", "inside")), "double")
    before = float_mode(f)
    set_float_mode(f, f.op(f"or i64 {before}, {flush_bits(t)}"))
    f.store("double", f.op("fmul double %x, 0.5"), "%inside")
    set_float_mode(f, before)
    # Read again from memory: the compiler may reuse the first product, which is the same expression to it.
    f.ret(f.op(f"fmul double {f.op('fadd double %x, 0.0')}, 0.25"))
    loaded = llvm.load(llvm.compile_module(module.text(), t))
    inside = ctypes.c_double(1.0)
    native = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_void_p)(loaded.address("f"))
    smallest = 2.2250738585072014e-308
    assert native(smallest, ctypes.addressof(inside)) == smallest / 4
    assert inside.value == 0.0
