"""`mx.profiler`: what is recorded, what is written, and that nothing is left behind."""

import json

import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd, profiler
from gluonjit.execution.session import Session
from gluonjit.language.namespace import input_names
from gluonjit.runtime.mode import MODE


@pytest.fixture(autouse=True)
def config(tmp_path):
    before = dict(profiler._profiler.options)
    profiler.set_config(filename=str(tmp_path / "trace.json"))
    profiler.dumps(reset=True)
    yield
    profiler.set_state("stop")
    profiler.resume()
    profiler.dumps(reset=True)
    profiler._profiler.options.update(before)


def counts():
    tables = json.loads(profiler.dumps(format="json"))["Time"]
    return {category: {name: row["Count"] for name, row in table.items()} for category, table in tables.items()}


def test_operators_compiled_calls_gradients_and_steps_are_recorded():
    x = nd.ones((2, 3))
    net = gluon.nn.Dense(4, in_units=3, prefix="layer_")
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    net(x)
    profiler.set_state("run")
    nd.exp(nd.exp(x))
    net.hybridize()
    for _ in range(3):
        net(x)
    with autograd.record():
        y = net(x)
    y.backward()
    trainer.step(2)
    profiler.set_state("stop")
    nd.exp(x)
    found = counts()["operator"]
    assert found["exp"] == 2 and found["optimizer step"] == 1
    compiled = [name for name in found if "layer" in name and not name.startswith("_backward")]
    assert [found[name] for name in compiled] == [4]
    assert sum(n for name, n in found.items() if name.startswith("_backward")) == 1


def test_operators_written_in_python_are_recorded():
    class Doubled(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("profiled_doubled")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Doubled()

    x = nd.ones(2)
    x.attach_grad()
    profiler.set_state("run")
    with autograd.record():
        y = nd.Custom(x, op_type="profiled_doubled")
    y.backward()
    profiler.set_state("stop")
    names = ("profiled_doubled::pure_python", "_backward_profiled_doubled::pure_python")
    assert counts()["Custom Operator"] == dict.fromkeys(names, 1)


def test_kernels_of_compiled_code_are_recorded_by_layer(tmp_path):
    net = gluon.nn.HybridSequential(prefix="net_")
    net.add(gluon.nn.Dense(4, in_units=3, prefix="one_"), gluon.nn.Dense(5, in_units=4, prefix="two_"))
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 3))
    net(x)
    profiler.set_state("run")
    for _ in range(3):
        net(x)
    assert set(counts()["kernel"].values()) == {3}  # while it runs
    net(x)
    with autograd.record():
        y = net(x)
    y.backward()
    profiler.set_state("stop")
    net(x)
    rows = json.loads(profiler.dumps(format="json"))["Time"]["kernel"]
    assert rows["net/one (matmul)"]["Count"] >= 5 and rows["net/two (matmul)"]["Count"] >= 5
    assert all(0 < r["Min"] <= r["Max"] and r["Avg"] * r["Count"] == pytest.approx(r["Total"]) for r in rows.values())
    assert "net/two (matmul)" in profiler.dumps()
    profiler.dump()
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [e for e in trace if e["name"] == "net/one (matmul)"]
    calls = [e for e in trace if e.get("cat") == "operator" and e["ph"] == "X"]
    assert len(kernels) >= 5
    for e in kernels:
        assert any(c["ts"] - 1 <= e["ts"] and e["ts"] + e["dur"] <= c["ts"] + c["dur"] + 1 for c in calls)
    profiler.dumps(reset=True)
    assert "kernel" not in counts()


def test_a_recorded_profile_and_the_profiler_do_not_disturb_each_other():
    net = gluon.nn.Dense(4, in_units=3)
    net.initialize()
    net.hybridize()
    with profiler.record() as p:
        profiler.set_state("run")
        net(nd.ones((2, 3)))
        profiler.set_state("stop")
    assert p.programs and "kernel" not in counts() and "operator" in counts()


def test_nothing_is_left_in_place():
    exp, run, mode = mx.operators.registry.get("exp"), Session.run, int(MODE[0])
    expand = exp.expand
    for _ in range(2):
        profiler.set_state("run")
        profiler.set_state("run")
        assert exp.expand is not expand and Session.run is not run and MODE[0] > mode
        with pytest.warns(UserWarning, match="deprecated"):
            profiler.profiler_set_state("stop")
        assert exp.expand is expand and Session.run is run and MODE[0] == mode


