"""Training with `mx.mod`: gradients, `fit`, optimizers and their states, chains and buckets."""

import logging

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd, sym
from gluonjit.contrib.svrg_optimization.svrg_module import SVRGModule
from support.compare import assert_close

RNG = np.random.RandomState(0)
X = RNG.standard_normal((8, 3)).astype("f4")
LABELS = RNG.standard_normal((8, 2)).astype("f4")
WEIGHT = RNG.standard_normal((2, 3)).astype("f4")


@mx.operator.register("squared_error")
class SquaredErrorProp(mx.operator.CustomOpProp):
    """The identity, with the gradient of half the squared error."""

    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def create_operator(self, ctx, shapes, dtypes):
        class SquaredError(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0])

            def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
                self.assign(in_grad[0], req[0], in_data[0] - in_data[1])

        return SquaredError()


@mx.optimizer.register
class Counted(mx.optimizer.Optimizer):
    """Gradient descent that counts its updates in its state."""

    def create_state(self, index, weight):
        return nd.zeros((1,))

    def update(self, index, weight, grad, state):
        state[:] += 1
        weight[:] = weight - self.lr * self.rescale_grad * grad


def regression(data=None):
    y = sym.FullyConnected(sym.var("data") if data is None else data, num_hidden=2, no_bias=True, name="fc")
    return sym.Custom(y, sym.var("label"), op_type="squared_error", name="loss")


def batches(size=4):
    return mx.io.NDArrayIter(X, LABELS, size, label_name="label")


def trained(weight, rate, steps, size=4):
    """The weight after steps of gradient descent."""
    for k in range(steps):
        rows = slice(size * k % 8, size * k % 8 + size)
        weight = weight - rate / size * (X[rows] @ weight.T - LABELS[rows]).T @ X[rows]
    return weight


def module(**kwargs):
    made = mx.mod.Module(regression(), label_names=["label"], fixed_param_names=kwargs.pop("fixed", None))
    made.bind([("data", (4, 3))], [("label", (4, 2))], **kwargs)
    made.init_params(arg_params={"fc_weight": nd.array(WEIGHT)}, aux_params={})
    return made


def weight_of(module):
    return module.get_params()[0]["fc_weight"]


def test_a_step():
    made = module()
    made.init_optimizer(optimizer="counted", optimizer_params=(("learning_rate", 0.5),))
    for batch in batches():
        made.forward_backward(batch)
        made.update()
    assert_close(weight_of(made), trained(WEIGHT, 0.5, 2))


def test_fit(caplog):
    caplog.set_level(logging.INFO)
    seen = []
    made = mx.mod.Module(regression(), label_names=["label"])
    made.fit(
        batches(),
        eval_data=batches(),
        eval_metric="mse",
        optimizer="counted",
        optimizer_params={"learning_rate": 0.1},
        arg_params={"fc_weight": nd.array(WEIGHT)},
        aux_params={},
        num_epoch=3,
        begin_epoch=1,
        batch_end_callback=[
            lambda p: seen.append((p.epoch, p.nbatch, p.locals["nbatch"])),
            mx.callback.Speedometer(4, 1),
        ],
        epoch_end_callback=lambda epoch, graph, args, aux: seen.append((epoch, graph is made.symbol, list(args), aux)),
    )
    assert_close(weight_of(made), trained(WEIGHT, 0.1, 4))
    assert seen[:3] == [(1, 0, 0), (1, 1, 1), (1, True, ["fc_weight"], {})] and len(seen) == 6
    text = caplog.text
    assert "Epoch[2] Train-mse=" in text and "Epoch[2] Validation-mse=" in text and "Time cost=" in text
    assert "samples/sec" in text
    with pytest.raises(AssertionError, match="please specify number of epochs"):
        made.fit(batches())


def test_gradients_of_inputs_and_requests():
    made = module(inputs_need_grad=True, grad_req="add")
    batch = next(batches())
    for _ in range(2):
        made.forward_backward(batch)
    error = X[:4] @ WEIGHT.T - LABELS[:4]
    assert_close(made.get_input_grads()[0], 2 * error @ WEIGHT)  # those of inputs are added up, too
    assert_close(made.get_input_grads(merge_multi_context=False)[0][0], 2 * error @ WEIGHT)
    made.init_optimizer(optimizer="counted", optimizer_params={"learning_rate": 1.0})
    made.update()
    assert_close(weight_of(made), WEIGHT - 2 * error.T @ X[:4] / 4)


