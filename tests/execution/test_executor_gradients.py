"""`Executor.backward`: where gradients go, what an executor needs for them, when states change."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd, sym
from support.compare import assert_close

X, Y = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]


def product(grads=None, grad_req="write", graph=None):
    """x * y, or another graph of both, bound to `X` and `Y`."""
    graph = sym.var("x") * sym.var("y") if graph is None else graph
    grads = [nd.zeros(3), nd.zeros(3)] if grads is None else grads
    return graph.bind(mx.cpu(), {"x": nd.array(X), "y": nd.array(Y)}, args_grad=grads, grad_req=grad_req)


def gradients(executor):
    return [None if g is None else g.asnumpy().tolist() for g in executor.grad_arrays]


def test_gradients_are_written_or_added_to_the_given_arrays():
    grads = {"x": nd.zeros(3), "y": nd.ones(3)}
    executor = product(grads, {"x": "write", "y": "add"})
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward([nd.ones(3) * 2])
    assert executor.grad_dict["x"] is grads["x"] and executor.grad_arrays[1] is grads["y"]
    assert gradients(executor) == [[8, 10, 12], [5, 9, 13]]


@pytest.mark.parametrize(
    ("grads", "grad_req"),
    [
        ({"x": nd.zeros(3)}, "write"),
        ([nd.zeros(3), None], "write"),
        ([nd.zeros(3), nd.zeros(3)], ["write", "null"]),
        ([nd.zeros(3), nd.zeros(3)], {"x": "write"}),
    ],
)
def test_arguments_may_get_no_gradient(grads, grad_req):
    executor = product(grads, grad_req)
    executor.forward(is_train=True)
    executor.backward(nd.ones(3))
    first, second = gradients(executor)
    assert first == Y and second in (None, [0, 0, 0])


def test_backward_may_be_called_again_or_before_forward():
    executor = product()
    executor.backward(nd.ones(3))
    assert gradients(executor) == [Y, X]
    executor.forward(is_train=False)
    executor.backward(nd.ones(3))
    executor.backward(nd.ones(3) * 2)
    assert gradients(executor) == [[8, 10, 12], [2, 4, 6]]


def test_every_output_has_a_gradient():
    x, y = sym.var("x"), sym.var("y")
    graph = sym.Group([sym.elemwise_mul(x, y, name="m"), sym.elemwise_add(x, y, name="a"), y, sym.sign(x)])
    executor = product(graph=graph)
    executor.forward(is_train=True)
    given = [nd.ones(3), nd.ones(3) * 10, nd.zeros(3)]
    executor.backward(given)  # no gradient flows through sign
    assert gradients(executor) == [[14, 15, 16], [11, 12, 13]]
    executor.backward(dict(zip(graph.list_outputs(), [*given[:2], nd.ones(3), nd.ones(3)])))
    assert gradients(executor) == [[14, 15, 16], [12, 13, 14]]
    with pytest.raises(mx.MXNetError, match="head_gradient is required when calling backward. .* none for a_output"):
        executor.backward(given[:1])
    with pytest.raises(mx.MXNetError, match=r"operands shape mismatch: out_grads has \[2\] for m_output.* \[3\]"):
        executor.backward([nd.ones(2), *given[1:]])
    with pytest.raises(TypeError, match="inputs must be NDArray"):
        executor.backward([np.ones(3)] * 3)


def test_wrong_requests():
    with pytest.raises(ValueError, match="grad_req must be in 'write', 'add', 'null', got 'foo'"):
        product(grad_req="foo")
    with pytest.raises(ValueError, match="grad_req has 1 entries for 2 arguments"):
        product(grad_req=["write"])
    with pytest.raises(ValueError, match="Length of args_grad does not match the number of arguments"):
        product([nd.zeros(3)])
    with pytest.raises(mx.MXNetError, match=r"args_grad has shape \(2,\) for x, whose shape is \(3,\)"):
        product([nd.zeros(2), nd.zeros(3)])


def test_what_was_written_to_after_forward_is_named():
    executor = product()
    executor.forward(is_train=True)
    executor.arg_dict["y"][:] = 100
    with pytest.raises(mx.MXNetError, match="y was written to after forward"):
        executor.backward(nd.ones(3))


def test_compiled_gradients_equal_recorded_ones():
    rng = np.random.default_rng(0)
    graph = sym.FullyConnected(sym.tanh(sym.var("x")), num_hidden=4, name="fc")
    executor = sym.sigmoid(graph).simple_bind(mx.cpu(), x=(2, 3))
    for array in executor.arg_arrays:
        array[:] = nd.array(rng.standard_normal(array.shape))
    head = nd.array(rng.standard_normal((2, 4)))
    executor.forward(is_train=True)
    executor.backward(head)
    x, w, b = (a.copy() for a in executor.arg_arrays)
    for a in (x, w, b):
        a.attach_grad()
    with mx.autograd.record():
        y = nd.sigmoid(nd.FullyConnected(nd.tanh(x), w, b, num_hidden=4))
    y.backward(head)
    for own, other in zip(executor.grad_arrays, (x, w, b)):
        assert_close(own, other.grad)
    assert executor.reshape(x=(1, 3)).grad_dict["x"].shape == (1, 3)


def test_moving_statistics_change_in_backward():
    """As in MXNet: not in forward, in every backward, and not with is_train=False."""
    executor = sym.BatchNorm(sym.var("d"), name="bn", fix_gamma=False, momentum=0.5).simple_bind(mx.cpu(), d=(4, 2))
    executor.arg_dict["d"][:] = nd.array(np.arange(8).reshape(4, 2))
    mean, head = executor.aux_arrays[0], nd.ones((4, 2))
    seen = []
    for step in (
        lambda: executor.forward(is_train=True),
        lambda: executor.backward(head),
        lambda: executor.backward(head),
        lambda: executor.backward(head, is_train=False),
    ):
        step()
        seen.append(mean.asnumpy().tolist())
    assert seen == [[0, 0], [1.5, 2], [2.25, 3], [2.25, 3]]


def test_dropout_passes_the_gradient_of_what_it_kept():
    executor = sym.Dropout(sym.var("x"), p=0.5).bind(mx.cpu(), {"x": nd.ones(64)}, args_grad=[nd.zeros(64)])
    for _ in range(2):
        (kept,) = executor.forward(is_train=True)
        executor.backward(nd.ones(64))
        assert (executor.grad_arrays[0].asnumpy() == kept.asnumpy()).all() and 0 < kept.asnumpy().sum() < 128


def test_the_mode_of_backward_does_not_change_what_was_computed():
    """MXNet takes BatchNorm's formula of the mode of backward, which is not the gradient of the outputs."""
    executor = sym.BatchNorm(sym.var("d"), name="bn", eps=0).simple_bind(mx.cpu(), d=(4, 2))
    executor.arg_dict["d"][:] = nd.array([[1.0, 2.0], [3.0, 5.0], [0.0, -1.0], [2.0, 2.0]])
    executor.aux_dict["bn_moving_var"][:] = 4
    head, found = nd.array([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0], [0.0, 0.0]]), {}
    for forward in (True, False):
        for backward in (True, False):
            executor.forward(is_train=forward)
            executor.backward(head, is_train=backward)
            found[forward, backward] = executor.grad_dict["d"].asnumpy().tolist()
        executor.aux_dict["bn_moving_mean"][:] = 0
        executor.aux_dict["bn_moving_var"][:] = 4
    assert found[True, True] == found[True, False] != found[False, True] == found[False, False]
    np.testing.assert_allclose(found[False, True], head.asnumpy() / 2)


