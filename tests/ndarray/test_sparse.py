"""Sparse arrays: layouts, operators, gradients as rows, updates of rows, the store, files, LibSVM."""

import pickle
import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.base import MXNetError

ROWS = np.array([[0, 0], [1, 2], [0, 0], [3, 4], [0, 0]], np.float32)
MATRIX = np.array([[1, 0, 2, 0], [0, 0, 0, 0], [0, 3, 0, 0]], np.float32)


@pytest.fixture
def r():
    return nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 3]), shape=(5, 2))


@pytest.fixture
def c():
    return nd.sparse.csr_matrix(([1, 2, 3], [0, 2, 1], [0, 2, 2, 3]), shape=(3, 4))


def same(x, stype, elements):
    assert x.stype == stype
    np.testing.assert_array_equal(x.asnumpy(), np.asarray(elements, x.dtype))


# Arrays


def test_what_they_are(r, c):
    assert isinstance(r, nd.NDArray) and isinstance(c, nd.sparse.BaseSparseNDArray)
    assert repr(r) == "\n<RowSparseNDArray 5x2 @cpu(0)>"
    assert repr(c) == "\n<CSRNDArray 3x4 @cpu(0)>"
    assert (r.shape, r.ndim, len(r), r.dtype, r.stype) == ((5, 2), 2, 5, np.float32, "row_sparse")
    assert r.indices.dtype is np.int64
    same(r.data, "default", [[1, 2], [3, 4]])
    same(c.indices, "default", [0, 2, 1])
    same(c.indptr, "default", [0, 2, 2, 3])
    same(r, "row_sparse", ROWS)
    same(c, "csr", MATRIX)


def test_made_from_what_mxnet_takes(r, c):
    same(nd.sparse.row_sparse_array(ROWS), "row_sparse", ROWS)
    same(nd.sparse.row_sparse_array(([[3, 4], [1, 2]], [3, 1]), shape=(5, 2)), "row_sparse", ROWS)
    assert nd.sparse.row_sparse_array(([[1, 2]], [3])).shape == (4, 2)
    same(nd.sparse.csr_matrix(MATRIX), "csr", MATRIX)
    same(nd.sparse.csr_matrix(([2, 1, 3], ([0, 0, 2], [2, 0, 1])), shape=(3, 4)), "csr", MATRIX)
    same(nd.sparse.csr_matrix((2, 3)), "csr", np.zeros((2, 3)))
    same(nd.zeros((2, 3), stype="row_sparse", dtype="float64"), "row_sparse", np.zeros((2, 3)))
    same(nd.array(c), "csr", MATRIX)
    same(nd.array(ROWS).tostype("row_sparse"), "row_sparse", ROWS)
    same(r.tostype("default"), "default", ROWS)
    same(pickle.loads(pickle.dumps(c)), "csr", MATRIX)
    same(c.as_in_context(mx.cpu(1)), "csr", MATRIX)
    for wrong in (
        lambda: nd.sparse.csr_matrix(([1], [0], [0, 1]), shape=(3, 4)),
        lambda: nd.sparse.row_sparse_array(([[1, 2]], [0, 1])),
        lambda: nd.zeros((2,), stype="csr"),
        lambda: r.tostype("csr"),
    ):
        with pytest.raises(ValueError):
            wrong()


def test_writes_and_copies(r, c):
    dense = nd.zeros((5, 2))
    r.copyto(dense)
    same(dense, "default", ROWS)
    x = nd.zeros((5, 2), stype="row_sparse")
    x[:] = nd.array(ROWS)
    assert x.indices.asnumpy().tolist() == [1, 3]
    x[:] = 0
    assert x.indices.shape == (0,)
    nd.elemwise_add(nd.ones((5, 2)), nd.ones((5, 2)), out=x)
    same(x, "row_sparse", np.full((5, 2), 2))
    x *= 2
    same(x, "row_sparse", np.full((5, 2), 4))
    with pytest.raises(TypeError, match=r"only supports \[:\]"):
        x[1] = 2
    with pytest.raises(MXNetError, match=r"use x\.tostype\('default'\)\.reshape"):
        x.reshape((2, 5))
    with pytest.raises(MXNetError, match="column indices from 0 to 9"):
        nd.sparse.csr_matrix(([1, 2], [0, 9], [0, 2]), shape=(1, 4)).check_format()


def test_rows_of_a_matrix(c):
    same(c[1:3], "csr", MATRIX[1:3])
    same(c[-1], "csr", MATRIX[2:])
    same(nd.slice(c, begin=(0, 1), end=(2, 3)), "csr", MATRIX[:2, 1:3])
    same(nd.take(c, nd.array([2, 0])), "csr", MATRIX[[2, 0]])
    same(nd.concat(c, c, dim=0), "csr", np.concatenate([MATRIX, MATRIX]))
    with pytest.raises(ValueError, match="continuous slicing"):
        c[::2]


# Operators: storage of the results as MXNet's


