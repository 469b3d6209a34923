"""Optimizers, key-value stores, callbacks, monitors, checkpoints: what training programs set up."""

import logging
import math
import pickle

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd, optimizer
from gluonjit.base import MXNetError

# Optimizers


@optimizer.register
class Plain(optimizer.Optimizer):
    """w − lr·(g·rescale + wd·w), with the number of steps as state."""

    def create_state(self, index, weight):
        return nd.zeros(1)

    def update(self, index, weight, grad, state):
        self._update_count(index)
        state[:] += 1
        weight[:] -= self._get_lr(index) * (grad * self.rescale_grad + self._get_wd(index) * weight)


def test_own_optimizers_work():
    plain = optimizer.create("plain", learning_rate=0.5, wd=0.1, rescale_grad=2.0)
    updater = optimizer.get_updater(plain)
    w = [nd.array([1.0]), nd.array([10.0])]
    updater(0, nd.array([1.0]), w[0])
    updater([0, 1], [nd.array([1.0]), nd.array([0.0])], w)
    assert np.allclose(w[0].asnumpy(), (1 - 0.5 * 2.1) - 0.5 * (2 + 0.1 * (1 - 1.05))) and np.allclose(
        w[1].asnumpy(), 9.5
    )
    assert updater.states[0].asscalar() == 2 and plain.num_update == 2
    other = optimizer.get_updater(optimizer.create("sgd"))
    other.set_states(updater.get_states(dump_optimizer=True))
    assert isinstance(other.optimizer, Plain) and other.optimizer.lr == 0.5 and other.states[0].asscalar() == 2
    assert "param_dict" not in pickle.loads(pickle.dumps(plain)).__getstate__()


def test_narrow_weights_have_a_wide_copy():
    plain = optimizer.create("plain", learning_rate=1e-4, multi_precision=True)
    w = nd.ones(1, dtype="float16")
    updater = optimizer.get_updater(plain)
    for _ in range(20):
        updater(0, nd.ones(1, dtype="float16"), w)
    assert w.asscalar() == np.float16(1 - 20e-4) and updater.states[0][0].dtype == np.float32
    with pytest.warns(UserWarning, match="multi_precision=True"):
        optimizer.create("plain").create_state_multi_precision(0, w)


def test_registering_twice_warns():
    with pytest.warns(UserWarning, match="is overriding existing optimizer"):
        optimizer.register(type("Plain", (Plain,), {}))
    optimizer.Optimizer.opt_registry["plain"] = Plain
    with pytest.warns(UserWarning, match="has been overwritten by"):
        optimizer.SGD(learning_rate=0.5, lr_scheduler=mx.lr_scheduler.FactorScheduler(2, base_lr=0.1))


def test_rates_out_of_a_symbol():
    weight = mx.sym.var("w_weight", lr_mult=3, wd_mult=0.5)
    net = mx.sym.FullyConnected(mx.sym.var("data"), weight=weight, num_hidden=2, name="fc")
    sgd = optimizer.SGD(learning_rate=1, wd=1, sym=net, param_idx2name={0: "w_weight", 1: "fc_bias"})
    assert sgd._get_lrs([0, 1]) == [3, 1] and sgd._get_wds([0, 1]) == [0.5, 0.0]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda s: s.FactorScheduler(0), ValueError, "greater or equal than 1"),
        (lambda s: s.FactorScheduler(1, 2), ValueError, "no more than 1"),
        (lambda s: s.MultiFactorScheduler([3, 2]), ValueError, "increasing"),
        (lambda s: s.MultiFactorScheduler(3), AssertionError, "list"),
        (lambda s: s.PolyScheduler(0), ValueError, "strictly positive"),
        (lambda s: s.CosineScheduler(2.5), AssertionError, "must be an int"),
        (lambda s: s.CosineScheduler(2, warmup_mode="slow"), ValueError, "linear and constant"),
        (lambda s: s.LRScheduler(0.1, 2, 0.5), ValueError, "higher than warmup_begin_lr"),
        (lambda s: s.LRScheduler()(1), NotImplementedError, "override"),
    ],
)
def test_schedules_refuse(make, error, words):
    with pytest.raises(error, match=words):
        make(mx.lr_scheduler)


@pytest.mark.parametrize("form", ["adamw_update", "mp_adamw_update", "multi_adamw_update", "multi_mp_adamw_update"])
def test_adamw(form):
    """By the formula in arXiv:1711.05101 without bias correction; a step with an infinite scale is left out."""
    rng = np.random.RandomState(0)
    w, g, m, v = rng.rand(4, 5)
    g2 = np.clip(g * 0.5, -0.3, 0.3)
    m2, v2 = 0.9 * m + 0.1 * g2, 0.999 * v + 0.001 * g2 * g2
    w2 = w - 0.7 * (0.1 * m2 / (np.sqrt(v2) + 1e-8) + 0.01 * w)
    narrow = "mp_" in form
    a = {k: nd.array(x) for k, x in zip("wgmv", (w, g, m, v))}
    weight, wide = (a["w"].astype("float16"), [a["w"].copy()]) if narrow else (a["w"], [])
    grad = a["g"].astype(weight.dtype)
    update = getattr(nd.contrib, form)
    for scale in (nd.array([np.inf]), 0.5):
        if form.startswith("multi"):
            lists = [[x] for x in (weight, grad, a["m"], a["v"], *wide)]
            update(*lists, scale, [0.1], [0.01], [0.7], out=[weight], clip_gradient=0.3)
        else:
            update(weight, grad, a["m"], a["v"], *wide, scale, 0.1, 0.7, wd=0.01, clip_gradient=0.3, out=weight)
        if isinstance(scale, nd.NDArray):
            assert np.allclose(weight.asnumpy(), w, atol=1e-3)
    tolerance = 1e-3 if narrow else 1e-6
    for got, expected in ((weight, w2), (a["m"], m2), (a["v"], v2)):
        assert np.allclose(got.asnumpy(), expected, atol=tolerance)


