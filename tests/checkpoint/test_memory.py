"""How much memory reading takes: files are mapped and copied once, and what they claim to hold costs nothing."""

import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import CheckpointError
from gluonjit.files import formats, params, sparse
from gluonjit.gluon import nn

from . import building
from .test_params import sparse as sparse_file

SIZE = 1 << 20
"""Elements of the arrays here: 4 MB of f32."""


class Peak:
    nbytes = 0


@contextmanager
def peak():
    """What was allocated within, at its most."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield Peak
        Peak.nbytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ending", [".params", ".npz", ".safetensors"])
def test_files_are_copied_once(ending, tmp_path):
    path = tmp_path / f"x{ending}"
    arrays = {name: np.full(SIZE, 2, np.float32) for name in "abc"}
    formats.write(path, arrays)
    with peak() as taken:
        found = formats.read(path)
    total = sum(x.nbytes for x in found.values())
    assert total <= taken.nbytes < 1.2 * total
    assert all(x.flags.owndata or x.base.flags.owndata for x in found.values())


@pytest.mark.parametrize("ending", [".params", ".safetensors"])
def test_what_is_copied_elsewhere_is_only_mapped(ending, tmp_path):
    path = tmp_path / f"x{ending}"
    formats.write(path, {"a": np.full(SIZE, 2, np.float32), "flags": np.ones(3, bool), "none": np.ones((0, 2))})
    with peak() as taken:
        found = formats.read(path, copy=False)
    assert taken.nbytes < 1 << 16
    path.unlink()  # the map lives on
    assert not found["a"].flags.writeable and found["a"].sum() == 2 * SIZE
    assert found["flags"].all() and found["none"].shape == (0, 2)


@pytest.mark.parametrize("initialize", [False, True])
def test_parameters_are_copied_once(initialize, tmp_path):
    def layer():
        return nn.Dense(SIZE // 1024, in_units=1024, prefix="net_")

    net = layer()
    net.initialize()
    net.save_parameters(tmp_path / "own.params")
    net.collect_params().save(tmp_path / "named.params")
    nbytes = 4 * (SIZE + SIZE // 1024)
    for load in (
        lambda other: other.load_parameters(tmp_path / "own.params"),
        lambda other: other.collect_params().load(tmp_path / "named.params"),
    ):
        other = layer()
        if initialize:
            other.initialize()
        with peak() as taken:
            load(other)
        assert taken.nbytes < (1 << 18) + (0 if initialize else nbytes)
        np.testing.assert_array_equal(other.weight.data().asnumpy(), net.weight.data().asnumpy())
        other.weight.data()[:] = 0  # its own memory, which can be written to


def test_arrays_of_a_dict_are_copied():
    """Else two nets would share memory."""
    net, other = (nn.Dense(2, in_units=2, prefix="net_") for _ in range(2))
    net.initialize(mx.init.One())
    other.collect_params().load_dict({name: param.data() for name, param in net.collect_params().items()})
    net.weight.data()[:] = 7
    assert other.weight.data().asnumpy().tolist() == [[1, 1], [1, 1]]


N = 1 << 20
MANY = np.arange(N, dtype="i8")
HOSTILE = {
    "rows of one byte": sparse_file(1, (N,), (3 * N,), np.ones(N, "u1"), MANY),
    "one long row": sparse_file(1, (1, N), (2, N), np.ones((1, N), "f4"), MANY[:1]),
    "columns of one byte": sparse_file(2, (N,), (5, 200), np.ones(N, "u1"), MANY[:6] * N // 5, np.zeros(N, "u1")),
    "empty rows": sparse_file(2, (0,), (N, 17), np.ones(0, "u1"), np.zeros(N + 1, "u1"), MANY[:0]),
    "just too much": sparse_file(2, (0,), (N, 18), np.ones(0, "u1"), np.zeros(N + 1, "u1"), MANY[:0]),
    "dense ones before": building.file(
        [building.v2(np.ones(N, "u1")), sparse_file(1, (2, 1), (18 * N, 1), np.ones((2, 1), "u1"), MANY[:2])[24:-8]]
    ),
    "truths": building.file([building.v2(np.ones(N, "u1"), flag=7)]),
}


REFUSED = {"just too much", "dense ones before"}


@pytest.mark.filterwarnings("ignore:.*sparse arrays are read as dense ones")
@pytest.mark.parametrize("what", HOSTILE)
def test_limit(what):
    data = HOSTILE[what]
    with peak() as taken:
        if what in REFUSED:
            with pytest.raises(CheckpointError, match="as a dense array; expected at most"):
                params.parse(data, "hostile")
        else:
            params.parse(data, "hostile")
    assert taken.nbytes <= 2 * len(data) + params.SPARE


def test_sparse_arrays_in_pieces(monkeypatch):
    rng = np.random.default_rng(0)
    for _ in range(100):
        monkeypatch.setattr(sparse, "STEP", int(rng.integers(1, 9)))
        monkeypatch.setattr(sparse, "MEMORY", int(rng.integers(1, 200)))
        rows, columns = rng.integers(0, 40, 2)
        matrix = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < rng.random() ** 2)
        where = np.nonzero(matrix)
        pointers = np.append(0, np.cumsum((matrix != 0).sum(1)))
        dense = sparse.densify(sparse.CSR, matrix.shape, matrix[where], [pointers, where[1]])
        np.testing.assert_array_equal(dense, matrix)
        used = np.flatnonzero((matrix != 0).any(1))
        np.testing.assert_array_equal(sparse.densify(sparse.ROW_SPARSE, matrix.shape, matrix[used], [used]), matrix)
