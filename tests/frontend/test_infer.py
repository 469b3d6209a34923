"""Shape and type inference on untyped symbols, in both directions. The expected values are MXNet 1.9.1's."""

import warnings

import numpy as np
import pytest

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
