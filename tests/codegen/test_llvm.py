"""The text writer and the engine behind it."""

import ctypes

import numpy as np
import pytest

from gluonjit.codegen.target import host, named
from gluonjit.codegen.text import llvm
from gluonjit.ir.types import BOOL, F16, I32, IRError


def integer_function(build, params=(("i64", "n"),)):
    """Compiles an `i64 f(i64 …)` whose body `build(f)` writes and whose result it returns."""
    module = llvm.Module(host())
    f = module.function("f", params, "i64")
    f.ret(str(build(f)))
    loaded = llvm.load(llvm.compile_module(module.text(), host()))
    native = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(params))(loaded.address("f"))
    native.keep = loaded
    return native


def test_loop_bounds_at_run_time():
    def build(f):
        with f.for_("%a", "%b", 3, carried=[("i64", "100")]) as loop:
            loop.next(f.add(loop.carried[0], loop.index))
        return loop.results[0]

    f = integer_function(build, (("i64", "a"), ("i64", "b")))
    for a, b in [(0, 10), (0, 9), (5, 5), (7, 2), (-4, 1)]:
        assert f(a, b) == 100 + sum(range(a, b, 3))


def test_loop_bounds_known():
    def build(f):
        with f.for_(0, 5, carried=[("i64", "0")]) as outer:
            with f.for_(0, 4, carried=[("i64", outer.carried[0])]) as inner:
                inner.next(f.add(inner.carried[0], f.mul(outer.index, inner.index)))
            outer.next(inner.results[0])
        with f.for_(3, 3, carried=[("i64", outer.results[0])]) as none:
            none.next("0")
        return none.results[0]

    assert integer_function(build)(0) == sum(i * j for i in range(5) for j in range(4))


def test_code_added_to_an_outer_scope_runs_before_the_loop():
    def build(f):
        with f.for_(0, "%n", carried=[("i64", "0")]) as loop:
            with f.at(f.root):
                with f.for_(0, 3, carried=[("i64", "1")]) as power:
                    power.next(f.mul(power.carried[0], "%n"))
            loop.next(f.add(loop.carried[0], power.results[0]))
        return loop.results[0]

    assert integer_function(build)(5) == 5**4


def test_repeat_runs_once_at_least():
    def build(f):
        with f.repeat([("i64", "%n"), ("i64", "0")]) as loop:
            value, steps = loop.carried
            half = f.op(f"sdiv i64 {value}, 2")
            loop.next(half, f.add(steps, 1))
            loop.again = f.op(f"icmp sgt i64 {half}, 0")
        return loop.results[1]

    f = integer_function(build)
    assert [f(n) for n in (0, 1, 2, 3, 1000)] == [1, 1, 2, 2, 10]


def test_pure_is_emitted_once_per_scope():
    f = llvm.Module(host()).function("f")
    assert f.pure("add i64 1, 2", f.root) == f.pure("add i64 1, 2", f.root)
    with f.for_(0, 4) as loop:
        inner = f.pure("add i64 1, 2", loop.scope)
        assert inner == f.pure("add i64 1, 2", loop.scope) != f.pure("add i64 1, 2", f.root)


def test_if():
    def build(f):
        slot = f.alloca("i64")
        f.store("i64", 1, slot)
        with f.if_(f.op("icmp sgt i64 %n, 10")):
            f.store("i64", f.mul("%n", 2), slot)
        return f.load("i64", slot)

    f = integer_function(build)
    assert (f(10), f(11)) == (1, 22)


def test_either_computes_one_of_two_values():
    def build(f):
        slot = f.alloca("i64")
        f.store("i64", 0, slot)

        def counted(value):
            with f.for_(0, 3) as loop:
                f.store("i64", f.add(f.load("i64", slot), loop.index), slot)
            return f.add(f.load("i64", slot), value)

        positive = f.op("icmp sgt i64 %n, 0")
        first = f.either(positive, "i64", lambda: counted("%n"), lambda: "-1")
        nested = lambda: f.either(positive, "i64", lambda: "7", lambda: counted(0))  # noqa: E731
        return f.add(first, f.mul(f.either(positive, "i64", nested, nested), 100))

    f = integer_function(build)
    assert (f(5), f(-5)) == (708, 299)