def test_fixed_parameters():
    made = module(fixed=["fc_weight"])
    made.init_optimizer(optimizer="counted")
    made.forward_backward(next(batches()))
    made.update()
    np.testing.assert_array_equal(weight_of(made).asnumpy(), WEIGHT)


def test_what_is_missing():
    made = module()
    with pytest.raises(AssertionError, match="call init_optimizer first"):
        made.update()
    with pytest.raises(AssertionError, match="bind with inputs_need_grad=True"):
        made.get_input_grads()
    inference = module(for_training=False)
    with pytest.raises(AssertionError, match="re-bind with for_training=True to run backward"):
        inference.forward_backward(next(batches()))
    plain = mx.mod.Module(sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc"), label_names=None)
    plain.bind([("data", (4, 3))], inputs_need_grad=True)
    plain.init_params(mx.init.One())
    plain.forward(mx.io.DataBatch([nd.array(X[:4])]))
    with pytest.raises(mx.MXNetError, match="the last operator is not Loss function.* none for fc_output"):
        plain.backward()
    plain.backward([nd.ones((4, 2))])
    assert plain.get_input_grads()[0].asnumpy().tolist() == [[2.0] * 3] * 4


def test_optimizers(caplog):
    made = module()
    with pytest.warns(UserWarning, match=r"rescale_grad is not normalized to .* \(1.0 vs. 0.25\)"):
        made.init_optimizer(optimizer=Counted(learning_rate=0.1))
    made.init_optimizer(optimizer="counted")
    assert "optimizer already initialized, ignoring" in caplog.text and made._optimizer.lr == 0.1
    assert made._optimizer.idx2name == {0: "fc_weight"}
    made.init_optimizer(optimizer="counted", force_init=True)
    assert made._optimizer.rescale_grad == 0.25
    other = module()
    other.borrow_optimizer(made)
    assert other._updater is made._updater
    with pytest.raises(mx.MXNetError, match="cola"):
        module().init_optimizer(kvstore="cola")


def test_states_of_optimizers_are_saved(tmp_path):
    made = module()
    made.init_optimizer(optimizer="counted")
    made.forward_backward(next(batches()))
    made.update()
    made.save_checkpoint(tmp_path / "net", 3, save_optimizer_states=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net-0003.params", "net-0003.states", "net-symbol.json"]
    again = module()
    again.load_params(tmp_path / "net-0003.params")
    again._states_file = tmp_path / "net-0003.states"  # as `load` sets it, which reads no Custom from a file
    again.init_optimizer(optimizer="counted")
    for m in (made, again):
        m.forward_backward(next(batches()))
        m.update()
    np.testing.assert_array_equal(weight_of(made).asnumpy(), weight_of(again).asnumpy())
    assert again._updater.states[0].asscalar() == 2


def test_batches_of_other_shapes_share_parameters_and_gradients():
    made = module()
    made.init_optimizer(optimizer="counted", optimizer_params={"learning_rate": 0.5, "rescale_grad": 1 / 4})
    for size in (4, 2, 4):
        made.forward_backward(next(batches(size)))
        made.update()
    expected = WEIGHT
    for size in (4, 2, 4):
        expected = expected - 0.5 / 4 * (X[:size] @ expected.T - LABELS[:size]).T @ X[:size]
    assert_close(weight_of(made), expected)


def test_buckets():
    def graph(key):
        x = sym.sum(sym.reshape(sym.var("data"), shape=(-1, key, 3)), axis=1)
        return regression(x), ["data"], ["label"]

    made = mx.mod.BucketingModule(graph, default_bucket_key=2)
    made.bind([("data", (2, 2, 3))], [("label", (2, 2))])
    made.init_params(arg_params={"fc_weight": nd.array(WEIGHT)}, aux_params={})
    made.init_optimizer(optimizer="counted", optimizer_params={"learning_rate": 0.3})
    expected = WEIGHT
    for key in (2, 1, 2):
        x = X[: 2 * key].reshape(2, key, 3)
        shapes = {"provide_data": [("data", x.shape)], "provide_label": [("label", (2, 2))]}
        batch = mx.io.DataBatch([nd.array(x)], [nd.array(LABELS[:2])], bucket_key=key, **shapes)
        made.forward_backward(batch)
        made.update()
        rows = x.sum(1)
        expected = expected - 0.3 / 2 * (rows @ expected.T - LABELS[:2]).T @ rows
    assert_close(made.get_params()[0]["fc_weight"], expected)


@pytest.mark.parametrize("in_python", [False, True])
def test_chain(in_python):
    first = mx.mod.Module(sym.FullyConnected(sym.var("data"), num_hidden=2, no_bias=True, name="a"), label_names=None)
    if in_python:
        second = mx.mod.PythonLossModule(label_names=["label"], grad_func=lambda scores, labels: scores - labels)
    else:
        loss = sym.Custom(sym.var("scores"), sym.var("label"), op_type="squared_error", name="loss")
        second = mx.mod.Module(loss, data_names=["scores"], label_names=["label"])
    chain = mx.mod.SequentialModule().add(first).add(second, take_labels=True, auto_wiring=True)
    iterator = batches()
    chain.bind(iterator.provide_data, iterator.provide_label, inputs_need_grad=True)
    chain.init_params(arg_params={"a_weight": nd.array(WEIGHT)}, aux_params={}, allow_missing=True)
    chain.init_optimizer(optimizer="counted", optimizer_params={"learning_rate": 0.5})
    assert chain.output_shapes[0][1] == (4, 2)
    for batch in iterator:
        chain.forward_backward(batch)
        chain.update()
    assert_close(chain.get_params()[0]["a_weight"], trained(WEIGHT, 0.5, 2))
    assert chain.get_input_grads()[0].shape == (4, 3)
    assert chain.score(iterator, "mse")[0][0] == "mse"


def test_modules_in_python_refuse():
    with pytest.raises(AssertionError, match="grad_func must be a function"):
        mx.mod.PythonLossModule(grad_func=3)
    loss = mx.mod.PythonLossModule()
    with pytest.raises(AssertionError, match="data_shapes are of"):
        loss.bind([("scores", (4, 2))])
    loss.bind([("data", (4, 2))])
    loss.forward(mx.io.DataBatch([nd.ones((4, 2))], [nd.ones((4,))]))
    with pytest.raises(NotImplementedError, match="pass grad_func"):
        loss.backward()
    with pytest.raises(AssertionError, match="out_grads should be None"):
        loss.backward([nd.ones((4, 2))])


def test_feed_forward(tmp_path):
    labels = LABELS[:, 0]
    graph = sym.FullyConnected(sym.var("data"), num_hidden=1, no_bias=True, name="fc")
    graph = sym.Custom(graph, sym.reshape(sym.var("softmax_label"), shape=(-1, 1)), op_type="squared_error")
    given = {"fc_weight": nd.array(WEIGHT[:1]), "other": nd.ones((1,))}
    with pytest.warns(DeprecationWarning, match="FeedForward has been deprecated"):
        model = mx.model.FeedForward(
            graph, num_epoch=2, optimizer="counted", learning_rate=0.1, arg_params=given, aux_params={},
            allow_extra_params=True,
        )  # fmt: skip
    model.fit(X, labels, eval_metric="mse")
    expected = WEIGHT[0]
    for _ in range(2):
        expected = expected - 0.1 / 8 * (X @ expected - labels) @ X
    assert_close(model.arg_params["fc_weight"].asnumpy()[0], expected)
    assert_close(model.predict(X)[:, 0], X @ expected)
    outputs, data, label = model.predict(mx.io.NDArrayIter(X, labels, 3), return_data=True)
    assert outputs.shape == (8, 1) and label.tolist() == labels.tolist()
    np.testing.assert_array_equal(data, X)
    assert model.score(mx.io.NDArrayIter(X, labels, 4), "mse") == pytest.approx(
        np.mean((X @ expected - labels) ** 2), 1e-4
    )
    model.symbol = graph.get_internals()["fc_output"]
    model.save(str(tmp_path / "net"))
    with pytest.warns(DeprecationWarning):
        again = mx.model.FeedForward.load(str(tmp_path / "net"), 2)
    assert_close(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="y must be specified"):
        model.fit(X)
    with pytest.raises(TypeError, match="X must be DataIter"):
        model.predict("X")


def test_feed_forward_predicts_without_labels():
    """Published models have labels of any name, which no prediction is given. Parameters are read where they are."""
    graph = sym.SoftmaxOutput(sym.FullyConnected(sym.var("data"), num_hidden=2, no_bias=True, name="fc"), name="prob")
    weight = nd.array(WEIGHT)
    with pytest.warns(DeprecationWarning):
        model = mx.model.FeedForward(graph, ctx=[mx.cpu()], arg_params={"fc_weight": weight}, aux_params={})
    for rows, factor in ((8, 1), (3, 1), (3, 2)):
        weight[:] = WEIGHT * factor
        powers = np.exp(X[:rows] @ WEIGHT.T * factor)
        assert_close(model.predict(X[:rows]), powers / powers.sum(1, keepdims=True))
    truth = np.array([0, 1, 1])
    metric = mx.metric.Accuracy()
    assert model.score(mx.io.NDArrayIter(X[:3], truth, 3), metric) == np.mean(powers.argmax(1) == truth)
    model.arg_params["other_weight"] = weight
    with pytest.raises(ValueError, match='Find name "other_weight" that is not in the graph'):
        model.predict(X)


def test_the_executor_group_that_scripts_read():
    """As the word language model of MXNet's examples clips gradients."""
    graph = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(graph, label_names=None, fixed_param_names=["fc_bias"])
    module.bind([("data", (3, 4))])
    module.init_params(mx.init.One())
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 1.0})
    module.forward(mx.io.DataBatch([nd.ones((3, 4))]), is_train=True)
    module.backward([nd.ones((3, 2))])
    group = module._exec_group
    assert group.param_names == ["fc_weight", "fc_bias"] and group.grad_arrays[1] == [None]
    (gradient,) = group.grad_arrays[0]
    assert gradient.asnumpy().tolist() == [[3] * 4] * 2
    gluon.utils.clip_global_norm([gradient], 0.0)
    module.update()
    assert group.param_arrays[0][0].asnumpy().tolist() == [[1] * 4] * 2 and group.execs[0].arg_dict.keys() >= {"data"}