def test_operators_that_keep_the_storage(r, c):
    other = nd.sparse.row_sparse_array(([[1, 1]], [2]), shape=(5, 2))
    same(r + other, "row_sparse", ROWS + other.asnumpy())
    assert (r + other).indices.asnumpy().tolist() == [1, 2, 3]
    same(r - r, "row_sparse", np.zeros((5, 2)))
    same(r * nd.array(ROWS), "row_sparse", ROWS**2)
    same(nd.elemwise_mul(nd.array(ROWS), r), "row_sparse", ROWS**2)
    same(-r, "row_sparse", -ROWS)
    same(r / 2, "row_sparse", ROWS / 2)
    same(r.square(), "row_sparse", ROWS**2)
    same(r > 1, "row_sparse", ROWS > 1)
    same(nd.add_n(r, r, r), "row_sparse", 3 * ROWS)
    same(r.astype("float64"), "row_sparse", ROWS)
    same(c + c, "csr", 2 * MATRIX)
    assert (c - c).data.shape == (0,)
    same(nd.broadcast_mul(c, nd.array([[1, 2, 3, 4]])), "csr", MATRIX * [1, 2, 3, 4])
    same(nd.sparse.retain(r, nd.array([0, 1])), "row_sparse", ROWS * [[1], [1], [0], [0], [0]])
    assert nd.sparse.retain(r, nd.array([0, 1])).indices.asnumpy().tolist() == [0, 1]


def test_operators_that_make_them_dense(r, c):
    same(r + 1, "default", ROWS + 1)
    same(r > -1, "default", np.ones((5, 2)))
    same(r + nd.array(ROWS), "default", 2 * ROWS)
    same(nd.ones((5, 2)) - r, "default", 1 - ROWS)
    same(r.T, "default", ROWS.T)
    same(c.sum(axis=0), "default", MATRIX.sum(0))
    same(c.sum(axis=1), "default", MATRIX.sum(1))
    same(r.sum(), "default", [10])
    np.testing.assert_allclose(r.norm().asnumpy(), [30**0.5], rtol=1e-6)


def test_dot(c):
    w, g = np.arange(8, dtype="f4").reshape(4, 2), np.arange(6, dtype="f4").reshape(3, 2)
    same(nd.sparse.dot(c, nd.array(w)), "default", MATRIX @ w)
    same(nd.dot(c, nd.array(w).tostype("row_sparse")), "default", MATRIX @ w)
    same(nd.dot(c, nd.array(g), transpose_a=True), "row_sparse", MATRIX.T @ g)
    same(nd.dot(nd.array(g.T), c), "csr", g.T @ MATRIX)
    sparse = nd.sparse.csr_matrix(([1.0], [7], [0, 1]), shape=(1, 1 << 40))
    found = nd.dot(sparse, nd.ones((1, 3)), transpose_a=True)  # only the rows exist
    assert found.indices.asnumpy().tolist() == [7]
    with pytest.raises(MXNetError, match="dot shape error"):
        nd.dot(c, nd.ones((3, 2)))


# Gradients


def embedding(hybridize=False, rows=6, grad_req="write"):
    net = gluon.nn.Embedding(rows, 2, sparse_grad=True)
    net.initialize(mx.init.One())
    net.weight.grad_req = grad_req
    if hybridize:
        net.hybridize()
    return net


def gradient(net, loss):
    with autograd.record():
        y = loss(net)
    y.backward()
    return net.weight.grad()


@pytest.mark.parametrize("hybridize", [False, True])
def test_the_gradient_of_a_lookup_is_its_rows(hybridize):
    net = embedding(hybridize)
    kept = net.weight.grad()
    assert (kept.stype, kept.indices.shape) == ("row_sparse", (0,))
    found = gradient(net, lambda net: (net(nd.array([1, 3, 1])) * nd.array([[1, 2]] * 3)).sum())
    assert found is kept
    assert found.indices.asnumpy().tolist() == [1, 3]
    same(found.data, "default", [[2, 4], [1, 2]])
    found = gradient(net, lambda net: (net(nd.array([2, 0])) * 0).sum())  # the rows that were touched, 0 or not
    assert found.indices.asnumpy().tolist() == [0, 2]
    found = gradient(net, lambda net: net(nd.array([4, 1])).sum() + net(nd.array([0, 1])).sum())
    assert found.indices.asnumpy().tolist() == [0, 1, 4]
    same(found.data, "default", [[1, 1], [2, 2], [1, 1]])
    found = gradient(net, lambda net: net(nd.array([4])).sum() + (net.weight.data() * 2).sum())
    same(found, "row_sparse", [[2, 2]] * 4 + [[3, 3], [2, 2]])
    net.weight.zero_grad()
    assert net.weight.grad().indices.shape == (0,)


@pytest.mark.parametrize("hybridize", [False, True])
def test_added_gradients_of_lookups(hybridize):
    net = embedding(hybridize, grad_req="add")
    for rows in ([1, 3, 1], [2, 2]):
        found = gradient(net, lambda net, rows=rows: net(nd.array(rows)).sum())
    assert found.indices.asnumpy().tolist() == [1, 2, 3]
    same(found.data, "default", [[2, 2], [2, 2], [1, 1]])


