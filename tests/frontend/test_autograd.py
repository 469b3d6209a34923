"""Training and recording modes, and gradients through the tape."""

import gc
import json
import threading
import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import MXNetError, autograd, nd
from gluonjit.autodiff.tape import Node
from gluonjit.gluon import nn


def modes():
    return autograd.is_recording(), autograd.is_training()


def test_scopes():
    assert modes() == (False, False)
    with autograd.record():
        assert modes() == (True, True)
        with autograd.pause():
            assert modes() == (False, False)
            with autograd.train_mode():
                assert modes() == (False, True)
        with autograd.predict_mode():
            assert modes() == (True, False)
        assert modes() == (True, True)
    with autograd.record(train_mode=False):
        assert modes() == (True, False)
    assert modes() == (False, False)


def test_a_scope_may_be_entered_again():
    scope = autograd.train_mode()
    with scope:
        with scope:
            assert autograd.is_training()
        assert autograd.is_training()
    assert not autograd.is_training()


def test_setters_return_the_mode_before():
    assert autograd.set_training(True) is False
    assert autograd.set_training(False) is True
    assert autograd.set_recording(True) is False
    assert autograd.set_recording(False) is True


def test_modes_are_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), autograd.record():
        raise ZeroDivisionError
    assert modes() == (False, False)


def test_modes_are_thread_local():
    seen = []
    with autograd.record():
        thread = threading.Thread(target=lambda: seen.append(modes()))
        thread.start()
        thread.join()
    assert seen == [(False, False)]


# Gradients ------------------------------------------------------------------------------------------------------------


def variable(values, request="write"):
    x = nd.array(values)
    x.attach_grad(request)
    return x


def equal(x, want):
    np.testing.assert_allclose(x.asnumpy(), want, rtol=1e-6)


def test_backward_writes_the_gradients_of_variables():
    x, w, other = variable([1.0, 2.0]), variable([3.0, 4.0]), variable([5.0])
    with autograd.record():
        y = (x * x * w).sum()
    y.backward()
    equal(x.grad, [6.0, 16.0])
    equal(w.grad, [1.0, 4.0])
    equal(other.grad, [0.0])


def test_an_array_has_no_gradient_until_one_is_attached():
    x = nd.array([1.0])
    assert x.grad is None
    x.attach_grad()
    assert x.grad.shape == (1,)


def test_the_gradient_stays_one_array():
    x = variable([1.0])
    grad = x.grad
    for _ in range(2):
        with autograd.record():
            y = 3 * x
        y.backward()
    assert x.grad is grad
    equal(grad, [3.0])


def test_head_gradients():
    x = variable([1.0, 2.0])
    with autograd.record():
        y = x * x
    y.backward(nd.array([10.0, 100.0]))
    equal(x.grad, [20.0, 400.0])


def test_a_head_gradient_has_the_shape_of_its_head():
    x = variable([1.0, 2.0])
    with autograd.record():
        y = x * x
    with pytest.raises(MXNetError, match=r"head gradient has shape \(3,\), the head \(2,\)"):
        y.backward(nd.ones(3))


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_head_gradient_of_another_shape_of_equal_size(hybrid):
    """As in MXNet, whose executors and modules alone refuse it."""
    net = nn.HybridLambda(lambda F, x: F.square(x))
    if hybrid:
        net.hybridize()
    x = variable([[1.0, 2.0, 3.0]])
    for shape in ((3,), (3, 1), (1, 1, 3)):
        with autograd.record():
            y = net(x)
        g = nd.array([1.0, 10.0, 100.0]).reshape(shape)
        equal(autograd.grad(y, x, head_grads=g, retain_graph=True)[0], [[2.0, 40.0, 600.0]])
        y.backward(g)
        equal(x.grad, [[2.0, 40.0, 600.0]])
    executor = mx.sym.square(mx.sym.var("x")).simple_bind(mx.cpu(), x=(1, 3))
    executor.forward(is_train=True, x=x)
    with pytest.raises(MXNetError, match="operands shape mismatch"):
        executor.backward(nd.ones(3))


