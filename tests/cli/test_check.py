"""`gluonjit check`: everything at once, with line, caret and remedy."""

import json
import random
import sys

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.execution.checking import check
from gluonjit.gluon import nn
from gluonjit.tools.cli import main

PITFALLS = '''\
"""What tutorials of hybridize() warn of: the first five are fine here."""
import random

import gluonjit as mx

SCALE = 1.0


def set_scale(value):
    global SCALE
    SCALE = value


class Net(mx.gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.seen = []
        self.calls = 0
        self.dense = mx.gluon.nn.Dense(4, in_units=6)
        self.spare = mx.gluon.nn.Dense(4, in_units=6, prefix="spare_")

    def hybrid_forward(self, F, x):
        rows = x.shape[0]
        x = x[0:rows]
        y = x[:, 0]
        x += 1
        x = x + F.ones((1, 6))
        if x.sum() > 0:
            x = -x
        n = int(y[0].asscalar())
        self.seen.append(n)
        self.calls += 1
        x = x * random.random()
        print("here")
        return self.dense(x) * SCALE


net = Net()
net.initialize()
'''

FOUND = [  # line, rule, severity, what the caret is under
    (28, "needs-value", "error", "x.sum() > 0"),
    (30, "needs-value", "error", "y[0].asscalar()"),
    (31, "frozen", "warning", "self.seen.append(n)"),
    (32, "state", "warning", "self.calls += 1"),
    (33, "random-numbers", "warning", "x = x * random.random()"),
    (34, "runs-once", "note", 'print("here")'),
    (35, "frozen", "warning", "SCALE"),
]


@pytest.fixture
def pitfalls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(PITFALLS)


def run(capsys, *arguments):
    status = main(["check", *arguments])
    return status, *capsys.readouterr()


def test_pitfalls_are_reported_together(pitfalls, capsys):
    status, out, err = run(capsys, "model.py:net", "--input", "3x6", "--json")
    found = json.loads(out)
    assert status == 1
    assert err.endswith("error: model.py:net: 2 errors, 6 warnings, 1 note\n")
    assert [(p["line"], p["rule"], p["severity"]) for p in found if p["line"]] == [f[:3] for f in FOUND]
    assert all(p["remedy"] for p in found)
    assert sorted(p["message"] for p in found if p["rule"] == "unused-parameter") == [
        "parameter spare_bias is not used by the call",
        "parameter spare_weight is not used by the call",
    ]


def test_the_caret_is_under_what_is_wrong(pitfalls, capsys):
    _, out, _ = run(capsys, "model.py:net", "--input", "3x6")
    lines = out.splitlines()
    under = []
    for source, caret in zip(lines, lines[1:]):
        if caret.strip(" ^") == "" and "^" in caret:
            begin = caret.index("^")
            under.append(source[begin : begin + caret.count("^")])
    exact = [f[3] for f in FOUND]
    if sys.version_info < (3, 11):  # where a frame does not say its column, the whole line is marked
        exact[:2] = ["if x.sum() > 0:", "n = int(y[0].asscalar())"]
    assert under == exact


def test_sarif(pitfalls, capsys):
    _, out, _ = run(capsys, "model.py:net", "--input", "3x6", "--sarif", "-o", "log.sarif")
    assert out == ""
    with open("log.sarif") as f:
        log = json.load(f)
    (only,) = log["runs"]
    assert log["version"] == "2.1.0"
    declared = {rule["id"] for rule in only["tool"]["driver"]["rules"]}
    assert {r["ruleId"] for r in only["results"]} <= declared
    place = only["results"][2]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "model.py"
    assert place["region"] == {"startLine": 31, "startColumn": 9, "endColumn": 28}


@pytest.mark.parametrize("model", ["resnet18_v1", "mobilenet0.25"])
def test_a_sound_model_has_none(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo.py").write_text(
        f"from gluonjit.gluon.model_zoo import vision\nnet = vision.get_model('{model}', classes=3)\nnet.initialize()\n"
    )
    assert run(capsys, "zoo.py:net", "--input", "1x3x32x32")[:2] == (0, "no problems\n")


def test_operators_that_are_not_supported_are_all_listed(tmp_path, capsys):
    x = mx.sym.var("data")
    graph = json.loads((mx.sym.relu(mx.sym.tanh(x))).tojson())
    for node in graph["nodes"][1:]:
        node["op"] = f"of_tomorrow_{node['op']}"
    path = tmp_path / "net-symbol.json"
    path.write_text(json.dumps(graph))
    status, out, _ = run(capsys, str(path), "--input", "data=1x2")
    assert status == 1
    assert "of_tomorrow_tanh is not supported" in out
    assert "of_tomorrow_relu is not supported" in out