def test_variance_reduced_gradients():
    """Recorded from MXNet 1.9.1: `lr_mult` counts for nothing; the mean of a snapshot goes into that of the next."""
    random = np.random.RandomState(0)
    x = random.randn(10, 3).astype(np.float32)
    y = x @ np.float32([1, -2, 0.5]) + np.float32(0.1)
    weight, bias = sym.var("fc_weight", shape=(1, 3)), sym.var("fc_bias", shape=(1,), lr_mult=10.0)
    graph = sym.broadcast_plus(sym.dot(sym.var("data"), weight.transpose()), bias)
    graph = sym.LinearRegressionOutput(graph, sym.var("label"))
    made = SVRGModule(graph, label_names=["label"], update_freq=2)
    given = mx.io.NDArrayIter(x, y, 4, label_name="label")
    settings = {"optimizer_params": {"learning_rate": 0.05}, "num_epoch": 5, "initializer": mx.init.One()}
    made.fit(given, eval_metric="mse", **settings)
    params, _ = made.get_params()
    assert_close(params["fc_weight"].asnumpy(), np.float32([[0.71653175, -1.49712098, 0.43474194]]))
    assert_close(params["fc_bias"].asnumpy(), np.float32([-0.43068898]))
    assert_close(made._param_dict[0]["fc_weight"].asnumpy(), np.float32([[-3.53648639, 9.50612831, 2.25412965]]))
    with pytest.raises(TypeError, match="update_freq, the number of epochs between snapshots, is None, not an int"):
        SVRGModule(graph, label_names=["label"])


@pytest.mark.parametrize("shape", [(40,), (40, 1)])
def test_a_regression_learns_from_labels_with_or_without_an_axis(shape):
    """The weights after three epochs are MXNet's."""
    rng = np.random.RandomState(0)
    x = rng.rand(40, 3).astype(np.float32)
    y = (x @ np.array([1, -2, 0.5], np.float32)).reshape(shape)
    batches = mx.io.NDArrayIter(x, y, 8, label_name="lro_label")
    out = mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc"), mx.sym.var("lro_label"), name="lro"
    )
    module = mx.mod.Module(out, label_names=["lro_label"])
    module.fit(
        batches,
        eval_metric="mse",
        num_epoch=3,
        initializer=mx.init.One(),
        optimizer_params={"learning_rate": 0.1},
    )
    np.testing.assert_allclose(
        module.get_params()[0]["fc_weight"].asnumpy(), [[0.60012281, 0.19241753, 0.56837451]], rtol=1e-5
    )
