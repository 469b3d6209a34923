"""`contrib.amp`: casts by MXNet's lists, converted models, the loss's scale."""

import json
import sys

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon
from gluonjit.contrib import amp
from gluonjit.gluon import nn
from gluonjit.language.namespace import SUBMODULES


@pytest.fixture
def own_functions(monkeypatch):
    """What `amp.init` does is undone after the test."""
    names = [f"gluonjit.{p}{s}" for p in ("ndarray", "symbol") for s in ("", *(f".{m}" for m in SUBMODULES))]
    before = {name: dict(vars(sys.modules[name])) for name in names}
    for key, value in (("_amp_initialized", False), ("_amp_loss_scale_initialized", False), ("_loss_scaler", None)):
        monkeypatch.setattr(amp.amp, key, value)
    yield
    for name, content in before.items():
        vars(sys.modules[name]).update(content)
        for key in vars(sys.modules[name]).keys() - content.keys():
            delattr(sys.modules[name], key)


def made():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, in_channels=2), nn.BatchNorm(in_channels=4), nn.Activation("relu"))
        net.add(nn.MaxPool2D(), nn.Dense(5, in_units=36))
    net.initialize()
    for k, p in enumerate(net.collect_params().values()):
        if p.grad_req != "null":
            p.set_data(mx.nd.array(np.random.RandomState(k).random_sample(p.shape) - 0.3))
    return net


X = np.random.RandomState(9).random_sample((3, 2, 8, 8))


def losses(net, trainer=None):
    """Three steps; the losses, and the type of the last predictions."""
    scaled = trainer is not None
    trainer = trainer or gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss_of, found = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(3):
        with autograd.record():
            y = net(mx.nd.array(X))
            loss = loss_of(y, mx.nd.array([0, 1, 2]))
            if scaled:
                with amp.scale_loss(loss, trainer) as larger:
                    autograd.backward(larger)
        if not scaled:
            loss.backward()
        trainer.step(3)
        found.append(float(loss.mean().asscalar()))
    return found, mx.base.dtype_name(y.dtype)


@pytest.mark.usefixtures("own_functions")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_training(dtype):
    wanted, _ = losses(made())
    amp.init(dtype)
    results = []
    for hybridize in (False, True):
        net = made()
        net.hybridize(hybridize)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        amp.init_trainer(trainer)
        found, kind = losses(net, trainer)
        assert kind == dtype  # of the last layer
        assert {mx.base.dtype_name(p.dtype) for p in net.collect_params().values()} == {"float32"}
        np.testing.assert_allclose(found, wanted, rtol=1e-2)
        results.append(found)
    np.testing.assert_allclose(*results, rtol=1e-3)
    assert mx.nd.softmax(mx.nd.ones((2, 2), dtype=dtype)).dtype == np.float32
    wide = mx.nd.elemwise_add(mx.nd.ones((2,), dtype=dtype), mx.nd.ones((2,)))
    assert wide.dtype == np.float32


def test_the_step_with_an_overflow_is_skipped():
    scaler = amp.LossScaler()
    scaler._scale_seq_len = 2
    net = nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    trainer._amp_loss_scaler, trainer._amp_original_scale = scaler, trainer._scale
    seen = []
    for x in (1.0, np.inf, 1.0, 1.0, 1.0):
        with autograd.record():
            loss = net(mx.nd.array([[x]])).sum()
            with amp.scale_loss(loss, trainer) as larger:
                autograd.backward(larger)
        trainer.step(1)
        seen.append((float(net.weight.data().asscalar()), scaler.loss_scale, scaler._next_loss_scale))
    start = 2.0**16
    # A scale takes effect at the step after the one that chose it, as in MXNet.
    assert [scale for _, scale, _ in seen] == [start, start, start / 2, start / 2, start]
    assert [new for _, _, new in seen] == [start, start / 2, start / 2, start, start]
    assert seen[0][0] == seen[1][0] == 0.0


def test_unscaled_gradients():
    net = nn.Dense(1, in_units=2, use_bias=False)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    trainer._amp_loss_scaler, trainer._amp_original_scale = amp.LossScaler(), trainer._scale
    with autograd.record():
        loss = net(mx.nd.array([[1.0, 3.0]]))
        with amp.scale_loss([loss], trainer) as (larger,):
            larger.backward()
    assert net.weight.grad().asnumpy().tolist() == [[2.0**16, 3 * 2.0**16]]
    amp.unscale(trainer)
    assert net.weight.grad().asnumpy().tolist() == [[1.0, 3.0]] and trainer._scale == 1.0


