"""A module compiled as several objects, while it is being written, is the same program."""

import re

import numpy as np
import pytest

from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host
from gluonjit.codegen.text import compile_parts, llvm
from gluonjit.codegen.text.compile_parts import Parts
from gluonjit.codegen.text.llvm import Module
from gluonjit.ir.graph import Builder
from gluonjit.ir.types import F32, IRError, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime.executable import Executable
from support.programs import random_program


@pytest.fixture(autouse=True)
def each_function_is_a_part(monkeypatch):
    monkeypatch.setattr(compile_parts, "_PART", 1)


def compiled(module, threads=2):
    with Parts(module, host(), threads) as made:
        for f in module.functions:
            made.add([f])
        return made.finish()


def test_random_programs(monkeypatch):
    several = 0
    for seed in range(3):
        program = random_program(seed)
        graph = program.graph.with_attrs(params=tuple(range(0, len(program.graph.inputs), 2)))
        planned = run_passes(graph, PIPELINE, target=host())
        results, made = [], []
        for threads, size in ((1, 1), (5, 1), (2, 10**9)):
            monkeypatch.setattr(compile_parts, "_PART", size)
            module = Module(host())
            with Parts(module, host(), threads) as run:
                lowered = lower_program(planned, host(), module, run.add)
                made.append(run.finish())
            outputs, updates = Executable(lowered.interface, llvm.load(made[-1])).run(program.inputs)
            results.append([a.tobytes() for a in (*outputs, *updates)])
        assert results[1:] == results[:1] * 2
        assert made[0] == made[1]  # whatever the number of threads
        assert len(made[2]) <= 2  # what runs in every call, and what runs cold
        several += len(made[0]) > 2
    assert several == 3


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


@pytest.mark.parametrize("threads", [1, 2])
def test_internal_functions_and_constants_come_along(threads):
    objects = compiled(module_with_helpers(), threads)
    assert len(objects) == 2
    x = np.array([1.5])
    llvm.load(objects).call("a", [x])
    assert x[0] == 6


@pytest.mark.parametrize("threads", [1, 3])
def test_tells_how_far_it_is(threads):
    shares = []
    module = module_with_helpers()
    with Parts(module, host(), threads) as made:
        for f in module.functions:
            made.add([f])
        made.finish(shares.append)
    assert shares[-1] == 1 if threads == 1 else set(shares) <= {0.5, 1.0}


def test_objects_need_each_other():
    one, _ = compiled(module_with_helpers())
    with pytest.raises(IRError, match="which nothing provides"):
        llvm.load(one)


def test_small_modules_stay_whole_and_start_no_thread(monkeypatch):
    monkeypatch.setattr(compile_parts, "_PART", 10**6)
    monkeypatch.setattr(compile_parts.threading, "Thread", None)
    assert len(compiled(module_with_helpers(), 4)) == 1


def test_functions_that_run_seldom_are_objects_of_their_own(monkeypatch):
    monkeypatch.setattr(compile_parts, "_PART", 10**6)
    module = module_with_helpers()
    next(f for f in module.functions if f.name == "b").is_cold = True
    fast, quick = compiled(module)
    with pytest.raises(IRError, match="which nothing provides"):
        llvm.load(fast)
    llvm.load(quick)  # @b calls nothing outside
    x = np.array([1.5])
    llvm.load([fast, quick]).call("a", [x])
    assert x[0] == 6


def test_what_prepares_parameters_runs_seldom_and_main_only_calls():
    b = Builder("net", "traced")
    x, w = (b.input(name, TensorType(F32, (8, 8))) for name in "xw")
    graph = b.build([b.dot_general(x, b.exp(w), contract=((1,), (0,)))], {"params": (1,)})
    module = Module(host())
    lower_program(run_passes(graph, PIPELINE, target=host()), host(), module)
    cold = {f.name for f in module.functions if f.is_cold}
    calls = re.findall(r"@(k[\w.]+)", next(f.text() for f in module.functions if f.name == "main"))
    assert {"prepare_0_w.prepared", "main"} <= cold and calls and cold.isdisjoint(calls)


@pytest.mark.parametrize("wrong", ["a", "b"])
@pytest.mark.parametrize("threads", [1, 2])
def test_errors_come_through(wrong, threads):
    module = module_with_helpers()
    next(f for f in module.functions if f.name == wrong).emit("nonsense")
    with pytest.raises(IRError, match="not valid"):
        compiled(module, threads)


def test_threads_end_when_writing_fails():
    module = module_with_helpers()
    with pytest.raises(ZeroDivisionError), Parts(module, host(), 3) as made:
        for f in module.functions:
            made.add([f])
        workers = made._threads
        raise ZeroDivisionError
    assert workers and not any(t.is_alive() for t in workers)


def test_through_the_lock_where_there_is_no_way_past_it(monkeypatch):
    from llvmlite.binding import ffi

    class Locked:
        def __init__(self, function):
            self.function = function

        def __call__(self, *args):
            return self.function(*args)

    name = "LLVMPY_TargetMachineEmitToMemory"
    monkeypatch.setitem(ffi.lib._fntab, name, Locked(getattr(ffi.lib, name)))
    x = np.array([1.0])
    llvm.load(compiled(module_with_helpers())).call("a", [x])
    assert x[0] == 4
