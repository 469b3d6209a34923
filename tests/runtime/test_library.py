"""Libraries that run a model without Python: called through ctypes, by C programs, and looked at with binutils."""

import ctypes
import functools
import json
import os
import shutil
import subprocess
import threading

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.base import MXNetError
from gluonjit.c_library import library_files
from gluonjit.c_library.library import check_folder, compile_library, write
from gluonjit.c_library.library_source import source_of
from gluonjit.codegen.standalone import Status
from gluonjit.codegen.text import elf
from gluonjit.gluon import nn
from gluonjit.ir.types import IRError

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler")


def convolutional():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(6, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(), nn.Dense(16, "tanh"), nn.Dense(5))
    net.initialize(mx.init.Xavier())
    net(mx.nd.ones((2, 3, 12, 12)))
    return net


BATCH = {"data": {0: "batch"}}


def image(batch, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (batch, 3, 12, 12)).astype(np.float32)


def built(folder, net, x):
    library = compile_library(source_of(net, [mx.nd.array(x)], "net"), ["host"])
    net.hybridize()
    y = net(mx.nd.array(x)).asnumpy()
    write(library, folder, [x], [y])
    return Loaded(folder / "libnet.so", "net", False), y


@functools.cache
def compiled_net(is_open):
    """The convolutional net, and its results for `image(4)`."""
    net = convolutional()
    net.hybridize(dynamic=BATCH if is_open else None)
    return net, net(mx.nd.array(image(4))).asnumpy()


@functools.cache
def library_of(is_open, name="net", targets=("host",), packed=True, weights_file=False):
    net, _ = compiled_net(is_open)
    source = source_of(net, [mx.nd.array(image(4))], name, BATCH if is_open else None)
    return compile_library(source, targets, packed=packed, weights_file=weights_file)


def built_convolutional(folder, is_open=False, name="net", **options):
    """The convolutional net, its library in `folder`, and its results for `image(4)`; it is compiled once for all."""
    net, y = compiled_net(is_open)
    write(library_of(is_open, name, **options), folder, [image(4)], [y])
    return net, Loaded(folder / f"lib{name}.so", name, is_open), y


class Loaded:
    def __init__(self, path, name, is_open):
        self.is_open = is_open
        library = ctypes.CDLL(str(path))
        self.functions = {
            f: getattr(library, f"{name}_{f}")
            for f in ("memory", "create", "create_in", "run", "free", "message", "version", "describe")
        }
        self.functions["memory"].restype = ctypes.c_size_t
        for f in ("message", "version", "describe"):
            self.functions[f].restype = ctypes.c_char_p

    def text(self, f, *args):
        return self.functions[f](*args).decode()

    def create(self, threads=1):
        net = ctypes.c_void_p()
        status = self.functions["create"](threads, ctypes.byref(net))
        return status if status else net

    def run(self, net, x, columns=5):
        y = np.full((len(x), columns), np.nan, np.float32)
        sizes = [ctypes.c_int64(len(x))] if self.is_open else []
        status = self.functions["run"](
            net, *sizes, x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p)
        )
        return status if status else y

    def free(self, net):
        self.functions["free"](net)


@needs_cc
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("threads", [1, 5])
def test_one_size_has_pythons_bits(tmp_path, threads, packed):
    _, loaded, y = built_convolutional(tmp_path, packed=packed)
    net = loaded.create(threads)
    for _ in range(3):
        np.testing.assert_array_equal(loaded.run(net, image(4)), y)
    loaded.free(net)


@needs_cc
def test_any_batch_size_has_pythons_bits(tmp_path):
    block, loaded, _ = built_convolutional(tmp_path, True, packed=False)
    net = loaded.create(2)
    for batch in (3, 1, 17, 2, 64, 1):
        np.testing.assert_array_equal(loaded.run(net, image(batch)), block(mx.nd.array(image(batch))).asnumpy())
    loaded.free(net)


@needs_cc
def test_operators_that_draw_in_training_alone(tmp_path):
    """Recurrent layers with dropout, LeakyReLU, and Dropout itself."""
    net = nn.HybridSequential()
    net.add(gluon.rnn.LSTM(4, 2, dropout=0.5, input_size=3), nn.GELU(), nn.LeakyReLU(0.1), nn.Dropout(0.5))
    net.initialize()
    x = np.random.default_rng(0).uniform(-1, 1, (5, 2, 3)).astype(np.float32)
    loaded, y = built(tmp_path, net, x)
    with mx.load(tmp_path / "libnet.so", threads=2) as library:
        np.testing.assert_array_equal(library(x), y)


