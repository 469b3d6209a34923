"""`.npz` and `.safetensors` files, and the calls that choose a format by a file's ending."""

import json
import random
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError
from gluonjit.files import formats, npz, safetensors
from gluonjit.gluon import nn

from . import mutation
from .test_fuzz import watched

ARRAYS = {
    **{f"arg:{code}": np.arange(6).astype(code).reshape(2, 3) for code in ("f4", "f8", "f2", "u1", "i1", "i4", "i8")},
    "bool": np.array([True, False]),
    "scalar": np.float32(3).reshape(()),
    "empty": np.zeros((3, 0), "f4"),
    "transposed": np.arange(6, dtype="f4").reshape(2, 3).T,
}
NARROW = {"narrow": np.arange(4).astype(ml_dtypes.bfloat16)}


def same(a, b):
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape
        np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize("ending", [".params", ".npz", ".safetensors"])
def test_round_trip(ending, tmp_path):
    path = tmp_path / f"x{ending}"
    arrays = ARRAYS if ending == ".npz" else ARRAYS | NARROW
    formats.write(path, arrays)
    same(formats.read(path), arrays)
    once = path.read_bytes()
    formats.write(path, arrays)
    assert path.read_bytes() == once, "equal arrays give equal files"
    for several in ([], list(ARRAYS.values())):
        formats.write(path, several)
        found = formats.read(path)
        assert len(found) == len(several)
        assert all(np.array_equal(x, y) for x, y in zip(found, several))
    assert isinstance(found, list)


def test_numpys_own_files(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", **ARRAYS, big=ARRAYS["arg:f8"].astype(">f8"))
    found = npz.read(tmp_path / "x.npz")
    np.testing.assert_array_equal(found.pop("big"), ARRAYS["arg:f8"])
    same(found, ARRAYS)
    npz.write(tmp_path / "y.npz", ARRAYS)
    with np.load(tmp_path / "y.npz") as loaded:
        same(dict(loaded), ARRAYS)


def test_the_other_implementation(tmp_path):
    theirs = pytest.importorskip("safetensors.numpy", reason="needs the package safetensors")
    contiguous = {name: np.ascontiguousarray(x).reshape(x.shape) for name, x in ARRAYS.items()}
    theirs.save_file(contiguous, tmp_path / "x.safetensors", {"some": "metadata"})
    found = safetensors.read(tmp_path / "x.safetensors")
    same({name: found[name] for name in ARRAYS}, ARRAYS)
    safetensors.write(tmp_path / "y.safetensors", ARRAYS)
    found = theirs.load_file(tmp_path / "y.safetensors")
    same({name: found[name] for name in ARRAYS}, ARRAYS)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_through_the_usual_calls(ending, tmp_path):
    x = mx.nd.ones((2, 4))
    net = nn.Dense(3, prefix="net_")
    net.initialize()
    net.hybridize(backend="numpy")
    expected = net(x).asnumpy()
    net.save_parameters(tmp_path / f"own.{ending}")
    other = nn.Dense(3)
    other.load_parameters(tmp_path / f"own.{ending}")
    np.testing.assert_array_equal(other(x).asnumpy(), expected)
    net.export(tmp_path / "net")
    mx.nd.save(tmp_path / f"net.{ending}", mx.nd.load(tmp_path / "net-0000.params"))
    block = mx.gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", "data", tmp_path / f"net.{ending}")
    np.testing.assert_array_equal(block(x).asnumpy(), expected)
    net.collect_params().load(tmp_path / f"net.{ending}")


def test_what_npz_has_not(tmp_path):
    with pytest.raises(mx.MXNetError, match="array 'narrow' is bfloat16, which .npz files do not have"):
        npz.write(tmp_path / "x.npz", NARROW)
    assert not list(tmp_path.iterdir())


class Bomb:
    def __reduce__(self):
        return print, ("a pickle has run",)


def archive(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)


def npy(text, data=b""):
    text = text.ljust(118 - 1) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"readme.txt": b"hello"}, "readme.txt: a file that is not an array; expected names that end in .npy"),
        ({"x.npy": b"hello world"}, "x.npy: no header of an array"),
        ({"x.npy": npy(HUGE)}, "x.npy: float32.4611686018427387904.; expected at most 32 dim"),
        ({"x.npy": npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}")}, "elements of type '.O'"),
        (
            {"x.npy": npy("{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", b"a" * 12)},
            "elements of type '<U3'",
        ),
        ({"x.npy": npy("{'descr': '<i2', 'fortran_order': False, 'shape': (1,)}", b"ab")}, "elements of type int16"),
        ({"x.npy": npy("__import__('os')")}, "x.npy: no header of an array"),
        ({"x.npy": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3}")}, "x.npy: no header of an array"),
        ({"x.npy": npy("{'descr': '<f4', 'fortran_order': False, 'shape': ('\\x')}")}, "no header of an array"),
        ({"x.npy": npy("(" * 100)}, "x.npy: no header of an array"),
        ({"x.npy": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (True, 6)}", b"abcdef")}, "shape .True, 6."),
        ({"x.npy": npy("{'descr': '|u1', 'fortran_order': 0, 'shape': (6,)}", b"abcdef")}, "fortran_order 0; expected"),
        ({"x.npy": npy("{'descr': '|u1', 'shape': (6,)}", b"abcdef")}, "no header of an array .an object of 2."),
        (
            {"x.npy": npy("{'descr': '<f3', 'fortran_order': False, 'shape': (2,)}", b"abcdef")},
            "elements of type '<f3'",
        ),
        ({"\x1b[2J\n.npy": b""}, r"x.npz: \\x1b\[2J\\n.npy: no header"),
    ],
)
def test_malformed_npz(members, message, tmp_path):
    archive(tmp_path / "x.npz", members)
    with pytest.raises(CheckpointError, match=message):
        npz.read(tmp_path / "x.npz")


ONE = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1000,)}", bytes(1000))


