"""`.params` files: every version and type, every way to be malformed, and writing."""

import os
import struct

import ml_dtypes
import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError
from gluonjit.files import params

from . import building
from .building import file, v0, v1, v2, v3

A = np.arange(6, dtype="f4").reshape(2, 3)
B = np.array([[1, -2], [3, 4]], "i8")


def load(data):
    return mx.nd.load_frombuffer(data)


# Reading


@pytest.mark.parametrize("record", [v0, v1, v2, v3])
def test_versions(record):
    loaded = load(file([record(A), record(B)], [b"a", b"b"]))
    assert list(loaded) == ["a", "b"]
    np.testing.assert_array_equal(loaded["a"].asnumpy(), A)
    np.testing.assert_array_equal(loaded["b"].asnumpy(), B)
    assert loaded["b"].dtype == np.int64


def test_without_names_it_is_a_list():
    loaded = load(file([v2(A), v1(B)]))
    assert [x.shape for x in loaded] == [(2, 3), (2, 2)]
    assert load(file([])) == []


def test_what_is_loaded_belongs_to_the_caller(tmp_path):
    path = tmp_path / "x.params"
    path.write_bytes(file([v2(A)], [b"a"]))
    mx.nd.load(path)["a"][:] = 0
    np.testing.assert_array_equal(mx.nd.load(path)["a"].asnumpy(), A)


@pytest.mark.parametrize("code", building.FLAGS)
def test_element_types(code):
    x = np.array([[0, 1], [2, 100]], code)
    (loaded,) = load(file([v2(x)]))
    assert loaded.dtype == x.dtype
    np.testing.assert_array_equal(loaded.asnumpy(), x)


def test_bool_is_any_byte_but_zero():
    (loaded,) = load(file([v2(np.array([0, 1, 2, 255], "u1"), flag=7)]))
    assert loaded.dtype == np.bool_
    np.testing.assert_array_equal(loaded.asnumpy().view("u1"), [0, 1, 1, 1])


def test_bfloat16():
    x = np.array([1.5, -2, 3e38], ml_dtypes.bfloat16)
    (loaded,) = load(file([v2(x.view("u2"), flag=12)]))
    np.testing.assert_array_equal(loaded.asnumpy().astype("f4"), x.astype("f4"))


@pytest.mark.parametrize("context", [(1, 3), (2, 0), (3, 0), (9, 7)])
def test_arrays_of_every_device_come_to_the_cpu(context):
    (loaded,) = load(file([v2(A, context=context)]))
    assert loaded.context == mx.cpu()


def test_scalars():
    scalar = np.array(2.5, "f4")
    for record in (v0, v1, v3):
        (loaded,) = load(file([record(scalar)]))
        assert loaded.shape == () and loaded.asscalar() == 2.5


def test_empty_arrays():
    for record in (v0, v1, v2, v3):
        loaded = load(file([record(A[:0]), record(A)]))
        assert [x.shape for x in loaded] == [(0, 3), (2, 3)]


def test_sparse_arrays_become_dense(root):
    path = root / "tests" / "data" / "checkpoint" / "sparse.params"  # MXNet wrote it
    with pytest.warns(UserWarning) as noted:
        loaded = params.read(path)
    said = "sparse arrays are read as dense ones: r (row_sparse), c (csr), e (row_sparse), ec (csr)"
    assert [str(w.message) for w in noted] == [f"{path}: {said}"]
    expected = {
        "r": [[1, 2], [0, 0], [0, 0], [3, 4], [0, 0]],
        "c": [[0, 1, 0], [2, 0, 0]],
        "e": np.zeros((4, 3)),
        "ec": np.zeros((4, 3)),
    }
    assert list(loaded) == list(expected)
    for name, x in expected.items():
        np.testing.assert_array_equal(loaded[name], x)


def test_contents_may_be_text_and_more_may_follow():
    loaded = load(file([v2(A)], ["größe".encode()]) + b"more")
    assert list(loaded) == ["größe"]


def test_types_of_arguments():
    with pytest.raises(TypeError, match="fname required to be a string"):
        mx.nd.load(5)
    with pytest.raises(TypeError, match="buf required to be a string or bytes"):
        mx.nd.load_frombuffer(bytearray(b"x"))


def test_a_file_that_is_not_there():
    with pytest.raises(mx.MXNetError, match=r"cannot read nowhere\.params: No such file or directory"):
        mx.nd.load("nowhere.params")


# Malformed files

DIMS_OFFSET = 24 + 12
"""Of the first array's dimensions, V2."""

BIG = 1 << 62


def patched(offset, form, *values):
    data = bytearray(file([v2(A)], [b"a"]))
    struct.pack_into("<" + form, data, offset, *values)
    return bytes(data)


