"""`mx.test_utils`: the helpers that tests of operators are written with."""

import bz2
import gzip
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, language, nd, sym, test_utils
from gluonjit.base import MXNetError
from gluonjit.files import packed

NAMES = Path(language.__file__).parent / "mxnet_names" / "names.txt"


def test_comparisons():
    a = nd.array([1, 2, np.nan])
    assert test_utils.same(a, a.asnumpy()) is False and test_utils.same(a[:2], [1, 2])
    assert test_utils.almost_equal(nd.ones(2), np.ones(2) + 1e-7) and not test_utils.almost_equal([1.0], [1.1])
    test_utils.assert_almost_equal(a, a, equal_nan=True)
    test_utils.assert_almost_equal(nd.ones(2), nd.ones(2) * 1.0001)
    test_utils.assert_almost_equal(np.array([True]), np.array([True]))
    test_utils.assert_almost_equal_ignore_nan(a, nd.array([1, np.nan, 5]))
    test_utils.assert_allclose(np.ones(2), np.ones(2))
    test_utils.compare_ndarray_tuple((a[:1], (None, a[1:2])), (a[:1], (a, a[1:2])))
    with pytest.raises(AssertionError, match=r"rtol=1.0+e-04.*mismatch 50.0+%.*\n.*\(1,\), x=2.0+, y=3.0+"):
        test_utils.assert_almost_equal(nd.array([1, 2]), nd.array([1, 3]), names=("x", "y"))
    with pytest.raises(AssertionError, match="Error nan"):
        test_utils.assert_almost_equal(a, nd.array([1, 2, 3]))
    with pytest.raises(AssertionError, match="are not equal"):
        test_utils.assert_almost_equal(nd.ones((2, 1)), nd.ones(2), use_broadcast=False)
    with pytest.raises(AssertionError):
        test_utils.assert_almost_equal(np.array([1, 2]), np.array([1, 3]))


def test_tolerances_follow_types():
    narrow, wide = nd.ones(1, dtype="float16"), nd.ones(1, dtype="float64")
    assert test_utils.get_tols(narrow, wide, None, None) == (1e-2, 1e-1)
    assert test_utils.get_tols(wide, 1.0, 0.5, {np.dtype("float64"): 3}) == (0.5, 3)
    assert (test_utils.get_rtol(), test_utils.get_atol(None, "float16")) == (1e-5, 1e-1)


def test_random_arrays():
    assert test_utils.rand_ndarray((2, 3)).shape == (2, 3)
    one, two = test_utils.random_arrays((), (2,))
    assert one.shape == () and two.dtype == np.float32
    assert test_utils.random_uniform_arrays((4,), low=3, high=4, dtype="int32")[0].tolist() == [3] * 4
    assert all(1 <= n <= 3 for n in test_utils.rand_shape_nd(5, 3)) and len(test_utils.rand_shape_3d()) == 3
    assert sorted(test_utils.random_sample(["a", "b", "c"], 3)) == ["a", "b", "c"]
    assert len(set(test_utils.random_sample(list(range(9)), 4))) == 4
    assert test_utils.rand_coord_2d(1, 2, 5, 6) == (1, 5)
    with pytest.raises(AssertionError, match="Unknown storage type: thin"):
        test_utils.create_sparse_array((2,), "thin")
    x = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(test_utils.np_reduce(x, (0, 2), True, np.sum), x.sum((0, 2), keepdims=True))


