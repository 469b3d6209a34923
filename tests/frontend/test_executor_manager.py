"""`mx.executor_manager` trains as real MXNet 1.9.1 does, whose numbers are written here."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.executor_manager import DataParallelExecutorManager, _check_arguments, _split_input_slice
from gluonjit.io import DataBatch

PARAMS = ["fc_weight", "fc_bias"]


def network(_key):
    hidden = mx.sym.FullyConnected(mx.sym.sum(mx.sym.var("data"), axis=1), num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.BatchNorm(hidden, name="bn"), name="softmax")


class Batches(DataBatch):
    batch_size, default_bucket_key = 6, 2


def batch(key):
    data, label = mx.nd.arange(6 * key * 3).reshape((6, key, 3)) % 7, mx.nd.arange(6) % 2
    shapes = [("data", data.shape)], [("softmax_label", label.shape)]
    return Batches([data], [label], bucket_key=key, provide_data=shapes[0], provide_label=shapes[1])


def manager(**kwargs):
    symbol = network(2)
    names = symbol.list_arguments(), PARAMS, symbol.list_auxiliary_states()
    return DataParallelExecutorManager(symbol, [mx.cpu(0), mx.cpu(1)], batch(2), *names, **kwargs)


def test_buckets_on_two_contexts():
    trained = manager(work_load_list=[1, 2], sym_gen=network)
    assert trained.slices == [slice(0, 2), slice(2, 6)]
    with pytest.raises(AssertionError, match="load_data_batch"):
        trained.forward()
    args = {"fc_weight": mx.nd.array([[0.5, -1, 2], [1, 0.25, -2]]), "fc_bias": mx.nd.array([0.5, 1])}
    aux = {name: mx.nd.ones(2) for name in trained.aux_names}
    trained.set_params(args, aux)
    metric = mx.metric.create("ce")
    for key in (2, 3, 2):
        loaded = batch(key)
        trained.load_data_batch(loaded)
        trained.forward(is_train=True)
        trained.backward()
        trained.update_metric(metric, loaded.label)
        trained.update_metric(metric, [[x[part] for x in loaded.label] for part in trained.slices], pre_sliced=True)
        for weights, gradients in zip(trained.param_arrays, trained.grad_arrays):
            assert [x.context for x in gradients] == trained.ctx
            step = sum(x.copyto(mx.cpu()) for x in gradients)
            for weight in weights:
                weight -= step.copyto(weight.context)
    trained.copy_to(args, aux)
    assert metric.get()[1] == pytest.approx(0.827249, rel=1e-5)
    near = {"rtol": 1e-5, "atol": 1e-6}
    weight = [[0.010724187, -1.3881798, 2.3898375], [1.0957692, 0.7167196, -1.8992989]]
    np.testing.assert_allclose(args["fc_weight"].asnumpy(), weight, **near)
    np.testing.assert_allclose(aux["bn_moving_mean"].asnumpy(), [3.3227835, 0.143438], **near)
    np.testing.assert_allclose(aux["bn_moving_var"].asnumpy(), [5.9505448, 8.1730261], **near)


def test_what_is_refused():
    monitor = mx.mon.Monitor(1)
    with pytest.raises(NotImplementedError, match="bucketing"):
        manager(sym_gen=network).install_monitor(monitor)
    plain = manager()
    plain.install_monitor(monitor)
    assert len(monitor.exes) == 2
    with pytest.raises(AssertionError, match="Expected 6, got 2"):
        plain.load_data_batch(DataBatch([mx.nd.ones((2, 2, 3))], [mx.nd.ones(2)]))
    with pytest.raises(AssertionError, match="work load"):
        manager(work_load_list=[1])


def test_parts_of_a_batch():
    assert _split_input_slice(7, [1, 1, 2]) == [slice(0, 2), slice(2, 4), slice(4, 7)]
    with pytest.raises(ValueError, match="Too many slices"):
        _split_input_slice(1, [1, 1])
    with pytest.raises(ValueError, match='duplicated argument name "a"'):
        _check_arguments(mx.sym.var("a") + mx.sym.var("a"))
