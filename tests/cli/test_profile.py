"""`gluonjit profile`: its table, its JSON, and the files for other tools."""

import json
from pathlib import Path

import pytest

from gluonjit import profiler
from gluonjit.profiling import listing
from gluonjit.tools.cli import main

ROOT = Path(__file__).parents[2]
LENET = [str(ROOT / "examples" / "lenet.py") + ":net", "--input", "2x1x28x28", "--calls", "3"]


@pytest.fixture
def run(capsys):
    def call(*words):
        status = main(["profile", *words])
        out, err = capsys.readouterr()
        assert status == 0, err
        return out

    return call


@pytest.mark.parametrize("more", [(), ("--kernels",), ("--threads", "1")])
def test_a_table_names_layers_and_lines(run, more):
    text = run(*LENET, *more)
    assert "3 rounds of" in text and "GFLOP/s (this machine reaches" in text
    assert "/conv1 " in text and "lenet.py:25" in text
    assert "memory: parameters" in text and "tracing" in text


def test_json_has_all_of_it(run, tmp_path):
    path = tmp_path / "lenet.json"
    assert run(*LENET, "--json", "-o", str(path)) == ""
    (program,) = json.loads(path.read_text())["programs"]
    assert [k["number"] for k in program["kernels"]] == list(range(len(program["kernels"])))
    assert all(k["layer"] for k in program["kernels"])
    shares = sum(k["share"] for k in program["kernels"] if k["inside"] is None)
    assert shares > 0 and program["seconds"] > 0
    assert sum(layer["share"] for layer in program["layers"]) == pytest.approx(shares)


def test_files_for_other_tools(run, tmp_path):
    trace, stacks = tmp_path / "trace.json", tmp_path / "stacks.txt"
    run(*LENET, "--train", "--trace", str(trace), "--folded", str(stacks))
    events = json.loads(trace.read_text())["traceEvents"]
    calls = [e for e in events if e.get("cat") == "call"]
    assert len(calls) == 6 and {e["name"].rpartition(" ")[2] for e in calls} == {"(forward)", "(backward)"}
    kernels = [e for e in events if e["ph"] == "X" and "kernel" in e["args"]]
    for e in kernels:
        assert any(c["ts"] - 1 <= e["ts"] and e["ts"] + e["dur"] <= c["ts"] + c["dur"] + 1 for c in calls)
    frames = [line.rpartition(" ") for line in stacks.read_text().splitlines()]
    assert all(int(count) > 0 for _, _, count in frames)
    assert any(";conv2;" in stack and "(backward)" in stack for stack, _, _ in frames)


def test_a_model_that_runs_as_python_is_an_error(capsys, tmp_path):
    (tmp_path / "plain.py").write_text(
        "from gluonjit import gluon\n\nclass Net(gluon.Block):\n    def forward(self, x):\n        return x + 1\n\n"
        "net = Net()\n"
    )
    assert main(["profile", f"{tmp_path}/plain.py:net", "--input", "2x3", "--calls", "1"]) == 1
    assert "runs as Python" in capsys.readouterr().err


def test_what_cannot_be_measured_says_where(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        "import gluonjit as mx\n"
        "class Same(mx.gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return x + 1\n"
        "class Custom(mx.gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n"
        "        return F.Custom(x, op_type='nope')\n"
        "same, custom = Same(prefix='same_'), Custom()\n"
    )
    for name, more, said in (
        ("same", ["--train"], "--train: same has no parameters whose gradient is taken"),
        ("custom", [], "model.py:custom failed at line 7: Cannot find custom operator nope"),
    ):
        assert main(["profile", f"model.py:{name}", "--input", "2x3", *more]) == 1
        assert capsys.readouterr().err == f"error: {said}\n"


def test_names_are_shown_on_one_line(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        "import gluonjit as mx\nnet = mx.gluon.nn.Dense(3, prefix='a\\nb\\u202e_')\nnet.initialize()\n"
    )
    text = run("model.py:net", "--input", "2x3", "--calls", "2")
    assert "a\\nb\\u202e(f32[2,3]), call" in text and "\u202e" not in text


def test_stacks_have_a_line_each(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        "import gluonjit as mx\nnet = mx.gluon.nn.Dense(3, prefix='a\\nb;c_')\nnet.initialize()\n"
    )
    run("model.py:net", "--input", "64x200", "--calls", "20", "--folded", "stacks.txt")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines and all(line.rpartition(" ")[2].isdecimal() for line in lines)


def test_an_empty_profile():
    with profiler.record() as profile:
        pass
    assert listing.text(profile).startswith("nothing was measured: no compiled code ran, or that of hybridize(tune=")