def test_lookups_twice_in_a_compiled_block():
    class Pair(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.table = gluon.nn.Embedding(9, 2, sparse_grad=True)

        def hybrid_forward(self, F, x, y):
            return (self.table(x) * self.table(y)).sum(axis=1)

    net = Pair()
    net.initialize(mx.init.Uniform(1))
    x, y = nd.array([1, 2]), nd.array([2, 8])
    found = []
    for _ in range(2):
        with autograd.record():
            z = net(x, y)
        z.backward()
        found.append(net.table.weight.grad().copy())
        net.hybridize()
    assert found[0].indices.asnumpy().tolist() == found[1].indices.asnumpy().tolist() == [1, 2, 8]
    np.testing.assert_allclose(found[0].asnumpy(), found[1].asnumpy(), rtol=1e-6)


def test_no_table_of_gradients_is_made(monkeypatch):
    net = embedding(rows=50_000)
    monkeypatch.setattr(np, "zeros", refusing(np.zeros, 90_000))
    assert gradient(net, lambda net: net(nd.array([7, 49_999])).sum()).indices.asnumpy().tolist() == [7, 49_999]
    trainer = gluon.Trainer(net.collect_params(), "adam")
    monkeypatch.undo()
    trainer.step(1)
    monkeypatch.setattr(np, "zeros", refusing(np.zeros, 90_000))
    trainer._params[0].data()._fresh_grad = True
    trainer.step(1)


def refusing(function, limit):
    def checked(shape, *args, **kwargs):
        assert np.prod(shape) < limit
        return function(shape, *args, **kwargs)

    return checked


def test_gradients_of_gradients_of_lookups():
    w = nd.array([[1.0, 2.0], [3.0, 4.0]])
    w.attach_grad(stype="row_sparse")
    with autograd.record():
        y = nd.Embedding(nd.array([1]), w, input_dim=2, output_dim=2, sparse_grad=True) ** 3
        (g,) = autograd.grad(y.sum(), [w], create_graph=True, retain_graph=True)
    g.backward()
    same(w.grad, "row_sparse", [[0, 0], [18, 24]])


def test_gradients_of_operators_on_parts(c, r):
    w = nd.ones((4, 2))
    w.attach_grad(stype="row_sparse")
    with autograd.record():
        y = nd.sparse.dot(c, w) * 3
    y.backward()
    same(w.grad, "row_sparse", 3 * MATRIX.sum(0)[:, None] * np.ones((1, 2)))
    assert w.grad.indices.asnumpy().tolist() == [0, 1, 2]
    w.attach_grad()
    with autograd.record():
        y = nd.sparse.dot(c, w)
    y.backward()
    same(w.grad, "default", MATRIX.sum(0)[:, None] * np.ones((1, 2)))
    x = nd.ones((3, 2))
    x.attach_grad()
    with autograd.record():
        y = x.tostype("row_sparse") * 2
    y.backward()
    same(x.grad, "default", np.full((3, 2), 2))
    r.attach_grad()
    with autograd.record():
        y = r * r + r
    y.backward()
    same(r.grad, "row_sparse", 2 * ROWS + 1)
    with autograd.record():
        y = nd.sparse.retain(r, nd.array([0, 2]))
    y.backward()
    assert r.grad.indices.asnumpy().tolist() == [0, 2]


# Updates: MXNet's numbers, for a weight of ones, wd 0.1, the gradient [1, 2] of row 1, then of row 2

AFTER_TWO_STEPS = [
    ("sgd", {}, 0.1, [1, 1, 0.89, 0.79, 0.89, 0.79]),
    ("sgd", {"lazy_update": False}, 0.1, [0.9801, 0.9801, 0.8811, 0.7821, 0.8801, 0.7801]),
    ("sgd", {"momentum": 0.9}, 0.1, [1, 1, 0.89, 0.79, 0.89, 0.79]),
    ("adam", {}, 0.1, [1, 1, 0.8999994, 0.8999993, 0.9255859, 0.9255858]),
    ("adam", {"lazy_update": False}, 0.1, [0.8004114, 0.8004114, 0.8271453, 0.8298667, 0.8197777, 0.8224696]),
    ("adagrad", {}, 0, [1, 1, 0.9, 0.9, 0.9, 0.9]),
    ("groupadagrad", {}, 0, [1, 1, 0.9367546, 0.8735092, 0.9367546, 0.8735092]),
    ("rmsprop", {}, 0.1, [0.4988726, 0.4988726, 0.6630963, 0.6729251, 0.3687855, 0.3678782]),
    ("nag", {}, 0.1, [1, 1, 0.89, 0.79, 0.89, 0.79]),
]


@pytest.mark.parametrize("stype", ["default", "row_sparse"])
@pytest.mark.parametrize("name, settings, wd, expected", AFTER_TWO_STEPS)
def test_lazy_updates(name, settings, wd, expected, stype):
    update = mx.optimizer.get_updater(mx.optimizer.create(name, learning_rate=0.1, wd=wd, **settings))
    weight = nd.ones((3, 2)).tostype(stype)
    for row in (1, 2):
        update(0, nd.sparse.row_sparse_array(([[1.0, 2]], [row]), shape=(3, 2)), weight)
    np.testing.assert_allclose(weight.asnumpy().ravel(), expected, rtol=2e-6)


@pytest.mark.parametrize("stype", ["default", "row_sparse"])
def test_ftrl_is_lazy_for_sparse_weights_alone(stype):
    update = mx.optimizer.get_updater(mx.optimizer.create("ftrl", learning_rate=0.1, wd=0.1))
    weight = nd.ones((2, 1)).tostype(stype)
    update(0, nd.sparse.row_sparse_array(([[1.0]], [1]), shape=(2, 1)), weight)
    assert weight.asnumpy()[0] == (0 if stype == "default" else 1)


def test_the_trainer_updates_rows():
    net = embedding()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1})
    gradient(net, lambda net: net(nd.array([1, 3, 1])).sum())
    trainer.step(1)
    same(net.weight.data(), "default", [[1, 1], [-1, -1], [1, 1], [0, 0], [1, 1], [1, 1]])
    assert gluon.utils.clip_global_norm([net.weight.grad()], 1.0) == pytest.approx(10**0.5)
    assert net.weight.grad().norm().asscalar() == pytest.approx(1)