def test_random_sparse_arrays():
    rows, (values, where) = test_utils.rand_sparse_ndarray((50, 3), "row_sparse", density=0.5, modifier_func=abs)
    assert rows.stype == "row_sparse" and 5 < len(where) < 45 and np.array_equal(rows.data.asnumpy(), values)
    assert np.array_equal(rows.indices.asnumpy(), where)
    made = test_utils.create_sparse_array((4, 2), "row_sparse", data_init=2, rsp_indices=[3, 1])
    assert made.asnumpy().tolist() == [[0, 0], [2, 2], [0, 0], [2, 2]]
    assert test_utils.create_sparse_array_zd((4, 2), "row_sparse", 0.5).indices.shape == (0,)
    csr, parts = test_utils.rand_sparse_ndarray((20, 30), "csr", density=0.25, dtype="float64")
    assert csr.stype == "csr" and csr.dtype == np.float64 and csr.data.size == 150
    assert [x.shape for x in parts] == [(21,), (150,), (150,)]
    assert test_utils.create_sparse_array((3, 3), "csr", data_init=7, density=1).asnumpy().tolist() == [[7] * 3] * 3
    shuffled = test_utils.rand_ndarray((1, 40), "csr", density=1, shuffle_csr_indices=True)
    assert sorted(shuffled.indices.asnumpy()) == list(range(40)) != shuffled.indices.asnumpy().tolist()


def test_sparse_arrays_by_a_power_law():
    csr = test_utils.rand_ndarray((5, 16), "csr", density=0.5, distribution="powerlaw")
    assert np.diff(csr.indptr.asnumpy()).tolist() == [2, 4, 8, 16, 10]
    with pytest.raises(ValueError, match="not supported for this density"):
        test_utils.rand_ndarray((2, 16), "csr", density=0.9, distribution="powerlaw")
    with pytest.raises(AssertionError, match="powerlaw not supported for row_sparse"):
        test_utils.rand_ndarray((2, 2), "row_sparse", distribution="powerlaw")


def test_symbols_and_blocks():
    y = sym.exp(sym.var("a")) * sym.var("b")
    assert test_utils.simple_forward(y, a=np.zeros(2), b=np.ones(2) * 3).tolist() == [3, 3]
    test_utils.check_symbolic_forward(y, [np.zeros(2), np.ones(2)], [np.ones(2)])
    test_utils.check_symbolic_forward(y, {"a": np.zeros(2), "b": np.ones(2)}, {y.list_outputs()[0]: np.ones(2)})
    with pytest.raises(AssertionError, match="EXPECTED_"):
        test_utils.check_symbolic_forward(y, [np.zeros(2), np.ones(2)], [np.ones(2) * 2])
    with pytest.raises(ValueError, match="do not match"):
        test_utils.check_symbolic_forward(y, {"a": np.zeros(2)}, [np.ones(2)])
    assert test_utils.same_symbol_structure(y, sym.exp(sym.var("c")) * sym.var("d"))

    def net(prefix):
        return gluon.nn.Dense(3, activation="tanh", prefix=prefix)

    for test_grad in (False, True):
        test_utils.check_gluon_hybridize_consistency(net, [nd.ones((2, 4))], test_grad=test_grad)


def test_checks_of_gradients():
    y = sym.exp(sym.var("a")) * sym.var("b")
    places, heads = [np.zeros(2), np.full(2, 3.0)], [np.array([1.0, 2.0])]
    expected = {"a": np.array([3.0, 6.0]), "b": np.array([1.0, 2.0])}
    found = test_utils.check_symbolic_backward(y, places, heads, expected)
    assert {name: g.asnumpy().tolist() for name, g in found.items()} == {"a": [3, 6], "b": [1, 2]}
    test_utils.check_symbolic_backward(y, places, heads, [*expected.values()], grad_req={"a": "add", "b": "null"})
    with pytest.raises(AssertionError, match="BACKWARD_b"):
        test_utils.check_symbolic_backward(y, places, heads, {**expected, "b": np.zeros(2)})

    test_utils.check_numeric_gradient(y, places, rtol=1e-2)
    test_utils.check_numeric_gradient(y, places, dtype=np.float64, grad_nodes={"a": "add", "b": "null"})
    norm = sym.BatchNorm(sym.var("x"), fix_gamma=False, name="bn")
    x = np.random.RandomState(0).standard_normal((5, 2))
    aux = [np.zeros(2), np.ones(2)]
    test_utils.check_numeric_gradient(norm, [x, np.ones(2), np.zeros(2)], aux, dtype=np.float64, rtol=1e-3, atol=1e-5)
    with pytest.raises(AssertionError, match="BACKWARD_a"):  # its gradient is declared to be 0
        test_utils.check_numeric_gradient(sym.Custom(sym.var("a"), op_type="without_gradient"), [np.ones(2)])
    with pytest.raises(ValueError, match="no argument c; it has a, b"):
        test_utils.check_numeric_gradient(y, places, grad_nodes=["c"])