def test_members_that_overlap(tmp_path):
    """Fifield's zip bomb: directory entries that share their data."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        for name in ("x.npy", "y.npy"):
            file.writestr(name, ONE)
        file.infolist()[1].header_offset -= 100
    with pytest.raises(CheckpointError, match=r"y.npy: it begins at byte 1063; expected 1163 or later, "):
        npz.read(tmp_path / "x.npz")


def test_a_member_that_reaches_into_the_directory(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("x.npy", ONE)
        file.infolist()[0].compress_size += 10
    with pytest.raises(CheckpointError, match=r"x.npy: its data end at byte 1173; expected 1163 at most"):
        npz.read(tmp_path / "x.npz")


def test_an_encrypted_member(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("x.npy", ONE)
        file.infolist()[0].flag_bits |= 1
    with pytest.raises(CheckpointError, match=r"x.npy: it is encrypted; expected what numpy.savez writes"):
        npz.read(tmp_path / "x.npz")


def test_other_compressions(tmp_path):
    archive(tmp_path / "x.npz", {"x.npy": ONE}, zipfile.ZIP_BZIP2)
    with pytest.raises(CheckpointError, match="x.npy: compressed by method 12; expected stored or deflated"):
        npz.read(tmp_path / "x.npz")


def test_arrays_that_unpack_to_much(tmp_path, monkeypatch):
    """The limit is for all together; what is stored as it is does not count."""
    monkeypatch.setattr(npz, "SPARE", 100_000)
    monkeypatch.setattr(npz, "MAX_RATIO", 1)
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(60_000, "u1"), b=np.zeros(60_000, "u1"))
    with pytest.raises(CheckpointError, match=r"x.npz: b.npy: 60128 bytes, deflated to \d+; expected at most 4"):
        npz.read(tmp_path / "x.npz")
    assert set(npz.read(tmp_path / "x.npz", limit=200_000)) == {"a", "b"}
    np.savez(tmp_path / "y.npz", a=np.zeros(60_000, "u1"), b=np.zeros(60_000, "u1"))
    assert set(npz.read(tmp_path / "y.npz")) == {"a", "b"}


@pytest.mark.parametrize("ending", [".params", ".npz", ".safetensors"])
@pytest.mark.parametrize(
    ("name", "fault"), [("a\0b", "a NUL"), ("\ud800", "a surrogate"), ("x" * 70_000, "70000 bytes; 60000 are")]
)
def test_names_that_cannot_be_written(ending, name, fault, tmp_path):
    with pytest.raises(mx.MXNetError, match=fault):
        formats.write(tmp_path / f"x{ending}", {name: np.zeros(1, "f4")})
    assert not list(tmp_path.iterdir())


def test_the_same_name_again(tmp_path):
    data = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", b"a")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr("x.npy", data)
        file.writestr("x.npy", data)
    with pytest.raises(CheckpointError, match="x.npz: x.npy: there is another one; expected each name once"):
        npz.read(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}"), "0 bytes; expected 4398046511104"),
        (b"", "no header of an array"),
        (
            npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904)}"),
            "float32.*less than 2..63",
        ),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}"), "elements of type '.O'; expected numbers"),
    ],
)
def test_malformed_npy(data, message, tmp_path):
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(CheckpointError, match=f"x.npy: {message}"):
        npz.read_array(tmp_path / "x.npy")


def test_pickles_are_not_loaded(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", x=np.array([Bomb()], dtype=object))
    with pytest.raises(CheckpointError, match="elements of type '.O'; expected numbers"):
        npz.read(tmp_path / "x.npz")
    assert not capsys.readouterr().out


def header(entries, data=b"", length=None):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(**changes):
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "byte 0: the file ends"),
        (header({}, length=1 << 62), "byte 0: a header of 4611686018427387904 bytes; expected at most 2"),
        (header(b"[]"), "byte 8: \\[\\]; expected an object"),
        (header(b"{"), "not JSON"),
        (header(one(), b"1234567"), "the data: 7 bytes; expected 8"),
        (header(one(), b"123456789"), "the data: 9 bytes; expected 8"),
        (header(one(dtype="F8_E5M2"), b"12345678"), "'x': element type 'F8_E5M2'; expected F64"),
        (header(one(shape=[3]), b"12345678"), "'x': data_offsets \\[0, 8\\]; expected \\[begin, begin \\+ 12\\]"),
        (header(one(shape=[-2]), b"12345678"), "'x': \\[-2\\]; expected a list of sizes"),
        (header(one(shape=[1 << 61, 0], data_offsets=[0, 0])), "'x': shape .*less than 2\\*\\*63 bytes"),
        (header(one(data_offsets=[4, 12]), b"123456789012"), "'x': its data begin at 4; expected 0"),
        (header(one(data_offsets=[8, 0]), b"12345678"), "'x': data_offsets"),
        (header({"x": 3}), "'x': 3; expected an object with dtype, shape and data_offsets"),
        (header({"x": one()["x"], "y": one()["x"]}, b"12345678"), "'y': its data begin at 0; expected 8"),
        (header({"a\0b": one()["x"]}, b"12345678"), r"'a\\x00b': a name with a NUL character; expected none"),
    ],
)
def test_malformed_safetensors(data, message, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        safetensors.read(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("ending", "damage"),
    [(".npz", mutation.damaged), (".npz", mutation.rearranged), (".safetensors", mutation.damaged)],
)
@pytest.mark.filterwarnings("error")
def test_damage(ending, damage, tmp_path):
    path = tmp_path / f"x{ending}"
    formats.write(path, ARRAYS)
    data = path.read_bytes()
    refused = 0
    for seed in range(400):
        damaged = damage(data, random.Random(seed))
        path.write_bytes(damaged)
        try:
            with watched(len(damaged)):
                formats.read(path)
        except CheckpointError as e:
            assert str(path) in str(e)
            refused += 1
    assert 40 < refused < 400


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_no_such_file(ending, tmp_path):
    with pytest.raises(mx.MXNetError, match="cannot read .*none"):
        mx.nd.load(tmp_path / f"none{ending}")