# Key-value stores


def test_a_store_adds_and_copies():
    kv = mx.kv.create("device")
    kv.init([3, 4], [nd.ones(2), nd.zeros(1)])
    out = [nd.zeros(2), nd.zeros(2)]
    kv.push(3, [nd.ones(2) * 2, nd.ones(2) * 5])
    kv.pull(3, out=out)
    assert [x.asnumpy().tolist() for x in out] == [[7, 7]] * 2
    kv.pushpull(4, nd.array([4]), out=out[0][:1])
    assert out[0].asnumpy().tolist() == [4, 7]
    kv.push([3, 4, 3], [nd.ones(2), nd.ones(1), [nd.ones(2), nd.ones(2)]])  # a key twice is added up
    kv.pull([3, 3], out=out)
    assert [x.asnumpy().tolist() for x in out] == [[3, 3]] * 2
    kv._set_updater(lambda key, pushed, stored: stored.__isub__(pushed))
    kv.push(3, nd.ones(2))
    kv.pull(3, out=out[1])
    assert out[1].asnumpy().tolist() == [2, 2]
    assert (kv.type, kv.rank, kv.num_workers, kv.is_capable("optimizer")) == ("device", 0, 1, True)


def test_a_store_of_the_program():
    @mx.kvstore.KVStoreBase.register
    class Counting(mx.kvstore.base.KVStoreBase):
        type, rank, num_workers, seen = "counting", 0, 1, ()

        def broadcast(self, key, value, out, priority=0):
            self.seen += (key,)

        def pushpull(self, key, value, out=None, priority=0):
            self.seen += (key,)

        @staticmethod
        def is_capable(capability):
            return False

    net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize()
    store = mx.kv.create("counting")
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", kvstore=store)
    with mx.autograd.record():
        y = net(nd.ones((1, 2)))
    y.backward()
    trainer.step(1)
    assert len(store.seen) == 2


def test_a_store_with_an_optimizer(tmp_path):
    kv = mx.kv.create()
    kv.set_optimizer(optimizer.create("plain", learning_rate=0.5))
    kv.broadcast(0, nd.array([1.0]), out := nd.zeros(1))
    kv.push(0, nd.array([1.0]))
    kv.pull(0, out)
    assert out.asscalar() == 0.5
    kv.save_optimizer_states(str(tmp_path / "states"))
    kv.load_optimizer_states(str(tmp_path / "states"))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda kv: mx.kv.create("dist_async"), "use 'dist_sync'"),
        (lambda kv: mx.kv.create("devise"), "did you mean 'device'"),
        (lambda kv: kv.push("new", nd.ones(1)), "has not been inited"),
        (lambda kv: kv.pull("a", nd.ones(2)), "shape mismatch"),
        (lambda kv: kv.pull(7, nd.ones(1)), "Mixed key types"),
        (lambda kv: kv.init("a", nd.ones(1)), "duplicate init of key a"),
        (lambda kv: kv.is_capable("magic"), "Unknown capability"),
        (lambda kv: kv.set_gradient_compression({"type": "zip"}), "Unknown type"),
    ],
)
def test_a_store_refuses(act, words):
    kv = mx.kv.create("local")
    kv.init("a", nd.ones(1))
    with pytest.raises(MXNetError, match=words):
        act(kv)


# Callbacks, monitors, checkpoints, logs


def batch_end(nbatch, metric):
    return mx.model.BatchEndParam(epoch=2, nbatch=nbatch, eval_metric=metric, locals={})


def test_callbacks_log(caplog):
    caplog.set_level(logging.INFO)
    accuracy = mx.metric.Accuracy()
    accuracy.update(nd.array([1]), nd.array([1]))
    speed = mx.callback.Speedometer(4, frequent=2)
    for k in range(1, 4):
        speed(batch_end(k, accuracy if k == 2 else None))
    assert "Epoch[2] Batch [0-2]\tSpeed: " in caplog.text and "accuracy=1.000000" in caplog.text
    assert math.isnan(accuracy.get()[1]) and accuracy.get_global()[1] == 1
    speed(batch_end(4, None))
    assert "Iter[2] Batch [4]" in caplog.text
    mx.callback.ProgressBar(4, length=8)(batch_end(2, None))
    assert "[====----] 50%" in caplog.text
    accuracy.update(nd.array([1]), nd.array([0]))
    mx.callback.log_train_metric(2, auto_reset=True)(batch_end(4, accuracy))
    mx.callback.LogValidationMetricsCallback()(batch_end(4, accuracy))
    assert "Iter[2] Batch[4] Train-accuracy=0.000000" in caplog.text and "Validation-accuracy=nan" in caplog.text