@needs_cc
def test_two_open_dimensions(tmp_path):
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(4, flatten=False, in_units=4)

        def hybrid_forward(self, F, x):
            y = self.dense(x)
            return F.softmax(F.batch_dot(y, y, transpose_b=True))

    block = Net()
    block.initialize(mx.init.Xavier())
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4)).astype(np.float32)
    dynamic = {"data": {0: "batch", 1: "length"}}
    library = compile_library(source_of(block, [mx.nd.array(x)], "net", dynamic), ["host"])
    write(library, tmp_path)
    block.hybridize(dynamic=dynamic)
    run = ctypes.CDLL(str(tmp_path / "libnet.so"))
    net = ctypes.c_void_p()
    assert run.net_create(1, ctypes.byref(net)) == 0
    for batch, length in ((2, 3), (1, 3), (5, 1), (1, 1), (3, 40)):
        x = np.random.default_rng(batch).uniform(-1, 1, (batch, length, 4)).astype(np.float32)
        y = np.zeros((batch, length, length), np.float32)
        pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (x, y))
        assert run.net_run(net, ctypes.c_int64(batch), ctypes.c_int64(length), *pointers) == 0
        np.testing.assert_allclose(y, block(mx.nd.array(x)).asnumpy(), rtol=0, atol=1e-6)
    run.net_free(net)


@needs_cc
def test_wrong_arguments_are_refused(tmp_path):
    _, loaded, _ = built_convolutional(tmp_path, True, name="two_words")
    run, memory = loaded.functions["run"], loaded.functions["memory"]
    assert loaded.create(0) == 1 and loaded.create(257) == 1 and loaded.functions["create"](1, None) == 1
    net = loaded.create()
    x, y = image(4), np.zeros((4, 5), np.float32)
    here, there = (a.ctypes.data for a in (x, y))
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    assert run(None, size(4), pointer(here), pointer(there)) == 1
    assert run(net, size(4), None, pointer(there)) == 1
    assert run(net, size(4), pointer(here), pointer(there + 1)) == 1
    for n in (0, -1, 1 << 40, -(1 << 63)):
        assert run(net, size(n), pointer(here), pointer(there)) == 2
        assert memory(1, size(n)) == 0
    assert memory(0, size(4)) == 0
    assert run(net, size(4), pointer(here), pointer(there)) == 0
    loaded.free(net)
    loaded.free(None)
    assert "not aligned" in loaded.text("message", 1) and "memory" in loaded.text("message", 3)
    assert loaded.text("message", 99) == "no such status"


@needs_cc
class Checking(gluon.HybridBlock):
    """Refuses what is singular, and rows that are not there."""

    def hybrid_forward(self, F, x):
        row = F.slice(F.cast(x, "int32"), begin=(0, 0), end=(1, 1))
        return F.linalg.inverse(x) + F.take(x, row, mode="raise").reshape((1, -1))


@needs_cc
def test_data_that_are_refused(tmp_path):
    """Calls from several threads, of which every other one is refused."""
    good, singular = 2 * np.eye(5, dtype=np.float32), np.ones((5, 5), np.float32)
    outside = 7 * np.eye(5, dtype=np.float32)
    lib, y = built(tmp_path, Checking(), good)
    assert "singular" in lib.text("message", Status.BAD_DATA)
    wrong = []

    def calls():
        net = lib.create(2)
        for _ in range(20):
            if not (lib.run(net, good) == y).all() or {lib.run(net, x) for x in (singular, outside)} != {6}:
                wrong.append(True)
        lib.free(net)

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and Status.BAD_DATA == 6
    with pytest.raises(MXNetError, match="a matrix is singular"):
        mx.load(str(tmp_path / "libnet.so"))(singular)


def test_the_callers_memory(tmp_path):
    _, loaded, y = built_convolutional(tmp_path, True, name="two_words")
    size = loaded.functions["memory"](2, ctypes.c_int64(4))
    memory = np.zeros(size + 64, np.uint8)
    memory[size:] = 77
    net = ctypes.c_void_p()
    create = loaded.functions["create_in"]
    where = memory.ctypes.data_as(ctypes.c_void_p)
    assert create(2, where, ctypes.c_size_t(1000), ctypes.byref(net)) == 3 and not net
    assert create(2, where, ctypes.c_size_t(size), ctypes.byref(net)) == 0
    np.testing.assert_array_equal(loaded.run(net, image(4)), y)
    assert loaded.run(net, image(5000)) is not None
    assert isinstance(loaded.run(net, image(5000)), int)  # it does not fit
    np.testing.assert_array_equal(loaded.run(net, image(4)), y)
    loaded.free(net)
    assert (memory[size:] == 77).all()


