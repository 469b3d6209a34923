"""Why a block was traced and compiled: `explain()`, GLUONJIT_LOG, the warning, and how much code is kept."""

import os
import subprocess
import sys
import threading
import warnings

import pytest

import gluonjit as mx
from gluonjit.execution import block_compiler
from gluonjit.gluon import nn


def ones(*shape, **kwargs):
    return mx.nd.ones(shape, **kwargs)


def dense(**flags):
    net = nn.Dense(3, in_units=4)
    net.initialize()
    net.hybridize(**flags)
    return net


HALVES = ("compiled a forward half", "compiled a backward half")


def reasons(net, *what):
    return [e.why for e in net.explain().events if e.what in what]


class Scaled(mx.gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def hybrid_forward(self, F, x):
        return x * self.scale


class ReadsShape(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * x.shape[0]


class ScaledByTable(mx.gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.table = {"scale": 2.0}

    def hybrid_forward(self, F, x):
        return x * self.table["scale"]


def test_before_any_call():
    net = dense()
    assert str(net.explain()) == f"{net.name}: hybridized, and not called since"
    net.hybridize(False)
    assert "not hybridized" in str(net.explain())


def test_each_trace_and_compilation_has_a_reason():
    net = dense()
    net(ones(16, 4))
    net(ones(10, 4))
    net(ones(7, 4))  # served by what the last call compiled
    net(ones(7, 4, dtype="float32"))
    assert reasons(net, "traced") == ["first call"]
    assert reasons(net, "compiled") == ["first call", "shape of argument 0: 10×4, had 16×4"]
    assert [e.signature for e in net.explain().events] == ["f32[16,4]", "f32[16,4]", "f32[n,4]"]
    assert all(e.line.file == __file__ for e in net.explain().events)


def test_calls_are_counted_where_they_run():
    net = dense()
    for _ in range(10):
        net(ones(2, 4))
    found = net.explain()
    assert found.calls == 10
    assert found.native_calls == 9  # the first one compiles
    assert found.fallbacks == 0


def test_a_nearer_signature_is_the_one_compared_with():
    net = nn.HybridLambda(lambda F, a, b: F.broadcast_add(a, b))
    net.hybridize(dynamic=False)
    net(ones(2, 3), ones(2, 3))
    net(ones(4, 5), ones(4, 5))
    net(ones(2, 3), ones(2, 1))
    assert reasons(net, "compiled")[-1] == "shape of argument 1: 2×1, had 2×3"


def test_attribute():
    net = Scaled()
    net.hybridize()
    net(ones(5))
    net.scale = 3.0
    assert (net(ones(5)).asnumpy() == 3).all()
    dropped, traced, compiled = net.explain().events[-3:]
    assert dropped.what == "dropped"
    assert f"attribute 'scale' of {net.name} was set at {__file__}" in traced.why
    assert traced.why == compiled.why == dropped.why


def test_shape_that_the_program_has_read():
    net = ReadsShape()
    net.hybridize()
    net(ones(5))
    net(ones(3))
    assert reasons(net, "traced")[-1] == "the program has read the shape of data: (5,), which is (3,) now"


def test_training_mode_and_element_type():
    net = dense(dynamic=False)
    net(ones(2, 4))
    with mx.autograd.train_mode():
        net(ones(2, 4))
    assert reasons(net, "compiled")[-1] == "training mode"
    net.cast("float64")
    net(ones(2, 4, dtype="float64"))
    assert reasons(net, "compiled")[-1] == "parameters were cast to float64"
    net.hybridize()
    net(ones(2, 4, dtype="float64"))
    assert reasons(net, "compiled")[-1] == "hybridize() was called"


def test_recorded_calls():
    net = dense()
    x = ones(2, 4)
    with mx.autograd.record():
        y = net(x)
    y.backward()
    halves = [e for e in net.explain().events if e.what in HALVES]
    assert [e.what for e in halves] == [*HALVES]
    assert all(e.why == "first call" and "training" in e.signature for e in halves)


def test_object_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(tmp_path))
    first, second = Scaled(), Scaled()
    for net in (first, second):
        net.hybridize()
        net(ones(11, 3))
    assert [first.explain().cache_hits, second.explain().cache_hits] == [0, 1]
    assert second.explain().events[-1].cached


def test_what_runs_as_python():
    class Counts(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x if x.sum().asscalar() > 3 else -x

    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4), Counts())
    net.initialize()
    net.hybridize()
    with pytest.warns(UserWarning, match="cannot be compiled"):
        net(ones(2, 4))
    found = net.explain()
    assert found.state == "hybridized, but runs as Python"
    assert (found.calls, found.fallbacks) == (1, 1)
    assert [part.name for part in found.inner] == [net[0].name, net[1].name]
    assert reasons(net[1], "runs as Python")
    net(ones(2, 4))
    for block in (net, net[1]):
        found = block.explain()
        assert (found.calls, found.fallbacks) == (2, 2) and "of at most 0" not in str(found)
        assert found.events[-1].line.line == Counts.hybrid_forward.__code__.co_firstlineno + 1


def test_blocks_inside_a_plain_block():
    net = nn.Sequential()
    net.add(dense())
    net(ones(2, 4))
    (inner,) = net.explain().inner
    assert inner.compiles == 1


def test_the_least_recently_used_code_goes():
    net = dense(dynamic=False, cache_size=2)
    one, two, three = ones(1, 4), ones(2, 4), ones(3, 4)
    net(one)
    net(two)
    for _ in range(3):  # natively, in the end
        net(one)
    net(three)
    assert reasons(net, "dropped") == ["2 others were used since (cache_size)"]
    assert [e.signature for e in net.explain().events if e.what == "dropped"] == ["f32[2,4]"]
    net(one)
    assert net.explain().compiles == 3
    net(two)
    assert reasons(net, "compiled")[-1].startswith("its code was evicted")
    assert net.explain().kept == 2


def test_traces_go_with_their_code():
    net = ReadsShape()
    net.hybridize(cache_size=2)
    for n in range(3, 10):
        assert (net(ones(n)).asnumpy() == n).all()
    assert len(net._jit_cached.traces) == 2


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "8"])
def test_cache_size_is_checked(size):
    with pytest.raises(ValueError, match="cache_size is a number of codes"):
        nn.Dense(1).hybridize(cache_size=size)


