"""`benchmarks.training`: steps of several engines on the same data, from the same parameters."""

import sys

import numpy as np
import pytest

import gluonjit as mx
from benchmarks import report, results, training
from benchmarks.peers import LOSSES
from benchmarks.steps import STEPS, batches, gluon_net


def row(**ratios):
    ours = {"seconds": 1e-3, "best": 9e-4, "cpu": 1.0, "first": 2.0, "memory": 1e8, "version": "1"}
    facts = {"low": 0.6, "high": 1.6, "pairs": 9, "dropped": 0, "disturbed": False, "version": "1", "cpu": 1.0}
    facts |= {"best": 1e-3, "first": 3.0, "memory": 2e8, "difference": 1e-6, "early": 2e-7}
    peers = {name: {**facts, "ratio": ratio, "seconds": ratio * 1e-3} for name, ratio in ratios.items()}
    limits = {"flops": 2.5e11}
    return {
        "workload": "T2",
        "title": "LeNet",
        "threads": 1,
        "flop": 2e8,
        "goal": 0.8,
        "ours": ours,
        "limits": limits,
        "peers": peers,
        "skipped": {"jax": "is missing"},
    }


@pytest.mark.parametrize("key", ["T1", "T2", "T6", "T7", "T10"])
def test_a_net_takes_its_batches(key):
    step = STEPS[key]
    net = gluon_net(mx, step)
    net.initialize()
    data = batches(step, 1)
    x, y = data[0]
    scores = net(mx.nd.array(x[:4] if step.is_of_words else x))
    assert scores.shape == ((4, 1, step.classes) if step.is_of_words else (1, step.classes))
    assert y.shape == ((*step.shape, 1) if step.is_of_words else (1,)) and y.max() < step.classes
    assert not np.array_equal(x, data[1][0])


def test_a_run_compares_losses_and_writes_json_and_a_table(tmp_path, monkeypatch, capsys):
    """An engine that is missing is left out, with a note: this interpreter has no MXNet."""
    monkeypatch.setattr(training, "FOLDER", tmp_path)
    output = tmp_path / "training.json"
    words = ["T1", "--gradients", "--threads", "1", "--seconds", "0.02", "--turn", "0.005", "--engines", "mxnet"]
    assert training.main([*words, "--mxnet", sys.executable, "--output", str(output)]) == 0
    (found,) = results.load(output)["rows"]
    curve = found["ours"]["losses"]
    assert len(curve) == LOSSES and curve[0] == pytest.approx(curve[4]) and curve[0] != curve[1]
    assert found["ours"]["best"] <= found["ours"]["seconds"] and "mxnet" in found["skipped"]["mxnet"]
    text = output.with_suffix(".md").read_text()
    assert "T1 MLP" in text and "- mxnet: " in text and "T1 MLP" in capsys.readouterr().out


def test_an_unknown_step_is_named(capsys):
    assert training.main(["T0"]) == 2
    assert "no step T0; there are T1" in capsys.readouterr().err


def test_the_difference_of_loss_curves_is_relative_to_ours():
    assert training.difference(np.array([2.0, 1.1]), np.array([2.0, 1.0])) == pytest.approx(0.1)
    assert training.difference(np.array([np.nan]), np.array([1.0])) == float("inf")


def test_the_table_says_where_mxnet_is_faster_by_more_than_allowed():
    text = report.training_markdown([row(mxnet=0.7, torch_eager=1.5)], {"cpu": "Some CPU"})
    assert "| T2 LeNet | 1 | 1 ms | 900 µs | 200.0 | 80% | mxnet | 700 µs | 0.70 | 0.70 (missed) |" in text
    assert "| T2 | 1 | 2.00 | 3.00 | 3.00 |" in text and "- jax: is missing" in text
    assert "missed" not in report.training([row(mxnet=0.9)])
    assert report.training([row(torch_eager=0.9)]).splitlines()[1].endswith("–")


def test_a_peer_has_a_line():
    line = report.training_peer(row(mxnet=0.9), "mxnet")
    assert "first step 3.00 s, 200 MB, losses differ by 1e-06, the first two by 2e-07" in line
    assert report.training_ours(row()) == "1 ms (best 900 µs), 200.0 GFLOP/s, first step 2.00 s, 100 MB"
