"""A module compiled as several objects is the same program."""

import numpy as np
import pytest

from gluonjit.codegen import llvm, parts
from gluonjit.codegen.llvm import Module
from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host
from gluonjit.ir.types import IRError
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import PIPELINE
from gluonjit.runtime.executable import Executable
from support.programs import random_program


@pytest.fixture(autouse=True)
def any_size_pays(monkeypatch):
    monkeypatch.setattr(parts, "_WORTH", 1)


def test_random_programs():
    several = 0
    for seed in range(40):
        program = random_program(seed)
        graph = program.graph.with_attrs(params=tuple(range(0, len(program.graph.inputs), 2)))
        lowered = lower_program(run_passes(graph, PIPELINE, target=host()), host())
        results = []
        for most in (1, 2, 5):
            objects = parts.compile_parts(lowered.module, host(), most)
            assert 1 <= len(objects) <= most
            several += len(objects) > 1
            outputs, updates = Executable(lowered.interface, llvm.load(objects)).run(program.inputs)
            results.append([a.tobytes() for a in (*outputs, *updates)])
        assert results[1:] == results[:1] * 2
    assert several > 40


def module_with_helpers():
    """`@a` and `@b` call the internal `@twice`, which reads a constant; `@a` calls `@b`."""
    module = Module(host())
    twice = module.function("twice", (("double", "x"),), "double", linkage="internal", attributes="noinline")
    factor = twice.load("double", module.constant(np.array([2.0])))
    twice.ret(twice.op(f"fmul double %x, {factor}"))
    for name in "ab":
        f = module.function(name)
        x = f.load("double", f.table(0))
        f.store("double", f.call("twice", "double", ("double", x)), f.table(0))
        if name == "a":
            f.call("b", "void", ("ptr", "%table"), ("i64", 0), ("i64", 1))
    return module


@pytest.mark.parametrize("most", [1, 2])
def test_internal_functions_and_constants_come_along(most):
    objects = parts.compile_parts(module_with_helpers(), host(), most)
    assert len(objects) == most
    x = np.array([1.5])
    llvm.load(objects).call("a", [x])
    assert x[0] == 6


def test_objects_need_each_other():
    one, _ = parts.compile_parts(module_with_helpers(), host(), 2)
    with pytest.raises(IRError, match="which nothing provides"):
        llvm.load(one)


def test_small_modules_stay_whole(monkeypatch):
    monkeypatch.setattr(parts, "_WORTH", 10**6)
    assert len(parts.compile_parts(module_with_helpers(), host(), 4)) == 1


@pytest.mark.parametrize("wrong", ["a", "b"])
def test_errors_come_through(wrong):
    module = module_with_helpers()
    next(f for f in module.functions if f.name == wrong).emit("nonsense")
    with pytest.raises(IRError, match="not valid"):
        parts.compile_parts(module, host(), 2)


def test_through_the_lock_where_there_is_no_way_past_it(monkeypatch):
    from llvmlite.binding import ffi

    class Locked:
        def __init__(self, function):
            self.function = function

        def __call__(self, *args):
            return self.function(*args)

    name = "LLVMPY_TargetMachineEmitToMemory"
    monkeypatch.setitem(ffi.lib._fntab, name, Locked(getattr(ffi.lib, name)))
    objects = parts.compile_parts(module_with_helpers(), host(), 2)
    x = np.array([1.0])
    llvm.load(objects).call("a", [x])
    assert x[0] == 4