def test_many_codes_are_warned_about_once():
    net = dense(dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, block_compiler.MANY):
            net(ones(n, 4))
    with pytest.warns(
        UserWarning, match=r"compiled 9 times(.|\n)*9×4, had 8×4(.|\n)*leave out dynamic=False"
    ) as caught:
        for n in range(block_compiler.MANY, 2 * block_compiler.MANY):
            net(ones(n, 4))
    assert len(caught) == 1


def test_remedy_for_an_attribute():
    net = Scaled()
    net.hybridize()
    with pytest.warns(UserWarning, match=r"attribute 'scale' of (.|\n)*pass what changes as an argument"):
        for k in range(block_compiler.MANY + 1):
            net.scale = float(k)
            net(ones(5))


def test_threads():
    net = dense(dynamic=False, cache_size=3)
    wrong = []

    def work():
        for n in (1, 2, 3, 4, 5) * 4:
            if net(ones(n, 4)).shape != (n, 3):
                wrong.append(n)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong
    assert net.explain().calls == 80
    assert net.explain().kept <= 3


def test_code_of_another_thread_has_the_line_of_the_call():
    net = dense(wait=False)
    net(ones(2, 4))
    net.compile(ones(2, 4))  # waits for it
    (event,) = (e for e in net.explain().events if e.what == "compiled")
    assert event.line.file == __file__


LOGGED = """
import gluonjit as mx
net = mx.gluon.nn.Dense(3, in_units=4)
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 4)))
"""


def run(program, log):
    env = {**os.environ, "GLUONJIT_LOG": log}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)


@pytest.mark.parametrize("program", [LOGGED, "import gluonjit as mx\nmx.nd.ones((2, 3)) + 1"])
def test_log_of_something_else(program):
    """Also in programs of which nothing is compiled; only the program's own lines are shown above the error."""
    done = run(program, "compiler")
    assert done.returncode == 1
    assert "GLUONJIT_LOG='compiler' is not known; did you mean 'compile'?" in done.stderr
    assert done.stderr.count("  File ") == done.stderr.count('  File "<string>"') == 1


BOUND = """
net = mx.sym.softmax(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=30))
module = mx.mod.Module(net, label_names=None)
module.bind([("data", (8, 100))], for_training=False)
module.init_params()
for rows in (8, 4, 6):
    module.forward(mx.io.DataBatch([mx.nd.ones((rows, 100))]))
"""


