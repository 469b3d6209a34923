"""Models that change while the server runs."""

import os
import shutil
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.c_library.library import compile_library, write
from gluonjit.c_library.library_source import source_of
from gluonjit.tools.serving.copies import copied, remove_abandoned
from gluonjit.tools.serving.inference_protocol import Refused
from gluonjit.tools.serving.served_models import ModelFiles, ModelStore, Options, in_folder

SHAPES = {"data": "batchx4"}


@pytest.fixture
def folder(exported, tmp_path):
    (tmp_path / "net" / "1").mkdir(parents=True)
    exported(tmp_path / "net" / "1" / "net", 1)
    return tmp_path


@pytest.fixture
def store(folder):
    found = ModelStore(lambda: in_folder(folder, ModelFiles("", 1, (), SHAPES)), Options())
    found.load_all()
    yield found
    found.close()


def answer(store, version=None):
    x = {"data": np.ones((2, 4), np.float32)}
    return next(iter(store.get("net", version).batcher.submit(x).result(20).values()))


def wanted(folder, version=1):
    place = folder / "net" / str(version)
    predictor = mx.Predictor(place / "net-symbol.json", place / "net-0000.params", inputs=SHAPES)
    return next(iter(predictor({"data": np.ones((2, 4), np.float32)}).values()))


def changed(path, content):
    """Writes in place, as `cp` does: to the file that may be mapped."""
    before = os.stat(path).st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_files_that_change(store, folder, exported, tmp_path_factory):
    params = folder / "net" / "1" / "net-0000.params"
    first = answer(store)
    np.testing.assert_array_equal(first, wanted(folder))
    assert store.reload_changed() == [] == store.reload_changed()
    content = params.read_bytes()
    changed(params, content[:50])  # a file that is being written
    np.testing.assert_array_equal(answer(store), first)
    assert store.reload_changed() == []  # it has changed since the last look
    (problem,) = store.reload_changed()
    assert "net, version 1 cannot be loaded" in problem and "params" in problem
    assert store.reload_changed() == []  # once is enough
    np.testing.assert_array_equal(answer(store), first)
    _, other = exported(tmp_path_factory.mktemp("other") / "net", 2)
    with open(other, "rb") as file:
        changed(params, file.read())
    assert store.reload_changed() == [] == store.reload_changed()
    np.testing.assert_array_equal(answer(store), wanted(folder))
    assert not np.array_equal(answer(store), first)


def test_versions_that_come_and_go(store, folder, exported):
    (folder / "net" / "2").mkdir()
    exported(folder / "net" / "2" / "net", 2)
    store.reload_changed()
    store.reload_changed()
    assert store.versions("net") == ["1", "2"]
    np.testing.assert_array_equal(answer(store), wanted(folder, 2))
    np.testing.assert_array_equal(answer(store, "1"), wanted(folder, 1))
    shutil.rmtree(folder / "net" / "1")
    store.reload_changed()
    assert store.versions("net") == ["2"]
    with pytest.raises(Refused, match="no version '1'"):
        store.get("net", "1")


def test_loading_and_unloading(store, folder):
    store.unload("net")
    assert store.index() == [{"name": "net", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}]
    with pytest.raises(Refused, match="no model 'net'"):
        store.get("net")
    store.reload_changed()
    store.reload_changed()
    assert store.versions("net") == []  # it stays as it was asked for
    store.load("net")
    np.testing.assert_array_equal(answer(store), wanted(folder))
    before = store.get("net")
    (folder / "net" / "1" / "net-symbol.json").write_text("{}")
    with pytest.raises(Refused, match="cannot be loaded"):
        store.load("net")
    assert store.get("net") is before
    for change in (store.load, store.unload):
        with pytest.raises(Refused) as e:
            change("other")
        assert e.value.status == 404


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("weights", [False, True])
def test_a_library(starting, files, tmp_path, weights):
    """With its parameters, or beside them. It says whether its rows are independent."""
    predictor = mx.Predictor(*files, inputs=SHAPES)
    source = source_of(predictor.model.block, [mx.nd.ones((2, 4))], "net", {"data": {0: "batch"}})
    write(compile_library(source, ["host"], weights_file=weights), tmp_path)
    given = {"name": "net", "files": (str(tmp_path / "libnet.so"),), "inputs": {}}
    for batching in (None, True, False):
        with starting([{**given, "batching": batching}]) as server:
            for count in (0, 1, 3):
                status, answer = server.infer(np.ones((count, 4), np.float32))
                (y,) = predictor({"data": np.ones((count, 4), np.float32)}).values()
                found = np.float32(answer["outputs"][0]["data"]).reshape(count, 3)
                np.testing.assert_allclose(found, y, rtol=1e-5, atol=1e-6)
            (served,) = server.store.all()
            assert status == 200 and served.batcher.merges == (batching is not False)


