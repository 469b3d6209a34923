"""Time stamps in compiled code: they change no bit, every kernel has its times, and these add up to the call."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.gluon import nn, rnn
from gluonjit.ir.buffers import runs_kernel
from gluonjit.ir.types import IRError
from gluonjit.runtime import executable, threads
from gluonjit.runtime.mode import MODE
from gluonjit.runtime.timed import Timer


@pytest.fixture(params=[1, 2])
def on_threads(request):
    before = threads.get_num_threads()
    threads.set_num_threads(request.param)
    yield request.param
    threads.set_num_threads(before)


def convolutions():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1, activation="relu"), nn.BatchNorm(), nn.Conv2D(24, 3), nn.GlobalAvgPool2D())
    net.add(nn.Dense(5))
    return net, nd.random.normal(shape=(4, 3, 24, 24))


def recurrent():
    return rnn.LSTM(32, num_layers=2, layout="NTC"), nd.random.normal(shape=(8, 6, 16))


def compiled(make):
    net, x = make()
    net.initialize()
    net.hybridize()
    return net, x, net(x).asnumpy()


def sums(record):
    """[calls, threads, sites] in time stamps, without those inside of loops; how often."""
    return np.nan_to_num(record.spent()[:, :, record.program.outer]), np.nan_to_num(record.often())


@pytest.mark.parametrize("make", [convolutions, recurrent])
def test_stamps_change_no_bit_and_leave_nothing_out(make, on_threads):
    net, x, plain = compiled(make)
    with Timer() as timer:
        assert all((net(x).asnumpy() == plain).all() for _ in range(3))
    assert (net(x).asnumpy() == plain).all()
    (record,) = timer.records
    assert len(record.spans) == 3
    spent, count = sums(record)
    shares = np.nan_to_num(record.shares())
    assert (spent >= 0).all() and (spent.sum(2) <= shares).all()
    seconds = np.array([span.end - span.begin for span in record.spans])
    assert (shares.max(1) * timer.clock.rate <= 1.01 * seconds + 50_000).all()
    kernels = [s.op for s in record.program.sites if s.op is not None and s.inside is None]
    assert kernels == [op for op in record.program.graph.ops if runs_kernel(op)]
    assert (count.max((0, 1))[[s.op is not None for s in record.program.sites]] > 0).all()


def test_kernels_are_those_of_the_code_that_is_measured():
    net, x, _ = compiled(convolutions)
    with Timer() as timer:
        net(x)
    program = timer.records[0].program
    assert program.reused == len({s.kernel for s in program.sites if s.kernel})


def test_what_is_in_a_loop_is_counted_there():
    net, x, _ = compiled(recurrent)
    with Timer() as timer:
        net(x)
    (record,) = timer.records
    sites = record.program.sites
    loops = [k for k, s in enumerate(sites) if s.op is not None and s.op.name == "loop"]
    assert loops
    for loop in loops:
        inside = [k for k, s in enumerate(sites) if s.inside == loop]
        assert inside
        spent = record.spent()[:, 0]
        assert (0 < spent[:, inside].sum(1)).all() and (spent[:, inside].sum(1) <= spent[:, loop]).all()
        trips = sites[loop].op.attrs["trip"]
        assert record.often()[:, 0, inside].max() == trips


def test_open_dimensions_have_a_record_for_each_size():
    net = nn.Dense(6, in_units=7)
    net.initialize()
    net.hybridize(dynamic={"data": {0: "batch"}})
    given = [nd.random.normal(shape=(n, 7)) for n in (3, 5, 3)]
    plain = [net(x).asnumpy() for x in given]
    with Timer() as timer:
        for x, y in zip(given, plain):
            assert (net(x).asnumpy() == y).all()
    assert sorted(len(r.spans) for r in timer.records) == [1, 2]
    assert len({id(r.program) for r in timer.records}) == 1


def test_a_training_step_has_records_of_both_halves():
    net, x, _ = compiled(convolutions)
    trainer = gluon.Trainer(net.collect_params(), "sgd")

    def step():
        with autograd.record():
            y = net(x).sum()
        y.backward()
        trainer.step(4)

    step()
    with Timer() as timer:
        step()
    names = [r.program.graph.name for r in timer.records]
    assert any(n.endswith("_forward") for n in names) and any(n.endswith("_backward") for n in names)


def test_tuned_code_runs_unmeasured():
    net = nn.Dense(4, in_units=3)
    net.initialize()
    net.hybridize(tune=True)
    x = nd.ones((2, 3))
    plain = net(x).asnumpy()
    with Timer() as timer:
        assert (net(x).asnumpy() == plain).all()
    assert not timer.records and len(timer.untimed) == 1


def test_one_at_a_time_and_nothing_stays_behind():
    before = int(MODE[0])
    with Timer(), pytest.raises(IRError, match="one profile"), Timer():
        pass
    assert executable.watcher is None and int(MODE[0]) == before


def test_the_callers_errors_pass(on_threads):
    net, x, _ = compiled(convolutions)
    with Timer(), pytest.raises(mx.MXNetError):
        net(nd.ones((2, 4, 3)))