def test_checkpoints(tmp_path):
    prefix = str(tmp_path / "net")
    net = mx.sym.BatchNorm(mx.sym.var("data"), name="bn")
    args, aux = {"bn_gamma": nd.ones(2), "bn_beta": nd.zeros(2)}, {"bn_moving_mean": nd.ones(2) * 3}
    save = mx.callback.do_checkpoint(prefix, period=2)
    for epoch in range(4):
        save(epoch, net, args, aux)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net-0002.params", "net-0004.params", "net-symbol.json"]
    loaded, args2, aux2 = mx.model.load_checkpoint(prefix, 4)
    assert loaded.tojson() == net.tojson() and set(args2) == set(args)
    assert aux2["bn_moving_mean"].asnumpy().tolist() == [3, 3]
    nd.save(f"{prefix}-0009.params", [nd.ones(1)])
    with pytest.raises(ValueError, match="is not a checkpoint"):
        mx.model.load_params(prefix, 9)

    class Saver:
        saved = []

        def save_checkpoint(self, *arguments):
            self.saved.append(arguments)

    mx.callback.module_checkpoint(Saver(), "m", 1, True)(0)
    assert Saver.saved == [("m", 1, True)]


def test_a_monitor_sees_results_and_arguments(caplog):
    net = mx.sym.Activation(mx.sym.Dropout(mx.sym.var("data") * 2), act_type="relu", name="act")
    executor = net.simple_bind(mx.cpu(), data=(1, 4))
    monitor = mx.mon.Monitor(2, stat_func=lambda x: x.max(), pattern="act.*|data", sort=True)
    monitor.install(executor)
    seen = []
    for _ in range(3):
        monitor.tic()
        executor.forward(data=nd.array([[1, 2, 3, -4]]))
        seen.append(monitor.toc())
    assert [len(s) for s in seen] == [2, 0, 2]
    assert [(name, float(text)) for _, name, text in seen[0]] == [("act_output", 6.0), ("data", 3.0)]
    caplog.set_level(logging.INFO)
    monitor.step = 0
    monitor.tic()
    executor.forward()
    monitor.toc_print()
    assert "act_output" in caplog.text
    executor.forward(is_train=True)


def test_a_monitor_of_everything_has_mxnets_names():
    """What MXNet names in such a graph, variables and results that are only for gradients among it."""
    x = mx.sym.var("data")
    y = mx.sym.BatchNorm(mx.sym.FullyConnected(x, num_hidden=2, name="fc"), name="bn")
    y = mx.sym.SliceChannel(mx.sym.concat(mx.sym.relu(y, name="r"), x, name="cc", dim=1), num_outputs=5, name="sc")
    with mx.name.NameManager():  # which counts from 0
        executor = mx.sym.Group([y[0], y[1] + 1]).simple_bind(mx.cpu(), data=(2, 3))
    results = "fc_output bn_output bn_mean bn_var r_output cc_output sc_output0 sc_output1 sc_output2 sc_output3 "
    results += "sc_output4 _plusscalar0_output"
    everything = (
        "data fc_data fc_weight fc_weight fc_bias fc_bias fc_output bn_data bn_gamma bn_gamma bn_beta bn_beta "
        "bn_moving_mean bn_moving_mean bn_moving_var bn_moving_var bn_output bn_mean bn_var r_input0 r_output cc_arg0 "
        "data cc_arg1 cc_output sc_data sc_output0 sc_output1 sc_output2 sc_output3 sc_output4 _plusscalar0_input0 "
        "_plusscalar0_output"
    )
    seen = []
    for monitor_all, expected in ((False, results), (True, everything)):
        seen.clear()
        executor.set_monitor_callback(lambda name, array: seen.append(name), monitor_all)
        executor.forward(data=nd.ones((2, 3)))
        assert [name.decode() for name in seen] == expected.split()


def test_loggers(tmp_path, capsys):
    log = mx.log.get_logger("gluonjit-test", level=mx.log.INFO)
    log.info("spoken")
    log.debug("unspoken")
    err = capsys.readouterr().err
    assert "spoken" in err and "unspoken" not in err and "\x1b[32mI" in err and "test_loggers" in err
    log = mx.log.get_logger("gluonjit-test-file", str(tmp_path / "log"))
    log.warning("written")
    assert (tmp_path / "log").read_text() == "written\n"
    with pytest.warns(DeprecationWarning):
        assert mx.log.getLogger("gluonjit-test") is mx.log.get_logger("gluonjit-test")


def test_bulk_size_is_kept():
    with mx.engine.bulk(7):
        assert mx.engine.set_bulk_size(9) == 7
    assert mx.engine.set_bulk_size(15) == 15
