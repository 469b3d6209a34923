"""Names of MXNet that few programs use; the answers are MXNet 1.9.1's."""

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