def test_casts_in_a_graph():
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=2, no_bias=True, name="c")
    x = mx.sym.Activation(mx.sym.Activation(x, act_type="relu", name="r"), act_type="softrelu", name="s")
    both = mx.sym.Group([mx.sym.softmax(x, name="sm"), mx.sym.FullyConnected(x, num_hidden=3, no_bias=True, name="f")])
    converted = amp.convert_symbol(both, "float16")
    nodes = json.loads(converted.tojson(remove_amp_cast=False))["nodes"]
    assert [(n["op"], n["name"], [i[0] for i in n["inputs"]]) for n in nodes] == [  # MXNet's
        ("null", "data", []),
        ("amp_cast", "data_amp_cast_float16", [0]),
        ("null", "c_weight", []),
        ("amp_cast", "c_weight_amp_cast_float16", [2]),
        ("Convolution", "c", [1, 3]),
        ("Activation", "r", [4]),
        ("amp_cast", "r_output_amp_cast_float32", [5]),
        ("Activation", "s", [6]),
        ("softmax", "sm", [7]),
        ("amp_cast", "s_output_amp_cast_float16", [7]),
        ("null", "f_weight", []),
        ("amp_cast", "f_weight_amp_cast_float16", [10]),
        ("FullyConnected", "f", [9, 11]),
        ("amp_cast", "f_output_amp_cast_float32", [12]),
    ]
    plain = amp.convert_symbol(both, "float16", excluded_sym_names=["c", "f", "s", "sm"])
    assert "amp_cast" not in plain.tojson(remove_amp_cast=False)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_converted_models(dtype, tmp_path):
    net = made()
    with pytest.raises(RuntimeError, match="first call block.hybridize"):
        amp.convert_hybrid_block(net, dtype)
    net.hybridize()
    wanted = net(mx.nd.array(X)).asnumpy()
    for stored, types in ((False, {"float32"}), (True, {"float32", dtype})):
        found = amp.convert_hybrid_block(net, dtype, cast_optional_params=stored)
        assert {mx.base.dtype_name(p.dtype) for p in found.collect_params().values()} == types
        y = found(mx.nd.array(X))
        assert y.dtype == np.float32
        assert 0 < abs(y.asnumpy() - wanted).max() < 0.05
    net.export(str(tmp_path / "m"))
    sym, args, aux = mx.model.load_checkpoint(str(tmp_path / "m"), 0)
    _, args, aux = amp.convert_model(sym, args, aux, dtype, cast_optional_params=True)
    assert mx.base.dtype_name(args["net_conv0_weight"].dtype) == dtype
    assert aux["net_batchnorm0_running_var"].dtype == np.float32


def test_lists():
    assert amp.list_lp16_ops("float16") == ["Convolution", "Deconvolution", "FullyConnected", "RNN"]
    assert amp.list_conditional_fp32_ops("bfloat16")[0] == ("Activation", "act_type", ["softrelu"])
    assert "softmax" in amp.list_fp32_ops(np.float16) and len(amp.list_widest_type_cast("float16")) == 113
    assert len(amp.list_lp16_fp32_ops("float16")) == 318 and amp.list_lp16_use_fp32_params("float16") is None
    assert "SoftmaxOutput" in amp.list_loss_output_functions("float16")


@pytest.mark.usefixtures("own_functions")
def test_what_is_refused():
    with pytest.raises(AssertionError, match="only float16 or bfloat16 as a target_dtype, got 'float61'"):
        amp.init("float61")
    trainer = gluon.Trainer(made().collect_params(), "sgd")
    with pytest.raises(AssertionError, match=r"forget to call amp.init\(\)"):
        amp.init_trainer(trainer)
    with pytest.raises(AssertionError, match=r"forget to call amp.init_trainer\(\)"), amp.scale_loss(1, trainer):
        pass
    with pytest.raises(TypeError, match="only compatible with Gluon Trainer"):
        amp.unscale(trainer.optimizer)
    x = mx.sym.var("x")
    with pytest.raises(AssertionError, match="Common ops: softmax"):
        amp.convert_symbol(x, target_dtype_ops=["softmax"])
    with pytest.raises(AssertionError, match="Convolutoin: can only choose"):
        amp.convert_symbol(x, target_dtype_ops=["Convolutoin"])
    with pytest.raises(AssertionError, match="fp32_ops should be a list"):
        amp.convert_symbol(x, fp32_ops="softmax")


def test_buckets_are_converted():
    def by_length(length):
        graph = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, flatten=False, name="fc")
        return mx.sym.exp(graph), ["data"], None

    module = mx.mod.BucketingModule(by_length, default_bucket_key=4)
    with pytest.raises(AssertionError, match="should not be empty"):
        amp.convert_bucketing_module(module)
    module.bind([("data", (1, 4, 3))], for_training=False)
    with pytest.raises(AssertionError, match="params should be initialized"):
        amp.convert_bucketing_module(module)
    module.init_params(mx.init.Uniform(1))

    def answer(of, length):
        data = mx.nd.array(np.random.RandomState(length).random_sample((1, length, 3)))
        of.forward(mx.io.DataBatch([data], bucket_key=length, provide_data=[("data", data.shape)]), is_train=False)
        return of.get_outputs()[0].asnumpy()

    wanted = {length: answer(module, length) for length in (4, 2)}
    converted = amp.convert_bucketing_module(module, "bfloat16")
    converted.bind([("data", (1, 4, 3))], for_training=False)
    for length, exact in wanted.items():
        found = answer(converted, length)
        assert found.dtype == np.float32 and 0 < abs(found - exact).max() < 0.05
        assert any("amp_cast" in name for name in converted.symbol.get_internals().list_outputs())