def test_events_of_blocks_and_modules_are_printed_as_they_come():
    traced, compiled, first, second = run(LOGGED + BOUND, "compile").stderr.splitlines()
    assert traced.startswith("gluonjit: dense0 traced for f32[2,4] in ")
    assert ": first call  at <string>:6" in compiled
    assert "compiled for data: f32[8,100], … in" in first and ": first call  at <string>:" in first
    assert "shape of argument 0: n×100, had 8×100" in second


PLAIN = """
import gluonjit as mx
net = mx.gluon.nn.Dense(3, in_units=4)
net.initialize()
trainer = mx.gluon.Trainer(net.collect_params(), "adam")
with mx.autograd.record():
    loss = net(mx.nd.ones((2, 4)))
loss.backward()
trainer.step(2)
"""


def run_plainly(setting):
    env = {**os.environ, "GLUONJIT_LOG": "compile", "GLUONJIT_PLAIN": setting}
    return subprocess.run([sys.executable, "-c", PLAIN], env=env, capture_output=True, text=True)


def test_plain_calls_and_steps_are_in_the_log():
    *_, forward, backward, step = run_plainly("native").stderr.splitlines()  # weights are drawn first
    assert forward.startswith("gluonjit: FullyConnected compiled for f32[2,4], f32[3,4], f32[3] in ")
    assert forward.endswith(": plain calls  at <string>:7")
    assert backward.startswith("gluonjit: FullyConnected_backward compiled for ")
    assert step.startswith("gluonjit: step compiled for 2 weights in ") and step.endswith(": first call  at <string>:9")


def test_plain_calls_by_something_else():
    assert "GLUONJIT_PLAIN is numpy or native, or not set; got 'nativ'" in run_plainly("nativ").stderr


def test_blocks_that_drop_their_code_themselves():
    """Detectors of gluon-cv call MXNet's `_clear_cached_op` from `set_nms`; blocks around them are compiled again, too.
    A value in a table is no attribute, so that nothing else tells of its change."""
    inner, net = ScaledByTable(), nn.HybridSequential()
    net.add(inner)
    net.hybridize()
    found = []
    for scale in (2.0, 3.0):
        inner.table["scale"] = scale
        inner._clear_cached_op()
        found.append(net(ones(2)).asnumpy().tolist())
    assert found == [[2, 2], [3, 3]]
    assert reasons(net, "traced") == ["first call", f"_clear_cached_op() of {inner.name} was called"]


class Detector(mx.gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.overlap = 0.5

    def hybrid_forward(self, F, x):
        if mx.autograd.is_training():
            return x * x
        return F.contrib.box_nms(x * x, overlap_thresh=self.overlap)


def recorded(net, x, training=True):
    x.attach_grad()
    with mx.autograd.record(train_mode=training):
        y = net(x)
    y.backward()
    return x.grad.asnumpy()


def test_gradients_are_kept_when_code_is_dropped():
    """Programs call `set_nms` before each epoch; of the graphs that are traced again, most are what they were."""
    net = Detector()
    net.hybridize()
    for overlap, training, compiled in (
        (0.5, True, 2),
        (0.7, True, 0),
        (0.7, True, 0),
        (0.7, False, 2),
        (0.3, False, 2),
    ):
        net.overlap = overlap
        net._clear_cached_op()
        before = len(reasons(net, *HALVES))
        assert (recorded(net, ones(3, 6), training) == 2).any()
        assert len(reasons(net, *HALVES)) == before + compiled
    net.hybridize()
    recorded(net, ones(3, 6), False)
    assert len(reasons(net, *HALVES)) == before + 4, "other flags may ask for other code"


def test_gradients_of_box_nms_have_open_dimensions():
    """The number of iterations of its loop, which stops by a condition, is that of the boxes."""
    net, plain = Detector(), Detector()
    net.hybridize()
    for count in (3, 4, 7):
        x = mx.nd.random.uniform(shape=(count, count, 6))
        assert (recorded(net, x, False) == recorded(plain, x, False)).all()
    events = [e.signature for e in net.explain().events if e.what in HALVES]
    assert len(events) == 4 and all("n" in signature for signature in events[2:])