def test_on_two_contexts_gradients_are_summed_as_rows():
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = gluon.nn.Embedding(6, 2, sparse_grad=True)
    net.initialize(mx.init.One(), ctx=contexts)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1})
    with autograd.record():
        losses = [net(nd.array(rows, ctx=ctx)).sum() for rows, ctx in zip([[1, 3], [1, 5]], contexts)]
    autograd.backward(losses)
    trainer.step(1)
    assert net.weight.grad(contexts[1]).indices.asnumpy().tolist() == [1, 3, 5]
    for ctx in contexts:
        same(net.weight.data(ctx), "default", [[1, 1], [-1, -1], [1, 1], [0, 0], [1, 1], [0, 0]])


# Weights in the store


def test_sparse_weights_live_in_the_store(tmp_path):
    net = gluon.contrib.nn.SparseEmbedding(5, 2)
    net.initialize(mx.init.One())
    rows = nd.array([1, 3, 1])
    with pytest.raises(RuntimeError, match="no Trainer"):
        net(rows)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1})
    weight = net.weight
    assert weight.row_sparse_data(rows).indices.asnumpy().tolist() == [1, 3]
    assert weight.list_row_sparse_data(nd.array([4]))[0].indices.asnumpy().tolist() == [4]
    for read in (weight.data, weight.list_data):
        with pytest.raises(RuntimeError, match="storage type is row_sparse"):
            read()
    with autograd.record():
        y = net(rows).sum()
    y.backward()
    trainer.step(1)
    updated = [[1, 1], [-1, -1], [1, 1], [0, 0], [1, 1]]
    same(weight.row_sparse_data(nd.arange(5)), "row_sparse", updated)
    net.save_parameters(str(tmp_path / "w.params"))
    same(nd.load(str(tmp_path / "w.params"))["weight"], "row_sparse", updated)
    weight.set_data(nd.ones((5, 2)) * 7)
    same(weight.row_sparse_data(nd.arange(5)), "row_sparse", np.full((5, 2), 7))
    with pytest.raises(RuntimeError, match="More than one trainers"):
        gluon.Trainer(net.collect_params(), "sgd")


def test_row_sparse_pull():
    store = mx.kv.create("local")
    store.init("a", nd.array(ROWS).tostype("row_sparse"))
    store.init("b", nd.ones((5, 2)))
    out = nd.zeros((5, 2), stype="row_sparse")
    store.row_sparse_pull("a", out=out, row_ids=nd.array([3, 1, 1]))
    same(out, "row_sparse", ROWS)
    store.push("a", [nd.sparse.row_sparse_array(([[1, 1]], [2]), shape=(5, 2))] * 2)
    store.pull("a", out=out)  # not of sparse values
    same(out, "row_sparse", ROWS)
    store.pull("a", out=out, ignore_sparse=False)
    same(out, "row_sparse", [[0, 0], [0, 0], [2, 2], [0, 0], [0, 0]])
    with pytest.raises(MXNetError, match="stored as 'default'; use pull"):
        store.row_sparse_pull("b", out=out, row_ids=nd.array([1]))


