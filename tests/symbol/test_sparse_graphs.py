"""Sparse arrays in symbols, executors and modules: what stays sparse, and storage types, which are MXNet's."""

import itertools

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd, sym
from gluonjit.base import MXNetError

DENSE, ROWS, CSR = STYPES = "default", "row_sparse", "csr"
A = np.array([[0, 0, 0, 0], [1, 0, -2, 0.5], [0, 3, 0, 0], [0, 0, 0, -1]], np.float32)
B = np.array([[0, 2, 0, 0], [1, 0, 4, 0], [0, 0, 0, 0], [0.5, 0, 0, 2]], np.float32)

ONE = {
    **{name: getattr(sym, name) for name in "abs exp square sqrt relu sin sign sum norm BlockGrad make_loss".split()},
    "x * 2": lambda x: x * 2,
    "x + 1": lambda x: x + 1,
    "x + 0": lambda x: x + 0,
    "x > 0": lambda x: x > 0,
    "x > -1": lambda x: x > -1,
    "clip": lambda x: sym.clip(x, a_min=-1, a_max=1),
    "clip off 0": lambda x: sym.clip(x, a_min=1, a_max=2),
    "cast": lambda x: sym.cast(x, dtype="float32"),
    "slice": lambda x: sym.slice(x, begin=(0,), end=(2,)),
    "square_sum": lambda x: sym._internal._square_sum(x, axis=1, keepdims=True),
    "flat square_sum": lambda x: sym._internal._square_sum(x, axis=1),
    "scattered sum": lambda x: sym._internal._scatter_plus_scalar(x, scalar=2),
    "rows": lambda x: sym.cast_storage(sym.cast_storage(x, "default"), "row_sparse"),
}
TWO = {
    "elemwise_add": sym.elemwise_add,
    "elemwise_sub": sym.elemwise_sub,
    "elemwise_mul": sym.elemwise_mul,
    "elemwise_div": sym.elemwise_div,
    "broadcast_add": sym.broadcast_add,
    "broadcast_mul": sym.broadcast_mul,
    "add_n": sym.add_n,
    "maximum": sym._internal._maximum,
    "scattered quotient": sym._internal._scatter_elemwise_div,
    "like": sym._internal._identity_with_attr_like_rhs,
    "concat": lambda x, y: sym.concat(x, y, dim=0),
    "dot": sym.dot,
    "dot of transposed": lambda x, y: sym.dot(x, y, transpose_a=True),
    "dot with transposed": lambda x, y: sym.dot(x, y, transpose_b=True),
    "dot as csr": lambda x, y: sym.dot(x, y, forward_stype="csr"),
}
CASES = [(name, (s,)) for name in ONE for s in STYPES] + [
    (n, pair) for n in TWO for pair in itertools.product(STYPES, STYPES)
]


@pytest.mark.parametrize("name, stypes", CASES)
def test_inferred_storage_is_that_of_the_result(name, stypes):
    """And the elements are those of the dense arrays, except where the operator says otherwise."""
    names = "xy"[: len(stypes)]
    graph = {**ONE, **TWO}[name](*(sym.var(n, stype=s) for n, s in zip(names, stypes)))
    arrays = {n: nd.array(x).tostype(s) for n, x, s in zip(names, (A, B), stypes)}
    executor = graph.bind(mx.cpu(), arrays)
    found = executor.forward()[0]
    if (run := executor._last_on_parts) is not None:  # what the operator has made, before it is written to the output
        assert run.outputs[0].stype == found.stype
    dense = graph.bind(mx.cpu(), {n: x.tostype("default") for n, x in arrays.items()}).forward()[0].asnumpy()
    if name == "scattered sum" and stypes[0] != DENSE:
        dense = np.where(A != 0 if stypes[0] == CSR else A.any(1, keepdims=True), dense, 0)
    elif name == "scattered quotient" and stypes[0] == ROWS:
        dense = np.where(A.any(1, keepdims=True), dense, 0)
    np.testing.assert_allclose(found.asnumpy(), dense, rtol=1e-6)


