"""Packed parameters on disk: processes use what others have kept, and nothing else."""

import os
import shutil

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn
from gluonjit.runtime import cache, executable, prepared_files
from gluonjit.tools.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An object cache for all tests, most of which compile the same net."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def small(monkeypatch, folder):
    """No files at first; and then for nets of a few bytes, too, and sums of files that are new."""
    monkeypatch.delenv("GLUONJIT_CACHE", raising=False)
    monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(folder))
    shutil.rmtree(folder / "objects" / "prepared", ignore_errors=True)
    monkeypatch.setattr(executable, "SMALLEST", 1)
    monkeypatch.setattr(executable.CacheFriendly, "LIMIT", 0)
    monkeypatch.setattr(prepared_files, "_SETTLED", -60.0)
    monkeypatch.setattr(prepared_files, "_sums", {})


@pytest.fixture
def packed(monkeypatch):
    """How many components were computed, rather than found."""
    counts = []
    real = executable.Prepared.refresh

    def refresh(self, inputs, versions, on_disk):
        before = self.content.seen
        changed = real(self, inputs, versions, on_disk)
        assert changed == (before != self.content.seen)
        if changed:
            counts.append(all(r.flags.writeable for r in self.results))  # what is mapped cannot be written to
        return changed

    monkeypatch.setattr(executable.Prepared, "refresh", refresh)
    return counts


def _net(file=None):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        # Large enough for its origin to be known: files/origin.py.
        net.add(nn.Conv2D(64, 3, in_channels=64, padding=1), nn.Activation("relu"), nn.Conv2D(5, 1, in_channels=64))
    if file is None:
        net.initialize(mx.init.Uniform(0.1))
    else:
        net.load_parameters(str(file))
    net.hybridize()
    return net


X = mx.nd.array(np.random.default_rng(0).standard_normal((1, 64, 8, 8)).astype(np.float32))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.params"
    net = _net()
    net.save_parameters(str(path))
    assert not prepared_files.files()  # nobody has asked
    return path


def _kept(file):
    net = _net(file)
    assert net.compile(X, keep=True) > 0
    return net(X).asnumpy()


def test_what_one_process_keeps_another_one_maps(file, packed):
    wanted = _kept(file)
    assert packed and all(packed)
    packed.clear()
    net = _net(file)
    np.testing.assert_array_equal(net(X).asnumpy(), wanted)
    assert packed and not any(packed)
    before = len(prepared_files.files())
    assert net.compile(X, keep=True) > 0 and len(prepared_files.files()) == before


def test_other_parameters_are_packed(file, packed):
    _kept(file)
    net = _net(file)
    net[0].weight.set_data(net[0].weight.data() * 2)
    wanted = _net(file)
    wanted.hybridize(active=False)
    wanted[0].weight.set_data(wanted[0].weight.data() * 2)
    packed.clear()
    np.testing.assert_allclose(net(X).asnumpy(), wanted(X).asnumpy(), rtol=1e-4, atol=1e-5)
    assert True in packed and False in packed  # the first layer, but not the last
    packed.clear()
    net[2].weight.set_data(net[2].weight.data() * 0)
    net[2].bias.set_data(mx.nd.ones(5))
    np.testing.assert_array_equal(net(X).asnumpy(), np.ones((1, 5, 8, 8)))


def test_the_same_elements_from_elsewhere(file, packed):
    """Without a file that they come from, parameters are known by their elements."""
    net = _net(file)
    for p in net.collect_params().values():
        p.set_data(p.data().copy())
        assert p.data().storage().piece() is None
    assert net.compile(X, keep=True) > 0
    packed.clear()
    again = _net(file)
    for p in again.collect_params().values():
        p.set_data(p.data().copy())
    np.testing.assert_array_equal(again(X).asnumpy(), net(X).asnumpy())
    assert packed and not any(packed)


class _Halves(mx.gluon.HybridBlock):
    """Reads both halves of a matrix for its own."""

    def __init__(self, whole):
        super().__init__()
        self.halves = whole[:64], whole[64:]

    def hybrid_forward(self, F, x):
        low, high = self.halves
        return F.dot(x, low, transpose_b=True) / (F.dot(x, high, transpose_b=True) ** 2 + 1)


def test_parts_of_a_parameter(tmp_path):
    """They come from the same piece of a file, and have the same number of elements."""
    path, x = str(tmp_path / "whole.params"), mx.nd.ones((2, 128))
    first = nn.Dense(128, in_units=128, use_bias=False)
    first.initialize(mx.init.Uniform(0.1))
    first.save_parameters(path)
    for keep in (True, True, False):
        dense = nn.Dense(128, in_units=128, use_bias=False)
        dense.load_parameters(path)
        assert dense.weight.data().storage().piece() is not None
        net = _Halves(dense.weight.data())
        wanted = net(x).asnumpy()
        net.hybridize()
        if keep:
            assert net.compile(x, keep=True) > 0
        np.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_file_overwritten_in_place(file, packed):
    """The parameters in memory are no longer those of the file, however its times look."""
    wanted = _kept(file)
    loaded = _net(file)
    other = _net(file)
    for p in other.collect_params().values():
        p.set_data(p.data() * 3)
    other.save_parameters(str(file) + ".new")
    facts, inode = os.stat(file), os.stat(file).st_ino
    with open(file, "r+b") as f:
        f.write(open(str(file) + ".new", "rb").read())
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert os.stat(file).st_ino == inode and os.stat(file).st_size == facts.st_size
    prepared_files._sums.clear()
    np.testing.assert_array_equal(loaded(X).asnumpy(), wanted)
    packed.clear()
    changed = _net(file)
    other.hybridize(active=False)
    np.testing.assert_allclose(changed(X).asnumpy(), other(X).asnumpy(), rtol=1e-4, atol=1e-4)
    assert all(packed)