@mx.operator.register("without_gradient")
class WithoutGradientProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        class WithoutGradient(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0] * 2)

            def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
                self.assign(in_grad[0], req[0], 0)

        return WithoutGradient()


def test_other_helpers():
    x = nd.ones(4)
    assert test_utils.same_array(x, x[:]) and not test_utils.same_array(x, x.copy())
    test_utils.assert_exception(nd.dot, MXNetError, nd.ones((2, 2)), nd.ones((3, 3)))
    with pytest.raises(AssertionError, match="was not raised"):
        test_utils.assert_exception(len, ValueError, "abc")
    tries = []

    @test_utils.retry(3)
    def flaky():
        tries.append(1)
        assert len(tries) == 3

    flaky()
    assert len(tries) == 3 and list(test_utils.list_gpus()) == []
    with test_utils.environment({"GLUONJIT_A": "1", "PATH": None}):
        assert os.environ["GLUONJIT_A"] == mx.util.getenv("GLUONJIT_A") == "1" and "PATH" not in os.environ
    assert "GLUONJIT_A" not in os.environ and "PATH" in os.environ
    dummy = test_utils.DummyIter(mx.io.NDArrayIter(np.arange(6), batch_size=2))
    assert next(dummy) is next(dummy)


def test_default_context():
    before = test_utils.default_context()
    test_utils.set_default_context(mx.cpu(2))
    try:
        assert nd.ones(1).context == test_utils.default_context() == mx.cpu(2)
    finally:
        test_utils.set_default_context(before)


def test_names():
    """Every helper of MXNet's; not what its module imports by the way."""
    names = next(line.split()[1:] for line in NAMES.read_text().splitlines() if line.startswith("test_utils "))
    assert [n for n in names if not hasattr(test_utils, n)] == ["get_cuda_compute_capability", "np_symbol", "ss"]


def test_messages_about_mismatches(capsys):
    """The numbers and words of MXNet's messages."""
    a, b = np.zeros((3, 4), "f4"), np.zeros((3, 4), "f4")
    b[1, 2], b[0, 0] = 2, 1
    with pytest.raises(AssertionError) as caught:
        test_utils.assert_almost_equal(a, b)
    text = str(caught.value)
    assert "Items are not equal:\nError 1666.66" in text
    assert "exceeds tolerance rtol=1.000000e-04, atol=1.000000e-03 (mismatch 16.666667%)." in text
    assert "\nLocation of maximum error: (1, 2), a=0.00000000, b=2.00000000\n ACTUAL: array" in text
    out = capsys.readouterr().out
    assert "*** Maximum errors for vector of size 12:  rtol=0.0001, atol=0.001" in out
    assert "  2: Error 909.0" in out and "Location of error: (0, 0), a=0.00000000, b=1.00000000" in out
    with pytest.raises(AssertionError, match="mismatch at least 16.666667%"):
        test_utils.assert_almost_equal(a, b + 3, mismatches=(1, 1))
    with pytest.raises(
        AssertionError, match=r"Error 10.0+ exceeds tolerance rtol=1.000000e-01, atol=0.000000e\+00\.\n"
    ):
        test_utils.assert_almost_equal(np.array(0.0), np.array(5.0), 0.1, 0)


def test_a_share_may_differ():
    a = np.arange(1, 11.0)
    b = a.copy()
    b[3] = 7
    test_utils.assert_almost_equal_with_err(a, b, etol=0.1)
    test_utils.assert_almost_equal_with_err(nd.array(a), nd.array(a))
    for etol in (0.05, None):
        with pytest.raises(AssertionError, match="mismatch 10.0+%"):
            test_utils.assert_almost_equal_with_err(a, b, etol=etol)