def test_a_lookup_never_makes_its_table_dense(monkeypatch):
    """Nor does recording it: a step of a table of 71,569 rows took 20 ms for that alone."""
    graph = sym.sum(sym.Embedding(sym.var("x"), sym.var("w", stype=ROWS), input_dim=4, output_dim=4, sparse_grad=True))
    executor = graph.simple_bind(mx.cpu(), x=(2,), grad_req={"w": "write"})
    executor.arg_dict["w"][:] = nd.array(A).tostype(ROWS)
    executor.arg_dict["x"][:] = [1, 3]
    monkeypatch.setattr("gluonjit.files.sparse.densify", None)
    assert executor.forward(is_train=True)[0].asscalar() == -1.5
    executor.backward(nd.ones(1))
    assert executor.grad_dict["w"].indices.asnumpy().tolist() == [1, 3]


def test_outputs_that_are_no_losses_need_a_gradient():
    """As in graphs of dense arrays, and in MXNet: ones were taken."""
    x, w = sym.var("x", stype=CSR), sym.var("w", stype=ROWS)
    product = sym.dot(x, w)

    def gradient(graph, out_grads=None):
        executor = graph.simple_bind(mx.cpu(), x=(4, 4), w=(4, 1), grad_req={"w": "write"})
        executor.arg_dict["x"][:] = nd.array(A).tostype(CSR)
        executor.forward(is_train=True)
        executor.backward(out_grads)
        return executor.grad_dict["w"].asnumpy().ravel().tolist()

    for graph in (product, sym.Group([sym.MakeLoss(product), product])):
        with pytest.raises(MXNetError, match="head_gradient is required .* out_grads has none for dot"):
            gradient(graph)
    sums = A.sum(0).tolist()
    assert gradient(sym.MakeLoss(product)) == sums
    assert gradient(sym.Group([sym.MakeLoss(product), sym.BlockGrad(product)])) == sums
    assert gradient(product, nd.ones((4, 1)) * 2) == (A.sum(0) * 2).tolist()


def test_loops_and_branches_of_graphs_with_sparse_arrays():
    """Their bodies may read sparse arrays, as MXNet's may."""
    x, w, z = sym.var("x", stype=CSR), sym.var("w"), sym.var("z")
    data = {"x": nd.array(A).tostype(CSR), "w": nd.ones((4, 1)), "z": nd.zeros(1)}
    sums = A.sum(1, keepdims=True)
    branch = sym.contrib.cond(z > 0, lambda: sym.dot(x, w), lambda: sym.dot(x, w) * 2)
    np.testing.assert_array_equal(branch.bind(mx.cpu(), data).forward()[0].asnumpy(), sums * 2)
    rows, (total,) = sym.contrib.while_loop(lambda i: i < 2, lambda i: (sym.dot(x, w), [i + 1]), [z], max_iterations=2)
    found = sym.Group([rows[0] if isinstance(rows, list) else rows, total]).bind(mx.cpu(), data).forward()
    np.testing.assert_array_equal(found[0].asnumpy(), [sums, sums])
    assert found[1].asscalar() == 2
    scaled, _ = sym.contrib.foreach(lambda d, s: (sym.broadcast_mul(sym.dot(x, w), d), s), sym.var("d"), [z])
    executor = sym.MakeLoss(scaled).bind(
        mx.cpu(), {**data, "d": nd.array([[1], [2]])}, args_grad={"w": nd.zeros((4, 1))}, grad_req={"w": "write"}
    )
    executor.forward(is_train=True)
    executor.backward()
    assert executor.grad_dict["w"].asnumpy().ravel().tolist() == (A.sum(0) * 3).tolist()


def test_a_hybridized_block_does_not_make_large_arrays_dense(monkeypatch):
    """It runs operator by operator then, and compiled for small ones."""

    class Product(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(1 << 19, 1), init=mx.init.One())

        def hybrid_forward(self, F, x, weight):
            return F.dot(x, weight)

    net = Product()
    net.initialize()
    net.hybridize()
    x = nd.sparse.csr_matrix(([1, 2, 3], [0, 7, 9], [0, 1, 2, 3]), shape=(3, 1 << 19))
    with monkeypatch.context() as patch, mx.autograd.record():
        patch.setattr("gluonjit.files.sparse.densify", None)
        y = net(x)
    y.backward()
    assert y.asnumpy().ravel().tolist() == [1, 2, 3]
    gradient = net.weight.grad().asnumpy().ravel()
    assert np.flatnonzero(gradient).tolist() == [0, 7, 9] and gradient.sum() == 6


