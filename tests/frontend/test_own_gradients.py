"""Gradients that users write: `CustomOp.backward` and `autograd.Function`, plain, hybridized and bound."""

import gc
import weakref

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd, sym
from support.compare import assert_close

seen = []
"""What `Product.backward` was called with: requests, auxiliary states, modes."""


class Product(mx.operator.CustomOp):
    """a² b; its gradient by a is 100 times what `forward` has kept of a."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.kept = in_data[0].asnumpy()
        self.assign(out_data[0], req[0], in_data[0] * in_data[0] * in_data[1])
        if aux:
            aux[0][:] = aux[0] + 1

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        seen.append((req, [x.asscalar() for x in aux], autograd.is_recording(), autograd.is_training()))
        self.assign(in_grad[0], req[0], out_grad[0] * nd.array(self.kept) * 100)
        self.assign(in_grad[1], req[1], out_grad[0] * in_data[0] * in_data[0])
        if aux:
            aux[0][:] = aux[0] * 10


@mx.operator.register("own_product")
class ProductProp(mx.operator.CustomOpProp):
    def list_arguments(self):
        return ["a", "b"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Product()


@mx.operator.register("own_product_with_state")
class ProductWithStateProp(ProductProp):
    def list_auxiliary_states(self):
        return ["n"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], [(1,)]


@mx.operator.register("own_loss")
class LossProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def create_operator(self, ctx, shapes, dtypes):
        class Loss(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0] * 2)

            def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
                self.assign(in_grad[0], req[0], in_data[0] + 1)

        return Loss()


def variables(*values):
    arrays = [nd.array(x) for x in values]
    for x in arrays:
        x.attach_grad()
    return arrays


def grads(*arrays):
    return [x.grad.asnumpy().tolist() for x in arrays]


class Net(gluon.HybridBlock):
    def __init__(self, function, **parameters):
        super().__init__()
        self.function = function
        with self.name_scope():
            for name, shape in parameters.items():
                setattr(self, name, self.params.get(name, shape=shape, init="zeros", grad_req="null"))

    def hybrid_forward(self, F, *args, **kwargs):
        return self.function(F, *args, *kwargs.values())


def net(function, hybridize, **parameters):
    made = Net(function, **parameters)
    made.initialize()
    made.hybridize(hybridize)
    return made


# Custom; the numbers are MXNet's


def test_custom():
    a, b = variables([1, 2], [3, 4])
    with autograd.record():
        y = nd.Custom(a, b, op_type="own_product")
    y.backward(nd.array([1, 10]))
    assert grads(a, b) == [[100, 2000], [1, 40]]
    assert seen[-1] == (["write", "write"], [], False, True)
    b.attach_grad("null")
    with autograd.record():
        y = nd.Custom(a, b, op_type="own_product")
    y.backward()
    assert grads(a) == [[100, 200]] and seen[-1][0] == ["write", "null"]


def test_custom_may_change_auxiliary_states_in_backward():
    a, b = variables([1, 2], [3, 4])
    n = nd.zeros(1)
    with autograd.record():
        y = nd.Custom(a, b, n, op_type="own_product_with_state")
    assert n.asscalar() == 1
    y.backward()
    assert n.asscalar() == 10 and seen[-1][1] == [1]
    block = net(lambda F, a, b, n: F.Custom(a, b, n, op_type="own_product_with_state"), True, n=(1,))
    before = block.n.data().asscalar()
    with autograd.record():
        y = block(a, b)
    y.backward()
    assert block.n.data().asscalar() == (before + 1) * 10


def test_custom_refuses():
    a, b = variables([1, 2], [3, 4])
    with autograd.record():
        y = nd.Custom(a, b, op_type="own_product")
        with pytest.raises(mx.MXNetError, match="gradient of Custom.'own_product'. cannot be differentiated in turn"):
            autograd.grad(y, [a], create_graph=True)
    a[:] = 0
    with pytest.raises(mx.MXNetError, match="input 0 of Custom.'own_product'. was written to"):
        y.backward()


@pytest.mark.parametrize("hybridize", [False, True])
def test_backward_is_called_on_the_object_of_its_forward(hybridize):
    a, b = variables([1, 2], [3, 4])
    block = net(lambda F, a, b: F.Custom(a * 1, b, op_type="own_product") * 2, hybridize)
    with autograd.record():
        y = block(a, b) + block(a * 3, b)
    y.backward()
    assert grads(a, b) == [[2000, 4000], [20, 80]]


@pytest.mark.parametrize("hybridize", [False, True])
def test_objects_of_a_call_go_with_its_graph(hybridize, monkeypatch):
    made = []
    monkeypatch.setattr(ProductProp, "create_operator", lambda *args: made.append(Product()) or made[-1])
    a, b = variables([1, 2], [3, 4])
    block = net(lambda F, a, b: F.Custom(a, b, op_type="own_product") * 2, hybridize)
    gc.disable()
    try:
        for finish in (lambda y: y.backward(), lambda y: None):
            with autograd.record():
                y = block(a, b)
            alive = weakref.ref(made.pop())
            made.clear()
            assert alive() is not None
            finish(y)
            del y
            assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_loss_needs_no_gradient_of_its_result(hybridize):
    (a,) = variables([1, 2])
    with autograd.record():
        y = net(lambda F, a: F.Custom(a, op_type="own_loss") * 5, hybridize)(a)
    y.backward()
    assert grads(a) == [[2, 3]]


def test_bound_graphs_with_custom():
    loss = sym.Custom(sym.var("a"), op_type="own_loss")
    executor = loss.bind(mx.cpu(), {"a": nd.array([1, 2])}, args_grad=[nd.zeros(2)])
    executor.forward(is_train=True)
    executor.backward()
    assert executor.grad_arrays[0].asnumpy().tolist() == [2, 3]
    graph = sym.Custom(sym.var("a") * 2, sym.var("b"), op_type="own_product")
    args = {"a": nd.array([1, 2]), "b": nd.array([3, 4])}
    executor = graph.bind(mx.cpu(), args, args_grad=[nd.zeros(2), nd.zeros(2)])
    executor.forward(is_train=True)
    executor.backward(nd.ones(2))
    assert [g.asnumpy().tolist() for g in executor.grad_arrays] == [[400, 800], [4, 16]]


# autograd.Function


class Sigmoid(autograd.Function):
    """Its gradient is ten times the right one."""

    def forward(self, x):
        y = 1 / (1 + nd.exp(-x))
        self.save_for_backward(y)
        return y

    def backward(self, dy):
        (y,) = self.saved_tensors
        return dy * y * (1 - y) * 10


class Pair(autograd.Function):
    def forward(self, x, w):
        self.x = x
        return x * w, x, "done"

    def backward(self, a, b):
        return a * 100 + b * 7 + self.x, None


@pytest.mark.parametrize("function", [lambda F, x, w: Sigmoid()(F.dot(x, w)), lambda F, x, w: sum(Pair()(x, w)[:2])])
def test_functions_keep_their_gradient_when_hybridized(function):
    values = [[1.0, 2.0], [3.0, -1.0]], [[0.5, 0.25], [-1.0, 1.0]]
    found = []
    for hybridize in (False, True):
        x, w = variables(*values)
        block = net(function, hybridize)
        with autograd.record():
            y = block(x, w) * 3
        y.backward()
        found.append([y, x.grad, w.grad])
    for plain, compiled in zip(*found):
        assert_close(compiled, plain)


def test_functions_in_loops():
    def function(F, x):
        return F.contrib.foreach(lambda row, state: (Sigmoid()(row + state), state * 2), x, F.ones((2,)))[0]

    found = []
    for hybridize in (False, True):
        (x,) = variables([[1.0, 2.0], [3.0, -1.0]])
        with autograd.record():
            y = net(function, hybridize)(x)
        y.backward()
        found.append(x.grad.asnumpy())
    assert_close(found[1], found[0])


class NeedsValues(autograd.Function):
    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return nd.array(dy.asnumpy() * 3)


def test_a_gradient_that_needs_values():
    """It cannot be compiled: an error where the block itself needs it, else the block around it runs as Python."""
    (x,) = variables([1.0, 2.0])
    inner = net(lambda F, x: NeedsValues()(x), True)
    assert inner(x).asnumpy().tolist() == [2, 4]
    with autograd.record(), pytest.raises(mx.base.TraceError, match=r"asnumpy\(\) cannot be compiled.*\n.*test_own"):
        inner(x)
    inner.hybridize(False)
    outer = net(lambda F, x: x, True)
    outer.inner = inner
    outer.function = lambda F, x: outer.inner(x) + 1
    with autograd.record(), pytest.warns(UserWarning, match="run as Python"):
        y = outer(x)
    y.backward()
    assert grads(x) == [[3, 3]]


class Shaken(autograd.Function):
    def forward(self, x):
        return x * nd.random.uniform_like(x)

    def backward(self, dy):
        return dy * nd.random.uniform_like(dy)


def twice(inner, hybridize):
    """A block around `inner`."""
    made = net(lambda F, x: made.inner(x) * 2, hybridize)
    made.inner = inner
    return made


@pytest.mark.parametrize("inside", [False, True])
def test_a_gradient_that_draws_random_numbers(inside):
    """Plain calls draw them in `backward`. The block with that gradient runs as Python, while it is recorded."""
    found = []
    for hybridize in (False, True):
        block = net(lambda F, x: Shaken()(x * 2) + F.random.normal(shape=(2,)), hybridize)
        if inside:
            block = twice(block, hybridize)
        (x,) = variables([1.0, 2.0])
        mx.random.seed(3)
        with autograd.record():
            if hybridize:
                with pytest.warns(UserWarning, match=r"Shaken.backward draws random numbers(.|\n)*test_own_gradients"):
                    y = block(x)
            else:
                y = block(x)
        y.backward()
        found.append([y.asnumpy().tolist(), *grads(x)])
    assert found[0] == found[1]


def test_exported_functions_are_plain(tmp_path):
    block = net(lambda F, x: Sigmoid()(x), True)
    x = nd.array([0.0])
    block(x)
    with pytest.warns(UserWarning, match="defines a gradient .autograd.Function., which the exported graph does not"):
        block.export(tmp_path / "net")
    assert gluon.SymbolBlock.imports(f"{tmp_path}/net-symbol.json", ["data"])(x).asnumpy().tolist() == [0.5]


def test_what_a_function_saved_is_watched():
    (x,) = variables([1.0])
    with autograd.record():
        y = Sigmoid()(x)
    y[:] = 3
    with pytest.raises(mx.MXNetError, match=r"saved_tensors\[0\] of Sigmoid was written to"):
        y.backward()


def test_wrong_number_of_gradients():
    class Wrong(Sigmoid):
        def backward(self, dy):
            return dy, dy

    (x,) = variables([1.0])
    with autograd.record():
        y = Wrong()(x)
    with pytest.raises(mx.MXNetError, match="Wrong.backward must return exactly the same number.* Expecting 1 got 2"):
        y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), [0])


requests = []


class Weighed(mx.operator.CustomOp):
    """a · b + s; its gradient counts calls in the state s."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * in_data[1] + aux[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        requests.append(list(req))
        self.assign(in_grad[0], req[0], out_grad[0] * in_data[1])
        self.assign(in_grad[1], req[1], out_grad[0] * in_data[0])
        aux[0][:] += 1


