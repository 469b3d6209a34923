"""The object cache: what it holds is used, anything else is compiled anew."""

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import passes
from gluonjit.codegen.target import host
from gluonjit.execution import backends
from gluonjit.execution.backends import register_backend
from gluonjit.gluon import nn
from gluonjit.ir.graph import Builder
from gluonjit.ir.opdef import REGISTRY, primitive
from gluonjit.ir.types import BF16, F32, I64, TensorType
from gluonjit.passes import manager
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import build, cache, native
from gluonjit.runtime.artifact import Artifact, Corrupt, pack, unpack
from gluonjit.runtime.compiler import compile_graph
from gluonjit.tools.cli import main
from support.programs import random_program
from support.soak import tries
from support.threads import at_once


@pytest.fixture
def compiled(monkeypatch):
    """The names of the graphs that were compiled, in order."""
    names = []
    real = build.compiled
    monkeypatch.setattr(build, "compiled", lambda graph, *rest: names.append(graph.name) or real(graph, *rest))
    return names


def net(name="net", scale=2.0, params=(1,)):
    """x[4,16]·w[16,8], scaled, plus a constant table: prepared values, constants, and several kernels."""
    b = Builder(name)
    x, w = b.input("x", TensorType(F32, (4, 16))), b.input("w", TensorType(F32, (16, 8)))
    y = b.mul(b.dot_general(x, w, contract=((1,), (0,))), b.broadcast(b.constant(scale, F32), shape=(4, 8)))
    table = b.constant(np.random.default_rng(0).standard_normal((4, 8)), F32)
    return b.build([b.sort(b.add(y, table), axis=1)[0]], {"params": params})


def inputs():
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 16), (16, 8))]


def result(graph):
    return compile_graph(graph).run(inputs())[0][0]


def test_a_hit_compiles_nothing(object_cache, compiled, monkeypatch):
    first = result(net())
    assert compiled == ["net"] and len(cache.entries()) >= 1
    second = result(net())
    assert compiled == ["net"]
    np.testing.assert_array_equal(second, first)
    np.testing.assert_array_equal(result(net(name="another")), first)  # names are not what it is about
    assert compiled == ["net"]


