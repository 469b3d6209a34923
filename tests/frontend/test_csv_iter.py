"""`io.CSVIter`: batches from text files, as MXNet gives them."""

import os

import numpy as np
import pytest

import gluonjit as mx


def passes(batches, count=2):
    """Data, labels, pads and numbers of the rows, for some passes."""
    found = []
    for _ in range(count):
        found.append(
            [(b.data[0].asnumpy().tolist(), b.label[0].asnumpy().tolist(), b.pad, b.index.tolist()) for b in batches]
        )
        batches.reset()
    return found


@pytest.fixture
def five(tmp_path):
    data, label = tmp_path / "data.csv", tmp_path / "label.csv"
    data.write_text("1,2\n3,4\n5,6\n7,8\n9,10\n")
    label.write_text("0\n1\n2\n3\n4\n")
    return str(data), str(label)


def test_csv_rows_in_batches(five):
    """Recorded answers of MXNet 1.9.1."""
    data, label = five
    batches = mx.io.CSVIter(data_csv=data, data_shape=(2,), label_csv=label, batch_size=2)
    assert str(batches.provide_data) == "[DataDesc[data,(2, 2),<class 'numpy.float32'>,NCHW]]"
    assert batches.provide_label[0].shape == (2,)
    first = [
        ([[1, 2], [3, 4]], [0, 1], 0, [0, 1]),
        ([[5, 6], [7, 8]], [2, 3], 0, [2, 3]),
        ([[9, 10], [1, 2]], [4, 0], 1, [4, 0]),
    ]
    behind = [([[3, 4], [5, 6]], [1, 2], 0, [1, 2]), ([[7, 8], [9, 10]], [3, 4], 0, [3, 4])]
    assert passes(batches, 3) == [first, behind, first]
    each = [*first[:2], ([[9, 10], [7, 8]], [4, 3], 1, [4, 3])]
    alone = mx.io.CSVIter(data_csv=data, data_shape=(2,), label_csv=label, batch_size=2, round_batch=False)
    assert passes(alone) == [each, each]


def test_csv_shapes_and_types(five, tmp_path):
    data, label = five
    batches = mx.io.CSVIter(data_csv=data, data_shape=(2, 1), label_csv=label, batch_size=3, dtype="int32", ctx="cpu")
    found = passes(batches)
    assert found[0][1] == ([[[7], [8]], [[9], [10]], [[1], [2]]], [3, 4, 0], 1, [3, 4, 0])
    assert found[1][1] == ([[[9], [10]], [[1], [2]], [[3], [4]]], [4, 0, 1], 2, [4, 0, 1])
    batch = next(batches)
    assert batch.data[0].dtype == batch.label[0].dtype == np.int32
    unlabeled = mx.io.CSVIter(data_csv=data, data_shape=(2,), batch_size=7)
    assert next(unlabeled).label[0].asnumpy().tolist() == [0] * 7 and unlabeled.getpad() == 2
    wide = mx.io.CSVIter(data_csv=data, data_shape=2, label_csv=data, label_shape=(2,), batch_size=1)
    assert wide.provide_label[0].shape == (1, 2)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "b.csv").write_text("5,6")
    (folder / "a.csv").write_text("\n 1 ,\t-.5,\r\n\nnan,1e3\n")
    rows = next(mx.io.CSVIter(data_csv=str(folder), data_shape=(2,), batch_size=3)).data[0].asnumpy()
    np.testing.assert_array_equal(rows, np.float32([[1, -0.5], [np.nan, 1000], [5, 6]]))


@pytest.mark.parametrize(
    "content, settings, message",
    [
        (b"1,2\n3\n", {}, "x.csv: line 2 has 1 numbers; the shape given has 2"),
        (b"1,2,3\n4,5,6\n", {}, "line 1 has 3 numbers"),
        (b"1,2\n\nx,4\n", {}, "line 3: 'x' is not a number of type float32"),
        (b"1,2\n3,4.5\n", {"dtype": "int64"}, "line 2: '4.5' is not a number of type int64"),
        (b"1,2\n99999999999,4\n", {"dtype": "int32"}, "line 2: '99999999999' is not a number of type int32"),
        (b"1,,2\n", {"data_shape": (3,)}, "line 1: '' is not a number"),
        (b"# a,b\n1,2\n", {}, "line 1: '# a' is not a number"),
        (b"1,2\n\xff\xfe,2\n", {}, "is not text in UTF-8"),
        (b"\x00\x01\x02", {"data_shape": (1,)}, "line 1: .* is not a number"),
        (b"\n \n", {}, "x.csv has no rows"),
        (None, {}, "cannot read .*x.csv: No such file"),
        (b"1,2\n", {"label_csv": "two.csv", "label_shape": (2,)}, "1 rows of data in .*, but 2 in"),
        (b"1,2\n", {"dtype": "float16"}, "dtype is float16; float32, int32, int64 are read"),
        (b"1,2\n", {"batch_size": 0}, "batch_size is 0"),
        (b"1,2\n", {"data_shape": ()}, "data_shape is ()"),
        (b"1,2\n", {"round_bach": 1}, "no setting 'round_bach'"),
    ],
)
def test_csv_that_is_refused(tmp_path, monkeypatch, content, settings, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.csv").write_text("1,2\n3,4\n")
    if content is not None:
        (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(mx.MXNetError, match=message):
        mx.io.CSVIter(**{"data_csv": str(tmp_path / "x.csv"), "data_shape": (2,), "batch_size": 1, **settings})


def test_rows_are_not_read_from_a_pipe(tmp_path):
    """It would never end."""
    os.mkfifo(tmp_path / "pipe")
    for kind in (mx.io.CSVIter, mx.io.LibSVMIter):
        with pytest.raises(mx.MXNetError, match="neither a file nor a folder"):
            kind(str(tmp_path / "pipe"), (2,), 1)


def test_the_current_batch(five):
    """Iterators over files have one array of data and one of labels, and no lists around them."""
    iterator = mx.io.CSVIter(data_csv=five[0], data_shape=(2,), batch_size=2)
    assert iterator.iter_next()
    assert iterator.getdata().shape == (2, 2) and iterator.getlabel().shape == (2,)
    assert isinstance(iterator, mx.io.MXDataIter)