def test_functions_made_while_it_runs_have_their_signature():
    op = mx.operators.registry.get("Convolution")
    before = input_names.__wrapped__(op)
    profiler.set_state("run")
    assert input_names.__wrapped__(op) == before == ("data", "weight", "bias")


def test_pause():
    profiler.set_state("run")
    profiler.pause()
    nd.exp(nd.ones(2))
    profiler.resume()
    nd.log(nd.ones(2))
    profiler.set_state("stop")
    assert "exp" not in counts()["operator"] and counts()["operator"]["log"] == 1


def test_what_programs_note_themselves(tmp_path):
    domain = profiler.Domain("mine")
    task, frame, event = domain.new_task("task"), domain.new_frame("frame"), profiler.Event("event")
    task.start()
    task.stop()  # not running: not recorded
    profiler.set_state("run")
    for x in (task, task, frame, event):
        x.start()
        x.stop()
    counter = domain.new_counter("counter", 5)
    counter += 3
    counter.decrement()
    domain.new_marker("marker").mark()
    assert [str(x) for x in (domain, task, frame, event, counter)] == ["mine", "task", "frame", "event", "counter"]
    assert {k: v for k, v in counts().items() if k != "operator"} == {
        "mine": {"task": 2},
        "mine,frame": {"frame": 1},
        "event": {"event": 1},
    }
    profiler.dump()
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["args"]["counter"] for e in trace if e["ph"] == "C"] == [5, 8, 7]
    assert [e["name"] for e in trace if e["ph"] == "i"] == ["marker"]
    names = {e["pid"]: e["args"]["name"] for e in trace if e["ph"] == "M"}
    tasks = [e for e in trace if e["name"] == "task"]
    assert len(tasks) == 2 and all(names[e["pid"]] == "mine" and e["dur"] >= 0 for e in tasks)
    assert not profiler._profiler.running


def test_counters_have_statistics_of_their_own():
    profiler.set_state("run")
    counter = profiler.Domain("mine").new_counter("loss", 5)
    counter += 3
    counter -= 6
    found = json.loads(profiler.dumps(format="json"))
    assert found["Counter"] == {"mine": {"loss": {"Count": 3, "Total": 15, "Min": 2, "Max": 8, "Avg": 5}}}
    assert ["loss", "3", "2.0000", "8.0000", "5.0000"] in [line.split() for line in profiler.dumps().splitlines()]


def test_memory_of_compiled_code():
    net = gluon.nn.Dense(50, in_units=30, prefix="net_")
    net.initialize()
    net.hybridize()
    profiler.set_state("run")
    net(nd.ones((2, 30)))
    net(nd.ones((2, 30)))
    assert "Memory" not in json.loads(profiler.dumps(format="json"))
    profiler.set_config(profile_memory=True)
    found = json.loads(profiler.dumps(format="json"))
    rows = found["Memory"]["compiled code"]
    parameters = next(row for name, row in rows.items() if name.endswith("parameters"))
    assert parameters == {"Count": 2, "Total": 12.4, "Min": 6.2, "Max": 6.2, "Avg": 6.2}
    assert found["Unit"]["Memory"] == "kB" and "Max Use (kB)" in profiler.dumps()


def test_scopes():
    profiler.set_state("run")
    with profiler.Scope("encoder:"), profiler.scope("first:"):
        nd.exp(nd.ones(2))
    with profiler.Scope("decoder:"):
        nd.exp(nd.ones(2))
    nd.exp(nd.ones(2))
    found = counts()["operator"]
    assert (found["encoder:first:exp"], found["decoder:exp"], found["exp"]) == (1, 1, 1)


def test_table(tmp_path):
    profiler.set_config(continuous_dump=True)
    profiler.set_state("run")
    nd.exp(nd.ones(2))
    profiler.set_state("stop")
    assert (tmp_path / "trace.json").exists()
    lines = profiler.dumps(reset=True, sort_by="count", ascending=True).splitlines()
    assert any(line.split()[:2] == ["exp", "1"] for line in lines)
    assert "exp" not in profiler.dumps()


def test_errors():
    with pytest.raises(mx.MXNetError, match="argument 'file_name'.*did you mean.*filename"):
        profiler.set_config(file_name="x")
    with pytest.raises(KeyError):
        profiler.set_state("go")
    with pytest.raises(AssertionError, match="format"):
        profiler.dumps(format="xml")
    with pytest.raises(AssertionError, match="sort_by"):
        profiler.dumps(sort_by="name")
