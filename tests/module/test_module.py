"""`mx.mod` for inference: how checkpoints of MXNet 0.x are used."""

import re

import numpy as np
import pytest

import gluonjit as mx
from support.compare import assert_close

RNG = np.random.RandomState(0)
X = RNG.standard_normal((10, 4)).astype("f4")
LABELS = np.array([0, 1, 2] * 3 + [0], "f4")


def classifier():
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=5, name="fc1")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc2"), name="softmax")


def parameters():
    args = {
        "fc1_weight": RNG.standard_normal((5, 4)),
        "fc1_bias": RNG.standard_normal(5),
        "bn_gamma": np.ones(5),
        "bn_beta": RNG.standard_normal(5),
        "fc2_weight": RNG.standard_normal((3, 5)),
        "fc2_bias": RNG.standard_normal(3),
    }
    aux = {"bn_moving_mean": RNG.standard_normal(5), "bn_moving_var": RNG.uniform(0.5, 1, 5)}
    return [{name: mx.nd.array(x) for name, x in group.items()} for group in (args, aux)]


ARGS, AUX = parameters()


def expected(x):
    p = {name: a.asnumpy() for name, a in (*ARGS.items(), *AUX.items())}
    y = x @ p["fc1_weight"].T + p["fc1_bias"]
    y = (y - p["bn_moving_mean"]) / np.sqrt(p["bn_moving_var"] + 1e-3) + p["bn_beta"]
    y = np.maximum(y, 0) @ p["fc2_weight"].T + p["fc2_bias"]
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.fixture
def module():
    module = mx.mod.Module(classifier())
    module.bind([("data", (4, 4))], [("softmax_label", (4,))], for_training=False)
    module.set_params(ARGS, AUX)
    return module


def batch(x, label=None):
    return mx.io.DataBatch([mx.nd.array(x)], None if label is None else [mx.nd.array(label)])


