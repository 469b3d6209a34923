"""Kernels compiled ahead, in files and for programs that were seen before."""

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.codegen import program
from gluonjit.codegen.target import host, named, of_code
from gluonjit.gluon import nn
from gluonjit.ir.structure import graph_key
from gluonjit.ir.text import load
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import cache, graph_log, kernel_files, kernel_library
from gluonjit.runtime.artifact import Corrupt
from gluonjit.tools.cli import main
from support.soak import tries


def net(filters=32):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(filters, 3, padding=1, in_channels=32, activation="relu"), nn.Flatten(), nn.Dense(10))
    net.initialize(mx.init.One())
    net.hybridize(dynamic=False)
    return net


X = np.random.default_rng(4).standard_normal((2, 32, 16, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A file of the kernels of `net()`, and the folder of the graphs that it was made of."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GLUONJIT_CACHE", raising=False)
        patch.setenv("GLUONJIT_LLVM_LEVEL", "0")  # as all tests of this folder have it
        patch.setenv("GLUONJIT_CACHE_DIR", str(folder / "cache"))
        patch.setenv("GLUONJIT_GRAPHS", str(folder / "seen"))
        net()(mx.nd.array(X)).wait_to_read()
        patch.delenv("GLUONJIT_GRAPHS")
        assert main(["warm", "--from-log", str(folder / "seen"), "--output", str(folder / "all.kernels")]) == 0
    return folder


@pytest.fixture
def written(monkeypatch, object_cache):
    """The kinds of the kernels that are written from here on, with an empty object cache."""
    kinds = []
    real = program.lower_kernel
    monkeypatch.setattr(program, "lower_kernel", lambda name, op, m: kinds.append(name) or real(name, op, m))
    return kinds


@pytest.fixture
def copy(made, tmp_path, monkeypatch):
    """A copy of the file, which is the only one that is read."""
    path = tmp_path / "copy.kernels"
    shutil.copy(made / "all.kernels", path)
    path.chmod(0o600)
    monkeypatch.setenv("GLUONJIT_KERNELS", str(path))
    kernel_files._files.cache_clear()
    return path


def answer(**how):
    kernel_files._files.cache_clear()
    return net(**how)(mx.nd.array(X)).asnumpy()


def test_kernels_of_a_file_are_not_written_again(written, copy, monkeypatch):
    copy.rename(copy.with_suffix(".there"))
    copy.symlink_to(copy.with_suffix(".there"))
    block = net()
    found = block(mx.nd.array(X)).asnumpy()
    assert not written and "7 of 7 kernels from files" in str(block.explain())
    monkeypatch.setenv("GLUONJIT_KERNELS", "")
    cache.clear()
    assert np.array_equal(answer(), found) and len(written) >= 2


def test_another_width_shares_them(written, copy):
    answer(filters=64)
    assert "fusion" not in written[1:], written  # the dense layer's size is another one


def test_a_folder_of_files(written, copy, tmp_path, monkeypatch):
    copy.rename(tmp_path / f"{host().cpu}.kernels")
    monkeypatch.setenv("GLUONJIT_KERNELS", f"{tmp_path / 'nowhere'}{os.pathsep}{tmp_path}")
    answer()
    assert not written


def test_no_file_is_read_if_the_cache_is_turned_off(written, copy, monkeypatch):
    monkeypatch.setenv("GLUONJIT_CACHE", "0")
    answer()
    assert written


def test_a_file_is_read_where_there_is_no_folder_for_a_cache(written, copy, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(tmp_path / "file"))
    answer()
    assert not written


def foreign(path):
    words = path.read_bytes()
    assert repr(of_code(host())).encode() in words
    kernels = {"0" * 64: b"x"}
    path.write_bytes(b"".join(kernel_files.packed(replace(host(), l1=host().l1 * 2), kernels)))


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def other_sources(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_files, "writers", lambda: b"others")
        path.write_bytes(b"".join(kernel_files.packed(host(), {"0" * 64: b"x"})))


WRONG = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "of another machine": foreign,
    "others may write": lambda path: path.chmod(0o666),
    "of other sources": other_sources,
    "a pipe": pipe,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_read(written, copy, wrong, capsys):
    assert main(["doctor"]) == 0 and f"{copy}: 7 kernels" in capsys.readouterr().out
    WRONG[wrong](copy)
    answer()
    assert written
    assert main(["doctor"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("kernel file"))
    assert line.endswith(f"{copy}: missing") if wrong == "missing" else f"{copy}: not used: " in line


def test_damaged_files(copy):
    """Whatever byte is another one, a kernel is right or not there."""
    whole, rng = copy.read_bytes(), np.random.default_rng(0)
    right = kernel_files.KernelFile.open(copy)
    objects = {key: right.find(key).objects for key in right.kernels}
    header = int.from_bytes(whole[48:56], "little") + 56
    for _ in range(tries(200)):
        data = bytearray(whole)
        data[rng.integers(header if rng.random() < 0.5 else len(data))] ^= int(rng.integers(1, 256))
        copy.write_bytes(data)
        try:
            file = kernel_files.KernelFile.open(copy)
        except Corrupt:
            continue
        missing = [key for key in objects if (found := file.find(key)) is None or found.objects != objects[key]]
        assert all(file.find(key) is None for key in missing) and len(missing) == 1


@pytest.mark.parametrize(
    "words",
    [b"", b"[]", b"{}", b'{"machine": 1, "kernels": []}', b'{"kernels": {"a": 1}}', b"[" * 9999, b"\xff"]
    + [b'{"cpu": 1, "machine": 1, "version": 1, "writers": 1, "kernels": {"a": [Infinity, 1]}}'],
)
def test_headers_of_nonsense(copy, words):
    length = len(words).to_bytes(8, "little")
    copy.write_bytes(kernel_files._MAGIC + hashlib.sha256(words).digest() + length + words)
    with pytest.raises(Corrupt):
        kernel_files.KernelFile.open(copy)


def test_places_outside_of_the_file(copy):
    file = kernel_files.KernelFile.open(copy)
    size = copy.stat().st_size
    for place in ((-1, 10), (0, -1), (size, 1), (2**70, 2**70), (0, 2**70)):
        assert file._replace(kernels={"a": place}).find("a") is None


def test_a_packed_file_says_where_all_lies(tmp_path):
    rng = np.random.default_rng(0)
    for count in (0, 1, 12, 300):
        kernels = {f"{k:064}": rng.bytes(int(rng.integers(1, 5000))) for k in range(count)}
        data = b"".join(kernel_files.packed(host(), kernels))
        (tmp_path / "f").write_bytes(data)
        file = kernel_files.KernelFile.open(tmp_path / "f")
        assert {key: data[at : at + size] for key, (at, size) in file.kernels.items()} == kernels


def test_machines_that_share_code():
    zen = named("znver4")
    noisy = replace(zen, features=f"{zen.features},+aes,-sha,+newer", l3=1 << 22)
    assert of_code(noisy) == of_code(zen) != of_code(replace(noisy, features=noisy.features.replace("+avx2", "-avx2")))
    assert of_code(noisy) != of_code(replace(noisy, l1=1 << 14))


def test_keys_of_kernels_do_not_depend_on_where_the_sources_lie(tmp_path, monkeypatch):
    before = kernel_files.writers()
    kernel_files.writers.cache_clear()
    found = {e.path: e for e in cache.sources(f"gluonjit.{part}" for part in ("codegen", "common", "ir"))}
    assert any(path.endswith("winograd.py") for path in found) and not any("passes" in Path(p).parts for p in found)
    for path in list(found)[::40]:
        os.utime(path)
    assert kernel_files.writers() == before


def test_the_log_has_the_graphs_as_they_were(made):
    paths = list((made / "seen").glob("*.ir"))
    assert len(paths) == 1
    (path,) = paths
    graph = load(path)
    assert graph_log.pipeline_of(path, "") == PIPELINE
    assert graph.level == "traced" and graph_key(graph)


def test_what_is_warm_is_known_to_the_program(made, written):
    assert main(["warm", "--from-log", str(made / "seen")]) == 0
    written.clear()
    block = net()
    block(mx.nd.array(X)).wait_to_read()
    assert not written and block.explain().cache_hits == 1


def test_a_log_that_cannot_be_written_is_a_warning(object_cache, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GLUONJIT_GRAPHS", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="GLUONJIT_GRAPHS: a graph was not kept"):
        answer()


def test_graphs_that_differ_in_their_mode_are_both_logged(object_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("GLUONJIT_GRAPHS", str(tmp_path / "seen"))
    block = nn.Dense(4, in_units=4, activation="relu")
    block.initialize()
    block.hybridize()
    block(mx.nd.ones((2, 4)))
    with mx.autograd.train_mode():
        block(mx.nd.ones((2, 4)))
    monkeypatch.delenv("GLUONJIT_GRAPHS")
    assert len(list((tmp_path / "seen").iterdir())) == 2
    cache.clear()
    assert main(["warm", "--from-log", str(tmp_path / "seen")]) == 0
    assert sum(not e.name.startswith("kernel") for e in cache.entries()) == 2


def test_what_cannot_be_compiled_is_left_out(made, object_cache, tmp_path, capsys):
    shutil.copytree(made / "seen", tmp_path / "seen")
    (tmp_path / "seen" / "a.ir").write_text("graph @a(%x: f32[2] {")
    (tmp_path / "seen" / "b.ir").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "seen" / "c.ir")
    file = str(tmp_path / "f.kernels")
    old = os.umask(0o002)
    try:
        assert main(["warm", "--from-log", str(tmp_path / "seen"), "--output", file]) == 1
    finally:
        os.umask(old)
    out, err = capsys.readouterr()
    assert "7 kernels" in out and "a is left out" in err and "2 of the graphs" in err
    assert len(kernel_files.KernelFile.open(Path(file)).kernels) == 7


def test_kernels_are_made_though_the_whole_graph_is_kept(made, object_cache):
    answer()
    for entry in cache.entries():
        if entry.name.startswith("kernel"):
            cache.remove(entry.path)
    assert main(["warm", "--from-log", str(made / "seen")]) == 0
    assert len(kernel_library.kept()) == 7


@pytest.mark.parametrize("where", ["~nosuchuser/x", "x" * 300, "a:\udcff", "/dev/null/x"])
def test_places_that_there_are_not(written, where, monkeypatch, capsys):
    monkeypatch.setenv("GLUONJIT_KERNELS", where)
    answer()
    assert written and main(["doctor"]) == 0


def test_a_model_of_the_zoo_for_another_machine(tmp_path, capsys, object_cache):
    file = str(tmp_path / "f.kernels")
    shape = ["--input", "2x3x32x32", "--train"]
    assert main(["warm", "mobilenet0.25", *shape, "--target", "x86-64-v2", "--output", file]) == 0
    assert "mobilenet0.25, backward: " in capsys.readouterr().out
    made = kernel_files.KernelFile.open(Path(file))
    assert made.machine == repr(of_code(named("x86-64-v2"))) and len(made.kernels) > 20
    assert not cache.entries()


def test_a_model_of_a_file(tmp_path, capsys, object_cache, root):
    model = [f"{root / 'examples' / 'lenet.py'}:net"]
    assert main(["warm", *model, "--input", "2x1x28x28", "--train"]) == 0
    assert kernel_library.kept()
    assert main(["warm", *model]) == 1
    assert "--input" in capsys.readouterr().err


def test_errors(tmp_path, capsys, object_cache):
    for words, said in (
        ([str(tmp_path)], "there is no graph in"),
        ([str(tmp_path / "no")], "there is no folder"),
        ([str(tmp_path), "--batch", "4"], "--batch, --train and --no-winograd are for models"),
    ):
        assert main(["warm", "--from-log", *words]) == 1
        assert said in capsys.readouterr().err
    assert main(["warm", "resnet18"]) == 1
    assert "did you mean" in capsys.readouterr().err
    assert main(["warm", "mobilenet0.25", "--output", str(tmp_path / "no" / "f")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert main(["warm", "mobilenet0.25", "--batch", "1", "--input", "1x3x32x32", "--input", "2x3"]) == 1
    assert "mobilenet0.25" in capsys.readouterr().err
