"""`mx.io.MNISTIter`, and `contrib.io.DataLoaderIter`."""

import struct

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import MXNetError


@pytest.fixture
def files(tmp_path):
    """Ten images, whose pixels are their label times 10."""

    def write(name, elements):
        header = bytes((0, 0, 8, elements.ndim)) + struct.pack(f">{elements.ndim}I", *elements.shape)
        (tmp_path / name).write_bytes(header + elements.astype(np.uint8).tobytes())
        return str(tmp_path / name)

    labels = np.arange(10)
    return {
        "image": write("images", np.broadcast_to(labels[:, None, None] * 10, (10, 2, 3))),
        "label": write("labels", labels),
    }


def labels_of(batches):
    return [batch.label[0].asnumpy().tolist() for batch in batches]


def test_batches(files):
    batches = mx.io.MNISTIter(**files, batch_size=4, shuffle=False)
    assert batches.provide_data[0].shape == (4, 1, 2, 3) and batches.provide_label[0].shape == (4,)
    assert labels_of(batches) == [[0, 1, 2, 3], [4, 5, 6, 7]]  # the rest fills no batch
    batches.reset()
    np.testing.assert_array_equal(next(batches).data[0].asnumpy()[2], np.full((1, 2, 3), 20 / 256))


def test_flat_parts_and_shuffled(files):
    assert mx.io.MNISTIter(**files, batch_size=4, flat=True).provide_data[0].shape == (4, 6)
    assert labels_of(mx.io.MNISTIter(**files, batch_size=2, shuffle=False, num_parts=3, part_index=1)) == [[3, 4]]
    orders = [labels_of(mx.io.MNISTIter(**files, batch_size=5, seed=seed)) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2] and sorted(sum(orders[0], [])) == list(range(10))


def test_files_that_are_others(files):
    with pytest.raises(MXNetError, match="is not an MNIST file of 3 axes"):
        mx.io.MNISTIter(image=files["label"], label=files["label"])
    with pytest.raises(MXNetError, match="a batch of 11, but 10 images"):
        mx.io.MNISTIter(**files, batch_size=11)
    with pytest.raises(MXNetError, match="part_index is 3, of 3 parts"):
        mx.io.MNISTIter(**files, num_parts=3, part_index=3)


def test_a_loader_as_an_iterator():
    dataset = mx.gluon.data.ArrayDataset(np.arange(10.0).reshape(5, 2), np.arange(5))
    batches = mx.contrib.io.DataLoaderIter(mx.gluon.data.DataLoader(dataset, 2), "x", dtype="float16")
    assert [(d.name, d.shape, d.dtype) for d in batches.provide_data] == [("x", (2, 2), "float16")]
    for _ in range(2):
        assert [(batch.pad, batch.data[0].dtype) for batch in batches] == [
            (0, np.float16),
            (0, np.float16),
            (1, np.float16),
        ]
        batches.reset()
    last = list(batches)[-1]
    np.testing.assert_array_equal(last.data[0].asnumpy(), [[8, 9], [0, 0]])
    assert last.label[0].asnumpy().tolist() == [4, 0]
