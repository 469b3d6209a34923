"""Shape and type inference on untyped symbols, in both directions. The expected values are MXNet 1.9.1's."""

import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import sym
from gluonjit.base import MXNetError


@pytest.fixture
def x():
    return sym.var("x")


@pytest.fixture
def y():
    return sym.var("y")


@pytest.fixture
def fc(x):
    return sym.FullyConnected(x, num_hidden=4, name="fc")


def convolution(x):
    return sym.Convolution(x, kernel=(3, 3), num_filter=4, name="c")


def test_learnable_inputs_are_completed(x, fc):
    assert fc.infer_shape(x=(2, 3)) == ([(2, 3), (4, 3), (4,)], [(2, 4)], [])
    assert fc.infer_shape((2, 3)) == fc.infer_shape(x=(2, 3))
    bn = sym.BatchNorm(convolution(x), name="bn")
    assert bn.infer_shape(x=(2, 3, 8, 8)) == (
        [(2, 3, 8, 8), (4, 3, 3, 3), (4,), (4,), (4,)],
        [(2, 4, 6, 6)],
        [(4,), (4,)],
    )


def test_unknown_dimensions_stay_unknown(x, fc):
    assert fc.infer_shape_partial(x=(0, 3)) == ([(0, 3), (4, 3), (4,)], [(0, 4)], [])
    assert fc.infer_shape_partial() == ([(), (), ()], [()], [])
    assert convolution(x).infer_shape_partial(x=(0, 3, 8, 8))[1] == [(0, 4, 6, 6)]
    assert convolution(x).infer_shape_partial(x=(0, 3, 0, 0))[1] == [(0, 4, 0, 0)]
    assert sym.flatten(x).infer_shape_partial(x=(0, 3, 2))[1] == [(0, 6)]
    assert sym.reshape(x, shape=(0, -1)).infer_shape_partial(x=(0, 3, 2))[1] == [(0, 6)]
    # What a slice cuts off depends on the unknown dimension.
    assert sym.slice(x, begin=(0,), end=(10,)).infer_shape_partial(x=(0, 3))[1] == [(0, 3)]


def test_incomplete_inference_gives_nones_and_a_warning(fc):
    with pytest.warns(UserWarning, match=r"Cannot decide shape for the following arguments [\s\S]*x: \(0, 3\)"):
        assert fc.infer_shape(x=(0, 3)) == (None, None, None)
    with pytest.warns(UserWarning, match="Cannot decide type"):
        assert fc.infer_type() == (None, None, None)


def test_backwards_through_operators_of_one_shape(x, y):
    assert (x + y).infer_shape(x=(2, 3)) == ([(2, 3), (2, 3)], [(2, 3)], [])
    assert (x + y).infer_shape(x=(2, 0), y=(0, 3)) == ([(2, 3), (2, 3)], [(2, 3)], [])
    chain = sym.relu(sym.exp(x) * 2) + y
    assert chain.infer_shape(y=(5,)) == ([(5,), (5,)], [(5,)], [])


def test_backwards_into_a_creation_operator_of_unknown_size(x):
    state = sym.zeros((0, 3))
    assert (state + x).infer_shape(x=(2, 3)) == ([(2, 3)], [(2, 3)], [])
    assert (sym.FullyConnected(state, num_hidden=3, no_bias=True, name="h") + x).infer_shape(x=(2, 3))[1] == [(2, 3)]


def test_declared_shapes(x):
    w = sym.var("w", shape=(4, 0))
    q = sym.FullyConnected(x, w, num_hidden=4, no_bias=True)
    assert q.infer_shape(x=(2, 3)) == ([(2, 3), (4, 3)], [(2, 4)], [])
    assert sym.var("v", shape=(2, 3)).infer_shape() == ([(2, 3)], [(2, 3)], [])