class Branches(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * 2 if (x > 0).sum() > 3 else x.abs()


class Masks(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.contrib.boolean_mask(x, F.ones((2,)))


def test_a_block_inside_is_only_slower():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4), Branches(), Masks(), nn.Dense(2))
    net.initialize()
    net.hybridize()
    found = check(net, [mx.nd.ones((2, 4))])
    assert [(p.rule, p.severity) for p in found] == [("needs-value", "warning"), ("needs-python", "warning")]
    assert all(p.block.startswith(net.name + "/") for p in found)


def test_the_block_is_as_it_was():
    net = Branches()
    net.hybridize()
    before = mx.random.get_state()
    check(net, [mx.nd.ones((2, 4))])
    assert net._active
    assert mx.random.get_state() == before
    plain = Branches()
    assert (plain(mx.nd.ones((2, 4))).asnumpy() == 2).all()


def test_random_numbers_go_on_as_without_it():
    class Drawing(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.Dropout(x, mode="always") + np.random.rand() + random.random() + F.random.uniform(shape=(2, 2))

    def numbers():
        return mx.nd.random.uniform(shape=2).asnumpy().tolist(), np.random.rand(), random.random()

    def seed():
        mx.random.seed(3)
        np.random.seed(3)
        random.seed(3)

    seed()
    expected = numbers()
    seed()
    assert {p.rule for p in check(Drawing(), [mx.nd.ones((2, 2))])} == {"random-numbers"}
    assert numbers() == expected


def test_a_program_that_fails():
    class Wrong(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.dot(x, x)

    (problem,) = check(Wrong(), [mx.nd.ones((2, 3))])
    assert (problem.rule, problem.severity) == ("fails", "error")
    assert problem.file == __file__
    assert "dot" in problem.message


def test_values():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.weight.set_data(mx.nd.array([[1, 2, float("nan")], [1e-40, 0, 1]]))
    found = {p.rule: p for p in check(net, [mx.nd.ones((1, 3))])}
    assert set(found) == {"nan", "denormals"}
    net.weight.set_data(mx.nd.array(np.ones((2, 3)) * 1e38))
    (problem,) = check(net, [mx.nd.ones((1, 3)) * 10])
    assert problem.message.startswith("result 0 has 2 elements of 2")


def test_modes_that_mxnet_freezes():
    class Asks(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x if mx.autograd.is_training() else -x

    (problem,) = check(Asks(), [mx.nd.ones((1, 3))])
    assert (problem.rule, problem.severity) == ("differs-from-mxnet", "note")


def test_values_are_those_of_the_sample():
    """What the program does after a value was needed depends on it, and is checked, too."""

    class Twice(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            y = F.Dropout(x) + 1
            if y.sum().asscalar() == 12:
                return y.asnumpy().sum() + x
            raise AssertionError("wrong value")

    assert [p.rule for p in check(Twice(), [mx.nd.ones((2, 3))])] == ["needs-value"] * 2


@pytest.mark.parametrize("loop", ["foreach", "while_loop"])
def test_values_in_loops(loop):
    """They are another one in each iteration, so the block runs as Python; that is the only problem."""

    class Loop(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            def body(i, s):
                return i, (i + 1, s + float(i.sum().asscalar()))

            if loop == "foreach":
                return F.contrib.foreach(lambda row, s: (row * row.sum().asscalar(), s), x, F.ones((1,)))[0]
            return F.contrib.while_loop(lambda i, s: i < 2, body, (F.ones((1,)), x), max_iterations=3)[1][1]

    net = nn.HybridSequential()
    net.add(Loop(), nn.Dense(2))
    net.initialize()
    (problem,) = check(net, [mx.nd.ones((2, 3))])
    assert (problem.rule, problem.severity) == ("needs-value", "warning")


class Several(mx.gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.w = self.params.get("w", shape=(3,), init="ones")
        self.rows, self.last = [], {}

    def hybrid_forward(me, F, x, w):
        me.rows.append(1)
        me.last["x"] = x
        return [F.log(x), w]


def test_results_that_are_parameters_and_lists():
    net = Several()
    net.initialize()
    found = check(net, [mx.nd.ones((2, 3)) * -1])
    assert [(p.rule, p.severity) for p in found if not p.line] == [("nan", "warning")]
    assert [p.message.split()[0] for p in found if p.rule == "frozen"] == ["me.rows", "me.last"]
    assert net.rows == [] and net.last == {}


def test_layers_that_add_arguments():
    net = mx.gluon.rnn.LSTM(4)
    net.initialize()
    x = mx.nd.ones((3, 2, 5))
    assert check(net, [x]) == check(net, [x, net.begin_state(2)]) == []


def test_a_forward_of_its_own():
    class Own(mx.gluon.HybridBlock):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    (problem,) = check(Own(), [mx.nd.ones((2,))])
    assert problem.rule == "no-hybrid-block" and "has forward(x) of its own" in problem.message