def test_random_programs(object_cache, compiled):
    for seed in range(tries(8)):
        program = random_program(seed)
        graph = program.graph.with_attrs(params=tuple(range(0, len(program.graph.inputs), 2)))
        cold = compile_graph(graph).run(program.inputs)
        count = len(compiled)
        warm = compile_graph(graph).run(program.inputs)
        assert len(compiled) == count
        for a, b in zip(sum(cold, []), sum(warm, []), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "other",
    [
        lambda: compile_graph(net(scale=2.0000002)),
        lambda: compile_graph(net(params=())),
        lambda: compile_graph(net(), pipeline=PIPELINE.replace("fold, ", "")),
        lambda: compile_graph(net(), target=replace(host(), l2=host().l2 // 2)),
    ],
    ids=["constant", "parameters", "pipeline", "target"],
)
def test_anything_else_misses(object_cache, compiled, other):
    compile_graph(net())
    other()
    assert len(compiled) == 2
    other()
    assert len(compiled) == 2


def test_another_compiler_misses(object_cache, compiled, monkeypatch):
    compile_graph(net())
    monkeypatch.setattr(cache, "compiler", lambda: b"another version")
    compile_graph(net())
    assert len(compiled) == 2


def test_changed_sources_are_another_compiler(tmp_path, monkeypatch):
    source = tmp_path / "a.py"
    source.write_text("x = 1\n")
    (tmp_path / "data.txt").write_text("not a source")
    assert any(path.endswith("structure.py") for path, _, _ in cache._own_sources())
    monkeypatch.setattr(cache, "sources", lambda packages: cache._sources(tmp_path))
    before = list(cache._own_sources())
    assert len(before) == 1
    os.utime(source, ns=(0, 1_700_000_000_999_999_999))
    now = list(cache._own_sources())
    assert now != before
    os.utime(source, (0, 1_700_000_000))  # what is left of a time in the image of a container
    assert list(cache._own_sources()) == now


def test_watching_passes_run_in_any_case(object_cache, compiled):
    compile_graph(net())
    seen = []
    compile_graph(net(), after=lambda name, *rest: seen.append(name))
    assert "fuse" in seen and len(compiled) == 2


def test_what_others_define_is_not_kept(object_cache):
    primitive("test_twice", infer=lambda x: x, eval=lambda x: x * 2, element=lambda s, i, x: s.add(x(i), x(i)))
    try:
        b = Builder("net")
        (y,) = b.emit("test_twice", [b.input("x", TensorType(F32, (4,)))])
        assert cache.graph_cache_key(b.build([y]), PIPELINE, host()) is None
    finally:
        del REGISTRY["test_twice"]


def test_what_others_define_within_a_loop_is_not_kept(object_cache):
    primitive("test_twice", infer=lambda x: x, eval=lambda x: x * 2, element=lambda s, i, x: s.add(x(i), x(i)))
    try:
        body, b = Builder("body"), Builder("net")
        body.input("i", TensorType(I64))
        region = body.build(body.emit("test_twice", [body.input("x", TensorType(F32, (4,)))]))
        (y,) = b.emit("loop", [b.input("x", TensorType(F32, (4,)))], {"carried": 1, "trip": 3}, [region])
        assert cache.graph_cache_key(b.build([y]), PIPELINE, host()) is None
    finally:
        del REGISTRY["test_twice"]


def times(graph, factor):
    """The graph with its results multiplied."""
    b = Builder(graph.name)
    inputs = {v: b.input(v.name, v.type) for v in graph.inputs}
    return b.build([b.mul(inputs[graph.inputs[0]], b.constant(factor, F32))])


@pytest.mark.parametrize("kind", ["lambda", "partial", "function"])
def test_passes_of_others_run_each_time(object_cache, kind):
    factor = 2.0

    def multiplied(graph):
        return times(graph, factor)

    run = {"lambda": lambda graph: times(graph, factor), "partial": partial(multiplied), "function": multiplied}[kind]
    manager.register_pass("test-times", doc="Multiplies.")(run)
    try:
        pipeline = PIPELINE.replace("expand", "expand, test-times")
        register_backend("test", lambda graph, options: compile_graph(graph, pipeline=pipeline))
        x = mx.nd.ones((3,))
        for factor in (2.0, 5.0):  # as if the pass had been edited between two runs
            block = nn.HybridLambda("identity")
            block.hybridize(backend="test")
            assert block(x).asnumpy().tolist() == [factor] * 3
    finally:
        del manager._PASSES["test-times"], backends._backends["test"]


# ---- damage


def test_an_entry_under_another_name(object_cache, compiled):
    want = result(net())
    b = Builder("other")
    x = b.input("x", net().inputs[0].type)
    other = b.build([b.neg(x)])
    run = compile_graph(other)
    paths = {e.name: e.path for e in cache.entries()}
    paths["net"].write_bytes(paths["other"].read_bytes())
    compiled.clear()
    np.testing.assert_array_equal(result(net()), want)
    assert compiled == ["net"] and run.n_outputs == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "device", "link", "huge"])
def test_what_is_no_entry(object_cache, compiled, tmp_path, kind):
    want = result(net())
    (path,) = [e.path for e in cache.entries() if e.name == "net"]
    whole = path.read_bytes()
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "link":
        (tmp_path / "elsewhere").write_bytes(whole)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        with path.open("wb") as f:
            f.truncate(1 << 40)
    compiled.clear()
    for _ in range(2):
        np.testing.assert_array_equal(result(net()), want)
    assert compiled == ["net"] * (2 if kind == "folder" else 1)
    assert [e.name for e in cache.entries()].count("net") == (kind != "folder")
    cache.clear()
    assert [p for p in object_cache.iterdir() if not p.is_dir()] == []