def test_elements_one_by_one():
    x = np.array([[1, 2], [3, 4]])
    assert test_utils.assign_each(x, lambda v: v / 2).tolist() == [[0.5, 1], [1.5, 2]]
    assert test_utils.assign_each2(x, x.T, lambda v, w: v - w).tolist() == [[0, -1], [1, 0]]
    assert test_utils.assign_each(x, None) is not x
    assert test_utils.collapse_sum_like(np.ones((4, 2, 3)), (1, 3)).tolist() == [[8, 8, 8]]
    with pytest.raises(AssertionError, match="does not broadcast"):
        test_utils.collapse_sum_like(np.ones((2, 3)), (2, 2))
    assert test_utils.create_vector(3).dtype == np.int64
    assert test_utils.create_2d_tensor(2, 3).asnumpy().tolist() == [[0] * 3, [1] * 3]
    assert test_utils.get_identity_mat_batch(2).asnumpy().tolist() == [np.eye(2).tolist()] * 2


def test_matrices():
    np.random.seed(0)
    values = np.linalg.eigvals(test_utils.new_matrix_with_real_eigvals_nd((2, 3, 3)))
    assert values.shape == (2, 3) and np.isreal(values).all() and np.abs(values).max() <= 10
    q = test_utils.new_orthonormal_matrix_2d(4)
    np.testing.assert_allclose(q @ q.T, np.eye(4), atol=1e-12)
    symmetric = test_utils.new_sym_matrix_with_real_eigvals_nd((2, 3, 3))
    np.testing.assert_allclose(symmetric, symmetric.swapaxes(1, 2), atol=1e-12)


def test_generators():
    def normal(n):
        return np.random.normal(2, 3, n)

    np.random.seed(0)
    assert test_utils.mean_check(normal, 2, 3, 10000) and not test_utils.mean_check(normal, 2.2, 3, 10000)
    assert test_utils.var_check(normal, 3, 10000) and not test_utils.var_check(normal, 3.3, 10000)
    buckets, probs = test_utils.gen_buckets_probs_with_ppf(lambda p: 4 * p, 4)
    assert (buckets, probs) == ([(0, 1), (1, 2), (2, 3), (3, 4)], [0.25] * 4)
    p, observed, expected = test_utils.chi_square_check(lambda n: np.full(n, 3.5), buckets, probs, 100)
    assert p < 1e-12 and observed.tolist() == [0, 0, 0, 100] and expected.tolist() == [25] * 4
    assert len(test_utils.verify_generator(lambda n: np.random.uniform(0, 4, n), buckets, probs, 1000)) == 5
    with pytest.raises(AssertionError, match="Generator test fails"):
        test_utils.verify_generator(lambda n: np.random.randint(0, 2, n), [0, 1], [0.4, 0.6], 2000)


@pytest.mark.parametrize(
    ("counts", "p"), [([20, 30], 0.15729920705), ([10, 10, 40], 3.0590232e-7), ([9, 11, 8, 12], 0.8012519569)]
)
def test_chi_square(counts, p):
    """p values from tables of the distribution with 1, 2 and 3 degrees of freedom."""
    samples = np.repeat(np.arange(len(counts)), counts)
    found = test_utils.chi_square_check(
        lambda n: samples, list(range(len(counts))), [1 / len(counts)] * len(counts), sum(counts)
    )
    assert found[0] == pytest.approx(p, rel=1e-5)