def test_row_sparse_pull_of_lists():
    """Of keys, of devices, and of both; one array of row_ids is for all arrays of out. As in MXNet."""
    store = mx.kv.create()
    store.init(["a", "b"], [nd.array(ROWS).tostype("row_sparse"), nd.array(ROWS * 2).tostype("row_sparse")])

    def pulled(keys, row_ids, targets):
        made = [nd.zeros((5, 2), stype="row_sparse") for _ in range(4)]
        store.row_sparse_pull(keys, out=targets(*made), row_ids=row_ids)
        return [(x.indices.asnumpy().tolist(), x.asnumpy()[[1, 3], 0].tolist()) for x in made if x.indices.size]

    one, three = nd.array([1, 1], dtype="int64"), nd.array([3], dtype="int64")
    first, second = ([1], [1, 0]), ([3], [0, 3])
    assert pulled("a", [one, three], lambda a, b, *_: [a, b]) == [first, second]
    assert pulled("a", [three], lambda a, b, *_: [a, b]) == [second, second]
    assert pulled("a", three, lambda a, b, *_: [a, b]) == [second, second]
    assert pulled(["a", "a"], [one, three], lambda a, b, *_: [a, b]) == [first, second]
    assert pulled(["a", "b"], [one, three], lambda a, b, *_: [a, b]) == [first, ([3], [0, 6])]
    both = pulled(["a", "b"], [[one, three], [three, one]], lambda a, b, c, d: [[a, b], [c, d]])
    assert both == [first, second, ([3], [0, 6]), ([1], [2, 0])]
    for keys, row_ids in (("a", [one, three, one]), (["a", "b"], one)):
        with pytest.raises(AssertionError, match="number of row_ids|1 values"):
            pulled(keys, row_ids, lambda a, b, *_: [a, b])


def test_what_pull_leaves_out_is_what_out_is():
    """Not what is stored: rows that were pushed, or initialized, go into dense arrays. As in MXNet."""
    store = mx.kv.create()
    store.init("rows", nd.array(ROWS).tostype("row_sparse"))
    store.init("dense", nd.ones((5, 2)))
    out = [nd.ones((5, 2)), nd.ones((5, 2))]
    store.pull(["rows", "dense"], out=out)
    same(out[0], "default", ROWS)
    store.push("dense", [nd.array(ROWS).tostype("row_sparse")] * 2)
    store.pull("dense", out=out)
    same(out[1], "default", ROWS * 2)
    sparse = nd.zeros((5, 2), stype="row_sparse")
    store.pull("dense", out=sparse)
    same(sparse, "row_sparse", np.zeros((5, 2)))


# Files


# Written by MXNet; in the first one the context is made gpu(1).
PICKLED = {
    "csr": "c9fa93f90200000001000000030000000000000002000000020000000000000003000000000000000200000001000000"
    "0000000006000000010000000300000000000000060000000100000003000000000000000000803f0000004000004040"
    "000000000000000002000000000000000300000000000000000000000000000002000000000000000200000000000000",
    "row_sparse": "c9fa93f90100000002000000010000000000000002000000000000000200000002000000000000000200000000000000"
    "010000000000000000000000060000000100000001000000000000000000803f000000400100000000000000",
}


def test_what_mxnet_pickles_becomes_the_array(r, c):
    """Also where it names a GPU; and `__getstate__` gives that form."""
    for x, wanted in ((c, [[1, 0, 2], [0, 0, 3]]), (r, [[0, 0], [1, 2]])):
        empty = type(x)(None)
        empty.__setstate__({"handle": bytearray.fromhex(PICKLED[x.stype])})
        same(empty, x.stype, wanted)
        again = x.copy()
        again.__setstate__(empty.__getstate__())
        same(again, x.stype, wanted)
    with pytest.raises(MXNetError, match="not row_sparse cannot become a RowSparseNDArray"):
        r.__setstate__(c.__getstate__())


def test_batches_of_csr_data():
    """Dense as in MXNet, where the last batch can only be discarded; never is the whole of the data made dense."""
    data = nd.sparse.csr_matrix(([1, 2, 3], [0, 1 << 40, 5], [0, 1, 2, 3]), shape=(3, 1 << 41))
    for handle in ("pad", "roll_over"):
        with pytest.raises(NotImplementedError, match="`last_batch_handle` set to `discard`"):
            mx.io.NDArrayIter(data, nd.arange(3), 2, last_batch_handle=handle)
    matrix = nd.sparse.csr_matrix(([1, 2, 3], [0, 1, 2], np.repeat(np.arange(4), [1, 1, 1 << 20, 1])), shape=None)
    wide = nd.sparse.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=(len(matrix), 1 << 21))
    batch = next(mx.io.NDArrayIter(wide, None, 2, last_batch_handle="discard"))
    assert batch.data[0].stype == "default" and np.flatnonzero(batch.data[0].asnumpy()).tolist() == [0, (1 << 21) + 1]


def test_saved_and_loaded(r, c, tmp_path, root):
    path = str(tmp_path / "x.params")
    nd.save(path, {"r": r, "c": c, "d": nd.ones((2,))})
    found = nd.load(path)
    same(found["r"], "row_sparse", ROWS)
    same(found["c"], "csr", MATRIX)
    same(found["d"], "default", [1, 1])
    for suffix in (".npz", ".safetensors"):
        with pytest.raises(MXNetError, match=r"use \.tostype\('default'\)"):
            nd.save(str(tmp_path / f"x{suffix}"), [r])
    whole = root / "tests" / "data" / "checkpoint" / "sparse.params"  # MXNet wrote it
    again = tmp_path / "again.params"
    nd.save(str(again), nd.load(str(whole)))
    assert again.read_bytes() == whole.read_bytes()