def damages(data):
    """The bytes with one changed in each region, and cut off in each."""
    header = 56 + int.from_bytes(data[48:56], "little")
    regions = {"magic": 3, "sum": 20, "length": 48, "header": 70, "object": header + 100, "constants": len(data) - 5}
    for name, at in regions.items():
        yield f"{name} changed", data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
        yield f"cut off in {name}", data[:at]
    yield "empty", b""
    yield "longer", data + b"\0"


def test_damaged_entries_are_replaced(object_cache, compiled):
    want = result(net())
    (path,) = [e.path for e in cache.entries() if e.name == "net"]
    whole = path.read_bytes()
    for what, data in damages(whole):
        path.write_bytes(data)
        with pytest.raises(Corrupt):
            unpack(path.stem, data)
        compiled.clear()
        np.testing.assert_array_equal(result(net()), want, what)
        assert compiled == ["net"], what
        assert path.read_bytes() == whole, what


def test_a_sum_that_fits_nonsense():
    good = pack("key", Artifact("x", [b"code"]))
    assert unpack("key", good).objects == [b"code"]
    for rest in (b"", b"\x05" + 7 * b"\0" + b"[1,2]", b"\x02" + 7 * b"\0" + b"{}", b"\xff" * 20):
        with pytest.raises(Corrupt):
            unpack("key", good[:16] + hashlib.sha256(rest).digest() + rest)


@pytest.mark.parametrize("words", [[], ["f32", [2]], ["f32", {}], [["f32"], 2], ["f31", 2]], ids=str)
def test_a_sum_that_fits_types_of_nonsense(words):
    header = {"key": "key", "name": "x", "objects": [], "arrays": [words]}
    text = json.dumps(header).encode()
    rest = len(text).to_bytes(8, "little") + text + bytes(64)
    with pytest.raises(Corrupt):
        unpack("key", b"gluonjit object4" + hashlib.sha256(rest).digest() + rest)