def gradient_stypes(graph, **stypes):
    shapes = dict.fromkeys(stypes, (4, 4))
    executor = graph.simple_bind(mx.cpu(), stype_dict=stypes, **shapes)
    return [executor.grad_dict[name].stype for name in stypes]


def test_gradients_have_mxnets_storage():
    x, y = sym.var("x"), sym.var("y")
    for s in STYPES:
        for graph in (sym.abs(x), x * 2, -x, sym.square(x), sym.relu(x), sym.sign(x), sym.BlockGrad(x)):
            assert gradient_stypes(graph, x=s) == [s]
        for graph in (sym.sqrt(x), sym.exp(x), sym.clip(x, a_min=-1, a_max=1), sym.sum(x), sym.make_loss(x)):
            assert gradient_stypes(graph, x=s) == [DENSE]
        assert gradient_stypes(sym.dot(x, y), x=CSR, y=s) == [DENSE, ROWS]
        assert gradient_stypes(sym.dot(x, y, transpose_a=True), x=CSR, y=s) == [DENSE, DENSE]
        assert gradient_stypes(sym.elemwise_add(x, y), x=s, y=s) == [s, s]
        assert gradient_stypes(sym.elemwise_mul(x, y), x=s, y=s) == [DENSE, DENSE]
    assert gradient_stypes(sym.exp(sym.dot(x, y * 2)), x=CSR, y=DENSE) == [DENSE, ROWS]
    assert gradient_stypes(sym.dot(x, y) + sym.dot(x, y * y), x=CSR, y=ROWS) == [DENSE, DENSE]
    lookup = {"input_dim": 4, "output_dim": 4}
    rows = sym.Embedding(x, y, sparse_grad=True, **lookup)
    assert gradient_stypes(rows, x=DENSE, y=DENSE) == [DENSE, ROWS]
    assert gradient_stypes(rows + rows, x=DENSE, y=DENSE) == [DENSE, ROWS]
    assert gradient_stypes(sym.Embedding(x, y, **lookup), x=DENSE, y=ROWS) == [DENSE, DENSE]
    assert gradient_stypes(sym.contrib.SparseEmbedding(x, y, **lookup), x=DENSE, y=ROWS) == [DENSE, ROWS]
    assert gradient_stypes(sym._internal._square_sum(x, axis=1), x=ROWS) == [ROWS]


def test_a_lookup_with_sparse_grad_gives_rows_in_compiled_graphs():
    graph = sym.Embedding(sym.var("x"), sym.var("w"), input_dim=9, output_dim=2, sparse_grad=True)
    executor = graph.simple_bind(mx.cpu(), grad_req={"w": "write"}, x=(3,))
    executor.forward(is_train=True, x=nd.array([7, 2, 7]))
    executor.backward([nd.array([[1, 2], [3, 4], [5, 6]])])
    grad = executor.grad_dict["w"]
    assert (grad.stype, grad.indices.asnumpy().tolist()) == (ROWS, [2, 7])
    assert grad.data.asnumpy().tolist() == [[3, 4], [6, 8]]


def test_gradients_of_an_executor():
    x, w, b = sym.var("x", stype=CSR), sym.var("w", stype=ROWS), sym.var("b")
    graph = sym.broadcast_add(sym.dot(x, w), b)
    executor = graph.simple_bind(mx.cpu(), grad_req={"w": "add", "b": "write"}, x=(4, 4), w=(4, 2), b=(2,))
    assert [array.stype for array in executor.arg_arrays] == [CSR, ROWS, DENSE]
    executor.arg_dict["x"][:] = nd.array(A).tostype(CSR)
    weight = np.arange(8, dtype=np.float32).reshape(4, 2)
    executor.arg_dict["w"][:] = weight
    for _ in range(2):
        (y,) = executor.forward(is_train=True)
        np.testing.assert_allclose(y.asnumpy(), A @ weight)
        executor.backward([nd.ones((4, 2))])
    np.testing.assert_allclose(executor.grad_dict["w"].asnumpy(), 2 * A.T @ np.ones((4, 2)))
    assert executor.grad_dict["b"].asnumpy().tolist() == [4, 4]
    assert executor.outputs[0] is y  # outputs are the same arrays for ever