@mx.operator.register("weighed")
class WeighedProp(mx.operator.CustomOpProp):
    def list_arguments(self):
        return ["a", "b"]

    def list_auxiliary_states(self):
        return ["s"]

    def infer_shape(self, shapes):
        return shapes, [shapes[0]], [shapes[0]]

    def create_operator(self, *given):
        return Weighed()


class WeighedNet(gluon.HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function
        with self.name_scope():
            self.s = self.params.get("s", shape=(2,), init="zeros", grad_req="null")

    def hybrid_forward(self, F, a, b, s):
        return self.function(F, a, b, s)


def weighed(function, hybridize):
    made = WeighedNet(function)
    made.initialize()
    if hybridize:
        made.hybridize()
    return made


@pytest.mark.parametrize("hybridize", [False, True])
def test_backward_of_custom_is_told_what_is_wanted_and_may_write_to_states(hybridize):
    """Gradients and states are those that MXNet 1.9.1 gives; it says 'add' where 'write' is added here."""
    for req, gradient in (("write", [3, 4]), ("add", [6, 8]), ("null", None)):
        made = weighed(lambda F, a, b, s: F.Custom(a, b, s, op_type="weighed"), hybridize)
        a, b = nd.array([1, 2]), nd.array([3, 4])
        a.attach_grad(req)
        b.attach_grad()
        for _ in range(2):
            requests.clear()
            with autograd.record():
                y = made(a, b)
            y.backward()
            assert requests == [["null" if req == "null" else "write", "write"]]
        assert gradient is None or a.grad.asnumpy().tolist() == gradient
        assert b.grad.asnumpy().tolist() == [1, 2] and made.s.data().asnumpy().tolist() == [2, 2]
        assert y.asnumpy().tolist() == [4, 9], "computed with the state that the first backward wrote"


@pytest.mark.parametrize("hybridize", [False, True])
def test_two_calls_of_custom_write_to_a_state_one_after_the_other(hybridize):
    def twice(F, a, b, s):
        return F.Custom(F.exp(a), b, s, op_type="weighed") + F.Custom(a, b * 2, s, op_type="weighed")

    made = weighed(twice, hybridize)
    a, b = nd.array([0, 0]), nd.array([3, 4])
    a.attach_grad()
    with autograd.record():
        results = [made(a, b), made(a, b)]
    requests.clear()
    autograd.backward(results)
    assert requests == [["write", "null"]] * 4
    assert made.s.data().asnumpy().tolist() == [4, 4] and a.grad.asnumpy().tolist() == [18, 24]


def test_executors_tell_custom_what_is_wanted():
    symbol = mx.sym.Custom(*map(mx.sym.var, "abs"), op_type="weighed")
    for reqs, expected in ((("write", "null"), [[3, 4], [0, 0]]), (("null", "add"), [[0, 0], [2, 4]])):
        grads, state = {k: nd.zeros(2) for k in "ab"}, nd.zeros(2)
        executor = symbol.bind(
            mx.cpu(), {"a": nd.array([1, 2]), "b": nd.array([3, 4])}, grads, dict(zip("ab", reqs)), {"s": state}
        )
        requests.clear()
        for _ in range(2):
            executor.forward(is_train=True)
            executor.backward([nd.ones(2)])
        assert requests == [["null" if req == "null" else "write" for req in reqs]] * 2
        assert [grads[k].asnumpy().tolist() for k in "ab"] == expected and state.asnumpy().tolist() == [2, 2]


def test_custom_beside_one_in_a_loop_cannot_write_to_a_state_in_backward():
    """Which call made which operator is not known there."""

    def looped(F, a, b, s):
        rows = F.contrib.foreach(lambda row, state: (F.Custom(row, b, op_type="own_product"), state), a, [])[0]
        return F.sum(rows, axis=0) + F.Custom(F.sum(a, axis=0), b, s, op_type="weighed")

    made = weighed(looped, True)
    a, b = nd.ones((3, 2)), nd.ones(2)
    a.attach_grad()
    with autograd.record():
        y = made(a, b)
    with pytest.raises(mx.MXNetError, match="writes to an auxiliary state, which is not possible"):
        y.backward()


def test_custom_may_write_to_a_state_that_nobody_reads():
    made = weighed(lambda F, a, b, s: F.Custom(a, b, F.zeros((2,)), op_type="weighed"), True)
    a, b = nd.array([1, 2]), nd.array([3, 4])
    a.attach_grad()
    with autograd.record():
        y = made(a, b)
    y.backward()
    assert a.grad.asnumpy().tolist() == [3, 4]
