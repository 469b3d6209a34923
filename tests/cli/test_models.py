"""What commands take as MODEL: names of the zoo, and texts of graphs."""

import json

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.tools.cli import main

GRAPH = """graph @f(%x: f32[2,3]) {
  %y = tanh(%x)
  %z = exp(%y) loc("m.py":7, "net/layer")
  return %z
}
"""


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.ir").write_text(GRAPH)

    def run(*words):
        status = main(words)
        return status, *capsys.readouterr()

    return run


def test_a_name_of_the_zoo_is_called_with_one_image(run):
    status, out, err = run("dump", "mobilenet0.25", "--stage", "trace")
    assert (status, err) == (0, "") and "f32[1,3,224,224]" in out and "f32[1,1000]" in out
    status, out, err = run("dump", "mobilenet0.25", "--stage", "trace", "--input", "4x3x64x64")
    assert (status, err) == (0, "") and "f32[4,3,64,64]" in out


def test_parameters_of_a_model_of_the_zoo(run, tmp_path):
    net = mx.gluon.model_zoo.vision.get_model("mobilenet0.25")
    net.initialize(mx.init.One())
    x = mx.nd.ones((1, 3, 32, 32))
    net(x)
    net.save_parameters(str(tmp_path / "ones.params"))
    np.save(tmp_path / "x.npy", x.asnumpy())
    status, _, err = run("run", "mobilenet0.25", "ones.params", "--input", "x.npy", "--output", "y.npy")
    assert (status, err) == (0, "")
    assert np.allclose(np.load(tmp_path / "y.npy"), net(x).asnumpy(), rtol=1e-5)


def test_unknown_names(run):
    assert run("dump", "resnet50")[2] == (
        "error: there is no file 'resnet50', nor a model of that name in the zoo; did you mean 'resnet50_v2'?\n"
    )
    assert "no such file" in run("dump", "mobilenet0.25", "missing.params")[2].lower()
    assert "there is no file net.py" in run("dump", "net.py:net")[2]


def test_the_text_of_a_graph_is_measured(run, tmp_path):
    status, out, err = run("profile", "f.ir", "--calls", "2", "--json")
    assert (status, err) == (0, "")
    (program,) = json.loads(out)["programs"]
    (kernel,) = program["kernels"]
    assert (kernel["layer"], kernel["file"], kernel["line"]) == ("net/layer", "m.py", 7)
    status, out, err = run("report", "f.ir", "--calls", "2", "-o", "f.html")
    assert (status, err) == (0, "") and "f.html" in out
    assert '"f/y"' in (tmp_path / "f.html").read_text()  # where an op has no place, its line in the text is it


def test_what_the_text_of_a_graph_is_not_taken_for(run):
    assert run("dump", "f.ir")[2] == (
        "error: f.ir is the text of a graph, which `gluonjit run`, opt, profile and report take\n"
    )
    assert "--train: f.ir is a graph" in run("profile", "f.ir", "--train")[2]
    assert "p.params: a parameters' file is for model-symbol.json" in run("profile", "f.ir", "p.params")[2]
    assert "--input x is f32[2,4]; the graph takes f32[2,3]" in run("profile", "f.ir", "--input", "2x4")[2]
