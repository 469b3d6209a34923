"""Models go to real MXNet as exported files and give the same there, and MXNet's give the same here.

    GLUONJIT_ORACLE=oracle/bin/python pytest tests/reference/test_round_trip.py

needs a Python that has MXNet 1.9.1 (`tests/oracle/record.py` says how to make one); the tests are skipped without.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoint import test_export

import gluonjit as mx

ORACLE = os.environ.get("GLUONJIT_ORACLE")
FOLDER = Path(__file__).resolve().parents[1] / "oracle"
TOLERANCE = 1e-5

needs_oracle = pytest.mark.skipif(not ORACLE, reason="needs GLUONJIT_ORACLE, a Python that has MXNet")

sys.path.append(str(FOLDER))
import round_trip_cases as cases  # noqa: E402

LAYERS = [name for name in cases.NAMES if name not in cases.ZOO]
PROGRAMS = {f"program {function.__name__}": function for function in test_export.PROGRAMS}

UNTRACEABLE = {"PoissonNLLLoss full", "SDMLLoss"}
"""What real MXNet cannot hybridize: they use `*=`, and shapes."""


def export_program(name, prefix):
    """What MXNet could not have traced itself, as operators that it has."""
    outputs = test_export.export(PROGRAMS[name], test_export.X, path=prefix)
    np.savez(f"{prefix}.npz", x0=test_export.X, **{f"y{k}": y for k, y in enumerate(outputs)})


class Exchange:
    """Files for and from MXNet, and what it said."""

    def __init__(self, folder, names):
        self.folder = folder
        for side in ("ours", "theirs"):
            (folder / side).mkdir()
        for name in names:
            prefix = self.prefix("ours", name)
            export_program(name, prefix) if name in PROGRAMS else cases.export(mx, name, prefix)
        command = [ORACLE, str(FOLDER / "round_trip.py"), str(folder), *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.reports = {report["name"]: report for report in said}

    def prefix(self, side, name):
        return str(self.folder / side / cases.slug(name))

    def check(self, name):
        report = self.reports[name]
        assert report["import"] is None and report["apart"] <= TOLERANCE, report
        if name in PROGRAMS:
            return
        if name in UNTRACEABLE:
            assert report["export"] is not None
            return
        assert report["export"] is None, report
        assert cases.imported(mx, self.prefix("theirs", name)) <= TOLERANCE


@pytest.fixture(scope="module")
def exchange(tmp_path_factory):
    return Exchange(tmp_path_factory.mktemp("exchange"), [*LAYERS, *PROGRAMS])


@needs_oracle
@pytest.mark.parametrize("name", [*LAYERS, *PROGRAMS])
def test_layers_and_programs(exchange, name):
    exchange.check(name)


@needs_oracle
@pytest.mark.parametrize("name", cases.ZOO)
def test_model_zoo(name, tmp_path):
    Exchange(tmp_path, [name]).check(name)


def test_every_layer_has_a_case():
    text = Path(cases.__file__).read_text() + Path(cases.oracle_cases.__file__).read_text()
    plain = {"Block", "HybridBlock", "SymbolBlock", "Sequential", "Lambda", "SequentialRNNCell"}
    bases = {"RecurrentCell", "HybridRecurrentCell", "ModifierCell"}
    for package in (mx.gluon.nn, mx.gluon.rnn):
        names = {n for n in package.__all__ if n[0].isupper()} - plain - bases
        assert not [name for name in names if f"{name}(" not in text and f'"{name}"' not in text]