def raises(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def test_names_and_shapes(module):
    assert (module.data_names, module.label_names, module.output_names) == (
        ["data"],
        ["softmax_label"],
        ["softmax_output"],
    )
    assert [tuple(d) for d in module.data_shapes] == [("data", (4, 4))]
    assert [tuple(d) for d in module.label_shapes] == [("softmax_label", (4,))]
    assert module.output_shapes == [("softmax_output", (4, 3))]
    assert module.symbol.name == "softmax"


def test_label_shapes_may_be_passed_on_before_binding():
    """As MXNet's tutorial on predicting with pretrained models does."""
    module = mx.mod.Module(classifier(), label_names=None)
    module.bind([("data", (4, 4))], label_shapes=module._label_shapes, for_training=False)
    assert module.label_shapes is None


def test_forward(module):
    module.forward(batch(X[:4], LABELS[:4]))
    assert_close(module.get_outputs()[0].asnumpy(), expected(X[:4]))
    (nested,) = module.get_outputs(merge_multi_context=False)
    assert_close(nested[0].asnumpy(), expected(X[:4]))
    module.forward(batch(X[:4]))  # without labels
    assert_close(module.get_outputs()[0].asnumpy(), expected(X[:4]))


def test_another_shape(module):
    module.forward(batch(X))
    assert_close(module.get_outputs()[0].asnumpy(), expected(X))
    assert module.data_shapes[0].shape == (10, 4)
    module.reshape([("data", (2, 4))])
    assert module.output_shapes == [("softmax_output", (2, 3))]


def test_several_batches_at_once(module):
    module.forward([batch(X[:2], LABELS[:2]), batch(X[2:4], LABELS[2:4])])
    assert_close(module.get_outputs()[0].asnumpy(), expected(X[:4]))


def test_data_are_cast(module):
    module.forward(mx.io.DataBatch([mx.nd.array(X[:4], dtype="float64")]))
    assert_close(module.get_outputs()[0].asnumpy(), expected(X[:4]))


def test_outputs_are_overwritten_by_the_next_batch(module):
    module.forward(batch(X[:4]))
    first = module.get_outputs()[0]
    module.forward(batch(X[4:8]))
    assert_close(first.asnumpy(), expected(X[4:8]))
    assert_close(module.get_outputs(False)[0][0].asnumpy(), expected(X[4:8]))
    module.forward(batch(X[:2]))
    assert_close(module.get_outputs()[0].asnumpy(), expected(X[:2]))


def test_predict(module):
    iterator = mx.io.NDArrayIter(X, LABELS, batch_size=4)
    assert_close(module.predict(iterator).asnumpy(), expected(X))
    assert [y.shape for y in module.predict(iterator, always_output_list=True)] == [(10, 3)]
    assert module.predict(iterator, num_batch=2).shape == (8, 3)
    batches = module.predict(iterator, merge_batches=False)
    assert_close(np.concatenate([y.asnumpy() for (y,) in batches]), expected(X))
    assert [[y.shape for y in outputs] for outputs in batches] == [[(4, 3)], [(4, 3)], [(2, 3)]]
    assert_close(module.predict(X).asnumpy(), expected(X))
    seen = [(outputs[0].shape, k, batch.pad) for outputs, k, batch in module.iter_predict(iterator)]
    assert seen == [((4, 3), 0, 0), ((4, 3), 1, 0), ((2, 3), 2, 2)]
    with raises(ValueError, "eval_data must be of type NDArray or DataIter"):
        module.predict("data")


def test_score(module):
    iterator = mx.io.NDArrayIter(X, LABELS, batch_size=5)
    seen = []
    ((name, value),) = module.score(iterator, "acc", batch_end_callback=lambda p: seen.append(p.nbatch))
    assert name == "accuracy" and seen == [0, 1]
    assert value == pytest.approx(np.mean(expected(X).argmax(1) == LABELS))
    assert module.score(iterator, mx.metric.create(["acc", "ce"]), num_batch=1)[1][0] == "cross-entropy"


def test_parameters_are_copies(module):
    args, aux = module.get_params()
    assert list(args) == ["fc1_weight", "fc1_bias", "bn_gamma", "bn_beta", "fc2_weight", "fc2_bias"]
    assert list(aux) == ["bn_moving_mean", "bn_moving_var"]
    args["fc2_bias"][:] = 100
    module.forward(batch(X[:4]))
    assert_close(module.get_outputs()[0].asnumpy(), expected(X[:4]))
    module.set_params({**args, "fc2_bias": ARGS["fc2_bias"] + 5}, aux)  # softmax does not see a shift
    module.forward(batch(X[:4]))
    assert_close(module.get_outputs()[0].asnumpy(), expected(X[:4]))


def test_initializing():
    module = mx.mod.Module(classifier())
    with raises(AssertionError, "call bind before initializing the parameters"):
        module.init_params()
    module.bind([("data", (4, 4))])
    with pytest.raises(AssertionError, match="call bind, then init_params"):
        module.forward(batch(X[:4]))
    module.init_params(mx.init.One())
    args, aux = module.get_params()
    assert args["fc1_weight"].asnumpy().min() == 1 and args["fc1_bias"].asnumpy().max() == 0
    assert aux["bn_moving_var"].asnumpy().min() == 1
    with pytest.warns(UserWarning, match="Parameters already initialized and force_init=False. init_params call"):
        module.init_params(mx.init.Zero())
    module.init_params(mx.init.Zero(), arg_params={"fc1_bias": ARGS["fc1_bias"]}, allow_missing=True, force_init=True)
    args, _ = module.get_params()
    assert_close(args["fc1_bias"].asnumpy(), ARGS["fc1_bias"].asnumpy())
    assert args["fc1_weight"].asnumpy().max() == 0


def test_parameters_that_do_not_fit(module):
    less = {name: x for name, x in ARGS.items() if name != "fc1_bias"}
    with raises(RuntimeError, "fc1_bias is not presented"):
        module.set_params(less, AUX)
    module.set_params({"fc2_bias": ARGS["fc2_bias"]}, {}, allow_missing=True)
    known = "; known: fc1_weight, fc1_bias, bn_gamma, bn_beta, fc2_weight, fc2_bias"
    with raises(ValueError, f'Find name "other" that is not in the arguments{known}'):
        module.set_params({"other": X}, AUX, allow_missing=True)
    module.set_params({"other": X}, AUX, allow_missing=True, allow_extra=True)
    with raises(ValueError, "parameter fc2_bias has shape (5,); the graph's has (3,)"):
        module.set_params({**ARGS, "fc2_bias": ARGS["fc1_bias"]}, AUX)


def test_checkpoint(module, tmp_path):
    prefix = str(tmp_path / "model")
    module.save_checkpoint(prefix, 7)
    graph, args, aux = mx.model.load_checkpoint(prefix, 7)
    assert graph.list_outputs() == ["softmax_output"]
    assert set(args) == set(ARGS) and set(aux) == set(AUX)
    again = mx.mod.Module.load(prefix, 7)
    again.bind([("data", (10, 4))], for_training=False)
    assert_close(again.predict(X).asnumpy(), expected(X))
    again.bind([("data", (2, 4))], for_training=False, force_rebind=True)  # parameters are kept
    assert_close(again.predict(X).asnumpy(), expected(X))
    block = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data", "softmax_label"], f"{prefix}-0007.params")
    assert_close(block(mx.nd.array(X), mx.nd.array(LABELS)).asnumpy(), expected(X))


def test_parameter_files(module, tmp_path):
    module.save_params(tmp_path / "p")
    other = mx.mod.Module(classifier())
    other.bind([("data", (4, 4))], for_training=False)
    other.load_params(tmp_path / "p")
    assert_close(other.predict(X).asnumpy(), expected(X))
    mx.nd.save(tmp_path / "q", {"weight": ARGS["fc2_bias"]})
    with pytest.raises(ValueError, match="Invalid param file"):
        other.load_params(tmp_path / "q")


def test_wrong_names():
    with pytest.raises(ValueError, match="input with name 'image' is not found in symbol.list_arguments.*\n\tdata\n"):
        mx.mod.Module(classifier(), data_names=["image"])
    with pytest.warns(UserWarning, match="input with name 'label' is not found"):
        mx.mod.Module(classifier(), label_names=["label"])
    module = mx.mod.Module(classifier())
    with pytest.raises(ValueError, match="Data provided by data_shapes don't match names specified by data_names"):
        module.bind([("image", (4, 4))])


def test_nobody_trains_on_labels_of_zeros():
    """MXNet 1.9.1 raises KeyError in `bind` for a label of another name, and AssertionError in `fit` for none. Without
    `label_shapes` it binds, and takes the gradient by zeros; predicting is what labels may be missing for."""
    with pytest.raises(ValueError, match="the graph reads the label 'softmax_label', and the data provide 'label'"):
        mx.mod.Module(classifier()).fit(mx.io.NDArrayIter(X, LABELS, 5, label_name="label"), num_epoch=1)
    with pytest.raises(ValueError, match="and the data provide none: "):
        mx.mod.Module(classifier()).fit(mx.io.NDArrayIter(X, None, 5), num_epoch=1)
    module = mx.mod.Module(classifier())
    with pytest.warns(UserWarning, match="don't match names"):
        module.bind([("data", (4, 4))])
    module.set_params(ARGS, AUX)
    module.forward(batch(X[:4]), is_train=False)
    assert_close(module.get_outputs()[0].asnumpy(), expected(X[:4]))
    for labels in (None, LABELS[:4]):  # nobody said which input they are
        module.forward(batch(X[:4], labels), is_train=True)
        with pytest.raises(ValueError, match="backward\\(\\) without labels: the graph reads 'softmax_label'"):
            module.backward()


def test_labels_after_a_prediction_of_another_size():
    """A batch without labels made the module forget their names; it then trained on zeros."""
    module, gradients = mx.mod.Module(classifier()), []
    module.bind([("data", (4, 4))], [("softmax_label", (4,))])
    module.set_params(ARGS, AUX)
    for _ in range(2):
        module.forward_backward(batch(X[:4], LABELS[:4]))
        gradients.append(module._exec_group.grad_arrays[0][0].asnumpy().copy())
        module.forward(batch(X), is_train=False)
    np.testing.assert_array_equal(*gradients)


def test_misspelt_parameters(module):
    arrays, states = module.get_params()
    arrays["fc1_wieght"] = arrays.pop("fc1_weight")
    with pytest.raises(RuntimeError, match="fc1_weight is not presented; given, but not in the graph: fc1_wieght"):
        module.set_params(arrays, states)
    with pytest.raises(RuntimeError, match="fc1_weight is not presented; given, but not in the graph: fc1_wieght"):
        module.init_params(arg_params=arrays, aux_params=states, force_init=True)
    with pytest.raises(ValueError, match="\"fc1_wieght\" that is not in the arguments; did you mean 'fc1_weight'?"):
        module.set_params(arrays, states, allow_missing=True)


def test_unknown_shapes():
    module = mx.mod.Module(mx.sym.var("data") + mx.sym.dot(mx.sym.var("a"), mx.sym.var("b")), label_names=None)
    with pytest.raises(RuntimeError, match="simple_bind error. InferShape pass cannot decide shapes for.*\na: "):
        module.bind([("data", (4, 4))])


def test_batches_that_do_not_fit(module):
    with pytest.raises(ValueError, match="the batch has 2 arrays; the module's data are data"):
        module.forward(mx.io.DataBatch([mx.nd.array(X)] * 2))


def test_training_mode():
    module = mx.mod.Module(mx.sym.Dropout(mx.sym.var("data"), p=0.5), label_names=None)
    module.bind([("data", (100,))])
    module.init_params()
    ones = mx.io.DataBatch([mx.nd.ones((100,))])
    module.forward(ones)  # bound for training
    assert module.get_outputs()[0].asnumpy().min() == 0
    module.forward(ones, is_train=False)
    assert module.get_outputs()[0].asnumpy().min() == 1


def test_states():
    total = mx.sym.var("data") + mx.sym.var("state")
    module = mx.mod.Module(total, label_names=None, state_names=["state"])
    module.bind([("data", (2, 4))], for_training=False)
    module.init_params()
    assert module.predict(X[:2]).asnumpy().tolist() == X[:2].tolist()
    module.set_states(value=1)
    assert_close(module.predict(X[:2]).asnumpy(), X[:2] + 1)
    module.set_states(states=[[mx.nd.array(X[:2])]])
    assert_close(module.predict(X[:2]).asnumpy(), X[:2] * 2)
    assert_close(module.get_states(merge_multi_context=False)[0][0].asnumpy(), X[:2])


def test_monitor(module):
    monitor = mx.mon.Monitor(1, stat_func=lambda x: x.max(), pattern="fc.*|softmax.*")
    module.install_monitor(monitor)
    monitor.tic()
    module.forward(batch(X[:4]))
    names = [name for _, name, _ in monitor.toc()]
    results, parameters = ["fc1_output", "fc2_output"], ["fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]
    assert names == [*results, "softmax_output", *parameters, "softmax_label"]


# Buckets


def by_length(key):
    """Sums a sequence of `key` vectors after one dense layer."""
    steps = mx.sym.split(mx.sym.var("data"), key, axis=1, squeeze_axis=True)
    weight, bias = mx.sym.var("w"), mx.sym.var("b")
    steps = [mx.sym.FullyConnected(step, weight, bias, num_hidden=2) for step in steps]
    return mx.sym.add_n(*steps, name="sum"), ["data"], None


def sequences(length):
    x = RNG.standard_normal((3, length, 4)).astype("f4")
    shapes = [("data", x.shape)]
    return x, mx.io.DataBatch([mx.nd.array(x)], bucket_key=length, provide_data=shapes)


def buckets():
    module = mx.mod.BucketingModule(by_length, default_bucket_key=5)
    module.bind([("data", (3, 5, 4))], for_training=False)
    return module


WEIGHT = RNG.standard_normal((2, 4)).astype("f4")


def check_buckets(module):
    for length in (5, 2, 3, 2, 5):
        x, data = sequences(length)
        module.forward(data, is_train=False)
        assert_close(module.get_outputs()[0].asnumpy(), (x @ WEIGHT.T + 1).sum(1), tol=1e-5)
        assert module.data_shapes[0].shape == x.shape and module.output_shapes == [("sum_output", (3, 2))]


def test_buckets(tmp_path):
    module = buckets()
    assert module.data_names == ["data"] and module.output_names == ["sum_output"]
    module.init_params(arg_params={"w": mx.nd.array(WEIGHT), "b": mx.nd.ones((2,))}, aux_params={})
    check_buckets(module)
    module.set_params({"w": mx.nd.array(WEIGHT * 2), "b": mx.nd.ones((2,))}, {})
    x, data = sequences(3)
    module.forward(data)
    assert_close(module.get_outputs()[0].asnumpy(), (x @ WEIGHT.T * 2 + 1).sum(1))
    module.set_params({"w": mx.nd.array(WEIGHT), "b": mx.nd.ones((2,))}, {})
    module.bind([("data", (3, 5, 4))], for_training=False, force_rebind=True)
    check_buckets(module)
    prefix = str(tmp_path / "buckets")
    module.save_checkpoint(prefix, 1)
    again = mx.mod.BucketingModule.load(prefix, 1, by_length, 5)
    again.bind([("data", (3, 5, 4))], for_training=False)
    check_buckets(again)


def test_bucketing_errors():
    with pytest.raises(AssertionError, match="default_bucket_key is missing"):
        mx.mod.BucketingModule(by_length)
    with pytest.raises(AssertionError, match="Empty BucketingModule cannot be saved"):
        mx.mod.BucketingModule(by_length, 5).save_checkpoint("none", 0)
    with pytest.raises(AssertionError, match="call bind first"):
        mx.mod.BucketingModule(by_length, 5).switch_bucket(3, [("data", (3, 3, 4))])


# Chains


def test_chain():
    first = mx.mod.Module(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=5, name="a"), label_names=None)
    second = mx.sym.FullyConnected(mx.sym.var("features"), num_hidden=3, name="b")
    second = mx.mod.Module(mx.sym.SoftmaxOutput(second, name="softmax"), data_names=["features"])
    chain = mx.mod.SequentialModule().add(first).add(second, take_labels=True, auto_wiring=True)
    iterator = mx.io.NDArrayIter(X, LABELS, batch_size=5)
    chain.bind(iterator.provide_data, iterator.provide_label, for_training=False)
    chain.init_params(mx.init.Normal(1))
    assert chain.output_shapes == [("softmax_output", (5, 3))]
    args, _ = chain.get_params()
    y = (X @ args["a_weight"].asnumpy().T + args["a_bias"].asnumpy()) @ args["b_weight"].asnumpy().T
    y = np.exp(y + args["b_bias"].asnumpy())
    assert_close(chain.predict(iterator).asnumpy(), y / y.sum(1, keepdims=True))
    ((_, accuracy),) = chain.score(iterator, "acc")
    assert accuracy == pytest.approx(np.mean(y.argmax(1) == LABELS))
    with raises(AssertionError, 'Unknown meta "take_label", a typo?'):
        chain.add(first, take_label=True)


@pytest.mark.parametrize(
    ("grad_req", "data", "weight"),
    [("null", None, None), ({"fc2_weight": "null"}, 3, 5), ({"data": "null"}, None, 5), ("add", 6, 10)],
)
def test_requests_for_gradients(grad_req, data, weight):
    """A dict says what is different from 'write'; the data's gradient follows the word, too."""
    module = mx.mod.Module(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc1"), label_names=None)
    module.bind([("data", (5, 1))], inputs_need_grad=True, grad_req=grad_req)
    module.init_params(mx.init.One())
    for _ in range(2):
        module.forward(mx.io.DataBatch([mx.nd.ones((5, 1))]), is_train=True)
        module.backward([mx.nd.ones((5, 3))])
    (found,) = module.get_input_grads()
    assert (found is None) == (data is None) and (found is None or found[0, 0].asscalar() == data)
    (found,) = module._exec_group.grad_arrays[0]
    assert (found is None) == (weight is None) and (found is None or found[0, 0].asscalar() == weight)