def test_checks_of_executors():
    y = sym.FullyConnected(sym.var("x"), num_hidden=3, name="f")
    shapes = {"ctx": mx.cpu(), "x": (2, 4)}
    wide = {**shapes, "type_dict": dict.fromkeys(["x", "f_weight", "f_bias"], np.float64)}
    truth = test_utils.check_consistency(y, [shapes, wide], grad_req="null")
    assert truth["f_output"].dtype == np.float64
    test_utils.check_consistency([y, y], [shapes, wide], grad_req="null", scale=0.1, use_uniform=True)
    other = sym.FullyConnected(2 * sym.var("x"), num_hidden=3, name="f")
    with pytest.raises(AssertionError, match="exceeds tolerance"):
        test_utils.check_consistency([y, other], [shapes, wide], grad_req="null")
    test_utils.check_consistency([y, other], [shapes, wide], grad_req="null", raise_on_err=False)
    truth = test_utils.check_consistency(y, [shapes, wide])
    assert truth["x"].dtype == np.float64 and set(truth) == {"f_output", "x", "f_weight", "f_bias"}
    test_utils.check_consistency(
        y, [shapes, wide], grad_req="add", ground_truth=truth, arg_params={}, raise_on_err=False
    )
    x = sym.var("x")
    squared, twice = sym.square(x, name="f"), sym.elemwise_mul(x, x, name="f")
    half = sym.elemwise_mul(x, sym.Custom(x, op_type="without_gradient") / 2, name="f")
    test_utils.check_consistency([squared, twice], [shapes, shapes])
    with pytest.raises(AssertionError, match="exceeds tolerance"):
        test_utils.check_consistency([squared, half], [shapes, shapes])
    assert test_utils.check_speed(y, N=2, typ="forward", x=(2, 4)) > 0
    assert test_utils.check_speed(sym.exp(sym.var("x")), {"x": np.ones((2, 2))}, N=1, typ="forward") > 0
    assert test_utils.check_speed(y, N=1, x=(2, 4)) > 0
    with pytest.raises(ValueError, match='typ can only be "whole" or "forward"'):
        test_utils.check_speed(y, typ="part", x=(2, 4))


def test_finite_differences():
    x = sym.var("x")
    executor = sym.sum(x * x * sym.var("w")).simple_bind(
        mx.cpu(), x=(2, 3), w=(2, 3), type_dict={"x": "float64", "w": "float64"}
    )
    place = {"x": np.arange(6.0).reshape(2, 3), "w": np.full((2, 3), 0.5)}
    found = test_utils.numeric_grad(executor, place, eps=2.0**-10, dtype=np.float64)
    np.testing.assert_allclose(found["x"], place["x"], atol=1e-6)
    np.testing.assert_allclose(found["w"], place["x"] ** 2, atol=1e-6)
    assert np.array_equal(executor.arg_dict["x"].asnumpy(), place["x"])


def test_optimizers():
    class Minus(mx.optimizer.Optimizer):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def create_state(self, index, weight):
            return nd.zeros(weight.shape)

        def update(self, index, weight, grad, state):
            many = isinstance(index, list)
            for w, g, s in zip(weight, grad, state) if many else [(weight, grad, state)]:
                s += g
                w -= self.factor * g

    test_utils.compare_optimizer(Minus(0.5), Minus(0.5), (2, 3), "float32")
    test_utils.compare_optimizer(Minus(0.5), Minus(0.5), [(2, 3), (4,)], "float32", ntensors=2)
    with pytest.raises(AssertionError, match="exceeds tolerance"):
        test_utils.compare_optimizer(Minus(0.5), Minus(0.4), (2, 3), "float32")
    test_utils.compare_optimizer(Minus(0.5), Minus(0.5), (2, 3), "float32", w_stype="row_sparse", g_stype="row_sparse")


def test_data_sets_unpack_no_further_than_their_size_allows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(packed, "SPARE", 1000)
    (tmp_path / "data").mkdir()
    with zipfile.ZipFile("data/cifar10.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cifar/train.rec", bytes(1 << 20))
    (tmp_path / "data/rows.bz2").write_bytes(bz2.compress(bytes(1 << 20)))
    with pytest.raises(MXNetError, match="data/cifar10.zip unpacks to 1048576 bytes or more"):
        test_utils.get_cifar10()
    with pytest.raises(MXNetError, match="data/cifar10.zip unpacks to 1048576 bytes or more"):
        test_utils.get_zip_data("data", "http://x.org/cifar10.zip", "rows")
    with pytest.raises(MXNetError, match="data/rows.bz2 unpacks to 1048576 bytes or more"):
        test_utils.get_bz2_data("data", "rows", "http://x.org/rows.bz2", "rows.bz2")
    (tmp_path / "data/cifar10.zip").write_bytes(b"PK")
    (tmp_path / "data/rows.bz2").write_bytes(b"BZ")
    with pytest.raises(MXNetError, match="data/cifar10.zip: damaged zip archive"):
        test_utils.get_cifar10()
    with pytest.raises(MXNetError, match="data/rows.bz2: damaged bzip2 file"):
        test_utils.get_bz2_data("data", "rows", "http://x.org/rows.bz2", "rows.bz2")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["cifar10.zip", "rows.bz2"]