def test_exits_leave_from_within_loops_and_take_values():
    def build(f):
        with f.exit("i64", "i64") as found:
            f.ret(f.add(f.mul(found.params[0], 10), found.params[1]))
        f.leave_if(f.op("icmp slt i64 %n, 0"), found, 0, "%n")
        with f.for_(1, "%n") as i, f.for_(0, 10) as j:
            f.leave_if(f.op(f"icmp eq i64 {f.mul(i.index, j.index)}, 42"), found, i.index, j.index)
        return -1

    f = integer_function(build)
    assert (f(-3), f(6), f(7), f(100)) == (-3, -1, 67, 67)


def test_integers_fold():
    f = llvm.Module(host()).function("f")
    assert f.add(2, 3) == 5 and f.mul(4, 5) == 20 and f.div(17, 5) == 3 and f.mod(17, 5) == 2
    assert f.add("%x", 0) == "%x" and f.mul("%x", 1) == "%x" and f.mul("%x", 0) == 0 and f.min(3, 4) == 3
    assert f.root.lines == []


@pytest.mark.parametrize("target", [host(), named("x86-64-v3")], ids=["host", "v3"])
def test_kernel_with_constant_and_intrinsic(target):
    if target.arch != host().arch or target.vector_bits > host().vector_bits:
        pytest.skip("code for another machine")
    module = llvm.Module(target)
    f = module.function("k")
    x, y = f.table(0), f.table(1)
    n = 4 * target.width
    table = module.constant(np.arange(n, dtype=np.float32))
    assert module.constant(np.arange(n, dtype=np.float32)) == table
    type = llvm.vector(target.width, "float")
    with f.for_(0, n, target.width) as loop:
        a = f.load(type, f.gep("float", x, loop.index), align=4)
        c = f.load(type, f.gep("float", table, loop.index), align=4)
        f.store(type, f.intrinsic("llvm.maxnum", type, (type, a), (type, c)), f.gep("float", y, loop.index), align=4)
    data = llvm.compile_module(module.text(), target)
    assert llvm.undefined_symbols(data) == set()
    a = np.random.default_rng(0).uniform(0, n, n).astype(np.float32)
    out = np.zeros_like(a)
    llvm.load(data).call("k", [a, out])
    np.testing.assert_array_equal(out, np.maximum(a, np.arange(n)))


def test_memset_resolves():
    module = llvm.Module(host())
    f = module.function("k")
    f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    f.call("llvm.memset.p0.i64", "void", ("ptr", f.table(0)), ("i8", 7), ("i64", "%nthreads"), ("i1", "false"))
    data = llvm.compile_module(module.text(), host())
    out = np.zeros(8, np.uint8)
    llvm.load(data).call("k", [out], nthreads=3)
    assert out.tolist() == [7, 7, 7, 0, 0, 0, 0, 0]


def test_hidden_library_calls_are_refused():
    module = llvm.Module(host())
    f = module.function("k")
    x = f.load("float", f.table(0))
    f.store("float", f.intrinsic("llvm.exp", "float", ("float", x)), f.table(0))
    data = llvm.compile_module(module.text(), host())
    if not data.startswith(b"\x7fELF"):
        pytest.skip("symbols are read from ELF objects only")
    with pytest.raises(IRError, match="expf"):
        llvm.load(data)