class Batches(mx.io.DataIter):
    """Two batches of a csr matrix, one of whose columns is where the label is 1."""

    def __init__(self, columns):
        super().__init__(2)
        self.provide_data = [mx.io.DataDesc("data", (2, columns))]
        self.provide_label = [mx.io.DataDesc("label", (2,))]
        self.reset()

    def reset(self):
        self._at = 0

    def next(self):
        if self._at == 2:
            raise StopIteration
        self._at += 1
        places = np.array([5, 70, 6, 1000 * self._at])
        columns = self.provide_data[0].shape[1]
        x = nd.sparse.csr_matrix((np.ones(4), places, [0, 2, 4]), shape=(2, columns))
        return mx.io.DataBatch([x], [nd.array([1, 0])], 0, provide_data=None, provide_label=None)


def test_a_linear_model_of_many_features_stays_sparse():
    """Were anything dense, 2**40 features would need 8 TB."""
    columns = 1 << 40
    x, w = sym.var("data", stype=CSR), sym.var("w", shape=(columns, 1), stype=ROWS)
    graph = sym.LogisticRegressionOutput(sym.reshape(sym.dot(sym.square(x), w * 2), shape=(-1,)), sym.var("label"))
    executor = graph.simple_bind(mx.cpu(), grad_req={"w": "write"}, data=(2, columns), label=(2,))
    update = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=1.0))
    for batch in Batches(columns):
        executor.forward(is_train=True, data=batch.data[0], label=batch.label[0])
        executor.backward()
        update(0, executor.grad_dict["w"], executor.arg_dict["w"])
    weight = executor.arg_dict["w"]
    assert weight.indices.asnumpy().tolist() == [5, 6, 70, 1000, 2000]
    assert weight.data.asnumpy()[1] < 0 < weight.data.asnumpy()[0]


def test_a_module_trains_on_csr_batches():
    x, w = sym.var("data", stype=CSR), sym.var("weight", shape=(3000, 1), stype=ROWS)
    graph = sym.LogisticRegressionOutput(sym.reshape(sym.dot(x, w), shape=(-1,)), sym.var("label"))
    module = mx.mod.Module(graph, label_names=["label"])
    module.fit(Batches(3000), num_epoch=3, optimizer="adam", eval_metric="mse", optimizer_params={"learning_rate": 0.5})
    executor = module._exec_group.execs[0]
    assert [executor.arg_dict[name].stype for name in ("data", "weight")] == [CSR, ROWS]
    assert executor.grad_dict["weight"].indices.asnumpy().tolist() == [5, 6, 70, 2000]
    module.prepare(next(iter(Batches(3000))), sparse_row_id_fn=lambda batch: {"weight": batch.data[0].indices})
    assert module.score(Batches(3000), "mse")[0][1] < 0.01


def test_no_head_gradient_is_needed_for_a_variable_that_nothing_reads():
    """Gradients of variables that no head depends on are zeros, as in dense graphs."""
    x = sym.var("x", stype=ROWS)
    executor = sym.Group([x * 2, sym.sign(x)]).simple_bind(mx.cpu(), x=(3, 2))
    executor.grad_dict["x"][:] = nd.ones((3, 2)).tostype(ROWS)
    executor.arg_dict["x"][:] = nd.ones((3, 2)).tostype(ROWS)
    executor.forward(is_train=True)
    executor.backward([nd.zeros((3, 2)).tostype(ROWS), nd.zeros((3, 2)).tostype(ROWS)])
    assert not executor.grad_dict["x"].asnumpy().any()


def test_a_hostile_index_in_a_graph_is_an_error():
    x, w = sym.var("x", stype=CSR), sym.var("w")
    executor = sym.dot(x, w).bind(
        mx.cpu(), {"x": nd.sparse.csr_matrix(([1.0], [10**12], [0, 1]), shape=(1, 2)), "w": nd.ones((2, 2))}
    )
    with pytest.raises(MXNetError, match="column indices from 1000000000000"):
        executor.forward()