@pytest.mark.parametrize("values", [[2.5, 3], [float("nan"), 0], [3e10, 0]])
def test_a_head_gradient_fits_the_type_of_its_head(values):
    x = variable([1.0, 2.0])
    with autograd.record():
        y = (x * 3).astype("int32")
    with pytest.raises(MXNetError, match="is not made of int32 numbers, which is the type of the head: cast"):
        y.backward(nd.array(values))
    y.backward(nd.array([2, -3]))
    equal(x.grad, [6, -9])


def test_heads_that_are_no_arrays():
    x = variable([1.0, 2.0])
    with autograd.record():
        y = x * x
    with pytest.raises(TypeError, match="a head gradient is an NDArray, got ndarray: make one with"):
        y.backward(np.ones(2))
    with pytest.raises(TypeError, match="a head is an NDArray, got float"):
        autograd.backward([y, 3.0])
    with pytest.raises(TypeError, match="heads are an NDArray or a list of them, got float"):
        autograd.backward(3.0)
    with pytest.raises(MXNetError, match="the list of heads is empty"):
        autograd.backward([])
    y.backward()
    equal(x.grad, [2.0, 4.0])


def test_infinite_gradients_warn_of_nothing():
    x = variable([0.0], "add")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sign in (1, -1):
            with autograd.record():
                y = nd.sqrt(x) * sign
            y.backward()
        equal(x.grad, [np.nan])  # infinity - infinity, added to the array
        with autograd.record():
            z = nd.sqrt(x) - nd.sqrt(x)
        z.backward()


def test_several_heads():
    x = variable([1.0, 2.0])
    with autograd.record():
        a, b = x * x, 3 * x
    autograd.backward([a, b], [None, nd.array([10.0, 20.0])])
    equal(x.grad, [2 + 30, 4 + 60])


def test_a_head_may_be_computed_from_another():
    x = variable([2.0])
    with autograd.record():
        a = x * x
        b = a * a
    autograd.backward([b, a])
    equal(x.grad, [32 + 4])


def test_a_variable_may_be_a_head():
    x = variable([2.0])
    x.backward(nd.array([5.0]))
    equal(x.grad, [5.0])


def test_grad_req_add_and_null():
    x, frozen = variable([1.0], "add"), variable([2.0], "null")
    for _ in range(2):
        with autograd.record():
            y = x * x * frozen
        y.backward()
    equal(x.grad, [8.0])
    x.grad[:] = 0
    with autograd.record():
        y = 3 * x
    y.backward()
    equal(x.grad, [3.0])


def test_an_unknown_grad_req():
    with pytest.raises(ValueError, match="grad_req must be 'write', 'add' or 'null', got 'wirte'"):
        nd.ones(2).attach_grad("wirte")


def test_a_second_backward_needs_retain_graph():
    x = variable([3.0])
    with autograd.record():
        y = x * x
    y.backward(retain_graph=True)
    x.grad[:] = 0
    y.backward()
    equal(x.grad, [6.0])
    with pytest.raises(MXNetError, match="retain_graph=True") as e:
        y.backward()
    assert __file__ in str(e.value)


def test_backward_of_what_was_not_recorded():
    x = variable([1.0])
    y = x * x
    with pytest.raises(MXNetError, match="not in a computational graph"):
        y.backward()
    with autograd.record():
        y = nd.ones(1) * 2
    with pytest.raises(MXNetError, match="If it was recorded: nothing that it depends on has a gradient"):
        y.backward()


def test_detach_and_pause():
    x = variable([2.0])
    with autograd.record():
        a = x * x
        with autograd.pause():
            b = x * x
        y = x * a.detach() + x * b
    y.backward()
    equal(x.grad, [8.0])


def test_attach_grad_on_an_intermediate_cuts_the_graph():
    x = variable([2.0])
    with autograd.record():
        a = x * x
        a.attach_grad()
        y = 3 * a
    y.backward()
    equal(a.grad, [3.0])
    equal(x.grad, [0.0])


@pytest.mark.parametrize("hybrid", [False, True])
def test_recorded_in_predict_mode(hybrid):
    net = nn.Dropout(0.5)
    if hybrid:
        net.hybridize()
    x = variable([1.0] * 8)
    with autograd.record(train_mode=False):
        y = net(x)
    y.backward()
    equal(x.grad, [1.0] * 8)


