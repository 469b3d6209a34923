"""Profiles: every kernel has a layer and a line, shares add up to the call, and recording changes no bit."""

import dataclasses
import inspect
import json

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd, profiler
from gluonjit.gluon import nn, rnn
from gluonjit.profiling import exports, listing
from gluonjit.profiling.advice import advice
from gluonjit.profiling.measured import Kernel, Lap, Memory, Profile, Program, Tensor
from gluonjit.runtime import threads
from gluonjit.runtime.machine_use import MachineUse


@pytest.fixture(params=[1, 2])
def on_threads(request):
    before = threads.get_num_threads()
    threads.set_num_threads(request.param)
    yield request.param
    threads.set_num_threads(before)


class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.first = nn.Conv2D(16, 3, activation="relu")
            self.second = nn.Conv2D(16, 3)
            self.last = nn.Dense(7)

    def hybrid_forward(self, F, x):
        y = F.relu(self.second(self.first(x)))
        return self.last(y)


def line_of(text):
    lines, start = inspect.getsourcelines(Net)
    return start + next(k for k, line in enumerate(lines) if text in line)


def made(net=None, shape=(4, 3, 20, 20)):
    net = net or Net(prefix="net_")
    net.initialize()
    net.hybridize()
    x = nd.random.normal(shape=shape)
    return net, x, net(x).asnumpy()


def test_layers_lines_and_sums(on_threads):
    net, x, plain = made()
    with profiler.record() as p:
        for _ in range(4):
            with p.lap():
                assert (net(x).asnumpy() == plain).all()
    (program,) = p.programs
    assert program.name == "net" and program.part == "call" and program.inputs == ("f32[4,3,20,20]",)
    assert len(program.calls) == 4 and 1 <= program.threads <= on_threads
    where = {layer.path: layer.line for layer in program.layers if layer.path != "net"}
    assert where == {
        "net/first": line_of("self.second(self.first(x))"),
        "net/second": line_of("self.second(self.first(x))"),
        "net/last": line_of("return self.last(y)"),
    }
    assert {k.file for k in program.kernels} == {__file__}
    of_calls = sum(k.samples.sum(axis=0) for k in program.outer)  # kernels and waits of each call
    assert all(parts <= end - begin for parts, (begin, end) in zip(of_calls, program.calls, strict=True))
    assert program.seconds == sorted(end - begin for begin, end in program.calls)[2]
    assert program.total <= sum(lap.end - lap.begin for lap in p.laps) <= p.seconds
    assert p.rounds.number == 4 and 0 < p.rounds.cpu and p.rounds.seconds <= p.rounds.ninety
    shares = [layer.share for layer in program.layers]
    assert shares == sorted(shares, reverse=True) and min(shares) >= 0
    assert program.percentile(0) <= program.percentile(0.5) <= program.percentile(1)


def test_flops_and_bytes_are_counted_by_definition():
    net, x, _ = made()
    with profiler.record() as p:
        net(x)
    by_path = {layer.path: layer for layer in p.programs[0].layers}
    first = 2 * 4 * 16 * 18 * 18 * 27
    assert first <= by_path["net/first"].flops <= 1.2 * first
    last = 2 * 4 * 7 * 16 * 16 * 16
    assert last <= by_path["net/last"].flops <= 1.2 * last
    assert by_path["net/last"].nbytes >= 4 * 7 * 16 * 16 * 16
    assert all(k.estimate > 0 for k in p.programs[0].kernels)
    (flops, bandwidth), *_ = p.peaks.values()
    assert flops > 0 and bandwidth > 0


def test_what_is_expected_follows_the_rates_of_this_machine():
    net, x, _ = made(nn.Dense(256, in_units=512, use_bias=False), (512, 512))
    with profiler.record() as p:
        net(x)
    (program,) = p.programs
    product = max(program.kernels, key=lambda k: k.flops)
    least = product.flops / p.peaks[program.usual_threads][0] * program.usual_threads
    assert least <= product.estimate < 1.3 * least


def test_memory():
    net, x, _ = made()
    with profiler.record() as p:
        net(x)
    program, memory = p.programs[0], p.programs[0].memory
    assert memory.parameters == sum(4 * q.data().size for q in net.collect_params().values())
    assert memory.inputs == 4 * x.size and memory.results == 4 * 28
    assert all(0 <= t.offset and t.offset + t.nbytes <= memory.arena for t in memory.tensors)
    assert all(t.first <= t.last < len(program.kernels) and t.name and t.layer for t in memory.tensors)