@pytest.mark.parametrize("text", ["(4L, 3L)", "[4, 3]", "(4, 0)", "(4, -1)", "None", "()"])
def test_spellings_of_declared_shapes(x, text):
    w = sym.var("w", attr={"__shape__": text})
    q = sym.FullyConnected(x, w, num_hidden=4, no_bias=True)
    assert q.infer_shape(x=(2, 3)) == ([(2, 3), (4, 3)], [(2, 4)], [])


@pytest.mark.parametrize("text", ["xyz", "(1, 'a')", "{", "(1,)*9", "[1,[2]]", "(1.5, 2)", f"({1 << 40}, {1 << 40})"])
def test_declared_shapes_that_are_none(x, text):
    with pytest.raises(MXNetError, match="Variable 'w': its __shape__ is "):
        (x + sym.var("w", attr={"__shape__": text})).infer_shape(x=(2, 3))


def test_contradictions_name_the_node(x, y, fc):
    with pytest.raises(
        MXNetError,
        match=r"Error in operator fc: FullyConnected: Shape inconsistent, Provided = \[4,5\], inferred shape=\[4,3\]",
    ):
        fc.infer_shape(x=(2, 3), fc_weight=(4, 5))
    with pytest.raises(
        MXNetError,
        match=r"Error in operator s: elemwise_add: Incompatible attr .*: expected \[2,1\], got \[2,3\]",
    ):
        sym.elemwise_add(x, y, name="s").infer_shape(x=(2, 1), y=(2, 3))
    with pytest.raises(MXNetError, match="Error in operator c: "):
        convolution(x).infer_shape(x=(2, 3, 8))
    with pytest.raises(MXNetError, match="Error in operator m: .*broadcast"):
        sym.broadcast_mul(x, y, name="m").infer_shape(x=(2, 3), y=(4,))


def test_wrong_arguments(fc):
    with pytest.raises(MXNetError, match="Keyword argument name nosuch not found"):
        fc.infer_shape(nosuch=(4, 5))
    with pytest.raises(TypeError, match=r"Arguments need to be shapes \(tuple\), but 'x' is <class 'list'>"):
        fc.infer_shape(x=[2, 3])
    with pytest.raises(ValueError, match="either by positional or kwargs way"):
        fc.infer_shape((2, 3), x=(2, 3))
    with pytest.raises(MXNetError, match="4 values given for 3 arguments"):
        fc.infer_shape((2, 3), (4, 3), (4,), (1,))


def test_a_long_graph_is_inferred_in_few_sweeps(x, monkeypatch):
    from gluonjit.symbol import shapes

    calls = []
    original = shapes.refine
    monkeypatch.setattr(shapes, "refine", lambda *a: calls.append(a) or original(*a))
    for k in range(300):
        x = sym.FullyConnected(sym.relu(x), num_hidden=4, name=f"fc{k}")
    assert x.infer_shape(x=(2, 3))[1] == [(2, 4)]
    assert len(calls) == 600


def test_branches_have_their_conditions_shape():
    """Further than MXNet goes: a cell's states, zeros((0, n)), may be told by a mask alone."""
    open_states = sym.zeros((0, 3))
    assert sym.where(sym.var("m", shape=(2, 3)), open_states, open_states).infer_shape() == ([(2, 3)], [(2, 3)], [])
    assert sym.where(sym.var("m", shape=(2,)), open_states, open_states).infer_shape() == ([(2,)], [(2, 3)], [])
    with pytest.raises(MXNetError, match="the condition of where must have the shape"):
        sym.where(sym.var("m", shape=(2, 4)), open_states, open_states).infer_shape()


F16, F32, I32 = np.float16, np.float32, np.int32


def test_types_follow_the_data(x, fc):
    assert fc.infer_type(x="float16") == ([F16, F16, F16], [F16], [])
    assert fc.infer_type_partial(fc_bias="float16") == ([F16, F16, F16], [F16], [])
    assert fc.infer_type_partial() == ([None, None, None], [None], [])
    with pytest.raises(MXNetError, match="Error in operator fc: .* expected float16, got float32"):
        fc.infer_type(x="float16", fc_weight="float32")