def assign_in_place(x):
    x += 1


def assign_all(x):
    x[:] = 5


def assign_an_element(x):
    x[0] = 5


@pytest.mark.parametrize("assign", [assign_in_place, assign_all, assign_an_element])
def test_writing_to_recorded_arrays_is_refused(assign):
    x = variable([1.0, 2.0])
    with autograd.record():
        y = x * x
        for target in (x, y):
            with pytest.raises(MXNetError, match="Assigning to NDArrays that are already in a computational graph"):
                assign(target)
    y.backward()
    equal(x.grad, [2.0, 4.0])


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_saved_value_that_was_overwritten_is_named(hybrid):
    class Square(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * x

    net = Square(prefix="square_")
    if hybrid:
        net.hybridize()
    x = variable([1.0, 2.0])
    with autograd.record():
        y = net(x)
    x[:] = 7
    with pytest.raises(MXNetError, match="input 0 of .* was written to after it was recorded") as e:
        y.backward()
    assert __file__ in str(e.value)


@pytest.mark.parametrize("hybrid", [False, True])
def test_set_data_of_a_parameter_leaves_gradients_those_of_its_old_value(hybrid):
    """As spectral normalization does it: a state is replaced while a saved value of it is still to be read."""

    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.u = self.params.get("u", shape=(2,), init="ones")
            self.w = self.params.get("w", shape=(2,), init="ones")

        def hybrid_forward(self, F, x, u, w):
            return x * u * w

    net = Net()
    net.initialize()
    if hybrid:
        net.hybridize()
    x = variable([1.0, 2.0])
    with autograd.record():
        first = net(x)
        with autograd.pause():
            net.u.set_data(nd.array([5.0, 7.0]))
        second = net(x)
        with autograd.pause():
            net.u.set_data(nd.array([0.0, 0.0]))
        y = first + second
    y.backward()
    equal(y, [6.0, 16.0])
    equal(net.w.grad(), [6.0, 16.0])
    equal(x.grad, [6.0, 8.0])
    equal(net.u.data(), [0.0, 0.0])


def test_readers_of_a_variable_are_forgotten():
    x = variable([1.0, 2.0])
    for _ in range(100):
        with autograd.record():
            y = x * x
        y.backward()
    assert len(x._grad_state._readers) <= 32


def test_an_overwritten_result_is_named():
    x = variable([1.0, 2.0])
    with autograd.record():
        y = nd.exp(x)
        z = y.sum()
    y[:] = 0
    with pytest.raises(MXNetError, match="output 0 of exp was written to"):
        z.backward()


def test_what_the_gradient_does_not_read_may_be_overwritten():
    x = variable([1.0, 2.0])
    with autograd.record():
        y = 3 * x
    x[:] = 7
    y.backward()
    equal(x.grad, [3.0, 3.0])


@pytest.mark.parametrize("first", [0, 1])
def test_a_variable_that_asks_for_no_gradient_may_be_one_of_several_heads(first):
    """As in MXNet; alone it is an error."""
    x, idle = variable([1.0, 2.0]), nd.array([3.0])
    idle.attach_grad("null")
    with autograd.record():
        heads = [x * x, idle]
    autograd.backward(heads[::-1] if first else heads)
    equal(x.grad, [2.0, 4.0])
    with pytest.raises(MXNetError, match="Cannot differentiate node"):
        autograd.backward([idle])


def test_grad_returns_gradients():
    x, w = variable([1.0, 2.0]), variable([3.0, 4.0])
    with autograd.record():
        y = x * x * w
        (a,) = autograd.grad(y, x, retain_graph=True)
        b, c = autograd.grad(y, [w, x], head_grads=nd.array([1.0, 10.0]))
    equal(a, [6.0, 16.0])
    equal(b, [1.0, 40.0])
    equal(c, [6.0, 160.0])
    equal(x.grad, [0.0, 0.0])


def test_grad_by_an_intermediate():
    x = variable([2.0])
    with autograd.record():
        a = x * x
        y = a * a * x
    da, dx = autograd.grad(y, [a, x])
    equal(da, [16.0])
    equal(dx, [80.0])


def test_grad_by_what_the_head_does_not_depend_on():
    x, w = variable([1.0]), variable([2.0])
    with autograd.record():
        y = x * x
    with pytest.raises(MXNetError, match="with respect to the 2-th variable because it is unreachable"):
        autograd.grad(y, [x, w])
    with pytest.raises(ValueError, match="variables cannot be an empty list"):
        autograd.grad(y, [])


def test_gradients_of_gradients():
    x = variable([1.0, 2.0])
    with autograd.record():
        y = x**4
        (first,) = autograd.grad(y, x, create_graph=True)
        (second,) = autograd.grad(first, x, create_graph=True)
        penalty = (second * second).sum()
    equal(first, [4.0, 32.0])
    equal(second, [12.0, 48.0])
    penalty.backward()
    equal(x.grad, [2 * 12 * 24, 2 * 48 * 48])


@pytest.mark.parametrize("hybrid", [False, True])
def test_gradient_of_a_gradient_penalty(hybrid):
    net = nn.Dense(1, use_bias=False, activation="tanh", in_units=2)
    net.initialize(mx.init.Constant(0.5))
    if hybrid:
        net.hybridize()
    x = variable([[0.2, -0.4]])
    with autograd.record():
        (g,) = autograd.grad(net(x), x, create_graph=True)
        loss = (g * g).sum()
    loss.backward()
    t = np.tanh(-0.1)
    slope = 1 - t * t
    # loss = (w1² + w2²) s(wx)², and s' = -2 t s
    w, s = 0.5, slope
    want = [2 * w * s * s + 2 * w * w * 2 * s * (-2 * t * s) * v for v in (0.2, -0.4)]
    equal(net.weight.grad(), [want])


def test_mark_variables():
    x, g = nd.array([2.0]), nd.zeros(1)
    autograd.mark_variables([x], [g], "add")
    for _ in range(2):
        with autograd.record():
            y = x * x
        y.backward()
    equal(g, [8.0])
    assert x.grad is g


def test_an_operator_with_several_results():
    x = variable([[1.0, 2.0, 3.0, 4.0]])
    with autograd.record():
        a, b = nd.split(x, 2)
        y = (a * b).sum()
    y.backward()
    equal(x.grad, [[3.0, 4.0, 1.0, 2.0]])


def test_one_array_as_both_operands():
    x = variable([[1.0, 2.0], [3.0, 4.0]])
    with autograd.record():
        y = nd.dot(x, x)
    y.backward()
    ones = np.ones((2, 2))
    values = x.asnumpy()
    equal(x.grad, ones @ values.T + values.T @ ones)


def test_what_no_array_leads_to_is_freed_at_once():
    def nodes():
        return [o for o in gc.get_objects() if isinstance(o, Node)]

    gc.collect()
    gc.disable()
    try:
        before = len(nodes())
        x = variable([1.0, 2.0])
        with autograd.record():
            y = nd.exp(x) * x
        assert len(nodes()) == before + 2
        del y
        assert len(nodes()) == before
    finally:
        gc.enable()


def test_a_long_tape():
    x = variable([1.0])
    with autograd.record():
        y = x
        for _ in range(3000):
            y = y + 1
    y.backward()
    equal(x.grad, [1.0])


def test_function():
    class Scaled(autograd.Function):
        def forward(self, x):
            self.save_for_backward(x)
            return x * 2

        def backward(self, g):
            (x,) = self.saved_tensors
            return 10 * g * x

    x = variable([3.0])
    with autograd.record():
        y = Scaled()(x) + x
    y.backward()
    equal(x.grad, [31.0])


def test_two_threads_record_at_the_same_time():
    found = {}

    def run(k):
        x = variable([float(k)])
        for _ in range(20):
            with autograd.record():
                y = x * x
            y.backward()
        found[k] = float(x.grad.asscalar())

    threads = [threading.Thread(target=run, args=(k,)) for k in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1: 2.0, 2: 4.0}


# get_symbol


def runs_again(recorded, *arrays):
    """The symbol of `recorded`, which gives the same from these arrays."""
    symbol = autograd.get_symbol(recorded)
    count = len(symbol.list_arguments())
    assert count + len(symbol.list_auxiliary_states()) == len(arrays)
    (found,) = symbol.bind(mx.cpu(), list(arrays[:count]), aux_states=list(arrays[count:])).forward()
    np.testing.assert_allclose(found.asnumpy(), recorded.asnumpy(), rtol=1e-5)
    return symbol


def test_get_symbol_of_operators():
    x, w = variable([[1.0, 2.0], [3.0, 4.0]]), variable([[0.0, 1.0], [2.0, 3.0]])
    other = nd.ones((2, 2))
    with autograd.record():
        y = (nd.dot(x, w) * 2 + nd.exp(x) - 0.5 + other).sum()
    symbol = runs_again(y, x, w, other)
    assert symbol.list_arguments() == ["var0", "var1", "var2"]
    operators = {n["op"] for n in json.loads(symbol.tojson())["nodes"]} - {"null"}
    assert operators == {"dot", "_mul_scalar", "exp", "broadcast_add", "_minus_scalar", "sum"}
    assert autograd.get_symbol(x).list_arguments() == ["var0"]


def test_get_symbol_of_methods_and_several_results():
    x = variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    with autograd.record():
        a, _, b = nd.split(x, 3, axis=1)
        y = nd.concat(b, a, dim=1)[1].reshape((2, 1)).astype("float64") + nd.sign(x.sum()).astype("float64")
        values, positions = nd.topk(x, k=2, ret_typ="both")
    runs_again(y, x)
    runs_again(values, x)
    runs_again(positions, x)


@pytest.mark.parametrize("hybrid", [False, True])
def test_get_symbol_of_a_block(hybrid):
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2), nn.BatchNorm(in_channels=3))
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize()
    x = nd.array([[1.0, 2.0], [3.0, 4.0]])
    with autograd.record(train_mode=False):
        y = net(x) ** 2
    states = {k.partition("_")[2]: p.data() for k, p in net.collect_params().items()}
    kept = [next(v for k, v in states.items() if k.endswith(n)) for n in ("weight", "bias", "gamma", "beta")]
    kept += [next(v for k, v in states.items() if k.endswith(n)) for n in ("running_mean", "running_var")]
    symbol = runs_again(y, x, *kept)
    assert len(symbol.list_auxiliary_states()) == 2


