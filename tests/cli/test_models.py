"""What commands take as MODEL: names of the zoo, and texts of graphs."""

import json
import sys

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
    random = "warning: mobilenet0.25: no parameters' file is given, so they are random\n"
    status, out, err = run("dump", "mobilenet0.25", "--stage", "trace")
    assert (status, err) == (0, random) and "f32[1,3,224,224]" in out and "f32[1,1000]" in out
    status, out, err = run("dump", "mobilenet0.25", "--stage", "trace", "--input", "4x3x64x64", "--zeros")
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
        "error: there is no file 'resnet50', nor a model of that name in the zoo; did you mean 'resnet50_v1'?\n"
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
    assert run("check", "f.ir")[2] == (
        "error: f.ir is the text of a graph, which run, dump, inspect, opt, profile and report take\n"
    )
    assert "`gluonjit opt -p joint` makes that of its gradient" in run("dump", "f.ir", "--stage", "joint")[2]
    assert "--train: f.ir is a graph" in run("profile", "f.ir", "--train")[2]
    assert "p.params: a parameters' file is for model-symbol.json" in run("profile", "f.ir", "p.params")[2]
    assert "--input x is f32[2,4]; the graph takes f32[2,3]" in run("profile", "f.ir", "--input", "2x4")[2]


def test_stages_and_description_of_the_text_of_a_graph(run):
    assert "fmul" in run("dump", "f.ir", "--stage", "llvm")[1]
    assert "%z: f32[2,3] = exp(%y)" in run("dump", "f.ir", "--stage", "trace")[1]
    assert "  x: f32[2,3]\noutputs:\n  z: f32[2,3]\noperators: 2\n" in run("inspect", "f.ir")[1]


PROGRAM = """
import mxnet as mx
from mxnet.gluon import nn

def net():
    block = nn.HybridSequential(prefix="")
    block.add(nn.Dense(3, prefix="dense_"))
    block.initialize(mx.init.One())
    return block
"""


def test_programs_that_import_mxnet(run, tmp_path):
    (tmp_path / "old.py").write_text(PROGRAM)
    assert "f32[1,3]" in run("run", "old.py:net", "--input", "1x2")[1]
    status, out, err = run("inspect", "old.py:net", "--input", "1x2")
    assert (status, err) == (0, "")
    assert "  FullyConnected                       1" in out and "parameters: 2 arrays (2 f32), 9 elements, 36 B" in out
    assert "and 1 whose shapes the first call decides" in run("inspect", "old.py:net")[1]


def test_programs_find_no_arguments(run, tmp_path):
    (tmp_path / "argp.py").write_text(
        "import argparse, sys\nfrom gluonjit.gluon import nn\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--units', type=int, default=3)\nunits = parser.parse_args().units\n"
        "def net():\n    assert sys.argv == ['argp.py']\n    return nn.Dense(units, in_units=4)\n"
    )
    before = [*sys.argv]
    status, out, err = run("dump", "argp.py:net", "--input", "2x4", "--stage", "trace")
    assert (status, err) == (0, "") and "f32[2,3]" in out and sys.argv == before


def test_a_program_becomes_a_checkpoint(run, tmp_path):
    (tmp_path / "old.py").write_text(PROGRAM)
    status, out, err = run("convert", "old.py:net", "net-symbol.json", "net-0000.params", "--input", "1x2")
    assert (status, err) == (0, "")
    assert out == "net-symbol.json: inputs data\nnet-0000.params: 2 arrays, 36 B\n"
    np.save(tmp_path / "x.npy", np.ones((1, 2), "f4"))
    words = ("run", "net-symbol.json", "net-0000.params", "--input", "x.npy", "-o", "y.npy")
    assert run(*words)[1] == "y.npy: 1 array, 12 B\ndense_fwd_output: f32[1,3], from 2 to 2\n"


@pytest.mark.parametrize("command", ["run", "check", "dump", "compile", "build", "bench", "profile", "report"])
def test_what_is_no_model_is_refused_by_all_commands(run, tmp_path, command):
    """Files of any ending were run as Python programs."""
    (tmp_path / "net.h5").write_text("open('was-run', 'w')")
    (tmp_path / "net.npz").write_text("open('was-run', 'w')")
    mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc").save(str(tmp_path / "net-symbol.json"))
    assert run(command, "net.h5")[2].startswith("error: net.h5: its ending is not that of a model: FILE.py:NAME, ")
    swapped = "error: net.npz holds parameters, and net-symbol.json is the graph, which comes first"
    assert run(command, "net.npz", "net-symbol.json")[2].startswith(swapped)
    status, out, err = run(command, "net-symbol.json", "--input", "data=1x2")
    assert status == 1 and "no values for fc_weight, fc_bias" in err and "--zeros" in err
    assert not (tmp_path / "was-run").exists() and not (tmp_path / "out").exists()


def test_nothing_is_written_in_another_format_than_its_name_says(run, tmp_path):
    mx.nd.save(str(tmp_path / "x.params"), {"x": mx.nd.ones((1,))})
    assert "x.h5: its ending is not that of a format that convert writes" in run("convert", "x.params", "x.h5")[2]
    assert "must end in .html" in run("report", "f.ir", "-o", "r.pdf")[2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.ir", "x.params"]