def test_constants_of_every_kind(object_cache, compiled):
    values = [
        np.arange(1000, dtype=np.int64).reshape(10, 100),
        np.zeros((0, 3), np.float32),
        np.linspace(-1, 1, 999).astype(BF16.numpy),
        np.random.default_rng(0).random(300) < 0.5,
        np.float64(0.1),
    ]
    b = Builder("net")
    graph = b.build([b.constant(v) for v in values])
    for _ in range(2):
        outputs, _ = compile_graph(graph).run([])
        for got, want in zip(outputs, values, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()
    assert compiled == ["net"]


# ---- the folder


def test_modes(object_cache):
    compile_graph(net())
    assert stat.S_IMODE(object_cache.stat().st_mode) == 0o700
    for entry in cache.entries():
        assert stat.S_IMODE(entry.path.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")
@pytest.mark.parametrize("wrong", ["users may write", "another user", "not a folder"])
def test_an_unsafe_folder_is_not_used(object_cache, compiled, monkeypatch, wrong):
    compile_graph(net())
    if wrong == "users may write":
        object_cache.chmod(0o777)
    elif wrong == "another user":
        owner = os.geteuid()
        if owner == 0:
            os.chown(object_cache, 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    else:
        object_cache.rename(object_cache.with_name("elsewhere"))
        object_cache.symlink_to("elsewhere")
    assert wrong in cache.why_off()
    compile_graph(net())
    assert len(compiled) == 2


@pytest.fixture
def read_only(object_cache, monkeypatch):
    """A function after which the file system of the cache is read-only. (Root may write to any folder.)"""

    def refused(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    def make():
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
        for function in ("utime", "replace", "unlink"):
            monkeypatch.setattr(os, function, refused)
        monkeypatch.setattr(tempfile, "mkstemp", refused)

    return make


def test_a_folder_that_is_read_only_is_read(object_cache, compiled, read_only):
    want = result(net())
    read_only()
    np.testing.assert_array_equal(result(net()), want)
    assert compiled == ["net"]
    result(net(scale=3.0))
    assert compiled == ["net", "net"] and len([e for e in cache.entries() if e.name == "net"]) == 1
    assert cache.why_off() == "" and "read-only" in cache.why_unchangeable()


def test_commands_say_that_a_folder_is_read_only(object_cache, read_only, root, capsys):
    compile_graph(net())
    count = len(cache.entries())
    read_only()
    assert main(["compile", str(root / "examples/mlp.py:net"), "--input", "1x512"]) == 1
    assert "nothing can be kept in the object cache: " in capsys.readouterr().err
    assert main(["cache", "clear"]) == 0 and main(["cache", "show"]) == 0
    assert f"nothing is removed: {object_cache} is read-only" in capsys.readouterr().out
    assert len(cache.entries()) == count


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root's folders belong to root")
def test_a_folder_of_root_is_trusted(object_cache, compiled, monkeypatch):
    compile_graph(net())
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    compile_graph(net())
    assert compiled == ["net"]


def test_no_folder(object_cache, compiled):
    object_cache.parent.write_text("a file where a folder should be")
    want = result(net())
    assert str(object_cache) in cache.why_off()
    np.testing.assert_array_equal(result(net()), want)
    assert len(compiled) == 2


def test_a_full_disk(object_cache, compiled, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    result(net())
    assert cache.entries() == [] and list(object_cache.iterdir()) == []
    assert compiled == ["net"]


def test_off(object_cache, compiled, monkeypatch):
    monkeypatch.setenv("GLUONJIT_CACHE", "0")
    compile_graph(net())
    compile_graph(net())
    assert len(compiled) == 2 and not object_cache.exists()


def test_eviction(object_cache, monkeypatch):
    size = len(pack("0", Artifact("0", [b"x" * 1000])))
    monkeypatch.setattr(cache, "LIMIT", 3 * size + 10)
    monkeypatch.setattr(cache, "_ROOM", "")
    for k in range(3):
        cache.store(str(k), Artifact(str(k), [b"x" * 1000]))
        os.utime(object_cache / f"{k}.gluonjit", (k, k))
    assert cache.load("0") is not None  # and so is used last
    cache.store("3", Artifact("3", [b"x" * 1000]))
    assert sorted(e.name for e in cache.entries()) == ["0", "2", "3"]
    assert cache.load("1") is None


def test_only_some_entries_make_room(object_cache, monkeypatch):
    looked = []
    monkeypatch.setattr(cache, "_evict", lambda: looked.append(1))
    for k in range(64):
        cache.store(f"{k:x}", Artifact("0", [b"x"]))
    assert len(looked) == 64 // 16


def test_what_is_too_large_is_not_kept(object_cache, monkeypatch):
    monkeypatch.setattr(cache, "_LARGEST", 2000)
    cache.store("a", Artifact("a", [bytes(3000)]))
    cache.store("b", Artifact("b", [bytes(1000)]))
    assert [e.name for e in cache.entries()] == ["b"]


def test_what_dead_writers_left(object_cache, monkeypatch):
    monkeypatch.setattr(cache, "_ROOM", "")
    cache.store("a", Artifact("a", [b"x"]))
    for name, age in (("new-old", 2 * cache._ABANDONED), ("new-young", 0)):
        (object_cache / name).write_bytes(b"half of")
        then = time.time() - age
        os.utime(object_cache / name, (then, then))
    cache.store("b", Artifact("b", [b"x"]))
    assert sorted(p.name for p in object_cache.iterdir()) == ["a.gluonjit", "b.gluonjit", "new-young"]


# ---- several at a time


def test_threads(object_cache):
    want = result(net(scale=0.0))
    wrong = []

    def work(k):
        for j in range(5):
            if not np.array_equal(result(net(scale=float((k + j) % 3 * 0))), want):
                wrong.append(k)
            if j == 2:
                cache.clear()

    at_once(work, 4)
    assert not wrong


SCRIPT = """
import sys
import numpy as np
import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.codegen.text import llvm
mx.random.seed(0)
net = nn.HybridSequential()
net.add(nn.Dense(20, activation="relu"), nn.Dense(5))
net.initialize(mx.init.One())
net.hybridize()
calls = []
parse = llvm.parse
llvm.parse = lambda *args, **kwargs: calls.append(args) or parse(*args, **kwargs)
x = mx.nd.array(np.arange(192.0).reshape(2, 96))
y = net(x).asnumpy()
y = net(x).asnumpy()
assert net._fast_call is not None
passes = [m for m in sys.modules if m in ("gluonjit.passes.fuse", "gluonjit.codegen.loops.loops", "networkx")]
print(y.tobytes().hex(), len(calls), len(passes))
"""


def start():
    return subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)


def finish(process):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    bits, calls, passes = out.split()
    return bits, int(calls), int(passes)


def test_processes_at_once_and_a_warm_one(object_cache):
    """Later ones run no pass."""
    results = [finish(p) for p in [start() for _ in range(2)]]
    bits, calls, passes = max(results, key=lambda result: result[1])
    assert calls >= 3 and passes > 0  # the net, what prepares its parameters, and the native entry
    assert {result[0] for result in results} == {bits}
    assert all(e.name for e in cache.entries())
    assert len([e for e in cache.entries() if not e.name.startswith("kernel ")]) == 2  # and the native entry
    assert all(p.suffix == ".gluonjit" for p in object_cache.iterdir())
    assert finish(start()) == (bits, 0, 0)


def test_the_native_entry(object_cache, monkeypatch):
    from gluonjit.codegen.text import llvm

    native._Entry()
    monkeypatch.setattr(llvm, "parse", None)
    assert native._Entry().loaded.address("fast")


def test_parameters_may_change_after_a_hit(object_cache, compiled):
    x = mx.nd.array(np.random.default_rng(0).standard_normal((2, 6)), dtype="float32")

    def dense():
        block = nn.Dense(3)
        block.initialize(mx.init.One())
        block.hybridize()
        return block

    one, two = dense(), dense()
    np.testing.assert_array_equal(one(x).asnumpy(), two(x).asnumpy())
    assert len(compiled) == 1
    two.weight.set_data(mx.nd.ones((3, 6)) * 2)
    np.testing.assert_allclose(two(x).asnumpy(), 2 * one(x).asnumpy(), rtol=1e-6)


def gradients(again=False):
    """The bits of a recorded call's result, gradients and state, of a new block. `again`: of a second gradient, too."""
    block = nn.HybridSequential()
    block.add(nn.Dense(4, in_units=6), nn.BatchNorm(in_channels=4), nn.Dropout(0.5))
    block.initialize(mx.init.One())
    block.hybridize()
    x = mx.nd.array(np.random.default_rng(0).standard_normal((8, 6)), dtype="float32")
    x.attach_grad()
    mx.random.seed(1)
    with mx.autograd.record():
        y = block(x) ** 2
        if again:
            y = mx.autograd.grad(y, [x], create_graph=True)[0]
    y.backward()
    found = [y, x.grad, block[1].running_mean.data(), *(p.grad() for p in block[0].collect_params().values())]
    return b"".join(a.asnumpy().tobytes() for a in found)


def test_a_gradient_that_is_known_is_not_made_again(object_cache, compiled, monkeypatch):
    first, second = gradients(), gradients(again=True)
    made = len(compiled)
    assert gradients(again=True) == second
    monkeypatch.setattr(passes, "run_passes", None)
    assert gradients() == first and len(compiled) == made


def test_nonsense_about_gradients_is_not_believed(object_cache, compiled):
    first = gradients()
    known = [e for e in cache.entries() if e.name.startswith("gradient of ")]
    assert len(known) >= 4  # heads, what the gradient reads, both halves
    for facts in (7, [[0]], {"saved": 0, "backward": {}}, "no key", None):
        for e in known:
            e.path.write_bytes(pack(e.path.stem, Artifact("gradient of it", [], facts=facts)))
        assert gradients() == first
    made = len(compiled)
    for e in cache.entries():
        if e.name.endswith(("_forward", "_backward")):
            e.path.unlink()
    assert gradients() == first and len(compiled) == made + 2
