"""Saving is all or nothing: whatever interrupts it, the old file is whole."""

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.files import atomic, origin

OLD, NEW = b"the old contents", [b"the ", b"new ", b"contents"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    return path


def untouched(path):
    return path.read_bytes() == OLD and [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("step", ["open", "fsync", "chmod", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_system_refuses(path, monkeypatch, step, code):
    def refuse(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic.os, step, refuse)
    with pytest.raises(mx.MXNetError, match=f"cannot write {path}: {os.strerror(code)}"):
        atomic.write(path, NEW)
    monkeypatch.undo()
    assert untouched(path)
    atomic.write(path, NEW)
    assert path.read_bytes() == b"".join(NEW)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(mx.MXNetError, match="No such file or directory"):
        atomic.write(tmp_path / "nowhere" / "x", [b"x"])


def test_permissions(tmp_path):
    old = os.umask(0o027)
    try:
        atomic.write(tmp_path / "new", [b"x"])
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    atomic.write(tmp_path / "new", [b"y"])
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


@pytest.mark.parametrize("old", [b"", OLD])
def test_a_temporary_file_of_the_program(tmp_path, old):
    """`NamedTemporaryFile`, whose name is given to save to: what was written is read from the open file."""
    with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
        file.write(old)
        file.flush()
        atomic.write(file.name, [b"new"])
        file.seek(0)
        assert file.read() == b"new"
        assert len(os.listdir(tmp_path)) == 1


def test_arrays_keep_what_they_view(path):
    """A file that is open here is replaced all the same if arrays view its contents."""
    with open(path, "rb") as file:
        mapped = origin.map_file(file)
        atomic.write(path, NEW)
        assert bytes(mapped) == OLD and path.read_bytes() == b"".join(NEW)


def test_links_keep_pointing(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    atomic.write(tmp_path / "link", [b"new"])
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"


def test_pipes_are_written_directly(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        atomic.write(tmp_path / "pipe", [b"abc"])
        assert os.read(reader, 10) == b"abc"
    finally:
        os.close(reader)


def test_long_names(tmp_path):
    name = "n" * 250
    atomic.write(tmp_path / name, [b"x"])
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
def test_the_contents_fail_halfway(path, error):
    def chunks():
        yield b"the "
        raise error

    with pytest.raises(error):
        atomic.write(path, chunks())
    assert untouched(path)


def test_everything_is_on_the_disk_before_the_name_is(path, monkeypatch):
    """In this order, or a loss of power may leave the new name with no contents."""
    done = []
    for step in ("fsync", "replace"):
        original = getattr(os, step)
        monkeypatch.setattr(
            atomic.os, step, lambda *args, step=step, original=original: (done.append(step), original(*args))[1]
        )
    atomic.write(path, NEW)
    assert done == ["fsync", "replace", "fsync"]


PROGRAM = """
import os, resource, signal, sys
import numpy as np
import gluonjit as mx
from gluonjit.files import params

how, path = sys.argv[1:]
big = {f"w{k}": mx.nd.ones((1 << 16,)) for k in range(8)}
if how == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    mx.nd.save(path, big)
else:
    pieces = params.chunks({name: x.asnumpy() for name, x in big.items()})
    def killed():
        for k, piece in enumerate(pieces):
            yield piece
            if k == 9:
                os.kill(os.getpid(), signal.SIGKILL)
    params.chunks = lambda arrays: killed()
    mx.nd.save(path, big)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")
@pytest.mark.parametrize("how", ["full", "killed"])
def test_a_process_of_its_own(tmp_path, how):
    """A disk that is full (no file may exceed 1 MB), and a process that is killed in the midst of its data."""
    path = tmp_path / "net.params"
    mx.nd.save(path, {"w": mx.nd.arange(5)})
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", PROGRAM, how, str(path)], capture_output=True, text=True, check=False)
    assert path.read_bytes() == before
    np.testing.assert_array_equal(mx.nd.load(path)["w"].asnumpy(), np.arange(5))
    if how == "full":
        assert done.returncode == 1 and f"cannot write {path}: File too large" in done.stderr
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
    else:
        assert done.returncode == -signal.SIGKILL


def test_every_way_to_save(tmp_path, monkeypatch):
    """All of them go through `atomic`: none opens the file that it replaces."""
    net = mx.gluon.nn.Dense(2, in_units=2)
    net.initialize()
    net.hybridize(backend="numpy")
    net(mx.nd.ones((1, 2)))
    module = mx.mod.Module(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2), label_names=None)
    module.bind([("data", (1, 2))])
    module.init_params()
    ways = [
        lambda to: mx.nd.save(to, [mx.nd.ones((1,))]),
        lambda to: mx.nd.save(f"{to}.npz", [mx.nd.ones((1,))]),
        lambda to: mx.nd.save(f"{to}.safetensors", [mx.nd.ones((1,))]),
        lambda to: mx.sym.var("x").save(to),
        net.save_parameters,
        net.collect_params().save,
        net.export,
        net.save,
        module.save_params,
        lambda to: module.save_checkpoint(to, 0),
        lambda to: mx.model.save_checkpoint(to, 0, mx.sym.var("x"), {}, {}),
    ]
    written = []
    original = atomic.write
    monkeypatch.setattr(atomic, "write", lambda path, chunks: (written.append(str(path)), original(path, chunks)))
    for k, save in enumerate(ways):
        save(str(tmp_path / f"way{k}"))
    assert sorted(written) == sorted(str(p) for p in tmp_path.iterdir())
