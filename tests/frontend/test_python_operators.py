"""`mx.operator.NumpyOp` and `NDArrayOp`, what operators take, and `mx.nd.CachedOp`."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd, sym


def product_class(base):
    class Product(base):
        seen = None

        def list_arguments(self):
            return ["a", "b"]

        def list_outputs(self):
            return ["product", "total"]

        def infer_shape(self, shapes):
            return [shapes[0], shapes[0]], [shapes[0], [1]]

        def forward(self, in_data, out_data):
            self.seen = type(in_data[0]), type(out_data[0])
            out_data[0][:] = in_data[0] * in_data[1]
            out_data[1][:] = in_data[0].sum()

        def backward(self, out_grad, in_data, out_data, in_grad):
            self.seen = type(out_grad[0]), type(in_grad[0])
            in_grad[0][:] = out_grad[0] * in_data[1] * 10 + out_grad[1]
            in_grad[1][:] = out_grad[0] * in_data[0] * 10

    return Product


@pytest.mark.parametrize(("base", "kind"), [(mx.operator.NumpyOp, np.ndarray), (mx.operator.NDArrayOp, mx.nd.NDArray)])
def test_operators_from_before_custom_op(base, kind):
    with pytest.warns(UserWarning, match="deprecated, use CustomOp"):
        op = product_class(base)()
    y = op(sym.var("x") + 1, b=sym.var("w"), name="p")
    assert y.list_arguments() == ["x", "w"] and y.list_outputs() == ["p_product", "p_total"]
    assert y.infer_shape(x=(2, 3))[:2] == ([(2, 3), (2, 3)], [(2, 3), (1,)])
    executor = y.simple_bind(mx.cpu(), x=(2, 3))
    product, total = executor.forward(x=nd.ones((2, 3)), w=nd.full((2, 3), 3))
    assert op.seen == (kind, kind)
    assert product.asnumpy().tolist() == [[6, 6, 6]] * 2 and total.asscalar() == 12
    again = op.get_symbol(sym.var("x"), sym.var("w"))[0]
    assert again.eval(x=nd.full((2,), 2), w=nd.full((2,), 5))[0].asnumpy().tolist() == [10, 10]
    executor.forward(is_train=True)
    executor.backward([nd.ones((2, 3)), nd.full(1, 5)])
    assert op.seen == (kind, kind)
    assert [g.asnumpy().tolist() for g in executor.grad_arrays] == [[[35.0] * 3] * 2, [[20.0] * 3] * 2]


def test_what_they_do_unless_overridden():
    with pytest.warns(UserWarning, match="deprecated"):
        op, bare = mx.operator.NDArrayOp(need_top_grad=False), mx.operator.PythonOp()
    assert op(sym.var("x")).eval(x=nd.array([1, 2]))[0].asnumpy().tolist() == [1, 2]
    assert op.declare_backward_dependency([0], [1], [2]) == [1, 2]
    assert bare.need_top_grad() and bare.list_arguments() == ["data"] and bare.list_outputs() == ["output"]
    with pytest.raises(NotImplementedError):
        bare(sym.var("x"))


def test_what_operators_take():
    found = mx.operator.get_operator_arguments("Activation")
    assert found == (2, ["data", "act_type"], ["NDArray-or-Symbol", found.types[1]])
    assert found.types[1].endswith("'tanh'}, required")
    convolution = mx.operator.get_operator_arguments("Convolution")
    assert convolution.names[:4] == ["data", "weight", "bias", "kernel"] and convolution.narg == 14
    assert mx.operator.get_operator_arguments("concat").names == ["data", "num_args", "dim"]
    assert mx.operator.get_operator_arguments("Concat").types[0] == "NDArray-or-Symbol[]"
    with pytest.raises(mx.MXNetError, match="Operator Convolutoin is not registered.*did you mean 'Convolution'"):
        mx.operator.get_operator_arguments("Convolutoin")


def test_cached_op():
    x, w = sym.var("x"), sym.var("w")
    op = nd.CachedOp(sym.Group([x * 2 + w, sym.Dropout(w)]), [("static_alloc", True)])
    a, b = op(nd.ones(2), nd.full(2, 3))
    assert a.asnumpy().tolist() == [5, 5] and b.asnumpy().tolist() == [3, 3]
    assert op(nd.ones((1, 2)), nd.ones((1, 2)))[0].shape == (1, 2)  # another shape
    single, out = nd.CachedOp(sym.exp(x)), nd.zeros(2)
    assert single(nd.zeros(2), out=out) is out and out.asnumpy().tolist() == [1, 1]
    assert nd.CachedOp(sym.Dropout(x, p=1))(nd.ones(2)).asnumpy().tolist() == [1, 1]
    with autograd.train_mode():
        assert nd.CachedOp(sym.Dropout(x, p=1))(nd.ones(2)).asnumpy().tolist() == [0, 0]
    seen = []
    single._register_op_hook(lambda name, operator, value: seen.append((operator, value.shape)))
    single(nd.zeros(2))
    assert seen == [(b"exp", (2,))]


def test_cached_ops_are_recorded():
    x, w = nd.array([1, 2]), nd.array([3, 4])
    for array in (x, w):
        array.attach_grad()
    op = nd.CachedOp(sym.var("x") * sym.var("w"))
    with autograd.record():
        y = op(x, w) * 2
    y.backward()
    assert x.grad.asnumpy().tolist() == [6, 8] and w.grad.asnumpy().tolist() == [2, 4]


def test_cached_op_refuses():
    op = nd.CachedOp(sym.var("x") + sym.var("w"))
    with pytest.raises(mx.MXNetError, match=r"takes 2 arrays \(x, w\), got 1"):
        op(nd.ones(2))
    with pytest.raises(TypeError, match="got a ndarray for w"):
        op(nd.ones(2), np.ones(2))
    with pytest.raises(TypeError, match="unexpected keyword argument.s.: w"):
        op(nd.ones(2), w=nd.ones(2))
    with pytest.raises(mx.MXNetError, match="add"):
        op(nd.ones(2), nd.ones(3))
    with pytest.raises(mx.MXNetError, match="gives 1 arrays, out has 2"):
        op(nd.ones(2), nd.ones(2), out=[nd.ones(2), nd.ones(2)])
    with pytest.raises(mx.MXNetError, match="Cannot find argument 'static_aloc'.*did you mean 'static_alloc'"):
        nd.CachedOp(sym.var("x"), [("static_aloc", True)])


def test_modules_of_rnn():
    from gluonjit.rnn.io import BucketSentenceIter
    from gluonjit.rnn.rnn import rnn_unroll
    from gluonjit.rnn.rnn_cell import LSTMCell

    assert (BucketSentenceIter, rnn_unroll, LSTMCell) == (
        mx.rnn.BucketSentenceIter,
        mx.rnn.rnn_unroll,
        mx.rnn.LSTMCell,
    )
    assert mx.rnn.rnn_cell.GRUCell is mx.rnn.GRUCell


def test_numbers_of_numpy_on_the_left():
    """NumPy hands its numbers over as arrays of rank 0 if it compares them."""
    x = mx.nd.array([31, 2])
    assert (np.int32(31) == x).asnumpy().tolist() == [1, 0]
    assert (np.float64(3) - x).asnumpy().tolist() == [-28, 1]
    assert (np.int64(31) > x).asnumpy().tolist() == [0, 1]
    assert (np.float64(31) > x.as_np_ndarray()).asnumpy().tolist() == [0, 1]
