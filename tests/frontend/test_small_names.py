"""Names of MXNet that few programs use; the answers are MXNet 1.9.1's."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd
from gluonjit.gluon import block, nn


def test_the_default_context_can_be_read_and_set():
    assert mx.Context.default_ctx == mx.cpu(0)
    with mx.cpu(1):
        assert mx.Context.default_ctx == mx.cpu(1)
    mx.Context.default_ctx = mx.cpu(2)
    try:
        assert nd.zeros((1,)).context == mx.current_context() == mx.cpu(2)
    finally:
        mx.Context.default_ctx = mx.cpu(0)


def test_nested_arguments():
    a, b = nd.ones((1,)), nd.zeros((2,))
    leaves, form = block._flatten([a, [b, None], (a,)], "input")
    assert form == [0, [0, -1], [0]] and leaves == [a, b, None, a]
    assert block._regroup(leaves, form) == [a, [b, None], [a]]
    assert block._flatten(None, "input") == ([None], -1)
    assert block._regroup([1, 2, 3], 0) == 1
    with pytest.raises(ValueError, match="We do not support passing types that are not None.*arg = 3, fmt = -1"):
        block._regroup([1, 2, 3], [0, [0, -1]])
    with pytest.raises(ValueError, match="the input of HybridBlock input must be"):
        block._flatten(3, "input")


def test_arrays_are_reset_in_place():
    arrays = [nd.ones((2,)), nd.ones((2, 2))]
    assert nd.reset_arrays(*arrays, num_arrays=2) == []
    assert [x.asnumpy().sum() for x in arrays] == [0, 0]
    with pytest.raises(mx.MXNetError, match="reset_arrays expects 3 inputs, but got 2 instead"):
        nd.reset_arrays(*arrays, num_arrays=3)


def test_one_element_of_each_row_is_filled():
    values, rows = nd.array([5, 6]), nd.zeros((2, 3))
    y = nd.fill_element_0index(rows, values, nd.array([1, 2]))
    assert y.asnumpy().tolist() == [[0, 5, 0], [0, 0, 6]] and not rows.asnumpy().any()
    for outside in (7, -1):
        y = nd.fill_element_0index(rows, values, nd.array([1, outside]))
        assert y.asnumpy().tolist() == [[0, 5, 0], [0, 0, 0]]
    assert nd.fill_element_0index(rows, values, nd.array([1, 2]), out=rows) is rows
    assert rows.asnumpy().tolist() == [[0, 5, 0], [0, 0, 6]]


def test_other_names():
    assert nn.SymbolBlock is mx.gluon.SymbolBlock and mx.metric.ndarray is nd
    with pytest.raises(ValueError, match=r"Expecting a gpu context .* received ctx cpu\(0\)"):
        mx.npx.get_cuda_compute_capability(mx.cpu())
    with pytest.raises(mx.MXNetError, match=r"gpu\(0\) has no compute capability"):
        mx.npx.get_cuda_compute_capability(mx.gpu())
    graph = mx.sym.relu(mx.sym.var("data")) * 2
    assert graph.simple_bind(mx.cpu(), data=(1, 3)).get_optimized_symbol().tojson() == graph.tojson()


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_constraint_that_does_not_hold_is_a_value_error(hybridized):
    class Checked(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * F.npx.constraint_check(x > 0, 'not "positive"')

    net = Checked()
    net.hybridize(hybridized)
    for numbers in ([1, 2], [3]):
        assert net(mx.np.array(numbers)).asnumpy().tolist() == numbers
    with pytest.raises(ValueError, match='not "positive"'):
        net(mx.np.array([1, -1]))
    with pytest.raises(mx.MXNetError, match="takes bools, got float32: compare first"):
        mx.npx.constraint_check(mx.np.array([1]))


def test_zipfian_classes():
    mx.random.seed(3)
    true = nd.array([3, 0])
    drawn, expected, expected_drawn = nd.contrib.rand_zipfian(true, 4000, 5)
    assert drawn.dtype == np.int64 and drawn.shape == (4000,) and expected.dtype == np.float64
    share = np.log((np.arange(5) + 2) / (np.arange(5) + 1)) / np.log(6) * 4000
    np.testing.assert_allclose(expected.asnumpy(), share[[3, 0]])
    np.testing.assert_allclose(expected_drawn.asnumpy(), share[drawn.asnumpy()])
    np.testing.assert_allclose(np.bincount(drawn.asnumpy()), share, rtol=0.1)
    parts = mx.sym.Group(mx.sym.contrib.rand_zipfian(mx.sym.var("x"), 7, 5))
    drawn, expected, _ = parts.eval(x=true)
    assert drawn.shape == (7,) and expected.asnumpy() == pytest.approx(share[[3, 0]] * 7 / 4000)


def test_symbols_for_backends_are_the_symbol():
    y = mx.sym.var("x") * 2
    for found in (y.optimize_for("MKLDNN"), y.get_backend_symbol("MKLDNN_QUANTIZE")):
        assert found is not y and found.eval(x=nd.ones(1))[0].asscalar() == 2
    with pytest.raises(AssertionError, match="backend must be a name"):
        y.optimize_for(None)
    with pytest.raises(mx.MXNetError, match="for the CPU only"):
        mx.npx.gpu_memory_info(0)


def test_nodes_of_files_that_are_missing():
    text = mx.sym.sqrt(mx.sym.var("x")).tojson()
    with pytest.raises(mx.MXNetError, match="MXNet 1.9.1 has it, gluonjit lacks it; its values are those of NumPy"):
        mx.sym.load_json(text.replace('"sqrt"', '"_npi_eig"'))
    inverse = mx.sym.load_json(text.replace('"sqrt"', '"_npi_tensorinv"'))
    assert (inverse.eval(x=nd.ones((1, 1, 1)))[0].shape) == (1, 1, 1)