def test_given_symbols_are_linked():
    seen = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)(seen.append)
    module = llvm.Module(host())
    module.declare("gluonjit_test_notify", "void", ["i64"])
    module.function("k").call("gluonjit_test_notify", "void", ("i64", "%thread"))
    data = llvm.compile_module(module.text(), host())
    address = ctypes.cast(callback, ctypes.c_void_p).value
    loaded = llvm.load(data, {"gluonjit_test_notify": address})
    loaded.call("k", [], nthreads=2)
    assert seen == [0, 1]
    with pytest.raises(IRError, match="no function 'nope'"):
        loaded.address("nope")


def test_engines_are_independent():
    """Many engines at once, released in any order: a machine shared between them would be freed twice."""
    loaded = []
    for k in range(6):
        module = llvm.Module(host())
        f = module.function("k", (("i64", "n"),), "i64")
        f.ret(str(f.add("%n", k)))
        loaded.append(llvm.load(llvm.compile_module(module.text(), host())))
    del loaded[::2]
    for k, engine in zip((1, 3, 5), loaded):
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.address("k"))(1) == k + 1


def test_invalid_ir_shows_the_line():
    module = llvm.Module(host())
    module.function("k").emit("%x = add i32 %nothing, 1")
    with pytest.raises(IRError, match=r"(?s)not valid.*%x = add i32 %nothing, 1"):
        llvm.compile_module(module.text(), host())


def test_literals_are_exact():
    assert llvm.float_literal(1.0) == "0x3FF0000000000000"
    assert llvm.float_literal(0.1) == "0x3FB99999A0000000"
    assert llvm.float_literal(0.1, "double") == "0x3FB999999999999A"
    assert llvm.float_literal(-0.0) == "0x8000000000000000"
    assert llvm.float_literal(1e300) == "0x7FF0000000000000"
    with pytest.raises(IRError):
        llvm.float_literal(1.0, "half")
    assert [llvm.memory_type(d) for d in (F16, BOOL, I32)] == ["half", "i8", "i32"]


def test_pieces_of_code_take_turns():
    f = llvm.Module(host()).function("f", (("float", "x"),), "float")
    results = []

    def piece(constant):
        doubled = f.op("fmul float %x, 2.0")
        shared = f.pure("fadd float %x, 1.0", f.scope)  # written by the first piece, used by all
        results.append(f.op(f"fadd float {shared}, {constant}"))
        f.op(f"fadd float {doubled}, {constant}")

    f.alternate(lambda c=c: piece(c) for c in ("3.0", "5.0"))
    f.ret(f.op(f"fmul float {results[0]}, {results[1]}"))
    operations = [line.split(" = ")[1].split(" ")[0] for line in f.root.lines[:-1]]
    assert operations == ["fmul", "fmul", "fadd", "fadd", "fadd", "fadd", "fadd", "fmul"]
    loaded = llvm.load(llvm.compile_module(f.module.text(), host()))
    assert ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(loaded.address("f"))(2.0) == 6.0 * 8.0


def test_pieces_with_branches_stay_one_after_the_other():
    f = llvm.Module(host()).function("f", (("ptr", "p"), ("i64", "n")))

    def piece(k):
        with f.for_(0, "%n"):
            place = f.gep("i64", "%p", k)
            f.store("i64", f.add(f.load("i64", place), k + 1), place)

    f.alternate(lambda k=k: piece(k) for k in range(2))
    counts = np.zeros(2, np.int64)
    loaded = llvm.load(llvm.compile_module(f.module.text(), host()))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address("f"))(counts.ctypes.data, 3)
    assert counts.tolist() == [3, 6]


def test_an_ended_function_is_its_text():
    module = llvm.Module(host())
    f = module.function("k")
    with f.for_(0, 4) as loop:
        f.store("i64", loop.index, f.gep("i64", f.table(0), loop.index))
    text = f.text()
    f.end()
    assert f.text() == text and not f.root.lines
    x = np.full(4, -1)
    llvm.load(llvm.compile_module(module.text(), host())).call("k", [x])
    assert x.tolist() == [0, 1, 2, 3]