def test_sums_are_remembered_by_facts_of_the_file(file, monkeypatch):
    _kept(file)
    prepared_files._sums.clear()
    real = prepared_files.hashlib.sha256
    sizes = []

    def sha256(data=b""):
        sizes.append(len(data))
        return real(data)

    monkeypatch.setattr(prepared_files.hashlib, "sha256", sha256)
    _net(file)(X)
    assert sizes and max(sizes) < 1 << 16  # no weight was read


def test_a_file_that_was_just_written_may_change_without_a_trace(file, monkeypatch):
    monkeypatch.setattr(prepared_files, "_SETTLED", 60.0)
    _kept(file)
    assert not [entry for entry in prepared_files.files() if entry.path.parent.name == "sums"]


@pytest.mark.parametrize("damage", ["cut", "grown", "other magic", "folder", "link", "pipe"])
def test_damaged_files_are_not_used(file, packed, damage, tmp_path):
    wanted = _kept(file)
    for entry in prepared_files.files():
        if entry.path.parent.name == "sums":
            continue
        data = entry.path.read_bytes()
        entry.path.unlink()
        if damage == "cut":
            entry.path.write_bytes(data[:-1])
        elif damage == "grown":
            entry.path.write_bytes(data + b"\0")
        elif damage == "other magic":
            entry.path.write_bytes(b"another magic no" + data[16:])
        elif damage == "folder":
            entry.path.mkdir()
        elif damage == "link":
            (tmp_path / entry.path.name).write_bytes(data)
            entry.path.symlink_to(tmp_path / entry.path.name)
        else:
            os.mkfifo(entry.path)
    packed.clear()
    np.testing.assert_array_equal(_net(file)(X).asnumpy(), wanted)
    assert packed and all(packed)


@pytest.mark.parametrize("text", [b"", b"x" * 64, b"\xff" * 64, b"0" * 65])
def test_damaged_sums(file, packed, text):
    wanted = _kept(file)
    for entry in prepared_files.files():
        if entry.path.parent.name == "sums":
            entry.path.write_bytes(text)
    prepared_files._sums.clear()
    np.testing.assert_array_equal(_net(file)(X).asnumpy(), wanted)


def test_another_compiler_packs_anew(file, packed, monkeypatch):
    wanted = _kept(file)
    monkeypatch.setattr(cache, "compiler", lambda: b"another version")
    packed.clear()
    np.testing.assert_array_equal(_net(file)(X).asnumpy(), wanted)
    assert packed and all(packed)


def test_released_parameters(file, packed):
    """What is mapped frees the parameter, too, which comes back from its own file."""
    wanted = _kept(file)
    net = _net(file)
    net.hybridize(static_alloc=True)
    packed.clear()
    np.testing.assert_array_equal(net(X).asnumpy(), wanted)
    assert packed and not any(packed)
    assert net[0].weight.__dict__["_first"] is None
    np.testing.assert_array_equal(net[0].weight.data().asnumpy(), mx.nd.load(str(file))["0.weight"].asnumpy())


def test_the_least_recently_used_files_go(file):
    _kept(file)
    there = prepared_files.files()
    assert sum(e.size for e in there) > 4096
    assert prepared_files.evict() == 0
    assert prepared_files.evict(there[0].size) == len(there) - 1
    assert prepared_files.evict(0) == 1 and not prepared_files.files()


def test_compiling_ahead_draws_no_random_numbers():
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3), nn.Dropout(0.5))
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((2, 3))
    seen = []
    for ahead in (False, True):
        mx.random.seed(7)
        with mx.autograd.train_mode():
            if ahead:
                net.compile(x, keep=True)
            seen.append(net(x).asnumpy())
    np.testing.assert_array_equal(*seen)


def test_a_file_gets_its_name_when_it_is_on_disk(file, monkeypatch):
    """Nobody verifies its contents, which a machine that fails could lose while the name stays."""
    order = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda f: order.append("contents") or sync(f))
    monkeypatch.setattr(os, "replace", lambda *names: order.append("name") or replace(*names))
    _kept(file)
    named = [k for k, what in enumerate(order) if what == "name"]
    kept = [e for e in prepared_files.files() if e.path.parent.name != "sums"]
    assert sum(order[k - 1] == "contents" for k in named if k) >= len(kept) > 0


def test_without_a_cache_nothing_is_kept(file, monkeypatch):
    monkeypatch.setenv("GLUONJIT_CACHE", "0")
    net = _net(file)
    assert net.compile(X, keep=True) == 0
    assert np.isfinite(net(X).asnumpy()).all()


def test_on_the_command_line(file, tmp_path, capsys, packed):
    net = _net(file)
    net(X)
    net.export(str(tmp_path / "net"))
    names = [str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params")]
    assert main(["compile", *names, "--input", "data=1x64x8x8", "--no-weights"]) == 0
    assert "packed" not in capsys.readouterr().out and not prepared_files.files()
    assert main(["compile", *names, "--input", "data=1x64x8x8"]) == 0
    assert "packed parameters: " in capsys.readouterr().out
    packed.clear()
    loaded = mx.gluon.SymbolBlock.imports(names[0], ["data"], names[1])
    loaded.hybridize()
    np.testing.assert_array_equal(loaded(X).asnumpy(), net(X).asnumpy())
    assert False in packed
    assert main(["cache", "show"]) == 0
    assert "packed parameters" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert not prepared_files.files()
