"""The process that holds an engine, and the commands around it."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bits, growth, results, run
from benchmarks import model as model_files
from benchmarks.engine import ROOT, Engine, EngineFailed, cores, start, start_ours
from benchmarks.model import model
from benchmarks.requirements import requirements


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return model("W1", tmp_path_factory.mktemp("models"))


def test_a_worker_runs_ours_and_answers_as_float64_does(small):
    with start_ours(small.folder, cores(1)) as engine:
        turn = engine.turn(10)
        assert 0 < turn.seconds < 1 and turn.cpu > 0
        assert engine.first > 0 and engine.memory > 1e7 and engine.version
        assert results.difference(engine.outputs(), small.reference()) < 1e-5
        assert engine.turn(1).seconds > 0  # stopped and continued, again and again


@pytest.mark.skipif(sys.platform != "linux", reason="other systems report what the starting process had")
def test_memory_is_not_that_of_the_process_that_started_it():
    held = np.ones(15_000_000)
    code = "from benchmarks.worker import peak_memory; print(peak_memory())"
    peak = int(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT))
    assert 1e6 < peak < held.nbytes / 2


def test_what_cannot_be_loaded_says_why(small):
    with pytest.raises(EngineFailed, match="ModuleNotFoundError.*no_such_engine"):
        start("no_such_engine", small.folder, cores(1))
    with pytest.raises(EngineFailed, match="died"):
        Engine("peers.gluonjit:load", small.folder, cores(1), "/bin/false")


def test_files_are_made_once_and_again_when_they_are_incomplete(small):
    before = (small.folder / "inputs.npz").stat().st_mtime_ns
    assert model("W1", small.folder.parent) == small
    assert (small.folder / "inputs.npz").stat().st_mtime_ns == before
    (small.folder / "facts.json").write_text("{")
    model("W1", small.folder.parent)
    assert (small.folder / "inputs.npz").stat().st_mtime_ns > before
    assert [y.dtype for y in small.reference()] == [np.float64]


def test_a_run_writes_json_and_a_table(small, tmp_path, monkeypatch, capsys):
    """A peer that is missing is left out, with a note."""
    monkeypatch.setattr(run, "MODELS", small.folder.parent)
    output = tmp_path / "out" / "results.json"
    words = ["--workloads", "W1", "--threads", "1", "--peers", "mxnet", "--seconds", "0.02", "--turn", "0.005"]
    # An interpreter without MXNet: this one.
    assert run.main([*words, "--mxnet", sys.executable, "--output", str(output)]) == 0
    (row,) = results.load(output)["rows"]
    assert row["ours"]["error"] < 1e-5 and row["peers"] == {}
    assert row["limits"].keys() == set(run.LIMITS) and min(row["limits"].values()) > 1e8  # flop or bytes per second
    assert "mxnet" in row["skipped"]["mxnet"]
    text = output.with_suffix(".md").read_text()
    assert "W1 MLP" in text and "- mxnet: " in text and "W1 MLP" in capsys.readouterr().out


def test_requirements_are_those_of_the_extra():
    lines = ["numpy>=1.26", 'pytest>=8; extra == "test"', "onnx>=1.16; extra == 'bench'", 'jax ; extra == "bench"']
    assert requirements(lines) == ["onnx>=1.16", "jax"]


def test_bits_do_not_depend_on_the_number_of_threads():
    assert all(bits.same_bits(key) for key in ("W1b", "W2", "W10"))


@pytest.mark.parametrize(("work", "time", "superlinear"), [(2.0, 2.1, False), (2.0, 2.4, True), (1.0, 1.0, False)])
def test_a_step_is_superlinear_if_time_grows_faster_than_work(work, time, superlinear):
    assert growth.Step(work, time).superlinear is superlinear


def test_growth_prints_every_size(capsys, monkeypatch):
    def made_here(command, check):
        *_, folder, options = command
        model_files._write(Path(folder), **json.loads(options))

    monkeypatch.setattr(model_files.subprocess, "run", made_here)
    assert growth.main(["--workloads", "W1", "--batches", "1", "2", "--widths", "--seconds", "0.02"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["batch", "1"] and "operations x 2.00" in lines[2]


@pytest.mark.parametrize("command", ["run", "compare", "growth", "sizes", "startup", "training"])
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_help_has_an_example(command, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarks.{command}", run_name="__main__")  # as `python -m` does
    assert ended.value.code == 0
    assert f"example: python -m benchmarks.{command}" in " ".join(capsys.readouterr().out.split())