def test_backward_after_a_forward_that_kept_nothing():
    """Nothing was drawn, and no state changes: the forward computation ran in the mode of inference."""
    dropped = sym.BatchNorm(sym.Dropout(sym.var("x"), p=0.5), name="bn", eps=0)
    executor = dropped.simple_bind(mx.cpu(), x=(4, 2))
    executor.aux_dict["bn_moving_var"][:] = 1
    executor.forward(is_train=False)
    executor.backward(nd.ones((4, 2)))
    assert executor.grad_dict["x"].asnumpy().tolist() == [[1, 1]] * 4
    assert executor.aux_dict["bn_moving_var"].asnumpy().tolist() == [1, 1]
    executor.forward(is_train=False)
    executor.arg_dict["x"][:] = 2
    with pytest.raises(mx.MXNetError, match="^x was written to after forward"):
        executor.backward(nd.ones((4, 2)))


def test_some_results_of_a_loop_are_heads():
    """The others have no cotangent at all. The numbers are MXNet's."""
    d, s = sym.var("d"), sym.var("s")
    rows, last = sym.contrib.foreach(lambda r, t: ([r * 2, r * t, r + 1], t + r), d, s)
    expected = [(2, 0), (3, 3), (1, 0), (1, 1)]
    for head, (by_data, by_state) in zip([*rows, last], expected, strict=True):
        grads = {"d": nd.zeros((3, 2)), "s": nd.zeros(2)}
        executor = head.bind(mx.cpu(), {"d": nd.ones((3, 2)), "s": nd.ones(2)}, args_grad=grads)
        executor.forward(is_train=True)
        executor.backward(nd.ones(executor.outputs[0].shape))
        assert_close(grads["d"], np.full((3, 2), by_data, "f4"))
        assert_close(grads["s"], np.full(2, by_state, "f4"))


def test_a_loop_without_outputs_has_the_gradient_of_its_state():
    """The numbers are MXNet's: two iterations, each of which doubles."""
    _, (_, last) = sym.contrib.while_loop(
        lambda i, v: i < 2, lambda i, v: ([], (i + 1, v * 2)), (sym.var("i"), sym.var("d")), max_iterations=3
    )
    grads = {"d": nd.zeros(2)}
    executor = last.bind(mx.cpu(), {"d": nd.ones(2), "i": nd.zeros(1)}, args_grad=grads)
    executor.forward(is_train=True)
    executor.backward(nd.ones(2))
    assert_close(grads["d"], np.full(2, 4, "f4"))