@pytest.mark.parametrize(
    ("make", "given", "expected"),
    [
        (lambda x, y: sym.cast(x, dtype="int32"), {"x": F16}, ([F16], [I32], [])),
        (lambda x, y: sym.Embedding(x, input_dim=3, output_dim=4, name="e"), {"x": I32}, ([I32, F32], [F32], [])),
        (lambda x, y: sym.BatchNorm(x, name="b"), {"x": F16}, ([F16, F32, F32], [F16], [F32, F32])),
        (lambda x, y: sym.broadcast_equal(x, y), {"x": I32}, ([I32, I32], [I32], [])),
        (lambda x, y: sym.one_hot(x, depth=3), {"x": I32}, ([I32], [F32], [])),
        (lambda x, y: sym.take(x, y), {"x": F16, "y": I32}, ([F16, I32], [F16], [])),
        (lambda x, y: sym.reshape_like(x, y), {"x": F16, "y": I32}, ([F16, I32], [F16], [])),
        (lambda x, y: sym.zeros((2, 3), dtype="float16"), {}, ([], [F16], [])),
    ],
    ids=["Cast", "Embedding", "BatchNorm", "comparison", "one_hot", "take", "reshape_like", "zeros"],
)
def test_types_that_do_not(x, y, make, given, expected):
    assert make(x, y).infer_type(**given) == expected


def test_declared_types(x):
    w = sym.var("w", dtype="float16")
    assert sym.FullyConnected(x, w, num_hidden=4, no_bias=True).infer_type() == ([F16, F16], [F16], [])


def test_complete_inference_does_not_warn(fc):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fc.infer_shape(x=(2, 3))
        fc.infer_type(x="float32")


def answers(symbol, **shapes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return symbol.infer_shape(**shapes)


def test_bilinear_upsampling_completes_its_weight(x):
    for scale, side in ((2, 4), (3, 5)):
        u = sym.UpSampling(x, scale=scale, sample_type="bilinear", num_filter=3, num_args=2, name="u")
        assert u.list_arguments() == ["x", "u_weight"]
        assert answers(u, x=(1, 3, 4, 4)) == (
            [(1, 3, 4, 4), (3, 1, side, side)],
            [(1, 3, 4 * scale, 4 * scale)],
            [],
        )


def test_slopes_keep_the_shape_they_declare():
    for data, gamma in (((3, 4), (1, 4)), ((3, 4), (3, 1)), ((2, 3, 4), (1,))):
        p = sym.LeakyReLU(sym.var("x"), sym.var("g", shape=gamma), act_type="prelu")
        assert answers(p, x=data) == ([data, gamma], [data], [])


@pytest.mark.parametrize("shape", [[-1, -1], (0, 0), (2, 0), (2, -1)])
@pytest.mark.parametrize("make", [sym.ones, sym.zeros, lambda shape: sym.random.uniform(shape=shape)])
def test_open_shapes_are_completed_by_their_users(x, make, shape):
    o = make(shape=shape)
    assert answers(o) == (None, None, None)
    assert o.infer_shape_partial() == ([], [tuple(max(n, 0) for n in shape)], [])
    assert answers(o + x, x=(2, 3)) == ([(2, 3)], [(2, 3)], [])
    assert answers(sym.FullyConnected(x, weight=o, num_hidden=2, no_bias=True), x=(2, 3)) == ([(2, 3)], [(2, 2)], [])


def test_open_shapes_run(x):
    total = (sym.ones(shape=[-1, -1]) + x + sym.full(shape=(2, -1), val=3)).eval(x=mx.nd.zeros((2, 3)))[0]
    assert total.asnumpy().tolist() == [[4.0] * 3] * 2
    assert '"shape": "[-1, -1]"' in sym.ones(shape=[-1, -1]).tojson()


def test_a_range_is_as_long_as_its_user_wants(x):
    a = sym.arange(0, step=2, infer_range=True)
    assert answers(a) == answers(sym.broadcast_add(x, a), x=(5,)) == (None, None, None)
    assert a.infer_shape_partial() == ([], [()], [])
    assert answers(x + a, x=(5,)) == ([(5,)], [(5,)], [])
    for attrs, n, expected in (
        ({"start": 0, "step": 2}, 5, [0, 2, 4, 6, 8]),
        ({"start": 3, "step": -1}, 4, [3, 2, 1, 0]),
        ({"start": 1, "repeat": 2}, 4, [1, 1, 2, 2]),
        ({"start": 0.5, "step": 0.1}, 7, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]),
    ):
        (y,) = (x + sym.arange(**attrs, infer_range=True)).eval(x=mx.nd.zeros((n,)))
        np.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-6)
    with pytest.raises(MXNetError, match=r"whole groups of 2, but what uses it needs shape \[3\]"):
        (x + sym.arange(1, repeat=2, infer_range=True)).eval(x=mx.nd.zeros((3,)))
    with pytest.raises(MXNetError, match="no use of the result determines its shape"):
        a.eval()