def test_data_that_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for get in (test_utils.get_mnist, test_utils.get_mnist_ubyte, test_utils.get_cifar10, test_utils.get_mnist_pkl):
        with pytest.raises(MXNetError, match="downloads nothing; fetch http.* and save it as"):
            get()
    for stem, count in (("train", 2), ("t10k", 1)):
        with gzip.open(f"{stem}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(bytes(8) + bytes(range(count)))
        with gzip.open(f"{stem}-images-idx3-ubyte.gz", "wb") as file:
            file.write(bytes(16) + bytes([255]) * (count * 784))
    data = test_utils.get_mnist()
    assert data["train_data"].shape == (2, 1, 28, 28) and data["train_data"].max() == 1
    assert data["test_label"].tolist() == [0]
    with zipfile.ZipFile("data/mnist.zip", "w") as archive:
        for stem, count in (("train", 4), ("t10k", 5)):
            head = bytes((0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 28, 0, 0, 0, 28))
            archive.writestr(f"{stem}-images-idx3-ubyte", head + bytes([128]) * (count * 784))
            archive.writestr(f"{stem}-labels-idx1-ubyte", bytes((0, 0, 8, 1, 0, 0, 0, count)) + bytes(range(count)))
    train, test = test_utils.get_mnist_iterator(2, (784,), num_parts=2, part_index=1)
    assert sorted(label for batch in train for label in batch.label[0].asnumpy()) == [2, 3]
    assert [batch.data[0].shape for batch in test] == [(2, 784)]
    square = test_utils.get_mnist_iterator(3, (1, 28, 28))[1]
    batch = next(square)
    assert batch.data[0].shape == (3, 1, 28, 28) and batch.data[0].asnumpy().max() == 0.5
    assert set(batch.label[0].asnumpy()) < {0, 1, 2, 3, 4}
    # MXNet's names: a Module whose label has another one would train on zeros.
    assert (square.provide_data[0].name, square.provide_label[0].name) == ("data", "softmax_label")
    with zipfile.ZipFile("data/cifar10.zip", "w") as archive:
        archive.writestr("cifar/train.rec", b"records")
    test_utils.get_cifar10()
    assert (tmp_path / "data/cifar/train.rec").read_bytes() == b"records"
    (tmp_path / "d").mkdir()
    (tmp_path / "d/rows.bz2").write_bytes(bz2.compress(b"rows"))
    test_utils.get_bz2_data("d", "rows", "http://x.org/rows.bz2", "rows.bz2")
    assert (tmp_path / "d/rows").read_bytes() == b"rows" and not (tmp_path / "d/rows.bz2").exists()
    assert test_utils.download_model("nobody's") == (None, 0)
    with pytest.raises(MXNetError, match="resnet-18-symbol.json"):
        test_utils.download_model("imagenet1k-resnet-18")
    with pytest.raises(OSError, match="im2rec"):
        test_utils.get_im2rec_path()


def test_what_exists_here():
    assert test_utils.is_op_runnable() and not test_utils.has_tvm_ops() and not test_utils.is_cd_run()
    assert test_utils.effective_dtype(nd.ones(1)) == np.float32
    assert test_utils.default_numeric_eps()[np.dtype("float32")] == 1 / 512


def test_what_tests_of_mxnet_import_with_it():
    found = {}
    exec("from gluonjit.test_utils import *", found)
    assert found["mx"] is mx and found["np"] is np and found["rnd"] is np.random and found["os"].path