def test_the_peak_of_a_step():
    net, x, _ = made()
    net(x)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})

    def step():
        with autograd.record():
            loss = net(x).sum()
        loss.backward()
        trainer.step(1)

    step()
    with profiler.record() as p:
        step()
    m, trained = p.step_memory, sum(4 * q.data().size for q in net.collect_params().values() if q.grad_req != "null")
    forward, backward = (next(q.memory for q in p.programs if q.part == half) for half in ("forward", "backward"))
    assert m.gradients == backward.results >= trained and m.saved == forward.results
    assert m.given >= trained + x.size * 4 and m.arena >= max(forward.arena, backward.arena)
    assert trained - 256 < m.states <= trained  # the update's numbers, which it is given, count for a little
    assert m.peak == sum(m) and "a step's memory at its peak: " in listing.text(p)
    assert p.to_json()["step_memory"]["peak"] == m.peak
    with profiler.record() as p:
        with autograd.record():
            loss = net(x).sum()
        loss.backward()
    assert p.step_memory.states is None and "the optimizer's states, which are not known here" in listing.text(p)
    with profiler.record() as p:
        net(x)
    assert p.step_memory is None and "peak:" not in listing.text(p)


def test_packing_parameters_that_have_changed():
    net, x, plain = made()
    with profiler.record() as p:
        for _ in range(2):
            net.last.weight.set_data(net.last.weight.data() * 2)
            net(x)
    packing = [program for program in p.programs if program.part == "packing"]
    assert [k.layer for program in packing for k in program.kernels] == ["net/last"] * len(packing)
    for program in packing:
        assert len(program.calls) == 2 and program.kernel_seconds == pytest.approx(program.seconds)
    assert not any(stage.name == "packing parameters" for stage in p.compiling)
    assert repr(p) == listing.text(p) != "" and exports.folded(p) and json.dumps(exports.trace_events(p))


def test_what_is_compiled_meanwhile():
    net = Net(prefix="other_")
    net.initialize()
    net.hybridize()
    with profiler.record() as p:
        net(nd.ones((1, 3, 9, 11)))
    seconds = p.compile_seconds()
    assert {"tracing", "typing", "loading", "packing parameters"} <= seconds.keys()
    assert all(0 <= stage.seconds <= p.seconds for stage in p.compiling)  # those of several threads overlap
    assert {program.part for program in p.programs} == {"call", "packing"}


def test_a_kernel_of_a_gradient_names_the_layer_and_line_of_its_forward():
    net, x, _ = made()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})

    def step():
        with autograd.record():
            y = net(x).sum()
        y.backward()
        trainer.step(4)

    step()
    with profiler.record() as p:
        step()
    (backward,) = (program for program in p.programs if program.part == "backward")
    lines = {k.layer: k.line for k in backward.kernels if k.kind in ("conv", "matmul", "winograd", "weight_gradient")}
    assert {"net/first", "net/second", "net/last"} <= lines.keys()
    assert lines["net/last"] == line_of("return self.last(y)")
    assert lines["net/second"] == line_of("self.second(self.first(x))")