def test_hybridized_blocks_take_no_notice_of_infer_range():
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x + F.arange(3, infer_range=True)

    net = Net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = net(mx.nd.zeros((3,))).asnumpy().tolist()
        net.hybridize()
        assert net(mx.nd.zeros((3,))).asnumpy().tolist() == expected == [0, 1, 2]


@pytest.mark.parametrize(
    "begin, end, x_shape, expected",
    [
        ((1, None), (3, None), (0, 4), (0, 4)),
        ((1, None), (3, None), (5, 0), (2, 0)),
        ((1, None), (3, None), (4, 0, 6), (2, 0, 6)),
        ((None, None), (None, None), (0, 4), (0, 4)),
        ((None, 1), (2, None), (0, 4), (0, 3)),
        ((0, -2), (None, None), (5, 0), (5, 0)),
        ((0, -2), (None, None), (0, 4), (0, 2)),
        ((0,), (2,), (0, 4), (0, 4)),
        ((-2, None), (-1, None), (0, 4), (0, 4)),
        ((-2, None), (-1, None), (5, 0), (1, 0)),
    ],
)
def test_slices_of_unknown_dimensions_are_unknown(x, begin, end, x_shape, expected):
    assert sym.slice(x, begin=begin, end=end).infer_shape_partial(x=x_shape)[1] == [expected]


def test_types_of_what_only_gives_its_shape(x, y):
    """As in gluonnlp's BERT, whose masked positions are integers."""
    like = sym.reshape_like(x, sym.cast(y, "int32"), lhs_begin=-2, lhs_end=-1, rhs_begin=0)
    assert like.infer_type(x="float32", y="float32")[:2] == ([np.float32, np.float32], [np.float32])
    assert sym.reshape_like(x, y).infer_type(x="float16", y="int32")[:2] == ([np.float16, np.int32], [np.float16])
    with pytest.warns(UserWarning, match="Cannot decide type"):
        assert sym.reshape_like(x, y).infer_type(x="float32")[1] is None


def test_unknown_sizes_where_arrays_may_be_empty(x, y):
    """Under `np_shape` 0 is a size, so unknown ones are -1, and an unknown rank is None."""
    product = sym.FullyConnected(x, y, num_hidden=3, no_bias=True)
    with mx.util.np_shape():
        assert product.infer_shape_partial() == ([None, None], [None], [])
        assert product.infer_shape_partial(x=(-1, 4)) == ([(-1, 4), (3, 4)], [(-1, 3)], [])
        assert product.infer_shape(x=(0, 4)) == ([(0, 4), (3, 4)], [(0, 3)], [])
        with pytest.warns(UserWarning, match="-1s in shape means unknown"):
            assert product.infer_shape(x=(-1, 4)) == (None, None, None)
        assert sym.Group([x, y]).infer_shape_partial(x=(0, 4)) == ([(0, 4), None], [(0, 4), None], [])