def test_libsvm(tmp_path):
    path = tmp_path / "data.t"
    path.write_text("1 0:1.5 2:2\n0 1:1\n1 3:4\n")
    batches = mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(4,), batch_size=2)
    assert batches.provide_data[0].shape == (2, 4)
    first, second = batches
    same(first.data[0], "csr", [[1.5, 0, 2, 0], [0, 1, 0, 0]])
    same(first.label[0], "default", [1, 0])
    same(second.data[0], "csr", [[0, 0, 0, 4], [1.5, 0, 2, 0]])
    assert (second.pad, second.index.tolist()) == (1, [2, 0])
    batches.reset()
    same(batches.next().label[0], "default", [0, 1])  # the first row has filled the last batch
    path.write_text("1 0:1.5\n1 4:1\n")
    with pytest.raises(MXNetError, match=r"data\.t: line 2: columns must ascend and be in the range 0 to 3"):
        mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(4,), batch_size=2)


@pytest.mark.parametrize(
    "line, message",
    [
        ("1 0:1 0:2", "columns must ascend and be in the range 0 to 3"),
        ("1 4:1", "columns must ascend"),
        ("1 -1:1", "columns must ascend"),
        ("1 99999999999999999999:1", "columns must ascend"),
        ("1 2", "2 labels; expected 1"),
        ("0:1", "0 labels; expected 1"),
        ("1 0:1 5", "columns must ascend"),
        ("1 :1", "invalid literal for int"),
        ("1 1e0:1", "invalid literal for int"),
        ("1 0:", "could not convert string to float"),
        ("1 0:1:2", "could not convert string to float"),
        ("1 0::2", "could not convert string to float"),
        ("1 0:1.2.3", "could not convert string to float"),
        ("1 0:1-2", "could not convert string to float"),
        ("1 0:x", "could not convert string to float"),
    ],
)
def test_libsvm_names_the_line_that_is_wrong(tmp_path, line, message):
    path = tmp_path / "data.t"
    path.write_text(f"1 0:1\n\n{line}\n1 1:1\n")
    with pytest.raises(MXNetError, match=rf"data\.t: line 3: {message}"):
        mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(4,), batch_size=2)


def test_libsvm_is_parsed_at_once(tmp_path, monkeypatch):
    """Not line by line, which takes 20 times as long, where all lines are of the common form; else with one result."""
    path = tmp_path / "data.t"
    common = " 1\t0:1.5 2:-2e-1\r\n\n-.5 \n+2 3:4"
    path.write_bytes(common.encode())
    wanted = [[1.5, 0, -0.2, 0], [0, 0, 0, 0], [0, 0, 0, 4]]

    def elements():
        (batch,) = mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(4,), batch_size=3)
        same(batch.label[0], "default", [1, -0.5, 2])
        return batch.data[0]

    with monkeypatch.context() as patch:
        patch.setattr("gluonjit.data.libsvm._parsed_by_line", None)
        same(elements(), "csr", wanted)
        patch.setattr("gluonjit.data.libsvm.CHUNK", 4)
        same(elements(), "csr", wanted)
    path.write_bytes(common.replace("3:4", "+3:nan").encode())
    assert np.isnan(elements().data.asnumpy()).tolist() == [False, False, True]


def test_stored_elements_are_counted():
    x = nd.sparse.csr_matrix(np.array([[1, 0, 2], [0, 0, 0], [3, 4, 0.0]]))
    for axis, counts in ((None, [4]), (0, [2, 1, 1]), (1, [2, 0, 2])):
        found = nd.contrib.getnnz(x, axis=axis)
        assert found.dtype == np.int64 and found.asnumpy().tolist() == counts
    with pytest.raises(mx.MXNetError, match="getnnz takes a csr array, not one of storage type 'default'"):
        nd.contrib.getnnz(nd.ones((2, 2)))
    with pytest.raises(mx.MXNetError, match="axis"):
        nd.contrib.getnnz(x, axis=2)