@pytest.mark.parametrize("layer", ["BatchNorm", "LayerNorm", "LSTM", "softmax"])
def test_every_kernel_of_a_recorded_call_names_a_layer_and_a_line(layer):
    """Also those of operators with a gradient rule of their own, and of those that are loops."""

    class Normalized(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.before = nn.Dense(6, flatten=False)
            if layer == "LSTM":
                self.middle = rnn.LSTM(6, layout="NTC")
            elif layer != "softmax":
                self.middle = getattr(nn, layer)()

        def hybrid_forward(self, F, x):
            y = self.before(x)
            y = F.softmax(y) if layer == "softmax" else self.middle(y)
            return F.make_loss(F.square(y - 1))

    net, x, _ = made(Normalized(prefix="net_"), (3, 4, 5))
    with profiler.record() as p:
        with autograd.record():
            y = net(x)
        y.backward()
    kernels = [k for program in p.programs for k in program.kernels]
    assert {program.part for program in p.programs} >= {"forward", "backward"}
    assert all(k.layer in ("net", "net/before", "net/middle") for k in kernels)
    assert {k.file for k in kernels} == {__file__}
    assert {"net/before", "net" if layer == "softmax" else "net/middle"} <= {k.layer for k in kernels}


def test_loops_have_parts(on_threads):
    net, x, plain = made(rnn.LSTM(16, layout="NTC", prefix="lstm_"), (3, 5, 8))
    with profiler.record() as p:
        assert (net(x).asnumpy() == plain).all()
    (program,) = p.programs
    loops = [k for k in program.kernels if k.kind == "loop"]
    inner = [k for k in program.kernels if k.inside is not None]
    assert loops and inner and all(k.times == 5 for k in inner)
    for loop in loops:
        parts = [k for k in inner if k.inside == loop.number]
        assert (
            sum(k.busy for k in parts) <= loop.busy * 1.001 and sum(k.wait for k in parts) <= loop.wait * 1.001 + 1e-9
        )
    assert all(k.layer.startswith("lstm") for k in program.kernels)


def test_each_call_of_a_function_has_its_kernels():
    """51 steps of an unrolled cell, of which the first computes less, as its state is 0."""
    net = rnn.RNNCell(4)
    net.initialize()
    unrolled = gluon.nn.HybridLambda(lambda F, x: net.unroll(51, x, layout="NTC")[0][-1])
    unrolled.hybridize()
    x = nd.ones((2, 51, 3))
    unrolled(x)
    with profiler.record(peaks=False) as profile:
        unrolled(x)
    (program,) = (p for p in profile.programs if p.part == "call")
    calls = [k for k in program.kernels if k.kind == "call"]
    assert len(calls) >= 50
    for call in calls:
        inside = [k for k in program.kernels if k.inside == call.number]
        assert inside and sum(k.busy for k in inside) <= call.busy * (1 + 1e-9)


def test_a_loop_that_ends_early_counts_the_steps_that_it_took():
    class Halved(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            _, (y,) = F.contrib.while_loop(lambda y: (F.max(y) > 1).reshape(()), lambda y: ([], [y / 2]), [x], 100)
            return y

    net, x = Halved(), nd.array([[8.0, 6.0, 3.0]])
    net.hybridize()
    net(x)
    with profiler.record() as p:
        assert net(x).asnumpy().tolist() == [[1.0, 0.75, 0.375]]
    kernels = p.programs[0].kernels
    (loop,) = (k for k in kernels if k.kind == "loop")
    parts = [k for k in kernels if k.inside == loop.number]
    # Three steps divide three elements; their maximum is asked for four times.
    assert loop.flops == sum(k.flops for k in parts) == 3 * 3 + 4 * 3
    assert loop.estimate == sum(k.estimate for k in parts)


def test_sizes_of_open_dimensions_have_programs_of_their_own():
    net = nn.Dense(6, in_units=7, prefix="open_")
    net.initialize()
    net.hybridize(dynamic={"data": {0: "batch"}})
    for n in (3, 5):
        net(nd.ones((n, 7)))
    with profiler.record() as p:
        for n in (3, 5, 3):
            net(nd.ones((n, 7)))
    assert sorted((q.inputs, len(q.calls)) for q in p.programs) == [(("f32[3,7]",), 2), (("f32[5,7]",), 1)]
    assert {k.flops >= 2 * 3 * 7 * 6 for q in p.programs for k in q.kernels} == {True}


def test_events_of_a_thread_follow_each_other(on_threads):
    net, x, _ = made()
    with profiler.record(timeline=2) as p:
        for _ in range(3):
            net(x)
    (program,) = p.programs
    assert len(program.timeline) == 2
    for line, (begin, end) in zip(program.timeline, program.calls[-2:]):
        for thread in {e.thread for e in line}:
            own = [e for e in line if e.thread == thread]
            assert all(a.end <= b.begin + 1e-7 for a, b in zip(own, own[1:]))
            assert begin - 1e-5 <= own[0].begin and own[-1].end <= end + 1e-5


def test_text_and_files():
    net, x, _ = made()
    with profiler.record() as p:
        net(x)
    shown = listing.text(p, top=1)
    assert "net(f32[4,3,20,20]), call: 1 call on" in shown and "2 more" in shown.replace("3 more", "2 more")
    assert json.loads(json.dumps(p.to_json()))["programs"][0]["name"] == "net"
    assert json.dumps(exports.trace_events(p))
    assert exports.folded(p).count("\n") >= len(p.programs[0].kernels)


def test_forgetting():
    net, x, _ = made()
    with profiler.record() as p:
        net(x)
        p.forget()
        net(x)
    assert len(p.programs[0].calls) == 1


def test_an_error_in_the_program_ends_the_recording():
    net, x, _ = made()
    with pytest.raises(ZeroDivisionError), profiler.record() as p:
        net(x)
        raise ZeroDivisionError
    assert len(p.programs) == 1
    with profiler.record() as p, pytest.raises(mx.MXNetError):
        net(nd.ones((1, 2)))
    assert np.isfinite(p.seconds)


def kernel(number, samples, **changes):
    of = Kernel(number, "k", "loops", "", "", f"net/{number}", (), "", 0, (), (), np.array(samples, float), 1, 0, 0, 0)
    return dataclasses.replace(of, **changes)


def made_up(*kernels, threads=1, calls=3):
    ends = [sum(k.samples[:, c].sum() for k in kernels) for c in range(calls)]
    memory = Memory(0, 0, 0, 0, 0, 0, 0, 0)
    return Program("net", "call", (), (calls,) * threads, [(0.0, e) for e in ends], (), list(kernels), memory)


def test_an_interrupted_call_does_not_count():
    """Each of three calls loses a second in another kernel: a mean would say that all of them are slow."""
    a, b = kernel(0, [[1, 2, 1], [0, 0, 0]]), kernel(1, [[3, 3, 4], [0, 1, 0]])
    program = made_up(a, b)
    assert (a.share, b.share, b.wait) == (1, 4, 0)
    assert {layer.path: layer.share for layer in program.layers} == {"net/0": 1, "net/1": 4}
    assert program.seconds == 5 and program.kernel_seconds == 5


@pytest.mark.parametrize(
    "samples, changes, busy, said",
    [
        ([[1] * 4, [0] * 4], {"estimate": 0.25, "rival": 0.3}, False, "but 4 calls are too few to rely on"),
        ([[1] * 5, [0] * 5], {"estimate": 0.25, "rival": 2.0}, False, "and no other kernel is known to be faster"),
        ([[1] * 5, [0] * 5], {"estimate": 0.25}, False, "and no other kernel is known to be faster"),
        ([[1], [0]], {"estimate": 0.9, "nbytes": 114.0}, False, "in caches: it moves 1.1 times"),
        ([[1], [1]], {}, False, "Threads wait for each other 50 %"),
        ([[1], [0]], {"flops": 90.0}, False, "computes at 90 % of this machine's peak: only a smaller layer"),
        ([[1], [0]], {"flops": 70.0, "estimate": 0.9}, False, "about what the compiler expected, 70 % of what"),
        ([[1], [0]], {"flops": 70.0, "estimate": 2.0}, False, "less than what the compiler expected, 70 % of what"),
        ([[1], [0]], {"flops": 120.0, "kind": "winograd"}, False, "120 % of this machine's peak, as Winograd's"),
        ([[1.8] * 5, [0] * 5], {"flops": 90.0, "estimate": 1.0}, False, "1.8 times what the compiler expected"),
        (
            [[1] * 5, [0] * 5],
            {"flops": 70.0, "estimate": 0.5, "rival": 0.6},
            False,
            "2.0 times what the compiler expected; `hybridize(tune",
        ),
        ([[1], [0]], {"nbytes": 90.0}, False, "moves data at 90 % of the memory's rate: only smaller arrays"),
        ([[1], [0]], {"nbytes": 90.0, "flops": 1.0, "weights": 10.0}, False, "only smaller arrays"),
        (
            [[1], [0]],
            {"nbytes": 80.0, "flops": 1.0, "weights": 40.0},
            False,
            "more samples would share the weights",
        ),
        ([[1e-6], [0]], {}, False, "so short"),
        (
            [[1] * 5, [0] * 5],
            {"estimate": 0.25, "rival": 0.3},
            False,
            "4.0 times what the compiler expected; `hybridize(tune=True)`",
        ),
        ([[1], [0]], {"estimate": 0.25}, True, "measure again"),
        ([[1], [0]], {"estimate": 0.9, "flops": 30.0}, False, "about what the compiler expected, 30 %"),
        ([[1], [0]], {"estimate": 0.9, "nbytes": 200.0}, False, "in caches: it moves 2.0 times"),
    ],
)
def test_advice(samples, changes, busy, said):
    program = made_up(kernel(0, samples, **changes), calls=1)
    assert said in advice(program.layers[0], program, (100.0, 100.0), busy)


def test_arrays_that_share_memory_count_once():
    program = made_up(kernel(0, [[1], [0]]), calls=1)
    places = ((0, 100), (0, 100), (64, 64), (256, 50))
    program.memory.tensors = [Tensor(f"t{k}", "", at, size, 0, 0) for k, (at, size) in enumerate(places)]
    assert listing.live(program, 0) == 128 + 50


def test_one_slow_lap_does_not_tell_what_part_is_compiled():
    profile = Profile()
    profile.programs = [made_up(kernel(0, [[9, 9, 9], [0, 0, 0]]))]
    profile.programs[0].calls = [(1, 10), (12, 21), (131, 140)]
    profile.laps = [Lap(0, 10, 10), Lap(11, 21, 10), Lap(30, 140, 110)]
    assert "90.0 % of it in compiled code" in listing.text(profile)


def test_a_busy_machine_is_told():
    net, x, _ = made()
    with profiler.record() as p, p.lap():
        net(x)
    p.use = MachineUse(cores=2, own=1.0, others=1.9)
    assert p.busy and "other programs used 1.9 of its 2 cores" in listing.text(p)
    p.use = MachineUse(cores=8, own=1.0, others=1.9)
    assert not p.busy and "busy" not in listing.text(p)
    assert MachineUse(2, 1.0, 1.05).crowded(1) is False  # the other core was theirs