def test_get_symbol_errors():
    class Twice(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, g):
            return g * 2

    x = variable([1.0])
    with autograd.record():
        y, z = x * 3, Twice()(x)
    with pytest.raises(MXNetError, match="not part of a computation graph"):
        autograd.get_symbol(nd.ones(1))
    with pytest.raises(MXNetError, match="Twice.* is not a graph of operators"):
        autograd.get_symbol(z)
    y.backward()
    with pytest.raises(MXNetError, match="freed"):
        autograd.get_symbol(y)
    with pytest.raises(AssertionError, match="Invalid argument type"):
        autograd.get_symbol(1)


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_value_of_a_freed_graph_is_a_constant_for_what_is_recorded_later(hybridized):
    """As in MXNet: `s.detach()` without `s =`, as in the book's loops over batches, has no effect."""
    net = nn.HybridLambda(lambda F, x, w: x * w)
    if hybridized:
        net.hybridize()
    w = variable([2.0])
    state = nd.array([3.0])
    for expected in (3, 6, 12):
        with autograd.record():
            state = net(state, w)
        state.backward()
        assert w.grad.asscalar() == expected


def test_what_was_recorded_before_a_graph_was_freed_still_needs_it():
    w = variable([2.0])
    with autograd.record():
        x = w * 2
        y, z = x * 3, x * 4
    y.backward()
    with pytest.raises(MXNetError, match="freed"):
        z.backward()
    with pytest.raises(MXNetError, match="freed"):
        x.backward()


def test_sums_of_gradients_leave_those_that_were_given_alone():
    x = nd.array([1, 2])
    x.attach_grad()
    with autograd.record():
        heads = [x, x * 1, x, x]
    given = [nd.array([k, 1]) for k in range(4)]
    autograd.backward(heads, given)
    assert x.grad.asnumpy().tolist() == [6, 4]
    assert [g.asnumpy().tolist() for g in given] == [[k, 1] for k in range(4)]