@pytest.mark.parametrize("initialized", [False, True])
@pytest.mark.parametrize("stored", ["row_sparse", "default"])
def test_a_row_sparse_parameter_stays_so_when_it_is_loaded(tmp_path, initialized, stored):
    """Whatever the file's storage; and a row_sparse file goes into a dense parameter. As in MXNet."""

    class Table(gluon.Block):
        def __init__(self, stype):
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(4, 2), stype=stype, grad_stype="row_sparse")

    value = np.arange(8, dtype=np.float32).reshape(4, 2)
    nd.save(str(tmp_path / "w.params"), {"weight": nd.array(value).tostype(stored)})
    table = Table("row_sparse")
    if initialized:
        table.initialize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reader tells that the file's array was sparse
        table.load_parameters(str(tmp_path / "w.params"))
        dense = Table("default")
        dense.load_parameters(str(tmp_path / "w.params"))
    trainer = gluon.Trainer(table.collect_params(), "sgd", {"learning_rate": 1.0})
    rows = table.weight.row_sparse_data(nd.array([1, 3]))
    assert rows.stype == "row_sparse" and (rows.data.asnumpy() == value[[1, 3]]).all()
    assert dense.weight.data().stype == "default" and (dense.weight.data().asnumpy() == value).all()
    with mx.autograd.record():
        loss = nd.Embedding(nd.array([1]), rows, input_dim=4, output_dim=2, sparse_grad=True).sum()
    loss.backward()
    trainer.step(1)
    after = table.weight.row_sparse_data(nd.array([0, 1])).data.asnumpy()
    assert (after == value[[0, 1]] - [[0, 0], [1, 1]]).all()


def test_rows_are_retained_in_graphs():
    """The graph that MXNet 1.9.1 writes; the result is dense here. The gradient is that of the rows which stay."""

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x, rows):
            return F.sparse.retain(x, rows) * 2

    x, rows = mx.sym.var("x"), mx.sym.var("rows")
    symbol = mx.sym.sparse.retain(x, rows, name="kept")
    assert mx.sym.load_json(symbol.tojson()).list_outputs() == ["kept_output"]
    assert '"op": "_sparse_retain"' in symbol.tojson()
    value = np.float32([[1, 2], [np.inf, np.nan], [3, 4], [5, 6]])
    net = Net()
    plain = net(nd.array(value).tostype("row_sparse"), nd.array([2, 0])).tostype("default").asnumpy()
    net.hybridize()
    for given in ([2, 0], [0, 2, 2], [2, 0, 9]):
        data = nd.array(value)
        data.attach_grad()
        with mx.autograd.record():
            found = net(data, nd.array(given))
        found.backward()
        assert (found.asnumpy() == plain).all() and (plain == [[2, 4], [0, 0], [6, 8], [0, 0]]).all()
        assert (data.grad.asnumpy() == [[2, 2], [0, 0], [2, 2], [0, 0]]).all()
    with pytest.raises(AttributeError, match=r"arrays in graphs are dense: count elements with \(x != 0\).sum\(\)"):
        mx.sym.contrib.getnnz(x)


# What users give, and storage


def test_dense_copies_can_be_written(r, c):
    for x in (r, c):
        dense = x.asnumpy()
        dense[:] = 7
        assert x.asnumpy().max() < 7


@pytest.mark.parametrize(
    "parts",
    [
        ([7, 8, 9], [0, 2, 1], [0, 5, 2, 3]),
        ([7, 8, 9], [0, 2, 1], [0, -2, 2, 3]),
        ([7, 8, 9], [1, 2, 1], [0, 2, 2, 4]),
        ([7, 8, 9], [0, 4, 1], [0, 2, 2, 3]),
        ([7, 8, 9], [0, -1, 1], [0, 2, 2, 3]),
        ([7, 8, 9], [0, 1 << 62, 1], [0, 2, 2, 3]),
        ([7, 8, 9], [0, 1.8e19, 1], [0, 2, 2, 3]),
    ],
)
def test_a_matrix_of_parts_that_do_not_fit_is_refused_by_every_use(parts):
    x = nd.sparse.csr_matrix(parts, shape=(3, 4))
    uses = [x.check_format, x.asnumpy, lambda: x * 2, lambda: x + x, lambda: nd.dot(x, nd.ones((4, 2))), x.sum]
    uses += [
        lambda: nd.dot(x, nd.ones((3, 2)), transpose_a=True),
        lambda: x[1:3],
        lambda: nd.sparse.dot(nd.ones((2, 3)), x),
    ]
    for use in (*uses, lambda: nd.concat(x, x, dim=0), lambda: pickle.loads(pickle.dumps(x)).asnumpy()):
        with np.errstate(invalid="ignore"), pytest.raises(MXNetError, match="CSRNDArray: .*expected"):
            use()


@pytest.mark.parametrize("rows", [[1, 5], [-1, 2], [0, 1 << 62]])
def test_rows_out_of_range_are_refused_by_every_use(rows, r):
    x = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], rows), shape=(5, 2))
    store = mx.kv.create()
    uses = [x.check_format, x.asnumpy, lambda: x * 2, lambda: x + r, lambda: nd.add_n(r, x), lambda: nd.add_n(x, x)]
    uses += [lambda: x.retain(nd.array([0])), lambda: nd.elemwise_mul(x, nd.ones((5, 2))), lambda: r.copy() + x]
    weight = nd.ones((5, 2))
    uses += [lambda: nd.sgd_mom_update(weight, x, nd.zeros((5, 2)), lr=1.0, out=weight)]
    uses += [lambda: mx.optimizer.get_updater(mx.optimizer.SGD())(0, x, weight)]
    uses += [lambda: (store.init(1, x), store.row_sparse_pull(1, out=r, row_ids=nd.array([0])))]
    for use in uses:
        with pytest.raises(MXNetError, match="RowSparseNDArray: row indices"):
            use()
    assert (weight.asnumpy() == 1).all()