@needs_cc
def test_many_threads(tmp_path):
    block, loaded, _ = built_convolutional(tmp_path, True, name="two_words")
    wanted = {n: block(mx.nd.array(image(n))).asnumpy() for n in (1, 2, 7)}
    shared = loaded.create(2)
    wrong = []

    def work(own):
        net = loaded.create(2) if own else shared
        for _ in range(20):
            wrong.extend(n for n, y in wanted.items() if not np.array_equal(loaded.run(net, image(n)), y))
        if own:
            loaded.free(net)

    threads = [threading.Thread(target=work, args=(k % 2,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    loaded.free(shared)
    assert not wrong


@needs_cc
def test_the_first_target_that_runs_is_used(tmp_path):
    _, loaded, y = built_convolutional(tmp_path, targets=("x86-64-v2", "host") if _is_x86() else ("host",))
    net = loaded.create()
    np.testing.assert_allclose(loaded.run(net, image(4)), y, rtol=0, atol=1e-5)
    assert json.loads(loaded.text("describe"))["inputs"] == [
        {"name": "data", "dtype": "float32", "shape": [4, 3, 12, 12]}
    ]
    loaded.free(net)


def _is_x86():
    from gluonjit.codegen.target import named

    return named("host").arch == "x86"


@needs_cc
def test_c_and_cpp_programs(tmp_path):
    """The stored call is repeated by main.c, against the static and the shared library; the header is C++, too."""
    built_convolutional(tmp_path, True, name="two_words")
    strict = ["-Wall", "-Wextra", "-Werror", "-I", str(tmp_path)]
    for how in ([str(tmp_path / "libtwo_words.a"), "-pthread"], ["-L", str(tmp_path), "-ltwo_words"]):
        program = tmp_path / "check"
        subprocess.run([CC, *strict, str(tmp_path / "main.c"), *how, "-o", str(program)], check=True)
        for threads in "12":
            command = [str(program), str(tmp_path / "check.bin"), threads]
            done = subprocess.run(command, env={"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True)
            assert done.returncode == 0 and "the stored results" in done.stdout
    spoiled = bytearray((tmp_path / "check.bin").read_bytes())
    spoiled[-1] ^= 1
    (tmp_path / "check.bin").write_bytes(spoiled)
    assert subprocess.run(
        [str(tmp_path / "check"), str(tmp_path / "check.bin")], env={"LD_LIBRARY_PATH": str(tmp_path)}
    ).returncode


_CPP = r"""
#include <cmath>
#include <cstdio>
#include <utility>
#include "two_words.hpp"

int main(int argc, char **argv) {
    const int64_t batch = 4;
    std::vector<float> data(TWO_WORDS_DATA_SIZE(batch)), wanted(TWO_WORDS_OUTPUT_SIZE(batch)), output;
    std::FILE *file = std::fopen(argv[argc - 1], "rb");
    if (std::fread(data.data(), 4, data.size(), file) != data.size()) return 1;
    if (std::fread(wanted.data(), 4, wanted.size(), file) != wanted.size()) return 2;
    std::fclose(file);
    two_words_model first(2);
    two_words_model model(std::move(first));
    model.run(batch, data, output);
    if (output != wanted) return 3;
    output.assign(output.size(), 0);
    model.run(batch, data.data(), output.data());
    if (output != wanted) return 4;
    try {
        model.run(batch + 1, data, output);
        return 5;
    } catch (const std::invalid_argument &e) {
        std::puts(e.what());
    }
    try {
        two_words_model none(0);
        return 6;
    } catch (const std::runtime_error &e) {
        std::puts(e.what());
    }
    return two_words_model::version().find("two_words") == 0 ? 0 : 7;
}
"""


@needs_cc
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_cpp_header(tmp_path):
    built_convolutional(tmp_path, True, name="two_words")
    (tmp_path / "a.cc").write_text(_CPP)
    program = str(tmp_path / "a")
    strict = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(tmp_path)]
    libraries = [str(tmp_path / "libtwo_words.a"), "-pthread"]
    subprocess.run(["c++", *strict, str(tmp_path / "a.cc"), *libraries, "-o", program], check=True)
    done = subprocess.run([program, str(tmp_path / "check.bin")], capture_output=True, text=True)
    assert done.returncode == 0, done
    elements = 5 * image(1).size, 4 * image(1).size
    assert f"data has {elements[1]} elements, not {elements[0]}" in done.stdout
    assert "the number of threads is not 1 to 256" in done.stdout


@needs_cc
@pytest.mark.parametrize("packed", [True, False])
def test_weights_in_a_file(tmp_path, packed):
    (net, y), x = compiled_net(True), image(4)
    write(library_of(True, packed=packed, weights_file=True), tmp_path, [x], [y])
    weights, program = tmp_path / "net.weights", str(tmp_path / "check")
    assert (tmp_path / "libnet.so").read_bytes().find(net[0].weight.data().asnumpy().tobytes()) < 0

    strict = ["-Wall", "-Wextra", "-Werror", "-I", str(tmp_path), str(tmp_path / "libnet.a"), "-pthread"]
    subprocess.run([CC, str(tmp_path / "main.c"), *strict, "-o", program], check=True)

    def run(path):
        command = [program, str(tmp_path / "check.bin"), str(path), "2"]
        return subprocess.run(command, capture_output=True, text=True)

    assert run(weights).returncode == 0
    other = bytearray(weights.read_bytes())
    for name, content in {
        "short": other[:-1],
        "long": other + b"0",
        "empty": b"",
        "another": other[:20] + b"?" + other[21:],  # its sum
        "no weights": b"?" + other[1:],
    }.items():
        (tmp_path / name).write_bytes(content)
        assert run(tmp_path / name).stderr.startswith("create: the file of weights cannot be read, or is not the one")
    assert run(tmp_path).returncode == run(tmp_path / "none").returncode == 1

    with mx.load(tmp_path / "libnet.so", threads=2) as loaded:
        for batch in (1, 4, 9):
            np.testing.assert_array_equal(loaded(image(batch)), net(mx.nd.array(image(batch))).asnumpy())
    # Null paths, memory of the caller, and a net that cannot be made.
    functions, made = Loaded(tmp_path / "libnet.so", "net", True).functions, ctypes.c_void_p()
    assert functions["create"](1, None, ctypes.byref(made)) == Status.BAD_ARGUMENT
    path = os.fsencode(weights)
    size = functions["memory"](1, ctypes.c_int64(4))
    memory = ctypes.create_string_buffer(size)
    create_in = functions["create_in"]
    assert create_in(1, os.fsencode(tmp_path), memory, ctypes.c_size_t(size), ctypes.byref(made)) == Status.BAD_WEIGHTS
    assert not made.value
    assert create_in(1, path, memory, ctypes.c_size_t(size), ctypes.byref(made)) == Status.OK
    given, got = np.ascontiguousarray(x), np.empty_like(y)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (given, got)]
    assert functions["run"](made, ctypes.c_int64(4), *pointers) == Status.OK
    np.testing.assert_array_equal(got, y)
    functions["free"](made)
    weights.unlink()
    with pytest.raises(MXNetError, match="file of weights"):
        mx.load(tmp_path / "libnet.so")(x)


@needs_cc
def test_names_that_mean_something_in_c(tmp_path):
    """Of inputs and outputs: they get others in the header."""

    class Sum(gluon.HybridBlock):
        def hybrid_forward(self, F, a, b, c):
            return a + b, b * c

    net, arrays = Sum(), [mx.nd.ones((2, 3)) * k for k in (1, 2, 3)]
    net.hybridize()
    results = [y.asnumpy() for y in net(*arrays)]
    source = source_of(net, arrays, "net")
    source.inputs, source.outputs = ("file", "free", "2x"), ("check", "class")
    write(compile_library(source, ["host"]), tmp_path, [x.asnumpy() for x in arrays], results, shared=False)
    strict = ["-Wall", "-Wextra", "-Werror", "-I", str(tmp_path)]
    program = tmp_path / "check"
    libraries = [str(tmp_path / "libnet.a"), "-pthread"]
    subprocess.run([CC, *strict, str(tmp_path / "main.c"), *libraries, "-o", str(program)], check=True)
    assert subprocess.run([str(program), str(tmp_path / "check.bin")]).returncode == 0
    if shutil.which("c++"):
        (tmp_path / "a.cc").write_text('#include "net.hpp"\nint main() { net_model model; }')
        subprocess.run(["c++", *strict, "-c", str(tmp_path / "a.cc"), "-o", str(tmp_path / "a.o")], check=True)


@needs_cc
@pytest.mark.skipif(shutil.which("nm") is None, reason="no binutils")
def test_nothing_but_the_c_library_is_needed(tmp_path):
    built_convolutional(tmp_path)
    listed = subprocess.run(
        ["nm", "-D", str(tmp_path / "libnet.so")], capture_output=True, text=True, check=True
    ).stdout
    defined = {line.split()[-1] for line in listed.splitlines() if " T " in line or " R " in line or " D " in line}
    assert defined == {f"net_{f}" for f in "memory create create_in run free message version describe".split()}
    needed = subprocess.run(["ldd", str(tmp_path / "libnet.so")], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0] for line in needed.splitlines()}
    assert all(n.startswith(("linux-vdso", "libc.", "libm.", "libpthread", "/lib", "ld-")) for n in names), names


@needs_cc
@pytest.mark.skipif(shutil.which("valgrind") is None or not _is_x86(), reason="no valgrind")
def test_valgrind(tmp_path):
    """x86-64-v3, because valgrind has no AVX-512."""
    _, loaded, y = built_convolutional(tmp_path, targets=("x86-64-v3",))
    program = tmp_path / "check"
    files = [str(tmp_path / "main.c"), str(tmp_path / "libnet.a")]
    subprocess.run([CC, "-g", *files, "-I", str(tmp_path), "-pthread", "-o", str(program)], check=True)
    net = loaded.create()
    (tmp_path / "check.bin").write_bytes(image(4).tobytes() + loaded.run(net, image(4)).tobytes())
    loaded.free(net)
    command = [
        "valgrind",
        "-q",
        "--leak-check=full",
        "--error-exitcode=9",
        str(program),
        str(tmp_path / "check.bin"),
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_another_architecture(tmp_path):
    library = library_of(True, targets=("aarch64",))
    files = {p.name: p for p in write(library, tmp_path, shared=False)}
    assert files["libnet.a"].read_bytes().startswith(b"!<arch>\n")
    assert {data[18] for _, data in library.objects} == {183}  # EM_AARCH64
    assert "net_create" in elf.defined(dict(library.objects)["net_driver.o"])


ARM_CC, EMULATOR = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
CALL = r"""
#include <stdio.h>
#include "net.h"

int main(void) {
    static float data[NET_DATA_SIZE(4)], output[NET_OUTPUT_SIZE(4)];
    net *net;
    if (fread(data, 1, sizeof data, stdin) != sizeof data || net_create(1, &net) != NET_OK) return 2;
    if (net_run(net, 4, data, output) != NET_OK) return 3;
    net_free(net);
    return fwrite(output, 1, sizeof output, stdout) != sizeof output;
}
"""


@pytest.mark.skipif(ARM_CC is None or EMULATOR is None, reason="no gcc-aarch64-linux-gnu, or no qemu-user")
def test_another_architecture_runs(tmp_path):
    """Its results are Python's but for rounding, and have the same bits for every number of threads."""
    (_, y), x = compiled_net(True), image(4)
    write(library_of(True, targets=("aarch64",)), tmp_path, [x], [y], shared=False)
    (tmp_path / "call.c").write_text(CALL)
    for name in ("call", "main"):
        files = [str(tmp_path / f"{name}.c"), str(tmp_path / "libnet.a")]
        options = ["-Wall", "-Wextra", "-Werror", "-static", "-I", str(tmp_path), "-pthread"]
        subprocess.run([ARM_CC, *options, *files, "-o", str(tmp_path / name)], check=True)
    done = subprocess.run([EMULATOR, str(tmp_path / "call")], input=x.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.float32).reshape(y.shape)
    np.testing.assert_allclose(found, y, rtol=0, atol=1e-5 * abs(y).max())
    (tmp_path / "check.bin").write_bytes(x.tobytes() + found.tobytes())
    for threads in ("1", "3"):
        command = [EMULATOR, str(tmp_path / "main"), str(tmp_path / "check.bin"), threads]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and "the stored results" in done.stdout, (threads, done.stdout, done.stderr)


@needs_cc
def test_the_check_of_results_of_other_code(tmp_path):
    (_, y), x = compiled_net(True), image(4)
    write(library_of(True), tmp_path, [x], [y], shared=False, exact=False)
    options = ["-Wall", "-Wextra", "-Werror", "-I", str(tmp_path), str(tmp_path / "libnet.a"), "-pthread"]
    subprocess.run([CC, str(tmp_path / "main.c"), *options, "-o", str(tmp_path / "main")], check=True)

    def status(change):
        stored = y.copy()
        stored[1, 2] += change
        (tmp_path / "check.bin").write_bytes(x.tobytes() + stored.tobytes())
        return subprocess.run([tmp_path / "main", tmp_path / "check.bin"], capture_output=True).returncode

    most = abs(y).max()
    changes = (0, 1e-5 * most, -1e-5 * most, 1e-3 * most, -1e-3 * most, np.nan, np.inf)
    assert [status(change) for change in changes] == [0, 0, 0, 1, 1, 1, 1]


def test_what_stops_halfway_leaves_the_older_files(tmp_path, monkeypatch):
    """They fit together: a new library would not fit an older header."""
    made, other = (compile_library(source_of(nn.Flatten(), [mx.nd.ones((n, 3))], "net"), ["host"]) for n in (2, 4))
    write(made, tmp_path, shared=False)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def pressed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(library_files, "texts", pressed)
    with pytest.raises(KeyboardInterrupt):
        write(other, tmp_path, shared=False)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


# What has no library


def test_files_of_an_earlier_build(tmp_path):
    library = compile_library(source_of(nn.Flatten(), [mx.nd.ones((2, 3))], "net"), ["host"], weights_file=True)
    write(library, tmp_path, [np.ones((2, 3), np.float32)], [np.ones((2, 3), np.float32)], shared=False)
    assert {"net.weights", "check.bin"} <= {path.name for path in tmp_path.iterdir()}
    (tmp_path / "notes.txt").write_text("mine")
    library = compile_library(source_of(nn.Flatten(), [mx.nd.ones((2, 3))], "net"), ["host"])
    written = write(library, tmp_path, shared=False)
    assert {*tmp_path.iterdir()} == {*written, tmp_path / "notes.txt"}
    check_folder(tmp_path, "net")
    (tmp_path / "libnet.so").write_text("another's")
    with pytest.raises(IRError, match="libnet.so is not a file of `gluonjit build`"):
        check_folder(tmp_path, "net")
    write(library, tmp_path, shared=False)
    assert (tmp_path / "libnet.so").read_text() == "another's"


def test_refusals(tmp_path):
    x = mx.nd.ones((2, 3))
    with pytest.raises(IRError, match="cannot begin names in C"):
        compile_library(source_of(nn.Flatten(), [x], "my-net"), ["host"])
    with pytest.raises(IRError, match="several"):
        compile_library(source_of(nn.Flatten(), [x], "net"), ["aarch64", "x86-64-v3"])

    class Random(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x + F.random.uniform(shape=(3,))

    with pytest.raises((IRError, MXNetError), match="random numbers"):
        compile_library(source_of(Random(), [x], "net"), ["host"])

    class Called(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0])

    @mx.operator.register("called_by_a_library")
    class CalledProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Called()

    class Python(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.Custom(x, op_type="called_by_a_library")

    with pytest.raises(IRError, match="Custom cannot be in a library without Python"):
        compile_library(source_of(Python(), [x], "net"), ["host"])

    reserved = source_of(nn.Flatten(), [x], "net", {"data": {0: "int"}})
    with pytest.raises(IRError, match="int means something in C"):
        write(compile_library(reserved, ["host"]), tmp_path, shared=False)

    class Half(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.cast(x, "float16")

    with pytest.raises(IRError, match="C has no type for f16"):
        write(compile_library(source_of(Half(), [x], "net"), ["host"]), tmp_path, shared=False)


# Objects


def test_renamed_symbols_are_found_by_the_archives_index():
    data = elf.data_object("a", b"hello", "x86")
    assert elf.defined(data) == ["a"]
    other = elf.renamed(data, lambda name: f"some_prefix_{name}", lambda name: False)
    assert elf.defined(other) == ["some_prefix_a"]
    whole = elf.archive([("first.o", data), ("second.o", other)])
    assert b"a\0some_prefix_a\0" in whole and whole.count(b"`\n") == 4
    with pytest.raises(IRError, match="not a 64-bit"):
        elf.defined(b"something else")