def sparse(storage, stored, dims, values, *aux):
    """A sparse record; `aux` are index arrays."""
    data = struct.pack("<Ii", building.V2, storage) + building.shape(stored) + building.shape(dims)
    data += struct.pack("<iii", 1, 0, building.FLAGS[values.dtype.str[1:]])
    for x in aux:
        data += struct.pack("<i", building.FLAGS[x.dtype.str[1:]]) + building.shape(x.shape)
    return file([data + values.tobytes() + b"".join(x.tobytes() for x in aux)])


ONES = np.ones((2, 3), "f4")
PAIR = np.array([0, 1], "i8")
VALUES = np.ones(2, "f4")

MALFORMED = {
    "nothing": (b"", "byte 0: the file ends within the file's header; expected 16 bytes, but 0 are left"),
    "magic": (
        patched(0, "Q", 0x113),
        "byte 0: this is no file of parameters: the magic number is 0x113; expected 0x112",
    ),
    "too many arrays": (patched(16, "Q", BIG), f"byte 16: the number of arrays is {BIG}; expected at most"),
    "version": (patched(24, "I", 0xF993FACB), "byte 24: array 0 begins with 0xf993facb; expected 0xf993fac8"),
    "storage": (patched(28, "i", 3), "byte 28: the storage type of array 0 is 3; expected 0 .dense."),
    "rank": (patched(32, "i", 33), "byte 32: the shape of array 0 has 33 dimensions; expected 0 to 32"),
    "negative rank": (patched(32, "i", -1), "byte 32: the shape of array 0 has -1 dimensions; expected 0 to 32"),
    "negative": (patched(DIMS_OFFSET, "q", -2), "byte 36: the shape of array 0 is .-2, 3.; expected no negative"),
    "overflow": (patched(DIMS_OFFSET, "qq", 1 << 33, 1 << 33), "byte 64: array 0 is f32.8589934592,8589934592.; exp"),
    "hidden overflow": (
        patched(DIMS_OFFSET, "qq", 0, BIG),
        "byte 64: array 0 is f32.*; expected less than 2..63",
    ),
    "type": (patched(60, "i", 8), r"byte 60: the element type of array 0 is 8; expected one of 0 \(f32\), 1"),
    "data": (patched(DIMS_OFFSET, "q", 20), "byte 64: array 0 is f32.20,3.; expected 240 bytes of it, but 41 are left"),
    "names": (file([v2(A)], [b"a", b"b"]), "byte 88: there are 2 names; expected as many as arrays .1., or none"),
    "many names": (file([v2(A)], name_count=BIG), f"byte 88: the number of names is {BIG}; expected at most 0"),
    "name length": (patched(96, "Q", 2), "byte 96: the length of name 0 is 2; expected at most 1"),
    "encoding": (file([v2(A)], [b"a\xff"]), "byte 105: name 0 is not UTF-8 .invalid start byte.; expected text"),
    "same name": (file([v2(A), v2(B)], [b"a", b"a"]), "name 1 is 'a' again; expected each name once"),
    "no value": (file([struct.pack("<IiiI", building.V2, 0, 0, 0) * 2]), "byte 32: array 0 has no shape: it was saved"),
    "unknown dimension": (
        file([struct.pack("<Ii", building.V3, 0) + building.shape((-1, 2)) + b"x" * 9]),
        "no negative",
    ),
    "row out of range": (
        sparse(1, (2, 3), (2, 3), ONES, PAIR + 1),
        "array 0: row indices from 1 to 2; expected them",
    ),
    "row shape": (sparse(1, (2, 3), (9, 4), ONES, PAIR), r"rows of shape \(3,\); expected \(4,\)"),
    "scalar": (
        sparse(1, (), (2, 3), np.array(1, "f4"), PAIR),
        r"indices \(2,\) for values \(\); expected one for each",
    ),
    "index count": (sparse(1, (2, 3), (9, 3), ONES, np.arange(3)), r"indices \(3,\) for values \(2, 3\); expected one"),
    "float indices": (sparse(1, (2, 3), (9, 3), ONES, VALUES), "the indices of array 0 are f32; expected integers"),
    "pointers": (sparse(2, (2,), (2, 3), VALUES, np.array([0, 9, 2]), PAIR), "row pointers from 0 to 2; expected asc"),
    "pointer count": (sparse(2, (2,), (2, 3), VALUES, PAIR, PAIR), r"row pointers \(2,\); expected 3 of them"),
    "column": (sparse(2, (2,), (2, 3), VALUES, np.array([0, 1, 2]), PAIR + 2), "column indices from 2 to 3; expected"),
    "no matrix": (sparse(2, (2,), (2, 3, 1), VALUES, np.arange(3), PAIR), "expected a matrix and a vector"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed(what):
    data, message = MALFORMED[what]
    with pytest.raises(CheckpointError, match="^<buffer>: byte .*" + message.removeprefix("byte ")) as caught:
        load(data)
    assert "Invalid NDArray file format" in str(caught.value)


def test_every_truncation_is_noticed():
    data = file([v0(A), v1(B), v2(A), v3(B)], [b"a", b"b", b"c", b"d"])
    record = sparse(2, (2,), (2, 3), VALUES, np.array([0, 1, 2]), PAIR)[24:-8]
    for whole in (data, file([record, sparse(1, (2, 3), (9, 3), ONES, PAIR)[24:-8]], [b"a", b"b"])):
        load(whole)
        for length in range(len(whole)):
            with pytest.raises(CheckpointError):
                load(whole[:length])


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "broken.params"
    path.write_bytes(file([v2(A)])[:50])
    with pytest.raises(mx.MXNetError, match=r"broken\.params: byte 36: the file ends within the shape of array 0"):
        mx.nd.load(str(path))


def test_a_nearly_empty_array_needs_permission(tmp_path):
    path = tmp_path / "sparse.params"
    path.write_bytes(sparse(1, (2, 3), (1 << 21, 3), ONES, PAIR))
    with pytest.raises(CheckpointError, match="as a dense array; expected at most 157289.. in this file"):
        params.read(path)
    with pytest.warns(UserWarning, match=r"read as dense ones: 0 \(row_sparse\)$"):
        (dense,) = params.read(path, dense_limit=1 << 25)
    assert dense.shape == (1 << 21, 3) and dense.sum() == 6
    assert mx.nd.load(str(path))[0].shape == dense.shape  # stays as it is


def test_nearly_empty_arrays_share_the_limit():
    record = sparse(1, (2, 3), (900_000, 3), ONES, PAIR)[24:-8]  # 10.8 MB as a dense array
    with pytest.raises(CheckpointError, match="array 1 takes 10800000 bytes as a dense array"):
        params.parse(file([record, record]), "<buffer>")


# Writing


def test_what_is_written_is_version_2():
    data = file([v2(A), v2(B)], [b"a", b"b"])
    arrays = {"a": mx.nd.array(A), "b": mx.nd.array(B, dtype="int64")}
    assert b"".join(map(bytes, params.chunks({k: x.asnumpy() for k, x in arrays.items()}))) == data


@pytest.mark.parametrize(
    "data",
    [
        mx.nd.array(A),
        [mx.nd.array(A), mx.nd.array([1, 2], dtype="uint8")],
        {"a": mx.nd.array(A), "bytes": mx.nd.array([1, 0], dtype="bool")},
        [mx.nd.array([1.5, 2], dtype="bfloat16")],
        [],
        {},
    ],
    ids=["one", "list", "dict", "bfloat16", "no list", "no dict"],
)
def test_round_trip(data, tmp_path):
    mx.nd.save(tmp_path / "x", data)
    loaded = mx.nd.load(tmp_path / "x")
    if isinstance(data, dict) and data:
        assert list(loaded) == list(data)
        loaded, data = list(loaded.values()), list(data.values())
    data = [data] if isinstance(data, mx.nd.NDArray) else list(data)
    assert [x.dtype for x in loaded] == [x.dtype for x in data]
    for got, expected in zip(loaded, data, strict=True):
        np.testing.assert_array_equal(got.asnumpy(), expected.asnumpy())


def test_views_and_scalars(tmp_path):
    x = mx.nd.array(A)
    params.write(tmp_path / "x", [x[1].asnumpy(), A.T, np.array(3.0), A[:0]])
    row, transposed, scalar, empty = params.read(tmp_path / "x")
    np.testing.assert_array_equal(row, A[1])
    np.testing.assert_array_equal(transposed, A.T)
    assert scalar == 3.0 and scalar.shape == () and empty.shape == (0, 3)
    magic = struct.unpack_from("<I", (tmp_path / "x").read_bytes(), 24)[0]
    assert magic == building.V3  # a scalar has no form in V2


@pytest.mark.parametrize(
    ("data", "error"),
    [((1,), ValueError), ("x", ValueError), ({"a": 1}, TypeError), ({1: mx.nd.array(A)}, TypeError), ([A], TypeError)],
)
def test_only_arrays_are_saved(data, error, tmp_path):
    with pytest.raises(error):
        mx.nd.save(tmp_path / "x", data)
    assert not os.listdir(tmp_path)


def test_an_error_within_sparse_arrays_leaves_the_file_readable(root, tmp_path):
    """The traceback keeps views of the mapped file, which must not be closed under them."""
    data = bytearray((root / "tests" / "data" / "checkpoint" / "sparse.params").read_bytes())
    data[109:117] = b"\xff" * 7 + b"\x7f"
    (tmp_path / "x.params").write_bytes(data)
    with pytest.raises(CheckpointError, match="row indices from"):
        params.read(tmp_path / "x.params")


def test_a_name_with_nul(tmp_path):
    (tmp_path / "x.params").write_bytes(building.file([building.v2(np.ones(1, "f4"))], [b"a\0b"]))
    with pytest.raises(CheckpointError, match="name 0 has a NUL character; expected none"):
        params.read(tmp_path / "x.params")


def test_a_device_is_no_file():
    with pytest.raises(mx.MXNetError, match="cannot read /dev/zero: it is a device"):
        params.read("/dev/zero")