def test_the_order_of_rows_and_columns_is_checked_but_not_needed():
    rows = nd.sparse.row_sparse_array(([[3, 4], [1, 2]], [3, 1]), shape=(5, 2))
    with pytest.raises(MXNetError, match="ascending order"):
        rows.check_format()
    assert rows.indices.asnumpy().tolist() == [3, 1]  # as given
    same(rows * 2, "row_sparse", ROWS * 2)
    same(rows + rows, "row_sparse", ROWS * 2)
    matrix = nd.sparse.csr_matrix(([2, 1, 3], [2, 0, 1], [0, 2, 2, 3]), shape=(3, 4))
    with pytest.raises(MXNetError, match="ascending order per row"):
        matrix.check_format()
    same(nd.dot(matrix, nd.array(np.eye(4))), "default", MATRIX)


def test_shapes_and_types_are_those_of_the_source(r, c):
    for make in (nd.sparse.csr_matrix, nd.sparse.row_sparse_array):
        for source, dtype in ((MATRIX.astype("float64"), np.float64), (nd.array(MATRIX, dtype="int32"), np.int32)):
            assert make(source).dtype is dtype
        assert make(MATRIX.tolist()).dtype is np.float32
        assert make(MATRIX, dtype="float16").dtype is np.float16
    assert nd.sparse.csr_matrix(([1, 2, 3], [0, 2, 1], [0, 2, 2, 3])).shape == (3, 3)
    with pytest.raises(ValueError, match="invalid shape"):
        nd.sparse.csr_matrix(([], [], [0, 0]))
    with pytest.raises(ValueError, match="invalid shape"):
        nd.sparse.row_sparse_array((np.zeros((0, 2)), []))


def test_retain_takes_its_operands_by_name(r):
    same(nd.sparse.retain(data=r, indices=nd.array([1, 0])), "row_sparse", ROWS * [[1], [1], [1], [0], [0]])
    with pytest.raises(MXNetError, match="garbage"):
        nd.sparse.retain(r, garbage=1)


def test_operators_of_stored_elements_alone(r, c):
    """Results of MXNet."""
    internal = nd._internal
    same(internal._scatter_plus_scalar(r, scalar=2), "row_sparse", [[0, 0], [3, 4], [0, 0], [5, 6], [0, 0]])
    same(internal._scatter_minus_scalar(c, scalar=2), "csr", [[-1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    same(internal._scatter_elemwise_div(r, r + r), "row_sparse", ROWS.astype(bool) / 2)
    same(internal._square_sum(r, axis=1, keepdims=True), "row_sparse", [[0], [5], [0], [25], [0]])
    same(internal._square_sum(r, axis=1), "default", [0, 5, 0, 25, 0])
    same(internal._square_sum(r, axis=0), "default", [10, 20])
    same(internal._grad_add(r, r), "row_sparse", ROWS * 2)


@pytest.mark.parametrize("axis, factor", [(1, [[3], [4], [5], [6], [7]]), (0, [[3, 4]])])
def test_the_gradient_of_square_sum_has_the_rows_of_its_operand(r, axis, factor):
    r.attach_grad(stype="row_sparse")
    with autograd.record():
        y = nd._internal._square_sum(r, axis=axis)
    y.backward(nd.array(np.ravel(factor)))
    same(r.grad, "row_sparse", 2 * ROWS * factor)
    assert r.grad.indices.asnumpy().tolist() == [1, 3]


def test_a_bias_may_be_a_column():
    """Sparse biases are no vectors."""
    x, weight, bias = nd.ones((2, 3)), nd.ones((4, 3)), nd.array([[1], [2], [3], [4]])
    for b in (bias, bias.tostype("row_sparse")):
        same(nd.FullyConnected(x, weight.tostype("row_sparse"), b, num_hidden=4), "default", [[4, 5, 6, 7]] * 2)
    graph = mx.sym.FullyConnected(mx.sym.var("x"), bias=mx.sym.var("b", shape=(4, 1)), num_hidden=4, name="fc")
    assert graph.infer_shape(x=(2, 3))[0] == [(2, 3), (4, 3), (4, 1)]


def test_sums_and_products_of_one_layout_keep_it(r, c):
    """Python's operators do; those of MXNet that broadcast give dense arrays."""
    for x, dense in ((r, ROWS), (c, MATRIX)):
        same(x + x, x.stype, 2 * dense)
        same(x - x, x.stype, 0 * dense)
        same(x * x, x.stype, dense * dense)
        same(nd.sparse.add(x, x), x.stype, 2 * dense)
        same(nd._internal._maximum(x, -x), x.stype, dense)
        same(nd.broadcast_add(x, x), "default", 2 * dense)
        same(nd.cast(x, dtype="float64"), "default", dense)
        same(x.astype("float64"), x.stype, dense)
        x += x
        same(x, x.stype, 2 * dense)
