"""Executors and modules that are reshaped go on with code for open dimensions, once two shapes have been seen."""

from __future__ import annotations

import gc

import numpy as np

import gluonjit as mx
from gluonjit.execution.session import Session
from support.compare import assert_close


def _count_compiled(monkeypatch):
    """The graphs that sessions were made of, as they are made."""
    made = []
    init = Session.__init__

    def noted(self, graph, *args, **kwargs):
        made.append(graph)
        init(self, graph, *args, **kwargs)

    monkeypatch.setattr(Session, "__init__", noted)
    return made


def _symbol():
    x = mx.sym.var("data")
    hidden = mx.sym.FullyConnected(x, num_hidden=8, name="a")
    return mx.sym.FullyConnected(mx.sym.Activation(hidden, act_type="relu"), num_hidden=3, name="b")


def test_an_executor_that_is_reshaped(monkeypatch):
    rng = np.random.default_rng(0)
    graph = _symbol()
    executor = graph.simple_bind(mx.cpu(), data=(16, 5), grad_req="null")
    values = {name: rng.uniform(-1, 1, x.shape).astype(np.float32) for name, x in executor.arg_dict.items()}
    made = _count_compiled(monkeypatch)
    executor.copy_params_from({k: mx.nd.array(v) for k, v in values.items()})
    for n in (16, 4, 7, 12, 1):
        executor = executor.reshape(data=(n, 5), allow_up_sizing=True)
        x = rng.uniform(-1, 1, (n, 5)).astype(np.float32)
        (y,) = executor.forward(data=mx.nd.array(x))
        hidden = np.maximum(x @ values["a_weight"].T + values["a_bias"], 0)
        np.testing.assert_allclose(y.asnumpy(), hidden @ values["b_weight"].T + values["b_bias"], rtol=1e-4, atol=1e-5)
    assert [str(g.inputs[0].type) for g in made] == ["f32[16,5]", "f32[n,5]", "f32[1,5]"]


def test_a_module_whose_last_batch_is_smaller(monkeypatch):
    module = mx.mod.Module(_symbol(), label_names=None)
    module.bind([("data", (16, 5))], for_training=False)
    module.init_params()
    made = _count_compiled(monkeypatch)
    results = {}
    for n in (16, 4, 7):
        batch = mx.io.DataBatch([mx.nd.ones((n, 5))])
        module.forward(batch)
        results[n] = module.get_outputs()[0].asnumpy()
        assert results[n].shape == (n, 3)
    expected = np.tile(results[16][:1], (7, 1))
    assert_close(results[7], expected)
    assert [str(g.inputs[0].type) for g in made] == ["f32[16,5]", "f32[n,5]"]


def test_code_for_any_shape_takes_over_what_the_first_shape_has_packed():
    graph = mx.sym.Convolution(mx.sym.var("data"), num_filter=32, kernel=(3, 3), pad=(1, 1), no_bias=True, name="c")
    first = graph.simple_bind(mx.cpu(), data=(4, 16, 8, 8), grad_req="null")
    first.arg_dict["c_weight"][:] = mx.nd.random.uniform(shape=(32, 16, 3, 3))
    executor, codes, data = first, [], mx.nd.random.uniform(shape=(7, 16, 8, 8))
    for n in (4, 7):
        executor = executor.reshape(data=(n, 16, 8, 8), allow_up_sizing=True)
        gc.collect()  # the executor that was reshaped
        (y,) = executor.forward(data=data[:n])
        codes.append(executor._bound[False].session.callee)
    np.testing.assert_allclose(y[:4].asnumpy(), first.forward(data=data[:4])[0].asnumpy(), rtol=1e-4, atol=1e-5)
    one, any_size = codes
    assert any_size.main.is_open and not one.main.is_open
    assert one.prepared
    assert all(a.content is b.content for a, b in zip(one.prepared, any_size.prepared, strict=True))


def test_buckets_share_packed_parameters():
    """The buckets' symbols differ, but for their lengths, in what they do with a weight afterwards."""

    def bucket(length):
        x, w, b = mx.sym.var("data"), mx.sym.var("w_weight"), mx.sym.var("b_bias")
        for k in range(length):
            x = mx.sym.FullyConnected(x, w, b, num_hidden=48, name=f"step{k}")
        return x, ("data",), None

    module = mx.mod.BucketingModule(bucket, default_bucket_key=3)
    module.bind([("data", (4, 48))], for_training=False)
    module.init_params(mx.init.Uniform(0.1))

    def forward(length):
        batch = mx.io.DataBatch([mx.nd.ones((4, 48))], bucket_key=length, provide_data=[("data", (4, 48))])
        module.forward(batch)
        executor = module._module._executor
        return module.get_outputs()[0].asnumpy(), executor._bound[False].session.callee.prepared

    found = {length: forward(length) for length in (3, 4, 2)}
    packed = [{id(r) for p in prepared for r in p.results} for _, prepared in found.values()]
    assert packed[0] and packed[0] == packed[1] == packed[2]
    values = {k: v.asnumpy() for k, v in module.get_params()[0].items()}
    for length in (2, 4):
        module.set_params(
            {"w_weight": mx.nd.array(values["w_weight"] * 2), "b_bias": mx.nd.array(values["b_bias"])}, {}
        )
        values["w_weight"] *= 2
        want = np.ones((4, 48), np.float32)
        for _ in range(length):
            want = want @ values["w_weight"].T + values["b_bias"]
        np.testing.assert_allclose(forward(length)[0], want, rtol=1e-4, atol=1e-5)