def test_exchange_under_load(starting, files):
    """Requests meet the old version or the new one, and none an error."""
    with starting([{"name": "net", "files": files}], control=True) as server:
        found = []

        def ask():
            for _ in range(40):
                found.append(server.infer(np.ones((2, 4)))[0])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        [t.start() for t in threads]
        loaded = [server.ask("POST", "/v2/repository/models/net/load", "{}")[0] for _ in range(3)]
        [t.join() for t in threads]
        assert loaded == [200] * 3 and found == [200] * 160
        assert server.ask("POST", "/v2/repository/models/net/load", '{"parameters": {"config": "{}"}}')[0] == 400
        assert server.ask("POST", "/v2/repository/models/other/load", "{}")[0] == 404
        foreign = {"Origin": "http://elsewhere.example"}
        assert server.ask("POST", "/v2/repository/models/net/unload", "{}", foreign)[0] == 403
        assert server.ask("POST", "/v2/repository/models/net/unload", "{}")[0] == 200
        assert server.infer(np.ones((2, 4)))[0] == 404


def test_the_watcher(starting, files, exported, tmp_path):
    here = [shutil.copy(f, tmp_path) for f in files]
    with starting([{"name": "net", "files": tuple(here)}], reload=0.02) as server:
        before = server.infer(np.ones((2, 4)))[1]["outputs"]
        _, other = exported(tmp_path / "other", 5)
        os.replace(other, here[1])
        for _ in range(500):
            if server.infer(np.ones((2, 4)))[1]["outputs"] != before:
                break
        else:
            raise AssertionError("the new parameters are not there")


def test_code_of_another_program(starting, files, object_cache):
    """The object cache has the same code for a dimension of another name."""
    first = mx.Predictor(*files, inputs={"data": "nx4"})
    assert first.model.memory({"n": 5}) is not None
    with starting([{"name": "net", "files": files}]) as server:
        (served,) = server.store.all()
        assert served.most_memory == first.model.memory({"n": 32})


def test_limits_and_batching_by_source(starting, files, tmp_path):
    source = {"name": "net", "files": files, "inputs": {"data": "nx4"}}
    for more, merges, largest in (
        ({}, True, 32),
        ({"max_batch": 3}, True, 3),
        ({"batching": False}, False, 32),
        ({"limits": {"n": 5}}, True, 5),
    ):
        with starting([{**source, **more}]) as server:
            (served,) = server.store.all()
            assert served.batcher.merges == merges and 0 <= served.most_memory < 2**20
            assert server.infer(np.ones((largest, 4)))[0] == 200
            status, answer = server.infer(np.ones((largest + 1, 4)))
            assert status == 400 and f"at most {largest}" in answer["error"]
    (tmp_path / "sized.py").write_text(
        "from gluonjit.gluon import HybridBlock\n"
        "class Sized(HybridBlock):\n"
        "    def hybrid_forward(self, F, x):\n"
        "        return x * 2 if x.shape[0] < 100 else x\n"
        "net = Sized()\n"
    )
    sized = {"name": "sized", "files": (f"{tmp_path}/sized.py:net",), "max_batch": 6}
    alone = pytest.raises(mx.MXNetError, match="cannot be compiled for all sizes")
    with pytest.warns(UserWarning, match="dynamic"), alone, starting([sized]):
        pass
    with pytest.warns(UserWarning, match="dynamic"), starting([{**sized, "batching": True}]) as server:
        (served,) = server.store.all()
        assert served.predictor.sizes == (1, 2, 4, 6)
        status, answer = server.infer(np.ones((3, 4)), "sized")
        assert status == 200 and answer["outputs"][0]["data"] == [2.0] * 12
    fixed = {**source, "inputs": {"data": "2x4"}, "batching": True}
    with pytest.raises(mx.MXNetError, match="no batching"), starting([fixed]):
        pass


def test_no_copies_stay(folder, tmp_path_factory, monkeypatch):
    """A server may be killed at any time."""
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    found = ModelStore(lambda: in_folder(folder, ModelFiles("", 1, (), SHAPES)), Options())
    try:
        found.load_all()
        assert list(temporary.iterdir()) == []
        np.testing.assert_array_equal(answer(found), wanted(folder))
        (folder / "net" / "1" / "net-0000.params").write_bytes(b"none")
        with pytest.raises(Refused, match="cannot be loaded"):
            found.load("net")
        assert list(temporary.iterdir()) == []
    finally:
        found.close()


def test_copies_of_servers_that_were_killed_while_they_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("gluonjit-serve-dead", "gluonjit-serve-new", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.params").touch()
    (tmp_path / "gluonjit-serve-link").symlink_to(tmp_path / "other", target_is_directory=True)
    with copied([str(tmp_path / "other" / "net.params")]) as (copy,):
        alive = Path(copy).parent
        for folder in (tmp_path / "gluonjit-serve-dead", tmp_path / "other", alive):
            os.utime(folder, (1, 1))
        stay = {"gluonjit-serve-new", "gluonjit-serve-link", "other", alive.name}
        remove_abandoned()
        assert {p.name for p in tmp_path.iterdir()} == stay
        assert Path(copy).exists() and (tmp_path / "other" / "net.params").exists()
    assert not alive.exists()
