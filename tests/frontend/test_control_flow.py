"""`foreach`, `while_loop` and `cond`: imperative, traced, compiled and untyped, they give the same."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd, sym
from gluonjit.base import MXNetError, TraceError
from gluonjit.gluon import nn
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import type_of
from gluonjit.ir.verify import verify
from gluonjit.trace import trace


def block_of(function, *children):
    """A HybridBlock whose `hybrid_forward` is `function(F, *args)`."""

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            for child in children:
                self.register_child(child)

        def hybrid_forward(self, F, *args):
            return function(F, *args)

    return Net()


def flat(value):
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in flat(part)]
    return [value]


def both(function, *args, children=(), seed=None):
    """The imperative result, after checking that the hybridized one is the same, structure included."""
    for child in children:
        child.initialize(mx.init.Xavier())
    results = []
    for active in (False, True):
        net = block_of(function, *children)
        net.hybridize(active)
        for _ in range(2 if active else 1):  # the second call is the compiled one's fast path
            if seed is not None:
                mx.random.seed(seed)
            results.append(net(*args))
    expected = flat(results[0])
    for other in results[1:]:
        got = flat(other)
        assert len(got) == len(expected)
        for a, b in zip(got, expected):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)
    return results[0]


def array(*values, dtype="float32"):
    return nd.array(values, dtype=dtype)


X = nd.array(np.arange(12).reshape(4, 3) / 7)


# foreach


def test_foreach():
    def body(row, states):
        out = row + states[0]
        return out, [states[0] * 2]

    out, (state,) = both(lambda F, x, s: F.contrib.foreach(body, x, [s]), X, array(1, 1, 1))
    np.testing.assert_allclose(out.asnumpy(), X.asnumpy() + 2.0 ** np.arange(4)[:, None], rtol=1e-6)
    assert state.asnumpy().tolist() == [16] * 3


def test_forms():
    """Data, outputs and states may be arrays, lists, and lists of lists; outputs come as lists."""

    def body(rows, state):
        a, b = rows
        return (a, [b, a + b]), state + a

    out, state = both(lambda F, x, y, s: F.contrib.foreach(body, [x, y], s), X, X * 2, array(0, 0, 0))
    assert type(out) is list and type(out[1]) is list
    np.testing.assert_allclose(state.asnumpy(), X.asnumpy().sum(0), rtol=1e-6)
    out, states = both(lambda F, x: F.contrib.foreach(lambda row, s: (row, s), x, []), X)
    assert states == []
    _, (a, (b,)) = both(
        lambda F, x, s: F.contrib.foreach(lambda row, s: ([], (s[0] + row, s[1])), x, (s, [s])), X, X[0]
    )
    np.testing.assert_allclose((a - b).asnumpy(), X.asnumpy().sum(0), rtol=1e-6)


def test_layers_in_the_body():
    cell = nn.Dense(3, flatten=False, activation="tanh")

    def function(F, x, s):
        return F.contrib.foreach(lambda row, s: (cell(row) + s, s + cell(row)), x, s)

    out, state = both(function, nd.random.normal(shape=(5, 2, 3)), nd.zeros((2, 3)), children=[cell])
    assert out.shape == (5, 2, 3) and state.shape == (2, 3)


def test_parameters_are_found_through_the_body():
    cell = nn.Dense(4, flatten=False)
    net = block_of(lambda F, x: F.contrib.foreach(lambda row, s: (cell(row), s), x, [])[0], cell)
    net.initialize()
    net.hybridize()
    assert net(nd.ones((3, 2, 5))).shape == (3, 2, 4)
    assert cell.weight.shape == (4, 5)


def test_nested_loops():
    def outer(matrix, total):
        rows, last = nd_or_sym.contrib.foreach(lambda row, s: (row * s, s + 1), matrix, total)
        return rows, last

    nd_or_sym = None

    def function(F, x, s):
        nonlocal nd_or_sym
        nd_or_sym = F
        return F.contrib.foreach(outer, x, s)

    out, last = both(function, nd.ones((2, 3, 2)), array(1.0, 1.0))
    assert out.asnumpy()[..., 0].tolist() == [[1, 2, 3], [4, 5, 6]] and last.asnumpy().tolist() == [7, 7]


def test_one_graph_serves_other_lengths():
    net = block_of(lambda F, x: F.contrib.foreach(lambda row, s: (row + s, s + 1), x, F.zeros((3,)))[0])
    net.hybridize()
    for n in (4, 2, 7):
        np.testing.assert_allclose(net(nd.ones((n, 3))).asnumpy()[:, 0], 1 + np.arange(n))


def test_what_the_body_asks_is_a_fact():
    """The shape of a row, read in the body, guards the graph."""

    def body(row, s):
        return row.reshape((row.shape[0] // 2, 2)) * row.shape[0], s

    net = block_of(lambda F, x: F.contrib.foreach(body, x, [])[0])
    net.hybridize()
    for width in (4, 6, 4):
        out = net(nd.ones((3, width)))
        assert out.shape == (3, width // 2, 2) and (out.asnumpy() == width).all()


def test_views_first_read_inside():
    """A view of an array from outside, read in the body and after it."""

    def function(F, x, y):
        view = y[1]
        out, _ = F.contrib.foreach(lambda row, s: (row + view, s), x, [])
        return out, view * 2

    _, view = both(function, X, X + 5)
    np.testing.assert_allclose(view.asnumpy(), (X.asnumpy()[1] + 5) * 2, rtol=1e-6)


def test_arrays_made_in_the_body_can_be_written():
    def body(row, s):
        own = row.copy()
        own[0] = 7
        own += 1
        return own, s

    out, _ = both(lambda F, x: F.contrib.foreach(body, x, []), X)
    assert (out.asnumpy()[:, 0] == 8).all()


def test_integers_and_their_types():
    def body(row, s):
        return row.astype("int64"), s + row

    out, state = both(
        lambda F, x, s: F.contrib.foreach(body, x, s), nd.array([[1], [2]], dtype="int32"), array(3, dtype="int32")
    )
    assert out.dtype == np.int64 and state.asnumpy().tolist() == [6]


# while_loop


def test_while():
    def cond(i, total):
        return i < 4

    def body(i, total):
        return [i, total * 2], [i + 1, total + i]

    (a, b), (i, total) = both(
        lambda F, i, t: F.contrib.while_loop(cond, body, [i, t], max_iterations=6), array(1), array(10, 20)
    )
    assert a.asnumpy().ravel().tolist() == [1, 2, 3, 0, 0, 0]
    assert b.asnumpy().tolist() == [[20, 40], [22, 42], [26, 46], [0, 0], [0, 0], [0, 0]]
    assert i.asnumpy().tolist() == [4] and total.asnumpy().tolist() == [16, 26]


@pytest.mark.parametrize("limit", [0, 3, 9])
def test_while_ends_early_late_or_never_begins(limit):
    def function(F, i, limit):
        return F.contrib.while_loop(lambda i: i < limit, lambda i: (i * 10, i + 1), i, max_iterations=5)

    rows, i = both(function, array(0), array(limit))
    count = min(limit, 5)
    assert rows.asnumpy().ravel().tolist() == [10.0 * k if k < count else 0 for k in range(5)]
    assert i.asnumpy().tolist() == [count]


def test_while_without_outputs():
    rows, (i,) = both(
        lambda F, i: F.contrib.while_loop(lambda i: i < 3, lambda i: (None, [i + 1]), [i], max_iterations=9), array(0)
    )
    assert rows == [] and i.asnumpy().tolist() == [3]


def test_a_variable_that_the_body_does_not_read():
    def function(F, i, unused):
        return F.contrib.while_loop(lambda i, u: i < 3, lambda i, u: (i, [i + 1, i * 5]), [i, unused], max_iterations=4)

    _, (i, last) = both(function, array(0), array(9))
    assert last.asnumpy().tolist() == [10]


# cond


@pytest.mark.parametrize("value", [0, 2, -1])
def test_cond(value):
    def function(F, p, x):
        return F.contrib.cond(p, lambda: [x + 1, (x * 2,)], lambda: [x - 1, (x * 3,)])

    a, (b,) = both(function, array(value), X)
    np.testing.assert_allclose(a.asnumpy(), X.asnumpy() + (1 if value else -1), rtol=1e-6)
    np.testing.assert_allclose(b.asnumpy(), X.asnumpy() * (2 if value else 3), rtol=1e-6)


def test_only_the_branch_taken_is_computed():
    graph = trace(block_of(lambda F, p, x: F.contrib.cond(p, lambda: F.exp(x), lambda: F.log(x))), [array(1), X])
    ops = graph.graph([type_of(array(1)._array), type_of(X._array)], False).ops
    assert [op.name for op in ops][-1] == "branch"
    assert [[inner.name for inner in region.ops] for region in ops[-1].regions] == [["mx.exp"], ["mx.log"]]


# Random numbers


def test_random_numbers_in_loops_and_branches():
    """Each iteration draws new ones; what comes after does not depend on how many there were."""

    def function(F, x, p):
        out, _ = F.contrib.foreach(lambda row, s: (F.random.uniform_like(row), s), x, [])
        rows, _ = F.contrib.while_loop(
            lambda i: i + F.random.uniform(shape=(1,)) * 0 < 2,
            lambda i: (F.random.normal(shape=(2,)) + i * 0, i + 1),
            F.zeros((1,)),
            max_iterations=4,
        )
        chosen = F.contrib.cond(p, lambda: F.random.uniform(shape=(2,)), lambda: F.zeros((2,)))
        return out, rows, chosen, F.random.uniform(shape=(3,))

    out, rows, chosen, after = both(function, X, array(1), seed=5)
    values = [*out.asnumpy().ravel(), *rows.asnumpy()[:2].ravel(), *chosen.asnumpy(), *after.asnumpy()]
    assert len(set(values)) == len(values) and not rows.asnumpy()[2:].any()
    mx.random.seed(5)
    other = block_of(function)(X[:2], array(0))
    np.testing.assert_array_equal(other[3].asnumpy(), after.asnumpy())


def test_dropout_in_a_body():
    drop = nn.Dropout(0.5)

    def function(F, x):
        return F.contrib.foreach(lambda row, s: (drop(row), s), x, [])[0]

    with autograd.train_mode():
        out = both(function, nd.ones((3, 64)), children=[drop], seed=1).asnumpy()
    assert set(out.ravel()) == {0.0, 2.0} and (out[0] != out[1]).any() and (out[1] != out[2]).any()
    assert (both(function, nd.ones((3, 64)), children=[drop]).asnumpy() == 1).all()


# What is refused


def refused(function, *args, error=TraceError):
    net = block_of(function)
    net.hybridize()
    with pytest.raises(error) as e:
        net(*args)
    return str(e.value)


def test_writes_to_arrays_from_outside():
    def write_state(row, s):
        s[0] += 1
        return row, s

    def write_captured(F, x, y):
        def body(row, s):
            y[0] = 1
            return row, s

        return F.contrib.foreach(body, x, [])

    for message in (
        refused(lambda F, x, s: F.contrib.foreach(write_state, x, [s]), X, array(1, 1, 1)),
        refused(write_captured, X, array(1, 1, 1)),
    ):
        assert "pass the new value on as a state of the loop" in message and "test_control_flow.py" in message


def test_states_that_change_their_type():
    message = refused(
        lambda F, x, s: F.contrib.foreach(lambda row, s: (row, F.concat(s, s, dim=0)), x, s),
        X,
        array(1, 1, 1),
        error=MXNetError,
    )
    assert "must keep the types of its states" in message and "f32[6]" in message


def test_branches_of_different_types():
    message = refused(lambda F, p, x: F.contrib.cond(p, lambda: x, lambda: x.sum()), array(1), X, error=MXNetError)
    assert "both branches must give the same types" in message


@pytest.mark.parametrize("hybridize", [False, True])
def test_wrong_arguments(hybridize):
    def fails(function, error, message, *args):
        net = block_of(function)
        net.hybridize(hybridize)
        with pytest.raises(error, match=message):
            net(*args)

    fails(lambda F, x: F.contrib.foreach(lambda r, s: (r, s), 3, []), AssertionError, "foreach input must be", X)
    fails(lambda F, x: F.contrib.foreach(lambda r, s: (3, s), x, []), AssertionError, "foreach output must be", X)
    fails(lambda F, x: F.contrib.foreach(lambda r, s: (r, s), [x, x[:2]], []), MXNetError, "same number of rows", X)
    fails(lambda F, x: F.contrib.while_loop(lambda i: i, lambda i: (i, i), x), ValueError, "max_iterations", X)
    loop = lambda F, x: F.contrib.while_loop(lambda i: i, lambda i: (i, [i, i]), [x], max_iterations=2)  # noqa: E731
    fails(loop, ValueError, "loop_vars should be consistent", array(1))
    fails(lambda F, x: F.contrib.while_loop(lambda: 1, lambda: 1, [], 3), ValueError, "at least one", X)
    many = lambda F, x: F.contrib.cond(x, lambda: x, lambda: x)  # noqa: E731
    fails(many, (MXNetError, ValueError), "single number|python scalar|size-1|ambiguous|scalar", X)


# Graphs


def test_hooks_see_results():
    def function(F, x, s):
        rows, states = F.contrib.foreach(lambda row, states: (row * 2, [states[0] + row]), x, [s])
        found, (i, _) = F.contrib.while_loop(
            lambda i, t: i < 2, lambda i, t: (t.relu(), [i + 1, t]), [F.zeros(1), states[0]], max_iterations=3
        )
        return rows, F.contrib.cond(i < 1, lambda: found, lambda: found + 1)

    net = block_of(function)
    arguments = array([1, 2], [3, 4]), array(0, -9)
    expected = flat(net(*arguments))
    seen = {}
    net.hybridize()
    net.register_op_hook(
        lambda name, op, x: seen.update({(name.decode().split("_", 1)[1], op.decode()): x.asnumpy().tolist()})
    )
    for a, b in zip(flat(net(*arguments)), expected):
        assert a.asnumpy().tolist() == b.asnumpy().tolist()
    assert seen == {
        ("_foreach0_0", "_foreach"): [[2, 4], [6, 8]],
        ("_foreach0_1", "_foreach"): [4, -3],
        ("_zeros0_0", "_zeros"): [0],
        ("_while_loop0_0", "_while_loop"): [[4, 0], [4, 0], [0, 0]],
        ("_while_loop0_1", "_while_loop"): [2],
        ("_while_loop0_2", "_while_loop"): [4, -3],
        ("_lesser_scalar1_0", "_lesser_scalar"): [0],
        ("_lesser_scalar1_output_copy_0", "_copy"): [0],
        ("_cond0_0", "_cond"): [[5, 1], [5, 1], [1, 1]],
    }


def test_text_round_trip():
    net = block_of(lambda F, x, s: F.contrib.foreach(lambda row, s: (row + s, s * 2), x, s))
    graph = trace(net, [X, array(1, 1, 1)]).graph([type_of(X._array), type_of(np.ones(3, np.float32))], False)
    verify(graph)
    assert str(parse_graph(str(graph))) == str(graph)


def test_untyped_symbols():
    data, state, weight = sym.var("data"), sym.var("state"), sym.var("weight")
    shift = sym.exp(weight)
    out, last = sym.contrib.foreach(lambda row, s: (row + s * shift, s + weight), data, state)
    rows, (i,) = sym.contrib.while_loop(lambda i: i < 2, lambda i: (i, [i + 1]), [sym.var("i")], max_iterations=3)
    chosen = sym.contrib.cond(weight.sum() > 0, lambda: data * 2, lambda: data)
    graph = sym.Group([out, last, rows, i, chosen])
    assert graph.list_arguments() == ["data", "state", "weight", "i"]
    values = {"data": X, "state": array(1, 1, 1), "weight": array(0, 0, 1), "i": array(0)}
    results = graph.eval(**values)
    expected, _ = nd.contrib.foreach(
        lambda r, s: (r + s * values["weight"].exp(), s + values["weight"]), X, values["state"]
    )
    np.testing.assert_allclose(results[0].asnumpy(), expected.asnumpy(), rtol=1e-5)
    assert results[2].asnumpy().ravel().tolist() == [0, 1, 0] and results[3].asnumpy().tolist() == [2]
    np.testing.assert_allclose(results[4].asnumpy(), X.asnumpy() * 2, rtol=1e-6)


def test_shapes_of_untyped_symbols():
    data, weight = sym.var("data"), sym.var("fc_weight")
    body = lambda row, s: (sym.FullyConnected(row, weight, num_hidden=4, no_bias=True), s)  # noqa: E731
    out, _ = sym.contrib.foreach(body, data, [])
    arguments, outputs, _ = out.infer_shape(data=(5, 2, 3))
    assert arguments == [(5, 2, 3), (4, 3)] and outputs == [(5, 2, 4)]
